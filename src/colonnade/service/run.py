"""`colonnade run`: one organisation's part in a job, from its two files to its part of the model on disk."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade import private_files
from colonnade.binning.cells import FineColumn
from colonnade.binning.options import BinningOptions
from colonnade.binning.prepared import cells_of, with_bins
from colonnade.data import labels
from colonnade.errors import ColonnadeError, DataError, InputError, LabelError
from colonnade.families import family
from colonnade.families.checks import warn_after, warn_budget
from colonnade.families.protection import SEALED
from colonnade.families.store import SUFFIX
from colonnade.inference.category_tests import CategoryTest
from colonnade.inference.statistics import Coefficient, Fit, own_table, own_tests, warn_far
from colonnade.jobs import model_file, people
from colonnade.jobs.allowed import check_allowed
from colonnade.jobs.budget import Budget, allowance
from colonnade.jobs.checkpoints import Checkpoints
from colonnade.jobs.consent import hides_all, words_of
from colonnade.jobs.job import Job
from colonnade.jobs.model_file import Prepared, Trained
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.tree_part import grows_trees, own_part
from colonnade.jobs.words import lines, what_others_learn
from colonnade.objective import metrics
from colonnade.objective.decisions import Threshold, chosen, given
from colonnade.objective.losses import loss
from colonnade.progress import History
from colonnade.remote.terms import RunTerms
from colonnade.report import held_out_file
from colonnade.runtimes.net import Net, Outcome
from colonnade.service.attend import attend
from colonnade.service.binned import check_card, save_bins
from colonnade.service.calibrating import calibrated
from colonnade.service.recorded import Recorder
from colonnade.service.start import TERM, same_start, starting
from colonnade.service.training import Keepers, Rows, take_part
from colonnade.settings.settings import Settings
from colonnade.tables import data, preparation
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.table import Table
from colonnade.versions.profile import profiles_of, write_profiles
from colonnade.versions.shelf import Shelf
from colonnade.versions.version import HELD, Version

_LEVEL = 0.95  # of the confidence intervals in statistics.csv


def column_names(learned: LearnedPreparation) -> tuple[str, ...]:
    """Return the names of the prepared columns; of sparse ones without names, their numbers."""
    width = learned.sparse.width if learned.sparse is not None else 0
    return learned.names or tuple(f"x{column}" for column in range(width))


def sources(learned: LearnedPreparation) -> int:
    """Count the columns that the prepared ones were made of: whoever works out one level of a category has it."""
    return len({column.name for column in learned.columns}) or len(column_names(learned))


def how_prepared(job: Job) -> dict[str, bool]:
    """Return how the columns of a job's tables are prepared, where a party's file does not say it."""
    return {"trees": grows_trees(job), "reference": job.statistics, "binned": job.binning is not None}


@dataclass(frozen=True)
class PreparedTable:
    """A table, with what was learned from its training rows."""

    table: Table
    learned: LearnedPreparation
    columns: tuple[str, ...]
    sources: int  # columns that these were made of

    @property
    def categories(self) -> tuple[int, ...]:
        """The numbers of the columns that hold codes of categories."""
        return self.learned.categories

    def matrix(self, rows: Rows) -> Any:
        """Return these rows, prepared."""
        return self.learned.apply(self.table.take(rows))


class TableSource:
    """A party's table in the form that `training` takes.

    `trees` are prepared otherwise than other models, categories whose coefficients are read have a `reference`, and
    `binned` columns become weights of evidence.
    """

    def __init__(
        self,
        table: Table,
        prepare: Settings | None,
        *,
        trees: bool = False,
        reference: bool = False,
        binned: bool = False,
        class_weight: Any = None,
    ) -> None:
        self.table, self._prepare = table, prepare
        self._how = {"trees": trees, "reference": reference, "binned": binned}
        self.class_weight = class_weight
        self.rows, self.ids, self.labels, self.weights = table.rows, table.ids, table.label, table.weight
        self.added = table.added
        self.learned: LearnedPreparation | None = None  # as soon as `prepare` or `binned` was called
        self.trained_on: Rows | None = None  # the rows of the training, by then
        self.cut: list[FineColumn] = []  # where columns have bins
        self.found: Any = None

    @classmethod
    def of(cls, job: Job, party: PartyFile) -> TableSource:
        """Read the table that a party's file describes."""
        weights = party.data["class_weight"]
        return cls(data.load(party.data), party.prepare, **how_prepared(job), class_weight=weights)

    def prepare(self, rows: Rows) -> PreparedTable:
        """Learn the preparation from these rows."""
        self.learned = preparation.fit(self.table, self._prepare, rows, **self._how)
        self.trained_on = rows
        return self._prepared(self.learned)

    def cells(self, rows: Rows, options: BinningOptions) -> list[FineColumn]:
        """Learn the preparation from these rows, as far as a party can alone, and cut columns into fine cells."""
        self.learned = preparation.fit(self.table, self._prepare, rows, **self._how)
        self.trained_on, self.cut = rows, cells_of(self.learned, self.table.take(rows), options)
        return self.cut

    def binned(self, found: Any) -> PreparedTable:
        """Learn the rest of the preparation from the bins that were found of these cells."""
        if self.learned is None:
            raise DataError("bins belong to cells; cut the columns into cells first")
        self.found = found
        self.learned = with_bins(self.learned, self.cut, found)
        if not self.learned.columns:
            where = self.table.where
            raise DataError(f"no column of {where} has bins that stay; lower min_iv under [binning], or leave the job")
        return self._prepared(self.learned)

    def _prepared(self, learned: LearnedPreparation) -> PreparedTable:
        return PreparedTable(self.table, learned, column_names(learned), sources(learned))

    def whole(self) -> LearnedPreparation | None:
        """Learn the preparation from all rows; None where some of these can't be prepared."""
        try:
            return preparation.fit(self.table, self._prepare, **self._how)
        except ColonnadeError:
            return None  # the common ones may do; if they don't, the run ends with the reason

    def digest(self) -> bytes:
        """Return a digest of the ids in their order, to which what was kept belongs."""
        return ids_digest(self.table)


def ids_digest(table: Table) -> bytes:
    """Return a digest of the ids of a table in their order, or of how many rows it has."""
    ids: npt.NDArray[Any] = np.arange(table.rows) if table.ids is None else np.asarray(table.ids)
    found = hashlib.sha256(str(ids.dtype.kind).encode())
    for one in ids.tolist():
        found.update(f"{one!r}\n".encode())
    return found.digest()


@dataclass(frozen=True)
class Done:
    """What a run left behind."""

    path: Path  # of this party's part of the model
    version: Version
    in_use: bool  # whether it is the promoted version now
    trained: Trained
    outcome: Outcome
    history: list[dict[str, Any]]

    @property
    def epochs(self) -> int:
        """How many epochs there were."""
        return max((int(record["epoch"]) for record in self.history if "epoch" in record), default=0)

    @property
    def judged(self) -> dict[str, Any] | None:
        """How good a sealed model is on held-out rows, at the party that was told; None elsewhere."""
        return next((record for record in self.history if "validation_loss" in record), None)

    @property
    def kept(self) -> dict[str, Any] | None:
        """The record of the epoch whose parameters are the model; None at parties that hear no loss."""
        return kept_record(self.history, best=self.trained.best)


def kept_record(history: list[dict[str, Any]], *, best: bool) -> dict[str, Any] | None:
    """Return the record of the best epoch, or of the last one; None where no losses are heard."""
    known = [record for record in history if "loss" in record]
    if not known or not best:
        return known[-1] if known else None
    return min(known, key=lambda record: float(record.get("validation_loss", record["loss"])))


def _tell_of(value: Any, tell: Callable[[str], None]) -> None:
    """Say what a run reports beside how training goes."""
    if value[0] == "resumed":
        tell(f"going on from epoch {value[1]}, which all parties have kept")
    elif value[0] == "budget":
        tell(
            f"the policies of all parties let {value[1]:.0f} numbers about each person out, and training ends "
            f"there at the latest; for more, raise max_directions in [policy] of the party with the least"
        )
    elif value[0] == "warning":
        tell(value[1])
    elif value[0] == "budget spent":
        warn_budget(value[1], value[2])


def run_job(
    job: Job,
    party: PartyFile,
    *,
    verbose: int = 1,
    tell: Callable[[str], None] = lambda _: None,
    mpi: bool = False,
    start: str | None = None,
) -> Done:
    """Take part in a job, and save this party's part of the model.

    start: the beginning of the id of a version to start from, instead of from zero; all parties have to give the same.
    """
    from colonnade.alignment.protocol import align

    check_allowed(job, party)
    first, job = starting(job, party, start)
    kind = family(job.family)
    history = History(metrics.metric_name(loss(job.loss)), kind.rounds(job.training(1)), verbose)

    def read() -> tuple[Any, ...]:
        source = TableSource.of(job, party)
        tell(f"protection {words_of(job)}")
        tell(f"{source.rows:,} rows read")
        known = source.whole()
        if known is not None:
            check_card(job, party.name, known)
            own_part(job, party, column_names(known), known.categories)  # refused before anything is sent
        width = None if known is None else sources(known)
        most = None if width is None else allowance(party.policy.max_directions, width)
        learnt = what_others_learn(job, party.name, width, rows=source.rows, directions_at_most=most)
        for line in lines(learnt, sealed=hides_all(job)):
            tell(line)
        return (source,)

    def own(prepared: Prepared) -> Any:
        if first is not None:
            return first.own(prepared.columns)
        return own_part(job, party, prepared.columns, prepared.categories)

    budget = Budget(party.name, party.policy.max_directions)
    recorder = Recorder(job, party, budget)

    async def program(net: Net, source: Any) -> Any:
        net = recorder.around(net)
        check, kept = partial(party.policy.check_part, party.name), kept_by(job, party, source)
        find = partial(align, max_partner_ids=party.policy.partner_ids(source.rows))
        trained = await take_part(net, job, source, find, check, kept, own, budget)
        told = trained.held_out > 0 and party.name not in job.holders
        # Where nothing was charged, the first use of the model is; what trees tell has limits of its own.
        if job.protection != SEALED or told or not kind.adds_up:
            budget.paid(model_file.digest(job.family, trained.state))
        return source, trained

    def observe(name: str, seconds: float, value: Any) -> None:
        _tell_of(value, tell)
        recorder.observe(value)
        history.observe(name, seconds, value)

    try:
        with same_start(party.name, job):
            outcome = attend(
                job, party, program, read, agreed=job.agreed, observer=observe, mpi=mpi, tell=tell, budget=budget
            )
    finally:
        history.close()
    source, trained = outcome.value
    trained = _with_decisions(job, party, source, replace(trained, judged=history.held_out.get(party.name)), tell)
    version, in_use = keep_version(job, party, source, trained, history.records, recorder, tell)
    for line in save_bins(version.folder, job, party.name, source, trained.state):
        tell(line)
    if known := [record for record in history.records if "loss" in record]:
        warn_after(known, job.algorithm)
    return Done(version.folder / f"{party.name}{SUFFIX}", version, in_use, trained, outcome, history.records)


def _with_decisions(
    job: Job, party: PartyFile, source: TableSource, trained: Trained, tell: Callable[[str], None]
) -> Trained:
    """Return what was trained with the calibration and the threshold that this party's own file asks for."""
    calibration = calibrated(job, party, source.labels, source.weights, trained)
    return replace(trained, calibration=calibration, threshold=decided(job, party, source, trained, tell))


def decided(
    job: Job, party: PartyFile, source: TableSource, trained: Trained, tell: Callable[[str], None]
) -> Threshold | None:
    """Return the threshold that this party's own file asks for, chosen on the held-out rows that it judged by.

    Where these speak for none, the model is kept without, and the party is told.
    """
    by, of = party.decision, loss(job.loss)
    if by is None:
        return None
    if isinstance(by, float):
        return given(by, of)
    if trained.judged is None or trained.apart is None:
        tell("it has seen no score of a held-out row, so no threshold is chosen")
        return None
    rows = trained.apart[np.asarray(trained.judged[0], dtype=np.int64)]
    y = labels.encode(np.asarray(source.labels)[rows], trained.classes, of)
    weights = None if source.weights is None else np.asarray(source.weights, dtype=np.float64)[rows]
    try:
        return chosen(by, of, np.asarray(trained.judged[1], dtype=np.float64), y, weights)
    except (LabelError, InputError) as error:
        tell(f"no threshold is chosen, and decisions are the usual ones: {error}")
        return None


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
    if (profiles := profiles_of(source.table.take(source.trained_on))) is not None:
        write_profiles(folder, profiles)
    limited = recorder is not None and recorder.view is not None and party.policy.max_advantage is not None
    version = Version(trained.training, folder, {**about, HELD: "its audit has not ended"} if limited else about)
    if recorder is not None:
        recorder.keep(folder, trained.training, source, trained, tell)
    version.write()
    _forget(party)
    if limited:
        from colonnade.service.auditing import audit_kept

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

    def state(trained_on: bytes) -> Checkpoints:
        return Checkpoints(party.checkpoints / "state", mine + trained_on, job.checkpoint_every)

    def fit(trained_on: bytes, number: int) -> Checkpoints:
        return Checkpoints(party.checkpoints / "fits" / str(number), mine + trained_on)

    return Keepers(
        Checkpoints(party.checkpoints / "rows", mine), state, Checkpoints(party.checkpoints / "training", mine), fit
    )


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
