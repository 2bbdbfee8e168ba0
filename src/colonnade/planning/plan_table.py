"""A plan as a table: a line for each algorithm, with what a run would take."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from colonnade.planning.forecast import Span
from colonnade.progress import human_bytes

if TYPE_CHECKING:
    from colonnade.planning.figures import Forecast, Plan


def as_table(plan: Plan, me: str = "", job: str = "") -> Any:
    """Return the forecasts as a table of `rich`, with what the party `me` would send in a column of its own."""
    from rich.table import Table
    from rich.text import Text

    title = f"{f'{job}: ' if job else ''}what a run on {plan.rows:,} rows would take"
    table = Table(title=Text(title), title_justify="left")
    for name in ("", "algorithm", "rounds", "bytes", *([f"of {me}"] if me else []), "time", "above the optimum"):
        table.add_column(Text(name), justify="left" if name in ("", "algorithm") else "right")
    for one in plan.forecasts:
        mark = "*" if one is plan.best else ""
        name = f"{one.name} (the job's)" if one.own else one.name + ("" if one.tried else f", {one.protection}")
        sent = (sum(one.sent.values()), *([one.sent[me]] if me else []))
        cells = (_rounds(one.rounds), *map(human_bytes, sent), _time(one.seconds), _gap(one, plan.rows))
        table.add_row(mark, Text(name), *map(Text, cells))
    return table


def human_seconds(seconds: float) -> str:
    """Write a duration for people: 75 is '75.0 s', 300 is '5 min'."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{seconds / 3600:.1f} h"


def _rounds(span: Span) -> str:
    likely = f"{span.likely:,.0f}"
    return likely if span.sure else f"{likely} ({span.low:,.0f} to {span.high:,.0f})"


def _time(span: Span) -> str:
    likely = human_seconds(span.likely)
    return likely if span.sure else f"{likely} ({human_seconds(span.low)} to {human_seconds(span.high)})"


def _gap(one: Forecast, rows: int) -> str:
    """Write how far above the optimum an algorithm ends, relative to it."""
    if not one.tried:
        return "not tried"
    if math.isnan(one.gap):
        return "not seen"
    text = "nothing" if one.gap <= 0.0 else f"{one.gap:.0e}"
    return text if one.tried == rows else f"{text} on {one.tried:,} rows"
