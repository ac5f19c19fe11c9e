"""The tuners of an experiment's lines, linked where one takes another's choice."""

from collections.abc import Iterable

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.asked import Ask, afresh
from dp_erm_bench.experiment.grid import Finals, Tuner
from dp_erm_bench.experiment.lines import FitLine
from dp_erm_bench.experiment.search import PatternTuner
from dp_erm_bench.experiment.trials import Line


def tuners_of(
    lines: Iterable[Line], n_checkpoints: int, finals: Finals, ask: Ask = afresh
) -> list[Tuner]:
    """Return the tuners of the tuned lines, each linked to what it inherits from.

    Parameters
    ----------
    lines : iterable of Line
    n_checkpoints : int
        Rows of a report trial.
    finals : mapping
        Last values of trials by key and quantity; filled between stages.
    ask : callable
        Gives the points of a search's rounds, see `search.Ask`.

    Raises
    ------
    UsageError
        If what a line inherits does not exist, is ambiguous or circular.
    """
    tuned = [x for x in lines if isinstance(x, FitLine) and x.tune is not None]
    tuners = [
        PatternTuner(line, n_checkpoints, finals, ask)
        if line.tune and line.tune.search
        else Tuner(line, n_checkpoints, finals)
        for line in tuned
    ]
    for tuner in tuners:
        tuner.source = _source(tuner, tuners)
    for tuner in tuners:
        chain = [tuner]
        while (source := chain[-1].source) is not None:
            if source in chain:
                line = source.line.line
                raise UsageError(f"tune.inherit.line={line}: inherits from itself")
            chain.append(source)
    return tuners


def _source(tuner: Tuner, tuners: Iterable[Tuner]) -> Tuner | None:
    """Return the tuner that a tuner inherits from, refuse any other number of them."""
    inherit = tuner.tune.inherit
    if inherit is None:
        return None
    sources = [
        other
        for other in tuners
        if other.line.label == (inherit.panel, inherit.line)
        and other.line.problem.identity == tuner.line.problem.identity
    ]
    if len(sources) > 1:
        sources = [other for other in sources if other.line.budget["epsilon"] == 1.0]
    where = f"tune.inherit.line={inherit.line} (panel {inherit.panel})"
    if len(sources) != 1:
        raise UsageError(
            f"{where}: must be one tuned line on the same dataset and objective, or "
            f"one at epsilon = 1; there are {len(sources)}"
        )
    (source,) = sources
    chosen = {*source.axes, *source.line.params, *source._inherits}
    for parameter in inherit.parameters:
        if parameter not in chosen:
            raise UsageError(
                f"{where}: it does not choose {parameter}; it has "
                f"{', '.join(sorted(chosen))}"
            )
    return source
