"""TOML files, read whole and checked before anything else: every error names the file, the line and the key.

    settings = read("bank.toml", PARTY)      # PARTY: what is allowed, see settings.py

For any bytes at all, the outcome is settings or a `TomlError`.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from pathlib import Path

from colonnade.errors import TomlError
from colonnade.settings.settings import BARE, KeyPath, Origin, Section, Settings, check

_LARGEST = 1 << 20  # bytes: settings are written by people
_POSITION = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_KEY = re.compile(r"\s*([^=#\[\]\s][^=#]*?)\s*=")  # at the beginning of a line that is no TOML, so a guess
_DIGITS = re.compile(r"[0-9](_?[0-9]){4000}")


def read(path: str | Path, section: Section) -> Settings:
    """Read and check a TOML file."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except FileNotFoundError:
        raise TomlError(f"there is no file {str(path)!r}; give the path of a TOML file") from None
    except IsADirectoryError:
        raise TomlError(f"{str(path)!r} is a folder; give the path of a TOML file in it{_in(path)}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TomlError(f"{str(path)!r} can't be read ({reason}); give the path of a TOML file") from None
    return parse(content, section, path.name, path.absolute().parent)


def _in(folder: Path) -> str:
    """Return the file that was probably meant: commands take a job's file, and the dashboard its folder, too."""
    job = folder / "job.toml"
    return f", such as {str(job)!r}" if job.is_file() else ""


def parse(content: bytes, section: Section, file: str = "", folder: Path | None = None) -> Settings:
    """Check the content of a TOML file; `file` is its name for errors."""
    name = file or "the settings"
    if len(content) > _LARGEST:
        raise TomlError(f"{name} has more than {_LARGEST} bytes, the most that are allowed; is it the right file?")
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")  # some editors mark UTF-8 with three bytes
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TomlError(f"{name}, line {line}: this is not UTF-8 text; save the file as UTF-8") from None
    try:
        values = tomllib.loads(text)
        lines = key_lines(text)
    except RecursionError:
        raise TomlError(f"{name}: its arrays or tables are nested too deeply; is it the right file?") from None
    except ValueError as error:
        raise _syntax_error(name, text, str(error)) from None
    return check(values, section, Origin(file, folder or Path(), lines), text.count("\n") + 1)


def _syntax_error(name: str, text: str, message: str) -> TomlError:
    found = _POSITION.search(message)
    lines = text.split("\n")
    if found and found[1]:
        number = min(int(found[1]), len(lines))
    elif found:  # at the end: of the last line that says something
        number = len(text.rstrip().split("\n"))
    else:  # the only error without a place is of a number with more digits than Python reads
        number = next((n for n, line in enumerate(lines, 1) if _DIGITS.search(line)), 0)
    reason = message[: found.start()] if found else message
    at = f", line {number}" if number else ""
    # What is never closed began before: its key is the last one above.
    above = (
        range(number, 0, -1) if reason.lower().startswith(("unclosed", "unterminated")) else [number] if number else []
    )
    key = next((found[1][:60] for n in above if (found := _KEY.match(lines[n - 1]))), "")
    words = f", key {key}" if key else ""
    return TomlError(
        f"{name}{at}{words}: this is not TOML: {reason[:1].lower()}{reason[1:]}; correct it here or just before"
    )


# -- where each key stands, which the standard library tells only of errors --------------------------------------------

_BETWEEN = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")  # white space and comments
_BLANK = re.compile(r"[ \t]*")
# Three to five quotes end a long string: the first two of five belong to it.
_LONG = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}' + r"|'''.*?'{3,5}", re.DOTALL)
_SHORT = re.compile(r'"(?:[^"\\\n]|\\.)*"' + r"|'[^'\n]*'")
_SCALAR = re.compile(r"[^,\]}#\n]*")  # numbers, booleans and dates, which may have a space inside


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line of each key, table and element of an array, by its path.

    Only for text that `tomllib` has read: what is no TOML is not found out here.
    """
    return _Scan(text).lines


class _Scan:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.ends = [found.start() for found in re.finditer("\n", text)]
        self.lines: dict[KeyPath, int] = {}
        self.elements: dict[KeyPath, int] = {}  # of arrays of tables: how many there were so far
        inside: KeyPath = ()
        while self.skip(_BETWEEN) < len(text):
            if text[self.at] == "[":
                inside = self.header()
            else:
                self.statement(inside)

    def skip(self, what: re.Pattern[str]) -> int:
        """Go to the end of what stands here, and return where that is."""
        found = what.match(self.text, self.at)
        if found is None:
            raise ValueError(f"unexpected text in line {self.line()}")
        self.at = found.end()
        return self.at

    def line(self) -> int:
        return bisect_right(self.ends, self.at - 1) + 1

    def header(self) -> KeyPath:
        """Read `[table]` or `[[table]]`, and return the path of what follows."""
        line, array = self.line(), self.text.startswith("[[", self.at)
        self.at += 1 + array
        *outer, last = self.key()
        self.at += 1 + array
        path: KeyPath = ()
        for name in outer:
            path = (*path, name)
            self.lines.setdefault(path, line)
            if path in self.elements:
                path = (*path, self.elements[path] - 1)
        path = (*path, last)
        if array:
            self.lines.setdefault(path, line)
            self.elements[path] = self.elements.get(path, 0) + 1
            path = (*path, self.elements[path] - 1)
        self.lines[path] = line  # a table's own header, even if one of its inner tables came before
        return path

    def key(self) -> list[str]:
        """Read a key, which may have dots."""
        names = []
        while True:
            self.skip(_BLANK)
            start = self.at
            if self.text[start] in "\"'":
                quoted = self.text[start : self.skip(_SHORT)]
                names.append(tomllib.loads(f"name = {quoted}")["name"])
            else:
                names.append(self.text[start : self.skip(BARE)])
            self.skip(_BLANK)
            if not self.text.startswith(".", self.at):
                return names
            self.at += 1

    def statement(self, inside: KeyPath) -> None:
        """Read `key = value`."""
        line, path = self.line(), inside
        for name in self.key():
            path = (*path, name)
            self.lines.setdefault(path, line)
        self.at += 1  # the equals sign
        self.value(path)

    def value(self, path: KeyPath) -> None:
        self.skip(_BLANK)
        first = self.text[self.at]
        if first in "[{":
            self.at += 1
            self.collection(path, array=first == "[")
        elif first in "\"'":
            self.skip(_LONG if self.text.startswith(3 * first, self.at) else _SHORT)
        else:
            self.skip(_SCALAR)

    def collection(self, path: KeyPath, array: bool) -> None:
        """Read what stands between brackets or braces, and the closing one."""
        element = 0
        while self.text[self.skip(_BETWEEN)] not in "]}":
            if self.text[self.at] == ",":
                self.at += 1
            elif array:
                self.lines[(*path, element)] = self.line()
                self.value((*path, element))
                element += 1
            else:
                self.statement(path)
        self.at += 1
