"""A program of a test: find modules that a trial runs but that its key lacks.

`NUMBA_DISABLE_JIT=1 python traced.py` runs algorithms, losses, penalties, constraints,
kinds of problems and datasets. Each supported pair of these occurs at least once.
Kernels run as plain Python under a tracer. The program prints as JSON the modules that
ran and are not in the key. Studies are traced, too.
"""

import collections
import functools
import itertools
import json
import random
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

import dp_erm_bench
from dp_erm_bench import registry
from dp_erm_bench.code_identity import is_left_out, module_named, modules_reached
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.experiment.lines import (
    EXECUTE,
    TaskLine,
    all_choices,
    chosen_by,
)
from dp_erm_bench.experiment.parameters import algorithm_of
from dp_erm_bench.runner import execute

ROOT = Path(dp_erm_bench.__file__).parent
DATA = ("dense", "sparse", "regression")
BUDGETS = (
    {"epsilon": 1.0, "delta": 1e-5, "adjacency": "replace_one"},
    {"epsilon": 1.0, "delta": 1e-5, "adjacency": "zero_out"},
    {"epsilon": "inf", "delta": 1e-5, "adjacency": "replace_one"},
)
BOUNDS = {"columns": 1.0, "label": 1.0}
SHORT = {"n_iter": 2, "passes": 1, "clip": 1.0}
VARIED = {"boosting": {"inner": ("gd", "sgd", "bias_reduced_sgd")}}
"""Parameters whose values name other code, of the algorithms that have one."""

USUAL = {"dense", "logistic", "l2", "none", str(BUDGETS[0])}

TRIES = 5
"""Refusals after which a pair is taken for one that nothing serves."""


def blocks(folder):
    """Yield the blocks of trials that bring a new pair of choices.

    Whether one was served is sent back; returned are the choices that were.
    """
    rng = np.random.default_rng(0)
    X = np.round(rng.uniform(-1.0, 1.0, (12, 4)), 3)
    y = np.where(X[:, 0] > 0.1, 1, -1)
    paths = {name: Path(folder) / f"{name}.csv" for name in DATA}
    for name, labels in (("dense", y), ("regression", np.round(X[:, 1], 3))):
        rows = [*map(",".join, np.column_stack([X, labels]).astype(str))]
        paths[name].write_text("a,b,c,d,label\n" + "\n".join(rows) + "\n")
    paths["sparse"] = Path(folder) / "sparse.svm"
    lines = (
        f"{label} "
        + " ".join(f"{j + 1}:{v}" for j, v in enumerate(row) if abs(v) > 0.4)
        for row, label in zip(X, y, strict=True)
    )
    paths["sparse"].write_text("\n".join(lines) + "\n")
    sets = {
        name: {"name": "file", "path": str(path), "bounds": BOUNDS}
        for name, path in paths.items()
    }
    sets["sparse"]["p"] = 4
    sets["regression"]["task"] = "regression"
    made = {name: registry.target("constraint", name) for name in names("constraint")}
    spaces = {name: {"name": name, **kind.example(4)} for name, kind in made.items()}
    norms = [
        {"name": "norm_ball", "norm": "range"},
        {"name": "norm_ball", "norm": "groups", "groups": [[0, 1], [2, 3]]},
    ]
    spaces |= {f"norm_ball {one['norm']}": {"radius": 1.0, **one} for one in norms}
    penalties = {}
    for name in names("penalty"):
        built = registry.build("penalty", name)
        strong = {"strength": 0.1} if hasattr(built, "strength") else {}
        penalties[name] = {"name": name, **built.example(4), **strong}
    variants = {f"{name} {values}": (name, values) for name, values in algorithms()}
    budgets = {str(budget): budget for budget in BUDGETS}
    axes = [variants, sets, dict.fromkeys(names("loss")), penalties, spaces, budgets]
    tried, seen, served = collections.Counter(), set(), set()
    for choices in candidates([[*axis] for axis in axes]):
        pairs = {*itertools.combinations(enumerate(choices), 2)} - seen
        # A pair that is always refused is given up.
        if not pairs or min(tried[pair] for pair in pairs) >= TRIES:
            continue
        tried.update(pairs)
        variant, data, loss, penalty, space, budget = choices
        algorithm, values = variants[variant]
        block = {
            "dataset": sets[data],
            "loss": loss,
            "penalty": penalties[penalty],
            "constraint": spaces[space],
            "algorithm": {"name": algorithm, **short(algorithm), **values},
            "budget": budgets[budget],
        }
        if (yield block):
            seen |= pairs
            served |= {algorithm, *choices}
    return sorted(served)


def candidates(axes):
    """Yield choices: all with a usual rest, for what is served at all; then others."""
    usual = [USUAL.intersection(axis) or {*axis} for axis in axes]
    for axis in range(1, len(axes)):
        near = [
            axes[i] if i in (0, axis) else sorted(usual[i]) for i in range(len(axes))
        ]
        yield from itertools.product(*near)
    draw = random.Random(0)
    for _ in range(10_000):
        yield tuple(map(draw.choice, axes))


def names(group):
    return registry.names(group)


def algorithms():
    for name in names("algorithm"):
        varied = VARIED.get(name, {})
        for values in itertools.product(*varied.values()):
            yield name, dict(zip(varied, values, strict=True))


def short(algorithm):
    known = registry.target("algorithm", algorithm).__dataclass_fields__
    found = {key: value for key, value in SHORT.items() if key in known}
    if "n_iter" in found:  # it stands in place of passes
        found.pop("passes", None)
    return found


def others():
    """Yield blocks of generated data, of means, and of calibrations."""
    small = {"n": 30, "p": 5}
    for name in registry.names("dataset"):
        fields = registry.read_choice("dataset", name)
        if "n" in fields:
            known = {key: small[key] for key in small if key in fields}
            yield {"dataset": {"name": name, **known}, "algorithm": gd()}
    yield {"dataset": "breast_cancer", "algorithm": gd()}
    yield {
        "dataset": {"name": "breast_cancer", "test_fraction": 0.2},
        "algorithm": gd(),
    }
    records = {"name": "hard_mean", "n": 40, "p": 60, "bounds": None, "nonzeros": 4}
    records["bounds"] = {"norm": 1.0, "nonzeros": 4}
    for name in names("algorithm"):
        yield {"problem": "mean", "dataset": records, "algorithm": name}
        for calibration in ("paper", "authors"):
            yield {
                "dataset": {"name": "quasi_sparse", "n": 30, "p": 8},
                "algorithm": {"name": name, **short(name)},
                "calibration": calibration,
            }


def studies():
    """Yield a block of each study that runs algorithms."""
    for name in names("algorithm"):
        own = {"algorithm": name, "seed": 0}
        yield {"task": {"name": "audit", "runs": 4}, **own}
        yield {"task": {"name": "accounting", "lengths": [2]}, **own}
    yield {"task": {"name": "accounting", "violation": True}, "seed": 0}


def gd():
    return {"name": "gd", "n_iter": 2, "clip": 1.0}


class Entered:
    """Notes the modules of the package whose code is entered, as a profiler."""

    def __init__(self):
        self.codes = set()

    def __call__(self, frame, event, argument):
        if event == "call":
            self.codes.add(frame.f_code)

    @property
    def modules(self):
        named = {name for name in map(module_of, self.codes) if name}
        return {name for name in named if not is_left_out(name)}


@functools.cache
def module_of(code):
    """Return the module of a code, None if it is none of ours."""
    path = Path(code.co_filename)
    # What a module does when it is imported follows from who imports it.
    if code.co_name == "<module>" or not path.is_relative_to(ROOT):
        return None
    return ".".join(("dp_erm_bench", *path.relative_to(ROOT).with_suffix("").parts))


@functools.cache
def reached(target):
    return frozenset(modules_reached([module_named(target)]))


def in_key(line):
    """Return the modules that enter the key of a line's trials."""
    if isinstance(line, TaskLine):
        targets = {target for _, target in line.task.specs(line.block)} - {""}
        chosen = [type(line.task), *all_choices(), *targets]
    else:
        chosen = [algorithm_of(line.algorithm).target, *chosen_by(line.problem)]
    return frozenset().union(*map(reached, (EXECUTE, *chosen)))


def traced(block):
    """Return the record of a trial, what it entered, and what is in its key."""
    (line,), _ = expand_blocks([{"seed": 0, **block}])
    trial = line.settings[0].trial(0, 2)
    note = Entered()
    sys.setprofile(note)
    try:
        (record,) = execute.run_batch([trial])
    finally:
        sys.setprofile(None)
    return record, note.modules, in_key(line)


def main():
    """Run the trials and print what came of them."""
    warnings.simplefilter("ignore")
    execute.warm_up = lambda *how: None  # What it computes is thrown away.
    counts, missed, chosen = collections.Counter(), {}, 0

    def runs(block):
        nonlocal chosen
        try:
            record, entered, key = traced(block)
        except UsageError:
            record, entered, key = {"status": "refused"}, set(), set()
        counts[record["status"]] += 1
        if record["status"] == "error":
            missed[record["message"]] = block
        missed.update({name: block for name in entered - key})
        chosen += bool(entered - reached(EXECUTE))
        return record["status"] in ("ok", "diverged")

    for block in itertools.chain(others(), studies()):
        runs(block)
    with tempfile.TemporaryDirectory() as folder:
        made = blocks(folder)
        block = next(made)
        while True:
            try:
                block = made.send(runs(block))
            except StopIteration as end:
                served = end.value
                break
    found = {"missed": missed, "served": served, "chosen": chosen}
    print(json.dumps({"counts": counts, **found}))


if __name__ == "__main__":
    main()
