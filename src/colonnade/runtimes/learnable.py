"""Which modules a nursery may learn from a run: installed ones that are the same whenever they are imported.

A library that makes a random stream while it is imported (`RNG = np.random.default_rng()`) is not: imported once for
all runs, it would give all of them the same numbers. So neither it is learned, nor a library that uses it. The two
streams that every process seeds anew, `random`'s and `numpy.random`'s own, do no harm.

Only values of modules are looked at. A stream inside another object, or a number that was drawn on import and kept,
is not seen.
"""

from __future__ import annotations

import os
import random
import sys
import sysconfig
from collections.abc import Collection, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

_INSTALLED = tuple(
    {os.path.join(sysconfig.get_path(kind), "") for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
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


def holds_a_stream(module: Any) -> bool:
    """Whether a random stream is among a module's values that a process does not seed by itself."""
    kinds: tuple[type, ...] = (random.Random,)
    seeded: list[Any] = [random._inst]
    if numpys := sys.modules.get("numpy.random"):  # else nobody has made one
        kinds += (numpys.Generator, numpys.RandomState, numpys.BitGenerator)
        seeded.append(numpys.mtrand._rand)
    streams = [value for value in _values(module) if issubclass(type(value), kinds)]
    return not all(isinstance(one, random.SystemRandom) or any(one is other for other in seeded) for one in streams)


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
    names = (value.__name__ if type(value) is ModuleType else _origin(value) for value in _values(module))
    return {_package(name) for name in names if isinstance(name, str)}


def _origin(value: Any) -> Any:
    with suppress(Exception):  # an object may do anything when it is asked
        return value.__module__


def _values(module: Any) -> list[Any]:
    return [*getattr(module, "__dict__", {}).values()]


def _package(module: str) -> str:
    return module.partition(".")[0]


def _is_installed(module: Any) -> bool:
    return str(getattr(module, "__file__", None)).startswith(_INSTALLED)
