"""What `check` hands to a solver: stand-ins that answer with private values.

`PUBLIC` is the trusted base: what is listed there is public, and all else is private.
A test holds that each name exists and is equal on neighbours and on far data.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np

from dp_erm_bench.contract import private
from dp_erm_bench.contract.private import (
    BUILTINS,
    ArrayState,
    Guard,
    Leak,
    LiftedModule,
    Private,
    Sink,
    any_private,
    as_private,
    as_public,
    call,
    is_guard,
    is_private,
    lift,
    lifted_value,
    public_object,
    unwrap,
    walk,
)
from dp_erm_bench.datasets.base import Dataset
from dp_erm_bench.problems.base import Oracle, Problem
from dp_erm_bench.releases import repeat_and_select, streams
from dp_erm_bench.releases.base import Mechanism, Mechanisms
from dp_erm_bench.releases.nested import NestedMechanism
from dp_erm_bench.releases.repeat_and_select import (
    RepeatAndSelectMechanism,
    check_apart,
)
from dp_erm_bench.solvers.base import Solver
from dp_erm_bench.solvers.private import check_use

PUBLIC: Mapping[str, frozenset[str]] = {
    "dataset": frozenset("n p bounds sparse name intercept uncharged".split()),
    "smoothness": frozenset("columns norm kind uncharged".split()),
    "problem": frozenset(
        "n p lipschitz record_smoothness fixed kind title radius nonzeros "
        "l1_radius by_moments contains start lacking".split()
    ),
    "oracle": frozenset("batch psi touch".split()),
    "mechanism": frozenset(
        "scale used release rate is_secret halved vector order z spend finish size "
        "identity kind".split()
    ),
}
"""Attributes that are public, by what they belong to."""
OBJECTS = ("loss", "penalty", "constraint", "separable")
"""Attributes of a problem that are public objects."""
MOVES = {"move_to", "prox_step", "move_towards"}
"""Methods of an oracle whose arguments must be public."""
STEPS = {"coordinate_steps": 1, "stochastic_steps": 2, "variance_reduced_steps": 3}
"""Methods of an oracle that move w themselves, by private samples and noise that a
mechanism handed out; the place of the noise among their arguments."""
PACKAGE = "dp_erm_bench"
REPLACED = (f"{PACKAGE}.solvers.private", streams.__name__)
"""Modules whose functions have others in their places."""
OWN = (f"{PACKAGE}.solvers", f"{PACKAGE}.releases")
"""Modules of the package whose functions run with private values, as a user's do."""


def require_public(value: Any, what: str) -> Any:
    """Return a raw value that must be public; raise `Leak` if it is private."""
    found = next(filter(is_private, walk(value)), None)
    if found is not None:
        raise Leak(f"{what} is a private value", found)
    return unwrap(value)


class GuardedDataset(Guard):
    """A dataset: X, y and all else that depends on records are private."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._raw, name)
        return found if name in PUBLIC["dataset"] else as_private(found)


class GuardedSmoothness(Guard):
    """Smoothness constants: public, or listed as uncharged; not what made them."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._raw, name)
        return found if name in PUBLIC["smoothness"] else as_private(found)


class GuardedProblem(Guard):
    """A problem: sizes, bounds, loss, penalty and constants are public."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._raw, name)
        if name == "dataset":
            return GuardedDataset(found)
        if name == "smoothness":
            return GuardedSmoothness(found)
        if name == "oracle":
            return lambda *batch, **how: GuardedOracle(
                self, found(*batch, **how), ArrayState(True)
            )
        if name in OBJECTS:
            return public_object(found)
        if name in PUBLIC["problem"]:
            return found
        if callable(found):
            return functools.partial(call, found, forced=True)
        return as_private(found)


class Recorded(dict[str, Any]):
    """Columns that are recorded and not released: they may be private."""


class GuardedOracle(Guard):
    """An oracle: its iterates are public, all other answers are private.

    Those of an oracle that a solver makes for itself may be private.
    """

    secret = True

    def __init__(
        self, problem: GuardedProblem, raw: Any, state: ArrayState | None = None
    ) -> None:
        if isinstance(raw, int):  # as `type(oracle)(problem, batch)` makes a new one
            raw, state = problem._raw.oracle(raw), ArrayState(True)
        super().__init__(raw)
        object.__setattr__(self, "problem", problem)
        object.__setattr__(self, "_state", state or Sink("oracle.w"))
        object.__setattr__(self, "told", Recorded())

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._raw, name)
        if name == "loss":
            return public_object(found)
        if name == "w":
            return Private(found, state=self._state)
        if name in PUBLIC["oracle"]:
            return found
        if name in MOVES:
            return functools.partial(self._move, found)
        if name in STEPS:
            return functools.partial(self._step, found, STEPS[name])
        if callable(found):
            return functools.partial(call, found, forced=True)
        return as_private(found)

    def _move(self, found: Any, *args: Any, **keys: Any) -> Any:
        if type(self._state) is Sink:
            what = "where the iterate moves to"
            require_public([*args, *keys.values()], what)
        elif any_private(args, keys):
            self._state.write(None)
        return found(*unwrap(args), **unwrap(keys))

    def _step(self, found: Any, place: int, *args: Any, **keys: Any) -> Any:
        noise = keys.get("noise", args[place] if place < len(args) else None)
        known = type(noise) is Private and noise._is_noise
        if type(self._state) is Sink and not known:
            words = "moves public iterates by noise that no mechanism handed out"
            raise Leak(f"{found.__name__} {words}: use an oracle of your own")
        return found(*unwrap(args), **unwrap(keys))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._raw, name, require_public(value, f"oracle.{name}"))


class GuardedMechanism(Guard):
    """A mechanism: private values go in, and published ones come out."""

    def __call__(self, *args: Any, **keys: Any) -> Any:
        """Return what is published."""
        nested = isinstance(self._raw, NestedMechanism)
        for one in args if type(self._raw) is RepeatAndSelectMechanism else ():
            check_apart(one, self._raw.release.name)
        asked = [
            _guard_part(one) if nested and callable(one) else unwrap(one)
            for one in args
        ]
        done = self._raw(*asked, **unwrap(keys))
        return as_private(done) if self._raw.release.secret else as_public(done)

    def minimiser(self, w: Any) -> Any:
        """Return the point that a perturbed objective publishes."""
        return as_public(self._raw.minimiser(unwrap(w)))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._raw, name)
        if name in PUBLIC["mechanism"]:
            return found
        if name in ("sample", "allocation"):
            return functools.partial(self._sample, found)
        if name in ("take", "take_vectors"):
            return lambda *args: Private(found(*unwrap(args)), is_noise=True)
        if name in ("next_records", "permutation") and not self._raw.release.drawn:
            return found
        if callable(found):
            return functools.partial(call, found, forced=True)
        return as_private(found)

    def _sample(self, found: Any, *args: Any) -> Any:
        records, offsets = done = found(*require_public(args, "a sample's argument"))
        if not self._raw.is_secret:
            return done
        if hasattr(self._raw, "size"):  # of a fixed size
            return Private(records), offsets
        return Private(records, {len(records)}), Private(offsets)


class GuardedMechanisms(dict[str, Any]):
    """The mechanisms by name."""

    def __init__(self, raw: Mechanisms) -> None:
        super().__init__({name: GuardedMechanism(one) for name, one in raw.items()})
        self.batch, self.ahead, self._raw_missing = raw.batch, raw.ahead, raw

    def __missing__(self, name: str) -> Any:
        return self._raw_missing[name]


def _guard_part(function: Any) -> Any:
    """Return a function that makes a part of a nested release, with guarded arguments.

    What it returns must be public.
    """
    plain = getattr(function, "__func__", function)

    def run(*args: Any) -> Any:
        return require_public(plain(*map(guard, args)), "what a repeated run returns")

    is_method = plain is not function
    return types.MethodType(run, function.__self__) if is_method else run


def guard(value: Any) -> Any:
    """Return the stand-in of an oracle, a problem, a dataset or mechanisms."""
    if is_guard(value):  # which looks like what it stands for
        return value
    if isinstance(value, Oracle):
        return GuardedOracle(GuardedProblem(value.problem), value)
    if isinstance(value, Problem):
        return GuardedProblem(value)
    if isinstance(value, Dataset):
        return GuardedDataset(value)
    return GuardedMechanisms(value) if isinstance(value, Mechanisms) else value


private.STAND_INS[:] = [guard]

# What replaces the functions of `extend` ----------------------------------------------


def private_call(function: Any, *args: Any, instead: Any, **keys: Any) -> Any:
    """Run a function on raw values; what it returns is private.

    Its module must be as it was after it, and it must print nothing.
    """
    plain = getattr(function, "raw", function)
    code = getattr(plain, "__code__", None)
    own = plain.__globals__ if code and code.co_filename in private.LIFTED else {}
    before = _state_of(own)
    raws = unwrap(args), unwrap(keys)
    try:
        done = bare_function(plain)(*raws[0], **raws[1])
    except Leak:
        raise
    except Exception:
        done = unwrap(instead)
    if _state_of(own) != before:
        name = getattr(plain, "__name__", "a function")
        raise Leak(f"{name} keeps something of private values in its module")
    if done is None:
        raise Leak("a private_call returns None, which no value can stay private as")
    return as_private(done)


def bare_function(function: Any) -> Any:
    """Return a function of the solver's file with the raw names of its module."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_filename not in private.LIFTED:
        return function
    names = {k: getattr(v, "raw", v) for k, v in function.__globals__.items()}
    names |= {k: v._module for k, v in names.items() if isinstance(v, LiftedModule)}
    for name in BUILTINS:
        names.pop(name, None)
    how = function.__name__, function.__defaults__, function.__closure__
    made = types.FunctionType(code, names, *how)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _state_of(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a module holds, with copies of what can be changed in place."""
    kinds = dict, list, set, np.ndarray
    return {
        name: repr(unwrap(value)) if isinstance(value, kinds) else id(value)
        for name, value in names.items()
        if not name.startswith("__")
    }


def once(data: Any, function: Callable[[Any], Any]) -> Any:
    """Compute what a dataset or a problem keeps."""
    return function(data)


def uncharged_for(solver: Solver) -> Callable[[Any, str], Any]:
    """Return the function that publishes a declared use of the records."""

    def uncharged(value: Any, name: str) -> Any:
        return check_use(unwrap(value), name, solver.uncharged)

    return uncharged


def seeds_for(mechanisms: Iterable[Mechanism]) -> Callable[..., Any]:
    """Return the function that makes public seeds; it refuses those of noise."""

    def stream_seeds(identities: Sequence[str], purpose: str) -> Any:
        made = streams.stream_seeds(identities, purpose)
        known = {seed.tobytes() for one in mechanisms for seed in one.seeds}
        if any(seed.tobytes() in known for seed in made):
            raise Leak(f"public draws are of the stream of release {purpose}'s noise")
        return made

    return stream_seeds


@contextlib.contextmanager
def lifted_globals(
    modules: Iterable[types.ModuleType],
    solver: Solver,
    mechanisms: Iterable[Mechanism] = (),
) -> Iterator[None]:
    """Have the functions of modules take private values, as long as it lasts."""
    changed: list[tuple[dict[str, Any], str, Any]] = []
    ours = {
        "private_call": private_call,
        "once": once,
        "uncharged": uncharged_for(solver),
        "stream_seeds": seeds_for(mechanisms),
    }
    missing = object()
    private.LIFTED.clear()
    for module in modules:
        names = vars(module)
        private.LIFTED.add(str(module.__file__))
        lifted = {name: _lifted_global(found) for name, found in names.items()}
        lifted |= {
            name: ours[found.__name__]
            for name, found in names.items()
            if getattr(found, "__module__", "") in REPLACED
            and getattr(found, "__name__", "") in ours
        }
        lifted |= {k: v for k, v in BUILTINS.items() if k not in names}
        for name, found in lifted.items():
            if found is not None:
                changed.append((names, name, names.get(name, missing)))
                names[name] = found
    try:
        yield
    finally:
        private.LIFTED.clear()
        for names, name, found in reversed(changed):
            if found is missing:
                del names[name]
            else:
                names[name] = found


def _lifted_global(found: Any) -> Any:
    """Return what stands for a global of a solver's module, None for itself."""
    if isinstance(found, types.ModuleType):
        parts = found.__name__.split(".")
        if parts[0] in ("numpy", "scipy", "math"):
            return LiftedModule(found)
        inside = f"{PACKAGE}.kernels", f"{PACKAGE}.problems"
        return LiftedModule(found) if found.__name__.startswith(inside) else None
    home = getattr(found, "__module__", "") or ""
    if isinstance(found, type) and home.startswith("scipy.sparse"):
        return lifted_value(found)
    if isinstance(found, type):
        # They read the records of an oracle, or of a problem, that they are given.
        return lift(found) if found.__name__ in ("Geometry",) else None
    if not callable(found) or isinstance(found, np.ufunc):
        return None
    if not hasattr(found, "__name__"):
        return None
    of_package = home.startswith(PACKAGE) and not home.startswith(OWN)
    outside = home.split(".")[0] in ("scipy", "math", "numpy")
    return lift(found) if of_package or outside or hasattr(found, "py_func") else None


@contextlib.contextmanager
def heard_logs() -> Iterator[None]:
    """Have logs of all levels refuse private values."""
    plain = logging.getLogRecordFactory()

    def make_record(*args: Any, **keys: Any) -> Any:
        if any_private(args, keys):
            raise Leak(private.PRINTED, next(filter(is_private, walk(args)), None))
        return plain(*args, **keys)

    logging.setLogRecordFactory(make_record)
    try:
        with patch.object(logging.Logger, "isEnabledFor", lambda *_: True):
            yield
    finally:
        logging.setLogRecordFactory(plain)


@contextlib.contextmanager
def guarded_copies() -> Iterator[None]:
    """Have repeated runs take what is handed guarded values; it is checked before."""
    plain = repeat_and_select.check_apart
    repeat_and_select.check_apart = lambda attempt, name: None
    try:
        yield
    finally:
        repeat_and_select.check_apart = plain


def kept_beyond(solver: Solver, modules: Iterable[types.ModuleType]) -> Iterator[str]:
    """Yield names under which private values are kept beyond a run."""
    places = [("self", vars(solver)), (type(solver).__name__, vars(type(solver)))]
    places += [(module.__name__, vars(module)) for module in modules]
    for where, names in places:
        for name, value in list(names.items()):
            if not name.startswith("__") and any_private(_held_by(value)):
                yield f"{where}.{name}"


def _held_by(value: Any) -> Any:
    """Return what a global holds: of functions their attributes and defaults."""
    if isinstance(value, types.FunctionType):
        return [*vars(value).values(), *(value.__defaults__ or ())]
    return dict(value) if isinstance(value, dict) else value
