"""Run one sweep in this process, and print its largest memory in MB."""

import argparse
import resource
import sys
from pathlib import Path
from typing import Any

from dp_erm_bench.runner.experiment import run_experiment
from dp_erm_bench.runner.options import EXECUTE, RunOptions


def block(kind: str, trials: int, passes: int = 1) -> dict[str, Any]:
    """Return a block over seeds, or one in which every trial has another setting."""
    algorithm: dict[str, Any] = {"name": "random_cd", "clip": 1.0, "passes": passes}
    seeds = list(range(trials))
    if kind == "settings":
        algorithm["clip"] = [1 + k / 1000 for k in range(trials // 100)]
        algorithm["step"] = [1 + k / 1000 for k in range(100)]
        seeds = [0]
    return {
        "panel": "",
        "line": kind,
        "dataset": {"name": "log1", "n": 60, "p": 5},
        "algorithm": algorithm,
        "budget": {"epsilon": 1.0},
        "seed": seeds,
    }


def peak() -> float:
    """Return the largest memory that this process has used, in MB.

    On Linux, `ru_maxrss` of a child also counts the process that started it. The value
    in /proc is the child's own.
    """
    status = Path("/proc/self/status")
    if not status.is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) / 1024


def main() -> None:
    """Run the sweep of the command line; exit with the code of the runner."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["seeds", "settings"])
    parser.add_argument("trials", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--execute", default="nothing")
    parser.add_argument("--append", action="store_true", help="as a sweep does")
    parser.add_argument("--passes", type=int, default=1, help="of 5 iterations")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--limit", type=float, default=3600.0)
    parser.add_argument("--engine", default="local")
    parser.add_argument("--backend", default="threading")
    parser.add_argument("--address")
    given = parser.parse_args()
    real = given.execute == "solver"
    options = RunOptions(
        engine=given.engine,
        backend=given.backend,
        address=given.address,
        n_jobs=None if given.address else 2,
        progress=False,
        batch_trials=given.batch,
        time_limit=given.limit,
        append_plan=given.append,
        execute=EXECUTE if real else f"benchmarks.backends.{given.execute}",
    )
    blocks = [block(given.kind, given.trials, given.passes)]
    code = run_experiment(blocks, "", given.folder, options)
    print(peak())
    sys.exit(code)


if __name__ == "__main__":
    main()
