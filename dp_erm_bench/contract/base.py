"""What a check is, and how it says what it found."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass

from dp_erm_bench.contract.candidate import Candidate
from dp_erm_bench.contract.errors import ContractError, NotApplicable

OK, FAILS, EXEMPT = "ok", "FAILS", "does not apply"


@dataclass(frozen=True)
class Outcome:
    """What came of a check.

    Attributes
    ----------
    check : str
        Its name.
    verdict : str
        `OK`, `FAILS` or `EXEMPT`.
    said : str
        The violation, or why the check does not apply; empty if all is well.
    seconds : float
        How long it took.
    """

    check: str
    verdict: str
    said: str
    seconds: float


@dataclass(frozen=True)
class Check:
    """A property that every algorithm keeps.

    Attributes
    ----------
    run : callable
        Takes a `Candidate`; raises `ContractError` or `NotApplicable`. Its name is
        the check's, the first line of its docstring what is checked.
    exemptable : bool
        Whether a class may declare that the check has no meaning for it
        (``Solver.exempt``).
    """

    run: Callable[[Candidate], None]
    exemptable: bool = False

    @property
    def name(self) -> str:
        """Return the name of the check."""
        return self.run.__name__

    @property
    def says(self) -> str:
        """Return what is checked."""
        return (inspect.getdoc(self.run) or "").partition("\n")[0]

    def on(self, candidate: Candidate) -> None:
        """Raise ContractError if an algorithm breaks the contract.

        What the algorithm itself raises breaks it, too.

        Raises
        ------
        ContractError
            One sentence: what is violated, where, by how much.
        NotApplicable
            The reason why the check has no meaning for the algorithm.
        """
        reason = candidate.solver.exempt.get(self.name)
        if reason and self.exemptable:
            raise NotApplicable(reason)
        try:
            self.run(candidate)
        except (ContractError, NotApplicable):
            raise
        except Exception as error:
            said = " ".join(str(error).split())
            raise ContractError(f"it raises {type(error).__name__}: {said}") from error

    def outcome(self, candidate: Candidate) -> Outcome:
        """Return what comes of the check, raising nothing."""
        start = time.perf_counter()
        verdict, said = OK, ""
        try:
            self.on(candidate)
        except ContractError as error:
            verdict, said = FAILS, str(error)
        except NotApplicable as reason:
            verdict, said = EXEMPT, str(reason)
        return Outcome(self.name, verdict, said, time.perf_counter() - start)
