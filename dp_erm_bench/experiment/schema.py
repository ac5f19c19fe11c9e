"""A tuning block's own section, checked: axes, seeds, refinement, inheritance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.axes import check_keys, seeds_of, values_of

KEYS = ("axes", "seeds", "refine", "extend", "report", "inherit")


@dataclass(frozen=True)
class Inherit:
    """Parameters to take from the choice of another line."""

    panel: str
    line: str
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Tune:
    """How a line's parameters are chosen.

    Attributes
    ----------
    axes : mapping
        Values per parameter, or a mapping with `unit` and `values`.
    seeds : tuple of int
        Seeds on which every setting is tried.
    best : int
        How many settings get the seeds of the refinement; 0 for none.
    refine_seeds : tuple of int
        More seeds for the best.
    extend : tuple of str
        Axes that grow upwards while the best value is the topmost.
    report : tuple of int
        Fresh seeds for the setting chosen.
    inherit : Inherit or None
        Parameters taken from another line.
    """

    axes: Mapping[str, Any]
    seeds: tuple[int, ...]
    best: int
    refine_seeds: tuple[int, ...]
    extend: tuple[str, ...]
    report: tuple[int, ...]
    inherit: Inherit | None = field(default=None)


def tune_of(section: Mapping[str, Any], panel: str) -> Tune:
    """Return the checked `tune` section of a block.

    Raises
    ------
    UsageError
        If a key is unknown or missing, or if seeds of one purpose are used for
        another: a choice must not be reported on what it was made on.
    """
    check_keys("tune", section, KEYS)
    for key in ("axes", "seeds", "report"):
        if section.get(key) is None:
            raise UsageError(f"tune.{key}: must be given")
    axes = dict(section["axes"])
    best, refine_seeds = _refine(section.get("refine"))
    tune = Tune(
        axes=axes,
        seeds=seeds_of("tune.seeds", section["seeds"]),
        best=best,
        refine_seeds=refine_seeds,
        extend=_extend(section.get("extend"), axes),
        report=seeds_of("tune.report", section["report"]),
        inherit=_inherit(section.get("inherit"), panel),
    )
    _check_disjoint("tune.report", tune.report, tune.seeds + tune.refine_seeds)
    _check_disjoint("tune.refine.seeds", tune.refine_seeds, tune.seeds)
    return tune


def _refine(section: Any) -> tuple[int, tuple[int, ...]]:
    if section is None:
        return 0, ()
    check_keys("tune.refine", section, ("best", "seeds"))
    best = section.get("best")
    if isinstance(best, bool) or not isinstance(best, int) or best < 1:
        raise UsageError(f"tune.refine.best={best}: must be an integer of at least 1")
    return best, seeds_of("tune.refine.seeds", section.get("seeds"))


def _extend(section: Any, axes: Mapping[str, Any]) -> tuple[str, ...]:
    names = tuple([] if section is None else section)
    for name in names:
        if name not in axes:
            allowed = ", ".join(axes)
            raise UsageError(f"tune.extend={name}: must be an axis ({allowed})")
    return names


def _inherit(section: Any, panel: str) -> Inherit | None:
    if section is None:
        return None
    check_keys("tune.inherit", section, ("panel", "line", "parameters"))
    for key in ("line", "parameters"):
        if not section.get(key):
            raise UsageError(f"tune.inherit.{key}: must be given")
    parameters = values_of("tune.inherit.parameters", section["parameters"])
    return Inherit(section.get("panel", panel), section["line"], tuple(parameters))


def _check_disjoint(key: str, seeds: tuple[int, ...], others: tuple[int, ...]) -> None:
    shared = sorted(set(seeds) & set(others))
    if shared:
        raise UsageError(
            f"{key}={shared[0]}: is a tuning seed as well; the seeds must be disjoint"
        )
