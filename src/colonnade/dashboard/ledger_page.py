"""What has left the party: by partner and kind, run by run, and whether the ledger that says so can be believed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from colonnade.dashboard.frame import PageBody
from colonnade.dashboard.overview import ledger_mark
from colonnade.dashboard.party_records import LedgerState, PartyRecords
from colonnade.dashboard.pieces import (
    Html,
    bar,
    block,
    clock_time,
    element,
    empty,
    facts,
    joined,
    mark,
    panel,
    size,
    table,
    trouble,
    written_date,
)
from colonnade.jobs.policy import kind_of
from colonnade.jobs.words import what_kinds_show
from colonnade.ledger.verify import Report

_RUNS = 12  # that are shown
_PATIENCE = 0.3  # seconds to wait for a verification, before the page says that it goes on


def ledger_page(records: PartyRecords, command: str) -> PageBody:
    """Return the page of the ledger; `command` is what follows `colonnade run` for this party."""
    ledger = records.ledger(wait=_PATIENCE)
    head = joined(element("h1", "Ledger ", ledger_mark(ledger)), element("p", _words(records, ledger), kind="lead"))
    wrong = trouble(ledger.trouble) if ledger.trouble else ""
    if ledger.report is None:
        words = f"Nothing has left {records.party.name} yet: there is no ledger."
        body = "" if ledger.trouble or ledger.busy else empty(words, f"colonnade run {command}")
        return PageBody("Ledger", joined(block("head", head, wrong), block("left", body)), "Ledger")
    report, shows = ledger.report, what_kinds_show(records.job)
    content = joined(
        block("head", head, wrong),
        block("left", _by_kind(report, shows), kind="stack"),
        block("runs", panel("Run by run", _by_run(report))),
        block("witnesses", panel("Countersigned", _witnesses(report))),
    )
    return PageBody("Ledger", content, "Ledger")


def _words(records: PartyRecords, ledger: LedgerState) -> Html:
    if ledger.report is None:
        return element("span", "It is being verified." if ledger.busy else "")
    report = ledger.report
    unsealed = report.lines - report.sealed
    note = (
        f"; the last {unsealed:,} lines are of a run that goes on or was broken off, and not sealed" if unsealed else ""
    )
    grown = " It has grown since, and is verified again." if ledger.busy else ""
    runs = "1 run" if report.runs == 1 else f"{report.runs:,} runs"
    whole = f"{records.party.ledger.name}: {report.lines:,} lines of {runs}, all as they were written{note}."
    return element("span", whole, " Verified at ", clock_time(ledger.at), f".{grown}")


def _grouped(messages: Mapping[tuple[str, str], int]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for (to, step), count in messages.items():
        found[to, kind_of(step)] += count
    return found


def _by_kind(report: Report, shows: Mapping[str, str]) -> Html:
    counts, sizes = _grouped(report.by_kind), _grouped(report.bytes_by_kind)
    if not counts:
        return panel("What left", empty("No message has left yet."))
    found = []
    for to in sorted({to for to, _ in counts}):
        kinds = sorted((kind for name, kind in counts if name == to), key=lambda kind: -sizes[to, kind])
        whole, messages = sum(sizes[to, kind] for kind in kinds), sum(counts[to, kind] for kind in kinds)
        rows = [
            (kind, bar(sizes[to, kind] / max(whole, 1), f"the share of {kind}"), size(sizes[to, kind]),
             f"{counts[to, kind]:,}", shows.get(kind, "–"))
            for kind in kinds
        ]  # fmt: skip
        header, about = ("kind", "", "bytes", "messages", "what it shows"), f"{size(whole)} in {messages:,} messages"
        shown = table(header, rows, caption=f"what left for {to}", texts=(0, 1, 4), units={2: "", 3: "messages"})
        found.append(panel(f"What left for {to}", shown, about=element("span", about, kind="quiet")))
    return joined(*found)


def _by_run(report: Report) -> Html:
    found = [run for run in report.each if run.sent]
    if not found:
        return empty("No message has left in any run yet.")
    rows = []
    lacking = {run.number: partners for run, partners in report.uncountersigned}
    for run in reversed(found[-_RUNS:]):
        partners = ", ".join(lacking.get(run.number, ()))
        seen = mark(f"not by {partners}", "warn") if partners else mark("by all", "good")
        rows.append(
            (f"{run.number:,}", written_date(run.time), run.purpose or "training",
             f"{sum(run.sent.values()):,}", size(sum(run.sent_bytes.values())), seen)
        )  # fmt: skip
    header = ("run", "began", "for", "messages", "bytes", "countersigned")
    more = element("p", f"The newest {_RUNS} of {len(found)} runs.", kind="quiet") if len(found) > _RUNS else ""
    return joined(table(header, rows, caption="runs in the ledger", texts=(0, 1, 2, 5)), more)


def _witnesses(report: Report) -> Html:
    if not report.countersigned:
        return element(
            "p", "No partner has countersigned anything yet; they do so at the end of each run.", kind="quiet"
        )
    doubts = joined(*(element("p", doubt, kind="quiet") for doubt in report.doubts))
    rows = [(f"by {name}", f"up to line {line:,}") for name, line in sorted(report.countersigned.items())]
    return joined(facts(rows), doubts)
