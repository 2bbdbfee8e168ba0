"""All listed kinds of all kernels into one shared library, for processors of one level: `shipped` loads it.

    python -m colonnade.compiling.building x86-64-v3 x86-64-v3.so

A process builds for one level, as numba is told of it before it is imported. It needs numba and a linker (`ld`, of
binutils, or any C compiler). The building of a wheel starts one for each level.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from colonnade.compiling.callables import KNOWN, KNOWN_AS
from colonnade.compiling.kinds import declared
from colonnade.compiling.linking import link, linker
from colonnade.compiling.shipped import LEVELS


def build(level: str, out: Path, kernels: Iterable[str] | None = None) -> int:
    """Compile the kernels with these names, or all that are listed, and link them; says how many functions."""
    os.environ["NUMBA_CPU_NAME"], os.environ["NUMBA_CPU_FEATURES"] = level, ""
    from colonnade.compiling.compiled import shipped_as
    from colonnade.compiling.compiler import object_code, places

    if (command := linker()) is None:
        sys.exit("kernels are built with a linker, and there is none; install binutils, or a C compiler")
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        rooms = Path(folder) / "places.o"
        rooms.write_bytes(places(f"{KNOWN_AS}{name}" for name in KNOWN))
        for name in declared() if kernels is None else kernels:
            module, _, kernel_name = name.partition(".")
            kernel = getattr(import_module(f"colonnade.kernels.{module}"), kernel_name)
            for number, kinds in enumerate(declared()[name]):
                code = object_code(kernel, kinds, f"{shipped_as(kernel)}_{number}", shared=True)
                if code is None:
                    sys.exit(
                        f"{name} can't be shipped for `{' '.join(kinds)}`: it allocates or raises, or numba refuses"
                    )
                (Path(folder) / f"{count:04}.o").write_bytes(code)
                count += 1
        link(command, sorted(Path(folder).glob("*.o")), out)
    return count


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in LEVELS:
        sys.exit(f"usage: python -m colonnade.compiling.building LEVEL FILE, where LEVEL is one of {', '.join(LEVELS)}")
    print(f"{build(sys.argv[1], Path(sys.argv[2]))} functions for {sys.argv[1]}")
