"""The first page: what goes on, what is in use, all runs and all versions."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.audit.kept_audit import KeptAudit
from colonnade.dashboard.frame import OFTEN, SELDOM, PageBody
from colonnade.dashboard.party_records import LedgerState, PartyRecords, RunSummary, VersionRecord
from colonnade.dashboard.pieces import (
    Html,
    Links,
    bar,
    block,
    duration,
    element,
    empty,
    joined,
    mark,
    moment,
    number,
    panel,
    size,
    table,
    tile,
    tiles,
    trouble,
    written_date,
)
from colonnade.dashboard.run_course import RunCourse
from colonnade.errors import ColonnadeError
from colonnade.versions.drift import LITTLE, MUCH
from colonnade.versions.identity import short

_RUNS = 20  # that are shown


def overview(records: PartyRecords, links: Links, command: str) -> PageBody:
    """Return the first page; `command` is what follows `colonnade run` for this party."""
    runs, live = records.runs(), records.live()
    try:
        versions, wrong = records.versions(), ""
    except ColonnadeError as error:
        versions, wrong = [], str(error)
    ledger = records.ledger()
    party = records.party.name
    content = joined(
        block("head", element("h1", party), element("p", _job_words(records), kind="lead")),
        block("live", _live(*live, links) if live else ""),
        block("figures", _figures(runs, versions, ledger, records, links)),
        block("versions", panel("Versions", trouble(wrong) if wrong else _versions(versions, links, command))),
        block("runs", panel("Runs", _runs(runs, links, command))),
    )
    return PageBody("Overview", content, "Overview", OFTEN if live else SELDOM)


def _job_words(records: PartyRecords) -> str:
    job, name = records.job, records.party.name
    others = ", ".join(one for one in job.parties if one != name)
    holds = "holds labels" if name in job.holders else "holds no labels"
    if job.hub:  # between sites, who all hold labels
        brings = "brings rows" if name in job.holders else "brings no rows"
        holds = f"asks the others, {brings}" if name == job.hub else f"{job.hub} asks, {brings}"
    return f"{job.name} with {others} · {job.protection} · {holds}"


def _live(name: str, course: RunCourse, links: Links) -> Html:
    loss, rounds = course.latest.get("loss"), course.epoch if course.asks else course.round
    words = [
        f"epoch {course.epoch:,}" if course.epoch is not None and not course.asks else "",
        f"round {rounds:,}" if rounds is not None else "",
        f"loss {number(loss, 5)}" if loss is not None else "",
        f"waiting for {', '.join(course.waited_for)}" if course.waited_for else "",
        f"{size(course.bytes)} sent" if course.bytes else "",
    ]
    if not any(words) and course.phases:
        words = [f"{course.phases[-1].what}: {course.phases[-1].words}"]
    said = " · ".join(filter(None, words)) or "getting ready"
    inside = joined(mark("live"), " ", element("b", str(course.facts.get("job", ""))), " ", element("span", said))
    return element("a", inside, bar(course.part, "how much is done"), kind="strip go", href=links.at("runs", name))


def _figures(
    runs: Sequence[RunSummary],
    versions: Sequence[VersionRecord],
    ledger: LedgerState,
    records: PartyRecords,
    links: Links,
) -> Html:
    used = next((one for one in versions if one.in_use), None)
    found = []
    if used is not None:
        version = used.version
        found.append(tile(links.to(version.name or "unnamed", "versions", _key(used)), "in use", version.date[:10]))
        for name, value in list(version.metrics.items())[-2:]:
            found.append(tile(number(value), name))
    else:
        found.append(tile("none", "version in use"))
    found.append(
        tile(f"{len(runs):,}", "runs kept", "1 version" if len(versions) == 1 else f"{len(versions):,} versions")
    )
    if ledger.report is not None:
        left = sum(ledger.report.bytes_by_kind.values())
        found.append(tile(links.to(size(left), "ledger"), "left in all", ledger_mark(ledger)))
    elif ledger.trouble:
        found.append(tile(links.to("see why", "ledger"), "ledger", ledger_mark(ledger)))
    elif ledger.busy:
        found.append(tile("…", "left in all", ledger_mark(ledger)))
    else:
        found.append(tile("nothing", "left in all"))
    days = records.days()
    if days or records.serving():
        day = max(days, default="")
        asked = sum(count.requests for count in days.get(day, {}).values())
        word = mark("serving", "live") if records.serving() else mark("not serving", "quiet")
        found.append(tile(links.to(f"{asked:,}", "services"), f"requests on {day}" if day else "requests", word))
    return tiles(*found)


def ledger_mark(ledger: LedgerState) -> Html:
    """Return whether the ledger is as it was written, in a word."""
    if ledger.trouble:
        return mark("not verified")
    if ledger.report is None:
        return mark("being verified", "quiet") if ledger.busy else mark("nothing yet", "quiet")
    return mark("verified")


def _key(record: VersionRecord) -> str:
    return record.version.training or "unnamed"


def state_of(record: VersionRecord) -> Html | str:
    """Return whether a version is in use, or held back."""
    return mark("held back") if record.version.held else mark("in use") if record.in_use else ""


def audit_mark(audit: KeptAudit | None) -> Html | str:
    """Return the verdict of an audit in a word."""
    if audit is None:
        return "–"
    return mark("passed") if audit.passed else mark("found too much")


def drift_word(index: float) -> str:
    """Return in a word how far something has moved, as `colonnade drift` says it."""
    return "as before" if index < LITTLE else "moved" if index < MUCH else "drifted"


def _drift_of(record: VersionRecord) -> Html | str:
    if record.drift is None or not record.drift.columns:
        return "–"
    return mark(drift_word(max(one.index for one in record.drift.columns)))


def _versions(versions: Sequence[VersionRecord], links: Links, command: str) -> Html:
    if not versions:
        return empty("There is no version yet: each run that ends well leaves one here.", f"colonnade run {command}")
    rows = []
    for record in versions:
        version = record.version
        held_out = {name: value for name, value in version.metrics.items() if name.startswith("held-out")}
        said = " · ".join(f"{name} {number(value)}" for name, value in (held_out or version.metrics).items())
        rows.append(
            (
                links.to(version.name or "unnamed", "versions", _key(record)),
                state_of(record),
                written_date(version.date),
                f"{version.about['rows']:,}" if isinstance(version.about.get("rows"), int) else "–",
                said or "–",
                audit_mark(record.audit),
                _drift_of(record),
                links.to("report", "versions", _key(record), "report") if record.report else "–",
            )
        )
    header = ("version", "", "trained", "rows", "how well", "audit", "drift", "report")
    return table(header, rows, caption="versions", texts=(0, 1, 2, 4, 5, 6, 7))


def _runs(runs: Sequence[RunSummary], links: Links, command: str) -> Html:
    if not runs:
        return empty(
            "No run has left any events here yet. Start one at every party, and it appears by itself.",
            f"colonnade run {command}",
        )
    rows = []
    for run in runs[:_RUNS]:
        end = run.last.data if run.last is not None else {}
        took = duration(run.last.at - run.first.at) if run.last is not None else "–"
        sent, training = end.get("bytes"), str(end.get("training") or "")
        rows.append(
            (
                links.to(moment(run.first.at), "runs", run.name),
                mark(run.state),
                str(run.first.data.get("job", "")),
                str(run.first.data.get("algorithm", "")),
                str(run.first.data.get("protection", "")),
                took,
                size(sent) if isinstance(sent, int) else "–",
                links.to(short(training), "versions", training) if training else str(end.get("error") or "–"),
            )
        )
    header = ("began", "", "job", "algorithm", "protection", "took", "sent", "came to")
    more = element("p", f"The newest {_RUNS} of {len(runs)}.", kind="quiet") if len(runs) > _RUNS else ""
    return joined(table(header, rows, caption="runs", texts=(0, 1, 2, 3, 4, 7)), more)
