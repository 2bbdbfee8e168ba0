"""The page of one version: how well it does, this party's own part, its report, its audit and how far data moved."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colonnade import private_files
from colonnade.audit.kept_audit import KeptAudit
from colonnade.dashboard.charts import CurveLine, chart
from colonnade.dashboard.frame import PageBody
from colonnade.dashboard.overview import audit_mark, drift_word, state_of
from colonnade.dashboard.party_records import PartyRecords, VersionRecord
from colonnade.dashboard.pieces import (
    Html,
    Links,
    block,
    element,
    empty,
    facts,
    joined,
    mark,
    number,
    panel,
    table,
    tile,
    tiles,
    trouble,
    written_date,
)
from colonnade.errors import ColonnadeError, DataError
from colonnade.families import family
from colonnade.inspection.differences import facts_of
from colonnade.jobs import model_file
from colonnade.report.svg import part_of
from colonnade.versions.drift_file import KeptDrift
from colonnade.versions.profile import ColumnProfile, read_profiles
from colonnade.versions.shelf import UNNAMED

_HISTORY = "history.json"


def version_page(records: PartyRecords, record: VersionRecord, links: Links, where: str) -> PageBody:
    """Return the page of a version; `where` is what follows a command of this party, such as job.toml --as bank."""
    version = record.version
    name = version.name or UNNAMED
    key = version.training or UNNAMED
    moves = [links.to("compare with another", "compare", b=key)]
    if record.report:
        moves.append(links.to("validation report", "versions", key, "report"))
    head = joined(
        element("h1", f"Version {name} ", state_of(record)),
        element(
            "p", f"trained {written_date(version.date)} · ",
            moves[0], *(part for one in moves[1:] for part in (" · ", one)), kind="lead",
        ),
    )  # fmt: skip
    held = trouble(f"It is held back and not in use: {version.held}.") if version.held else ""
    of_sites = bool(records.job.hub)
    content = joined(
        block("head", head, held, *map(trouble, record.trouble)),
        block("figures", _figures(record, of_sites=of_sites)),
        element("div", *_course(version.folder), block("part", _own_part(records, key)), kind="cards"),
        *(_over_rows(records, record, where) if of_sites else _over_columns(records, record, links, where)),
        block("facts", panel("How it was made", facts(_told(record), sheet=True))),
    )
    return PageBody(f"Version {name}", content, "Overview")


def _over_columns(records: PartyRecords, record: VersionRecord, links: Links, where: str) -> list[Html]:
    name, key = record.version.name or UNNAMED, record.version.training or UNNAMED
    drift = block("drift", panel("Drift", _drift(record.drift, where)))
    report = block("report", panel("Report", _report(record, links, key, where, name)))
    columns = block("profile", panel("Columns in training", _profile(record.version.folder)))
    return [
        block("audit", _audit(records, record, where, name)),
        element("div", drift, report, kind="cards two"),
        columns,
    ]


def _over_rows(records: PartyRecords, record: VersionRecord, where: str) -> list[Html]:
    """Return what there is at a site: a model over rows is neither audited nor reported on."""
    if records.party.name not in records.job.holders:  # who asks without rows has none to compare
        return []
    drift = block("drift", panel("Drift", _drift(record.drift, where)))
    return [drift, block("profile", panel("Columns in training", _profile(record.version.folder)))]


def _own_part(records: PartyRecords, key: str) -> Html:
    return panel("The model" if records.job.hub else "This party's own part", _part(records, key))


def _told(record: VersionRecord) -> list[tuple[str, str]]:
    """Return what its file says of how it was made; an option that is not set says nothing."""
    found = {name: value for name, value in facts_of(record.version).items() if value not in ("", "null")}
    return [
        (name.replace("_", " "), written_date(value) if name == "date" else value)
        for name, value in found.items()
        if not name.startswith("metrics: ")
    ]


def _figures(record: VersionRecord, *, of_sites: bool) -> Html:
    about = record.version.about
    found = [tile(number(value), name) for name, value in record.version.metrics.items()]
    rows, held_out = about.get("rows"), about.get("held_out")
    if isinstance(rows, int) and (rows or not of_sites):  # who asks may have none
        more = f"{held_out:,} held out" if isinstance(held_out, int) and held_out else ""
        found.append(tile(f"{rows:,}", "own rows trained on" if of_sites else "people trained on", more))
    if "protection" in about:
        found.append(tile(about["protection"], "protection"))
    if "decision" in about:
        found.append(tile("set", "threshold", about["decision"]))
    return tiles(*found)


def history_of(folder: Path) -> list[Mapping[str, Any]]:
    """Return the evaluations of a training as they are kept; nothing where there are none, or none can be read."""
    try:
        found = json.loads(private_files.read(folder / _HISTORY, "the history", DataError))
    except (OSError, ValueError, RecursionError, ColonnadeError):
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _course(folder: Path) -> list[Html]:
    history = [record for record in history_of(folder) if "loss" in record]
    if not history:
        return []

    def curve(key: str, kind: str, name: str) -> CurveLine:
        return CurveLine(
            [_number(one, "rounds") for one in history], [_number(one, key) for one in history], kind, name
        )

    metric = str(history[-1].get("metric_name") or "metric")
    drawn = (("loss", "Loss"), ("metric", metric))
    return [
        chart(key, title, [curve(key, "s1", "training"), curve(f"validation_{key}", "s2", "held out")], "rounds")
        for key, title in drawn
    ]


def _number(record: Mapping[str, Any], key: str) -> float:
    value = record.get(key)
    return float(value) if isinstance(value, int | float) else math.nan


def _part(records: PartyRecords, key: str) -> Html:
    try:
        part = model_file.load(records.folder, records.party.name, key)
        kind = family(part.public["family"])
        told = kind.describe(part.party, part.public, part.state, part.columns, part.classes)
    except ColonnadeError as error:
        return trouble(str(error))
    if not told.rows:
        return element("p", told.title)
    texts = (0,) if told.numbers else range(len(told.header))
    return joined(element("p", told.title, kind="quiet"), table(told.header, told.rows, caption="part", texts=texts))


def _audit(records: PartyRecords, record: VersionRecord, where: str, name: str) -> Html:
    """Return the audit of the version; where there is none, that of a rehearsal."""
    title, audit = "What others could find out", record.audit
    try:
        audit = audit or records.rehearsal()
    except ColonnadeError as error:
        return panel(title, trouble(str(error)))
    if audit is None:
        words = "Nobody has audited it yet: what could the others find out about this party?"
        return panel(title, empty(words, f"colonnade audit {where} --version {name}"))
    return panel(title, _findings(audit), about=audit_mark(audit))


def _findings(audit: KeptAudit) -> Html:
    verdict = "it found no more than is allowed" if audit.passed else audit.trouble
    said = f"Of a {audit.of}, made {written_date(audit.date)}: {verdict}."
    rows = [
        (one.attack, one.attacker, one.about, one.what or "–", one.measure, number(one.score, 3), number(one.floor, 3),
         mark(one.verdict(audit.threshold), "bad" if one.advantage > audit.threshold else "good"))
        for one in audit.findings
    ]  # fmt: skip
    header = ("attack", "by", "about", "found best", "measure", "score", "without the run", "verdict")
    shown = table(header, rows, caption="findings", texts=(0, 1, 2, 3, 4, 7)) if rows else ""
    notes = joined(*(element("p", note, kind="quiet") for note in (audit.left, *audit.notes) if note))
    return joined(element("p", said), shown, notes)


def _drift(drift: KeptDrift | None, where: str) -> Html:
    if drift is None:
        return empty("No rows were compared with those of the training yet; serving and predicting do, and so does",
                     f"colonnade drift {where} --data new.csv")  # fmt: skip
    rows = [
        (one.name, number(one.index), mark(drift_word(one.index)), part_of(one.missing_now),
         part_of(one.missing_before), "; ".join(one.misfits + one.new_levels) or "–")
        for one in sorted(drift.columns, key=lambda one: -one.index)
    ]  # fmt: skip
    header = ("column", "index", "", "missing now", "in training", "what does not fit")
    said = f"{drift.rows:,} rows, looked at {written_date(drift.date)}."
    return joined(element("p", said, kind="quiet"), table(header, rows, caption="drift", texts=(0, 2, 5)))


def _profile(folder: Path) -> Html:
    try:
        found = read_profiles(folder)
    except ColonnadeError as error:
        return trouble(str(error))
    if not found:
        return empty("No profile is kept: its table was sparse, or it was trained before there were any.")
    rows = [(name, part_of(one.missing_share), *_spread(one)) for name, one in found.items()]
    return table(("column", "missing", "1 %", "median", "99 %", "levels"), rows, caption="columns", texts=(0, 5))


def _spread(one: ColumnProfile) -> tuple[str, str, str, str]:
    if one.levels is None:
        return (one.written(one.low), one.written(one.median), one.written(one.high), "–")
    total = max(sum(one.counts), 1)
    named = sorted(zip(one.levels, one.counts, strict=False), key=lambda pair: -pair[1])[:5]
    return ("–", "–", "–", ", ".join(f"{level} {part_of(count / total)}" for level, count in named))


def _report(record: VersionRecord, links: Links, key: str, where: str, name: str) -> Html:
    if record.report:
        return element("p", links.to("The validation report", "versions", key, "report"), " is kept with the version.")
    words = "How good is it, in figures and charts? The report is one page, with this party's view alone."
    return empty(words, f"colonnade report {where} --version {name}")
