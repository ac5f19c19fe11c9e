"""Constants of rules, fitted on the leaderboard's problems.

`python -m benchmarks.rules try ALGORITHM KIND NAME=VALUE,VALUE ...` runs an algorithm
untuned, with each combination of guesses of its rule's constants, and adds what it ends
at to results/published/rules.csv. `python -m benchmarks.rules fit` says which guess is
the best on all families of data, and what is lost on a family that had no say in it.
"""

import argparse
import functools
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.cells import leaderboard
from dp_erm_bench import load_problem
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.datasets.spec import family_of
from dp_erm_bench.errors import NotSolved, Unsupported, UsageError
from dp_erm_bench.experiment.parameters import algorithm_of
from dp_erm_bench.fitted import one_thread
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.rules.public import PublicNumbers, public_numbers
from dp_erm_bench.rules.settings import (
    RULES,
    Rule,
    objective_perturbation,
    three_digits,
)
from dp_erm_bench.run import Run

TABLE = Path(__file__).resolve().parents[1] / "results/published/rules.csv"
KINDS = ("l2", "l1", "squared", "huber")
"""How names of panels end."""

EPSILONS = (0.1, 0.3, 1.0)
SEEDS = 6
CELL = ["kind", "panel", "epsilon"]
MOST = 1e3
"""A run that diverged counts as so many times w = 0."""


def share_of_bound(
    public: PublicNumbers, share: float, growth: float, least: float, most: float
) -> float:
    """Return the share c of a gradient's bound that is clipped to.

    It grows with the records that a direction has, N / sqrt(p), as noise then costs
    less than what clipping loses.
    """
    each = public.records() / math.sqrt(public.p)
    return float(min(most, max(least, share * (each / 30.0) ** growth)))


def descent(
    public: PublicNumbers,
    given: Any,
    *,
    flow: float,
    free: float,
    rise: float,
    **clip: float,
) -> Mapping[str, Any]:
    """Return steps of gd, until noise moves a margin by a multiple of nu.

    The multiple grows with the records that a direction has.
    """
    c, N = share_of_bound(public, **clip), public.records()
    free *= (N / math.sqrt(public.p) / 30.0) ** rise
    noise = free * public.margin(N) * N * public.curvature / public.lipschitz
    t = min(flow, noise / c, public.beta / max(public.strength, 1e-12))
    T = max(1, min(1000, math.ceil(t / 1.9)))
    return {"n_iter": T, "step": three_digits(t / T), "clip": _clip(public, c)}


def covariance(
    public: PublicNumbers, given: Any, *, n_iter: float, share_of_mu: float, **clip: Any
) -> Mapping[str, Any]:
    """Return settings of feature_covariance, clipped as descent is."""
    clip_to = _clip(public, share_of_bound(public, **clip))
    return {"n_iter": int(n_iter), "share": share_of_mu, "clip": clip_to}


def mirror(
    public: PublicNumbers,
    given: Any,
    *,
    n_iter: float,
    flow: float,
    rise: float,
    **clip: float,
) -> Mapping[str, Any]:
    """Return T steps of mirror_descent of a flow that is in proportion to the ball."""
    size = public.radius * public.column if math.isfinite(public.radius) else 1.0
    each = public.records() / (30.0 * math.log(2 * public.p))
    step = three_digits(flow * size * each**rise / n_iter)
    clip_to = _clip(public, share_of_bound(public, **clip))
    return {"n_iter": int(n_iter), "step": step, "clip": clip_to}


def vertices(
    public: PublicNumbers,
    given: Any,
    *,
    steps: float,
    growth: float,
    share: float,
    rise: float,
) -> Mapping[str, Any]:
    """Return T of frank_wolfe, by the noise of a selection and the size of the ball."""
    each = public.records() / (100.0 * math.log(2 * public.p))
    T = round(steps * (each * math.sqrt(public.radius * public.column)) ** growth)
    c = min(1.0, max(1 / 64, share * each**rise))
    clip = three_digits(c * public.lipschitz * public.column)
    return {"n_iter": max(1, min(2000, T)), "clip": clip}


def _clip(public: PublicNumbers, c: float) -> float:
    return three_digits(c * public.largest)


CLIP = {"share": 0.25, "growth": 0.35, "least": 0.25, "most": 1.0}
CANDIDATES: Mapping[str, Mapping[str, Rule]] = {
    "gd": {
        "l2": Rule(
            "3", {}, descent, {"flow": 1600.0, "free": 2.0, "rise": 0.2, **CLIP}
        ),
        "l1": Rule(
            "3",
            {},
            descent,
            {
                **CLIP,
                "flow": 400.0,
                "free": 1.0,
                "rise": 0.0,
                "growth": 0.2,
                "least": 1 / 16,
            },
        ),
        "squared": Rule(
            "3",
            {},
            descent,
            {
                **CLIP,
                "flow": 1600.0,
                "free": 1.0,
                "rise": 0.0,
                "share": 0.03,
                "least": 1 / 32,
                "most": 0.25,
            },
        ),
    },
    **{
        name: {"l2": Rule("3", {}, objective_perturbation, {"bent": 0.5})}
        for name in ("objective_perturbation", "approximate_minima_perturbation")
    },
    "feature_covariance": {
        "l2": Rule(
            "3",
            {},
            covariance,
            {
                **CLIP,
                "n_iter": 16,
                "share_of_mu": 0.1,
                "growth": 0.2,
                "least": 1 / 64,
                "most": 0.5,
            },
        ),
        "squared": Rule(
            "3",
            {},
            covariance,
            {
                "n_iter": 64,
                "share_of_mu": 0.1,
                "share": 0.015,
                "growth": 0.2,
                "least": 1 / 32,
                "most": 0.25,
            },
        ),
    },
    "mirror_descent": {
        "l1": Rule(
            "3",
            {},
            mirror,
            {
                "n_iter": 128,
                "flow": 100.0,
                "rise": 0.35,
                "share": 0.25,
                "growth": 0.5,
                "least": 1 / 64,
                "most": 0.5,
            },
        ),
        "squared": Rule(
            "3",
            {},
            mirror,
            {
                "n_iter": 128,
                "flow": 10_000.0,
                "rise": 0.7,
                "share": 0.03,
                "growth": 0.05,
                "least": 1 / 128,
                "most": 0.25,
            },
        ),
    },
    "frank_wolfe": {
        "l1": Rule(
            "3",
            {},
            vertices,
            {"steps": 16.0, "growth": 0.8, "share": 0.125, "rise": 0.35},
        ),
    },
}
"""Rules that no algorithm has yet, by kind, with the constants found so far."""


def rule_of_kind(algorithm: str, kind: str) -> Rule | None:
    """Return the candidate of an algorithm, else its rule of today, else None."""
    return CANDIDATES.get(algorithm, {}).get(kind) or RULES.get(algorithm)


def panels_of(kind: str) -> dict[str, dict[str, Any]]:
    """Return a block of each panel of a kind."""
    blocks = {block["panel"]: block for block in leaderboard()}
    return {name: one for name, one in blocks.items() if name.endswith(f"_{kind}")}


def family_of_panel(block: Mapping[str, Any]) -> str:
    """Return the family of a panel's data, a set of LIBSVM having its own."""
    data = block["dataset"]
    return family_of(f"{data['name']}:{data['set']}" if "set" in data else data["name"])


@functools.cache
def problem_of_panel(panel: str) -> ERMProblem:
    """Return the problem of a panel."""
    block = panels_of(panel.rpartition("_")[2])[panel]
    given = {k: block[k] for k in ("loss", "penalty", "constraint") if k in block}
    data = dict(block["dataset"])
    problem = load_problem(data.pop("name"), **given, **data)
    assert isinstance(problem, ERMProblem) and problem.optimum.value is not None
    return problem


def error_of(
    problem: ERMProblem, algorithm: str, settings: Mapping[str, Any], budget: Budget
) -> float:
    """Return the geometric mean of F(w) / min F - 1 over seeds.

    Infinite if a run is refused, not solved, or not finite.
    """
    solver = algorithm_of(algorithm).solver(settings)
    seeds = [f"rules {seed}" for seed in range(SEEDS)]
    errors: list[float] = []
    for batch in [seeds] if solver.batchable else [[seed] for seed in seeds]:
        try:
            with one_thread():
                run = Run(problem, [solver] * len(batch), budget, "certified", batch)
                ends = run.record(2).rows
        except (NotSolved, Unsupported):
            return math.inf
        if not ends.finite.all():
            return math.inf
        errors += [problem.value(w) / problem.optimum.value - 1.0 for w in ends.w]
    return float(np.exp(np.log(np.maximum(errors, 1e-9)).mean()))


def rows_of_guess(
    algorithm: str, kind: str, guess: Mapping[str, float]
) -> Iterator[dict[str, Any]]:
    """Yield what a guess ends at on each cell of a kind, in units of w = 0."""
    rule = rule_of_kind(algorithm, kind)
    assert rule is not None
    constants = {**rule.constants, **guess}
    for panel, block in panels_of(kind).items():
        problem = problem_of_panel(panel)
        zero = problem.value(np.zeros(problem.p)) / problem.optimum.value - 1.0
        for epsilon in EPSILONS:
            budget = Budget(epsilon=epsilon, delta="1/n^2")
            public = public_numbers(problem, budget, None)
            assert public is not None
            settings = rule.settings(public, {}, **guess)
            error = error_of(problem, algorithm, settings, budget)
            yield {
                **{"algorithm": algorithm, "kind": kind, "panel": panel},
                **{"family": family_of_panel(block), "epsilon": epsilon},
                "constants": json.dumps(constants, sort_keys=True),
                "of_zero": float(f"{min(error / zero, MOST):.4g}"),
            }


def best_guess(rows: pd.DataFrame) -> str:
    """Return the constants of the least geometric mean, each family counting once."""
    return str(_means(rows).idxmin())


def _means(rows: pd.DataFrame) -> "pd.Series[float]":
    logs = rows.assign(log=np.log(rows["of_zero"]))
    families = logs.groupby(["constants", "family"])["log"].mean()
    return families.groupby("constants").mean().map(math.exp)


def fit_rows(rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the best guess of each algorithm and kind, and what it ends at.

    ``left_out`` is the geometric mean over families of the guess that is the best on
    all others; ``above`` the share of cells in which that is above w = 0.
    """
    for (algorithm, kind), own in rows.groupby(["algorithm", "kind"]):
        guesses = own["constants"].nunique()
        counts = own.groupby(CELL)["constants"].transform("nunique")
        own = own[counts == guesses]
        best, left = best_guess(own), []
        for family, there in own.groupby("family"):
            chosen = best_guess(own[own["family"] != family])
            left.append(there[there["constants"] == chosen])
        yield {
            **{"algorithm": algorithm, "kind": kind, "guesses": guesses},
            "constants": best,
            "of_zero": _means(own)[best],
            "left_out": _means(pd.concat(left).assign(constants="")).iloc[0],
            "above": (pd.concat(left)["of_zero"] > 1.0).mean(),
        }


def guesses_of(words: list[str]) -> Iterator[dict[str, float]]:
    """Yield the combinations of NAME=VALUE,VALUE.

    Raises
    ------
    UsageError
        If a word is another.
    """
    axes: dict[str, list[float]] = {}
    for word in words:
        name, _, values = word.partition("=")
        try:
            axes[name] = [float(value) for value in values.split(",")]
        except ValueError:
            raise UsageError(f"{word}: must be NAME=VALUE,VALUE") from None
    for point in itertools.product(*axes.values()):
        yield dict(zip(axes, point, strict=True))


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rules")
    commands = parser.add_subparsers(dest="command", required=True)
    trying = commands.add_parser("try")
    trying.add_argument("algorithm", choices=sorted({*RULES, *CANDIDATES}))
    trying.add_argument("kind", choices=KINDS)
    trying.add_argument("guesses", nargs="*", metavar="NAME=VALUE,VALUE")
    commands.add_parser("fit")
    given = parser.parse_args()
    rows = pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame()
    guesses: list[dict[str, float]] = []
    if given.command == "try":
        rule = rule_of_kind(given.algorithm, given.kind)
        if rule is None:
            parser.error(f"{given.algorithm}: has no rule of kind {given.kind}")
        guesses = [*guesses_of(given.guesses)]
        if wrong := {*guesses[0]} - {*rule.constants}:
            parser.error(f"{min(wrong)}: must be one of {', '.join(rule.constants)}")
    elif rows.empty:
        parser.error("fit: no guess is recorded, try some first")
    for guess in guesses:
        new = pd.DataFrame(rows_of_guess(given.algorithm, given.kind, guess))
        rows = pd.concat([rows, new]).drop_duplicates(
            [*CELL, "algorithm", "constants"], keep="last"
        )
        rows.to_csv(TABLE, index=False)
    print(pd.DataFrame(fit_rows(rows)).to_string(float_format="{:.3g}".format))


if __name__ == "__main__":
    main()
