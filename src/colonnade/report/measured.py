"""What others could find out about the party, measured: its audit as a section of the page."""

from __future__ import annotations

from colonnade.report.contents import AuditLines, MeasuredAttack, ReportContents
from colonnade.report.markup import bullets, card, fixed, grid, table

HEADING = "What others could find out, measured"
_READ = (
    "Each attack stands beside its floor: what shuffled people give, or what the attacker would have known without the "
    "run. The advantage is the part of what the floor leaves to find that was found: 0 is nothing, 1 is all of it."
)


def measured(of: ReportContents) -> str:
    """Return the party's audit as HTML; nothing where none was made."""
    found = of.audit
    if found is None:
        return ""
    said = [f"{found.of}, {found.date.replace('T', ' ')[:16]} UTC. {_verdict(found)}", found.left]
    return grid(
        card("In short", "", " ".join(one for one in said if one), bullets(found.notes), wide=True),
        _card("Open", found, [one for one in found.attacks if one.open], closed=False),
        _card("Closed", found, [one for one in found.attacks if not one.open], closed=True),
        card("Nothing to go by", "", "", bullets(found.nothing)) if found.nothing else "",
    )


def _verdict(found: AuditLines) -> str:
    count = sum(one.open for one in found.attacks)
    if not found.attacks:
        return "No attack had anything to go by."
    if not count:
        return f"No attack has an advantage above {found.threshold:g}."
    who = "1 attack has" if count == 1 else f"{count} attacks have"
    return f"{who} an advantage above {found.threshold:g}."


def _card(title: str, found: AuditLines, attacks: list[MeasuredAttack], *, closed: bool) -> str:
    if not attacks:
        return ""
    header = ["attack", "advantage", "score", "floor", "by", "closed by" if not closed else "if it were open"]
    rows = [
        [
            f"{one.attack} ({one.paper}), on {one.on}{f', with {one.had}' if one.had else ''}",
            fixed(one.advantage, 3), f"{one.measure} {fixed(one.score, 3)}",
            f"{fixed(one.floor, 3)}, {one.floor_from}", one.by, one.closed_by,
        ]
        for one in attacks
    ]  # fmt: skip
    return card(title, "", _READ if not closed else "", table(header, rows, caption=title, long=5), wide=True)
