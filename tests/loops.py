"""Run the cases of a test one after the other, as one test."""

import functools
import inspect

import pytest


def each(names, values, ids=None):
    """Run a test with each of some values, as `pytest.mark.parametrize` would.

    What is collected is one test, which costs a millisecond less per case; the first
    case that fails ends it and is named. Its fixtures are those of all cases: no case
    may leave anything to the next one. It is skipped where all are.
    """
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")]
    cases = [
        dict(zip(names, value if len(names) > 1 else (value,), strict=True))
        for value in values
    ]
    assert cases

    def repeated(test):
        signature = inspect.signature(test)
        others = [p for name, p in signature.parameters.items() if name not in names]

        @functools.wraps(test)
        def run(*args, **given):
            skipped = []
            for case in cases:
                try:
                    test(*args, **given, **case)
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except BaseException as error:
                    error.add_note(f"case: {case}")
                    raise
            if len(skipped) == len(cases):
                raise skipped[0]

        run.__signature__ = signature.replace(parameters=others)
        return run

    return repeated
