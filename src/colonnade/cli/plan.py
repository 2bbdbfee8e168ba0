"""The table of `colonnade plan`."""

from __future__ import annotations

import math

from colonnade.planning.figures import Forecast, Plan
from colonnade.planning.forecast import Span
from colonnade.planning.plan import reason
from colonnade.progress import human_bytes


def human_seconds(seconds: float) -> str:
    """75 -> '75.0 s', 300 -> '5 min'."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{seconds / 3600:.1f} h"


def show(plan: Plan, me: str, job: str) -> None:
    """Print it as this party sees it."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(title=Text(f"{job}: what a run on {plan.rows:,} rows would take"), title_justify="left")
    for name in ("", "algorithm", "rounds", "bytes", f"of {me}", "time", "above the optimum"):
        table.add_column(Text(name), justify="left" if name in ("", "algorithm") else "right")
    for one in plan.forecasts:
        mark = "*" if one is plan.best else ""
        name = f"{one.name} (the job's)" if one.own else one.name
        sent = (sum(one.sent.values()), one.sent[me])
        cells = (_rounds(one.rounds), *map(human_bytes, sent), _time(one.seconds), _gap(one, plan.rows))
        table.add_row(mark, Text(name), *map(Text, cells))
    console.print(table)
    lines = ", ".join(
        f"{name} {1000 * line.latency:.1f} ms there and back, {human_bytes(line.bandwidth)}/s"
        for name, line in plan.lines.items()
    )
    for text in (
        f"* {reason(plan)}",
        f"lines from {me}: {lines}",
        f"time is that of a whole run, {human_seconds(plan.before)} of it for alignment and preparation; rounds go on "
        "until an algorithm's own rule ends it",
    ):
        console.print(Text(text))


def _rounds(span: Span) -> str:
    likely = f"{span.likely:,.0f}"
    return likely if span.sure else f"{likely} ({span.low:,.0f} to {span.high:,.0f})"


def _time(span: Span) -> str:
    likely = human_seconds(span.likely)
    return likely if span.sure else f"{likely} ({human_seconds(span.low)} to {human_seconds(span.high)})"


def _gap(one: Forecast, rows: int) -> str:
    """As a part of the optimum."""
    if math.isnan(one.gap):
        return "not seen"
    text = "nothing" if one.gap <= 0.0 else f"{one.gap:.0e}"
    return text if one.tried == rows else f"{text} on {one.tried:,} rows"
