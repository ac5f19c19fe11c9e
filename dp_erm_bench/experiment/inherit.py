"""Link tuners: which line takes parameters from the choice of which other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.expand import Wanted
from dp_erm_bench.experiment.lines import Case
from dp_erm_bench.experiment.tune import Tuner


def tuners_of(
    cases: Iterable[Wanted], n_checkpoints: int, finals: Mapping[str, float]
) -> list[Tuner]:
    """Return the tuners of the tuned cases, each linked to what it inherits from.

    Raises
    ------
    UsageError
        If what a case inherits does not exist, is ambiguous or circular.
    """
    tuned = [c for c in cases if isinstance(c, Case) and c.tune is not None]
    tuners = [Tuner(case, n_checkpoints, finals) for case in tuned]
    for tuner in tuners:
        tuner.source = _source(tuner, tuners)
    for tuner in tuners:
        _check_chain(tuner)
    return tuners


def _source(tuner: Tuner, tuners: Iterable[Tuner]) -> Tuner | None:
    inherit = tuner.tune.inherit
    if inherit is None:
        return None
    found = [
        other
        for other in tuners
        if (other.case.panel, other.case.line) == (inherit.panel, inherit.line)
        and other.case.problem_spec.digest == tuner.case.problem_spec.digest
    ]
    if len(found) > 1:
        found = [other for other in found if other.case.budget["epsilon"] == 1.0]
    where = f"tune.inherit.line={inherit.line} (panel {inherit.panel})"
    if len(found) != 1:
        raise UsageError(
            f"{where}: must be one tuned line on the same dataset and objective, or "
            f"one at epsilon = 1; there are {len(found)}"
        )
    _check_has(where, found[0], inherit.parameters)
    return found[0]


def _check_has(where: str, source: Tuner, parameters: Iterable[str]) -> None:
    own = source.tune.inherit.parameters if source.tune.inherit else ()
    known = {*source.axes, *source.case.params, *own}
    for parameter in parameters:
        if parameter not in known:
            raise UsageError(
                f"{where}: it does not choose {parameter}; it has "
                f"{', '.join(sorted(known))}"
            )


def _check_chain(tuner: Tuner) -> None:
    seen, source = {tuner}, tuner.source
    while source is not None:
        if source in seen:
            line = source.case.line
            raise UsageError(f"tune.inherit.line={line}: inherits from itself")
        seen.add(source)
        source = source.source
