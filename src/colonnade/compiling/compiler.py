"""From a kernel's Python to object code: numba translates it, and a few lines of LLVM's code make it callable.

Only imported where a kernel has to be compiled. The object code knows nothing of numba: it takes memory by Python's own
buffer protocol, holds no GIL while it works, and calls nothing but CPython and C's mathematical functions. So a kernel
must not allocate, nor raise anything but the ZeroDivisionError of a division; one that does stays numba's.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterable
from functools import cache
from types import FunctionType
from typing import Any

import numba
import numpy as np
from llvmlite import binding
from numba import types
from numba.core import config
from numba.core.errors import NumbaError, NumbaNotImplementedError
from numba.core.registry import cpu_target
from numba.np.numpy_support import from_dtype

from colonnade.compiling.compiled import Compiled, Inside
from colonnade.compiling.kinds import Kinds
from colonnade.compiling.wrapper import Wrapper

_OUTSIDE = {"expm1", "sqrt", "memset", "memcpy", "memmove"}  # functions of C that code may call


def dispatcher(kernel: Compiled, *, kept: bool = True) -> Callable[..., Any]:
    """The kernel as numba has it, with numba's own memory of what it compiled, where it may and can have one."""
    made: Callable[..., Any]
    try:
        made = _jitted(kernel, cache=kept)
    except RuntimeError:  # there is no folder that it could write to
        made = _jitted(kernel, cache=False)
    return made


def object_code(kernel: Compiled, kinds: Kinds, symbol: str, *, shared: bool = False) -> bytes | None:
    """Machine code of a built-in function by this name, for these kinds of arguments; None where it can't be.

    shared: for a library, which a linker puts together and which may lie anywhere.
    """
    given = tuple(map(_type_of, kinds))
    if None in given or _raises(kernel.function):  # a division by zero is all that the code around it can raise
        return None
    jitted = _jitted(kernel, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
    try:
        jitted.compile(given)
    except NumbaError:  # it allocates, or these types make no sense to it: numba will say which
        return None
    found = jitted.overloads[given]
    module = binding.parse_assembly(found.library.get_llvm_str())
    native = module.get_function(found.fndesc.llvm_func_name)
    text = Wrapper(symbol, native, given, found.signature.return_type).text()
    if text is None or any(one.is_declaration and not _known(one.name) for one in module.functions):
        return None
    for one in (*module.functions, *module.global_variables):
        if not one.is_declaration:
            one.linkage = "internal"
    native.linkage = "external"  # until it is linked
    module.link_in(binding.parse_assembly(text))
    module.get_function(found.fndesc.llvm_func_name).linkage = "internal"
    module.verify()
    machine = _linkable() if shared else found.library.codegen._tm
    code: bytes = machine.emit_object(module)
    return code


def places(names: Iterable[str]) -> bytes:
    """Object code with nothing but room for so many addresses, under these names."""
    module = binding.parse_assembly("\n".join(f"@{name} = global ptr null" for name in names))
    code: bytes = _linkable().emit_object(module)
    return code


def _linkable() -> Any:
    """numba's own target machine, but for where its code may lie."""
    ours = cpu_target.target_context.codegen()
    speed = config.OPT  # type: ignore[attr-defined]
    return binding.Target.from_default_triple().create_target_machine(
        cpu=ours._get_host_cpu_name(), features=ours._tm_features, opt=speed, reloc="pic", codemodel="small"
    )


def _type_of(kind: str) -> Any:
    """numba's type of what is listed like this; None where there is none that the code around could take."""
    name, _, dimensions = kind.partition("[")
    try:
        dtype = from_dtype(np.dtype(name))
    except (TypeError, NumbaNotImplementedError):
        return None
    if not dimensions:
        return dtype if len(name) == 2 else None
    return types.Array(dtype, dimensions.count(":") - dimensions.count("::"), "C" if "::" in dimensions else "A")


def _known(name: str) -> bool:
    return name.startswith("llvm.") or name in _OUTSIDE


def _raises(function: Any) -> bool:
    """Whether a kernel, or one that it calls, raises an error by itself; what arithmetic raises does not count."""
    if any(one.opname == "RAISE_VARARGS" for one in dis.get_instructions(function)):
        return True
    called = (function.__globals__.get(name) for name in function.__code__.co_names)
    return any(_raises(one.function) for one in called if isinstance(one, Compiled) and one.function is not function)


@cache
def _jitted(kernel: Compiled, **options: Any) -> Any:
    """With other kernels and pieces of LLVM's code that it calls as numba knows them."""
    known = dict(kernel.function.__globals__)
    for name in kernel.function.__code__.co_names:
        if isinstance(known.get(name), Compiled):
            known[name] = _jitted(known[name], **options)
        elif isinstance(known.get(name), Inside):
            known[name] = known[name].intrinsic()
    function = FunctionType(kernel.function.__code__, known, kernel.name)
    function.__module__ = kernel.__module__
    return numba.njit(nogil=True, **options)(function)
