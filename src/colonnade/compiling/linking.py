"""What puts object code together to a shared library: the system's linker, or a C compiler that knows one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

_SAFE = ("-z", "now", "-z", "relro", "-z", "noexecstack")
_LINKERS = {
    "ld": ("-shared", *_SAFE),
    "ld.lld": ("-shared", *_SAFE),
    "cc": ("-shared", "-nostdlib", f"-Wl,{','.join(_SAFE)}"),
}


def linker() -> list[str] | None:
    """The beginning of the command that links on this machine; None where there is none."""
    for name, options in _LINKERS.items():
        if found := shutil.which(name):
            return [found, *options]
    return None


def link(command: list[str], objects: Iterable[Path], out: Path) -> None:
    """Make a shared library of files with object code."""
    subprocess.run([*command, "-o", str(out), *map(str, objects)], check=True)
