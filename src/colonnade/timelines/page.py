"""A timeline as one HTML page that needs nothing from elsewhere: lanes to zoom and move in, and what they add up to.

Names and steps are data in the page, which its script puts in as text; nothing of them is ever read as HTML or code.
"""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from typing import TYPE_CHECKING, Any

from colonnade.conventions.palette import DARK, LIGHT, variables
from colonnade.progress import human_bytes
from colonnade.timelines.lanes import asset, short

if TYPE_CHECKING:
    from colonnade.timelines.timeline import Timeline

_ROWS = 12  # of a table
_KEYS = "Lanes of the parties over time; + and - zoom, arrows move, 0 shows all"


def page_of(timeline: Timeline) -> str:
    """Return the page."""
    script = asset("viewer.js")
    # "<" ends no script from within a string, whatever a party or a step is called.
    data = json.dumps(_data(timeline), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    dark = f"@media (prefers-color-scheme:dark){{:root{{{variables(DARK)}}}}}"
    error = f'<p class="bad">The run failed: {escape(timeline.error)}</p>' if timeline.error else ""
    left = f"<p>{timeline.left_out:,} further entries were not kept.</p>" if timeline.left_out else ""
    lost = f", {len(timeline.lost):,} of them lost" if timeline.lost else ""
    facts = f"{len(timeline.parties)} parties, {short(timeline.seconds)} of virtual time"
    facts += f", {len(timeline.messages):,} messages{lost}"
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Who worked, waited and sent what</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>:root{{{variables(LIGHT)}}}{dark}{asset('page.css')}</style></head><body><main>"
        f"<h1>Who worked, waited and sent what</h1><p>{facts}.</p>{error}{left}"
        f'<div class="view"><div class="bar"><span><i class="s1"></i>contributions</span>'
        f'<span><i class="s2"></i>updates</span><span><i class="bad"></i>lost</span>'
        f'<button type="button" id="in">+</button><button type="button" id="out">−</button>'
        f'<button type="button" id="all">all</button><span class="told" id="told"></span></div>'
        f'<canvas id="lanes" tabindex="0" aria-label="{_KEYS}"></canvas><div class="tip" id="tip" hidden></div></div>'
        f'<div class="tables">{_shares(timeline)}{_sent(timeline)}{_waits(timeline)}</div></main>'
        f'<script type="application/json" id="data">{data}</script><script>{script}</script></body></html>'
    )


def _data(timeline: Timeline) -> dict[str, Any]:
    """Return what the script draws: columns of numbers, and names by their places in lists."""
    party = {name: place for place, name in enumerate(timeline.parties)}
    steps: dict[str, int] = {}
    for step in (*(one.step for one in timeline.messages), *(one.step for one in timeline.waits)):
        steps.setdefault(step, len(steps))

    def rounded(second: float | None) -> float | None:
        return None if second is None else float(f"{second:.9g}")

    return {
        "parties": timeline.parties,
        "seconds": timeline.seconds,
        "ends": [timeline.ends.get(name, timeline.seconds) for name in timeline.parties],
        "steps": list(steps),
        "work": [[party[o.party], int(o.lane == "backward"), rounded(o.start), rounded(o.end)] for o in timeline.work],
        "waits": [
            [party[o.party], party[o.sender], steps[o.step], rounded(o.start), rounded(o.end)] for o in timeline.waits
        ],
        "messages": [
            [party[o.sender], party[o.receiver], steps[o.step], o.bytes, rounded(o.sent), rounded(o.arrived)]
            for o in timeline.messages
        ],
        "marks": [
            [rounded(o.at), o.epoch, o.round, f"{o.loss:.6g}", f"{o.metric:.4g}"] for o in timeline.marks
        ],
    }  # fmt: skip


def _shares(timeline: Timeline) -> str:
    rows = []
    for party, times in timeline.times.items():
        total = times.total or 1.0
        a, b = 100 * times.computing / total, 100 * times.communicating / total
        bars = "".join(f'<b class="{one}" style="width:{part:.2f}%"></b>' for one, part in (("s1", a), ("s3", b)))
        cells = "".join(f"<td>{one:.1f} %</td>" for one in (a, b, 100 * times.waiting / total))
        bar = f'<td><div class="share">{bars}</div></td>'
        rows.append(f"<tr><td>{escape(party)}</td>{bar}{cells}<td>{short(times.total)}</td></tr>")
    heads = "<th>party</th><th></th><th>computing</th><th>on the way</th><th>waiting</th><th>in all</th>"
    return _table("Time", "On the way: no work, and a message to the party was under way.", heads, rows)


def _waits(timeline: Timeline) -> str:
    longest = sorted(timeline.waits, key=lambda one: one.start - one.end)[:_ROWS]
    rows = [
        f'<tr><td>{escape(o.party)}</td><td class="text">{escape(o.sender)}</td><td class="text">{escape(o.step)}</td>'
        f"<td>{short(o.start)}</td><td>{short(o.end - o.start)}</td></tr>"
        for o in longest
    ]
    heads = '<th>who</th><th class="text">for whom</th><th class="text">step</th><th>from</th><th>for</th>'
    return _table("Longest waits", "Listeners, who may rightly hear nothing for long, are among them.", heads, rows)


def _sent(timeline: Timeline) -> str:
    pairs = sorted(timeline.sent_by_pair().items(), key=lambda one: -one[1][1])[: 4 * _ROWS]
    rows = [
        f'<tr><td>{escape(frm)}</td><td class="text">{escape(to)}</td><td>{count:,}</td>'
        f"<td>{human_bytes(size)}</td></tr>"
        for (frm, to), (count, size) in pairs
    ]
    heads = '<th>from</th><th class="text">to</th><th>messages</th><th>size</th>'
    return _table("Messages", "Everything that left a party, control messages too.", heads, rows)


def _table(title: str, words: str, heads: str, rows: list[str]) -> str:
    body = f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    return f"<section><h2>{title}</h2><p>{words}</p>{body}</section>" if rows else ""
