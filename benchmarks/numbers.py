"""Check by digests that a change of the code does not change any number.

`python -m benchmarks.numbers` computes the digests and compares them with numbers.csv,
next to this file. `--write` replaces that file. Arguments choose a part: an experiment,
or `fits`. The digests are of exact bits. So they hold for one kind of processor and for
the versions of requirements.lock. On another machine, write the table before you change
the code. All datasets must be available, see DP_ERM_BENCH_DATA in docs/csv.md.
"""

import argparse
import contextlib
import functools
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from dp_erm_bench import fit, load_results, problem_from_arrays, registry
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.problems.mean import MeanEstimation, problem_from_records

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_name("numbers.csv")
EXPERIMENTS = tuple(sorted(path.stem for path in (ROOT / "experiments").glob("*.yaml")))


def _serving(kind: type) -> tuple[str, ...]:
    served = {n: registry.target("algorithm", n).serves for n in ALGORITHMS}
    return tuple(name for name in ALGORITHMS if issubclass(kind, served[name]))


ALGORITHMS = tuple(registry.names("algorithm"))
ADJACENCIES = ("replace_one", "zero_out")

MOVING = ("trial", "run", "seconds", "message")
"""Columns that may differ in another run or another version, and messages."""

FORMER = {"L1Laplace": "LaplaceVector"}
"""Former names of classes of releases, under which their digests were written."""

LENGTHS: tuple[dict[str, Any], ...] = ({"passes": 2}, {"n_iter": 8}, {})
"""Settings of the length of a run; the first one that an algorithm accepts is used."""

Row = tuple[str, str, str]


def rows_of(experiment: str) -> Iterator[Row]:
    """Yield a digest of each column of the table of an experiment's smoke profile."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "dp_erm_bench", f"experiment={experiment}"]
        where = ["profile=smoke", f"results_dir={folder}"]
        subprocess.run(command + where, check=True, stdout=subprocess.DEVNULL)
        table = load_results(Path(folder) / experiment)
    table = table.drop(columns=[name for name in MOVING if name in table])
    # As text, so that the digest does not depend on how a column is stored.
    text = table.map(_text)
    text = text.sort_values(list(text.columns), kind="stable")
    yield experiment, "rows", str(len(text))
    for column in sorted(text):
        yield experiment, column, _digest("\n".join(text[column]).encode())


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return cell.hex()
    if isinstance(cell, np.ndarray | list | tuple | dict):
        return json.dumps(cell, default=np.ndarray.tolist)
    return "" if cell is None or cell is pd.NA else str(cell)


def fits() -> Iterator[Row]:
    """Yield a digest of every algorithm's last iterate and releases."""
    risks = itertools.product(
        ("dense", "sparse", "clipped"),
        _serving(ERMProblem),
        ("certified", "paper", "authors"),
        ADJACENCIES,
        ("public", "private"),
    )
    means = itertools.product(
        ("mean", "mean_sparse", "mean_few", "mean_sparse_few"),
        _serving(MeanEstimation),
        ("certified",),
        ADJACENCIES,
        ("public",),
    )
    for problem, *how in itertools.chain(risks, means):
        found = json.dumps(_fitted(problem, *how))
        yield "fits", " ".join([problem, *how]), _digest(found.encode())


@functools.cache
def _problems() -> dict[str, list[tuple[Problem, dict[str, float]]]]:
    """Return test problems by name, each with the clipping thresholds that it needs.

    Problems of empirical risk minimisation occur without and with a constraint.
    """
    random = np.random.default_rng(11)
    X = random.uniform(-1.0, 1.0, (40, 6))
    X[:, 4] *= 0.1
    y = np.where(X @ random.normal(size=6) > 0.1, 1.0, -1.0)
    sparse = scipy.sparse.csc_matrix(np.where(random.random(X.shape) < 0.3, X, 0.0))
    bounds = {"columns": 1.0, "norm": 2.5, "label": 1.0}
    made: dict[str, list[tuple[Problem, dict[str, float]]]] = {}
    for name, features, loss, penalty, clip in (
        ("dense", X, "logistic", "l2", {}),
        ("sparse", sparse, "logistic", "l1", {}),
        ("clipped", X, "squared", "l2", {"clip": 0.7}),
    ):
        psi = {"loss": loss, "penalty": {"name": penalty, "strength": 0.05}}
        spaces = ("none", {"name": "l1_ball", "radius": 3.0})
        made[name] = [
            (problem_from_arrays(features, y, bounds=bounds, constraint=c, **psi), clip)
            for c in spaces
        ]
    # Drawn last, so that the others do not change; wide enough for a sketch.
    Z = np.where(random.random((40, 64)) < 0.1, random.uniform(-0.5, 0.5, (40, 64)), 0)
    for kind, records in (("", Z), ("_sparse", scipy.sparse.csc_matrix(Z))):
        for most, declared in (("", {}), ("_few", {"nonzeros": 16})):
            mean = problem_from_records(records, bounds={"norm": 2.5, **declared})
            made[f"mean{kind}{most}"] = [(mean, {})]
    return made


def _fitted(
    problem: str, algorithm: str, calibration: str, adjacency: str, smoothness: str
) -> list[Any]:
    """Return the result of the first fit that is not refused, as plain values."""
    budget = {"epsilon": 1.0, "adjacency": adjacency, "calibration": calibration}
    for (made, clip), length in itertools.product(_problems()[problem], LENGTHS):
        usual = _without_rule(algorithm, {*length})
        keys = {**usual, **clip, **length, "smoothness": smoothness}
        with contextlib.suppress(Unsupported, UsageError):
            found = fit(made, algorithm, seed=7, **budget, **keys)
            return [
                found.w.tobytes().hex(),
                found.epsilon_certified.hex(),
                [found.calibration, found.accountant, *found.uncharged],
                [_declared(release) for release in found.releases],
            ]
    return ["refused"]


def _without_rule(algorithm: str, lengths: set[str]) -> dict[str, Any]:
    """Return the class's defaults for parameters that a rule would set."""
    ruled = [
        k
        for k, v in registry.read_choice("algorithm", algorithm).items()
        if v == "auto"
    ]
    fields = registry.target("algorithm", algorithm).__dataclass_fields__
    taken = {"passes", "n_iter"} if lengths else set()
    return {key: fields[key].default for key in ruled if key not in taken}


def _declared(release: Any) -> list[Any]:
    sensitivity = np.asarray(release.sensitivity, np.float64)
    kind, times = type(release).__name__, int(release.times)
    kind = FORMER.get(kind, kind)
    weight = float(release.weight).hex()
    return [kind, release.name, times, weight, sensitivity.tobytes().hex()]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def main() -> int:
    """Compute the chosen digests; return 1 if they differ from those of the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.numbers")
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--write", action="store_true", help="replace numbers.csv")
    given = parser.parse_args()
    if "DP_ERM_BENCH_DATA" not in os.environ:
        parser.error("DP_ERM_BENCH_DATA must name the mirror of the data sets")
    makers = {"fits": fits}
    makers |= {name: functools.partial(rows_of, name) for name in EXPERIMENTS}
    if set(given.parts) - set(makers):
        parser.error(f"a part must be one of {', '.join(makers)}")
    before = pd.read_csv(TABLE, dtype=str).set_index(["part", "what"])["digest"]
    wrong = 0
    for part in given.parts or makers:
        now = pd.DataFrame(makers[part](), columns=["part", "what", "digest"])
        now = now.set_index(["part", "what"])["digest"]
        then = before[before.index.get_level_values("part") == part]
        both = now.to_frame("now").join(then.to_frame("then"), how="outer")
        moved = both[both["now"] != both["then"]]
        wrong += len(moved)
        print(f"{part}: {len(moved)} of {len(both)} digests moved", flush=True)
        for where in moved.index.get_level_values("what"):
            print(f"    {where}")
        before = pd.concat([before.drop(then.index), now])
    if given.write:
        before.sort_index().reset_index().to_csv(TABLE, index=False)
    return int(wrong > 0 and not given.write)


if __name__ == "__main__":
    sys.exit(main())
