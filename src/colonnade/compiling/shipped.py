"""Kernels that were compiled as the package was built, and lie in it as shared libraries, one for each kind of x86-64.

Which one is loaded depends on what the processor can do; the results are the same to the bit. The code takes memory by
the buffer protocol and calls nothing but functions of CPython's stable interface, so one library serves every version
of Python from 3.11 on. What a library holds is found by name, and the name has a digest of the sources that the code
was made from: code of other sources is not found. `building` makes the libraries.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from colonnade.compiling.callables import KNOWN, KNOWN_AS

FOLDER = Path(__file__).parent / "libraries"
_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "ssse3", "sse4_1", "sse4_2"})
_V3 = _V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
# The kinds of processor that there is code for, the best first, as LLVM calls them; what they need, in Linux's words.
LEVELS = {"x86-64-v4": _V4, "x86-64-v3": _V3, "x86-64-v2": _V2}


def level() -> str | None:
    """The best kind of code that this processor can run, or the one that COLONNADE_KERNELS names; None without any."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.implementation.name != "cpython":
        return None
    if object.__basicsize__ != 16:  # a Python without the GIL, or one that counts references: objects begin otherwise
        return None
    able = [name for name, needs in LEVELS.items() if needs <= _features()]
    wish = os.environ.get("COLONNADE_KERNELS")
    return wish if wish in able else next(iter(able), None)


@cache
def _features() -> frozenset[str]:
    """What the processor can do and Linux lets programs use; the first processor speaks for all of them."""
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("flags"):
                return frozenset(line.partition(":")[2].split())
    return frozenset()


def addresses(symbol: str) -> list[int]:
    """Where the code of a kernel begins: for each declared kind of arguments once, in their order."""
    library, found = _library(), list[int]()
    while library is not None:
        try:
            code = library[f"{symbol}_{len(found)}"]
        except AttributeError:
            break
        found.append(ctypes.cast(code, ctypes.c_void_p).value or 0)
    return found


@cache
def _library() -> ctypes.CDLL | None:
    """The library for this processor, with the objects that its code compares with; None where there is none."""
    if (name := level()) is None:
        return None
    try:
        library = ctypes.CDLL(str(FOLDER / f"{name}.so"))
    except OSError:  # a checkout has none, and some file systems let nothing be run from them
        return None
    for known, thing in KNOWN.items():
        ctypes.c_void_p.in_dll(library, f"{KNOWN_AS}{known}").value = id(thing)
    return library
