"""An audit as a table for a terminal."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colonnade.audit.auditing import Audit

_WHOSE = {"your labels": "labels", "your columns": "columns", "your people": "people"}


def as_text(audit: Audit, width: int = 140) -> str:
    """Return the table as text, worst first, with a line below that says what came of it."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, width=width)
    console.print(as_table(audit))
    return out.getvalue() + summary(audit)


def summary(audit: Audit) -> str:
    """Say in a sentence what came of it."""
    if not audit.findings:
        return "no attack had anything to go by"
    count, largest = sum(one.is_open(audit.threshold) for one in audit.findings), f"the largest is {audit.worst:.3f}"
    if not count:
        return f"no attack has an advantage above {audit.threshold:g} over not having seen the run; {largest}"
    who = "1 attack has" if count == 1 else f"{count} attacks have"
    return f"{who} an advantage above {audit.threshold:g} over not having seen the run; {largest}"


def as_table(audit: Audit) -> Any:
    """Return the findings as a table of `rich`."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("attack", "by", "on", "it had", "best found"):
        table.add_column(name)
    for name in ("score", "floor", "advantage"):
        table.add_column(name, justify="right")
    table.add_column("verdict", overflow="fold")
    for one in audit.findings:
        open_ = one.is_open(audit.threshold)
        table.add_row(
            f"{one.attack} ({one.paper})", one.attacker, f"{one.target}, {_WHOSE.get(one.about, one.about)}", one.had,
            one.what, f"{one.measure} {one.score:.3f}", f"{one.floor:.3f}", f"{one.advantage:.3f}",
            one.verdict(audit.threshold), style="bold" if open_ else "",
        )  # fmt: skip
    return table
