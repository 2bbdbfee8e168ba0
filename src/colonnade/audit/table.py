"""An audit as a table for a terminal."""

from __future__ import annotations

import io
import shutil
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colonnade.audit.auditing import Audit
    from colonnade.audit.findings import AuditFinding

WIDE = 130  # characters in a row that the table takes
_INDENT = "      "  # behind the advantage
_WHOSE = {"your labels": "labels", "your columns": "columns", "your people": "people"}


def as_text(audit: Audit, width: int | None = None) -> str:
    """Return the findings as text, worst first, with a line below that says what came of it.

    They are a table, or where a terminal is too narrow for it, a sentence each.
    """
    from rich.console import Console

    width = shutil.get_terminal_size((140, 24)).columns if width is None else width
    if width < WIDE:
        lines = [as_line(one, audit.threshold, of=one.target) for one in audit.findings]
        return "\n".join([*(indented(line, width) for line in lines), textwrap.fill(summary(audit), width)])
    out = io.StringIO()
    console = Console(file=out, width=width)
    console.print(as_table(audit))
    return out.getvalue() + summary(audit)


def as_line(one: AuditFinding, threshold: float, of: str = "") -> str:
    """Return a finding in a sentence, for terminals on which its row of the table would be cut into pieces.

    of: the party that it is about, where that is not said before.
    """
    where = _WHOSE.get(one.about, one.about) + (f" of {of}" if of else "") + (f", best {one.what}" if one.what else "")
    had = f", with {one.had}" if one.had else ""
    return (
        f"{one.advantage:.3f} {one.attack} by {one.attacker}{had}, on {where}: {one.measure} {one.score:.3f}, floor "
        f"{one.floor:.3f} from {one.floor_from}; {one.verdict(threshold)}"
    )


def indented(line: str, width: int) -> str:
    """Return a finding's sentence in lines of a width; only the advantage stands at the margin."""
    return textwrap.fill(line, width, subsequent_indent=_INDENT)


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
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("attack", "by", "on", "it had", "best found"):
        table.add_column(name)
    for name in ("score", "floor", "advantage"):
        table.add_column(name, justify="right")
    table.add_column("verdict", overflow="fold")
    for one in audit.findings:
        open_ = one.is_open(audit.threshold)
        cells = (
            f"{one.attack} ({one.paper})", one.attacker, f"{one.target}, {_WHOSE.get(one.about, one.about)}", one.had,
            one.what, f"{one.measure} {one.score:.3f}", f"{one.floor:.3f}", f"{one.advantage:.3f}",
            one.verdict(audit.threshold),
        )  # fmt: skip
        # As text, since the unit in "dose [mg]" is not the name of a colour.
        table.add_row(*map(Text, cells), style="bold" if open_ else "")
    return table
