"""A whole run of free launches: who may launch how often on which rows, and what comes before and after.

The printed algorithms go on for ever. Here every label holder has a share of launches, so that an epoch has the rows of
any other algorithm's, and each party knows before it begins how many numbers about a row will leave it, at most.
SGD and SAGA launch from the beginning to the end without a stop; SVRG stops for its snapshots, as it does in print.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from colonnade.blocks import Rows
from colonnade.engine.options import Training
from colonnade.engine.sampling import Batch
from colonnade.engine.session import Session
from colonnade.flows.asynchrony import BatchSteps
from colonnade.flows.free_launches import FreeLaunches, OwnDraws
from colonnade.flows.updates import Snapshot, snapshot_in_step


@dataclass(frozen=True)
class Shares:
    """Which rows each label holder chooses from, and how many of them it launches in an epoch.

    Parameters
    ----------
    rows : mapping of str to array
        The rows that a label holder chooses from.
    an_epoch : mapping of str to int
        The rows that it launches in an epoch.
    batch : int
        Rows of one launch, at most.
    """

    rows: Mapping[str, Rows]
    an_epoch: Mapping[str, int]
    batch: int

    @classmethod
    def of_one_model(cls, session: Session) -> Shares:
        """VFB², Algorithm 2: the launches of all label holders together are the epoch.

        Each chooses from all rows, if all have all labels, as in the paper. Else each chooses from its own share of
        the rows, so that no row's label counts more than another's because several have it.
        """
        part = session.train
        alike = all(len(mine) == part.rows for mine in part.held.values())
        own = {holder: len(mine) for holder, mine in part.owned.items()}
        return cls(part.held if alike else part.owned, own, session.batch)

    @classmethod
    def of_own_blocks(cls, session: Session) -> Shares:
        """AFSGD-VP, Algorithm 3: nobody else updates a label holder's block, so each goes through all its rows."""
        held = session.train.held
        return cls(held, {holder: len(mine) for holder, mine in held.items()}, session.batch)

    def passes(self, epochs: int) -> int:
        """How often a row is launched on average, rounded down."""
        return epochs * sum(self.an_epoch.values()) // len(np.unique(np.concatenate(list(self.rows.values()))))

    def launches(self, epochs: int) -> dict[str, int]:
        """The launches of each label holder up to the end of an epoch."""
        return {holder: -(-epochs * count // self.batch) for holder, count in self.an_epoch.items()}

    def draws(self, options: Training, epochs: int) -> OwnDraws:
        """The rows of all launches up to the end of an epoch."""
        full, launches = {at: -(-len(rows) // self.batch) for at, rows in self.rows.items()}, self.launches(epochs)
        passes = max(-(-launches[at] // max(1, count)) for at, count in full.items())
        return OwnDraws(options.sampling, options.seed, max(1, passes), self.rows, self.batch)

    def whole(self) -> list[Batch]:
        """All rows of all label holders, for a snapshot in which each asks for its own."""
        return [
            (holder, piece)
            for holder, rows in self.rows.items()
            for piece in np.array_split(rows, -(-len(rows) // self.batch))
        ]


async def run_freely(
    options: Training, steps: BatchSteps, shares: Shares, whole: Sequence[Batch], threads: int, stages: Sequence[int]
) -> None:
    """Run stage after stage; each begins with a snapshot, unless the rule keeps none, and ends at rest.

    whole: the rows of a snapshot. stages: the epochs at which they begin, and the last one; a first one below 0 says
    that there is no snapshot at the start.
    """
    session = steps.session
    draws, snapshot = shares.draws(options, stages[-1]), Snapshot(session, steps.rule)
    an_epoch = sum(shares.launches(1).values())
    done, go_on = await session.begin(steps.rule)
    for begin, end in pairwise(stages):
        if end <= done or not go_on:
            continue
        if begin >= 0:
            await snapshot_in_step(steps, snapshot, max(1, begin), whole)
        first, last = shares.launches(max(0, begin)), shares.launches(end)
        stage = FreeLaunches(steps, draws, first, last, threads, options.evaluate_every or an_epoch, an_epoch)
        verdict = await stage.run()
        go_on = await session.evaluate(end) and verdict
        session.keep(end, go_on, steps.rule)
