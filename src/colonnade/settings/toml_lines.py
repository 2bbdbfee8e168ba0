"""Where each key of a TOML text stands. The standard library's reader says it only for errors of syntax."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]  # names of tables and keys, numbers of elements

_BETWEEN = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")  # white space and comments
_BLANK = re.compile(r"[ \t]*")
# Three to five quotes end a long string: the first two of five belong to it.
_LONG = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}' + r"|'''.*?'{3,5}", re.DOTALL)
_SHORT = re.compile(r'"(?:[^"\\\n]|\\.)*"' + r"|'[^'\n]*'")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]*")  # numbers, booleans and dates, which may have a space inside


def key_lines(text: str) -> dict[Path, int]:
    """The line of each key, table and element of an array, by its path.

    Only for text that `tomllib` has read: what is no TOML is not found out here.
    """
    return _Scan(text).lines


class _Scan:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.ends = [found.start() for found in re.finditer("\n", text)]
        self.lines: dict[Path, int] = {}
        self.elements: dict[Path, int] = {}  # of arrays of tables: how many there were so far
        inside: Path = ()
        while self.skip(_BETWEEN) < len(text):
            if text[self.at] == "[":
                inside = self.header()
            else:
                self.statement(inside)

    def skip(self, what: re.Pattern[str]) -> int:
        """Go to the end of what stands here; and where that is."""
        found = what.match(self.text, self.at)
        if found is None:
            raise ValueError(f"unexpected text in line {self.line()}")
        self.at = found.end()
        return self.at

    def line(self) -> int:
        return bisect_right(self.ends, self.at - 1) + 1

    def header(self) -> Path:
        """`[table]` or `[[table]]`: the path of what follows."""
        line, array = self.line(), self.text.startswith("[[", self.at)
        self.at += 1 + array
        *outer, last = self.key()
        self.at += 1 + array
        path: Path = ()
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
        """A key, maybe with dots."""
        names = []
        while True:
            self.skip(_BLANK)
            start = self.at
            if self.text[start] in "\"'":
                quoted = self.text[start : self.skip(_SHORT)]
                names.append(tomllib.loads(f"name = {quoted}")["name"])
            else:
                names.append(self.text[start : self.skip(_BARE)])
            self.skip(_BLANK)
            if not self.text.startswith(".", self.at):
                return names
            self.at += 1

    def statement(self, inside: Path) -> None:
        """`key = value`."""
        line, path = self.line(), inside
        for name in self.key():
            path = (*path, name)
            self.lines.setdefault(path, line)
        self.at += 1  # the equals sign
        self.value(path)

    def value(self, path: Path) -> None:
        self.skip(_BLANK)
        first = self.text[self.at]
        if first in "[{":
            self.at += 1
            self.collection(path, array=first == "[")
        elif first in "\"'":
            self.skip(_LONG if self.text.startswith(3 * first, self.at) else _SHORT)
        else:
            self.skip(_SCALAR)

    def collection(self, path: Path, array: bool) -> None:
        """What stands between brackets or braces, and the closing one."""
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
