"""Laplace noise on a number."""

from dataclasses import dataclass

from dp_erm_bench.kernels import draws
from dp_erm_bench.releases.base import Release
from dp_erm_bench.releases.events import Event


@dataclass(frozen=True, eq=False)
class Laplace(Release):
    """A number plus Laplace noise of scale z * sensitivity."""

    draw = staticmethod(draws.laplace)

    def event(self) -> Event:
        """Return the Laplace mechanism."""
        return Event("laplace", self.times, self.weight)
