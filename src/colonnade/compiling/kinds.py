"""The kinds of arguments that kernels are called with: those for which code is shipped.

They stand in kinds.txt: a kernel, then what each argument is. `f8[:,::1]` is a table of float64 without gaps, `f8[:]`
an array whose numbers may lie apart, `i8` an integer, `b1` a bool; `f4|f8[::1]` is either of two, and a line with such
places stands for all that can be chosen. Whether an array may be written is no matter of its kind: code that writes to
one asks for it.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

_LIST = Path(__file__).with_name("kinds.txt")
_ONE = re.compile(r"([a-z]\d(?:\|[a-z]\d)*)(\[[:,1]+\])?")
_NUMBERS = {bool: "b1", np.bool_: "b1", int: "i8", np.int64: "i8", float: "f8", np.float64: "f8"}

Kinds = tuple[str, ...]


@cache
def declared() -> dict[str, tuple[Kinds, ...]]:
    """By kernel, as file and name, all kinds of arguments that are listed, in their order."""
    found: dict[str, tuple[Kinds, ...]] = {}
    for line in _LIST.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            kernel, *arguments = line.split()
            found[kernel] = (*found.get(kernel, ()), *product(*map(_choices, arguments)))
    return found


def _choices(argument: str) -> list[str]:
    if (match := _ONE.fullmatch(argument)) is None:
        raise ValueError(f"{_LIST.name}: {argument!r} is no kind of argument; one looks like f8[:,::1] or f4|f8[::1]")
    return [f"{one}{match[2] or ''}" for one in match[1].split("|")]


def kinds_of(arguments: tuple[Any, ...]) -> Kinds:
    """What these arguments are, as the list has it; for what it can't have, the name of its type."""
    return tuple(_kind_of(one) for one in arguments)


def _kind_of(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return _NUMBERS.get(type(value), type(value).__name__)
    dimensions = [":"] * value.ndim
    if dimensions and value.flags.c_contiguous:
        dimensions[-1] = "::1"
    return f"{value.dtype.kind}{value.dtype.itemsize}[{','.join(dimensions)}]"
