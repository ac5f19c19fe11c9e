"""Objects that `check` passes to a solver in place of the real ones.

The answers of these objects are private values, unless the attribute is public.
`PUBLIC` lists the public attributes. It is the trusted base of the check. A test checks
that each public attribute exists and is equal on neighbouring and on unrelated
datasets.
"""

from __future__ import annotations

import contextlib
import io
import logging
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
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
    any_private,
    as_private,
    as_public,
    call_with_raw,
    first_private,
    guard,
    guard_by_kind,
    lift_function,
    lifted_value,
    name_of,
    public_object,
    unwrap_values,
)
from dp_erm_bench.datasets.base import Dataset
from dp_erm_bench.problems.base import BaseOracle, Problem
from dp_erm_bench.problems.erm.second_order import Geometry
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
        "n p lipschitz record_smoothness is_fixed kind title radius nonzeros "
        "l1_radius by_moments contains start lacking".split()
    ),
    "oracle": frozenset("batch psi touch".split()),
    "mechanism": frozenset(
        "scale used release rate is_secret halved vector order z spend finish size "
        "identity kind".split()
    ),
}
"""Public attributes, by the kind of object that they belong to."""
OBJECTS = ("loss", "penalty", "constraint", "separable")
"""Attributes of a problem that are public objects."""
MOVES = {"move_to", "prox_step", "move_towards"}
"""Methods of an oracle whose arguments must be public."""
STEPS = {"coordinate_steps": 1, "stochastic_steps": 2, "variance_reduced_steps": 3}
"""Methods of an oracle that change w, with the position of their noise argument.

These methods use private samples, and noise that a mechanism handed out.
"""
PACKAGE = "dp_erm_bench"
REPLACED = (f"{PACKAGE}.solvers.private", streams.__name__)
"""Modules with functions that are replaced during a check."""
OWN = (f"{PACKAGE}.solvers", f"{PACKAGE}.releases")
"""Modules of the package whose functions run on private values, as solvers do."""
LIFTED = (f"{PACKAGE}.kernels", f"{PACKAGE}.problems")
"""If a solver imports these modules, all their functions take private values."""


def require_public(value: Any, what: str) -> Any:
    """Return the raw form of a value; raise `Leak` if the value is private."""
    if (found := first_private(value)) is not None:
        raise Leak(f"{what} is a private value", found)
    return unwrap_values(value)


class Guarded(Guard):
    """A stand-in whose attributes are private, except for those listed in `PUBLIC`."""

    _public: frozenset[str]
    _others: Mapping[str, Callable[[Any, Any], Any]] = {}
    """Functions that return the stand-in of an attribute, by the attribute's name.

    Each takes the guard and the raw attribute.
    """

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._raw, name)
        if name in self._public:
            return found
        answer: Any = self._others.get(name, Guarded._hide)
        return answer(self, found)

    def _hide(self, found: Any) -> Any:
        is_method = callable(found)
        return (
            partial(call_with_raw, found, forced=True)
            if is_method
            else as_private(found)
        )


class GuardedDataset(Guarded):
    """A dataset whose X and y, and whatever else depends on records, are private."""

    _public = PUBLIC["dataset"]


class GuardedSmoothness(Guarded):
    """Public smoothness constants; whatever they were computed from is private.

    Constants computed from the data are public if this use of the data is declared as
    uncharged, that is, if no budget pays for it.
    """

    _public = PUBLIC["smoothness"]


class GuardedProblem(Guarded):
    """A problem whose sizes, bounds, loss, penalty and constants are public."""

    _public = PUBLIC["problem"]
    _others = {
        **dict.fromkeys(OBJECTS, lambda _, found: public_object(found)),
        "dataset": lambda _, found: GuardedDataset(found),
        "smoothness": lambda _, found: GuardedSmoothness(found),
        "oracle": lambda self, found: (
            lambda *batch, **how: GuardedOracle(
                self, found(*batch, **how), ArrayState(True)
            )
        ),
    }


class Recorded(dict[str, Any]):
    """Columns that are recorded but not released, so they may be private."""


class GuardedOracle(Guarded):
    """An oracle whose iterates are public, and whose other answers are private.

    If a solver makes an oracle for itself, the iterates of that oracle may be private.
    """

    secret = True
    _public = PUBLIC["oracle"]
    _others = {
        "loss": lambda _, found: public_object(found),
        "w": lambda self, found: Private(found, state=self._state),
        **dict.fromkeys(MOVES, lambda self, found: partial(self._guard_move, found)),
        **dict.fromkeys(STEPS, lambda self, found: partial(self._guard_step, found)),
    }

    def __init__(
        self, problem: GuardedProblem, raw: Any, state: ArrayState | None = None
    ) -> None:
        if isinstance(raw, int):  # as `type(oracle)(problem, batch)` makes a new one
            raw, state = problem._raw.oracle(raw), ArrayState(True)
        super().__init__(raw)
        state = state or ArrayState(True, published="oracle.w")
        vars(self).update(problem=problem, told=Recorded(), _state=state)

    def _guard_move(self, found: Any, *args: Any, **keys: Any) -> Any:
        if self._state.published:
            require_public([*args, *keys.values()], "where the iterate moves to")
        elif any_private(args, keys):
            self._state.write(None)
        return found(*unwrap_values(args), **unwrap_values(keys))

    def _guard_step(self, found: Any, *args: Any, **keys: Any) -> Any:
        place = STEPS[found.__name__]
        noise = keys.get("noise", args[place] if place < len(args) else None)
        known = type(noise) is Private and noise._is_noise
        if self._state.published and not known:
            words = "moves public iterates by noise that no mechanism handed out"
            raise Leak(f"{found.__name__} {words}: use an oracle of your own")
        return found(*unwrap_values(args), **unwrap_values(keys))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._raw, name, require_public(value, f"oracle.{name}"))


class GuardedMechanism(Guarded):
    """A mechanism that takes private values and returns published ones."""

    _public = PUBLIC["mechanism"]
    _others = {
        **dict.fromkeys(
            ("sample", "allocation"),
            lambda self, found: partial(self._guard_sample, found),
        ),
        **dict.fromkeys(
            ("take", "take_vectors"),
            lambda _, found: (
                lambda *args: Private(found(*unwrap_values(args)), is_noise=True)
            ),
        ),
        **dict.fromkeys(
            ("next_records", "permutation"),
            lambda self, found: self._hide(found) if self._raw.release.drawn else found,
        ),
        # The point that a perturbed objective publishes.
        "minimiser": lambda _, found: lambda w: as_public(found(unwrap_values(w))),
    }

    def __call__(self, *args: Any, **keys: Any) -> Any:
        """Return the answer, which is public unless the release is secret."""
        nested = isinstance(self._raw, NestedMechanism)
        for one in args if type(self._raw) is RepeatAndSelectMechanism else ():
            check_apart(one, self._raw.release.name)
        asked = [
            _guard_part(one) if nested and callable(one) else unwrap_values(one)
            for one in args
        ]
        done = self._raw(*asked, **unwrap_values(keys))
        return as_private(done) if self._raw.release.secret else as_public(done)

    def _guard_sample(self, found: Any, *args: Any) -> Any:
        records, offsets = done = found(*require_public(args, "a sample's argument"))
        if not self._raw.is_secret:
            return done
        if hasattr(self._raw, "size"):  # of a fixed size
            return Private(records), offsets
        return Private(records, {len(records)}), Private(offsets)


class GuardedMechanisms(dict[str, Any]):
    """The guarded mechanisms of a run, by the names of their releases."""

    def __init__(self, raw: Mechanisms) -> None:
        super().__init__({name: GuardedMechanism(one) for name, one in raw.items()})
        self.batch, self.ahead, self._raw_missing = raw.batch, raw.ahead, raw

    def __missing__(self, name: str) -> Any:
        return self._raw_missing[name]


def _guard_part(function: Any) -> Any:
    """Return one function of a nested release, called with guarded arguments.

    The result of the function must be public.
    """
    plain = getattr(function, "__func__", function)

    def run(*args: Any) -> Any:
        return require_public(plain(*map(guard, args)), "what a repeated run returns")

    is_method = plain is not function
    return types.MethodType(run, function.__self__) if is_method else run


guard_by_kind.register(Dataset, GuardedDataset)
guard_by_kind.register(Problem, GuardedProblem)
guard_by_kind.register(Mechanisms, GuardedMechanisms)
guard_by_kind.register(
    BaseOracle, lambda raw: GuardedOracle(GuardedProblem(raw.problem), raw)
)

# Replacements of the functions of `extend` --------------------------------------------


def call_privately(function: Any, *args: Any, instead: Any, **keys: Any) -> Any:
    """Call a function with raw values, and return its result as a private value.

    `Leak` is raised if the function changes its module or prints something.

    Parameters
    ----------
    function : callable
        The function to call.
    *args, **keys
        Arguments of the function, which may be private.
    instead : object
        The result if the function raises an error.
    """
    plain = getattr(function, "raw", function)
    code = getattr(plain, "__code__", None)
    own = plain.__globals__ if code and code.co_filename in private.LIFTED else {}
    before, printed = _state_of(own), io.StringIO()
    raws = unwrap_values(args), unwrap_values(keys)
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            done = bare_function(plain)(*raws[0], **raws[1])
    except Leak:
        raise
    except Exception:
        done = unwrap_values(instead)
    if printed.getvalue():
        raise Leak(f"{name_of(plain)} prints within a private_call")
    if _state_of(own) != before:
        raise Leak(f"{name_of(plain)} keeps something of private values in its module")
    if done is None:
        raise Leak("a private_call returns None, which no value can stay private as")
    return as_private(done)


def bare_function(function: Any) -> Any:
    """Return a copy of a solver's function that uses its module's original globals."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_filename not in private.LIFTED:
        return function
    names = {
        name: found._module
        if isinstance(found, LiftedModule)
        else getattr(found, "raw", found)
        for name, found in function.__globals__.items()
        if found is not BUILTINS.get(name)
    }
    how = function.__name__, function.__defaults__, function.__closure__
    made = types.FunctionType(code, names, *how)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _state_of(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of a module; objects that can change in place are copied."""
    kinds = dict, list, set, np.ndarray
    return {
        name: repr(unwrap_values(value)) if isinstance(value, kinds) else id(value)
        for name, value in names.items()
        if not name.startswith("__")
    }


def seeds_for(mechanisms: Iterable[Mechanism]) -> Callable[..., Any]:
    """Return a function that makes public seeds; it raises `Leak` for noise seeds."""

    def stream_seeds(identities: Sequence[str], purpose: str) -> Any:
        made = streams.stream_seeds(identities, purpose)
        known = {seed.tobytes() for one in mechanisms for seed in one.seeds}
        if any(seed.tobytes() in known for seed in made):
            raise Leak(f"public draws are of the stream of release {purpose}'s noise")
        return made

    return stream_seeds


@contextlib.contextmanager
def lift_globals(
    modules: Iterable[types.ModuleType],
    solver: Solver,
    mechanisms: Iterable[Mechanism] = (),
) -> Iterator[None]:
    """Let the functions of modules take private values inside this context.

    Parameters
    ----------
    modules : iterable of module
        The modules whose global names are replaced.
    solver : Solver
        The solver that runs; it declares which uses of the data are uncharged.
    mechanisms : iterable of Mechanism
        The mechanisms of the run. Public random numbers must not come from their
        streams.
    """
    ours = {
        "private_call": call_privately,
        "once": lambda data, function: function(data),
        # The result of a declared use is public.
        "uncharged": lambda x, name: check_use(
            unwrap_values(x), name, solver.uncharged
        ),
        "stream_seeds": seeds_for(mechanisms),
    }
    with contextlib.ExitStack() as stack:
        stack.callback(private.LIFTED.clear)
        private.LIFTED.clear()
        for module in modules:
            private.LIFTED.add(str(module.__file__))
            before = dict(vars(module))
            made = BUILTINS | {k: _lifted_global(x, ours) for k, x in before.items()}
            made = {k: x for k, x in made.items() if x is not before.get(k, made)}
            vars(module).update(made)
            stack.callback(_restore, vars(module), before, made)
        yield


def _restore(names: dict[str, Any], before: dict[str, Any], made: Any) -> None:
    """Restore the previous values of some names of a module; other names are kept."""
    for name in made:
        names.pop(name, None)
    names.update({name: before[name] for name in made if name in before})


def _lifted_global(found: Any, ours: Mapping[str, Any]) -> Any:
    """Return the replacement for a solver's global, usually the same object."""
    is_module, is_kind = isinstance(found, types.ModuleType), isinstance(found, type)
    name = getattr(found, "__name__", "")
    home = name if is_module else getattr(found, "__module__", "") or ""
    if home in REPLACED and name in ours:
        return ours[name]
    lifts = home.partition(".")[0] in ("numpy", "scipy", "math")
    if is_module:
        lifts = lifts or home.startswith(LIFTED)
    elif not is_kind:
        lifts = lifts or (home.startswith(PACKAGE) and not home.startswith(OWN))
        lifts = bool(name) and (lifts or hasattr(found, "py_func"))
    # `Geometry` reads the records of the oracle or the problem that it gets.
    if found is Geometry:
        return lift_function(found)
    return lifted_value(found) if lifts else found


@contextlib.contextmanager
def refuse_private_logs() -> Iterator[None]:
    """Raise `Leak` inside this context if a private value is logged at any level."""
    plain = logging.getLogRecordFactory()

    def make_record(*args: Any, **keys: Any) -> Any:
        if any_private(args, keys):
            raise Leak(private.PRINTED, first_private(args))
        return plain(*args, **keys)

    with contextlib.ExitStack() as stack:
        stack.callback(logging.setLogRecordFactory, plain)
        logging.setLogRecordFactory(make_record)
        stack.enter_context(
            patch.object(logging.Logger, "isEnabledFor", lambda *_: True)
        )
        yield


def guard_copies() -> Any:
    """Skip the check that repeated runs share no variables, inside this context.

    The solver's functions are wrapped here, and the original ones were checked.
    """
    return patch.object(repeat_and_select, "check_apart", lambda *_: None)


def kept_beyond(solver: Solver, modules: Iterable[types.ModuleType]) -> Iterator[str]:
    """Yield the names of globals in which a solver keeps private values after a run."""
    places = [("self", vars(solver)), (type(solver).__name__, vars(type(solver)))]
    places += [(module.__name__, vars(module)) for module in modules]
    for where, names in places:
        for name, value in list(names.items()):
            if not name.startswith("__") and any_private(_held_by(value)):
                yield f"{where}.{name}"


def _held_by(value: Any) -> Any:
    """Return the contents of a global; for a function, its attributes and defaults."""
    if isinstance(value, types.FunctionType):
        return [*vars(value).values(), *(value.__defaults__ or ())]
    return dict(value) if isinstance(value, dict) else value
