"""Text files that are not UTF-8: read through a copy that is, and advice for those who do not say what they have."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from colonnade.errors import DataError
from colonnade.settings.settings import Settings

UTF8 = "utf-8"
_CHUNK = 1 << 20
_ONLY_WINDOWS = frozenset(range(0x80, 0xA0))  # bytes that are signs on Windows, and no signs in Latin-1
_NO_SIGN = frozenset((0x81, 0x8D, 0x8F, 0x90, 0x9D))  # not on Windows either


def known_encoding(name: str) -> str | None:
    """Return what is wrong with the name of an encoding, or None."""
    try:
        if codecs.lookup(name)._is_text_encoding:
            return None
    except (LookupError, ValueError):  # a name may hold what no name can
        pass
    return f'must be the name of an encoding, such as "latin-1", "windows-1252" or "utf-16", got {name!r}'


@contextlib.contextmanager
def in_utf8(settings: Settings, path: Path) -> Iterator[Path]:
    """Give a file whose text is UTF-8: this one, or a copy that is there for as long as it is read.

    On Linux the copy is in memory; elsewhere it is a temporary file that its owner alone may read.
    """
    given = settings["encoding"]
    if codecs.lookup(given).name == UTF8:
        yield path
        return
    if hasattr(os, "memfd_create"):
        place = os.memfd_create(path.name)
        try:
            with os.fdopen(os.dup(place), "wb") as out:
                _copy(settings, path, given, out)
            yield Path(f"/proc/self/fd/{place}")
        finally:
            os.close(place)
        return
    with tempfile.TemporaryDirectory() as folder:  # readable by its owner alone
        copy = Path(folder) / "copy.csv"
        with copy.open("wb") as out:
            _copy(settings, path, given, out)
        yield copy


def _copy(settings: Settings, path: Path, encoding: str, out: Any) -> None:
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    line = 1
    try:
        with opener(path, "rt", encoding=encoding, newline="") as file:
            while text := file.read(_CHUNK):
                out.write(text.encode(UTF8))
                line += text.count("\n")
    except UnicodeError:
        sentence = f"{path.name} is not {encoding} text, from line {line} on at the latest; {advice(path)}"
        raise settings.error("encoding", sentence, DataError) from None


def advice(path: Path) -> str:
    """Return what to write for a file that is not UTF-8, by the bytes that it has."""
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    found: set[int] = set()
    start = b""
    with contextlib.suppress(OSError, EOFError), opener(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            start = start or chunk[:2]
            found |= _ONLY_WINDOWS & set(chunk)
    likely = "latin-1" if not found or found & _NO_SIGN else "windows-1252"
    likely = "utf-16" if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else likely
    return f'write encoding = "{likely}" under [data], which it seems to be, or save it as UTF-8'
