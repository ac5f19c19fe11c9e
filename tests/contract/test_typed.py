"""Test checks with private values, and conditions that must be true and false."""

import math

import numpy as np
import pytest

from dp_erm_bench.api import fit, load_problem
from dp_erm_bench.contract import guards, private, typed
from dp_erm_bench.contract.candidate import candidate_of, run_at
from dp_erm_bench.contract.private import Leak, Private
from dp_erm_bench.contract.problems import FAR
from dp_erm_bench.contract.suite import EXEMPT, FAILS, NOT_ALL_RUN, OK
from dp_erm_bench.errors import UsageError
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.solvers.base import Solver
from dp_erm_bench.solvers.private import check_use, once, private_call, uncharged
from tests.contract.corpus import (
    HIDDEN,
    IDIOMS,
    SOUND_BEHIND,
    TOLD,
    Made,
    at,
    broken,
    sound,
)
from tests.contract.own import check_named
from tests.loops import each
from tests.solvers.cases import ALGORITHMS, CANDIDATES

MOVE = "                # the move\n"
QUERY = "                # the query\n"
TYPES, WAYS = "private_values_stay_private", "conditions_come_out_both_ways"


@pytest.fixture
def candidate(tmp_path):
    def write(made):
        (tmp_path / "mine.py").write_text(made.text)
        if made.beside:
            (tmp_path / "helper.py").write_text(made.beside)
        return candidate_of(str(tmp_path / "mine.py"))

    return write


def moved(*lines, **more):
    """The sound solver with lines behind its query."""
    return Made("descent", (at(MOVE, *lines),), **more)


def both(made):
    return [check_named(name).result(made) for name in (TYPES, WAYS)]


# The package's own --------------------------------------------------------------------


@each("algorithm", ALGORITHMS)
def test_private_values_change_no_bit(algorithm):
    made, ended = CANDIDATES[algorithm], 0
    modules = typed.solver_modules()
    served = {"outlier": 0, "sparse": 0}
    for one in typed.subjects(made):
        family = "sparse" if one.problem.dataset.sparse else "outlier"
        if one.solver.refusal(one.problem) or served[family] >= 2:
            continue
        served[family] += 1
        for adjacency in Adjacency:
            subject = typed.TypedCase(one.solver, one.problem, adjacency)
            try:
                guarded = typed.run_with_private_values(subject, modules)
            except UsageError:
                continue
            run, oracle, steps = typed.begin_run(subject)
            plain = [w.copy() for w in run.steps(oracle, steps)]
            assert [w.tobytes() for w in guarded] == [w.tobytes() for w in plain]
            ended += 1
    assert ended >= 2


SCORES = """KEPT = {}


@dataclass
class Scores:
    \"\"\"Scores of entries.\"\"\"

    weight: np.ndarray

    def __call__(self, slope):
        return np.where(self.weight > 0.0, np.abs(slope) * self.weight, -np.inf)

    def of(self, sign, slope):
        return self(sign * slope)
"""


@each("score", ["Scores(cap)", "functools.partial(Scores(cap).of, 1.0)"])
def test_a_score_may_be_an_object_or_a_partial_method(score, candidate):
    made = sound(
        "selected", ("KEPT = {}\n", SCORES), ("slope, np.abs", f"slope, {score}")
    )
    assert check_named(TYPES).result(candidate(made)).verdict == OK


@each("stream, words", [("slope", "of the stream of release slope"), ("start", "")])
def test_public_draws_are_not_those_of_a_releases_noise(stream, words, candidate):
    plan = (
        "    def plan(self, problem, identities):\n"
        f'        seeds = stream_seeds(identities, "{stream}")\n'
        "        return np.stack([uniforms(seed, 0, 4) for seed in seeds])\n\n"
    )
    method = "    def iterations(self, problem):"
    found = check_named(TYPES).result(
        candidate(sound("descent", (method, plan + method)))
    )
    assert found.verdict == (FAILS if words else OK) and words in found.reason


def test_what_is_listed_as_public_is_there_and_knows_no_records():
    """On neighbours and on far data alike."""
    made, parts = CANDIDATES["sgd"], ("logistic", "l2", "none")
    families = ("outlier", "sparse", "no bounds", *FAR)
    pairs = [
        made.neighbours(family, adjacency, parts, 0.1)[:2]
        for family in families
        for adjacency in Adjacency
    ]
    pairs.append(CANDIDATES["mean_noise"].foreign.neighbours(False))
    known = {kind: set() for kind in guards.PUBLIC}
    for first, second in pairs:
        kinds = {"problem": (first, second)}
        for kind in ("dataset", "smoothness"):
            if hasattr(first, kind):
                kinds[kind] = tuple(getattr(one, kind) for one in (first, second))
        for kind, ones in kinds.items():
            for name in guards.PUBLIC[kind] & {*dir(ones[0])}:
                a, b = (getattr(one, name) for one in ones)
                same = repr(a) == repr(b) or np.array_equal(a, b)
                assert same or callable(a), (kind, name)
                known[kind].add(name)
    for algorithm in ALGORITHMS:
        for one in typed.subjects(CANDIDATES[algorithm]):
            if one.solver.refusal(one.problem) is None:
                run = run_at(one.problem, [one.solver])
                known["oracle"] |= {*dir(run.oracle())}
                known["mechanism"].update(*map(dir, run.mechanisms.values()))
                break
    assert guards.MOVES | {*guards.STEPS} <= known["oracle"]
    for kind, names in guards.PUBLIC.items():
        assert names <= known[kind], (kind, names - known[kind])


def test_the_uses_that_no_budget_pays_for_are_these():
    own = {
        name: [*CANDIDATES[name].solver.uncharged]
        for name in ALGORITHMS
        if CANDIDATES[name].solver.uncharged
    }
    assert own == {
        "approximate_minima_perturbation": ["solved"],
        "dual_frank_wolfe": ["solved"],
        "objective_perturbation": ["solved"],
        "output_perturbation": ["solved"],
    }


# What refuses a private value ---------------------------------------------------------

X = np.array([[1.0, -2.0], [0.5, 3.0]])

REFUSED = {
    "a condition": (lambda x: bool(x[0, 0] > 0), private.CONDITION),
    "a plain number": (lambda x: float(x[0, 0]), private.NUMBER),
    "a count": (lambda x: range(x[0, 0]), private.COUNT),
    "a key": (lambda x: {x[0, 0]: 1}, "is a key"),
    "a text": (lambda x: f"{x[0, 0]:.3f}", private.PRINTED),
    "a file": (lambda x: x.tofile("nowhere"), "handed out by its `tofile`"),
    "bytes": (lambda x: x.tobytes(), "handed out by its `tobytes`"),
    "an error": (lambda x: x[:, :1] @ x[:1, :1].T @ x[:, :1].T[:, :1] @ x, "raises"),
    "a mask's length": (lambda x: len(x[x > 0]), private.LENGTH),
    "a public array": (lambda x: np.array([np.float64(1), x]), private.PLAIN),
}


@each("name", REFUSED)
def test_a_private_value_is_refused(name, monkeypatch):
    monkeypatch.setattr(private, "PUBLIC_SIZES", {1})  # not those of the last run
    what, words = REFUSED[name]
    with pytest.raises(Leak, match=".*") as error:
        what(Private(X))
    assert words in str(error.value)


def test_what_is_computed_of_one_is_private_and_kinds_are_public():
    x = Private(X)
    for value in (x + 1, np.sign(x), x.sum(axis=0), x @ X, np.where(x > 0, 1, 0), x.T):
        assert private.is_private(value)
    assert x.shape == (2, 2) and isinstance(x, np.ndarray) and len(x) == 2


def test_what_a_generator_yields_stays_private():
    total = private.lift_function(math.fsum)(one for one in Private(X[0]))
    assert private.is_private(total) and total._raw == -1.0


def test_an_array_is_public_until_something_private_is_written_to_a_view_of_it():
    mine = private.as_public(np.zeros((2, 2)))
    view = mine[0]
    assert float(mine.sum()) == 0.0
    view[:] = Private(X[0])
    assert private.is_private(mine) and private.is_private(view)


def test_the_place_and_where_the_value_became_private_are_named(candidate):
    helper = (
        "@dataclass(frozen=True)\n",
        "def spread(oracle):\n    r = oracle.residuals()\n"
        "    return r.std(axis=1)\n\n\n"
        "@dataclass(frozen=True)\n",
    )
    wide = at(QUERY, "wide = spread(oracle)", "if wide.max() > 1:", "    cap = cap / 2")
    made = Made("descent", (helper, wide))
    reason = check_named(TYPES).result(candidate(made)).reason
    line = 1 + made.text.splitlines().index(" " * 16 + "if wide.max() > 1:")
    assert f"line {line}, `wide.max() > 1`: a condition on a private value" in reason
    assert "is private since" in reason


# Conditions ---------------------------------------------------------------------------


@each("name", HIDDEN)
def test_what_is_behind_a_condition_is_found(name, candidate):
    if name == "a size of one adjacency":
        return  # sizes are for replays
    types, ways = both(candidate(HIDDEN[name]))
    assert types.verdict == FAILS or ways.verdict == NOT_ALL_RUN


@each("name", SOUND_BEHIND)
def test_sound_conditions_are_run(name, candidate):
    types, ways = both(candidate(SOUND_BEHIND[name]))
    assert types.verdict == OK, types.reason
    assert ways.verdict == (EXEMPT if name == "what is named" else OK), ways.reason


@each("name", IDIOMS)
def test_what_to_write_instead_is_said(name, candidate):
    made, words = IDIOMS[name]
    found = check_named(TYPES).result(candidate(made))
    assert found.verdict == FAILS and words in found.reason


def test_a_run_that_ends_the_process_fails(candidate):
    found = both(candidate(moved("raise SystemExit(0)")))[0]
    assert (found.verdict, found.reason) == (FAILS, "it raises SystemExit: 0")


LEFT = {
    "a handler": (
        ("try:", "    told = 1.0 * told", "except OSError:", "    told = told / 2"),
        "`told = told / 2` was not run",
    ),
    "a loop of no rounds": (
        ("for _ in range(0):", "    told = told / 2"),
        "`told = told / 2` was not run",
    ),
    "a case": (
        ("match self.tail:", "    case 'first':", "        told = told / 2"),
        "`told = told / 2` was not run",
    ),
    "a lambda": (("late = lambda: told / 2",), "`told / 2` was not run"),
    "what fails where it is forced": (
        ("if t > 10**6:", "    told = self.nothing"),
        "`t > 10**6` was never true in a run that came to its end",
    ),
}


@each("name", LEFT)
def test_what_did_not_run_is_named(name, candidate):
    lines, words = LEFT[name]
    types, ways = both(candidate(moved(*lines)))
    assert types.verdict == OK, types.reason
    assert ways.verdict == NOT_ALL_RUN and words in ways.reason
    assert ways.reason.endswith("name it in `exempt` with a reason")


QUIET = {
    "an error": ("if t > 10**6:", "    told = 0 * told", "    raise ValueError(t)"),
    "an error otherwise": ("if t >= 0:", "    pass", "else:", "    raise ValueError"),
    "an assertion": ("assert t < 10**6 and not t < 0",),
    "a condition that is forced": ("told = told if t < 10**6 else told / 2",),
    "a loop that does not end by itself": ("while t >= 0:", "    break"),
    "a filter": ("told = sum([told for _ in range(1) if t < 10**6])",),
}


@each("name", QUIET)
def test_what_ends_in_an_error_or_can_be_forced_is_not_named(name, candidate):
    assert [one.verdict for one in both(candidate(moved(*QUIET[name])))] == [OK, OK]


def test_an_exemption_names_a_line_that_there_is(candidate):
    key = ("    exempt = {\n", "    exempt = {\n        'KEY': 'it halves a step',\n")
    found = check_named("exemptions_are_of_checks").result(
        candidate(Made("descent", (key,)))
    )
    assert (
        found.verdict == FAILS and "exempt names KEY, which is none of" in found.reason
    )


# Kernels ------------------------------------------------------------------------------

KERNEL = (
    "@dataclass(frozen=True)\n",
    "@kernel\ndef shrink(x, out):\n    for k in range(len(x)):\n"
    "        out[k] = BODY\n\n\n@dataclass(frozen=True)\n",
)
IMPORT = (
    "from dp_erm_bench.extend import once",
    "from dp_erm_bench.extend import kernel, once",
)
USED = at(
    QUERY,
    "mine = np.zeros(oracle.w.size)",
    "shrink(oracle.clipped_sum(cap).ravel(), mine)",
    "mine = mine.reshape(oracle.w.shape)",
)


def kerneled(body, *changes):
    text = KERNEL[1].replace("BODY", body)
    return Made("descent", (IMPORT, (KERNEL[0], text), USED, *changes))


def test_what_a_kernel_writes_of_private_values_is_private(candidate):
    sound_one = kerneled("x[k] if x[k] > 0.0 else 0.0", ("ask(summed)", "ask(mine)"))
    assert [one.verdict for one in both(candidate(sound_one))] == [OK, OK]


def test_what_a_kernel_hands_on_is_found(candidate):
    leak = kerneled(
        "x[k] if x[k] > 0.0 else 0.0", (TOLD, TOLD + "                told = mine\n")
    )
    assert both(candidate(leak))[0].verdict == FAILS


def test_a_guard_of_a_kernel_that_never_holds_is_no_error(candidate):
    body = "x[k]\n        if not np.isfinite(x[k]):\n            continue"
    made = candidate(kerneled(body, ("ask(summed)", "ask(mine)")))
    assert [one.verdict for one in both(made)] == [OK, OK]


LEAKS = {
    "how many labels there are": ("many = np.unique(problem.dataset.y).size",),
    "how many entries are selected": ("many = len(summed[summed > 0.0].tolist())",),
    "a log that nobody reads": (
        "import logging",
        "logging.getLogger('mine').debug('%s', summed)",
    ),
    "a private call that keeps": (
        "private_call(KEPT.update, {'a': summed}, instead=0)",
        "told = told + KEPT['a']",
    ),
    "a private call of nothing": ("private_call(KEPT.get, 'x', instead=0)",),
    "a private call that prints": ("private_call(print, summed, instead=0)",),
    "a private call that writes": (
        "import sys",
        "private_call(lambda x: sys.stderr.write(str(x)), summed, instead=0)",
    ),
}


@each("name", LEAKS)
def test_what_betrays_a_private_value_is_found(name, candidate):
    types = both(candidate(moved(*LEAKS[name])))[0]
    assert types.verdict == FAILS, name


def test_a_kernel_that_may_raise_needs_a_private_call(candidate):
    body = "x[k]\n        if x[k] > 3.0:\n            raise ValueError"
    found = both(candidate(kerneled(body, ("ask(summed)", "ask(mine)"))))[0]
    assert found.verdict == FAILS and "use private_call(shrink" in found.reason


def test_steps_without_the_noise_of_a_mechanism_are_found(candidate):
    quiet = Made(
        "entries",
        (
            (
                "            for _ in range(k):\n",
                "            for _ in range(k):\n"
                "                j = np.zeros((oracle.batch, 1), dtype=np.int64)\n"
                "                scales = np.ones_like(oracle.w)\n"
                "                how = scales, 0.1 * scales, np.zeros((0, problem.p))\n"
                "                oracle.coordinate_steps(j, np.zeros(j.shape), *how)\n",
            ),
        ),
    )
    found = both(candidate(quiet))[0]
    assert found.verdict == FAILS
    assert "moves public iterates by noise that no mechanism handed out" in found.reason


# Functions of `extend` ----------------------------------------------------------------


OWN_MAX = "def max(x):\n    return x\n\n\ndef halved(x):\n    return x / max(2)\n\n\n"


def test_a_private_call_catches_what_a_function_raises():
    singular = np.zeros((2, 2))
    assert private_call(np.linalg.inv, singular, instead=7) == 7
    assert private_call(np.linalg.inv, np.eye(2), instead=7).tolist() == [
        [1, 0],
        [0, 1],
    ]


def test_a_private_call_finds_names_that_builtins_have_too(candidate):
    own = ("@dataclass(frozen=True)\n", OWN_MAX + "@dataclass(frozen=True)\n")
    made = Made("descent", (own, at(QUERY, "private_call(halved, cap, instead=None)")))
    assert both(candidate(made))[0].verdict == OK


CALLS = []


def longest(problem):
    CALLS.append(1)
    return float(problem.dataset.row_norms.max())


def test_once_computes_once_for_the_same_records():
    CALLS.clear()
    problem = load_problem("log1", n=50, p=4)
    assert once(problem, longest) == once(problem, longest) and len(CALLS) == 1


@pytest.mark.parametrize(
    ("value", "name", "words"),
    [
        (True, "other", "'other' is not declared; the declared names are mine"),
        (np.ones(2), "mine", "must be one boolean or one number"),
        ("a", "mine", "must be one boolean or one number"),
    ],
)
def test_a_use_that_is_not_declared_or_is_more_than_a_number_is_refused(
    value, name, words
):
    with pytest.raises(UsageError, match=words):
        check_use(value, name, {"mine": "a reason"})


def test_uncharged_uses_are_refused_in_runs_and_in_check(candidate, tmp_path):
    stops = at(
        MOVE, "if uncharged(summed.max() > 9, 'large'):", "    told = 0.0 * told"
    )
    named = (
        "    exempt = {\n",
        "    uncharged = {'large': 'it is small'}\n    exempt = {\n",
    )
    imported = (IMPORT[0], "from dp_erm_bench.extend import uncharged, once")
    made = candidate(Made("descent", (imported, stops)))
    found = check_named(TYPES).result(made)
    assert found.verdict == FAILS and "'large' is not declared" in found.reason
    problem = load_problem("log1", n=50, p=4)
    with pytest.raises(
        UsageError, match="'large' is not declared; the declared names are none"
    ):
        fit(problem, made.pin, epsilon=1.0, seed=1)
    made = candidate(Made("descent", (imported, stops, named)))
    assert check_named(TYPES).result(made).verdict == OK
    assert fit(problem, made.pin, epsilon=1.0, seed=1).uncharged[-1] == "large"
    assert uncharged(True, "anything") is True  # outside of a run nobody is told
    assert Solver.uncharged == {}


def test_nothing_of_a_check_stays_behind(candidate):
    made = candidate(broken("past the mechanisms", "descent", (TOLD, TOLD)))
    before = fit(load_problem("log1", n=50, p=4), made.pin, epsilon=1.0, seed=1).w
    both(made)
    after = fit(load_problem("log1", n=50, p=4), made.pin, epsilon=1.0, seed=1).w
    assert before.tobytes() == after.tobytes()
    assert not private.WATCHED and type(np.zeros(1)) is np.ndarray
    assert sound("descent").text
