"""What a report shows, gathered from the folder of a version and from the party's own ledger; nobody else is asked."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from colonnade import private_files
from colonnade.audit.kept_audit import REHEARSED, read_audit
from colonnade.errors import DataError, LedgerError, OptionError
from colonnade.families import family
from colonnade.inference.statistics import Coefficient
from colonnade.jobs import model_file
from colonnade.jobs.allowed import audit_terms
from colonnade.jobs.budget import allowance
from colonnade.jobs.job import Job
from colonnade.jobs.model_file import ModelPart
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.words import what_others_learn
from colonnade.ledger.lines import seal_file
from colonnade.ledger.verify import verify
from colonnade.objective import losses, metrics
from colonnade.objective.calibration import decided_by
from colonnade.objective.decisions import has_chances
from colonnade.objective.losses import Loss
from colonnade.remote.signatures import checker, vouched_by
from colonnade.report import held_out_file
from colonnade.report.alone import alone
from colonnade.report.contents import (
    AuditLines,
    ColumnLine,
    Folds,
    JudgedPeople,
    LedgerLines,
    MeasuredAttack,
    OwnCoefficient,
    OwnTable,
    ReportContents,
)
from colonnade.report.folds import candidate
from colonnade.report.held_out_file import BEFORE, lowest_taken
from colonnade.report.markup import HELD_OUT, OUT_OF_TIME
from colonnade.report.units import units
from colonnade.streams.loading import load
from colonnade.versions.profile import read_profiles
from colonnade.versions.shelf import Shelf
from colonnade.versions.version import Version

_LEVELS = 8  # categories of a column that are named


def gather(
    job: Job, party: PartyFile, version: str | None = None, later: Path | None = None, threshold: float | None = None
) -> ReportContents:
    """Return all that this party's report shows.

    Parameters
    ----------
    job, party
        The job, and whose report it is.
    version
        The beginning of a version's id; None is the promoted one.
    later
        A file with id, score and label of people of a later period, at a label holder.
    threshold
        From which score on somebody is taken for the second class; None is the model's own.
    """
    part, shelf = model_file.load(party.folder, party.name, version), Shelf(party.folder, party.name)
    found = shelf.promoted() if version is None else shelf.find(version)
    loss, holds = losses.loss(job.loss), party.name in job.holders
    _check(job, party.name, part, holds=holds, later=later, threshold=threshold)
    people, words = _people(party, part, loss, later) if holds else ([], "")
    limit, why = _threshold(loss, threshold, part, people)
    history = _history(part.folder)
    names = [record["metric_name"] for record in history if "metric_name" in record]
    coefficients, table = _own(party.name, part)
    sources = len(part.prepared.columns) or len(part.columns)
    most = allowance(party.policy.max_directions, sources)
    return ReportContents(
        party=party.name, job=job.name, model=part.public["model"], kind=loss.kind,
        probability=loss.name == "logistic", classes=_classes(part) if holds else (),
        facts=_facts(job, part, found), holds_labels=holds, history=history,
        metric=metric_words(names[-1] if names else metrics.metric_name(loss)), people=people,
        folds=_folds(job, part), threshold=limit,
        threshold_words=why, alone_words=words, coefficients=coefficients, table=table, columns=_columns(part.folder),
        shown=what_others_learn(job, party.name, sources, rows=part.public["rows"], directions_at_most=most),
        disclosed=job.disclosed(), ledger=_ledger(job, party), audit=_audit(job, party, part.folder),
    )  # fmt: skip


def _check(job: Job, me: str, part: ModelPart, *, holds: bool, later: Path | None, threshold: float | None) -> None:
    """Refuse what does not fit this party or this model, before any work."""
    if part.public["job"] != job.name:
        raise OptionError(
            f"the model in {part.folder.name!r} is of the job {part.public['job']!r}, not of {job.name!r}"
        )
    for option, given in (("--later", later), ("--threshold", threshold)):
        if given is not None and not holds:
            raise OptionError(f"{option} is for a party that holds labels, and {me!r} holds none; leave it out")
    if threshold is not None and (losses.loss(job.loss).kind != "binary" or not math.isfinite(threshold)):
        raise OptionError(f"--threshold must be a number, for a model of two classes, got {threshold!r}; leave it out")


def _columns(folder: Path) -> list[ColumnLine]:
    """Return how the party's columns were distributed in training, as the version's profile says."""
    found = []
    for name, one in (read_profiles(folder) or {}).items():
        if one.levels is not None:
            ranked = sorted(zip(one.levels, one.counts, strict=False), key=lambda pair: -pair[1])
            levels = tuple((level, count / max(1, one.rows)) for level, count in ranked[:_LEVELS])
            found.append(ColumnLine(name, one.missing_share, (), levels))
        elif one.rows > one.missing:
            tenths = (one.edges[0], one.median, one.edges[-1]) if one.edges else (one.median,) * 3
            found.append(ColumnLine(name, one.missing_share, (one.low, *tenths, one.high), days=one.days))
        else:
            found.append(ColumnLine(name, one.missing_share, (math.nan,) * 5))
    return found


def _classes(part: ModelPart) -> tuple[str, ...]:
    return tuple(str(one) for one in part.classes.tolist())


def _people(party: PartyFile, part: ModelPart, loss: Loss, later: Path | None) -> tuple[list[JudgedPeople], str]:
    """Return the people on whom the model is judged, and how the label holder alone was trained."""
    classes, found, words = list(_classes(part)), [], ""
    path = part.folder / held_out_file.FILE
    if path.exists():
        kept = held_out_file.read(path)
        scores, words = alone(part, kept, loss, lambda: load(party.data, texts=part.prepared.texts, home=party.folder))
        found.append(replace(held_out_file.judged(kept, HELD_OUT, classes, loss, path.name), alone=scores))
    else:
        words = "No people were held out, so there is nobody on whom the two could be compared."
    if later is not None:
        told = held_out_file.read(later, private=False)
        found.append(held_out_file.judged(told, OUT_OF_TIME, classes, loss, later.name))
    return found, words


def _threshold(loss: Loss, given: float | None, part: ModelPart, people: Sequence[JudgedPeople]) -> tuple[float, str]:
    if given is not None:
        return given, "as --threshold says"
    if part.calibration is not None and people:
        shown = people[0].score
        with np.errstate(divide="ignore"):
            z = np.log(shown) - np.log1p(-shown) if has_chances(loss) else shown
        why = "where both classes are equally likely" if part.threshold is None else part.threshold.why
        return lowest_taken(shown, decided_by(z, loss, part.threshold, part.calibration)), f"{why}; {BEFORE}"
    if part.threshold is not None:
        return part.threshold.shown(loss), part.threshold.why
    if loss.name == "logistic":
        return 0.5, "where both classes are equally likely"
    return 0.0, "where the score changes its sign"


def metric_words(name: str) -> str:
    """Return what people call a metric of the history."""
    return {"auc": "AUC", "r2": "R²", "d2": "D²"}.get(name, name)


def _facts(job: Job, part: ModelPart, version: Version) -> list[tuple[str, str]]:
    date = version.date[:16].replace("T", " ")
    found = [("version", version.name), ("trained", f"{date} UTC" if date else "")]
    found += [("of", " and ".join(part.public["parties"])), ("on", f"{part.public['rows']:,} people")]
    held_out = version.about.get("held_out")
    found.append(("with", f"{int(held_out):,} held out" if held_out else ""))
    found.append(("protection", job.protection))
    return [(name, value) for name, value in found if value]


def _history(folder: Path) -> list[dict[str, Any]]:
    """Return the records of all evaluations, as this party heard of them."""
    path = folder / "history.json"
    if not path.exists():
        return []
    try:
        found = json.loads(private_files.read(path, "the history", DataError))
        if not isinstance(found, list) or not all(isinstance(record, dict) for record in found):
            raise ValueError("it is no list of records")
    except ValueError as error:
        raise DataError(f"{path.name!r} can't be read ({error}); restore it from a backup") from None
    return found


def _folds(job: Job, part: ModelPart) -> Folds | None:
    """Return what the version's cross-validation found, as far as this party knows it; None where it had none."""
    path = part.folder / "validation.json"
    if not path.exists():
        return None
    try:
        told = json.loads(private_files.read(path, "the cross-validation", DataError))
        tried = [
            candidate([(str(key), str(value)) for key, value in one["options"].items()], _known(one.get("scores", [])))
            for one in told["candidates"]
        ]
        count, best = int(told["folds"]), int(told["best"])
        if not 0 <= best < len(tried) or any(len(one.scores) not in (0, count) for one in tried):
            raise ValueError("its candidates do not fit")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path.name!r} can't be read ({error}); restore it from a backup") from None
    return Folds(count, str(told["scoring"]), best, tried, job.holders[0], int(part.public["rows"]))


def _known(scores: Sequence[float | None]) -> list[float]:
    return [math.nan if one is None else float(one) for one in scores]


# -- the party's own part ----------------------------------------------------------------------------------------------


def _own(me: str, part: ModelPart) -> tuple[list[OwnCoefficient], OwnTable | None]:
    """Return the coefficients of a linear model of one score, or whatever else its family has to say of itself."""
    kind = family(part.public["family"])
    if kind.name in ("linear", "sealed", "averaged") and part.state[0].shape[1] == 1:
        theta, intercept = part.state[:2]
        steps, known = units(part.prepared, len(part.columns)), _statistics(part.folder)
        values = [(name, float(value[0]), unit) for name, value, unit in zip(part.columns, theta, steps, strict=True)]
        if intercept is not None:
            values.append(("(intercept)", float(np.asarray(intercept).reshape(-1)[0]), "–"))
        # Rows stand in the same order, the intercept last; names might not tell two columns apart.
        known = known if len(known) == len(values) else [None] * len(values)
        return [_coefficient(*one, more) for one, more in zip(values, known, strict=True)], None
    told = kind.describe(me, part.public, part.state, part.columns, part.classes)
    return [], OwnTable(told.title, told.header, told.rows)


def _coefficient(name: str, value: float, unit: str, known: Sequence[float] | None) -> OwnCoefficient:
    """Return a coefficient of the model, with the statistics that belong to it."""
    return OwnCoefficient(name, value, unit) if known is None else OwnCoefficient(name, value, unit, *known)


def _statistics(folder: Path) -> list[list[float] | None]:
    """Return standard error, z, p, low and high of each coefficient, where the job asked for statistics."""
    path = folder / "statistics.csv"
    if not path.exists():
        return []
    text = private_files.read(path, "the statistics", DataError).decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))
    if not rows or tuple(rows[0]) != Coefficient._fields:
        raise DataError(f"{path.name!r} is no table of statistics; restore it from a backup")
    return [[float(cell) for cell in row[2:]] for row in rows[1:]]


def _audit(job: Job, party: PartyFile, folder: Path) -> AuditLines | None:
    """Return the audit of this version, or of a rehearsal of its job; None where there is none."""
    found = read_audit(folder)
    if found is None:
        rehearsed = read_audit(party.folder)
        found = rehearsed if rehearsed is not None and rehearsed.terms == audit_terms(job, party) else None
    if found is None:
        return None
    attacks = [
        MeasuredAttack(
            one.attack, one.paper, one.attacker,
            one.about.removeprefix("your ") + (f", best {one.what}" if one.what else ""), one.had, one.measure,
            one.score, one.floor, one.floor_from, one.advantage, one.is_open(found.threshold), one.closed_by,
        )
        for one in found.findings
    ]  # fmt: skip
    of = "A rehearsal with made-up partners" if found.of == REHEARSED else "The recorded run of this version"
    notes = [*found.notes, *([f"could not be carried out: {found.failed}"] if found.broken else [])]
    nothing, left = sorted({name for _, name in found.untried}), f"{found.left}." if found.left else ""
    return AuditLines(of, found.date, found.threshold, attacks, nothing, left, notes)


def _ledger(job: Job, party: PartyFile) -> LedgerLines | None:
    if not party.ledger.exists() and not seal_file(party.ledger).exists():
        return None
    vouch = vouched_by(party.certificates.authority)
    try:
        found = verify(party.ledger, checker(party.certificates.certificate), vouch=vouch, me=party.name, job=job.name)
    except LedgerError as error:
        return LedgerLines(0, 0, f"It can't be relied on: {error}.", [])
    unsealed = found.lines - found.sealed
    words = "All of them are as they were written"
    words += f"; the last {unsealed:,} are of a run that was broken off, and not sealed." if unsealed else "."
    for partner, line in sorted(found.countersigned.items()):
        words += f" {partner} has countersigned them up to line {line:,}."
    kinds = [(to, kind, count, found.bytes_by_kind[to, kind]) for (to, kind), count in sorted(found.by_kind.items())]
    return LedgerLines(found.lines, found.runs, words, kinds)
