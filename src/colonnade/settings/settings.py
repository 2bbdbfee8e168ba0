"""Settings: what may stand in a TOML file, declared once, and what did stand there, checked.

    PARTY = Section(
        Key("data", Section(Key("source", str), Key("columns", ListOf(str))), required=True),
        Key("deadline", float, default=60.0, above=0),
    )
    settings = toml.read("bank.toml", PARTY)
    settings["data"]["columns"]                                  # None if the file does not say
    raise settings["data"].error("columns", "there is no ...")   # bank.toml, line 3, key data.columns: there is no ...

Settings remember where each key stands, so that what is found out later is told as precisely as what is found out here.
"""

from __future__ import annotations

import difflib
import math
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from colonnade.errors import InputError, TomlError

KeyPath: TypeAlias = tuple[str | int, ...]  # names of tables and keys, numbers of elements

BARE = re.compile(r"[A-Za-z0-9_-]+")  # a key that needs no quotes
_WORDS: dict[type, str] = {
    str: "text in quotes",
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
}


class _Repr(reprlib.Repr):
    """Shows a value on one short line: what a file holds may be long or deep, and an error is one sentence."""

    def repr_bool(self, value: bool, level: int) -> str:
        return str(value).lower()

    def repr_int(self, value: int, level: int) -> str:
        # Python refuses to print very long numbers
        return str(value) if abs(value) < 10**18 else f"a whole number of {value.bit_length()} bits"


_REPR = _Repr()
_REPR.maxstring = _REPR.maxother = 60


class ListOf:
    """An array whose elements are all of one kind, with at least `least` of them."""

    def __init__(self, kind: Kind, least: int = 0) -> None:
        self.kind, self.least = kind, least


class Section:
    """A table and the keys that it may have; `others` describes keys whose names the user chooses.

    `gone` are keys that earlier versions had, with what is said of each.
    """

    def __init__(self, *keys: Key, others: Key | None = None, gone: Mapping[str, str] | None = None) -> None:
        self.keys = {key.name: key for key in keys}
        self.others, self.gone = others, gone or {}


class Anything:
    """Whatever TOML can say; it is checked later, by code that knows more."""


Kind: TypeAlias = type | ListOf | Section | tuple["Kind", ...]


@dataclass(frozen=True)
class Key:
    """A key: what kind of value it takes, and which values are allowed.

    Parameters
    ----------
    name : as it stands in the file.
    kind : str, int, float (takes whole numbers too), bool, ListOf, Section, Anything, or several of these in a tuple.
    default : the value where the file leaves the key out.
    required : whether the file must have it.
    allowed : the only values that it may have; empty: any.
    least, above, most : bounds for numbers.
    check : gets the value; returns what is wrong with it, as the end of a sentence, or None.
    gone : values that earlier versions allowed, with what is said of each.
    """

    name: str
    kind: Kind
    default: Any = None
    required: bool = False
    allowed: tuple[Any, ...] = ()
    least: float | None = None
    above: float | None = None
    most: float | None = None
    check: Callable[[Any], str | None] | None = None
    gone: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """Where settings come from: a file and the lines of its keys; or no file, for settings made in a program."""

    file: str = ""
    folder: Path = Path()  # what relative paths in the file are relative to
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def words(self, path: KeyPath, line: int | None = None) -> str:
        """Return the beginning of an error about this path: the file, the line and the key."""
        line = line or self.lines.get(path)
        parts = [self.file, f"line {line}" if line else "", f"key {_dotted(path)}" if path else ""]
        return ", ".join(part for part in parts if part)


class Settings(Mapping[str, Any]):
    """A checked table: values by key, with the defaults of keys that the file leaves out."""

    def __init__(self, values: Mapping[str, Any], path: KeyPath, origin: Origin, given: frozenset[str]) -> None:
        self._values, self._path, self.origin, self.given = values, path, origin, given

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Settings({self.origin.words(self._path) or 'made in a program'}: {shown(dict(self._values))})"

    def error(
        self, key: str | int | KeyPath, sentence: str, kind: Callable[[str], InputError] = TomlError
    ) -> InputError:
        """Return an error of class `kind` about one key, or about an element inside it, for the caller to raise."""
        path = (*self._path, *(key if isinstance(key, tuple) else (key,)))
        known = next((path[:end] for end in range(len(path), 0, -1) if path[:end] in self.origin.lines), ())
        place = self.origin.words(path, self.origin.lines.get(known))
        return kind(f"{place}: {sentence}" if place else sentence)

    def checked(self, section: Section, root: Section) -> Settings:
        """Return this table checked against a section that follows from one of its keys; `root` is the whole file's."""
        given = {key: self._values[key] for key in self._values if key in self.given}
        found: Settings = _Check(self.origin, root, None).table(given, section, self._path)
        return found

    def plain(self) -> dict[str, Any]:
        """Return the same settings as dictionaries and lists, without their origins."""
        return {key: _plain(value) for key, value in self._values.items()}


def check(
    values: Mapping[str, Any], section: Section, origin: Origin | None = None, end: int | None = None
) -> Settings:
    """Check settings that were made in a program or read from a file, of which `end` is the last line."""
    settings: Settings = _Check(origin or Origin(), section, end).table(values, section, ())
    return settings


def nearest(name: str, allowed: Mapping[str, Any] | tuple[str, ...] | list[str]) -> str:
    """Return `; did you mean 'x'?`, or nothing if no allowed name is near."""
    lower = {str(other).lower(): str(other) for other in allowed}
    found = difflib.get_close_matches(name.lower(), lower, 1, cutoff=0.65)
    return f"; did you mean {lower[found[0]]!r}?" if found else ""


class _Check:
    def __init__(self, origin: Origin, root: Section, end: int | None) -> None:
        self.origin, self.root, self.end = origin, root, end

    def refuse(self, path: KeyPath, sentence: str, line: int | None = None) -> TomlError:
        place = self.origin.words(path, line)
        return TomlError(f"{place}: {sentence}" if place else sentence)

    def table(self, values: Mapping[str, Any], section: Section, path: KeyPath) -> Settings:
        found: dict[str, Any] = {}
        for name, value in values.items():
            key = section.keys.get(name, section.others)
            if key is None:
                raise self.refuse((*path, name), self.unknown(name, section, path))
            found[name] = self.value(value, key, (*path, name))
        for name, key in section.keys.items():
            if name not in found:
                found[name] = self.absent(key, path)
        return Settings(found, path, self.origin, frozenset(values))

    def unknown(self, name: str, section: Section, path: KeyPath) -> str:
        if name in section.gone:
            return section.gone[name]
        for home in _homes(self.root, name):
            if home != path:
                return f"unknown key here; it belongs under {f'[{_dotted(home)}]' if home else 'no table'}"
        allowed = list(section.keys)
        return f"unknown key, allowed are {', '.join(allowed) or 'none'}{nearest(name, allowed)}"

    def absent(self, key: Key, path: KeyPath) -> Any:
        if not key.required:
            if isinstance(key.kind, Section) and key.default is not None:
                return self.table(key.default, key.kind, (*path, key.name))
            return key.default
        table = isinstance(key.kind, Section)
        line = self.origin.lines.get(path) or (self.end if table else self.end and 1)
        words = _dotted((*path, key.name))
        where = f"[{words}]" if table else f"{key.name} = ..." + (f" under [{_dotted(path)}]" if path else "")
        raise self.refuse((*path, key.name), f"this key is required and missing; add {where}", line)

    def value(self, value: Any, key: Key, path: KeyPath) -> Any:
        found = self.of_kind(value, key.kind, path)
        if isinstance(found, list):
            for number, element in enumerate(found):
                self.within(element, key, (*path, number))
        else:
            self.within(found, key, path)
        complaint = key.check(found) if key.check else None
        if complaint:
            raise self.refuse(path, complaint)
        return found

    def within(self, value: Any, key: Key, path: KeyPath) -> None:
        if isinstance(value, str) and value in key.gone:
            raise self.refuse(path, key.gone[value])
        if key.allowed and value not in key.allowed:
            guess = nearest(value, list(map(str, key.allowed))) if isinstance(value, str) else ""
            raise self.refuse(path, f"must be one of {', '.join(map(shown, key.allowed))}, got {shown(value)}{guess}")
        bounds = ((">=", key.least), (">", key.above), ("<=", key.most))
        if any(bound is not None and not _holds(value, sign, bound) for sign, bound in bounds):
            words = " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)
            raise self.refuse(path, f"must be {words}, got {shown(value)}")

    def of_kind(self, value: Any, kind: Kind, path: KeyPath) -> Any:
        kinds = kind if isinstance(kind, tuple) else (kind,)
        for one in kinds:
            if one is Anything:
                return value
            if isinstance(one, Section) and isinstance(value, Mapping):
                return self.table(value, one, path)
            if isinstance(one, ListOf) and isinstance(value, (list, tuple)) and len(value) >= one.least:
                return [self.of_kind(element, one.kind, (*path, n)) for n, element in enumerate(value)]
            if one in _WORDS and _is_a(value, one):
                return float(value) if one is float and int not in kinds else value
        words = " or ".join(_kind_words(one) for one in kinds)
        raise self.refuse(path, f"must be {words}, got {shown(value)}")


def _is_a(value: Any, kind: Any) -> bool:
    if kind is float:
        # a whole number of 400 digits is valid TOML, but no float
        return (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) < 2**1023)
    return type(value) is kind  # True is no whole number


def _holds(number: Any, sign: str, bound: float) -> bool:
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return True  # bounds are for numbers, where a key takes other kinds too
    return number >= bound if sign == ">=" else number > bound if sign == ">" else number <= bound


def _kind_words(kind: Any) -> str:
    if isinstance(kind, Section):
        return "a table of keys"
    if isinstance(kind, ListOf):
        inside = " or ".join(_kind_words(one) for one in (kind.kind if isinstance(kind.kind, tuple) else (kind.kind,)))
        return f"a list of {f'at least {kind.least} of ' if kind.least else ''}({inside})"
    return _WORDS[kind]


def _homes(section: Section, name: str, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the tables in which a key of this name is allowed."""
    if name in section.keys:
        yield path
    for key in section.keys.values():
        if isinstance(key.kind, Section):
            yield from _homes(key.kind, name, (*path, key.name))


def _dotted(path: KeyPath) -> str:
    words = ""
    for part in path:
        if isinstance(part, int):
            words += f"[{part}]"
        else:
            words += ("." if words else "") + (part if BARE.fullmatch(part) else shown(part))
    return words


def shown(value: Any) -> str:
    """Return a value as the file would say it, on one line and not too long."""
    return _REPR.repr(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Settings):
        return value.plain()
    return [_plain(element) for element in value] if isinstance(value, list) else value
