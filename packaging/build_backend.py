"""How a wheel is made: by hatchling, with the kernels as machine code for every x86-64 that Linux runs on.

They are compiled by numba while the wheel is built, from a list of what they are called with, and are loaded without
it. An editable installation compiles them as they are needed, and so does one on another system, or one that was built
where no linker is: these depend on numba.
"""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling import build
from hatchling.build import *  # noqa: F403  (the hooks that a build front end calls)
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent.parent
FOLDER = "colonnade/compiling/libraries"  # as shipped.py has it
NUMBA = "numba>=0.61"
# The code takes no function from a version of glibc, so the oldest that wheels are still built for will do.
TAG = "py3-none-manylinux_2_17_x86_64"


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """What building a wheel takes: hatchling's needs, and numba where kernels can be compiled."""
    return [*build.get_requires_for_build_wheel(config_settings), *([NUMBA, "numpy>=2.0"] if can_compile() else [])]


def can_compile() -> bool:
    """Whether this is a system that kernels are shipped for, with what it takes to build them."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.implementation.name != "cpython":
        return False
    return _source("linking").linker() is not None


def compile_kernels(folder: Path) -> list[Path]:
    """One library for each level of processors, by processes side by side."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    made = {level: folder / f"{level}.so" for level in _source("shipped").LEVELS}
    command = [sys.executable, "-m", "colonnade.compiling.building"]
    running = [subprocess.Popen([*command, level, str(out)], env=environment) for level, out in made.items()]
    ended = [one.wait() for one in running]  # all of them, also after one that failed
    if any(ended):
        raise RuntimeError("the kernels could not be compiled; what their building wrote says why")
    return list(made.values())


def _source(name: str) -> Any:
    """A module of the package that is being built; before numba is asked for, there is not even numpy."""
    sys.path.insert(0, str(ROOT / "src"))
    try:
        return importlib.import_module(f"colonnade.compiling.{name}")
    finally:
        sys.path.remove(str(ROOT / "src"))


class ShippedKernels(BuildHookInterface[Any]):
    """Puts the libraries into a wheel, and says for which systems it is."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, if this is a wheel to be kept; one without kernels depends on numba."""
        if version == "editable" or not can_compile():
            build_data["dependencies"].append(NUMBA)
            return
        self._folder = tempfile.TemporaryDirectory()
        for path in compile_kernels(Path(self._folder.name)):
            build_data["force_include"][str(path)] = f"{FOLDER}/{path.name}"
        build_data["tag"], build_data["pure_python"] = TAG, False

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Clear away what was compiled."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()
