"""Private values: numbers that depend on records, and leave through mechanisms alone.

What is computed from a private value is private: by operators, by numpy and scipy, by
compiled kernels. What would publish one raises a `Leak` with its place: a condition, a
plain number, a count, a key, a text, a file, a public array. An array that a solver
makes is public until a private value is written to it or to a view of it; both share
one `ArrayState`. Kinds and dtypes are public; lengths are, unless a sample or a
selection decides them.
"""

from __future__ import annotations

import functools
import linecache
import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from scipy import sparse

from dp_erm_bench.errors import UsageError

SHAPES = {"shape", "ndim", "size", "dtype", "nbytes", "itemsize", "format", "strides"}
FORBIDDEN = {"tofile", "tobytes", "dump", "dumps", "ctypes", "setflags", "base"}
"""Attributes of an array by which its entries leave without a call of ours."""
WRITING = {
    *("save", "savez", "savez_compressed", "savetxt", "save_npz", "savemat"),
    *("array2string", "array_repr", "array_str", "format_float_positional"),
}
"""Functions that write or print what they are given."""
RAISING = {
    *("inv", "solve", "cholesky", "cho_factor", "tensorinv", "tensorsolve"),
    *("lstsq", "logm", "sqrtm", "solve_triangular"),
}
"""Functions of linear algebra that raise an error for some entries."""
SIZED_BY_VALUE = {
    *("nonzero", "flatnonzero", "argwhere", "unique", "compress", "extract"),
    *("bincount", "repeat", "zeros", "ones", "empty", "full", "eye", "linspace"),
    *("tile", "setdiff1d", "union1d", "intersect1d", "arange", "delete", "where"),
    *("trim_zeros", "histogram_bin_edges", "unique_values", "unique_counts"),
}
"""Functions whose results are as long as the values say."""
KINDS = {
    *("issparse", "isspmatrix", "isscalar", "iscomplexobj", "isrealobj"),
    *("result_type", "can_cast", "issubdtype"),
}
"""Functions of the kind of a value, which is public."""
OPERATORS = {
    "matmul": operator.matmul,
    "multiply": operator.mul,
    "add": operator.add,
    "subtract": operator.sub,
    "true_divide": operator.truediv,
    "divide": operator.truediv,
    "power": operator.pow,
    "negative": operator.neg,
    "absolute": abs,
}
"""What sparse matrices, which know no ufuncs, have in their place."""
WATCHED: set[str] = set()
"""Files of the solver that runs: their lines are named."""
LIFTED: set[str] = set()
"""Files whose functions run with private values."""
FOUND: list[Leak] = []
"""The leaks so far; a solver may have caught their exceptions."""
PUBLIC_SIZES: set[int] = {1}
"""Lengths that say nothing: n, p and the number of trials are added for a run."""
NOTHING: frozenset[int] = frozenset()


class CodeLine(NamedTuple):
    """A line of a solver, its expression, and the lines that called it."""

    file: str
    line: int
    text: str
    callers: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return it in words."""
        calls = "".join(f", called in line {line}" for line in self.callers)
        return f"line {self.line}, `{self.text}`{calls}"


def _frame() -> types.FrameType | None:
    """Return the innermost frame of the solver's files."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename not in WATCHED:
        frame = frame.f_back
    return frame


def _line(code: types.CodeType, instruction: int) -> int | None:
    """Return the line of an instruction."""
    for first, end, line in code.co_lines():
        if first <= instruction < end:
            return line
    return None


def place_of(frame: types.FrameType | None) -> CodeLine:
    """Return the place where a frame of the solver is."""
    if frame is None:
        return CodeLine("", 0, "")
    callers: list[int] = []
    outer = frame.f_back
    while outer is not None and len(callers) < 3:
        if outer.f_code.co_filename == frame.f_code.co_filename:
            callers.append(outer.f_lineno)
        outer = outer.f_back
    named = _expression(frame.f_code, frame.f_lasti)
    # The caller of `iterates` is the check; it is no line of the solver.
    return named._replace(callers=tuple(callers))


def _expression(code: types.CodeType, instruction: int) -> CodeLine:
    """Return the expression that an instruction belongs to."""
    positions = list(code.co_positions())
    line, end, first, last = positions[instruction // 2]
    line = line or code.co_firstlineno
    linecache.checkcache(code.co_filename)
    text = linecache.getline(code.co_filename, line)
    if line == end and first is not None:
        text = text.encode()[first:last].decode(errors="replace")
    return CodeLine(code.co_filename, line, " ".join(text.split()))


class Ended(Exception):
    """A loop whose condition is forced went on for long enough."""


class Leak(UsageError):
    """A private value would become public; says where, and where it became private."""

    def __init__(self, what: str, value: Any = None) -> None:
        self.what, self.place = what, place_of(_frame())
        origins = (value._origin, value._before) if type(value) is Private else ()
        made = [_expression(*origin) for origin in origins if origin]
        elsewhere = [one for one in made if one[:2] != self.place[:2]]
        self.made = next(iter(elsewhere), None)
        super().__init__(self.sentence)
        FOUND.append(self)

    @property
    def sentence(self) -> str:
        """Return the place and what is wrong there."""
        where = f"{self.place}: " if self.place.line else ""
        made = f"; the value is private since {self.made}" if self.made else ""
        return f"{where}{self.what}{made}"


class ArrayState:
    """Whether nothing private was written so far to an array and its views."""

    def __init__(self, is_public: bool) -> None:
        self.is_public = is_public

    def write(self, value: Any) -> None:
        """Note that something private is written."""
        self.is_public = False


class Sink(ArrayState):
    """The state of an array that has to stay public."""

    def __init__(self, name: str) -> None:
        super().__init__(True)
        self.name = name

    def write(self, value: Any) -> None:
        """Refuse it."""
        raise Leak(f"a private value is written to {self.name}", value)


def is_private(value: Any) -> bool:
    """Return whether a value is private; a solver's own array is once written to."""
    return type(value) is Private and not value._state.is_public


def _refuse(what: str, plain: Callable[..., Any]) -> Any:
    def method(self: Private, *args: Any, **keys: Any) -> Any:
        if is_private(self):
            raise Leak(what, self)
        return plain(self._raw, *args, **keys)

    return method


CONDITION = "a condition on a private value"
NUMBER = "a private value is made a plain number"
COUNT = "a private value is a count, or a place in a public array"
PLAIN = (
    "a private value goes into a public array, or into code that cannot keep it "
    "private: import numpy at the top of the file, and make arrays by it; use "
    "private_call for other code"
)
PRINTED = "a private value is printed or made a text"
LENGTH = "a private length (of a sample, of a selection) is made public"


class Private(NDArrayOperatorsMixin):
    """A value that depends on records, or an array of a solver that may come to.

    Parameters
    ----------
    raw : object
        The value.
    hidden : iterable of int
        Its private lengths.
    state : ArrayState, optional
        That of the array of which it is a view; by default it is private.
    source : object, optional
        A private value that it was computed from.
    is_noise : bool
        Whether it is noise that a mechanism hands out ahead, or computed from that.
    """

    __slots__ = ("_before", "_hidden", "_is_noise", "_origin", "_raw", "_state")
    _is_noise: bool
    _origin: tuple[types.CodeType, int] | None
    _before: tuple[types.CodeType, int] | None
    __array_priority__ = 1e6

    def __init__(
        self,
        raw: Any,
        hidden: Iterable[int] = NOTHING,
        state: ArrayState | None = None,
        source: Any = None,
        is_noise: bool = False,
    ) -> None:
        self._is_noise = is_noise or (type(source) is Private and source._is_noise)
        self._raw, self._hidden = raw, frozenset(hidden)
        self._state = ArrayState(False) if state is None else state
        frame = None if state is not None and state.is_public else _frame()
        self._origin = None if frame is None else (frame.f_code, frame.f_lasti)
        # Where it came from: the last line before this one.
        self._before = source._origin if type(source) is Private else None
        if frame and self._before and self._before[0] is frame.f_code:
            if _line(*self._before) == frame.f_lineno:
                self._before = source._before

    __bool__ = _refuse(CONDITION, bool)
    __float__ = _refuse(NUMBER, float)
    __complex__ = _refuse(NUMBER, complex)
    __int__ = _refuse(NUMBER, int)
    __index__ = _refuse(COUNT, operator.index)
    __array__ = _refuse(PLAIN, lambda x, dtype=None, copy=None: np.asarray(x, dtype))
    __hash__ = _refuse("a private value is a key", hash)
    __contains__ = _refuse(CONDITION, operator.contains)
    __str__ = _refuse(PRINTED, str)
    __repr__ = _refuse(PRINTED, repr)
    __format__ = _refuse(PRINTED, format)
    __bytes__ = _refuse(PRINTED, bytes)
    __reduce_ex__ = _refuse(
        "a private value is stored", lambda x, p: x.__reduce_ex__(p)
    )

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        # Kinds are public: isinstance(X, np.ndarray).
        return type(self._raw)

    def __deepcopy__(self, memo: Any) -> Private:
        raw = self._raw.copy() if hasattr(self._raw, "copy") else self._raw
        return Private(raw, self._hidden, ArrayState(self._state.is_public))

    def __copy__(self) -> Private:
        return self.__deepcopy__(None)

    def __round__(self, *args: Any) -> Any:
        return self._computed(round(self._raw, *args))

    def __call__(self, *args: Any, **keys: Any) -> Any:
        """Call a private function: what it returns is private."""
        return call(self._raw, *args, forced=True, **keys)

    def _computed(
        self, found: Any, hidden: Iterable[int] = NOTHING, also: bool = False
    ) -> Any:
        """Return what was computed of this value, or a view of it."""
        if also or is_private(self):
            return as_private(found, hidden, self)
        is_view = isinstance(found, np.ndarray) and np.may_share_memory(
            found, self._raw
        )
        return as_public(found, self._state if is_view else None)

    def __getattr__(self, name: str) -> Any:
        if name in FORBIDDEN or (name == "data" and isinstance(self._raw, np.ndarray)):
            if is_private(self):
                raise Leak(f"a private value is handed out by its `{name}`", self)
            return getattr(self._raw, name)
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._raw, name)
        if name in ("size", "nbytes", "nnz") and sparse.issparse(self._raw):
            return Private(found)  # how many entries are stored
        if name in SHAPES:
            if self._hidden and name not in ("ndim", "dtype", "itemsize", "format"):
                raise Leak(LENGTH, self)
            return found
        if name in ("indices", "indptr", "data", "row", "col"):
            return Private(found, _lengths(found))
        if callable(found):
            sized = name in SIZED_BY_VALUE
            return functools.partial(_call_method, self, found, sized)
        return self._computed(found, self._hidden)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Private.__slots__:
            object.__setattr__(self, name, value)
            return
        if is_private(value):
            self._state.write(value)
        setattr(self._raw, name, unwrap(value))

    def __len__(self) -> int:
        if self._hidden:
            raise Leak(LENGTH, self)
        return len(self._raw)

    def __iter__(self) -> Iterator[Any]:
        if is_private(self) and not isinstance(self._raw, np.ndarray | list | tuple):
            raise Leak("a loop over private values", self)
        return (self[k] for k in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        hidden, parts = set(self._hidden) | hidden_of(key), _parts(key)
        found = apply(operator.getitem, self._raw, unwrap(key), about=(self, key))
        ends = [(k.start, k.stop, k.step) for k in parts if isinstance(k, slice)]
        if any(any_private(each) for each in ends) or any(map(_is_mask, parts)):
            hidden |= _lengths(found)
        return self._computed(found, hidden, any_private(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        if any_private(key, value):
            self._state.write(value if any_private(value) else key)
        about = self, key, value
        apply(operator.setitem, self._raw, unwrap(key), unwrap(value), about=about)

    def __delitem__(self, key: Any) -> None:
        raise Leak("an entry of an array is deleted", self)

    def __array_function__(
        self, function: Any, kinds: Any, args: Any, keys: Any
    ) -> Any:
        return call(function, *args, **keys)

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **keys: Any
    ) -> Any:
        raws, private = unwrap(inputs), any_private(inputs, keys)
        out = tuple(one for one in out if isinstance(one, np.ndarray))  # no scalars
        for one in out if private else ():
            if type(one) is not Private:
                raise Leak(
                    "a private value is added to a public array in place", inputs[-1]
                )
            one._state.write(self)
        if method == "__call__" and any(map(sparse.issparse, raws)):
            done = apply(OPERATORS[ufunc.__name__], *raws, about=inputs)
            return as_private(done, hidden_of(inputs))
        made = {"out": unwrap(out)} if out else {}
        function = getattr(ufunc, method)
        done = apply(function, *raws, **unwrap(keys), **made, about=inputs)
        if out or method == "at":
            if method == "at" and any_private(inputs[1:]):
                _write(inputs[0], self)
            return out[0] if out else None
        source = next(filter(is_private, walk(inputs)), None)
        if not private:
            return as_public(done)
        return as_private(done, hidden_of(inputs), source)


def apply(function: Any, *args: Any, about: Any, **keys: Any) -> Any:
    """Return what a function makes of raw values; an error of it is a leak.

    Parameters
    ----------
    function : callable
    *args, **keys
        Raw values.
    about : object
        The values as they were, which says whether a private one is among them.
    """
    known = len(FOUND)
    try:
        return function(*args, **keys)
    except Exception as error:
        ours = isinstance(error, Leak | Ended) or len(FOUND) > known
        if ours or not any_private(about):
            raise
        private = next(filter(is_private, walk(about)), None)
        name = getattr(function, "__name__", str(function))
        words = f"{type(error).__name__}: {error}"
        raise Leak(f"{name} raises an error on private values: {words}", private) from (
            error
        )


def _write(target: Any, value: Any) -> None:
    """Note that something private was written to an array."""
    if type(target) is not Private:
        raise Leak("a private value is written to a public array", value)
    target._state.write(value)


def _call_method(
    self: Private, found: Any, sized: bool, *args: Any, **keys: Any
) -> Any:
    if found.__name__ == "tolist" and self._hidden:
        raise Leak(LENGTH, self)
    if is_private(self):
        how: Any = {"forced": True, "hides": self._hidden, "sized": sized}
        return call(found, *args, about=self, **how, **keys)
    if any_private(args, keys) and found.__name__ in ("fill", "put", "itemset"):
        self._state.write(next(filter(is_private, walk((args, keys))), None))
    done = call(found, *args, **keys)
    if isinstance(done, np.ndarray) and not any_private(args, keys):
        return self._computed(unwrap(done))
    return done


def _parts(key: Any) -> tuple[Any, ...]:
    # Not isinstance: a private value looks like what it stands for.
    return key if issubclass(type(key), tuple) else (key,)


def _is_mask(key: Any) -> bool:
    return is_private(key) and np.ndim(key._raw) > 0 and key._raw.dtype.kind == "b"


def _lengths(found: Any) -> set[int]:
    every = found if isinstance(found, tuple) else (found,)
    return {size for one in every for size in np.shape(one)} - PUBLIC_SIZES


class Guard:
    """A stand-in of an object of the package, whose answers are private or public."""

    secret = False
    """Whether an answer of whatever gets the object may depend on records."""

    def __init__(self, raw: Any) -> None:
        object.__setattr__(self, "_raw", raw)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(object.__getattribute__(self, "_raw"))

    def __deepcopy__(self, memo: Any) -> Guard:
        return self


class Public(Guard):
    """A public object (loss, penalty, constraint): its methods take private values."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("_raw", "__class__", "__deepcopy__"):
            return object.__getattribute__(self, name)
        found = getattr(object.__getattribute__(self, "_raw"), name)
        is_method = callable(found) and not isinstance(found, type)
        return functools.partial(call, found) if is_method else as_public(found)


def public_object(raw: Any) -> Any:
    """Return the guard of a public object; its type is derived from the object's."""
    kind = type(raw)
    if isinstance(raw, np.random.Generator):  # of C: it has no subclass of Python
        return Public(raw)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    made: Any = object.__new__(type(kind.__name__, (Public, kind), names))
    object.__setattr__(made, "_raw", raw)
    return made


STAND_INS: list[Callable[[Any], Any]] = []
"""Functions that return the guard of an object of the package, or the object."""


def stand_in(value: Any) -> Any:
    """Return the guard of an object of the package that may hold records."""
    for made in STAND_INS:
        value = made(value)
    return value


def _is_public_object(value: Any) -> bool:
    """Return whether a value is a public object of the package: a norm, a loss."""
    kind = type(value)
    kinds = (type, tuple, dict, list, Exception)
    home = getattr(kind, "__module__", "")
    ours = home.startswith(("dp_erm_bench.norms", "dp_erm_bench.losses"))
    ours = ours or home.startswith(("dp_erm_bench.pen", "dp_erm_bench.constr"))
    return ours and not isinstance(value, kinds) and not is_guard(value)


def walk(value: Any) -> Iterator[Any]:
    """Yield all leaves of nested containers."""
    kind = type(value)
    if issubclass(kind, tuple | list):
        for one in value:
            yield from walk(one)
    elif kind is dict:
        yield from walk([*value, *value.values()])
    elif kind in (set, frozenset):
        yield from walk(list(value))
    elif kind is slice:
        yield from (value.start, value.stop, value.step)
    else:
        yield value


def any_private(*values: Any) -> bool:
    """Return whether a private value, or an object that answers so, is among some."""
    return any(
        is_private(one) or getattr(type(one), "secret", False) for one in walk(values)
    )


def hidden_of(*values: Any) -> set[int]:
    """Return the private lengths of some values."""
    private = (one for one in walk(values) if type(one) is Private)
    return {size for one in private for size in one._hidden}


def is_guard(value: Any) -> bool:
    """Return whether a value is a guard of an object."""
    return issubclass(type(value), Guard)


def unwrap(value: Any) -> Any:
    """Return raw values; functions of the solver become such that take raw ones."""
    kind = type(value)
    if kind is Private or is_guard(value):
        return value._raw
    if kind is LiftedType:
        return value.plain
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*map(unwrap, value))
    if kind in (tuple, list, set, frozenset):
        return kind(map(unwrap, value))
    if kind is dict:
        return {key: unwrap(one) for key, one in value.items()}
    if kind is slice:
        return slice(*map(unwrap, (value.start, value.stop, value.step)))
    if kind is types.GeneratorType:
        return [unwrap(one) for one in value]
    if callable(value) and _is_lifted(value):
        return lambda *args, **keys: unwrap(value(*as_private(args), **keys))
    if kind in (types.FunctionType, types.MethodType):
        return getattr(value, "raw", value)
    return value


def _is_lifted(function: Any) -> bool:
    """Return whether a function, or what is called like one, is the solver's."""
    if type(function) is functools.partial:
        return _is_lifted(function.func)
    if type(function) not in (types.FunctionType, types.MethodType):
        function = type(function).__call__
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename in LIFTED


def as_private(value: Any, hidden: Iterable[int] = NOTHING, source: Any = None) -> Any:
    """Return private values, computed from a source; containers stay such."""
    kind = type(value)
    value = stand_in(value)
    if value is None or is_guard(value) or kind in (type, np.dtype, types.EllipsisType):
        return value
    if kind is Private:
        return value if is_private(value) else Private(value._raw, value._hidden)
    if isinstance(value, tuple):
        made = [as_private(one, hidden, source) for one in value]
        return kind(*made) if hasattr(value, "_fields") else tuple(made)
    if kind is list:
        return [as_private(one, hidden, source) for one in value]
    if kind is dict:
        return {key: as_private(one, hidden, source) for key, one in value.items()}
    private = {*hidden} & {*np.shape(value)} if hasattr(value, "shape") else NOTHING
    return Private(value, private, source=source)


def as_public(value: Any, state: ArrayState | None = None) -> Any:
    """Return public arrays as such to which private values may be written."""
    value = stand_in(value)
    kind = type(value)
    if kind is np.ndarray:
        return Private(value, NOTHING, ArrayState(True) if state is None else state)
    if isinstance(value, np.random.Generator) or _is_public_object(value):
        return public_object(value)
    return kind(map(as_public, value)) if kind in (tuple, list) else value


def call(
    function: Any,
    *args: Any,
    forced: bool = False,
    hides: Iterable[int] = NOTHING,
    sized: bool = False,
    about: Any = None,
    **keys: Any,
) -> Any:
    """Call what knows no private values; its results are private if an argument is.

    Parameters
    ----------
    function : callable
    *args, **keys
        Its arguments.
    forced : bool
        Whether the results are private whatever the arguments are.
    hides : iterable of int
        Private lengths of what it is a method of.
    sized : bool
        Whether the lengths of its results are private.
    about : object
        What it is a method of.
    """
    name = getattr(function, "__name__", str(function))
    if name in ("shape", "ndim", "size") and args and type(args[0]) is Private:
        return getattr(args[0], name)
    if name in KINDS:
        return function(*unwrap(args), **unwrap(keys))
    if not forced and not any_private(args, keys):
        return as_public(function(*unwrap(args), **unwrap(keys)))
    private = next(filter(is_private, walk((about, args, keys))), None)
    if name in WRITING:
        raise Leak(f"{name} writes or prints a private value", private)
    if risk := getattr(function, "risk", ""):
        words = f"use private_call({name}, ..., instead=...)"
        raise Leak(
            f"the kernel {name} {risk}, and gets private values: {words}", private
        )
    home = getattr(function, "__module__", "") or ""
    if name in RAISING and "linalg" in home or home.startswith("numpy.testing"):
        words = f"private_call({name}, ..., instead=...)"
        raise Leak(f"{name} raises an error for some records: use {words}", private)
    return _call_raw(function, args, keys, hides, sized, (about, private))


def _call_raw(
    function: Any, args: Any, keys: Any, hides: Any, sized: bool, about: Any
) -> Any:
    """Call with raw values; what it wrote to public arrays is private then."""
    name = getattr(function, "__name__", str(function))
    given = [*walk((args, list(keys.values())))]
    plain = [
        one for one in given if isinstance(one, np.ndarray) and not is_private(one)
    ]
    before = [unwrap(one).tobytes() for one in plain]
    hidden = {*hides} | hidden_of(given)
    raws = unwrap(args), unwrap(keys)
    done = apply(function, *raws[0], **raws[1], about=[about, args, keys])
    for one, was in zip(plain, before, strict=True):
        if unwrap(one).tobytes() != was:
            _write(one, about[1])
    if sized or (name in SIZED_BY_VALUE and not (name == "where" and len(args) > 1)):
        hidden |= _lengths(done)
    return as_private(done, hidden, about[1])


def lift(function: Any) -> Any:
    """Return a function that takes private values.

    What it makes of public objects alone is public if it reads nothing private.
    """

    @functools.wraps(function, updated=())
    def lifted(*args: Any, **keys: Any) -> Any:
        values = [*walk((args, list(keys.values())))]
        guards = any(map(is_guard, values))
        if not guards or any_private(values) or hasattr(function, "py_func"):
            return call(function, *args, **keys)
        known = len(FOUND)
        try:
            done = function(*args, **keys)
            # A problem that was made of a guarded one is made anew of the raw one.
            if is_guard(done) or stand_in(done) is done:
                return as_public(done)
        except UsageError as refused:
            if not isinstance(refused, Leak):
                raise
        except Exception:  # it is written for plain values
            pass
        del FOUND[known:]
        return call(function, *args, forced=True, **keys)

    lifted.raw = function  # type: ignore[attr-defined]
    return lifted


class LiftedModule:
    """A module whose functions take private values: numpy, scipy, math."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return lifted_value(getattr(self._module, name))


class LiftedType(type):
    """The kind of float, int and sparse matrices: private values stay private."""

    plain: Any

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.plain)

    def __call__(cls, *args: Any, **keys: Any) -> Any:
        """Return a value of the kind."""
        if any_private(args, keys):
            return call(cls.plain, *args, **keys)
        return cls.plain(*unwrap(args), **unwrap(keys))


def lifted_value(found: Any) -> Any:
    """Return what stands for a value of a lifted module."""
    if isinstance(found, types.ModuleType):
        return LiftedModule(found)
    if isinstance(found, type) and found.__module__.startswith("scipy.sparse"):
        return LiftedType(found.__name__, (), {"plain": found})
    plain = callable(found) and not isinstance(found, type | np.ufunc)
    return lift(found) if plain else found


class Float(metaclass=LiftedType):
    """Python's float."""

    plain = float


class Int(metaclass=LiftedType):
    """Python's int."""

    plain = int


def _lift_extreme(plain: Any, ufunc: Any) -> Any:
    def extreme(*args: Any, **keys: Any) -> Any:
        values = list(args[0]) if len(args) == 1 else args
        if keys or not any(map(is_private, values)):
            return plain(*args, **keys)
        return functools.reduce(ufunc, values)

    return extreme


def _length(value: Any) -> Any:
    """Return a length, which stays private if it is."""
    hidden = is_private(value) and value._hidden
    return Private(len(value._raw)) if hidden else len(value)


BUILTINS = {
    "float": Float,
    "int": Int,
    "min": _lift_extreme(min, np.minimum),
    "max": _lift_extreme(max, np.maximum),
    "len": _length,
}
