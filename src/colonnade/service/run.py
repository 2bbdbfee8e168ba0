"""`colonnade run`: one organisation's part in a job, from its two files to its part of the model on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import ColonnadeError
from colonnade.estimators.checks import warn_budget, warn_diverged, warn_unfinished
from colonnade.jobs import model_file, people, statistics_file
from colonnade.jobs.budget import Budget, allowance
from colonnade.jobs.checkpoints import Checkpoints
from colonnade.jobs.job import Job
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.words import lines, what_others_learn
from colonnade.objective import metrics
from colonnade.objective.losses import loss
from colonnade.progress import History
from colonnade.remote.terms import RunTerms
from colonnade.runtimes.net import Net, Outcome
from colonnade.service.attend import attend
from colonnade.service.training import Keepers, Rows, Trained, take_part
from colonnade.settings.settings import Settings
from colonnade.tables import data, preparation
from colonnade.tables.prepared import Prepared
from colonnade.tables.table import Table


def column_names(learned: Prepared) -> tuple[str, ...]:
    """Names of the prepared columns; of sparse ones without names, their numbers."""
    width = learned.sparse.width if learned.sparse is not None else 0
    return learned.names or tuple(f"x{column}" for column in range(width))


def sources(learned: Prepared) -> int:
    """How many columns the prepared ones were made of: to work out one level of a category is to work it out."""
    return len(learned.columns) or len(column_names(learned))


@dataclass(frozen=True)
class PreparedTable:
    """A table with what was learned on its training rows."""

    table: Table
    learned: Prepared
    columns: tuple[str, ...]
    sources: int  # columns that these were made of

    def matrix(self, rows: Rows) -> Any:
        """These rows, prepared."""
        return self.learned.apply(self.table.take(rows))


class TableSource:
    """A party's table, as `training` takes it."""

    def __init__(self, table: Table, prepare: Settings | None) -> None:
        self.table, self._prepare = table, prepare
        self.rows, self.ids, self.labels = table.rows, table.ids, table.label
        self.learned: Prepared | None = None  # as soon as `prepare` was called

    def prepare(self, rows: Rows) -> PreparedTable:
        """Learn the preparation on these rows."""
        self.learned = preparation.fit(self.table, self._prepare, rows)
        names = column_names(self.learned)
        return PreparedTable(self.table, self.learned, names, sources(self.learned))

    def width(self) -> int | None:
        """How many columns there are, by all rows; None where some of these can't be prepared."""
        try:
            return sources(preparation.fit(self.table, self._prepare))
        except ColonnadeError:
            return None  # the common ones may do; if they don't, the run ends with the reason

    def digest(self) -> bytes:
        """Of the ids: what was kept belongs to these, in this order."""
        ids: npt.NDArray[Any] = np.arange(self.rows) if self.ids is None else np.asarray(self.ids)
        found = hashlib.sha256(str(ids.dtype.kind).encode())
        for one in ids.tolist():
            found.update(f"{one!r}\n".encode())
        return found.digest()


@dataclass(frozen=True)
class Done:
    """What a run left behind."""

    path: Path  # of this party's part of the model
    trained: Trained
    outcome: Outcome
    history: list[dict[str, Any]]

    @property
    def epochs(self) -> int:
        """How many there were."""
        return max((int(record["epoch"]) for record in self.history if "epoch" in record), default=0)

    @property
    def kept(self) -> dict[str, Any] | None:
        """The record of the epoch whose parameters are the model; None at parties that hear no loss."""
        known = [record for record in self.history if "loss" in record]
        if not known or not self.trained.best:
            return known[-1] if known else None
        return min(known, key=lambda record: float(record.get("validation_loss", record["loss"])))


def run_job(
    job: Job, party: PartyFile, *, verbose: int = 1, tell: Callable[[str], None] = lambda _: None, mpi: bool = False
) -> Done:
    """Take part in a job, and save this party's part of the model."""
    from colonnade.alignment.protocol import align

    party.policy.check_shown(party.name, job.algorithm.name, job.disclosed())
    history = History(metrics.METRICS[loss(job.loss).kind], job.algorithm.epochs, verbose)

    def read() -> tuple[Any, ...]:
        source = TableSource(data.load(party.data), party.prepare)
        tell(f"{source.rows:,} rows read")
        width = source.width()
        most = None if width is None else allowance(party.policy.max_directions, width)
        for line in lines(what_others_learn(job, party.name, width, rows=source.rows, directions_at_most=most)):
            tell(line)
        return (source,)

    budget = Budget(party.name, party.policy.max_directions)

    async def program(net: Net, source: Any) -> Any:
        check, kept = partial(party.policy.check_part, party.name), kept_by(job, party, source)
        find = partial(align, max_partner_ids=party.policy.partner_ids(source.rows))
        trained = await take_part(net, job, source, find, check, kept, party.network, budget)
        budget.paid(model_file.digest(model_file.combines(job), trained.state))
        return source, trained

    def observe(name: str, seconds: float, value: Any) -> None:
        if value[0] == "resumed":
            tell(f"going on from epoch {value[1]}, which all parties have kept")
        elif value[0] == "budget":
            tell(
                f"the policies of all parties let {value[1]:.0f} numbers about each person out, and training ends "
                f"there at the latest; for more, raise max_directions in [policy] of the party with the least"
            )
        elif value[0] == "budget spent":
            warn_budget(value[1], value[2])
        history.observe(name, seconds, value)

    try:
        outcome = attend(
            job, party, program, read, agreed=job.agreed, observer=observe, mpi=mpi, tell=tell, budget=budget
        )
    finally:
        history.close()
    source, trained = outcome.value
    path = model_file.save(party.folder, job, party.name, trained, source.learned)
    people.remember(party, source.ids, trained.people)
    model_file.save_history(party.folder, history.records)
    statistics_file.save(party.folder, job, trained)
    if known := [record for record in history.records if "loss" in record]:
        warn_diverged(known, job.algorithm.schedule == "adaptive")
        if job.algorithm.tol is not None:
            warn_unfinished(known, job.algorithm.epochs, job.algorithm.worthwhile)
    for name in ("rows", "state"):
        Checkpoints(party.checkpoints / name, b"").clear()  # the model is saved: nothing to go on from
    return Done(path, trained, outcome, history.records)


def kept_by(job: Job, party: PartyFile, source: TableSource) -> Keepers:
    """Where the party keeps its rows, of this job on these ids, and its state, of the columns and labels besides."""
    mine = RunTerms.of(job.parties, job.agreed).digest + source.digest()

    def state(trained_on: bytes) -> Checkpoints:
        return Checkpoints(party.checkpoints / "state", mine + trained_on, job.checkpoint_every)

    return Keepers(Checkpoints(party.checkpoints / "rows", mine), state)
