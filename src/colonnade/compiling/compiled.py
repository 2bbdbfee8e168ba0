"""Kernels as machine code that starts without numba, whose import takes longer than most runs.

A package that was built for this machine brings its code (`shipped`). Elsewhere, and for other kinds of arguments,
numba compiles on a kernel's first call ever with arguments of some kinds (`compiler`), and the object code is kept in a
folder of the user's own. Later processes load it by LLVM alone, in milliseconds. What is kept belongs to one processor,
one version of everything that took part, and one text of the sources; a file that anybody else could have written is
not loaded. The code looks at its arguments itself, and hands those that are not of its kinds on to the next one; after
the last comes numba, or a sentence that says what is missing.

Where nothing can be kept (no home, not Linux, `NUMBA_...` variables that change what is compiled), numba's own
dispatcher is called instead. Results are the same to the bit. COLONNADE_KERNELS=numba leaves everything to numba, to
compare; COLONNADE_KERNELS=declared refuses what `kinds` does not list, as if numba were not there: the tests run so.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, update_wrapper
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from colonnade.compiling.callables import function_at, function_of
from colonnade.compiling.kinds import Kinds, declared, kinds_of
from colonnade.compiling.shipped import LEVELS, addresses
from colonnade.errors import InputError, OptionError
from colonnade.private_files import make_folder, trouble

_LOCK = threading.RLock()
_HARMLESS = {"NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS"}  # variables for numba that change no code
_OURS = "colonnade.kernels."  # the package's kernels, whose kinds of arguments are listed


class Compiled:
    """A decorator: the function is compiled, and then called like any other, with arrays and numbers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self.function, self.name = function, function.__name__
        self._call: Callable[..., Any] = self._first
        self._tried: set[Kinds] = set()  # kinds that were compiled for; what comes again nevertheless is numba's

    def __call__(self, *arguments: Any) -> Any:  # noqa: D102
        return self._call(*arguments)

    @property
    def full_name(self) -> str:
        """The file's name and the kernel's, as they are listed."""
        return f"{self.__module__.rpartition('.')[2]}.{self.name}"

    def _first(self, *arguments: Any) -> Any:
        """Load all that there is of this kernel, for whatever kinds."""
        with _LOCK:
            if self._call == self._first:
                self._call = self._found()
        return self._call(*arguments)

    def _found(self) -> Callable[..., Any]:
        if _wish() == "numba":
            return self._dispatcher()
        following: Callable[..., Any] = self._other_kinds
        if shipped := addresses(shipped_as(self)):
            for code in reversed(shipped):
                following = function_at(code, self.name, following)
        elif home := self._home():
            listed = {_file_name(self.name, kinds) for kinds in self._listed()} if self._is_strict() else None
            for path in sorted(home.glob(f"{self.name}-*.o")):
                if (listed is None or path.name in listed) and (kept := _read(path)):
                    following = function_of(kept, _symbol(path), following)
        elif not self._is_strict() and _numba_is_here():
            following = self._dispatcher()
        return following

    def _other_kinds(self, *arguments: Any) -> Any:
        """Compile for the kinds of these arguments, and keep it; where that is impossible, numba does it all."""
        kinds = kinds_of(arguments)
        if not _numba_is_here() or (self._is_strict() and kinds not in self._listed()):
            raise InputError(self._missing(kinds))
        from colonnade.compiling.compiler import object_code

        with _LOCK:
            home = self._home()
            path = home / _file_name(self.name, kinds) if home and kinds not in self._tried else None
            kept = _read(path) if path else None
            code = kept or (object_code(self, kinds, _symbol(path)) if path else None)
            self._tried.add(kinds)
            if path and code:
                if not kept:
                    _write(path, code)
                self._call = call = function_of(code, _symbol(path), self._call)
            else:
                call = self._dispatcher()
        return call(*arguments)

    def _dispatcher(self) -> Callable[..., Any]:
        from colonnade.compiling.compiler import dispatcher

        return dispatcher(self, kept=_folder_of(*_sources(self.function))[1])

    def _home(self) -> Path | None:
        return _folder_of(*_sources(self.function))[0]

    def _is_strict(self) -> bool:
        return _wish() == "declared" and self.__module__.startswith(_OURS)

    def _listed(self) -> tuple[Kinds, ...]:
        return declared().get(self.full_name, ())

    def _missing(self, kinds: Kinds) -> str:
        line = f"{self.full_name} {' '.join(kinds)}"
        if self._is_strict():
            return f"kinds.txt does not list `{line}`: add this line, and code for it is shipped"
        return (
            f"this installation has no machine code for `{line}`, and numba, which would compile it, is not installed: "
            "pip install 'colonnade[compile]'"
        )


class Inside:
    """A piece of LLVM's code for use inside kernels. `make` returns numba's intrinsic, and is called when needed."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.function = make
        self.intrinsic = cache(make)

    def __call__(self, *arguments: Any) -> Any:  # noqa: D102
        raise TypeError("this exists inside compiled code only; call a kernel that uses it")


def _wish() -> str:
    """What COLONNADE_KERNELS asks for; a level of processors is `shipped`'s to follow, as far as this one goes."""
    wish, known = os.environ.get("COLONNADE_KERNELS", ""), ("numba", "declared", *LEVELS)
    if wish and wish not in known:
        raise OptionError(f"COLONNADE_KERNELS must be one of {', '.join(known)}, got {wish!r}")
    return wish


@cache
def _numba_is_here() -> bool:
    return find_spec("numba") is not None


# -- what is shipped ---------------------------------------------------------------------------------------------------

_MAKERS = ("callables.py", "compiled.py", "compiler.py", "wrapper.py")  # what code depends on beside its sources


def shipped_as(kernel: Compiled) -> str:
    """How the functions of a kernel are called in a library, but for their number: with a digest of the sources."""
    source, *others = _sources(kernel.function)
    return f"colonnade_{Path(source).stem}_{_digest_of(source, *others)}_{kernel.name}"


@cache
def _digest_of(*sources: str) -> str:
    makers = (Path(__file__).with_name(name) for name in _MAKERS)
    try:
        return _digest(*(path.read_bytes() for path in (*map(Path, sources), *makers)))[:16]
    except OSError:  # no sources: nothing can be said to be made from them
        return "unknown"


# -- what is kept ------------------------------------------------------------------------------------------------------


def _sources(function: Any) -> list[str]:
    """A kernel's own file, and after it those of the kernels and pieces that this file takes from others."""
    found, waiting = [function.__code__.co_filename], [function]
    while waiting:
        for one in waiting.pop().__globals__.values():
            if isinstance(one, Compiled | Inside) and one.function.__code__.co_filename not in found:
                found.append(one.function.__code__.co_filename)
                waiting.append(one.function)
    return [found[0], *sorted(found[1:])]


@cache
def _folder_of(source: str, *others: str) -> tuple[Path | None, bool]:
    """Where the code of this file's kernels is kept, None where it can't be; and whether numba may keep its own.

    It may not where others could put something: numba looks in the same cache, and loads whatever it finds there.
    """
    wishes = [name for name in os.environ if name.startswith("NUMBA_") and name not in _HARMLESS]
    if _wish() == "numba" or wishes or sys.platform != "linux":
        return None, True
    if sys.implementation.name != "cpython" or (found := find_spec("numba")) is None or found.origin is None:
        return None, True
    wish = os.environ.get("XDG_CACHE_HOME", "")
    numbas = not wish or Path(wish).is_absolute()  # a relative one is to be ignored, and numba would not
    try:
        import llvmlite
        from llvmlite import binding

        above = Path(wish) if wish and numbas else Path.home() / ".cache"
        made_by = [
            *map(Path, (source, *others)),
            *(Path(__file__).with_name(name) for name in _MAKERS),
        ]
        parts = [sys.version, llvmlite.__version__, binding.get_host_cpu_name()]
        parts.append(binding.get_host_cpu_features().flatten())
        texts = [path.read_bytes() for path in (*made_by, Path(found.origin).with_name("_version.py"))]
        key = _digest("\n".join(parts).encode(), *texts)[:16]
        folder = above / "colonnade" / "kernels" / f"{Path(source).stem}-{key}"
        if not folder.is_absolute():
            return None, False
        make_folder(folder)
        if folder.is_symlink() or not _is_ours_alone(folder):
            return None, False
        return folder.resolve(), numbas
    except (OSError, RuntimeError):  # no home, no room, no sources: numba does without them
        return None, numbas


def _is_ours_alone(folder: Path) -> bool:
    """Whether nobody else could put something into a folder, or another folder in its place."""
    if trouble(folder, "the folder") or folder.stat().st_uid != os.geteuid():
        return False
    return not any(_is_open_to_others(above.stat()) for above in {*folder.parents, *folder.resolve().parents})


def _is_open_to_others(folder: os.stat_result) -> bool:
    """Whether others than root can rename what is in a folder; a group of the user's own number is the user alone."""
    private = folder.st_gid == os.getegid() == os.geteuid() != 0
    others = stat.S_IWOTH if private else stat.S_IWOTH | stat.S_IWGRP
    loose = bool(folder.st_mode & others) and not folder.st_mode & stat.S_ISVTX
    return loose or folder.st_uid not in (0, os.geteuid())


def _read(path: Path) -> bytes | None:
    """The code in a file that nobody else could have written; None if it is not whole."""
    with suppress(OSError), path.open("rb") as file:
        if trouble(path, "the file", file.fileno()) is None and os.fstat(file.fileno()).st_uid == os.geteuid():
            content = file.read()
            return content[64:] if _digest(content[64:]).encode() == content[:64] else None
    return None


def _write(path: Path, code: bytes) -> None:
    """Whole or not at all, whoever else may be writing the same; a disk that is full is no reason to stop."""
    with suppress(OSError):
        handle, partial = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(code).encode() + code)
            Path(partial).replace(path)
        except OSError:
            Path(partial).unlink()


def _file_name(name: str, kinds: Kinds) -> str:
    return f"{name}-{_digest(' '.join(kinds).encode())[:16]}.o"


def _symbol(path: Path) -> str:
    """What the function is called inside its file."""
    return f"colonnade_{path.parent.name}_{path.stem}".replace("-", "_")


def _digest(*parts: bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(hashlib.sha256(part).digest())
    return found.hexdigest()
