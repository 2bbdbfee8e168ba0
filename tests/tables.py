"""Tables of cases: `make test` takes cells in which every pair of values occurs, `make test-all` takes all of them.

What goes wrong in a table goes wrong for one value, or where two of them meet. So a few cells find nearly what the
whole table finds; the others are marked `long`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import combinations

import pytest


def covering(cells: Iterable[Sequence[Hashable]]) -> list[Sequence[Hashable]]:
    """The fewest cells that a greedy choice finds in which every pair of values occurs that occurs in the table."""
    table = [*map(tuple, cells)]
    size = min(2, len(table[0]))
    left = {cell: {*combinations(enumerate(cell), size)} for cell in table}
    missing, chosen = set().union(*left.values()), []
    while missing:
        best = max(left, key=lambda cell: len(left[cell] & missing))  # the first of equals: the same in every process
        missing -= left.pop(best)
        chosen.append(best)
    return chosen


def by_turns(cells: Iterable[object], values: Sequence[object]) -> list:
    """Every cell with every value, marked `long` but for one value of each: the values take turns."""
    return [
        pytest.param(cell, value, marks=[] if at % len(values) == turn else pytest.mark.long)
        for at, cell in enumerate(cells)
        for turn, value in enumerate(values)
    ]


def pairwise(cells: Iterable[Sequence[Hashable]], *, always: Callable[..., bool] = lambda *_: False) -> list:
    """All cells as parameters, marked `long` where no pair needs them and `always` does not ask for them."""
    cells = [tuple(cell) for cell in cells]
    short = {*covering(cells), *(cell for cell in cells if always(*cell))}
    return [pytest.param(*cell, marks=[] if cell in short else pytest.mark.long) for cell in cells]
