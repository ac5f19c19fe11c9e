"""What a search asks for: points of its space, recorded where it can be resumed."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.choice import Point
from dp_erm_bench.experiment.grid import Finals
from dp_erm_bench.experiment.lines import FitLine
from dp_erm_bench.experiment.race import Points, RacingTuner, key_of
from dp_erm_bench.experiment.space import space_of
from dp_erm_bench.experiment.values import canonical, plain
from dp_erm_bench.plugins.names import identity

Ask = Callable[[str, int, Callable[[], Points]], Points]
"""Takes the name of a case, a round, and who makes its points; returns the points.

What was asked in an earlier run of the folder is asked again, whatever a library's
random numbers are by now.
"""


def afresh(case: str, number: int, make: Callable[[], Points]) -> Points:
    """Return the points of a round that nobody has asked for before."""
    return make()


class AskingTuner(RacingTuner):
    """A racing tuner whose points are asked for by what they depend on.

    Parameters
    ----------
    line, n_checkpoints, finals
        As of a `Tuner`.
    ask : callable
        See `Ask`.

    Attributes
    ----------
    space : dict from str to Axis
        The parameters' values.
    """

    def __init__(
        self, line: FitLine, n_checkpoints: int, finals: Finals, ask: Ask = afresh
    ) -> None:
        super().__init__(line, n_checkpoints, finals)
        self.ask, self.space = ask, space_of(line)

    def _asked(
        self, what: list[Any], number: int, make: Callable[[], Iterator[Point]]
    ) -> Points:
        """Return the new points of a round that is named by what it depends on."""
        name = digest(canonical([self._case(), *what]))
        asked = self.ask(name, number, lambda: [*make()])
        new = {key_of(one): one for one in asked if self._allowed(one)}
        return [one for key, one in new.items() if key not in self.rungs]

    def _allowed(self, point: Point) -> bool:
        """Return whether a point, of a file maybe, is one of the space's."""
        if list(point) != [*self.inherited, *self.space]:
            return False
        same = all(point[key] == value for key, value in self.inherited.items())
        if not same or not all(a.holds(point[key]) for key, a in self.space.items()):
            return False
        try:
            self.line.setting(**point)
        except UsageError:
            return False
        return True

    def _case(self) -> str:
        """Return the digest of what the points of a search depend on."""
        line, search = self.line, self.search
        algorithm = [identity(line.algorithm), line.base["algorithm"]["params"]]
        privacy = [line.budget, line.calibration]
        inherited = {key: plain(value) for key, value in self.inherited.items()}
        named = [line.problem.identity, algorithm, privacy, inherited]
        axes = {key: [*map(plain, values)] for key, values in line.axes.items()}
        how = [self.tune.limits, self.tune.seeds, self.tune.quantity, search.ratio]
        return digest(canonical([named, axes, how]))


def digest(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal digits."""
    return sha256(text.encode()).hexdigest()
