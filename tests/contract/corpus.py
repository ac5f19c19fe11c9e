"""Small sound and broken solvers for tests of `check`.

A broken solver is a sound one in which pieces of the text are replaced. `check` knows
none of the names that occur in them.
"""

from dataclasses import dataclass

HEAD = '''"""A solver."""

import functools
from dataclasses import dataclass

import numpy as np

from dp_erm_bench.extend import once, private_call
from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.releases.objective_gaussian import ObjectiveGaussian
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.laplace import Laplace
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from dp_erm_bench.releases.repeat_and_select import RepeatAndSelect
from dp_erm_bench.releases.streams import stream_seeds
from dp_erm_bench.problems.erm.perturbed import minimise_perturbed
from dp_erm_bench.solvers.base import Solver, shape, value
from dp_erm_bench.solvers.bounds import coordinate_bounds, inverse, norm_bound
from dp_erm_bench.solvers.runs import steps_between

KEPT = {}


@dataclass(frozen=True)
class Made(Solver):
    """A method.

    References
    ----------
    None.
    """

    exempt = {
        "the_limit_is_reached": "it is no method that anyone has a theory of",
        "sensitivities_are_tight": "the bounds are rough, and on the safe side",
        "columns_of_zeros_are_harmless": "noise falls on every entry of a vector",
    }
'''

TAIL = """
    def iterations(self, problem):
        return self.rounds

    def passes_at(self, problem, iteration):
        return float(iteration)
"""

DESCENT = (
    HEAD
    + """
    rounds: int = shape(8, least=0, help="rounds")
    pace: float = value(0.4, above=0.0, help="length of a step")
    inertia: float = value(0.0, least=0.0, most=0.95, help="weight of the last move")
    cap: float = value(1.0, above=0.0, help="longest gradient of a record")
    tail: str = shape("last", choices=("last", "mean"), help="what is returned")
    warm: int | None = shape(None, least=1, help="rounds of short steps; null: none")
    careful: bool = shape(False, help="divide the pace by the round")
""".replace(
        '    careful: bool = shape(False, help="divide the pace by the round")\n',
        '    careful: str = shape("no", choices=("no", "yes"), help="shorter later")\n',
    )
    + TAIL
    + """
    def releases(self, problem, adjacency, schedule):
        size = adjacency.of_sum(np.atleast_2d(self.cap))
        yield Gaussian("slope", size, self.rounds)

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        problem, ask = oracle.problem, mechanisms["slope"]
        cap = np.broadcast_to(self.cap, (oracle.batch, 1)).astype(float)
        beta = np.atleast_2d(problem.smoothness.norm)
        pace = self.pace * inverse(beta)
        move, total, t = np.zeros_like(oracle.w), np.zeros_like(oracle.w), 0
        yield oracle.w
        for k in steps_between(checkpoints):
            for _ in range(k):
                # the query
                summed = oracle.clipped_sum(cap)
                told = ask(summed) / problem.n
                # the move
                size = pace / (t + 1) if self.careful == "yes" else pace
                if self.warm and t < self.warm:
                    size = size / 2
                move = self.inertia * move - size * told
                oracle.move_to(problem.penalty.prox(oracle.w + move, size))
                t += 1
                total += oracle.w
            yield total / t if self.tail == "mean" and t else oracle.w
"""
)

SAMPLED = (
    HEAD
    + """
    rounds: int = shape(8, least=0, help="rounds")
    expected: int = shape(2, least=1, help="records of a round, on average")
    pace: float = value(0.4, above=0.0, help="length of a step")
    cap: float = value(1.0, above=0.0, help="longest gradient of a record")
    memory: float = value(0.0, least=0.0, most=0.95, help="weight of the past")

    def unsupported_reason(self, problem):
        if self.expected > problem.n:
            return f"expected={self.expected}: more than n={problem.n}"
        return None
"""
    + TAIL
    + """
    def releases(self, problem, adjacency, schedule):
        size = adjacency.of_sum(np.atleast_2d(self.cap))
        rate = self.expected / problem.n
        yield PoissonGaussian("part", size, self.rounds, rate=rate)

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        problem, ask = oracle.problem, mechanisms["part"]
        rows, pace = range(oracle.batch), self.pace
        cap = np.broadcast_to(self.cap, (oracle.batch, 1))[:, 0].tolist()
        past = np.zeros_like(oracle.w)
        yield oracle.w
        for k in steps_between(checkpoints):
            for _ in range(k):
                drawn = [ask.sample(b, problem.n, 1)[0] for b in rows]
                # the query
                summed = np.stack(
                    [oracle.record_sum(b, drawn[b], cap[b]) for b in rows]
                )
                told = ask(summed) / self.expected
                # the move
                past = self.memory * past + (1.0 - self.memory) * told
                oracle.move_to(problem.penalty.prox(oracle.w - pace * past, pace))
            yield oracle.w
"""
)

ENTRIES = (
    HEAD
    + """
    rounds: int = shape(8, least=0, help="moves of one entry")
    pace: float = value(0.5, above=0.0, help="length of a move")
    clip: float | None = value(None, above=0.0, help="threshold; null: the bounds")
    again: int | None = shape(None, least=1, help="moves of an entry in a row")
"""
    + TAIL
    + """
    def plan(self, problem, identities):
        seeds = stream_seeds(identities, "entries")
        count = self.rounds
        drawn = [(uniforms(s, 0, count) * problem.p).astype(np.int64) for s in seeds]
        if self.again:
            turns = np.arange(count) // self.again * self.again
            drawn = [row[turns] for row in drawn]
        return np.stack(drawn)

    def releases(self, problem, adjacency, schedule):
        size = adjacency.of_mean(coordinate_bounds(problem, self.clip), problem.n)
        yield Gaussian("entry", size, schedule.shape[1])

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        problem, rows, t = oracle.problem, np.arange(oracle.batch), 0
        bound = np.broadcast_to(coordinate_bounds(problem, self.clip), oracle.w.shape)
        M = np.broadcast_to(problem.smoothness.columns, oracle.w.shape)
        pace = np.broadcast_to(self.pace * inverse(M), oracle.w.shape)
        yield oracle.w
        for k in steps_between(checkpoints):
            for _ in range(k):
                j = schedule[:, t]
                # the query
                slope = oracle.coordinate_gradient(j, clip=bound[rows, j])
                told = mechanisms["entry"](slope, coordinate=j)
                # the move
                oracle.prox_step(j, told, step=pace[rows, j])
                t += 1
            yield oracle.w
"""
)

SELECTED = (
    HEAD
    + """
    rounds: int = shape(6, least=0, help="entries that are chosen")
    pace: float = value(0.5, above=0.0, help="length of a move")
    cap: float = value(1.0, above=0.0, help="largest entry of a record's gradient")
"""
    + TAIL
    + """
    def releases(self, problem, adjacency, schedule):
        size = adjacency.of_mean(np.atleast_2d(self.cap), problem.n)
        yield NoisyMax("best", np.broadcast_to(size, (len(size), 1)), self.rounds)
        yield Laplace("there", size, self.rounds)

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        problem, rows = oracle.problem, np.arange(oracle.batch)
        cap = np.array(np.broadcast_to(self.cap, oracle.w.shape))
        pace = np.broadcast_to(self.pace, (oracle.batch, 1))[:, 0]
        yield oracle.w
        for k in steps_between(checkpoints):
            for _ in range(k):
                slope = oracle.gradient(cap)
                # the choice
                j = mechanisms["best"](slope, np.abs)
                told = mechanisms["there"](slope[rows, j])
                # the move
                oracle.prox_step(j, told, step=pace)
            yield oracle.w
"""
)

BENT = (
    HEAD
    + """
    batchable = False
    uses_smoothness = False

    extra: float = shape(0.5, above=0.0, help="ridge that is added")

    def iterations(self, problem):
        return 1

    def passes_at(self, problem, iteration):
        return float(iteration)

    def unsupported_reason(self, problem):
        if problem.dataset.bounds is None:
            return "bounds must be declared"
        return None

    def releases(self, problem, adjacency, schedule):
        bound = problem.lipschitz * problem.dataset.bounds.norm
        modulus = self.extra + problem.penalty.strong_convexity
        beta = problem.loss.smoothness * problem.dataset.bounds.norm**2
        terms = 2 if adjacency.value == "replace_one" else 1
        yield ObjectiveGaussian(
            "tilt",
            adjacency.of_sum(bound),
            1,
            curvature=np.log1p(beta / (problem.n * modulus)),
            terms=terms,
        )

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        problem = oracle.problem
        yield oracle.w
        for _ in checkpoints[1:]:
            tilt = mechanisms["tilt"](problem.p) / problem.n
            # the solution
            w = minimise_perturbed(problem, tilt[0], self.extra, 1e-8).w
            w = mechanisms["tilt"].minimiser(w)
            yield w[None, :]
"""
)

REPEATED = (
    HEAD
    + """
    batchable = False

    rounds: int = shape(4, least=0, help="rounds of a run")
    stop: float = shape(0.4, above=0.0, most=0.9, help="chance to stop after a run")
    pace: float = shape(0.4, above=0.0, help="length of a step")
    cap: float = shape(1.0, above=0.0, help="longest gradient of a record")

    def iterations(self, problem):
        return min(1, self.rounds)

    def passes_at(self, problem, iteration):
        return iteration * self.rounds / self.stop

    def releases(self, problem, adjacency, schedule):
        size = adjacency.of_sum(self.cap)
        steps = Gaussian("slope", size, self.rounds)
        run = steps, Laplace("score", 1.0 / problem.n, 1)
        if self.rounds:
            yield RepeatAndSelect("best", 1.0, 1, gamma=self.stop, run=run)

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        yield oracle.w
        for _ in checkpoints[1:]:
            # the runs
            w = mechanisms["best"](self.attempt)
            # the end
            yield w

    def attempt(self, oracle, mechanisms, schedule):
        problem, pace = oracle.problem, self.pace
        cap = np.full((1, 1), self.cap)
        # the start
        for t in range(self.rounds):
            told = mechanisms["slope"](oracle.clipped_sum(cap)) / problem.n
            oracle.move_to(problem.penalty.prox(oracle.w - pace * told, pace))
        w = oracle.w
        losses = oracle.loss.value(oracle.y, oracle.product(w)[0])
        score = np.array([np.clip(losses, 0.0, 1.0).mean()])
        # the score
        return w, float(mechanisms["score"](score)[0])
"""
)

BASES = {
    "descent": DESCENT,
    "sampled": SAMPLED,
    "entries": ENTRIES,
    "selected": SELECTED,
    "bent": BENT,
    "repeated": REPEATED,
}


@dataclass(frozen=True)
class Made:
    """A base with pieces replaced.

    `found` are words of what is found where only some condition leads to it; `beside`
    is the text of the module `helper`.
    """

    base: str
    changes: tuple[tuple[str, str], ...] = ()
    kind: str = ""
    found: str = ""
    beside: str = ""

    @property
    def text(self):
        text = BASES[self.base]
        for old, new in self.changes:
            assert text.count(old) == 1, (self.base, old, text.count(old))
            text = text.replace(old, new)
        return text


PAD = " " * 16
QUERY, MOVE = f"{PAD}# the query\n", f"{PAD}# the move\n"
START = "        yield oracle.w\n        for k"
SIZE = "        size = adjacency.of_sum(np.atleast_2d(self.cap))\n        yield Gauss"
PACE = "        pace = self.pace * inverse(beta)\n"
TOLD = "                told = ask(summed) / problem.n\n"
SUMMED = "                summed = oracle.clipped_sum(cap)\n"
LENGTH = "        return self.rounds\n"
SHRINK = "                size = pace / (t + 1)"


def at(marker, *lines, drop=()):
    """Put lines behind a marker."""
    return (marker, marker + "".join(f"{PAD}{line}\n" for line in lines))


def before_loop(*lines):
    return (START, "".join(f"        {line}\n" for line in lines) + START)


RUNS, BEGUN = "            # the runs\n", "        # the start\n"
ENDED, SCORED = "            # the end\n", "        # the score\n"
COUNTED = (BEGUN, f"{BEGUN}        KEPT['runs'] = KEPT.get('runs', 0) + 1\n")
CLEARED = (RUNS, f"{RUNS}            KEPT.clear()\n")


def behind(marker, *lines):
    """Put lines behind a marker, as far in as it is."""
    pad = " " * (len(marker) - len(marker.lstrip()))
    return (marker, marker + "".join(f"{pad}{line}\n" for line in lines))


def paced(expression):
    """A pace that is multiplied with something."""
    return (
        PACE,
        f"{PACE}        X, y = problem.dataset.X, problem.dataset.y\n"
        f"        X = X if isinstance(X, np.ndarray) else X.toarray()\n"
        f"        pace = pace * ({expression})\n",
    )


def broken(kind, base, *changes):
    return Made(base, changes, kind)


CONSTANTS, BRANCHES = "constants from the data", "branches that never run"
SECRECY, CACHES = "secrecy of samples", "caches"
PASSED, CLAIMS = "past the mechanisms", "claims"
REPEATS = "repeated runs"
BESIDE = "told beside the iterates"

BROKEN = {
    # Constants from the data.
    "a cap at the median length": broken(
        CONSTANTS,
        "descent",
        before_loop(
            "long = problem.dataset.row_norms",
            "cap = np.minimum(cap, np.median(long))",
        ),
    ),
    "a pace by the longest record": broken(
        CONSTANTS, "descent", paced("1 / (1 + problem.dataset.row_norms.max())")
    ),
    "a pace by the share of a class": broken(
        CONSTANTS, "descent", paced("1.5 if (y > 0).mean() > 0.5 else 1.0")
    ),
    "a pace by the range of labels": broken(
        CONSTANTS, "descent", paced("1 / (0.5 + np.ptp(y))")
    ),
    "a pace by the condition": broken(
        CONSTANTS,
        "descent",
        paced("1 / np.log(2 + np.linalg.cond(X.T @ X + np.eye(X.shape[1])))"),
    ),
    "a pace by the widest column": broken(
        CONSTANTS, "descent", paced("1 / np.abs(X).max(axis=0, keepdims=True).clip(1)")
    ),
    "still where a column is empty": broken(
        CONSTANTS, "descent", paced("X.any(axis=0, keepdims=True)")
    ),
    "longer where there is one class": broken(
        CONSTANTS, "descent", paced("2.0 if len(set(np.sign(y))) < 2 else 1.0")
    ),
    "a pace by the rank": broken(
        CONSTANTS, "descent", paced("1 / (1 + np.linalg.matrix_rank(X))")
    ),
    "a size by the longest record": broken(
        CONSTANTS,
        "descent",
        (
            SIZE,
            "        longest = problem.dataset.row_norms.max()\n"
            "        size = adjacency.of_sum(\n"
            "            np.atleast_2d(np.minimum(self.cap, longest))\n"
            "        )\n        yield Gauss",
        ),
    ),
    "rounds by the records that are not zero": broken(
        CONSTANTS,
        "descent",
        (
            LENGTH,
            "        busy = np.count_nonzero(problem.dataset.row_norms > 1.0)\n"
            "        return min(self.rounds, 2 + int(busy))\n",
        ),
        (
            'yield Gaussian("slope", size, self.rounds)',
            'yield Gaussian("slope", size, self.iterations(problem))',
        ),
    ),
    "a start at the mean of the data": broken(
        CONSTANTS,
        "descent",
        before_loop(
            "means = problem.dataset.X.mean(axis=0)",
            "oracle.move_to(oracle.w + 0.1 * np.ravel(means))",
        ),
    ),
    "columns that are scaled inside": broken(
        CONSTANTS,
        "descent",
        (
            SUMMED,
            "                X = problem.dataset.X\n"
            "                X = X if isinstance(X, np.ndarray) else X.toarray()\n"
            "                spread = X.std(axis=0)\n"
            "                Z = X / np.where(spread > 0.0, spread, 1.0)\n"
            "                r = oracle.residuals()\n"
            "                long = np.abs(r) * np.sqrt(np.square(Z).sum(axis=1))\n"
            "                f = np.minimum(1.0, cap / np.maximum(long, 1e-300))\n"
            "                summed = (r * f) @ Z\n",
        ),
    ),
    "a refusal of data that are short": broken(
        CONSTANTS,
        "descent",
        (
            TAIL,
            "\n    def unsupported_reason(self, problem):\n"
            "        if problem.dataset.row_norms.max() < 1.0:\n"
            '            return "the records are too short"\n'
            "        return None\n" + TAIL,
        ),
    ),
    "an order by the sizes of the columns": broken(
        CONSTANTS,
        "entries",
        (
            "        seeds = stream",
            "        X = problem.dataset.X\n"
            "        X = X if isinstance(X, np.ndarray) else X.toarray()\n"
            "        order = np.argsort(-np.abs(X).max(axis=0), kind='stable')\n"
            "        seeds = stream",
        ),
        ("return np.stack(drawn)", "return order[np.stack(drawn)]"),
    ),
    "thresholds by the columns' variances": broken(
        CONSTANTS,
        "entries",
        before_loop(
            "X = problem.dataset.X",
            "X = X if isinstance(X, np.ndarray) else X.toarray()",
            "bound = bound * np.minimum(1.0, 0.2 + X.var(axis=0))",
        ),
    ),
    "seeds from the content": broken(
        CONSTANTS,
        "entries",
        (
            'stream_seeds(identities, "entries")',
            "stream_seeds([problem.dataset.content_hash for _ in identities], 'e')",
        ),
    ),
    # Branches.
    "inertia on the raw sum": broken(
        BRANCHES,
        "descent",
        at(
            MOVE,
            "if np.any(self.inertia > 0.0):",
            "    told = told + 1e-3 * summed / problem.n",
        ),
    ),
    "long steps along the exact slope": broken(
        BRANCHES,
        "descent",
        at(MOVE, "told = np.where(np.greater(self.pace, 2.0), summed, told)"),
    ),
    "short steps by the data": broken(
        BRANCHES,
        "descent",
        at(
            MOVE,
            "if self.warm:",
            "    told = told * (1.0 + (oracle.margins > 0.0).mean())",
        ),
    ),
    "a mean of the exact slopes": broken(
        BRANCHES,
        "descent",
        at(
            MOVE,
            'if self.tail == "mean" and self.careful == "yes":',
            "    total += 1e-6 * summed",
        ),
    ),
    "many records and no noise": broken(
        BRANCHES,
        "descent",
        at(MOVE, "if problem.n > 1000:", "    told = summed / problem.n"),
    ),
    "many columns and no noise": broken(
        BRANCHES,
        "descent",
        at(MOVE, "if problem.p > 20:", "    told = 0.5 * told + summed / problem.n"),
    ),
    "sparse features and all their counts": broken(
        BRANCHES,
        "descent",
        before_loop(
            "if problem.dataset.sparse:",
            "    pace = pace / (1 + np.diff(problem.dataset.X.indptr).max())",
        ),
    ),
    "a late look": broken(
        BRANCHES,
        "descent",
        at(MOVE, "if t == 40:", "    oracle.w = oracle.w + 1e-9 * summed"),
    ),
    "few checkpoints": broken(
        BRANCHES,
        "descent",
        at(MOVE, "if k > 2:", "    told = told + 1e-6 * summed"),
    ),
    "a low cap that is not kept": broken(
        BRANCHES,
        "descent",
        before_loop("cap = np.where(cap < 0.1, 1.0, cap)"),
    ),
    "a memory of raw sums": broken(
        BRANCHES,
        "sampled",
        at(
            MOVE,
            "if np.any(self.memory > 0.5):",
            "    past = past + 1e-3 * summed",
        ),
    ),
    "half of the noise for long steps": broken(
        BRANCHES,
        "descent",
        before_loop(
            "if np.any(self.pace > 2.0):",
            "    ask.scale = ask.scale / 2",
        ),
    ),
    "entries again by the data": broken(
        BRANCHES,
        "entries",
        at(
            MOVE,
            "if self.again:",
            "    told = told + 1e-6 * np.sign(slope)",
        ),
    ),
    "thresholds that are given and not kept": broken(
        BRANCHES,
        "entries",
        before_loop(
            "if self.clip is not None:",
            "    bound = 1.5 * bound",
        ),
    ),
    # Samples.
    "a division by the batch": broken(
        SECRECY,
        "sampled",
        (
            "ask(summed) / self.expected",
            "ask(summed) / max(1, len(drawn[0]))",
        ),
    ),
    "an empty batch is passed over": broken(
        SECRECY,
        "sampled",
        at(
            QUERY,
            "if not any(map(len, drawn)):",
            "    continue",
        ),
    ),
    "an empty batch makes no move": broken(
        SECRECY,
        "sampled",
        at(MOVE, "if not any(map(len, drawn)):", "    continue"),
    ),
    "one sample for two rounds": broken(
        SECRECY,
        "sampled",
        (
            "drawn = [ask.sample(b, problem.n, 1)[0] for b in rows]",
            "new = [ask.sample(b, problem.n, 1)[0] for b in rows]\n"
            f"{PAD}turn = not turn\n"
            f"{PAD}drawn = new if turn else drawn",
        ),
        before_loop("turn = False"),
    ),
    "all records": broken(
        SECRECY,
        "sampled",
        (
            "oracle.record_sum(b, drawn[b], cap[b])",
            "oracle.record_sum(b, np.arange(problem.n), cap[b])",
        ),
    ),
    "raw momentum": broken(
        SECRECY,
        "sampled",
        (
            "                told = ask(summed)",
            "                heavy = 0.5 * heavy + 0.5 * summed\n"
            "                told = ask(heavy)",
        ),
        before_loop("heavy = np.zeros_like(oracle.w)"),
    ),
    "a mean over the sample": broken(
        SECRECY,
        "sampled",
        (
            "told = ask(summed) / self.expected",
            "told = ask(summed * self.expected / max(1, len(drawn[0])))",
        ),
    ),
    "a step by the size of the batch": broken(
        SECRECY,
        "sampled",
        at(MOVE, "told = told * (1 + len(drawn[0]) / problem.n)"),
    ),
    "coins of its own": broken(
        SECRECY,
        "sampled",
        (
            "drawn = [ask.sample(b, problem.n, 1)[0] for b in rows]",
            "[ask.sample(b, problem.n, 1) for b in rows]\n"
            f"{PAD}drawn = [np.flatnonzero(uniforms(ask.seeds[b], 9, problem.n)\n"
            f"{PAD}         < ask.rate) for b in rows]",
        ),
    ),
    "two releases of one sample": broken(
        SECRECY,
        "sampled",
        (
            "        yield PoissonGaussian(",
            '        yield PoissonGaussian("more", size, self.rounds, rate=rate)\n'
            "        yield PoissonGaussian(",
        ),
        at(
            MOVE,
            "[mechanisms['more'].sample(b, problem.n, 1) for b in rows]",
            "told = (told + mechanisms['more'](summed) / self.expected) / 2",
        ),
    ),
    # Caches.
    "lengths that are kept by shape": broken(
        CACHES,
        "descent",
        (
            PACE,
            PACE + "        found = (problem.n, problem.p)\n"
            "        if found not in KEPT:\n"
            "            KEPT[found] = 1 + problem.dataset.row_norms.max()\n"
            "        pace = pace / KEPT[found]\n",
        ),
    ),
    "a cached function of the size": broken(
        CACHES,
        "descent",
        (
            "KEPT = {}\n",
            "KEPT = {}\n\n\n@functools.cache\ndef longest(n):\n"
            "    return 1 + KEPT['now'].dataset.row_norms.max()\n",
        ),
        (
            PACE,
            PACE + "        KEPT['now'] = problem\n"
            "        pace = pace / longest(problem.n)\n",
        ),
    ),
    "an attribute of the class": broken(
        CACHES,
        "entries",
        before_loop(
            "if not hasattr(type(self), 'seen'):",
            "    type(self).seen = 1 + abs(problem.dataset.y.sum())",
            "pace = pace / type(self).seen",
        ),
    ),
    "a default that remembers": broken(
        CACHES,
        "selected",
        (
            "KEPT = {}\n",
            "KEPT = {}\n\n\ndef scale(data, seen=[]):\n"
            "    if not seen:\n        seen.append(1 + data.row_norms.max())\n"
            "    return seen[0]\n",
        ),
        before_loop("pace = pace / scale(problem.dataset)"),
    ),
    "something left on a module": broken(
        CACHES,
        "descent",
        (
            PACE,
            PACE + "        if not hasattr(functools, 'spread'):\n"
            "            functools.spread = 1 + np.ptp(problem.dataset.row_norms)\n"
            "        pace = pace / functools.spread\n",
        ),
    ),
    # Past the mechanisms.
    "an early end": broken(
        PASSED,
        "descent",
        at(
            QUERY,
            "if np.linalg.norm(oracle.clipped_sum(cap)) < 1e-3:",
            "    continue",
        ),
    ),
    "a line search on the objective": broken(
        PASSED,
        "descent",
        at(
            MOVE,
            "now = problem.value(oracle.w)",
            "ahead = problem.value(oracle.w - pace * told)",
            "told = np.where(ahead[:, None] < now[:, None], told, told / 2)",
        ),
    ),
    "a worse iterate is not returned": broken(
        PASSED,
        "descent",
        (
            "oracle.move_to(problem.penalty.prox(oracle.w + move, size))",
            "new = problem.penalty.prox(oracle.w + move, size)\n"
            f"{PAD}if (problem.value(new) < problem.value(oracle.w) + 9).all():\n"
            f"{PAD}    oracle.move_to(new)",
        ),
    ),
    "lengths of the raw sum": broken(
        PASSED,
        "descent",
        at(
            MOVE,
            "long = np.linalg.norm(summed, axis=1, keepdims=True)",
            "told = told / np.maximum(1.0, long)",
        ),
    ),
    "a mechanism's own noise is taken off": broken(
        PASSED,
        "descent",
        at(
            MOVE,
            "unit = [ask.release.unit(s, t * problem.p, 1, problem.p)[0]",
            "        for s in ask.seeds]",
            "told = told - np.stack(unit) * ask.scale / problem.n",
        ),
    ),
    "noise that the schedule knows": broken(
        PASSED,
        "descent",
        (
            TAIL,
            "\n    def plan(self, problem, identities):\n"
            '        return stream_seeds(identities, "slope")\n' + TAIL,
        ),
        at(
            MOVE,
            "unit = [ask.release.unit(s, t * problem.p, 1, problem.p)[0]",
            "        for s in schedule]",
            "told = told - 0.5 * np.stack(unit) * ask.scale / problem.n",
        ),
    ),
    "noise without the mechanism's answer": broken(
        PASSED,
        "descent",
        at(MOVE, "told = (summed + ask.scale * 0.1) / problem.n"),
    ),
    "one iterate more": broken(
        PASSED,
        "descent",
        (
            "                total += oracle.w\n",
            "                total += oracle.w\n"
            "                last = oracle.clipped_sum(cap)\n",
        ),
        (
            'if self.tail == "mean" and t else oracle.w\n',
            'if self.tail == "mean" and t else oracle.w\n'
            "        yield last if self.rounds else oracle.w\n",
        ),
    ),
    "a choice by exact scores": broken(
        PASSED,
        "selected",
        at(f"{PAD}# the choice\n", "best = np.abs(slope).argmax(axis=1)"),
        (
            'told = mechanisms["there"](slope[rows, j])',
            "j = np.where(rows % 2 == 0, best, j)\n"
            f'{PAD}told = mechanisms["there"](slope[rows, j])',
        ),
    ),
    # Claims.
    "no factor two": broken(
        CLAIMS,
        "descent",
        ("adjacency.of_sum(np.atleast_2d(self.cap))", "np.atleast_2d(self.cap)"),
    ),
    "a curvature of none": broken(
        CLAIMS,
        "bent",
        ("curvature=np.log1p(beta / (problem.n * modulus))", "curvature=0.0"),
    ),
    "a curvature without the beta": broken(
        CLAIMS,
        "bent",
        ("np.log1p(beta /", "np.log1p(problem.loss.smoothness /"),
    ),
    "half of a minimiser's sensitivity": broken(
        CLAIMS,
        "bent",
        ("adjacency.of_sum(bound)", "bound / 2"),
    ),
    "a ridge of the data": broken(
        CLAIMS,
        "bent",
        (
            "            # the solution\n",
            "            # the solution\n"
            "            more = 1.0 + problem.dataset.row_norms.max()\n",
        ),
        ("self.extra, 1e-8", "self.extra * more, 1e-8"),
    ),
    "a minimiser that is not one": broken(
        CLAIMS,
        "bent",
        (
            "            yield w[None, :]",
            "            yield w[None, :] - 0.05 * problem.gradient(w)[None, :]",
        ),
    ),
    "a tilt that is halved": broken(
        CLAIMS,
        "bent",
        ("tilt[0], self.extra", "tilt[0] / 2, self.extra"),
    ),
    "words in place of the replay": broken(
        CLAIMS,
        "descent",
        (
            "    exempt = {\n",
            '    exempt = {\n        "replay_audit": "the audit is too strict here",\n',
        ),
        paced("1 / (1 + problem.dataset.row_norms.max())"),
    ),
    "equal spread of unequal scores": broken(
        CLAIMS,
        "selected",
        (
            '        yield NoisyMax("best", np.broadcast_to(size, (len(size), 1)), '
            "self.rounds)\n",
            "        size = np.broadcast_to(size, (len(size), problem.p))\n"
            '        yield InsideNoisyMax("best", size, self.rounds, spread=1.0)\n',
        ),
        (
            'yield Laplace("there", size, self.rounds)',
            'yield Laplace("there", size[:, :1], self.rounds)',
        ),
        (
            "(slope, np.abs)",
            "(slope, lambda g: np.abs(g) / np.arange(1, problem.p + 1))",
        ),
    ),
    "a count over a sample, at its change": broken(
        CLAIMS,
        "sampled",
        (
            "        yield PoissonGaussian(",
            "        one = adjacency.of_sum(1.0, signed=False)\n"
            '        yield PoissonGaussian("class", one, self.rounds, rate=rate)\n'
            "        yield PoissonGaussian(",
        ),
        at(
            MOVE,
            "many = mechanisms['class']",
            "new = [many.sample(b, problem.n, 1)[0] for b in rows]",
            "held = [float((problem.dataset.y[r] > 0.0).sum()) for r in new]",
            "share = np.clip(many(np.array(held)) / self.expected, 0.2, 0.8)",
            "told = told * share[:, None]",
        ),
    ),
    # Repeated runs.
    "a start where the last run ended": broken(
        REPEATS,
        "repeated",
        CLEARED,
        behind(BEGUN, "oracle.move_to(KEPT.get('w', oracle.w))"),
        behind(SCORED, "KEPT['w'] = w"),
    ),
    "a start where the last run ended, in another function": broken(
        REPEATS,
        "repeated",
        (
            'mechanisms["best"](self.attempt)',
            'mechanisms["best"](lambda _, inside, plan: '
            "self.attempt(oracle, inside, plan))",
        ),
    ),
    "a mean over the runs": broken(
        REPEATS,
        "repeated",
        CLEARED,
        behind(
            SCORED,
            "KEPT.setdefault('all', []).append(w.copy())",
            "w = np.mean(KEPT['all'], axis=0)",
        ),
    ),
    "a mean over the runs, at the end": broken(
        REPEATS,
        "repeated",
        CLEARED,
        behind(SCORED, "KEPT.setdefault('all', []).append(w.copy())"),
        behind(ENDED, "w = np.mean(KEPT['all'], axis=0)"),
    ),
    "the number of runs in the answer": broken(
        REPEATS, "repeated", CLEARED, COUNTED, behind(ENDED, "w += 1e-6 * KEPT['runs']")
    ),
    "the place of the best in the answer": broken(
        REPEATS, "repeated", CLEARED, COUNTED, behind(SCORED, "w[0, 0] = KEPT['runs']")
    ),
    "shorter steps in later runs": broken(
        REPEATS,
        "repeated",
        CLEARED,
        (BEGUN, f"{COUNTED[1]}        pace /= KEPT['runs']\n"),
    ),
    "as many iterates as runs": broken(
        REPEATS,
        "repeated",
        CLEARED,
        COUNTED,
        ("            yield w\n", "            yield from [w] * KEPT['runs']\n"),
    ),
    "passes of the runs that were made": broken(
        REPEATS,
        "repeated",
        CLEARED,
        COUNTED,
        (
            "return iteration * self.rounds / self.stop",
            "return iteration * self.rounds * KEPT.get('runs', 1)",
        ),
    ),
    "the outputs of all runs": broken(
        REPEATS,
        "repeated",
        CLEARED,
        behind(SCORED, "KEPT.setdefault('all', []).append(w.copy())"),
        behind(ENDED, "w = np.concatenate(KEPT['all'])"),
    ),
    "a run that a default remembers": broken(
        REPEATS,
        "repeated",
        (
            "def attempt(self, oracle, mechanisms, schedule):",
            "def attempt(self, oracle, mechanisms, schedule, seen=[]):",
        ),
        (RUNS, f"{RUNS}            type(self).attempt.__defaults__[0].clear()\n"),
        behind(BEGUN, "oracle.move_to(seen[-1] if seen else oracle.w)"),
        behind(SCORED, "seen.append(w)"),
    ),
    "a run that the class remembers": broken(
        REPEATS,
        "repeated",
        (RUNS, f"{RUNS}            type(self).last = oracle.w\n"),
        behind(BEGUN, "oracle.move_to(type(self).last)"),
        behind(SCORED, "type(self).last = w"),
    ),
    "a run that the data remember": broken(
        REPEATS,
        "repeated",
        (RUNS, f"{RUNS}            vars(oracle.problem.dataset).pop('w', None)\n"),
        behind(BEGUN, "oracle.move_to(vars(problem.dataset).get('w', oracle.w))"),
        behind(SCORED, "vars(problem.dataset)['w'] = w"),
    ),
    "a cached run": broken(
        REPEATS,
        "repeated",
        (
            "KEPT = {}\n",
            "KEPT = {}\n\n\n@functools.cache\ndef first(count):\n"
            "    return KEPT['w'].copy()\n",
        ),
        (RUNS, f"{RUNS}            first.cache_clear()\n"),
        behind(SCORED, "KEPT['w'] = w", "w = (w + first(problem.n)) / 2"),
    ),
    "scores beside those before": broken(
        REPEATS,
        "repeated",
        CLEARED,
        (
            'return w, float(mechanisms["score"](score)[0])',
            'told = float(mechanisms["score"](score)[0])\n'
            "        KEPT['least'] = min(told, KEPT.get('least', 9.0))\n"
            "        return w, told - KEPT['least']",
        ),
    ),
    "coins that are drawn again": broken(
        REPEATS,
        "repeated",
        behind(
            ENDED,
            "coins = uniforms(mechanisms['best'].seeds[0], 0, 99) < self.stop",
            "w += 1e-6 * coins.argmax()",
        ),
    ),
    "later runs of long steps, where steps are long": broken(
        REPEATS,
        "repeated",
        CLEARED,
        (
            BEGUN,
            f"{COUNTED[1]}        if self.pace > 1.0:\n"
            "            pace *= KEPT['runs']\n",
        ),
    ),
}


# Told beside the iterates, or kept where a later run looks.
LONGEST = "problem.dataset.row_norms.max()"
BROKEN |= {
    "a progress line with the objective": broken(
        BESIDE, "descent", at(MOVE, "print(f'step {t}:', oracle.objective(oracle.w))")
    ),
    "a log in the working directory": broken(
        BESIDE,
        "descent",
        at(MOVE, "with open('run.log', 'a') as log:", "    print(summed, file=log)"),
    ),
    "a log in the home": broken(
        BESIDE,
        "sampled",
        at(
            MOVE,
            "import logging, pathlib",
            "place = pathlib.Path.home() / 'made.log'",
            "logging.basicConfig(filename=place, level=20)",
            "logging.info('%d records', len(drawn[0]))",
        ),
    ),
    "a warning of long records": broken(
        BESIDE,
        "entries",
        before_loop(
            "import warnings",
            f"if {LONGEST} > 3.0:",
            "    warnings.warn('there are long records', stacklevel=1)",
        ),
    ),
    "numbers past the streams": broken(
        BESIDE,
        "descent",
        before_loop("import os", f"os.write(2, b'%f' % {LONGEST})"),
    ),
    "a line that comes once": broken(
        BESIDE,
        "selected",
        before_loop("if not KEPT:", f"    print({LONGEST})", "    KEPT[0] = 1"),
    ),
    "a file of arrays": broken(
        BESIDE, "descent", at(MOVE, "np.savez('sums', summed=summed)")
    ),
    "a command": broken(
        BESIDE,
        "descent",
        before_loop(
            "import subprocess",
            "if not KEPT:",
            f"    subprocess.run(['true', str({LONGEST})], check=True)",
            "    KEPT[0] = 1",
        ),
    ),
    "a file for the next run": broken(
        BESIDE,
        "descent",
        before_loop(
            "import os, tempfile",
            "place = os.path.join(tempfile.gettempdir(), 'far.txt')",
            "if not os.path.exists(place):",
            "    with open(place, 'w') as file:",
            f"        file.write(str({LONGEST}))",
            "with open(place) as file:",
            "    pace = pace / (1.0 + float(file.read()))",
        ),
    ),
    "a cache for the next run": broken(
        BESIDE,
        "entries",
        before_loop(
            "import pathlib",
            "place = pathlib.Path('~/.cache/made.txt').expanduser()",
            "place.parent.mkdir(exist_ok=True)",
            "if not place.exists():",
            f"    place.write_text(str({LONGEST}))",
            "pace = pace / (1.0 + float(place.read_text()))",
        ),
    ),
    "the environment": broken(
        BESIDE,
        "descent",
        before_loop(
            "import os",
            f"far = os.environ.setdefault('FAR', str(1.0 + {LONGEST}))",
            "pace = pace / float(far)",
        ),
    ),
}


FEW_MEET = {
    "a record in both halves where n is odd": (
        "of 5 records, 4 features, record 0",
        broken(
            CLAIMS,
            "descent",
            (
                SUMMED,
                f"{PAD}count = problem.n\n"
                f"{PAD}halves = np.resize(np.arange(count), (2, (count + 1) // 2))\n"
                f"{PAD}summed = np.stack([\n"
                f"{PAD}    sum(oracle.record_sum(b, i, cap[b, 0]) for i in halves)\n"
                f"{PAD}    for b in range(oracle.batch)\n"
                f"{PAD}])\n",
            ),
        ),
    ),
    "digits by what the records need": (
        "empty",
        broken(
            CONSTANTS,
            "descent",
            before_loop(
                "X = problem.dataset.X",
                "X = X if isinstance(X, np.ndarray) else X.toarray()",
                "short = np.array_equal(X, X.astype(np.float32))",
            ),
            at(MOVE, "told = np.float32(told) if short else told"),
        ),
    ),
    "a vector of squares that moves as a number": (
        "other column",
        broken(
            CLAIMS,
            "descent",
            (
                "size = adjacency.of_sum(np.atleast_2d(self.cap))",
                "size = adjacency.of_sum(np.atleast_2d(self.cap) ** 2, signed=False)",
            ),
            (
                SUMMED,
                f"{PAD}each = np.arange(problem.n)[:, None]\n"
                f"{PAD}summed = np.stack([\n"
                f"{PAD}    sum(oracle.record_sum(b, i, cap[b, 0])**2 for i in each)\n"
                f"{PAD}    for b in range(oracle.batch)\n"
                f"{PAD}])\n",
            ),
        ),
    ),
    "labels less their mean": (
        "opposed",
        broken(
            CLAIMS,
            "descent",
            (
                SUMMED,
                f"{PAD}far = problem.dataset.row_norms[:, None]\n"
                f"{PAD}X = problem.dataset.X\n"
                f"{PAD}X = X if isinstance(X, np.ndarray) else X.toarray()\n"
                f"{PAD}s = np.sign(problem.dataset.y)\n"
                f"{PAD}s = s - s.mean()\n"
                f"{PAD}summed = -cap * (s @ (X / np.maximum(far, 1e-9)))\n",
            ),
        ),
    ),
    "signs of zeros": (
        "outlier",
        broken(
            PASSED,
            "descent",
            (
                f"{PAD}t += 1\n",
                f"{PAD}t, low = t + 1, np.abs(oracle.w) < 0.5\n"
                f"{PAD}oracle.move_to(np.where(low, 0.0 * summed, oracle.w))\n",
            ),
        ),
    ),
}
"""Each with the neighbours that find it, and few others do."""
KEEPS_ANSWERS = {
    "the first answer of a shape": broken(
        CACHES,
        "descent",
        at(MOVE, "if t == 0:", "    told = KEPT.setdefault(told.shape, told)"),
    ),
    "answers behind a cache": broken(
        CACHES,
        "descent",
        (
            "import functools\n",
            "import functools\n\n\n@functools.cache\ndef kept(shape):\n"
            "    return {}\n\n\n",
        ),
        at(MOVE, "if t % 2:", "    told = kept(told.shape).setdefault(t, told)"),
    ),
    "the answer that had the least noise": broken(
        CACHES,
        "descent",
        at(
            MOVE,
            "here, noise = (told.shape, t), float(ask.scale.max())",
            "if here not in KEPT or noise < KEPT[here][0]:",
            "    KEPT[here] = noise, told",
            "told = KEPT[here][1] if t == 2 else told",
        ),
    ),
}
"""Answers of one run that later ones use, of other data or at a smaller epsilon."""


def sound(base, *changes):
    return Made(base, changes)


SOUND = {
    "descent": sound("descent"),
    "sampled": sound("sampled"),
    "entries": sound("entries"),
    "selected": sound("selected"),
    "bent": sound("bent"),
    "repeated": sound("repeated"),
    "repeated, with what is set on itself and lost": sound(
        "repeated",
        behind(
            BEGUN,
            "oracle.move_to(getattr(self, 'last', oracle.w))",
            "oracle.move_to(getattr(problem, 'last', oracle.w))",
        ),
        behind(
            SCORED,
            "object.__setattr__(self, 'last', w)",
            "object.__setattr__(problem, 'last', w)",
        ),
    ),
    "lengths of what was told": sound(
        "descent",
        at(
            MOVE,
            "told = told / np.maximum(1.0, np.linalg.norm(told, axis=1)[:, None])",
        ),
    ),
    "squares of what was told": sound(
        "descent",
        before_loop("seen = np.zeros_like(oracle.w)"),
        at(
            MOVE,
            "seen += np.square(told)",
            "told = told / np.sqrt(1e-3 + seen)",
        ),
    ),
    "an answer that is changed in place": sound(
        "descent",
        (
            TOLD,
            "                told = ask(summed)\n                told /= problem.n\n",
        ),
    ),
    "an end by what was told": sound(
        "descent",
        at(MOVE, "told = np.where(np.abs(told) < 0.5, 0.0, told)"),
    ),
    "a search along what was told": sound(
        "descent",
        before_loop("old, grow = np.zeros_like(oracle.w), np.ones((oracle.batch, 1))"),
        at(
            MOVE,
            "same = (old * told).sum(axis=1, keepdims=True) > 0.0",
            "grow = np.where(same, 1.2 * grow, 0.5 * grow)",
            "old, told = told, grow * told",
        ),
    ),
    "a cache of public things": sound(
        "descent",
        (
            "KEPT = {}\n",
            "KEPT = {}\n\n\n@functools.cache\ndef weights(n, p):\n"
            "    return np.ones(p) / np.log(2.0 + n)\n",
        ),
        at(MOVE, "told = told * weights(problem.n, problem.p)"),
    ),
    "a cap of the round": sound(
        "descent",
        (SUMMED, "                summed = oracle.clipped_sum(cap / (1 + t % 2))\n"),
    ),
    "two releases with weights": sound(
        "descent",
        (
            'yield Gaussian("slope", size, self.rounds)',
            'yield Gaussian("slope", size, self.rounds)\n'
            '        yield Gaussian("check", size, self.rounds, weight=4.0)',
        ),
        at(
            MOVE,
            "told = 0.8 * told + 0.2 * mechanisms['check'](summed) / problem.n",
        ),
    ),
    "a count that is paid for": sound(
        "descent",
        (
            'yield Gaussian("slope", size, self.rounds)',
            'yield Gaussian("slope", size, self.rounds)\n'
            "        once = 1 if self.rounds else 0\n"
            "        one = adjacency.of_sum(1.0, signed=False)\n"
            '        yield Laplace("class", one, once, weight=2.0)',
        ),
        at(
            QUERY,
            "if t == 0:",
            "    many = float((problem.dataset.y > 0.0).sum())",
            "    many = mechanisms['class'](np.full(oracle.batch, many))",
            "    share = np.clip(many / problem.n, 0.2, 0.8)[:, None]",
        ),
        at(MOVE, "told = told * share"),
    ),
    "a lower cap by what was told": sound(
        "descent",
        at(
            MOVE,
            "long = np.linalg.norm(told, axis=1, keepdims=True)",
            "cap = np.minimum(cap, np.maximum(0.5 * cap, long))",
        ),
    ),
    "restarts": sound(
        "descent",
        at(MOVE, "if t % 4 == 3:", "    move = np.zeros_like(move)"),
    ),
    "a heavy ball": sound(
        "descent",
        before_loop("before = oracle.w.copy()"),
        at(
            MOVE,
            "told = told - 0.3 * (oracle.w - before)",
            "before = oracle.w.copy()",
        ),
    ),
    "a public look": sound(
        "descent",
        before_loop(
            "bounds = problem.dataset.bounds",
            "far = 1.0 if bounds is None else bounds.norm",
            "pace = pace / (1.0 + far)",
        ),
    ),
    "its own products": sound(
        "descent",
        (
            SUMMED,
            "                r = oracle.residuals()\n"
            "                long = np.abs(r) * problem.dataset.row_norms\n"
            "                f = np.minimum(1.0, cap / np.maximum(long, 1e-300))\n"
            "                summed = oracle.transposed_product(r * f)\n",
        ),
    ),
    "samples as weights": sound(
        "sampled",
        (
            "summed = np.stack(\n"
            "                    [oracle.record_sum(b, drawn[b], cap[b]) for b in rows]"
            "\n                )",
            "taken = np.zeros((oracle.batch, problem.n))\n"
            f"{PAD}for b in rows:\n"
            f"{PAD}    taken[b, drawn[b]] = 1.0\n"
            f"{PAD}r, top = oracle.residuals(), np.array(cap)[:, None]\n"
            f"{PAD}long = np.abs(r) * problem.dataset.row_norms\n"
            f"{PAD}f = np.minimum(1.0, top / np.maximum(long, 1e-300))\n"
            f"{PAD}summed = oracle.transposed_product(r * f * taken)",
        ),
    ),
    "a sample per release": sound(
        "sampled",
        (
            "        yield PoissonGaussian(",
            '        yield PoissonGaussian("more", size, self.rounds, rate=rate)\n'
            "        yield PoissonGaussian(",
        ),
        at(
            MOVE,
            "more = mechanisms['more']",
            "new = [more.sample(b, problem.n, 1)[0] for b in rows]",
            "other = [oracle.record_sum(b, new[b], cap[b]) for b in rows]",
            "told = (told + more(np.stack(other)) / self.expected) / 2",
        ),
    ),
    "shrunken entries": sound(
        "entries",
        at(MOVE, "told = np.sign(told) * np.maximum(np.abs(told) - 0.01, 0.0)"),
    ),
    "a cycle of entries": sound(
        "entries",
        (
            "drawn = [(uniforms(s, 0, count) * problem.p).astype(np.int64) "
            "for s in seeds]",
            "drawn = [np.arange(count) % problem.p for s in seeds]",
        ),
    ),
    "a choice by the cube": sound(
        "selected",
        at(MOVE, "told = np.clip(told, -1.0, 1.0)"),
    ),
    "a minimiser that is rounded": sound(
        "bent",
        (
            "            yield w[None, :]",
            "            yield np.clip(w[None, :], -2.0, 2.0)",
        ),
    ),
    "a minimiser that is shrunk": sound(
        "bent",
        ("            yield w[None, :]", "            yield 0.9 * w[None, :]"),
    ),
    "lines of progress": sound(
        "descent",
        at(
            MOVE,
            "import datetime, os, sys, time, uuid",
            "print(f'step {t}: |w| = {np.linalg.norm(oracle.w):.4f}')",
            "print(datetime.datetime.now(), time.time(), os.getpid(), object())",
            "print(f'{time.perf_counter():.2f} s', uuid.uuid4(), file=sys.stderr)",
        ),
    ),
    "a log of what was told": sound(
        "sampled",
        at(
            MOVE,
            "import logging",
            "how = '%(asctime)s %(process)d %(message)s'",
            "logging.basicConfig(filename='made.log', level=20, format=how)",
            "logging.info('told %s', told)",
        ),
    ),
    "a cache of public numbers": sound(
        "descent",
        before_loop(
            "import pathlib, tempfile",
            "place = pathlib.Path(tempfile.gettempdir(), 'half.txt')",
            "if not place.exists():",
            "    place.write_text(str(0.5))",
            "pace = pace * float(place.read_text())",
        ),
    ),
    "a number of the records that is computed once": sound(
        "descent",
        (
            "KEPT = {}\n",
            "KEPT = {}\n\n\ndef longest(problem):\n"
            "    return problem.dataset.row_norms.max()\n",
        ),
        before_loop("size = once(problem, longest)"),
        ("ask(summed)", "ask(summed + 0.0 * size)"),
    ),
    "an inverse that may fail": sound(
        "descent",
        before_loop(
            "pair = np.outer(problem.dataset.y[:2], problem.dataset.y[:2])",
            "other = private_call(np.linalg.inv, pair, instead=np.zeros((2, 2)))",
        ),
        ("ask(summed)", "ask(summed + 0.0 * np.clip(other, 0, 1).sum())"),
    ),
    "a minimiser that is printed": sound(
        "bent",
        (
            "            yield w[None, :]",
            "            print(w)\n            yield w[None]",
        ),
    ),
    "one answer and many steps": sound(
        "descent",
        (
            'yield Gaussian("slope", size, self.rounds)',
            'yield Gaussian("slope", size, min(1, self.rounds))',
        ),
        (SUMMED, ""),
        (TOLD, f"{PAD}if t == 0:\n    {SUMMED}    {TOLD}"),
    ),
}


PAST = "iterates depend on the data past the mechanisms"
LEAK = "told = summed / problem.n"


def hidden(found, base, *changes, beside=""):
    return Made(base, changes, "behind a condition", found, beside)


def behind(condition, found=PAST, *changes):
    """The exact sum in place of what was told, where a condition holds."""
    return hidden(
        found, "descent", at(MOVE, f"if {condition}:", f"    {LEAK}"), *changes
    )


def named(text, beside="import functools\n"):
    """Something that a module defines at its top."""
    return ("import functools\n", beside + text)


HIDDEN = {
    "large batches": behind("oracle.batch >= 16"),
    "as many records as a constant": behind("290 < problem.n < 310"),
    "more records than a constant of the module": behind(
        "problem.n > ENOUGH", PAST, named("ENOUGH = 15 * 1000\n")
    ),
    "more columns than any family": behind("problem.p >= 300"),
    "a parameter that has one value": behind("np.any(self.pace == 0.37)"),
    "two parameters that have one value each": behind(
        "self.rounds == 31 and self.warm == 17"
    ),
    "a late step": behind("t == 1203"),
    "every fiftieth step of a long run": behind("t % 500 == 499"),
    "far from the start": behind("np.any(np.abs(oracle.w) > 1e9)"),
    "little noise": behind("np.any(ask.scale < 1e-3)"),
    "a strong penalty": behind('getattr(problem.penalty, "strength", 0.0) > 0.7'),
    "a switch of the module": behind(
        "FAST", "`FAST` was never true", named("FAST = False\n")
    ),
    "a switch of the environment": behind(
        'os.environ.get("FAST")',
        '`os.environ.get("FAST")` was never true',
        named("import os\n"),
    ),
    "far entries alone": hidden(
        PAST,
        "descent",
        at(MOVE, "told = np.where(np.abs(oracle.w) > 1e6, summed, told)"),
    ),
    "a table of functions": hidden(
        "was not called",
        "descent",
        at(
            MOVE,
            "table = {'last': lambda: told, 'none': lambda: summed}",
            "told = table.get(self.tail, lambda: told)()",
        ),
    ),
    "an error that is handled": hidden(
        "was not run",
        "descent",
        at(
            MOVE,
            "try:",
            "    told = np.asarray(told)",
            "except FloatingPointError:",
            f"    {LEAK}",
        ),
    ),
    "a choice of two": hidden(
        PAST, "descent", at(MOVE, "told = summed if problem.n == 3007 else told")
    ),
    "a size of one adjacency": hidden(
        "times its declared sensitivity",
        "descent",
        (
            SIZE,
            SIZE.replace(
                "        yield",
                "        few = problem.n < 5\n"
                "        if few and adjacency.value == 'zero_out':\n"
                "            size = size / 3\n"
                "        yield",
            ),
        ),
    ),
    "the range of the labels": hidden(
        PAST,
        "descent",
        before_loop(
            "if not problem.loss.classification:",
            "    pace = pace / (2.0 + np.ptp(problem.dataset.y))",
        ),
    ),
    "a helper beside": hidden(
        PAST,
        "descent",
        named("import helper\n"),
        at(MOVE, "told = helper.polished(told, summed / problem.n, t)"),
        beside="LATE = 700\n\n\ndef polished(told, mean, t):\n"
        "    return mean if t == LATE else told\n\n\n"
        "def unused(x):\n    return x\n",
    ),
    "a helper that is compiled": hidden(
        "line 6, `t == 700` was never true",
        "descent",
        named("import helper\n"),
        at(MOVE, "told = helper.polished(told, summed / problem.n, t)"),
        beside="from numba import njit\n\n\n@njit\ndef polished(told, mean, t):\n"
        "    if t == 700:\n        return mean\n    return told\n",
    ),
}

SOUND_BEHIND = {
    "shorter steps later": sound(
        "descent", at(MOVE, "if t > 450:", "    told = told / 2")
    ),
    "many records": sound(
        "descent", at(MOVE, "if problem.n >= 5000:", "    told = 0.9 * told")
    ),
    "a batch": sound(
        "descent", at(MOVE, "told = told / 2 if oracle.batch >= 16 else told")
    ),
    "cases": sound(
        "descent",
        at(
            MOVE,
            "match self.tail:",
            "    case 'last':",
            "        told = 1.0 * told",
            "    case 'mean' if t > 2:",
            "        told = 0.5 * told",
            "    case 'mean':",
            "        pass",
            "    case _:",
            "        raise ValueError(self.tail)",
        ),
    ),
    "what cannot be": sound(
        "descent",
        at(
            MOVE,
            "assert told.shape == oracle.w.shape",
            "if t > 10**6 or problem.n == 12345:",
            "    raise RuntimeError('too long')",
        ),
    ),
    "a helper of many uses": Made(
        "descent",
        (named("import helper\n"), at(MOVE, "told = helper.half(told)")),
        beside="def half(x):\n    return x / 2\n\n\n"
        "def third(x):\n    return x / 3 if x.any() else x\n",
    ),
    "what is named": sound(
        "descent",
        (
            "    exempt = {\n",
            "    exempt = {\n        'problem.n > 10**7': 'no time for that',\n",
        ),
        at(MOVE, "if problem.n > 10**7:", "    told = 0.5 * told"),
    ),
}
"""Conditions that replays seek out, that end in errors, or that are named."""


IDIOMS = {
    "a scratch file": (
        sound(
            "descent",
            at(
                QUERY,
                "import tempfile",
                "with tempfile.NamedTemporaryFile() as file:",
                "    np.save(file, problem.dataset.y)",
            ),
        ),
        "save writes or prints a private value",
    ),
    "a cache by the content of the records": (
        sound(
            "descent",
            before_loop(
                "import pathlib",
                "place = pathlib.Path.home() / '.cache' / problem.dataset.content_hash",
                "if not place.exists():",
                f"    place.write_text(str({LONGEST}))",
            ),
        ),
        "`not place.exists()`: a condition on a private value",
    ),
    "lengths that overflow": (
        sound(
            "descent",
            at(
                MOVE,
                "with np.errstate(over='ignore'):",
                "    far = np.isinf(problem.dataset.row_norms**2).any()",
                "told = 0.0 * told if far else told",
            ),
        ),
        "`far`: a condition on a private value",
    ),
    "numpy inside a function": (
        sound(
            "descent",
            at(
                QUERY,
                "import numpy",
                "sums = numpy.zeros((oracle.batch, problem.p))",
                "sums[:] = oracle.clipped_sum(cap)",
            ),
        ),
        "import numpy at the top of the file",
    ),
    "an inverse": (
        sound(
            "descent",
            before_loop(
                "size = np.linalg.inv(1.0 + np.eye(1) * problem.dataset.y[0]).sum()"
            ),
        ),
        "use private_call(inv, ..., instead=...)",
    ),
}
"""Solvers that may be sound, and what is said of the line that is to be another one."""
