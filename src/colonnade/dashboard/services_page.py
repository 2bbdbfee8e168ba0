"""What the party's services were asked: requests and people by day, and how many were refused."""

from __future__ import annotations

from datetime import date, timedelta

from colonnade.dashboard.charts import day_bars
from colonnade.dashboard.frame import PageBody
from colonnade.dashboard.party_records import PartyRecords
from colonnade.dashboard.pieces import block, element, empty, joined, mark, panel, table, tile, tiles

_DAYS, _ROWS = 30, 60


def services_page(records: PartyRecords, command: str) -> PageBody:
    """Return the page about services; `command` is what follows `colonnade serve` for this party."""
    days, serving, job = records.days(), records.serving(), records.job
    rows = records.party.name in job.holders
    by = "of what answers HTTP" if job.hub else "of what answers label holders and of what answers HTTP"
    word = mark("serving", "live") if serving else mark("not serving", "quiet")
    head = block(
        "head", element("h1", "Services ", word),
        element("p", f"Requests by day (UTC), {by}.", kind="lead"),
    )  # fmt: skip
    if not days and job.hub and not rows:
        body = block("days", empty("It brings no rows, so it has nobody to score, and serves nothing."))
        return PageBody("Services", joined(head, body), "Services")
    if not days:
        more = " --http 127.0.0.1:8080" if rows else ""
        body = block(
            "days", empty("No service of this party was asked anything yet.", f"colonnade serve {command}{more}")
        )
        return PageBody("Services", joined(head, body), "Services")
    last = date.fromisoformat(max(days))
    shown = [(last - timedelta(days=back)).isoformat() for back in range(_DAYS - 1, -1, -1)]
    first = min(days)
    counts = [(day, sum(one.requests for one in days.get(day, {}).values())) for day in shown if day >= first]
    whole = [one for asked in days.values() for one in asked.values()]
    by_day = [
        (day, who, f"{one.requests:,}", f"{one.people:,}", f"{one.refused:,}")
        for day in sorted(days, reverse=True)[:_ROWS]
        for who, one in sorted(days[day].items())
    ]
    header = ("day", "asked by", "requests", "people", "refused")
    content = joined(
        head,
        block(
            "figures",
            tiles(
                tile(f"{sum(one.requests for one in whole):,}", "requests", f"on {len(days):,} days"),
                tile(f"{sum(one.people for one in whole):,}", "people asked about"),
                tile(f"{sum(one.refused for one in whole):,}", "refused"),
            ),
        ),
        element(
            "div", block("chart", day_bars("asked", "Requests by day", counts, f"The last {len(counts)} days.")),
            block("days", panel("Day by day", table(header, by_day, caption="requests by day", texts=(0, 1)))),
            kind="cards two",
        ),
    )  # fmt: skip
    return PageBody("Services", content, "Services")
