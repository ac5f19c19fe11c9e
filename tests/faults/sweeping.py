"""Run a sweep in its own process, given as JSON on the command line."""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "runner"))

import fakes  # noqa: E402
from made_blocks import make_block, make_tuned  # noqa: E402

from dp_erm_bench.runner.experiment import run_experiment  # noqa: E402
from dp_erm_bench.runner.options import RunOptions  # noqa: E402

RUNS = "DP_ERM_BENCH_TEST_RUNS"
"""Names a folder of manifests; a batch waits there for those of two runs."""


def together(trials):
    for _ in range(1000):
        if len(list(Path(os.environ[RUNS]).glob("*.json"))) > 1:
            break
        time.sleep(0.02)
    time.sleep(0.02)
    return fakes.bowl(trials)


def main():
    given = json.loads(sys.argv[1])
    blocks = [make_block(seed=given["seeds"])]
    if given["report"]:
        blocks.append(make_tuned(line="tuned", tune={"report": given["report"]}))
    options = RunOptions(
        execute=given.get("execute", "sweeping.together"),
        progress=False,
        append_plan=given["append"],
        batch_trials=2,
    )
    return run_experiment(blocks, "study", Path(given["folder"]), options)


if __name__ == "__main__":
    sys.exit(main())
