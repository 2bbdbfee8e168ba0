"""The rows that block Newton uses now, all of them or a sample, and what their holders keep of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.linear import LinearBlock
from colonnade.blocks.newton import Place
from colonnade.blocks.row_blocks import run_of
from colonnade.blocks.subspace import Held
from colonnade.engine.exchange import Part
from colonnade.engine.session import Session


class RowsInUse:
    """The rows of one stage of a run: who has their labels, and at a holder their scores and those of directions.

    Parameters
    ----------
    session
        This party in the run.
    block
        Its columns and parameters.
    grow_from
        The rows of the first sample, over all label holders; None is all rows from the start.
    place
        Where numbers about many rows are kept; None is in memory.
    """

    def __init__(self, session: Session, block: LinearBlock, grow_from: int | None, place: Place | None) -> None:
        self.session, self.block, self.place = session, block, place
        self.alone = len(session.job.holders) == 1  # one party has all labels: nobody else is asked in a search
        self.part = 1.0 if grow_from is None else min(1.0, grow_from / session.train.rows)
        self.samples = self.part < 1.0
        self.choose()

    def choose(self) -> None:
        """Take the rows of the part that is used now; nothing is known about them yet."""
        self.held: Held | None = None  # the rows whose label this holder has
        self.watched: Held | None = None  # and those of the validation part
        self.chosen = [(holder, rows) for holder in self.session.job.holders if len(rows := self._rows_of(holder))]
        self.count = sum(len(rows) for _, rows in self.chosen)
        if self.samples and self.session.net.watcher is not None:
            self.session.net.watcher.looks_at(np.concatenate([rows for _, rows in self.chosen]))

    def _rows_of(self, holder: str) -> Rows:
        """A holder's rows that are used now: the first ones of an order that the seed gives."""
        rows = self.session.train.owned[holder]
        if self.part >= 1.0 or not len(rows):
            return rows
        order = np.random.default_rng([self.session.options.seed, len(rows)]).permutation(len(rows))
        return np.sort(rows[order[: math.ceil(self.part * len(rows))]])

    def touched(self) -> int:
        """How many numbers of this party's columns these rows have."""
        return sum(self.block.touched(rows) for _, rows in self.chosen)

    async def look(self, epoch: int) -> None:
        """Sum the scores of all rows that are used now, and of those of the validation part, at their holders."""
        session = self.session
        for holder, rows in self.chosen:
            self.held = await self._held_of(session.train, rows, holder, epoch) or self.held
        if (part := session.validation) is not None:
            for holder, rows in part.owned.items():
                self.watched = await self._held_of(part, rows, holder, epoch) or self.watched

    async def _held_of(self, part: Part, rows: Rows, holder: str, epoch: int) -> Held | None:
        """The scores as they are now, at the holder."""
        session = self.session
        if epoch or not self.alone or session.job.started:
            return self.hold(part, rows, await session.scores_of(part, rows, holder))
        # At the very start all weights are 0, and only the intercept of the one label holder is not.
        leads = session.net.me == session.leader
        return self.hold(part, rows, self.block.scores(rows, part.columns)) if leads else None

    def hold(self, part: Part, rows: Rows, z: FloatArray | None) -> Held | None:
        """Rows with these scores, where this party has their labels."""
        if z is None or part.y is None:
            return None
        y = part.y if len(rows) == len(part.y) and run_of(rows) == 0 else part.y[rows]
        place = self.place if part is self.session.train else None
        return Held(self.session.job.loss, y, z, 1.0 / self.session.sum.narrow.scale, place)

    def freeze(self) -> Any:
        """What is held of the rows; see `engine.kept.Frozen`."""
        return tuple([None if one is None else one.freeze() for one in (self.held, self.watched)])

    def thaw(self, state: Any) -> None:
        """Take back what `freeze` gave, of the rows that are chosen."""
        session, me, outputs = self.session, self.session.net.me, self.block.outputs
        if state[0] is not None:
            rows = dict(self.chosen)[me]
            no_scores = np.zeros(len(rows) if outputs == 1 else (len(rows), outputs))
            self.held = self.hold(session.train, rows, no_scores)
        if state[1] is not None and (part := session.validation) is not None:
            self.watched = self.hold(part, part.owned[me], state[1][0])
        for one, kept in zip((self.held, self.watched), state, strict=True):
            if one is not None:
                one.thaw(kept)
