"""Tables and small charts that a notebook shows for a value that ends a cell; it brings the colours and the letters.

Whatever comes from data, names of columns and parties among it, is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

_NUMBER, _TEXT = "text-align:right", "text-align:left"
_WIDE, _TALL = 300, 56  # pixels of a curve
_POINTS = 150


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Any]], *, words: int = 1, title: str = "", foot: str = ""
) -> str:
    """Return a table; the first so many columns of it are words, and the others numbers.

    Parameters
    ----------
    heads
        What stands above the columns.
    rows
        Cells; those that are no text are written as they print.
    words
        How many columns are words.
    title, foot
        A line above and below.
    """
    styles = [_TEXT if at < words else _NUMBER for at in range(len(heads))]

    def row(cells: Sequence[Any], tag: str) -> str:
        inner = (f'<{tag} style="{style}">{escape(str(one))}</{tag}>' for one, style in zip(cells, styles, strict=True))
        return f"<tr>{''.join(inner)}</tr>"

    above = f"<div><strong>{escape(title)}</strong></div>" if title else ""
    below = f"<div>{escape(foot)}</div>" if foot else ""
    body = "".join(row(cells, "td") for cells in rows)
    return f"{above}<table><thead>{row(heads, 'th')}</thead><tbody>{body}</tbody></table>{below}"


def of_rich(rich: Any) -> str:
    """Return a table of `rich`, which terminals show, as one of a notebook."""
    from rich.text import Text

    def plain(cell: Any) -> str:
        return cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell or "")).plain

    heads = [plain(column.header) for column in rich.columns]
    rows = list(zip(*([plain(cell) for cell in column.cells] for column in rich.columns), strict=True))
    words = next((at for at, column in enumerate(rich.columns) if column.justify == "right"), len(heads))
    return table(heads, rows, words=words, title=plain(rich.title), foot=plain(rich.caption))


def curve(values: Sequence[float], words: str) -> str:
    """Return a small curve of numbers, such as losses; nothing where there are fewer than two that are finite."""
    known = [one for one in values if math.isfinite(one)]
    if len(known) < 2:
        return ""
    step = max(1, math.ceil(len(known) / _POINTS))
    known = [*known[:-1:step], known[-1]]
    low, span = min(known), (max(known) - min(known)) or 1.0
    points = " ".join(
        f"{4 + at * (_WIDE - 8) / (len(known) - 1):.1f},{4 + (_TALL - 8) * (1 - (one - low) / span):.1f}"
        for at, one in enumerate(known)
    )
    line = f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.6"/>'
    said = escape(f"{words}: from {known[0]:.6g} to {known[-1]:.6g}")
    return f'<svg width="{_WIDE}" height="{_TALL}" role="img" aria-label="{said}">{line}</svg><div>{said}</div>'


class TableCell:
    """Shown in a notebook as the table that a terminal shows."""

    def __rich__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} must say which table it is")

    def _repr_html_(self) -> str:
        return of_rich(self.__rich__())


class TextCell:
    """Shown in a notebook as the lines that a terminal shows."""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"
