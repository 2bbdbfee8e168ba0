"""What sites tell of themselves and have agreed on before training: forms that are checked when they come."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from colonnade.errors import ProtocolError
from colonnade.horizontal.messages import MOST_RECORDS, instruction
from colonnade.remote.handshake import printable
from colonnade.runtimes.wire import Value
from colonnade.site_jobs.common_steps import DATE, NOTHING, NUMBERS, TEXT

MOST_COLUMNS, MOST_LEVELS, _MOST_TEXT = 10_000, 1000, 1 << 24
_TRAINING_ID, _LONGEST_FORM = 32, 40
_FACTS = ("norm", "answered", "skipped", "slack", "costs")  # what is said of an evaluation beside its figures


@dataclass(frozen=True)
class Agreed:
    """The preparation of columns, the classes, and the id of the training."""

    kinds: tuple[tuple[str, str], ...]  # of columns, in their order: (name, what it holds)
    preparation: str  # what it learned, as JSON
    classes: tuple[Any, ...]
    training: str

    def as_value(self) -> Value:
        """Return a form that the wire can carry."""
        return (self.kinds, self.preparation, self.classes, self.training)

    @classmethod
    def from_value(cls, value: Any) -> Agreed:
        """Read what `as_value` wrote."""
        match value:
            case (tuple(kinds), str(text), tuple(classes), str(training)) if (
                all(_texts(one, 2) and _is_kind(one[1]) for one in kinds)
                and len(text) <= _MOST_TEXT
                and len(training) == _TRAINING_ID
                and set(training) <= set("0123456789abcdef")
                and _are_classes(classes)
            ):
                return cls(kinds, text, classes, training)
        raise ProtocolError("the server tells no agreement that this site can read; use one version everywhere")


def _texts(value: Any, count: int) -> bool:
    return type(value) is tuple and len(value) == count and {type(one) for one in value} == {str}


def _are_classes(value: tuple[Any, ...]) -> bool:
    """Whether these are of one kind, each there once, in the order in which labels are looked up among them."""
    return {type(one) for one in value} in ({str}, {int}, {bool}) and [*value] == sorted({*value})


@dataclass(frozen=True)
class Introduction:
    """What a site tells the server first."""

    columns: tuple[tuple[str, str, tuple[Any, ...]], ...]  # (name, what it holds, its categories)
    classes: tuple[Any, ...]
    key: tuple[bytes, bytes, bytes]  # of the site, the certificate that vouches for it, its signature

    @property
    def kinds(self) -> dict[str, str]:
        """What each column holds."""
        return {name: kind for name, kind, _ in self.columns}

    @classmethod
    def from_value(cls, value: Any, site: str) -> Introduction:
        """Read what a site told."""
        match value:
            case (tuple(columns), tuple(classes), (bytes(), bytes(), bytes()) as key) if (
                0 < len(columns) <= MOST_COLUMNS
                and all(_is_column(one) for one in columns)
                and len({one[0] for one in columns}) == len(columns)
                and len(classes) <= MOST_LEVELS
                and _are_classes(classes)
            ):
                return cls(columns, classes, key)
        raise ProtocolError(
            f"site {site!r} must introduce itself by columns and classes, with at most {MOST_COLUMNS} columns and "
            f"{MOST_LEVELS} categories of each"
        )


def _is_column(value: Any) -> bool:
    if type(value) is not tuple or len(value) != 3:
        return False
    name, kind, levels = value
    same = type(levels) is tuple and len(levels) <= MOST_LEVELS and {type(one) for one in levels} in SAME
    return (
        type(name) is str and _is_kind(kind) and same and all(type(one) is str or math.isfinite(one) for one in levels)
    )


def _is_kind(value: Any) -> bool:
    """Whether this is what a column may hold; the form of dates is shown to people, so it is a short line of text."""
    if type(value) is not str:
        return False
    form = value.removeprefix(DATE)
    return value in (NUMBERS, TEXT, NOTHING) or (form != value and len(form) <= _LONGEST_FORM and form.isprintable())


def is_farewell(value: Any) -> bool:
    """Whether this is what a site says when it has the model, where it could introduce itself again."""
    return type(value) is tuple and len(value) == 1 and type(value[0]) is str and value[0] == DONE


def records_of(value: Any) -> tuple[Any, ...]:
    """Read what the server tells at the end of how training went."""
    if type(value) is tuple and len(value) <= 2 * MOST_RECORDS and all(map(_is_record, value)):
        return value
    raise ProtocolError("the server tells no record of the training that a site can read; use one version everywhere")


def _is_record(value: Any) -> bool:
    match value:
        case ("record", int(index), int(), int(), *figures):
            return index in range(MOST_RECORDS) and len(figures) in (2, 4) and {type(one) for one in figures} == {float}
        case ("also", int(index), tuple(facts)):
            known = all(type(one) is tuple and len(one) == 2 and one[0] in _FACTS for one in facts)
            return index in range(MOST_RECORDS) and known and all(_are_numbers(one[1]) for one in facts)
    return False


def _are_numbers(value: Any) -> bool:
    return {type(one) for one in (value if type(value) is tuple else (value,))} <= {int, float}


SAME: tuple[set[type], ...] = (set(), {str}, {float})

WHO, AGREED, REFUSED, WAIT, DONE = "who", "agreed", "refused", "wait", "done"


def told(message: Any) -> tuple[str, int, Any]:
    """Return (stage, number of the sum, content) of what the server tells a site; refuse anything else."""
    # An array compares with a word number by number, so what is no word is not compared.
    named = type(message) is tuple and len(message) == 3 and type(message[0]) is str
    match message if named else None:
        case ("who", int(), tuple(content)) if all(
            type(one) is tuple and [type(part) for part in one] == [str, bytes, bytes, bytes] for one in content
        ):
            return WHO, 0, content
        case ("agreed", int(), tuple(content)):
            return AGREED, 0, content
        case ("refused", int(), str(text)) if len(text) <= MOST_LEVELS:
            return REFUSED, 0, printable(text, MOST_LEVELS)
        case ("wait", int(), None):
            return WAIT, 0, None
        case ("done", int(), tuple(content)) if len(content) == 2:
            return DONE, 0, content
    stage, serial, content = instruction(message)
    if stage == "end":
        raise ProtocolError("the server ends the run without a word of how; use one version everywhere")
    return stage, serial, content
