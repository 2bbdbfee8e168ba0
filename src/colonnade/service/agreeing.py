"""What parties agree on before training: their common rows in one order, who of them is held out, and the classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from colonnade.blocks.row_blocks import all_rows
from colonnade.data.ids import canonical
from colonnade.data.party import Party
from colonnade.engine.kept import common_version
from colonnade.errors import DataError, LabelError, ProtocolError
from colonnade.families import family
from colonnade.jobs.job import Job
from colonnade.objective import losses
from colonnade.runtimes.net import Net

if TYPE_CHECKING:
    from colonnade.service.training import Align, Keepers, Source

Rows = npt.NDArray[np.int64]
_MOST_CLASSES = 10_000


async def common_rows(net: Net, job: Job, source: Source, align: Align, keepers: Keepers | None) -> Rows:
    """Return which of this party's rows all parties have, in one order; those that were kept, where a run goes on."""
    if job.aligned:
        await _same_number_of_rows(net, source.rows)
        return all_rows(source.rows)
    if source.ids is None:
        raise DataError(
            f"party {net.me!r} names no id column, and the job aligns rows by their ids; set id under [data]"
        )
    if keepers is not None and (version := await common_version(net, keepers.rows)):
        (kept,) = keepers.rows.load(version)
        return np.asarray(kept)
    rows = await align(net, source.ids, minimum=job.minimum)
    if keepers is not None:
        keepers.rows.save(1, (rows,))
    return rows


async def _same_number_of_rows(net: Net, rows: int) -> None:
    others = [name for name in net.names if name != net.me]
    for name in others:
        await net.send(name, "rows", rows)
    for name in others:
        theirs = await net.recv(name, "rows")
        if theirs != rows:
            raise DataError(
                f"party {net.me!r} has {rows} rows and party {name!r} has {theirs}, and the job says that they are "
                f'aligned already; bring the same rows in the same order, or set kind = "private" under [alignment]'
            )


def numbers_of_people(ids: Any, rows: Rows, party: str) -> Rows:
    """Return a number for each row, the same for all rows of a person, which stand together."""
    theirs = canonical(ids, f"party {party!r}", repeated=True)[rows]
    return np.cumsum(np.concatenate([[False], theirs[1:] != theirs[:-1]]), dtype=np.int64)


def most_rows(people: Rows | None) -> int:
    """Return how many rows there are of one person, at most."""
    return 1 if people is None or not len(people) else int(np.bincount(people).max())


def share_out(rows: Rows, part: float, seed: int, people: Rows | None = None) -> tuple[Rows, Rows]:
    """Return (training rows, held-out rows): the same people at every party, as `rows` has one order at all of them.

    people: which rows are about the same person, who is held out as a whole; None where everybody has one.
    """
    if people is not None:
        apart = np.zeros(int(people[-1]) + 1, np.bool_)
        apart[share_out(np.arange(len(apart)), part, seed)[1]] = True
        return rows[~apart[people]], rows[apart[people]]
    count = round(part * len(rows))
    if not count:
        return rows, rows[:0]
    order = np.random.default_rng([seed, len(rows)]).permutation(len(rows))
    return rows[np.sort(order[count:])], rows[np.sort(order[:count])]


async def agree_on_classes(net: Net, job: Job, source: Source, rows: Rows) -> tuple[npt.NDArray[Any], int]:
    """Return (the classes, which only label holders learn; how many scores a row has)."""
    loss, leader = losses.loss(job.loss), job.holders[0]
    mine = _own_labels(net.me, job, source, rows)
    if net.me != leader:
        if mine is not None:
            await net.send(
                leader, "classes", tuple(np.unique(mine).tolist()) if loss.kind in ("binary", "classes") else ()
            )
        known, outputs = _told(await net.recv(leader, "classes"), leader)
        return np.array(known), outputs
    if mine is None:  # this can't be, as `_own_labels` refuses a holder without labels
        raise LabelError(f"party {net.me!r} brings no labels")
    found = [mine]
    for name in job.holders[1:]:
        told, _ = _told((await net.recv(name, "classes"), 0), name)
        if told:
            found.append(np.array(told))
    if len({one.dtype.kind in "US" for one in found}) > 1:
        raise LabelError("one party's labels are text and another's are numbers; use one kind at all label holders")
    classes = family(job.family).class_labels(np.concatenate(found), loss)
    outputs = loss.outputs(len(classes))
    for name in net.names:
        if name != leader:
            knows = name in job.holders or family(job.family).predicts_alone
            await net.send(name, "classes", (tuple(classes.tolist()) if knows else (), outputs))
    return classes, outputs


def _own_labels(me: str, job: Job, source: Source, rows: Rows) -> npt.NDArray[Any] | None:
    if me not in job.holders:
        if source.labels is not None:
            raise LabelError(
                f"party {me!r} names a label column, and the job says that it holds no labels; leave it out"
            )
        return None
    if source.labels is None:
        raise LabelError(
            f"the job says that party {me!r} holds labels, and it names no label column; set label under [data]"
        )
    party = Party(me, np.zeros((len(rows), 1)), np.asarray(source.labels)[rows])
    known: npt.NDArray[Any] = np.asarray(party.y)[np.asarray(party.labelled)]
    if not len(known):
        raise LabelError(
            f"party {me!r} has no label for any of the {len(rows)} common rows; the job says that it holds labels"
        )
    return known


def _told(value: Any, party: str) -> tuple[tuple[Any, ...], int]:
    fits = type(value) is tuple and len(value) == 2 and type(value[0]) is tuple and type(value[1]) is int
    fits = fits and len(value[0]) <= _MOST_CLASSES and 0 <= value[1] <= _MOST_CLASSES
    if not fits or any(type(one) not in (str, int, float, bool) for one in value[0]):
        raise ProtocolError(f"party {party!r} must tell classes as numbers or texts at step 'classes'")
    return value[0], value[1]
