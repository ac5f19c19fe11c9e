"""Use losses inside kernels: each class of losses is a compiled numba type.

A loss's `value` and `derivative` are compiled from their definitions in the class, for
one record, and inlined where a kernel calls them. For numba each class of losses is a
separate type. Its name is made of the name of the class and the digest of its
definition; its fields are the loss's parameters. No function is passed to a kernel,
because the machine code of kernels that take functions is not cached.
"""

import contextlib
import dataclasses
import functools
import secrets
from typing import Any

import numba
import numpy as np
from numba import extending
from numba.core import cgutils, types
from numba.core.imputils import impl_ret_untracked, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr

from dp_erm_bench.code_identity import digest_of, is_ours
from dp_erm_bench.kernels import elementary, elementwise
from dp_erm_bench.kernels.compiled import FAST, Array, kernel

_classes: dict[str, Any] = {}
"""Classes of losses by the names of their types."""


class LossType(types.Type):
    """The numba type of a loss: a structure of the loss's parameters.

    The type contains only names, so that machine code of another process can be read.
    If the class of the loss belongs to the package (`kept`), code compiled for it is
    kept for other runs.
    """

    def __init__(self, name: str, fields: tuple[str, ...], kept: bool = True) -> None:
        self.fields, self.kept = fields, kept
        super().__init__(name=name)


@functools.cache
def loss_type(cls: Any) -> LossType:
    """Return the numba type of a class of losses, named by the class and its digest."""
    try:
        word = digest_of(cls)[:32]
    except LookupError:  # of a notebook: a word valid in this process only
        word = secrets.token_hex(16)
    name = f"{cls.__module__}.{cls.__qualname__} {word}"
    _classes[name] = cls
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    return LossType(name, tuple(field.name for field in fields), is_ours(cls))


@extending.register_model(LossType)
class _LossModel(extending.models.StructModel):
    def __init__(self, manager: Any, loss: LossType) -> None:
        super().__init__(manager, loss, [(f, types.float64) for f in loss.fields])


@infer_getattr
class _Fields(AttributeTemplate):
    key = LossType

    def generic_resolve(self, loss: Any, name: str) -> Any:  # type: ignore[override]
        return types.float64 if name in loss.fields else None


@lower_getattr_generic(LossType)
def _field(context: Any, builder: Any, loss: LossType, value: Any, name: str) -> Any:
    fields = cgutils.create_struct_proxy(loss)(context, builder, value=value)
    return impl_ret_untracked(context, builder, types.float64, getattr(fields, name))


@extending.unbox(LossType)
def _numbers(loss: LossType, instance: Any, c: Any) -> extending.NativeValue:
    fields = cgutils.create_struct_proxy(loss)(c.context, c.builder)
    for name in loss.fields:
        number = c.pyapi.object_getattr_string(instance, name)
        setattr(fields, name, c.pyapi.float_as_double(number))
        c.pyapi.decref(number)
    failed = cgutils.is_not_null(c.builder, c.pyapi.err_occurred())
    return extending.NativeValue(fields._getvalue(), is_error=failed)


_OPTIONS = {"error_model": "numpy", "fastmath": FAST}
# Inlined before it is compiled. Compiled alone, its scalar code would be turned into
# vectors of two, which keep the loop over records from becoming vector code.
# Not strict: numba would compare annotations, which a lambda cannot have.
_INLINED: Any = {"jit_options": _OPTIONS, "inline": "always", "strict": False}


@extending.overload_method(LossType, "value", **_INLINED)
def _value(loss: Any, y: Any, z: Any) -> Any:
    return _classes[loss.name].value


@extending.overload_method(LossType, "derivative", **_INLINED)
def _derivative(loss: Any, y: Any, z: Any) -> Any:
    return _classes[loss.name].derivative


@extending.overload(elementwise.between, strict=False)
def _between(low: Any, x: Any, high: Any) -> Any:
    return lambda low, x, high: elementary.between(low, x, high)


@extending.overload(elementwise.exp, strict=False)
def _exp(x: Any) -> Any:
    return lambda x: elementary.exp(x)


@extending.overload(elementwise.log, strict=False)
def _log(x: Any) -> Any:
    return lambda x: elementary.log(x)


@extending.overload(elementwise.softplus, **_INLINED)
def _softplus(x: Any) -> Any:
    exp, log = elementary.exp, elementary.log
    return lambda x: max(x, 0.0) + log(1.0 + exp(-abs(x)))


@extending.overload(elementwise.sigmoid, **_INLINED)
def _sigmoid(x: Any) -> Any:
    exp = elementary.exp
    return lambda x: 1.0 / (1.0 + exp(-x))


@kernel
def residuals(loss: Any, y: Array, z: Array, out: Array) -> None:
    """Write the derivative phi'(z, y) of n records into ``out``.

    An entry is NaN where z or the derivative is not finite.

    Parameters
    ----------
    loss : Loss
    y : array of shape (n,)
        Labels.
    z : array of shape (n,)
        Margins.
    out : array of shape (n,)
    """
    for i in range(y.size):
        r = loss.derivative(y[i], z[i])
        # A product with 0 is 0 or NaN, so no comparison slows the vector code down.
        out[i] = r + 0.0 * (z[i] + r)


@kernel
def without_nan(r: Array) -> None:
    """Replace the NaN entries of r, shape (n,), by 0, in place."""
    for i in range(r.size):
        r[i] = r[i] if r[i] == r[i] else 0.0


@kernel
def loss_sum(loss: Any, y: Array, z: Array) -> float:
    """Return the sum of phi(z, y) over n records.

    Parameters
    ----------
    loss : Loss
    y : array of shape (n,)
        Labels.
    z : array of shape (n,)
        Margins.
    """
    total = 0.0
    for i in range(y.size):
        total += loss.value(y[i], z[i])
    return total


def reason_not_compiled(loss: Any) -> str | None:
    """Return the reason why a method of a loss cannot be compiled, or None."""
    one = np.ones(1)
    # Machine code that was kept is loaded here.
    with contextlib.suppress(Exception):
        residuals(loss, one, one, np.empty(1))
        loss_sum(loss, one, one)
        return None
    arguments = (loss._numba_type_, types.float64, types.float64)
    for method in ("value", "derivative"):
        try:
            numba.njit(getattr(type(loss), method)).compile(arguments)
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines()]
            what = [line for line in lines if line and not line.startswith("Failed in")]
            return f"its {method} cannot be compiled, {(what or [repr(error)])[0]}"
    return "it cannot be compiled"
