"""From machine code in memory to a function of Python, and the objects of Python's that such code compares with."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
_FASTCALL = 0x80  # CPython's METH_FASTCALL
# Compiled code finds the address of each of these in a place of this name. The names are our own, as numba gives some
# of CPython's another meaning; and what numpy brings has no address that a linker could know.
KNOWN_AS = "colonnade_known_"
KNOWN = {
    **{one.__name__: one for one in (int, float, TypeError, ValueError, OverflowError, BufferError)},
    **{"True": True, "False": False, "numpy_True": np.True_, "numpy_False": np.False_},
    **{"numpy_int64": np.int64, "numpy_float64": np.float64},
}


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def function_at(address: int, name: str, following: Callable[..., Any]) -> Callable[..., Any]:
    """A built-in function whose code is there. following: is called with arguments that are not of its types."""
    method = _for_ever(_Method(name.encode(), address, _FASTCALL, None))
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.POINTER(_Method), ctypes.py_object, ctypes.py_object)
    made: Callable[..., Any] = make(method, following, None)
    return made


def function_of(code: bytes, symbol: str, following: Callable[..., Any]) -> Callable[..., Any]:
    """A built-in function out of object code, loaded by LLVM.

    Code in which there is no function of this name (a file that was renamed) is passed over.
    """
    from llvmlite.binding import ObjectFileRef

    _engine().add_object_file(ObjectFileRef.from_data(code))
    address = _engine().get_function_address(symbol)
    return function_at(address, symbol, following) if address else following


@cache
def _engine() -> Any:
    """LLVM's loader, which finds CPython's functions by itself, and is told where the objects are."""
    from llvmlite import binding

    for name, known in KNOWN.items():
        binding.add_symbol(f"{KNOWN_AS}{name}", ctypes.addressof(_for_ever(ctypes.c_void_p(id(known)))))
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(jit=True)
    return _for_ever(binding.create_mcjit_compiler(binding.parse_assembly(""), machine))


def _for_ever(thing: T) -> T:
    """Let nothing take this away before the process ends.

    When Python ends, it clears modules in an order of its own, and its garbage collector still looks into built-in
    functions whose definitions would be gone by then.
    """
    count = ctypes.pythonapi.Py_IncRef
    count.argtypes, count.restype = (ctypes.py_object,), None
    count(thing)
    return thing
