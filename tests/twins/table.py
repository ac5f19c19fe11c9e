"""The page broken_twins: which check detects which broken copy."""

from tests.contract.corpus import BROKEN, SOUND
from tests.pages import find_page
from tests.twins.breaks import BREAKS, TWINS
from tests.twins.checks import CONTRACT, QUICK, SLOW, complaints
from tests.twins.kinds import KINDS

DOC = find_page("broken_twins")
HEAD = """\
# Broken twins

A *broken twin* is a copy of a solver with one deliberate fault. For each kind of
release, every fault is put into a solver of the package. The twin then goes through the
checks that every algorithm must pass. The large table shows which checks find which
fault. An empty cell means that the fault does not apply to the release. The tests fail
if no check finds a fault, or if a check complains about a correct solver
(`tests/twins`, `tests/contract/test_twins.py`). `python -m tests.twins` writes this
page; do not edit it.

Other tests cover the faults of the other kinds of releases:

- samples of fixed size: `tests/solvers/test_bias_reduced_sgd.py`
- random allocation: `tests/privacy/test_allocation.py`
- random sketches: `tests/solvers/test_mean.py`
- repeated runs, with a run that is not counted or with the number of runs published:
  `tests/solvers/test_boosting.py`
- minimisers on the dual, without a ridge, with 1 / n instead of 2 / (D n), or with a
  last point that is not charged: `tests/solvers/test_dual_frank_wolfe.py`

"""
WORDS = {
    "uses_are_those_declared": "U",
    "declarations_know_no_data": "K",
    "the_noise_is_recounted": "N",
    "samples_are_those_charged": "S",
    "records_are_read_once": "O",
    "runs_repeat": "R",
    "draws_are_distinct": "D",
    "global_random_state_is_untouched": "G",
    "replay_audit": "P",
    "private_constants_are_audited": "C",
    "the_limit_is_reached": "L",
    "goodness of fit": "F",
    "exact scale": "E",
    "statistical audit": "A",
}
MEANINGS = {
    "uses_are_those_declared": "each mechanism is used as often as declared",
    "declarations_know_no_data": "declarations are the same on neighbouring data",
    "the_noise_is_recounted": "the noise and the number of uses are read from the "
    "answers of a run; a second implementation computes their epsilon",
    "samples_are_those_charged": "a sum contains exactly the records that the "
    "mechanism drew",
    "records_are_read_once": "a record changes at most one query, and only if the "
    "mechanism handed out this record",
    "runs_repeat": "a second run gives the same bits; another seed gives other noise",
    "draws_are_distinct": "no random draw is used twice",
    "global_random_state_is_untouched": "the global generators of numpy and Python are "
    "not used",
    "replay_audit": "a run is repeated on neighbouring data with the same answers: "
    "queries change by at most the declared sensitivity, and iterates do not change",
    "private_constants_are_audited": "the replay audit with released smoothness "
    "constants",
    "the_limit_is_reached": "without noise, the algorithm reaches the minimum",
    "goodness of fit": "the noise, the selections and the samples of 1500 runs (150 if "
    "a solver runs alone) have the distribution that is accounted for",
    "exact scale": "noise scales agree with the formulas, number by number",
    "statistical audit": "100 to 4000 runs on each of two worst-case neighbours do "
    "not refute the claimed privacy profile",
}

FAULTS = {
    "constants from the data": (
        "A step size, a clipping threshold, a starting point, an order or a "
        "seed is computed from the records."
    ),
    "branches that never run": (
        "The leak is in a branch that runs only for some data or some steps, "
        "such as many records or late steps."
    ),
    "secrecy of samples": (
        "The result depends on the size of a sample, or one sample is used twice."
    ),
    "caches": (
        "A number that is computed from one data set is cached and used again, "
        "for example in a default argument, a class or a module."
    ),
    "past the mechanisms": (
        "Exact values of the data decide something, or noise is removed, for "
        "example by a line search on the objective."
    ),
    "claims": (
        "The solver declares something wrong, such as a sensitivity without a "
        "factor 2 or a curvature of 0."
    ),
    "repeated runs": (
        "A run passes data to a later run, or more than the selected run is published."
    ),
    "told beside the iterates": (
        "The solver prints data, or writes them to a log, a file or the environment."
    ),
}
"""What is wrong with the solvers of the corpus, by class."""


def legend():
    yield "| | check | what is checked |"
    yield "|---|---|---|"
    for name, letter in WORDS.items():
        shown = f"contract: `{name}`" if name in CONTRACT else name
        yield f"| **{letter}** | {shown} | {MEANINGS[name]} |"


def numbered():
    """The kinds, each with the number that heads its column."""
    return {kind: str(i + 1) for i, kind in enumerate(KINDS)}


def rows(found):
    """The table of what was found: (kind, break) to the names of checks."""
    yield "| fault | " + " | ".join(numbered().values()) + " |"
    yield "|---" * (len(KINDS) + 1) + "|"
    for name in BREAKS:
        cells = ["".join(WORDS[c] for c in found.get((k, name), ())) for k in KINDS]
        yield f"| {name} | " + " | ".join(cells) + " |"


def text(found):
    """The whole document."""
    columns = "; ".join(f"**{i}** {kind}" for kind, i in numbered().items())
    parts = [
        [f"The columns are kinds of releases: {columns}."],
        list(legend()),
        list(rows(found)),
    ]
    parts.append(list(classes()))
    return HEAD + "\n\n".join("\n".join(part) for part in parts) + "\n"


def classes():
    """The solvers of the corpus that are caught, by class."""
    yield "## Solvers that a researcher could write"
    yield ""
    yield (
        f"`dp-erm-bench check` finds the fault in each of {len(BROKEN)} small solvers, "
        f"and no fault in {len(SOUND)} correct solvers. All solvers are listed "
        "by name in `tests/contract/corpus.py`."
    )
    yield ""
    yield "| what is wrong | number of solvers |"
    yield "|---|---|"
    for kind in dict.fromkeys(made.kind for made in BROKEN.values()):
        count = sum(made.kind == kind for made in BROKEN.values())
        yield f"| {FAULTS[kind]} | {count} |"


def written():
    """Return what the document says: (kind, break) to the names of checks."""
    names = {letter: name for name, letter in WORDS.items()}
    table = DOC.read_text().split("| fault |")[1].partition("\n\n")[0].splitlines()[2:]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]
    return {
        (kind, name): [names[letter] for letter in cell]
        for name, *cells in lines
        for kind, cell in zip(KINDS, cells, strict=True)
        if cell
    }


def all_found():
    """Put every twin through every check."""
    checks = QUICK | SLOW
    return {key: list(complaints(key[0], twin, checks)) for key, twin in TWINS.items()}
