"""Which modules a nursery may learn from a run: installed ones that are the same whenever they are imported.

A library that makes a random stream while it is imported (a generator without a seed) is not: imported once for
all runs, it would give all of them the same numbers. So neither it is learned, nor a library that uses it. The streams
that every party's process seeds anew, of `random`, `numpy.random` and sympy (which torch imports), do no harm.

Only values of modules are looked at. A stream inside another object, or a number that was drawn on import and kept,
is not seen.
"""

from __future__ import annotations

import os
import random
import sys
import sysconfig
from collections.abc import Collection, Mapping
from types import FunctionType, ModuleType
from typing import Any

_INSTALLED = tuple(
    {os.path.join(sysconfig.get_path(kind), "") for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_SEEDED_ANEW = (
    ("random", "_inst"),
    ("numpy.random.mtrand", "_rand"),
    ("sympy.core.random", "rng"),
    ("sympy.core.random", "_assumptions_rng"),
)


def ours(module: str) -> bool:
    """Whether a module is of this package, whose code does not change between two runs of one owner."""
    return _package(module) == "colonnade"


def learnable(known: Collection[str]) -> list[str]:
    """The modules of this process that a nursery may import for all runs, but for those that it knows."""
    new = {
        name: module
        for name, module in [*sys.modules.items()]
        if name not in known and (ours(name) or _is_installed(module))
    }
    drawing = _drawing(new)
    return [name for name in new if _package(name) not in drawing]


def seed_anew() -> None:
    """Else all processes that were forked from this one would draw the same from these streams."""
    for stream in _seeded_anew():
        stream.seed()


def _seeded_anew() -> list[Any]:
    found = (getattr(sys.modules.get(module), name, None) for module, name in _SEEDED_ANEW)
    return [stream for stream in found if stream is not None]


def holds_a_stream(module: Any) -> bool:
    """Whether a random stream is among a module's values that processes do not seed anew."""
    kinds: tuple[type, ...] = (random.Random,)
    if numpys := sys.modules.get("numpy.random"):  # else nobody has made one of its own
        kinds += (numpys.Generator, numpys.RandomState, numpys.BitGenerator)
    streams = [value for value in _values(module) if issubclass(type(value), kinds)]
    harmless = _seeded_anew() if streams else []
    return not all(isinstance(one, random.SystemRandom) or any(one is other for other in harmless) for one in streams)


def _drawing(modules: Mapping[str, Any]) -> set[str]:
    """The packages that hold a stream in one of these modules, and those that use such a package.

    Packages as a whole: whoever imports a part of one imports its beginning, which may import every other part.
    """
    found = {_package(name) for name, module in modules.items() if holds_a_stream(module)}
    used = {name: _packages_used(module) for name, module in modules.items()} if found else {}
    while more := {_package(name) for name, packages in used.items() if not found.isdisjoint(packages)} - found:
        found |= more
    return found


def _packages_used(module: Any) -> set[str]:
    """Those of modules that it has imported, and of functions, classes and objects out of them."""
    return {_package(name) for name in map(_origin, _values(module)) if isinstance(name, str)}


def _origin(value: Any) -> Any:
    """The module that it is, or is from; other objects may do anything when they are asked, so their types are."""
    if type(value) is ModuleType:
        return value.__name__
    return (value if issubclass(type(value), FunctionType | type) else type(value)).__module__


def _values(module: Any) -> list[Any]:
    return [*getattr(module, "__dict__", {}).values()]


def _package(module: str) -> str:
    return module.partition(".")[0]


def _is_installed(module: Any) -> bool:
    return str(getattr(module, "__file__", None)).startswith(_INSTALLED)
