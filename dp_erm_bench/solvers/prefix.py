"""The base of algorithms of given noise whose drawn schedules are cut at the budget."""

import copy
from abc import abstractmethod
from typing import Any, ClassVar, Self

from dp_erm_bench.solvers.base import Array, shape
from dp_erm_bench.solvers.runs import Iterative


def multiplier_field(where: str = "") -> Any:
    """Return the field of a noise multiplier that no budget changes."""
    what = f"{where}z, noise scale / sensitivity of each answer"
    return shape(10.0, above=0.0, help=what)


class Prefixed(Iterative):
    """An algorithm that fixes its noise; the budget pays for a number of steps.

    Its schedule is drawn for ``n_iter`` steps, without the data. A run makes the first
    steps of it that the budget pays for. Its class has the fields below.

    Attributes
    ----------
    drawn : object
        The schedule that is followed, None as long as the budget is not known.
    """

    batchable: ClassVar[bool] = False
    drawn: ClassVar[Any] = None

    n_iter: int
    multiplier: float

    @abstractmethod
    def prefix(self, schedule: Any, steps: int) -> Any:
        """Return the schedule of the first so many steps."""

    @abstractmethod
    def costs(self, problem: Any, schedule: Any) -> Array:
        """Return the parts of a budget that the paper charges for steps, (T,)."""

    def following(self, schedule: Any) -> Self:
        """Return the solver whose length and passes are those of a schedule."""
        follower = copy.copy(self)
        object.__setattr__(follower, "drawn", schedule)
        return follower
