"""Kernels as machine code that starts without numba, whose import takes longer than most runs.

On a kernel's first call ever with arguments of some types, numba compiles it (`compiler`), and the object code is kept
in a folder of the user's own. Later processes load it by LLVM alone, in milliseconds. What is kept belongs to one
processor, one version of everything that took part, and one text of the sources; a file that anybody else could have
written is not loaded. The code looks at its arguments itself, and hands those that are not of its types on to the next
one; after the last comes numba.

Where nothing can be kept (no home, not Linux, `NUMBA_...` variables that change what is compiled), and with
COLONNADE_KERNELS=numba, numba's own dispatcher is called instead. Results are the same to the bit.
"""

from __future__ import annotations

import ctypes
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
from typing import Any, TypeVar

import numpy as np

from colonnade.private_files import make_folder, trouble

T = TypeVar("T")
_LOCK = threading.RLock()
_HARMLESS = {"NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS"}  # variables for numba that change no code
_FASTCALL = 0x80  # CPython's METH_FASTCALL
# Objects that compiled code compares with. The names are our own, as numba gives some of CPython's another meaning.
KNOWN_AS = "colonnade_known_"
KNOWN = {
    **{one.__name__: one for one in (int, float, TypeError, ValueError, OverflowError, BufferError)},
    **{"True": True, "False": False, "numpy_True": np.True_, "numpy_False": np.False_},
    **{"numpy_int64": np.int64, "numpy_float64": np.float64},
}


class Compiled:
    """A decorator: the function is compiled, and then called like any other, with arrays and numbers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self.function, self.name = function, function.__name__
        self._call: Callable[..., Any] = self._first
        self._tried: set[str] = set()  # types that were compiled for; what comes again nevertheless is numba's

    def __call__(self, *arguments: Any) -> Any:  # noqa: D102
        return self._call(*arguments)

    def _first(self, *arguments: Any) -> Any:
        """Load all that is kept of this kernel, for whatever types."""
        with _LOCK:
            if self._call == self._first:
                home = self._home()
                following: Callable[..., Any] = self._other_types if home else self._dispatcher()
                for path in sorted(home.glob(f"{self.name}-*.o")) if home else ():
                    if code := _read(path):
                        following = _callable(code, _symbol(path), following)
                self._call = following
        return self._call(*arguments)

    def _other_types(self, *arguments: Any) -> Any:
        """Compile for the types of these arguments, and keep it; where that is impossible, numba does it all."""
        from colonnade.compiling.compiler import object_code, types_of

        with _LOCK:
            home, types = self._home(), types_of(arguments)
            path = home / f"{self.name}-{_digest(types.encode())[:16]}.o" if home else None
            code = object_code(self, arguments, _symbol(path)) if path and types not in self._tried else None
            self._tried.add(types)
            if path and code:
                _write(path, code)
                self._call = call = _callable(code, _symbol(path), self._call)
            else:
                call = self._dispatcher()
        return call(*arguments)

    def _dispatcher(self) -> Callable[..., Any]:
        from colonnade.compiling.compiler import dispatcher

        return dispatcher(self, kept=_folder_of(*_sources(self.function))[1])

    def _home(self) -> Path | None:
        return _folder_of(*_sources(self.function))[0]


class Inside:
    """A piece of LLVM's code for use inside kernels. `make` returns numba's intrinsic, and is called when needed."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.function = make
        self.intrinsic = cache(make)

    def __call__(self, *arguments: Any) -> Any:  # noqa: D102
        raise TypeError("this exists inside compiled code only; call a kernel that uses it")


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
    if os.environ.get("COLONNADE_KERNELS") == "numba" or wishes or sys.platform != "linux":
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
            *(Path(__file__).with_name(name) for name in ("compiled.py", "compiler.py")),
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


def _symbol(path: Path) -> str:
    """What the function is called inside its file."""
    return f"colonnade_{path.parent.name}_{path.stem}".replace("-", "_")


def _digest(*parts: bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(hashlib.sha256(part).digest())
    return found.hexdigest()


# -- from object code to a function of Python --------------------------------------------------------------------------


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def _for_ever(thing: T) -> T:
    """Let nothing take this away before the process ends.

    When Python ends, it clears modules in an order of its own, and its garbage collector still looks into built-in
    functions whose definitions would be gone by then.
    """
    count = ctypes.pythonapi.Py_IncRef
    count.argtypes, count.restype = (ctypes.py_object,), None
    count(thing)
    return thing


@cache
def _engine() -> Any:
    """LLVM's loader, which finds CPython's functions by itself, and is told where the objects are."""
    from llvmlite import binding

    for name, known in KNOWN.items():
        binding.add_symbol(f"{KNOWN_AS}{name}", id(known))
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(jit=True)
    return _for_ever(binding.create_mcjit_compiler(binding.parse_assembly(""), machine))


def _callable(code: bytes, symbol: str, following: Callable[..., Any]) -> Callable[..., Any]:
    """A built-in function out of object code. following: is called with arguments that are not of its types.

    Code in which there is no function of this name (a file that was renamed) is passed over.
    """
    from llvmlite.binding import ObjectFileRef

    _engine().add_object_file(ObjectFileRef.from_data(code))
    if not (address := _engine().get_function_address(symbol)):
        return following
    method = _for_ever(_Method(symbol.encode(), address, _FASTCALL, None))
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.POINTER(_Method), ctypes.py_object, ctypes.py_object)
    made: Callable[..., Any] = make(method, following, None)
    return made
