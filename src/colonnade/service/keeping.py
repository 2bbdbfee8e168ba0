"""What a run leaves in its party's folder: a version in the end, and on the way what a broken run goes on from."""

from __future__ import annotations

import csv
import gc
import io
import json
import math
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from colonnade import private_files
from colonnade.errors import DataError
from colonnade.families import family
from colonnade.inference.category_tests import CategoryTest
from colonnade.inference.statistics import Coefficient, Fit, own_table, own_tests, warn_far
from colonnade.inspection.recorded import Recorder
from colonnade.jobs import model_file, people
from colonnade.jobs.checkpoints import MANY_ROWS, Checkpoints
from colonnade.jobs.job import Job
from colonnade.jobs.model_file import Trained
from colonnade.jobs.party_file import PartyFile
from colonnade.objective.losses import loss
from colonnade.remote.terms import RunTerms
from colonnade.report import held_out_file
from colonnade.service.start import TERM
from colonnade.service.table_source import TableSource
from colonnade.service.training import Keepers
from colonnade.tables.learned import LearnedPreparation
from colonnade.versions.profile import profiles_of, write_profiles
from colonnade.versions.shelf import Shelf
from colonnade.versions.version import HELD, Version

_LEVEL = 0.95  # of the confidence intervals in statistics.csv


def kept_record(history: list[dict[str, Any]], *, best: bool) -> dict[str, Any] | None:
    """Return the record of the best epoch, or of the last one; None where no losses are heard."""
    known = [record for record in history if "loss" in record]
    if not known or not best:
        return known[-1] if known else None
    return min(known, key=lambda record: float(record.get("validation_loss", record["loss"])))


def keep_version(
    job: Job,
    party: PartyFile,
    source: TableSource,
    trained: Trained,
    history: list[dict[str, Any]],
    recorder: Recorder | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[Version, bool]:
    """Put what a run has left on the shelf, as a version of its own; return it, and whether it is in use now.

    Where the run was recorded and the policy limits advantages, the version is audited first, and comes into use only
    if the audit finds no more: whatever ends the audit before that holds the version back.
    """
    validated = trained.validated
    whole, job = job, job if validated is None else job.candidate(validated.best)
    shelf = Shelf(party.folder, party.name)
    folder = shelf.place(trained.training)
    about = about_training(job, trained, history)
    if source.learned is None:
        raise DataError(f"party {party.name!r} has prepared no columns")
    model_file.save(folder, job, party.name, trained, source.learned, about)
    people.remember(party, folder, source.ids, trained.people)
    model_file.save_history(folder, history)
    if validated is not None:
        model_file.save_validation(folder, whole, validated)
    held_out_file.save(folder, job, party.name, (source.ids, source.labels, source.weights), trained)
    _save_statistics(folder, job, trained, source.learned)
    if source.rows >= MANY_ROWS:
        gc.collect()  # the columns of the run, whose parts knew each other: they go before all are read once more
    try:
        profiles = profiles_of(source.table.take(source.trained_on), source.learned)
    except DataError as error:  # files that were changed since training: the model is as good as it was
        tell(f"no profile of the columns is kept, so drift can't be seen: {error}")
        profiles = None
    if profiles is not None:
        write_profiles(folder, profiles)
    limited = recorder is not None and recorder.view is not None and party.policy.max_advantage is not None
    version = Version(trained.training, folder, {**about, HELD: "its audit has not ended"} if limited else about)
    if recorder is not None:
        recorder.keep(folder, trained.training, source, trained, tell)
    version.write()
    _forget(party)
    if limited:
        from colonnade.inspection.auditing import audit_kept

        version = audit_kept(whole, party, version, tell)
    return version, not version.held and shelf.ended(version)


def about_training(job: Job, trained: Trained, history: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what `version.json` says: when and how the model was trained, and how well it does, if that is known."""
    record = kept_record(history, best=trained.best) or next((one for one in history if "validation_loss" in one), {})
    metric = str(record.get("metric_name", ""))
    names = {
        "loss": "loss", "metric": metric, "validation_loss": "held-out loss", "validation_metric": f"held-out {metric}",
    }  # fmt: skip
    figures = {name: float(record[key]) for key, name in names.items() if key in record}
    if trained.validated is not None and trained.validated.scores is not None:
        figures[f"cross-validated {job.scoring or 'score'}"] = float(
            trained.validated.scores[trained.validated.best].mean()
        )
    return {
        # so fine that versions which end one after the other have an order
        "date": datetime.now(UTC).isoformat(timespec="microseconds"),
        "job": job.name, "parent": job.agreed.get(TERM, ""),
        "rows": trained.rows, "held_out": trained.held_out, "protection": job.protection,
        "options": {"kind": family(job.family).estimator(job.loss), **asdict(job.model)},
        "algorithm": {"kind": job.algorithm.name, **asdict(job.algorithm)},
        "columns": list(trained.prepared.columns),
        "metrics": {name: value for name, value in figures.items() if math.isfinite(value)},
        **({} if trained.threshold is None else {"decision": trained.threshold.words(loss(job.loss))}),
    }  # fmt: skip


def _forget(party: PartyFile) -> None:
    """Remove what was kept to go on from, as the model is saved."""
    fits = [f"fits/{path.name}" for path in (party.checkpoints / "fits").glob("*")]
    for name in ("rows", "state", "training", *fits):
        Checkpoints(party.checkpoints / name, b"").clear()


def kept_by(job: Job, party: PartyFile, source: TableSource) -> Keepers:
    """Return where the party keeps its rows, by job and ids, and its state, by columns and labels besides."""
    mine = RunTerms.of(job.parties, job.agreed).digest + source.digest()
    apart = MANY_ROWS if party.data["memory"] is None else 0  # where memory is short, nothing is too small for the disk

    def state(trained_on: bytes) -> Checkpoints:
        return Checkpoints(party.checkpoints / "state", mine + trained_on, job.checkpoint_every, apart)

    def fit(trained_on: bytes, number: int) -> Checkpoints:
        return Checkpoints(party.checkpoints / "fits" / str(number), mine + trained_on)

    return Keepers(
        Checkpoints(party.checkpoints / "rows", mine), state, Checkpoints(party.checkpoints / "training", mine), fit
    )


def tags_folder(job: Job, party: PartyFile) -> Path | None:
    """Return where the party keeps what makes the next alignment cheap, if the job says that it does."""
    return party.folder / "alignment" if job.served else None


def _save_statistics(folder: Path, job: Job, trained: Trained, learned: LearnedPreparation) -> None:
    """Write the party's own coefficients, joint tests of its categories, and at the first label holder how all fits."""
    if trained.statistics is None:
        return
    model = family(job.family).estimator(job.loss)
    table, intercept = own_table(trained.prepared.columns, trained.state, trained.statistics, model, _LEVEL)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(Coefficient._fields)
    writer.writerows([*table, *([] if intercept is None else [intercept])])
    private_files.write(folder / "statistics.csv", text.getvalue())
    if levels := learned.levels:
        tests = io.StringIO(newline="")
        writer = csv.writer(tests)
        writer.writerow(CategoryTest._fields)
        writer.writerows(own_tests(levels, trained.state, trained.statistics, model))
        private_files.write(folder / "categories.csv", tests.getvalue())
    if (told := trained.statistics[2]) is not None:
        fit = Fit(*told)
        warn_far(fit, job.holders[0])
        numbers = {"df": fit.df, **asdict(fit)}
        plain = {key: value if math.isfinite(value) else None for key, value in numbers.items()}  # JSON has no NaN
        private_files.write(folder / "statistics.json", json.dumps(plain, indent=1) + "\n")
