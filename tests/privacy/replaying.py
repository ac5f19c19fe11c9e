"""Replay mechanisms and functions on a neighbour, without a solver."""

from dp_erm_bench.trust.replay import Log, Writer, compare_logs


def replay_audit(first, run, second, rerun):
    """Run on D, then on D' with the answers of D, and compare.

    Parameters
    ----------
    first, second : Mechanisms
        Of the two datasets, made with the same identities.
    run, rerun : callable
        Run the solver with given mechanisms and return all its iterates.

    Returns
    -------
    ReplayReport
    """
    log, other = Log(), Log()
    listen(first, Writer(log))
    log.iterates = run(first)
    listen(second, Writer(other, log))
    other.iterates = rerun(second)
    return compare_logs(log, other)


def listen(mechanisms, intercept):
    """Have all mechanisms, and those included later, answer through ``intercept``."""
    mechanisms.ahead, mechanisms.intercept = False, intercept
    for mechanism in mechanisms.values():
        mechanism.intercept = intercept
