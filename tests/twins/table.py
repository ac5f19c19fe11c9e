"""The page broken_twins: which check finds which twin."""

from tests.contract.corpus import BROKEN, SOUND
from tests.pages import find_page
from tests.twins.breaks import BREAKS, TWINS
from tests.twins.checks import CONTRACT, QUICK, SLOW, complaints
from tests.twins.kinds import KINDS

DOC = find_page("broken_twins")
HEAD = """\
# Broken twins

Each kind of release is used in a solver of the package, broken in one way at a time,
and put through the checks that every algorithm must pass. A cell lists the checks that
find the fault. A fault that no check finds fails the tests, and so does a sound solver
that a check accuses (`tests/twins`, `tests/contract/test_twins.py`). Empty: the fault
has no meaning for the release. Written by `python -m tests.twins`; do not edit.

Faults in the other kinds are tested elsewhere: samples of fixed size in
`tests/solvers/test_bias_reduced_sgd.py`, random allocation in
`tests/privacy/test_allocation.py`, random sketches in `tests/solvers/test_mean.py`,
repeated runs (a run that is not counted, K published) in
`tests/solvers/test_boosting.py`, minimisers on the dual (no ridge, 1 / n instead of
2 / (D n), the last point unpaid) in `tests/solvers/test_dual_frank_wolfe.py`.

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
    "declarations_know_no_data": "neighbours declare the same",
    "the_noise_is_recounted": "noise and uses are read off a run's answers and "
    "accounted by the second implementation",
    "samples_are_those_charged": "the records that are summed are those that the "
    "mechanism drew",
    "records_are_read_once": "a record moves one query at most, and none where it is "
    "not among those that were handed out",
    "runs_repeat": "a second run has the same bits, other seeds have other noise",
    "draws_are_distinct": "no draw is used again",
    "global_random_state_is_untouched": "numpy's and Python's generators are unmoved",
    "replay_audit": "the same answers on a neighbour: queries move by the declared "
    "sensitivity at most, iterates not at all",
    "private_constants_are_audited": "the same with released smoothness constants",
    "the_limit_is_reached": "without noise the minimum is reached",
    "goodness of fit": "the noise, winners and samples of 1500 runs (150 of a solver "
    "that runs alone) have the law that is accounted",
    "exact scale": "the scale is that of the formulas, number by number",
    "statistical audit": "100 to 4000 runs a side on worst-case neighbours refute the "
    "claimed profile",
}


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
    yield "| break | " + " | ".join(numbered().values()) + " |"
    yield "|---" * (len(KINDS) + 1) + "|"
    for name in BREAKS:
        cells = ["".join(WORDS[c] for c in found.get((k, name), ())) for k in KINDS]
        yield f"| {name} | " + " | ".join(cells) + " |"


def text(found):
    """The whole document."""
    columns = ", ".join(f"**{i}** {kind}" for kind, i in numbered().items())
    parts = [[f"Columns: {columns}."], list(legend()), list(rows(found))]
    parts.append(list(classes()))
    return HEAD + "\n\n".join("\n".join(part) for part in parts) + "\n"


def classes():
    """The solvers of the corpus that are caught, by class."""
    yield "## Solvers that a researcher could write"
    yield ""
    yield (
        f"{len(BROKEN)} small solvers, each sound but for one thing, and {len(SOUND)} "
        "sound ones that no check accuses (`tests/contract/corpus.py`)."
    )
    yield ""
    yield "| class | what is wrong |"
    yield "|---|---|"
    for kind in dict.fromkeys(made.kind for made in BROKEN.values()):
        names = [name for name, made in BROKEN.items() if made.kind == kind]
        yield f"| {kind} | {'; '.join(names)} |"


def written():
    """Return what the document says: (kind, break) to the names of checks."""
    names = {letter: name for name, letter in WORDS.items()}
    table = DOC.read_text().split("| break |")[1].partition("\n\n")[0].splitlines()[2:]
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
