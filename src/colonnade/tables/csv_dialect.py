"""How a CSV file is written, found out from its first line alone.

DuckDB can guess it too, but it guesses until something fits: rows of another length are then taken for a preamble and
left out without a word. Here the first line names the columns, and a file that does not keep to it is refused.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade.errors import DataError
from colonnade.settings.settings import Settings

_DELIMITERS = ",;\t|"


@dataclass(frozen=True)
class Dialect:
    """Names of the columns, and what stands between them."""

    path: Path
    names: list[str]
    delimiter: str
    decimal: str
    missing: list[str]

    def scan(self, types: dict[str, str] | None = None, **options: str) -> str:
        """DuckDB's words for reading the file; its columns are called c0, c1, ... there.

        types: of all columns; without them DuckDB finds them out from the first rows.
        """
        columns = (
            {"names": _list(f"c{n}" for n in range(len(self.names)))}
            if types is None
            else {"auto_detect": "false", "columns": _struct(types)}
        )
        chosen = {
            "delim": quoted(self.delimiter), "decimal_separator": quoted(self.decimal),
            "nullstr": _list(["", *self.missing]), "quote": quoted('"'), "escape": quoted('"'), "comment": "''",
            "header": "true", "compression": "'gzip'" if self.path.suffix.lower() == ".gz" else "'none'",
            "skip": "0", "strict_mode": "true", "null_padding": "false", **columns, **options,
        }  # fmt: skip
        return f"read_csv({glob(self.path)}, {', '.join(f'{key} = {value}' for key, value in chosen.items())})"


def dialect(path: Path, settings: Settings) -> Dialect:
    """Look at the first line of a file."""
    packed = path.suffix.lower() == ".gz"
    if packed:
        _check_packed(path, settings)
    try:
        opener: Any = gzip.open if packed else open
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            line = file.readline()
            delimiter = settings["delimiter"] or _delimiter(line, path.name)
            file.seek(0)
            names = [name.strip() for name in next(csv.reader(file, delimiter=delimiter, strict=True), [])]
    except UnicodeDecodeError:
        raise settings.error(
            "source", f"{path.name} is not UTF-8 text; save it as UTF-8 (`iconv -t UTF-8` converts a file)", DataError
        ) from None
    except (csv.Error, OSError) as error:
        raise settings.error("source", f"the first line of {path.name} can't be read ({error})", DataError) from None
    if not any(names):
        raise settings.error("source", f"{path.name} has no first line that names its columns; add one", DataError)
    if all(_number(name) for name in names):
        raise settings.error(
            "source",
            f"the first line of {path.name} holds numbers, it must name the columns; add such a line",
            DataError,
        )
    names = [name or f"column{number}" for number, name in enumerate(names, 1)]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        sentence = f"{path.name} has two columns {twice!r}; give each a name of its own"
        raise settings.error("source", sentence, DataError)
    # A comma that begins fractions may be the delimiter too, and DuckDB takes no mark with it; columns of numbers are
    # compared by their values later on.
    given, sign = settings["missing"] or [], settings["decimal"]
    missing = [mark for mark in spellings(given, sign) if mark in given or delimiter not in mark]
    return Dialect(path, names, delimiter, settings["decimal"], missing)


def _check_packed(path: Path, settings: Settings) -> None:
    """Read it all once: DuckDB does not compare checksums, and would take damaged rows for real ones."""
    try:
        with gzip.open(path, "rb") as file:
            while file.read(1 << 20):
                pass
    except (OSError, EOFError, zlib.error) as error:
        raise settings.error(
            "source", f"{path.name} can't be unpacked ({error}); pack it anew, or fetch it once more", DataError
        ) from None


def spellings(marks: Iterable[str | float], decimal: str = ".") -> list[str]:
    """What stands for a missing value, as a file may spell it: text is compared with text, and -1 may be -1.0 there."""
    found: list[str] = []
    for mark in marks:
        if isinstance(mark, str):
            found.append(mark)
        elif float(mark).is_integer():
            found += [str(int(mark)), f"{int(mark)}{decimal}0"]
        else:
            found.append(repr(float(mark)).replace(".", decimal))
    return list(dict.fromkeys(found))


def _delimiter(line: str, name: str) -> str:
    """The sign that occurs most often outside of quotes."""
    if name.lower().removesuffix(".gz").endswith(".tsv"):
        return "\t"
    plain = "".join(line.split('"')[::2])
    return max(_DELIMITERS, key=plain.count)


def _number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def quoted(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def glob(path: Path) -> str:
    """A path in SQL that stands for this file only, whatever its name."""
    return quoted("".join(f"[{sign}]" if sign in "*?[" else sign for sign in str(path)))


def _list(values: Any) -> str:
    return "[" + ", ".join(map(quoted, values)) + "]"


def _struct(values: dict[str, str]) -> str:
    return "{" + ", ".join(f"{quoted(key)}: {quoted(value)}" for key, value in values.items()) + "}"
