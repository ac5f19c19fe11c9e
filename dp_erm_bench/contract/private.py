"""Private values: numbers that depend on records and may leave through mechanisms only.

Everything computed from a private value is private. This holds for operators, for numpy
and scipy, and for compiled kernels. An operation that would publish a private value
raises a `Leak`, which names the line of code. Such an operation uses the value as a
condition, a plain number, a count, a key or a string, or writes it to a file or a
public array.

An array that a solver makes is public until a private value is written to it or to a
view of it. An array and its views share one `ArrayState`. Types and dtypes are public.
Lengths are public, too, unless a sample or a selection decides them.
"""

from __future__ import annotations

import functools
import linecache
import operator
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from scipy import sparse

from dp_erm_bench.errors import UsageError

SIZES = {"shape", "size", "nbytes", "strides"}
PUBLIC = {*SIZES, "ndim", "dtype", "itemsize", "format"}
"""Attributes of a value that are public; sizes are private if a length is private."""
STORED = {"nnz", "indices", "indptr", "data", "row", "col"}
"""Attributes of a sparse matrix that show which entries it stores, and how many.

The stored entries depend on records.
"""
FORBIDDEN = {"tofile", "tobytes", "dump", "dumps", "ctypes", "setflags", "base"}
"""Attributes of an array that expose its entries without the checks of this module."""
WRITING = {
    *("save", "savez", "savez_compressed", "savetxt", "save_npz", "savemat"),
    *("array2string", "array_repr", "array_str", "format_float_positional"),
}
"""Functions that write or print their arguments."""
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
"""Functions for which the length of the result depends on values."""
KINDS = {
    *("issparse", "isspmatrix", "isscalar", "iscomplexobj", "isrealobj"),
    *("result_type", "can_cast", "issubdtype"),
}
"""Functions that depend only on the type of a value, which is public."""
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
"""Operators that replace ufuncs for sparse matrices, which do not support ufuncs."""
OBJECTS = tuple(f"dp_erm_bench.{x}" for x in ("norms", "losses", "pen", "constr"))
"""Prefixes of the modules whose objects are public."""
WATCHED: set[str] = set()
"""Files of the running solver, whose lines a `Leak` names."""
LIFTED: set[str] = set()
"""Files whose functions run on private values."""
FOUND: list[Leak] = []
"""The leaks so far; they are kept, since a solver may catch their exceptions."""
PUBLIC_SIZES: set[int] = {1}
"""Lengths that reveal nothing; n, p and the number of trials are added for a run."""
NOTHING: frozenset[int] = frozenset()
NESTED = (tuple, list, set, frozenset)


class CodeLine(NamedTuple):
    """A line of a solver's code, its expression, and the lines that called it."""

    file: str
    line: int
    text: str
    callers: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return a string with the line of code, its expression and its callers."""
        calls = "".join(f", called in line {line}" for line in self.callers)
        return f"line {self.line}, `{self.text}`{calls}"


def _solver_frame() -> types.FrameType | None:
    """Return the innermost frame of the solver's files."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename not in WATCHED:
        frame = frame.f_back
    return frame


def place_of_frame(frame: types.FrameType | None) -> CodeLine:
    """Return the line and expression that a frame of the solver is executing."""
    if frame is None:
        return CodeLine("", 0, "")
    file, outer = frame.f_code.co_filename, traceback.walk_stack(frame.f_back)
    callers = [line for one, line in outer if one.f_code.co_filename == file]
    named = _expression_of(frame.f_code, frame.f_lasti, frame.f_lineno)
    return named._replace(callers=tuple(callers[:3]))


def _expression_of(code: types.CodeType, instruction: int, line: int) -> CodeLine:
    """Return the source expression that a bytecode instruction belongs to."""
    _, end, first, last = [*code.co_positions()][instruction // 2]
    linecache.checkcache(code.co_filename)
    text = linecache.getline(code.co_filename, line)
    if line == end and first is not None:
        text = text.encode()[first:last].decode(errors="replace")
    return CodeLine(code.co_filename, line, " ".join(text.split()))


class Ended(Exception):
    """Raised to end a run whose loop condition is forced, after enough rounds."""


class Leak(UsageError):
    """A private value would become public.

    The message says where, and where the value became private.
    """

    def __init__(self, what: str, value: Any = None) -> None:
        place = place_of_frame(_solver_frame())
        origins = (value._origin, value._before) if type(value) is Private else ()
        made = [_expression_of(*origin) for origin in origins if origin]
        first = next((one for one in made if one[:2] != place[:2]), None)
        where = f"{place}: " if place.line else ""
        since = f"; the value is private since {first}" if first else ""
        super().__init__(f"{where}{what}{since}")
        FOUND.append(self)


@dataclass
class ArrayState:
    """Whether an array and its views are still free of private values.

    Attributes
    ----------
    is_public : bool
        Whether no private value has been written to the array or its views.
    published : str
        Name of the array if it has to stay public, otherwise empty.
    """

    is_public: bool
    published: str = ""

    def write(self, value: Any) -> None:
        """Record that a private value is written; raise `Leak` if it must not be."""
        if self.published:
            raise Leak(f"a private value is written to {self.published}", value)
        self.is_public = False


def is_private(value: Any) -> bool:
    """Return whether a value is private.

    A solver's own array becomes private once a private value is written to it.
    """
    return type(value) is Private and not value._state.is_public


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
REFUSED: dict[str, tuple[str, Callable[..., Any]]] = {
    "__bool__": (CONDITION, bool),
    "__contains__": (CONDITION, operator.contains),
    "__float__": (NUMBER, float),
    "__complex__": (NUMBER, complex),
    "__int__": (NUMBER, int),
    "__index__": (COUNT, operator.index),
    "__array__": (PLAIN, lambda x, dtype=None, copy=None: np.asarray(x, dtype)),
    "__hash__": ("a private value is a key", hash),
    "__str__": (PRINTED, str),
    "__repr__": (PRINTED, repr),
    "__format__": (PRINTED, format),
    "__bytes__": (PRINTED, bytes),
    "__reduce_ex__": ("a private value is stored", lambda x, p: x.__reduce_ex__(p)),
}
"""Methods that would publish a private value.

Each name maps to the message of the `Leak`, and to the function for public values.
"""


def _refusing_method(what: str, plain: Callable[..., Any]) -> Any:
    def method(self: Private, *args: Any, **keys: Any) -> Any:
        if is_private(self):
            raise Leak(what, self)
        return plain(self._raw, *args, **keys)

    return method


class StandIn:
    """An object that reports the type of its raw object; types are public."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(object.__getattribute__(self, "_raw"))


class Private(StandIn, NDArrayOperatorsMixin):
    """A value that depends on records, or a solver's array that may do so later.

    Parameters
    ----------
    raw : object
        The value.
    hidden : iterable of int
        Lengths in the shape of the value that are private.
    state : ArrayState, optional
        The state of the array of which the value is a view; by default the value is
        private.
    source : object, optional
        A private value from which the value was computed.
    is_noise : bool
        Whether the value is noise that a mechanism hands out before compiled steps. A
        value computed from such noise is noise, too.
    """

    __slots__ = ("_before", "_hidden", "_is_noise", "_origin", "_raw", "_state")
    _is_noise: bool
    _origin: tuple[types.CodeType, int, int] | None
    _before: tuple[types.CodeType, int, int] | None
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
        frame = None if state is not None and state.is_public else _solver_frame()
        self._origin = frame and (frame.f_code, frame.f_lasti, frame.f_lineno)
        # The line that made the source, if it is another line than this one.
        self._before = source._origin if type(source) is Private else None
        if self._origin and self._before and self._origin[::2] == self._before[::2]:
            self._before = source._before

    def __copy__(self, memo: Any = None) -> Private:
        raw = self._raw.copy() if hasattr(self._raw, "copy") else self._raw
        return Private(raw, self._hidden, ArrayState(self._state.is_public))

    __deepcopy__ = __copy__

    def __round__(self, *args: Any) -> Any:
        return self._make_computed(round(self._raw, *args))

    def __call__(self, *args: Any, **keys: Any) -> Any:
        """Call a private function; its result is private."""
        return call_with_raw(self._raw, *args, about=self, **keys)

    def _make_computed(
        self, found: Any, hidden: Iterable[int] = NOTHING, also: bool = False
    ) -> Any:
        """Return a computed result, or a view of this value, in wrapped form."""
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
        if name in STORED or (
            name in ("size", "nbytes") and sparse.issparse(self._raw)
        ):
            return Private(found, _private_lengths(found))
        if name in SIZES and self._hidden:
            raise Leak(LENGTH, self)
        if name in PUBLIC:
            return found
        if callable(found):
            return functools.partial(_call_method, self, found)
        return self._make_computed(found, self._hidden)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Private.__slots__:
            object.__setattr__(self, name, value)
            return
        if is_private(value):
            self._state.write(value)
        setattr(self._raw, name, unwrap_values(value))

    def __len__(self) -> int:
        if self._hidden:
            raise Leak(LENGTH, self)
        return len(self._raw)

    def __iter__(self) -> Iterator[Any]:
        if is_private(self) and not isinstance(self._raw, np.ndarray | list | tuple):
            raise Leak("a loop over private values", self)
        return (self[k] for k in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        # Not isinstance: a private value reports the type of its raw value.
        parts = key if issubclass(type(key), tuple) else (key,)
        found = apply_to_raw(
            operator.getitem, self._raw, unwrap_values(key), about=(self, key)
        )
        hidden = hidden_of(self, key)
        if any(map(_is_selection, parts)):
            hidden |= _private_lengths(found)
        return self._make_computed(found, hidden, any_private(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        if any_private(key, value):
            self._state.write(value if any_private(value) else key)
        about = self, key, value
        apply_to_raw(
            operator.setitem,
            self._raw,
            unwrap_values(key),
            unwrap_values(value),
            about=about,
        )

    def __delitem__(self, key: Any) -> None:
        raise Leak("an entry of an array is deleted", self)

    def __array_function__(
        self, function: Any, kinds: Any, args: Any, keys: Any
    ) -> Any:
        return call_with_raw(function, *args, **keys)

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **keys: Any
    ) -> Any:
        raws, private = unwrap_values(inputs), any_private(inputs, keys)
        out = tuple(one for one in out if isinstance(one, np.ndarray))  # no scalars
        for one in out if private else ():
            if type(one) is not Private:
                raise Leak(
                    "a private value is added to a public array in place", inputs[-1]
                )
            one._state.write(self)
        if method == "__call__" and any(map(sparse.issparse, raws)):
            done = apply_to_raw(OPERATORS[ufunc.__name__], *raws, about=inputs)
            return as_private(done, hidden_of(inputs))
        made = {"out": unwrap_values(out)} if out else {}
        function = getattr(ufunc, method)
        done = apply_to_raw(
            function, *raws, **unwrap_values(keys), **made, about=inputs
        )
        if out or method == "at":
            if method == "at" and any_private(inputs[1:]):
                _write_private(inputs[0], self)
            return out[0] if out else None
        if not private:
            return as_public(done)
        return as_private(done, hidden_of(inputs), first_private(inputs))


for _name, _refusal in REFUSED.items():
    setattr(Private, _name, _refusing_method(*_refusal))


def apply_to_raw(function: Any, *args: Any, about: Any, **keys: Any) -> Any:
    """Return the result of a function on raw values.

    If the function raises an error and an argument is private, `Leak` is raised, since
    the error would depend on records.

    Parameters
    ----------
    function : callable
        The function to call.
    *args, **keys
        Raw values.
    about : object
        The values before unwrapping, which show whether one is private.
    """
    known = len(FOUND)
    try:
        return function(*args, **keys)
    except Exception as error:
        ours = isinstance(error, Leak | Ended) or len(FOUND) > known
        if ours or not any_private(about):
            raise
        words = f"raises an error on private values: {type(error).__name__}: {error}"
        raise Leak(f"{name_of(function)} {words}", first_private(about)) from error


def name_of(function: Any) -> str:
    """Return the name of a function or of another callable."""
    return str(getattr(function, "__name__", function))


def _write_private(target: Any, value: Any) -> None:
    """Record that a private value was written to an array."""
    if type(target) is not Private:
        raise Leak("a private value is written to a public array", value)
    target._state.write(value)


def _call_method(self: Private, found: Any, *args: Any, **keys: Any) -> Any:
    private = any_private(args, keys)
    if found.__name__ == "tolist" and self._hidden:
        raise Leak(LENGTH, self)
    if private and found.__name__ in ("fill", "put", "itemset"):
        self._state.write(first_private(args, keys))
    done = call_with_raw(found, *args, about=self, **keys)
    if private or is_private(self) or not isinstance(done, np.ndarray):
        return done
    return self._make_computed(unwrap_values(done))


def _is_selection(key: Any) -> bool:
    """Return whether an index, or a part of it, is a private slice or mask.

    The number of entries that it selects is then private.
    """
    if type(key) is slice:
        return any_private(key)
    return is_private(key) and np.ndim(key._raw) > 0 and key._raw.dtype.kind == "b"


def _private_lengths(found: Any) -> set[int]:
    every = found if isinstance(found, tuple) else (found,)
    return {size for one in every for size in np.shape(one)} - PUBLIC_SIZES


class Guard(StandIn):
    """A stand-in for an object of the package; its answers are private or public."""

    secret = False
    """Whether a result computed from this object may depend on records."""

    def __init__(self, raw: Any) -> None:
        object.__setattr__(self, "_raw", raw)

    def __deepcopy__(self, memo: Any) -> Guard:
        return self


class Public(Guard):
    """A public object (loss, penalty, constraint) whose methods take private values."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("_raw", "__class__", "__deepcopy__"):
            return object.__getattribute__(self, name)
        found = getattr(object.__getattribute__(self, "_raw"), name)
        is_method = callable(found) and not isinstance(found, type)
        return (
            functools.partial(call_with_raw, found) if is_method else as_public(found)
        )


def public_object(raw: Any) -> Any:
    """Return the guard (stand-in) of a public object.

    The guard is an instance of a subclass of the object's class.
    """
    kind = type(raw)
    if isinstance(raw, np.random.Generator):  # a class in C, without subclasses here
        return Public(raw)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    made: Any = object.__new__(type(kind.__name__, (Public, kind), names))
    object.__setattr__(made, "_raw", raw)
    return made


@functools.singledispatch
def guard_by_kind(value: Any) -> Any:
    """Return the guard (stand-in) of an object that may contain records.

    Other objects are returned themselves. The guard for each type is registered in the
    module that defines the guard.
    """
    return value


def guard(value: Any) -> Any:
    """Return the guard (stand-in) of a value, or the value itself if it has none.

    Guards report the type of their raw objects, so the real type is looked up.
    """
    return guard_by_kind.dispatch(type(value))(value)


def walk_leaves(value: Any) -> Iterator[Any]:
    """Yield all leaves of nested containers, keys of dictionaries included."""
    kind = type(value)
    if kind is dict:
        value = [*value, *value.values()]
    elif kind is slice:
        value = [value.start, value.stop, value.step]
    if issubclass(type(value), NESTED):
        for one in value:
            yield from walk_leaves(one)
    else:
        yield value


def first_private(*values: Any) -> Any:
    """Return the first private value in nested containers, or None."""
    return next(filter(is_private, walk_leaves(values)), None)


def any_private(*values: Any) -> bool:
    """Return whether any value is private, or is an object with private answers."""
    return any(
        is_private(one) or getattr(type(one), "secret", False)
        for one in walk_leaves(values)
    )


def hidden_of(*values: Any) -> set[int]:
    """Return the lengths of some values that are private."""
    private = (one for one in walk_leaves(values) if type(one) is Private)
    return {size for one in private for size in one._hidden}


def is_guard(value: Any) -> bool:
    """Return whether a value is a guard: a stand-in that replaces the real object."""
    return issubclass(type(value), Guard)


def over(function: Callable[[Any], Any], value: Any) -> Any:
    """Return a container of the same type with a function applied to its elements."""
    if type(value) is dict:
        return {key: function(one) for key, one in value.items()}
    if type(value) is slice:
        return slice(*map(function, (value.start, value.stop, value.step)))
    made = map(function, value)
    return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)


def unwrap_values(value: Any) -> Any:
    """Return raw values without their guards (stand-ins), also in containers.

    A function of the solver becomes one that takes and returns raw values.
    """
    kind = type(value)
    if kind is Private or is_guard(value):
        return value._raw
    if kind is LiftedType:
        return value.plain
    if kind in NESTED or kind in (dict, slice) or _is_named_tuple(value):
        return over(unwrap_values, value)
    if callable(value) and _is_lifted(value):
        return lambda *args, **keys: unwrap_values(value(*as_private(args), **keys))
    if kind in (types.FunctionType, types.MethodType):
        return getattr(value, "raw", value)
    return value


def _is_lifted(function: Any) -> bool:
    """Return whether a function or another callable is defined by the solver."""
    if type(function) is functools.partial:
        return _is_lifted(function.func)
    if type(function) not in (types.FunctionType, types.MethodType):
        function = type(function).__call__
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename in LIFTED


def _is_named_tuple(value: Any) -> bool:
    return issubclass(type(value), tuple) and hasattr(value, "_fields")


def as_private(value: Any, hidden: Iterable[int] = NOTHING, source: Any = None) -> Any:
    """Return a value, or the elements of a container, as private.

    Parameters
    ----------
    value : object
        The value; a tuple, list or dict keeps its type. Guards, None and types are
        returned as they are.
    hidden : iterable of int
        Lengths that are private.
    source : object, optional
        A private value from which it was computed.
    """
    kind, value = type(value), guard(value)
    if value is None or is_guard(value) or kind in (type, np.dtype, types.EllipsisType):
        return value
    if kind is Private:
        return value if is_private(value) else Private(value._raw, value._hidden)
    if kind in (tuple, list, dict) or _is_named_tuple(value):
        return over(lambda one: as_private(one, hidden, source), value)
    private = {*hidden} & {*np.shape(value)} if hasattr(value, "shape") else NOTHING
    return Private(value, private, source=source)


def as_public(value: Any, state: ArrayState | None = None) -> Any:
    """Return public arrays in a wrapper that private values may be written to.

    Public objects get a guard, and other values are returned as they are.
    """
    value = guard(value)
    kind = type(value)
    if kind is np.ndarray:
        return Private(value, NOTHING, state or ArrayState(True))
    if isinstance(value, np.random.Generator) or _is_public_object(kind):
        return public_object(value)
    return over(as_public, value) if kind in (tuple, list) else value


def _is_public_object(kind: type) -> bool:
    """Return whether a class describes public objects, such as norms or losses."""
    others = (type, tuple, dict, list, Exception, Guard)
    return kind.__module__.startswith(OBJECTS) and not issubclass(kind, others)


def call_with_raw(
    function: Any, *args: Any, forced: bool = False, about: Any = None, **keys: Any
) -> Any:
    """Return the result of a function that does not support private values.

    The function gets raw values. If an argument was private, the result is private,
    and arrays to which the function wrote become private. `Leak` is raised if the
    function would publish a private value.

    Parameters
    ----------
    function : callable
        The function to call.
    *args, **keys
        Arguments of the function, which may be private.
    forced : bool
        Whether the result is private regardless of the arguments.
    about : object
        The object of which the function is a method.
    """
    name = name_of(function)
    if name in ("shape", "ndim", "size") and args and type(args[0]) is Private:
        return getattr(args[0], name)
    # A generator can be read only once, and its values may be private.
    args = tuple([*x] if type(x) is types.GeneratorType else x for x in args)
    given, raws = (
        [*walk_leaves((about, args, keys))],
        (unwrap_values(args), unwrap_values(keys)),
    )
    if name in KINDS:
        return function(*raws[0], **raws[1])
    if not forced and not any_private(given):
        return as_public(function(*raws[0], **raws[1]))
    private = first_private(given)
    if name in WRITING:
        raise Leak(f"{name} writes or prints a private value", private)
    instead = f"use private_call({name}, ..., instead=...)"
    if risk := getattr(function, "risk", ""):
        what = f"the kernel {name} {risk}, and gets private values: {instead}"
        raise Leak(what, private)
    home = getattr(function, "__module__", "") or ""
    if name in RAISING and "linalg" in home or home.startswith("numpy.testing"):
        raise Leak(f"{name} raises an error for some records: {instead}", private)
    plain = [x for x in given if isinstance(x, np.ndarray) and not is_private(x)]
    before = [unwrap_values(one).tobytes() for one in plain]
    done = apply_to_raw(function, *raws[0], **raws[1], about=given)
    for one, was in zip(plain, before, strict=True):
        if unwrap_values(one).tobytes() != was:
            _write_private(one, private)
    hidden = hidden_of(given)
    if name in SIZED_BY_VALUE and not (name == "where" and len(args) > 1):
        hidden |= _private_lengths(done)
    return as_private(done, hidden, private)


@functools.lru_cache(maxsize=1000)
def lift_function(function: Any) -> Any:
    """Return a version of a function that takes private values.

    If all arguments are public objects and the call reads nothing private, its result
    is public.
    """

    @functools.wraps(function, updated=())
    def take_private(*args: Any, **keys: Any) -> Any:
        values = [*walk_leaves((args, list(keys.values())))]
        guards = any(map(is_guard, values))
        if not guards or any_private(values) or hasattr(function, "py_func"):
            return call_with_raw(function, *args, **keys)
        known = len(FOUND)
        try:
            done = function(*args, **keys)
            # A problem made from a guarded one is made once more, from the raw one.
            if guard(done) is done:
                return as_public(done)
        except Exception as error:  # code for plain values may fail on guards
            if isinstance(error, UsageError) and not isinstance(error, Leak):
                raise
        del FOUND[known:]
        return call_with_raw(function, *args, forced=True, **keys)

    take_private.raw = function  # type: ignore[attr-defined]
    return take_private


class LiftedModule:
    """A module whose functions take private values: numpy, scipy, math."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return lifted_value(getattr(self._module, name))


class LiftedType(type):
    """A replacement for float, int or a sparse type that keeps values private."""

    plain: Any

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.plain)

    def __call__(cls, *args: Any, **keys: Any) -> Any:
        """Return an instance of the plain type; it is private if an argument is."""
        return call_with_raw(cls.plain, *args, **keys)


def lifted_type(plain: type) -> LiftedType:
    """Return the type that replaces a plain type."""
    return LiftedType(plain.__name__, (), {"plain": plain})


def lifted_value(found: Any) -> Any:
    """Return the replacement for a member of a lifted module."""
    if isinstance(found, types.ModuleType):
        return LiftedModule(found)
    if isinstance(found, type):
        is_sparse = found.__module__.startswith("scipy.sparse")
        return lifted_type(found) if is_sparse else found
    return (
        lift_function(found)
        if callable(found) and type(found) is not np.ufunc
        else found
    )


def _lift_extreme(plain: Any, ufunc: Any) -> Any:
    def extreme(*args: Any, **keys: Any) -> Any:
        values = list(args[0]) if len(args) == 1 else args
        if keys or not any(map(is_private, values)):
            return plain(*args, **keys)
        return functools.reduce(ufunc, values)

    return extreme


def _private_length(value: Any) -> Any:
    """Return the length of a value, as a private value if the length is hidden."""
    hidden = is_private(value) and value._hidden
    return Private(len(value._raw)) if hidden else len(value)


BUILTINS = {
    "float": lifted_type(float),
    "int": lifted_type(int),
    "min": _lift_extreme(min, np.minimum),
    "max": _lift_extreme(max, np.maximum),
    "len": _private_length,
}
