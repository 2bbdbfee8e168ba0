"""One job at one party, from its table to its part of the model: a coroutine over a `Net`, like every program.

1. alignment     which of its rows all parties have, in one order (kept, so that a resumed job has the same rows)
2. preparation   of its columns, learned on its training rows; where the job has bins, together with the label holder
3. classes       the label holders agree on them; the others hear how many scores a row has
4. folds         where the job has any: how good each candidate is on held-out rows (`service.folds`)
5. training id   which all parties derive together, and by which the parts of the model know each other
6. training      through the door of `families.training`, whatever the family of the model
7. statistics    of the coefficients, by `inference.program`, where the job asks for them
"""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from colonnade.binning.cells import FineColumn
from colonnade.binning.options import BinningOptions
from colonnade.data.class_weights import named_in_texts
from colonnade.data.ids import EXPAND
from colonnade.data.party import Party
from colonnade.engine.kept import Keeper
from colonnade.errors import ColonnadeWarning, DataError, OptionError
from colonnade.families import family
from colonnade.families.checks import check_stored, check_values, warn_before, with_class_weights
from colonnade.families.training import TrainingPart, rows_of, train
from colonnade.jobs.budget import Budget
from colonnade.jobs.job import Job
from colonnade.jobs.model_file import Prepared, Trained, digest_of
from colonnade.leaks import CLASSES, COMMON, OF_LABELS, OF_PEOPLE, REPEATS, SIZES, UNCHANGED, Leak, Setting, nothing
from colonnade.objective import losses
from colonnade.remote.terms import RunTerms
from colonnade.runtimes.net import Net
from colonnade.service.agreeing import agree_on_classes, common_rows, most_rows, numbers_of_people, share_out
from colonnade.service.binned import prepare_bins
from colonnade.versions.identity import agree_on_id, people_digest
from colonnade.workers.engine import Engine

Rows = npt.NDArray[np.int64]
Align = Callable[..., Awaitable[Rows]]  # called as (net, ids, minimum=), like `alignment.protocol.align`


class Source(Protocol):
    """A party's table, as a job needs it."""

    rows: int
    ids: Any  # None where rows need no alignment
    labels: Any  # one per row, None where there is none; None at a party without labels
    weights: Any  # how much each row counts, at a party with labels; None where all count alike
    added: Any  # what is added to each row's score, at a party with labels; None where it is nothing
    class_weight: Any  # how much rows of each class count, at a party with labels; None where all count alike

    def prepare(self, rows: Rows) -> Prepared:
        """Learn the preparation of the columns on these rows."""
        ...

    def cells(self, rows: Rows, options: BinningOptions) -> list[FineColumn]:
        """Cut columns into fine cells on these rows, where a job has bins."""
        ...

    def binned(self, found: Any) -> Prepared:
        """Learn the rest of the preparation from the bins that were found of these cells."""
        ...


@dataclass(frozen=True)
class Keepers:
    """Where this party keeps what a resumed job goes on from."""

    rows: Keeper
    state: Callable[[bytes], Keeper]  # given a digest of what is trained on
    training: Keeper | None = None  # the id of the training
    fit: Callable[[bytes, int], Keeper] | None = None  # of a cross-validation: given that digest, and its number


@dataclass(frozen=True)
class Ready:
    """A party before training: its rows, its columns, and what the label holders agreed on."""

    prepared: Prepared
    classes: npt.NDArray[Any]
    outputs: int
    train: int  # how many rows are trained on
    held_out: int  # how many are not, and judge the model
    mine: Any  # a `TrainingPart`; None once its columns are with an engine's workers
    people: Rows  # all common rows, held-out ones too
    apart: Rows  # the held-out ones of them
    fold: Callable[[tuple[Rows, Rows]], Awaitable[tuple[TrainingPart, TrainingPart]]]  # its two parts, prepared for it
    everything: Callable[[], tuple[Any, Any, Any]]  # columns and labels of all rows of this party that are not held out
    counts: Any = None  # how much each row that is trained on counts where it is held out in a fold; classes do not
    repeats: int = 1  # rows that are about one of this party's people, at most, as another party has several of them


def start_leaks(setting: Setting) -> tuple[Leak, ...]:
    """Return what is shown before training: by the alignment, and where label holders agree on classes."""
    everybody, holders = setting.parties, setting.holders
    step, many = ("rows" if setting.aligned else "alignment"), "{who} will learn how many people you have"
    found = [
        Leak(
            SIZES, OF_PEOPLE, everybody, everybody, (step,), many + ("" if setting.aligned else ", exactly or roughly")
        )
    ]
    if not setting.aligned:
        words = "{who} will learn which of their own people you have too" + (
            "" if setting.pair else ", if {others} have them"
        )
        found.append(Leak(COMMON, OF_PEOPLE, everybody, everybody, (step,), words))
        if setting.expanded:
            words = "{who} will learn how many rows each of the people in common has in your data"
            others = tuple(name for name in everybody if name != setting.leader)
            found.append(Leak(REPEATS, OF_PEOPLE, (setting.leader,), others, (step,), words))
        if setting.served:
            words = "{who} will learn in every run whether your people are the same as before, if they have fewer"
            found.append(Leak(UNCHANGED, OF_PEOPLE, everybody, everybody, (step,), words))
    several = len(holders) > 1
    if setting.model == "transfer":  # whose target predicts by itself
        words = "{who} will learn what your classes are called, with which they predict"
        return (*found, Leak(CLASSES, OF_LABELS, holders, setting.unlabelled, ("classes",), words))
    if not several and setting.loss != "softmax":
        return (*found, nothing(setting, "classes"))  # everybody knows from the job that a row has one score
    if several:
        found.append(
            Leak(CLASSES, OF_LABELS, holders, holders, ("classes",), "{who} will learn which classes you have")
        )
    others = tuple(name for name in everybody if name not in holders)
    return (
        *found,
        Leak(CLASSES, OF_LABELS, holders, others, ("classes",), "{who} will learn how many classes there are"),
    )


async def get_ready(
    net: Net,
    job: Job,
    source: Source,
    align: Align,
    check: Callable[[int, int], None],
    keepers: Keepers | None = None,
    budget: Budget | None = None,
) -> Ready:
    """Do all that comes before training: alignment, preparation, and the agreement on classes.

    Parameters
    ----------
    net
        This party's side of the network.
    job
        What all parties agree on.
    source
        This party's table.
    align
        The protocol that finds the common rows.
    check
        Gets the number of prepared columns and of rows in the smallest batch, and may refuse them.
    keepers
        Where this party keeps its rows, for a job that can be resumed.
    budget
        How many numbers about people may leave this party from here on.
    """
    loss = losses.loss(job.loss)
    if job.folds and source.added is not None:
        raise OptionError("folds do not take an offset or exposure yet; leave folds or the column out")
    rows = await common_rows(net, job, source, align, keepers)
    net.report(("aligned", len(rows)))
    several = job.duplicates == EXPAND
    people = await net.in_thread(numbers_of_people, source.ids, rows, net.me) if several else None
    train, held_out = share_out(rows, job.validation, job.algorithm.seed, people)
    most = most_rows(people)
    repeats = 1 if net.me == job.holders[0] else most  # limits are about people, and each of these has so many rows
    if job.binning is None:
        prepared = await net.in_thread(source.prepare, train)
    else:
        counted = replace(job.binning, least=most * job.binning.least)
        prepared = await prepare_bins(net, job, counted, source, train)
    batch = job.algorithm.smallest_batch(len(train), len(job.holders))
    check(len(prepared.columns), batch)
    if budget is not None:
        whole = batch >= len(train) // len(job.holders)  # one number about all rows of a person, as they are alike
        budget.open(prepared.sources, len(rows), 1 if whole else repeats)
    classes, outputs = await agree_on_classes(net, job, source, rows)

    async def part(of: Rows, by: Prepared = prepared) -> Party:
        along = (source.labels, source.weights, source.added)
        y, weights, added = (None if each is None else np.asarray(each)[of] for each in along)
        X, names = await net.in_thread(by.matrix, of), by.columns
        return Party(net.me, X, y, columns=names, sample_weight=weights, offset=added, categories=by.categories)

    async def fold(places: tuple[Rows, Rows]) -> tuple[TrainingPart, TrainingPart]:
        """The preparation is learned anew from what the fold trains on, and from nothing that it holds out."""
        some, others = (train[each] for each in places)
        by = await net.in_thread(copy(source).prepare, some)
        check(len(by.columns), job.algorithm.smallest_batch(len(some), len(job.holders)))
        first, second = await part(some, by), await part(others, by)
        if (asked := getattr(source, "class_weight", None)) is not None:  # held-out people count as they are
            (first,), _ = with_class_weights(named_in_texts(asked, classes), (first,), None, classes)
        return TrainingPart.of(first, classes, loss), TrainingPart.of(second, classes, loss)

    own, apart = await part(train), await part(held_out) if len(held_out) else None
    if (asked := getattr(source, "class_weight", None)) is not None:
        held = None if apart is None else [apart]
        (own,), others = with_class_weights(named_in_texts(asked, classes), (own,), held, classes)
        apart = others[0] if others else None
    agreed = job.training(outputs)
    check_values(family(agreed.family), (own,) if apart is None else (own, apart))
    check_stored(family(agreed.family), (own,) if apart is None else (own, apart))
    warn_before(agreed, (own,), job.parties, own.rows)
    mine = TrainingPart.of(own, classes, loss, apart)

    def everything() -> tuple[Any, Any, Any]:
        of = np.setdiff1d(np.arange(source.rows), held_out)
        y = None if source.labels is None else np.asarray(source.labels)[of]
        return rows_of(Party(net.me, prepared.matrix(of), y, columns=prepared.columns), classes, loss)

    counts = None if source.weights is None else np.asarray(source.weights, dtype=np.float64)[train]
    sizes = (len(train), len(held_out))
    return Ready(prepared, classes, outputs, *sizes, mine, rows, held_out, fold, everything, counts, repeats)


async def take_part(
    net: Net,
    job: Job,
    source: Source,
    align: Align,
    check: Callable[[int, int], None],
    keepers: Keepers | None = None,
    own: Callable[[Prepared], Any] = lambda _: None,
    budget: Budget | None = None,
    engine: Engine | None = None,
) -> Trained:
    """Take part in a job from the table to this party's part of the model.

    The parameters are those of `get_ready`, and two more.

    Parameters
    ----------
    own
        Returns what this party brings beside its prepared columns: how its network is made, or what it allows trees to
        show; nobody else is told.
    engine
        Whose workers hold this party's rows in training; None is that they stay in memory here.
    """
    ready = await get_ready(net, job, source, align, check, keepers, budget)
    chosen, over, found_out = job, net, None
    if job.folds:
        from colonnade.service.folds import cross_validated

        over, found_out = await cross_validated(net, job, ready, keepers, budget)
        chosen = job.candidate(found_out.best)
    # One number about each person is put aside for the statistics, which come after training.
    spendable = budget.all_but(1.0) if budget is not None and job.statistics else budget
    allowed = family(job.family).of_people(net.me, own(ready.prepared), job.algorithm, ready.repeats)
    brought = await net.in_thread(family(job.family).brings, allowed, ready.everything)
    mine, outputs = replace(ready.mine, own=brought), ready.outputs
    known: tuple[Any, ...] = (mine.X, mine.y, mine.labelled, mine.validation, mine.weights, mine.held_out_weights)
    if found_out is not None:
        known = (*known, found_out.best)
    if not family(job.family).takes_own:  # a network is named by its file, which may have moved
        known = (*known, mine.own)
    keeper = None if keepers is None else keepers.state(await net.in_thread(digest_of, known))
    common = await net.in_thread(people_digest, None if job.aligned else source.ids, ready.people, net.me)
    facts = (RunTerms.of(job.parties, job.agreed).digest, str(job.algorithm.seed).encode(), common)
    training = await agree_on_id(net, facts, None if keepers is None else keepers.training)
    if engine is not None:
        mine, ready, known = await net.in_thread(_spread, mine, engine), replace(ready, mine=None), ()
    state = await train(over, chosen.training(outputs).as_value(), mine.as_value(), keeper, spendable)
    best = family(job.family).keeps_best(chosen.training(outputs), ready.held_out)
    found = await _statistics(net, chosen, mine, state, budget) if job.statistics else None
    counts = (ready.train, ready.held_out)
    return Trained(
        state,
        ready.classes,
        ready.prepared,
        *counts,
        best,
        outputs,
        found,
        ready.people,
        training,
        ready.apart,
        validated=found_out,
    )


def _spread(mine: TrainingPart, engine: Engine) -> TrainingPart:
    """Hand the columns to an engine's workers; what else is brought stays here."""
    apart = mine.validation
    held_out = None if apart is None else (engine.place(apart[0]), *apart[1:])
    return replace(mine, X=engine.place(mine.X), validation=held_out)


async def _statistics(net: Net, job: Job, mine: TrainingPart, state: Any, budget: Budget | None) -> Any:
    """Return statistics of the training rows; with too many columns for them, warn at every party and return None."""
    from colonnade.inference.program import MOST_ROWS, SEALED, infer_linear

    penalty = (job.model.penalty, job.model.l2)
    told = (job.loss, penalty, job.holders, job.sum, job.topology, SEALED, MOST_ROWS, job.model.weighted)
    try:
        return await infer_linear(net, told, (mine.X, state, mine.y, mine.labelled, mine.weights), budget)
    except DataError as error:  # all parties see the same numbers of columns and rows, and end here together
        warnings.warn(f"the model is trained and has no statistics: {error}", ColonnadeWarning, stacklevel=2)
        return None
