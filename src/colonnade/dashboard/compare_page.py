"""Two versions side by side: how well they do, what differs in their jobs, and this party's own part in both."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from colonnade.dashboard.charts import CurveLine, chart
from colonnade.dashboard.frame import PageBody
from colonnade.dashboard.overview import state_of
from colonnade.dashboard.party_records import PartyRecords, VersionRecord
from colonnade.dashboard.pieces import (
    Html,
    Links,
    block,
    element,
    empty,
    joined,
    number,
    panel,
    table,
    trouble,
    written_date,
)
from colonnade.dashboard.version_page import history_of
from colonnade.errors import ColonnadeError
from colonnade.inspection.differences import facts_that_differ, part_of_version
from colonnade.versions.shelf import UNNAMED

_NAME, _GAP = 7, "\N{NO-BREAK SPACE}" * 3  # letters of a version in a legend; its digits are wider than letters
_LESS_IS_BETTER = ("loss", "rmse", "mae", "deviance", "error", "pinball")


def compare_page(records: PartyRecords, links: Links, first: str, second: str, command: str) -> PageBody:
    """Return the page about two versions; where none are named, about the newest two, or the one in use and another."""
    title, place = "Compare", "Compare"
    known = records.versions()
    if len(known) < 2:
        words = "Two versions can be compared, and there is " + ("one." if known else "none yet.")
        content = joined(
            element("h1", "Compare"), empty(f"{words} Another run makes another.", f"colonnade run {command}")
        )
        return PageBody(title, content, place)  # fmt: skip
    a, b = _chosen(known, first, second)
    head = joined(element("h1", "Compare"), _form(known, a, b, links))
    if a is b:
        return PageBody(title, joined(head, element("p", "These are the same version.", kind="quiet")), place)
    try:
        facts = facts_that_differ(a.version, b.version)
        parts = [part_of_version(records.party, one.version) for one in (a, b)]
        wrong = ""
    except ColonnadeError as error:
        facts, parts, wrong = [], [{}, {}], str(error)
    names = tuple(_name(one) for one in (a, b))
    jobs = [
        (what, *map(written_date, pair)) if what == "date" else (what, *pair)
        for what, *pair in facts if not what.startswith("metrics: ")
    ]  # fmt: skip
    content = joined(
        head,
        trouble(wrong) if wrong else "",
        element("div", block("metrics", panel("How well they do", _metrics(a, b, names))), *_courses(a, b, names),
                kind="cards"),
        block("parts", panel("This party's own part", _parts(parts, names))),
        block("jobs", panel("What differs in how they were made", _table(("what", *names), jobs))),
    )  # fmt: skip
    return PageBody(title, content, place)


def _chosen(known: Sequence[VersionRecord], first: str, second: str) -> tuple[VersionRecord, VersionRecord]:
    by_name = {_key(one): one for one in known}
    b = by_name.get(second) or by_name.get(first) or known[0]
    used = next((one for one in known if one.in_use and one is not b), None)
    others = [one for one in known if one is not b]
    a = by_name.get(first) if second in by_name else None
    return a or used or others[0], b


def _key(record: VersionRecord) -> str:
    return record.version.training or UNNAMED


def _name(record: VersionRecord) -> str:
    return record.version.name or UNNAMED


def _form(known: Sequence[VersionRecord], a: VersionRecord, b: VersionRecord, links: Links) -> Html:
    def choice(key: str, label: str, chosen: VersionRecord) -> Html:
        options = "".join(
            f'<option value="{escape(_key(one))}"{" selected" if one is chosen else ""}>{escape(_name(one))}, '
            f"{escape(written_date(one.version.date))}{', in use' if one.in_use else ''}</option>"
            for one in known
        )
        return element("label", label, " ", Html(f'<select name="{key}">{options}</select>'))

    return element(
        "form", choice("a", "this", a), choice("b", "with this", b), element("button", "Compare", type="submit"),
        action=links.at("compare"), method="get", kind="choose",
    )  # fmt: skip


def _metrics(a: VersionRecord, b: VersionRecord, names: Sequence[str]) -> Html:
    first, second = a.version.metrics, b.version.metrics
    if not first and not second:
        return empty("This party knows no figure of either: the first label holder hears how well a model does.")
    rows = []
    for key in dict.fromkeys((*first, *second)):
        one, other = first.get(key), second.get(key)
        change: Html | str = "–"
        if one is not None and other is not None:
            better = (other < one) == any(word in key for word in _LESS_IS_BETTER)
            sign = "+" if other > one else ""
            kind = "quiet" if other == one else "good" if better else "bad"
            change = element("span", f"{sign}{number(other - one)}", kind=f"change {kind}")
        rows.append((key, number(one), number(other), change))
    rows.append(("state", state_of(a), state_of(b), ""))
    short_names = (name[:_NAME] for name in names)
    return table(("figure", *short_names, "change"), rows, caption="figures of both")


def _courses(a: VersionRecord, b: VersionRecord, names: Sequence[str]) -> list[Html]:
    found = []
    for key, title in (("loss", "Loss"), ("validation_loss", "Loss of held-out people")):
        series = []
        for record, name, kind in zip((a, b), names, ("s1", "s2"), strict=True):
            history = [one for one in history_of(record.version.folder) if isinstance(one.get(key), int | float)]
            rounds = [float(one.get("rounds") or 0) for one in history]
            series.append(CurveLine(rounds, [float(one[key]) for one in history], kind, f"{name[:_NAME]}{_GAP}"))
        if any(len(one.x) > 1 for one in series):
            found.append(chart(f"both-{key.replace('_', '-')}", title, series, "rounds"))
    return found


def _parts(parts: Sequence[dict[str, str]], names: Sequence[str]) -> Html:
    one, other = parts
    rows = []
    for key in dict.fromkeys((*one, *other)):
        pair = one.get(key, "–"), other.get(key, "–")
        rows.append((key, *pair, _change(*pair)))
    return _table(("column", *names, "change"), rows)


def _change(one: str, other: str) -> str:
    try:
        change = float(other.replace("−", "-")) - float(one.replace("−", "-"))
    except ValueError:
        return "" if one == other else "differs"
    return "" if one == other else f"{'+' if change > 0 else ''}{number(change)}"


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> Html:
    if not rows:
        return element("p", "Nothing.", kind="quiet")
    return table(header, rows, caption=header[0])
