"""How the kernels are compiled.

In the last bits of what it computes, machine code depends on whether the kernels that
it calls were compiled beside it or loaded. So every kernel is compiled in a child
process that loads those that it calls, and every process loads what children compiled:
numbers do not depend on who compiled what, or in which order.
"""

import contextlib
import inspect
import os
import warnings
from collections.abc import Callable
from typing import Any

import numba
from numba.core.compiler_lock import global_compiler_lock

from dp_erm_bench.kernels.machine_code import TOKEN, alone, machine_code_of

FAST = {"reassoc", "contract", "nsz", "arcp"}


def kernel(function: Any) -> Any:
    """Compile a kernel whose sums may be reordered.

    numba's default check for a division by zero stops the vectorisation of a
    loop, hence ``error_model='numpy'``. Not the whole of ``fastmath``: it would
    let the compiler assume that there are no NaN and no infinities.
    """
    return _compiled(function, FAST)


def exact(function: Any) -> Any:
    """Compile a kernel in which the order of the operations is kept."""
    return _compiled(function, {"contract"})


def _compiled(function: Any, fastmath: set[str]) -> Any:
    file = inspect.getfile(function)
    with machine_code_of(file) as folder:
        compiler: Any = numba.njit(
            error_model="numpy", fastmath=fastmath, cache=bool(folder)
        )
        made = compiler(function)
    if folder:
        _name_apart(made)
        _compile_in_children(made, folder)
    return made


def _compile_in_children(made: Any, folder: str) -> None:
    """Have a kernel's machine code loaded, and compiled before that in a child."""
    compiled = made.compile

    def compile_once(signature: Any) -> Any:
        # Held here, numba's own lock is free in the child, whatever threads there are.
        with global_compiler_lock, alone(folder):
            if not _is_kept(made, signature):
                _in_child(lambda: compiled(signature))
            return compiled(signature)

    made.compile = compile_once


def _is_kept(made: Any, signature: Any) -> bool:
    """Return whether the machine code lies on the disk; true where nobody can tell."""
    try:
        key = made._cache._index_key(signature, made.targetctx.codegen())
        return made._cache._cache_file.load(key) is not None
    except (AttributeError, OSError):
        return True


def _in_child(work: Callable[[], object]) -> None:
    """Do some work in a copy of this process and wait for its end."""
    if not hasattr(os, "fork"):
        return
    with warnings.catch_warnings():
        # The child compiles and ends: it waits for no thread that it does not have.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _name_apart(made: Any) -> None:
    """Let no two processes write the same file of machine code.

    numba numbers the files of a function's signatures: of two processes that compile
    two signatures at once, both would write number 1, and the index give the code of
    one for the other. The names are no part of numba's interface.
    """
    with contextlib.suppress(AttributeError):
        file = made._cache._cache_file
        pattern = file._data_name_pattern
        file._data_name_pattern = pattern.replace("{number", f"{TOKEN}-{{number")
