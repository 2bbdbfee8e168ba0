"""Categories that are perhaps the same, spelt differently: "permanent", "PERMANENT ", "permanant"."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from colonnade.data.raw_columns import Texts
from colonnade.tables.table import Table

_MOST = 400  # categories of a column that are compared, the most frequent ones
_SHORT, _LONG = 5, 8  # letters: shorter words are never typing errors of each other, long ones may have two
_RARER = 5  # times as often the right spelling occurs, at least
_TOLD = 5  # pairs of a column


def near_levels(table: Table) -> list[str]:
    """Return a sentence for each column of text that seems to spell some category in two ways."""
    if table.sparse:
        return []
    found = []
    for name, column in table.columns.items():
        if not isinstance(column, Texts):
            continue
        counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.categories))
        often = {str(word): int(count) for word, count in zip(column.categories, counts, strict=True) if count}
        pairs = near_pairs(often)
        if pairs:
            told = [f"{rare!r} ({often[rare]:,}) and {usual!r} ({often[usual]:,})" for rare, usual in pairs[:_TOLD]]
            more = f", and {len(pairs) - _TOLD} more" if len(pairs) > _TOLD else ""
            found.append(f"column {name!r} may spell the same in two ways: {', '.join(told)}{more}")
    return found


def near_pairs(often: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return pairs of a rarer and a more frequent category that differ in case, spaces or a typing error.

    Categories with digits are codes, of which one digit makes another; so are short words, and what differs by a
    beginning or an end, like employed and unemployed.
    """
    words = sorted(often, key=lambda word: (-often[word], word))[:_MOST]
    plain = {word: " ".join(word.casefold().split()) for word in words}
    found = []
    for number, rare in enumerate(words):
        for usual in words[:number]:
            if plain[rare] == plain[usual] or (
                often[usual] >= _RARER * often[rare] and _typing_error(plain[rare], plain[usual])
            ):
                found.append((rare, usual))
                break
    return found


def _typing_error(one: str, other: str) -> bool:
    shorter = min(len(one), len(other))
    most = 0 if shorter < _SHORT else 1 if shorter < _LONG else 2
    if abs(len(one) - len(other)) > most or any(sign.isdigit() for sign in one + other):
        return False
    if most == 2 and abs(len(one) - len(other)) == 2 and (one in other or other in one):
        return False
    return distance(one, other, most) <= most


def distance(one: str, other: str, most: int) -> int:
    """Return how many letters are to be put in, left out or changed to make one word the other; more than `most` is
    told as `most` + 1.
    """
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        for column, against in enumerate(other, 1):
            now.append(min(before[column] + 1, now[-1] + 1, before[column - 1] + (letter != against)))
        if min(now) > most:
            return most + 1
        before = now
    return min(before[-1], most + 1)
