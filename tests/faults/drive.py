"""Run one block with a faulty backend, and exit as the command line does."""

import json
import sys
from pathlib import Path

sys.path[:0] = json.loads(sys.argv[1])

from dp_erm_bench.errors import UsageError  # noqa: E402
from dp_erm_bench.runner.experiment import run_experiment  # noqa: E402
from dp_erm_bench.runner.options import RunOptions  # noqa: E402


def main(block, folder, options):
    options["retry"] = tuple(options.get("retry", ()))
    made = RunOptions(**options)
    try:
        return run_experiment([block], "study", Path(folder), made)
    except KeyboardInterrupt:
        return 130
    except UsageError as error:
        print(f"dp-erm-bench: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(*map(json.loads, sys.argv[2:])))
