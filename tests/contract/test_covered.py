"""What no replay runs is named, and what conditions mention is tried."""

import contextlib
from unittest.mock import patch

import pytest

from dp_erm_bench.contract import replay
from dp_erm_bench.contract.candidate import (
    Candidate,
    ContractError,
    NotAllRun,
    NotApplicable,
    candidate_of,
)
from dp_erm_bench.contract.cases import PAIRS, Case, params_of, varied
from dp_erm_bench.contract.covered import Watch, directed, larger, sources_of, unrun
from dp_erm_bench.contract.problems import FAMILIES
from dp_erm_bench.contract.side import Side
from dp_erm_bench.contract.suite import EXEMPT, FAILS, NOT_ALL_RUN, OK
from dp_erm_bench.registry import build
from dp_erm_bench.releases.adjacency import Adjacency
from tests.contract.corpus import HIDDEN, SOUND_BEHIND, Made, at
from tests.contract.own import check_named
from tests.loops import each

MOVE = "                # the move\n"
JUDGED = ("declarations_know_no_data", "samples_are_those_charged", "replay_audit")


@pytest.fixture
def candidate(tmp_path):
    def write(made, pinned=False):
        (tmp_path / "mine.py").write_text(made.text)
        if made.beside:
            (tmp_path / "helper.py").write_text(made.beside)
        found = candidate_of(str(tmp_path / "mine.py"))
        # Without a pin it is replayed in this process.
        return found if pinned else Candidate(found.name, found.solver, found.preset)

    return write


@contextlib.contextmanager
def few(every=80, seek=False):
    """Replay few cases, and seek no further ones unless that is asked for."""

    def thin(cases, count):
        def some(*args, **params):
            found = [x for x in cases(*args, **params) if x.family != "very many"]
            return found[:: max(1, len(found) // count)]

        return some

    with contextlib.ExitStack() as stack:
        for name, count in (("varied", every), ("corners", every // 2)):
            some = thin(getattr(replay, name), count)
            stack.enter_context(patch.object(replay, name, some))
        seeking = directed if seek else lambda *_: ()
        stack.enter_context(patch.object(replay, "directed", seeking))
        yield


def moved(*lines, **more):
    """The sound solver with lines behind its query."""
    return Made("descent", (at(MOVE, *lines),), **more)


def some_cases(made):
    """Two cases of few steps, with most of what parameters may lead to."""
    params = {"rounds": 3, "tail": "mean", "careful": "yes", "warm": 2}
    for more in ({}, params):
        solver = made.build(more)
        parts = ("logistic", "l2", "none")
        yield Case(params_of(solver), parts, "outlier", Adjacency.REPLACE_ONE)


def missed(made):
    """What is missed of a solver in two replays."""
    sources = sources_of(made.solver)
    noting = Watch(sources, made.solver)
    try:
        for case in some_cases(made):
            assert not Side(made, case, 0).play().error
    finally:
        noting.end()
    found = unrun(sources, made.solver, set(noting.ran()))
    return [one.sentence(sources, 2) for one in found]


LINES = {
    "a comparison": (
        ("if t > 10**6:", "    told = summed"),
        "`t > 10**6` was never true",
    ),
    "one that always holds": (
        ("told = told if t >= 0 else summed",),
        "`t >= 0` was never false",
    ),
    "entries of an array": (
        ("told = np.where(np.abs(told) > 1e300, summed, told)",),
        "`np.abs(told) > 1e300` was never true",
    ),
    "a function that compares": (
        ("told = np.where(np.greater(told, 1e300), summed, told)",),
        "`np.greater(told, 1e300)` was never true",
    ),
    "a part of a condition": (
        ("if t >= 1 and t > 10**6:", "    told = summed"),
        "`t > 10**6` was never true",
    ),
    "a negation": (
        ("if not t < 10**6:", "    told = summed"),
        "`t < 10**6` was never false",
    ),
    "a filter": (
        ("told = sum([told for _ in range(1) if t < 10**6])",),
        "`t < 10**6` was never false",
    ),
    "a case": (
        ("match self.tail:", "    case 'first':", "        told = summed"),
        "`told = summed` was not run",
    ),
    "a handler": (
        ("try:", "    told = 1.0 * told", "except OSError:", "    told = summed"),
        "`told = summed` was not run",
    ),
    "a loop of no rounds": (
        ("for _ in range(0):", "    told = summed"),
        "`told = summed` was not run",
    ),
    "a lambda": (
        ("late = lambda: summed",),
        "`lambda: summed` was not called",
    ),
    "a function inside": (
        ("def late():", "    return summed"),
        "`late` was not called",
    ),
    "a loop that does not end by itself": (
        ("while t >= 0:", "    break"),
        "`t >= 0` was never false",
    ),
}


@each("name", LINES)
def test_what_did_not_run_is_named(name, candidate):
    lines, words = LINES[name]
    found = missed(candidate(moved(*lines)))
    sentences = [one for one in found if words in one]
    assert len(sentences) == 1 and sentences[0].endswith("in 2 replays")
    assert len(found) == 1


QUIET = {
    "an error": ("if t > 10**6:", "    told = summed", "    raise ValueError(t)"),
    "an error otherwise": ("if t >= 0:", "    pass", "else:", "    raise ValueError"),
    "an assertion": ("assert t < 10**6 and not t < 0",),
    "an error that is handled by an error": (
        *("try:", "    told = 1.0 * told"),
        *("except OSError as error:", "    raise ValueError from error"),
    ),
}


@each("name", QUIET)
def test_what_ends_in_an_error_is_not_asked(name, candidate):
    assert missed(candidate(moved(*QUIET[name]))) == []


EXACT = "summed / problem.n"
BEYOND = {
    "columns behind a slice": ("told[:, 340:] = (EXACT)[:, 340:]",),
    "columns behind a minimum": (
        "m = min(problem.p, 211)",
        "told = np.hstack([told[:, :m], (EXACT)[:, m:]])",
    ),
    "columns that a product counts": (
        "told = told + np.maximum(problem.p - 150, 0) * EXACT",
    ),
    "records behind a slice": ("told = told + 0.1 * problem.dataset.y[15_000:].sum()",),
    "trials behind a slice": ("told[40:] = (EXACT)[40:]",),
    "late steps of a table": (
        "told = told + EXACT * np.repeat([0.0, 1.0], [450, 1600])[t]",
    ),
}


@each("name", BEYOND)
def test_sizes_that_no_condition_asks_for_are_met(name, candidate):
    lines = [line.replace("EXACT", EXACT) for line in BEYOND[name]]
    made = candidate(moved("told = told.copy()", *lines))
    with replay.replaying(made) as run:
        results = list(run(list(some_cases(made))))
        assert not any(one.violations for one in results)
        sought = list(larger(made, sources_of(made.solver), results))
        assert len(sought) < 12
        found = [words for one in run(sought) for words in one.violations]
    assert any("past the mechanisms" in words for words in found)


def test_noted_code_computes_the_same_bits(candidate):
    made = candidate(SOUND_BEHIND["cases"])
    cases = list(some_cases(made))

    def ends():
        logs = [Side(made, case, 0).play().log for case in cases]
        return [w.tobytes() for log in logs for w in log.iterates]

    plain = ends()
    noting = Watch(sources_of(made.solver), made.solver)
    noted = ends()
    assert noting.ran() and not noting.ran()
    noting.end()
    assert noted == plain == ends() and not noting.ran()


def test_the_sentence_names_the_line_and_what_to_do(candidate):
    made = candidate(HIDDEN["a switch of the module"])
    with few(8), pytest.raises(NotAllRun) as error:
        replay.all_of_it_was_run(made)
    sentence = str(error.value)
    line = 1 + HIDDEN["a switch of the module"].text.splitlines().index(
        "                if FAST:"
    )
    assert f"line {line}, `FAST` was never true in " in sentence
    assert sentence.endswith(
        "what follows is not checked; make it a parameter, or name it in `exempt` with "
        "a reason"
    )
    with few(8):
        found = check_named("all_of_it_was_run").result(made)
    assert found.verdict == NOT_ALL_RUN


def test_a_reason_stands_in_for_a_line(candidate):
    lines = ("if t > 10**6:", "    told = told / 2")
    exempt = (
        "    exempt = {\n",
        "    exempt = {\n        'KEY': 'it halves a step',\n",
    )
    named = Made("descent", (exempt, at(MOVE, *lines)))
    good = Made("descent", (exempt, at(MOVE, *lines)))
    check = check_named("exemptions_are_of_checks")
    wrong = check.result(candidate(named))
    assert (
        wrong.verdict == FAILS and "exempt names KEY, which is none of" in wrong.reason
    )
    made = good.text.replace("KEY", "t > 10**6")
    right = candidate(type("Text", (), {"text": made, "beside": ""}))
    assert check.result(right).verdict == OK
    everything = {one.place.text for one in ()}
    sources = sources_of(right.solver)
    ran = set(range(sources.slots))
    (place,) = [x for x in sources.places if x.text == "t > 10**6"]
    behind = {x.slot for x in sources.places if x.body.guard == place.slot + 1}
    ran -= {place.slot + 1} | behind | everything
    assert [one.name for one in unrun(sources, right.solver, ran)] == ["t > 10**6"]
    result = replay.ReplayResult(next(iter(varied(right))), ran=frozenset(ran))
    with (
        patch.object(replay, "replay_results", lambda _: [result]),
        patch.object(replay, "private_results", lambda _: []),
        pytest.raises(NotApplicable, match="`t > 10\\*\\*6`: it halves a step"),
    ):
        replay.all_of_it_was_run(right)
    assert EXEMPT == "does not apply"


def test_what_nothing_names_is_not_asked(candidate):
    made = candidate(SOUND_BEHIND["a helper of many uses"])
    scopes = {
        one.place.scope for one in unrun(sources_of(made.solver), made.solver, set())
    }
    assert ("half",) in scopes and ("third",) not in scopes
    assert ("Made", "iterates") in scopes


@each("name", ["gd", "objective_perturbation"])
def test_families_meet_every_pair_and_every_loss_that_concerns_them(name):
    cases = [one for one in varied(candidate_of(name)) if one.toggled is None]
    losses = {one.parts[0] for one in cases}
    for family in FAMILIES:
        own = [one for one in cases if one.family == family]
        pairs = {(one.adjacency, one.z) for one in own}
        assert pairs >= set(PAIRS[:4]), family
        met = {one.parts[0] for one in own}
        if family == "range of labels":
            assert "squared" in met
            assert not any(build("loss", loss).classification for loss in met)
        else:
            assert len(met) == min(len(losses), len(own)), family


@pytest.mark.slow
@pytest.mark.parametrize("name", HIDDEN)
def test_what_is_behind_a_condition_is_found(name, candidate):
    made = candidate(HIDDEN[name], pinned=True)
    found = ""
    with few(160, seek=True):
        for check in (*JUDGED, "all_of_it_was_run"):
            try:
                check_named(check).on(made)
            except NotApplicable:
                pass
            except ContractError as error:
                found += str(error)
    assert HIDDEN[name].found in found


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND_BEHIND)
def test_sound_conditions_are_run(name, candidate):
    made = candidate(SOUND_BEHIND[name], pinned=True)
    with few(160, seek=True):
        verdicts = {check_named(check).result(made).verdict for check in JUDGED}
        last = check_named("all_of_it_was_run").result(made)
    assert verdicts <= {OK}
    assert last.verdict == (EXEMPT if name == "what is named" else OK), last.reason
