"""The errors that a user meets, each one sentence."""


class UsageError(ValueError):
    """Wrong input; the message names the key, the value and what is allowed."""


class DataUnavailable(UsageError):
    """A dataset cannot be had; the message says how to get it."""


class Unsupported(UsageError):
    """An algorithm cannot serve a problem; the message is the reason."""


class BudgetExhausted(RuntimeError):
    """A mechanism was used more often than its solver declared."""


class NotSampled(BudgetExhausted):
    """A use of a mechanism was charged for a secret sample that was not its own."""


class UncheckedSolver(UserWarning):
    """A solver from outside the package has not passed `dp-erm-bench check`."""


class NotSolved(RuntimeError):
    """A minimiser could not be verified to the tolerance that a proof needs."""
