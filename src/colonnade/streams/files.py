"""The files of a source: one, several with the same columns, or those that a pattern finds, here or in an object store.

    source = "customers.parquet"
    source = "customers/*.parquet"                            # in the order of their names
    source = ["2025.csv", "2026.csv"]                         # in this order
    source = "s3://bank/customers/*.parquet"                  # with fsspec, and what it needs for the store

All of them have the same columns, with the same kinds of values; what differs is one sentence with the file and the
column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob as matches
from pathlib import Path
from typing import Any

from colonnade.errors import DataError, OptionError
from colonnade.settings.settings import Settings
from colonnade.tables.data import check_file, check_keys

_PATTERN = "*?["
_AWAY = "://"


@dataclass(frozen=True)
class SourceFiles:
    """The files that a source names, in their order."""

    paths: tuple[str, ...]  # absolute, or addresses
    kind: str  # csv, parquet, npy, ...
    called: str  # by errors
    store: Any = None  # fsspec's view of the object store where they are; None for files of this machine

    @property
    def names(self) -> tuple[str, ...]:
        """What errors call each of them."""
        return tuple(path.rsplit("/", 1)[-1] for path in self.paths)


def several(settings: Settings, source: Path | None = None) -> bool:
    """Whether a source is more than a path of one file."""
    given = settings["source"] if source is None else str(source)
    if isinstance(given, list):
        return True
    return given is not None and (_AWAY in given or (_has_pattern(given) and not (_at(settings, given)).is_file()))


def check_there(settings: Settings) -> None:
    """Refuse files of this machine that are not there, before anybody is waited for; nothing in them is read."""
    named = settings["source"]
    if named is None or settings["sql"] is not None:
        return
    if not any(_AWAY in one for one in (named if isinstance(named, list) else [named])):
        source_files(settings)


def source_files(settings: Settings, source: Path | None = None) -> SourceFiles:
    """Return the files that a source names, or refuse it."""
    named = settings["source"] if source is None else str(source)
    given = named if isinstance(named, list) else [named]
    away = [text for text in given if _AWAY in text]
    if away and len(away) < len(given):
        raise settings.error("source", "names files of this machine and of a store; give files of one place", DataError)
    paths, store = _from_store(settings, away) if away else (_of_machine(settings, given), None)
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise settings.error("source", f"{twice!r} is named twice; name every file once", DataError)
    kinds = [_kind_away(settings, path) if away else check_file(settings, Path(path)) for path in paths]
    if len({*kinds}) > 1:
        other = next(number for number, kind in enumerate(kinds) if kind != kinds[0])
        words = f"{Path(paths[0]).name!r} is {kinds[0]} and {Path(paths[other]).name!r} is {kinds[other]}"
        raise settings.error("source", f"{words}; all files of a source are of one kind", DataError)
    if len(paths) > 1 and kinds[0] not in ("csv", "parquet", "arrow"):
        sentence = f"several files are read as CSV, Parquet and Arrow, got {kinds[0]}; give one"
        raise settings.error("source", sentence, DataError)
    called = Path(paths[0]).name if len(paths) == 1 else f"{len(paths)} files ({Path(paths[0]).name}, ...)"
    return SourceFiles(tuple(paths), kinds[0], called, store)


def check_same_columns(settings: Settings, files: SourceFiles, found: Sequence[dict[str, str]]) -> None:
    """Refuse files whose columns differ from those of the first; found: {column: kind of its values} of each file."""
    first, names = found[0], files.names
    for name, columns in zip(names[1:], found[1:], strict=True):
        for column in [one for one in first if one not in columns]:
            sentence = f"has no column {column!r}, which {names[0]} has"
            raise settings.error("source", f"{name} {sentence}; all files need the same columns", DataError)
        for column in [one for one in columns if one not in first]:
            sentence = f"has a column {column!r}, which {names[0]} has not"
            advice = "all files need the same columns, or name those to read under columns"
            raise settings.error("source", f"{name} {sentence}; {advice}", DataError)
        for column, kind in first.items():
            if kind != columns[column]:
                sentence = f"has {columns[column]} in column {column!r}, and {names[0]} has {kind}"
                raise settings.error("source", f"{name} {sentence}; all files need the same kinds of values", DataError)


def _has_pattern(text: str) -> bool:
    return any(sign in text for sign in _PATTERN)


def _at(settings: Settings, text: str) -> Path:
    return settings.origin.folder / text


def _of_machine(settings: Settings, given: Sequence[str]) -> list[str]:
    paths: list[str] = []
    for text in given:
        path = _at(settings, text).absolute()
        if not _has_pattern(text) or path.is_file():
            paths.append(str(path))
            continue
        found = sorted(one for one in matches(str(path), recursive=True) if Path(one).is_file())
        if not found:
            raise settings.error(
                "source", f"no file is like {text!r} in {str(path.parent)!r}; give a pattern that files fit", DataError
            )
        paths += found
    return paths


def _from_store(settings: Settings, given: Sequence[str]) -> tuple[list[str], Any]:
    """Return the addresses that are there, and the store, as fsspec knows it."""
    protocols = {text.partition(_AWAY)[0] for text in given}
    if len(protocols) > 1:
        raise settings.error("source", "names files of several stores; give files of one place", DataError)
    (protocol,) = protocols
    try:
        import fsspec

        store = fsspec.filesystem(protocol)
    except ImportError as error:
        advice = "pip install 'colonnade[stores]', and what fsspec needs for this store (s3fs, gcsfs, adlfs)"
        raise settings.error("source", f"{protocol}:// can't be read here ({error}); {advice}", OptionError) from None
    except ValueError:
        sentence = f"{protocol}:// is no store that fsspec knows; give s3://, gs://, az:// or a file of this machine"
        raise settings.error("source", sentence, DataError) from None
    paths = []
    for text in given:
        try:
            found = sorted(store.glob(text)) if _has_pattern(text) else [text] if store.exists(text) else []
        except Exception as error:  # every store has errors of its own
            raise settings.error("source", f"{text!r} can't be looked at ({error})", DataError) from None
        if not found:
            raise settings.error("source", f"there is no file {text!r}", DataError)
        paths += [one if _AWAY in one else f"{protocol}{_AWAY}{str(one).removeprefix('/')}" for one in found]
    if protocol in ("file", "local"):
        raise settings.error("source", f"{given[0]!r} is a file of this machine; give its path alone", DataError)
    return paths, store


def _kind_away(settings: Settings, path: str) -> str:
    if not path.lower().endswith((".parquet", ".pq")):
        raise settings.error("source", f"files of a store are read as Parquet, got {Path(path).name!r}", DataError)
    check_keys(settings, "parquet", Path(path).name)
    return "parquet"
