"""`colonnade run`: one organisation's part in a job, from its two files to its part of the model on disk."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from colonnade import __version__
from colonnade.binning.options import unweighed
from colonnade.data import labels
from colonnade.errors import InputError, LabelError
from colonnade.events.run_events import RunEvents
from colonnade.events.watchers import Watcher
from colonnade.families import family
from colonnade.families.checks import warn_after, warn_budget
from colonnade.families.protection import SEALED
from colonnade.families.store import SUFFIX
from colonnade.inspection.recorded import Recorder
from colonnade.jobs import model_file
from colonnade.jobs.allowed import check_allowed, job_digest
from colonnade.jobs.budget import Budget, allowance
from colonnade.jobs.consent import hides_all, words_of
from colonnade.jobs.job import Job
from colonnade.jobs.model_file import Prepared, Trained
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.tree_part import own_part
from colonnade.jobs.words import lines, what_others_learn
from colonnade.objective import metrics
from colonnade.objective.decisions import Threshold, chosen, given
from colonnade.objective.losses import loss
from colonnade.progress import History
from colonnade.runtimes.net import Net, Outcome
from colonnade.service.attend import attend
from colonnade.service.binned import check_card, save_bins
from colonnade.service.calibrating import calibrated
from colonnade.service.keeping import keep_version, kept_by, kept_record, tags_folder
from colonnade.service.start import Start, same_start, starting
from colonnade.service.table_source import TableSource, column_names, sources
from colonnade.service.training import take_part
from colonnade.streams.files import check_there
from colonnade.versions.version import Version


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
    watchers: Iterable[Watcher] = (),
) -> Done:
    """Take part in a job, and save this party's part of the model.

    watchers: each is called with the events of the run (`events.event`) from when it is sure that it begins. start: the
    beginning of the id of a version to start from, instead of from zero; all parties have to give the same.
    """
    check_allowed(job, party)
    check_there(party.data)
    first, job = starting(job, party, start)
    events = RunEvents(watchers, metrics.metric_name(loss(job.loss)))
    with events.run(_facts(job, party)):
        done = _run(job, party, first, events, verbose=verbose, tell=tell, mpi=mpi)
        events.done(
            training=done.version.training, in_use=done.in_use, rows=done.trained.rows, held_out=done.trained.held_out,
            seconds=done.outcome.seconds,
        )  # fmt: skip
    return done


def _facts(job: Job, party: PartyFile) -> dict[str, Any]:
    """Return what the first event of a run says: what is trained, how, and with whom."""
    limit = job.algorithm.rounds
    return {
        "run": secrets.token_hex(8), "job": job.name, "digest": job_digest(job), "version": __version__,
        "party": party.name, "partners": [name for name in job.parties if name != party.name],
        "holders": list(job.holders), "protection": job.protection, "model": family(job.family).estimator(job.loss),
        "algorithm": job.algorithm.name, "epochs": family(job.family).rounds(job.training(1)),
        **({} if limit is None else {"rounds": limit}),
    }  # fmt: skip


def _run(
    job: Job,
    party: PartyFile,
    first: Start | None,
    events: RunEvents,
    *,
    verbose: int,
    tell: Callable[[str], None],
    mpi: bool,
) -> Done:
    """Do what `run_job` promises, as its watchers look on; `first` is what training starts from."""
    from colonnade.alignment.joining import align_rows

    kind = family(job.family)
    history = History(metrics.metric_name(loss(job.loss)), kind.rounds(job.training(1)), verbose)
    say, tell = tell, events.telling(tell)

    def read() -> tuple[Any, ...]:
        source = TableSource.of(job, party)
        tell(f"protection {words_of(job)}")
        for one in job.defences:
            tell(f"defence {one.words}, by {one.by}")
        tell(f"{source.rows:,} rows read")
        if job.binning is not None and getattr(job.model, "weighted", False) and party.name in job.holders:
            tell(f"note: {unweighed(party.name)}")
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

    budget = Budget(party.name, party.policy.max_directions, party.policy.max_epsilon, party.policy.delta)
    recorder = Recorder(job, party, budget)

    async def program(net: Net, source: Any) -> Any:
        events.traffic = net.traffic
        net = recorder.around(net)
        check, kept = partial(party.policy.check_part, party.name), kept_by(job, party, source)
        most, keep = party.policy.partner_ids(source.rows), tags_folder(job, party)
        find = partial(align_rows, max_partner_ids=most, how=job.joining, method=job.method, keep=keep)
        trained = await take_part(net, job, source, find, check, kept, own, budget, party.engine)
        told = trained.held_out > 0 and party.name not in job.holders
        # Where nothing was charged, the first use of the model is; what trees tell has limits of its own.
        if job.protection != SEALED or told or not kind.adds_up:
            budget.paid(model_file.digest(job.family, trained.state))
        return source, trained

    def observe(name: str, seconds: float, value: Any) -> None:
        _tell_of(value, say if value[0] == "warning" else tell)
        events.observe(seconds, value)
        recorder.observe(value)
        history.observe(name, seconds, value)

    try:
        with same_start(party.name, job), party.engine or nullcontext():
            outcome = attend(
                job, party, program, read, agreed=job.agreed, observer=observe, mpi=mpi, tell=tell, budget=budget,
                rows=lambda source: source.rows, onlooker=events.observe if events else None,
            )  # fmt: skip
    finally:
        history.close()
    source, trained = outcome.value
    trained = _with_decisions(job, party, source, replace(trained, judged=history.held_out.get(party.name)), tell)
    version, in_use = keep_version(job, party, source, trained, history.records, recorder, tell)
    _keep_bins(version, job, party, source, trained, tell)
    _warn_after(job, history)
    return Done(version.folder / f"{party.name}{SUFFIX}", version, in_use, trained, outcome, history.records)


def _warn_after(job: Job, history: History) -> None:
    """Warn of what the losses show, where this party hears any."""
    if known := [record for record in history.records if "loss" in record]:
        warn_after(known, job.algorithm)


def _keep_bins(
    version: Version, job: Job, party: PartyFile, source: TableSource, trained: Trained, tell: Callable[[str], None]
) -> None:
    """Write what is to be read of bins beside the model, and say which class is which."""
    if job.binning is not None and len(trained.classes) == 2:
        good, bad = trained.classes.tolist()
        tell(f"of the bins' people {good!r} are good and {bad!r} are bad, whom the model predicts")
    for line in save_bins(version.folder, job, party.name, source, trained.state):
        tell(line)


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
