"""How a check ends, if not well."""

from dp_erm_bench.errors import UsageError


class ContractError(UsageError):
    """An algorithm breaks the contract; the message says how, in one sentence."""


class NotApplicable(UsageError):
    """A check has no meaning for an algorithm; the message is the reason."""


def require(holds: object, sentence: str) -> None:
    """Raise ContractError with a sentence unless something holds."""
    if not holds:
        raise ContractError(sentence)
