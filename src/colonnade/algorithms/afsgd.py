"""AFSGD-VP: asynchronous training in which every label holder learns from its own labels.

Gu, Xu, Huo, Deng, Huang: "Privacy-Preserving Asynchronous Vertical Federated Learning Algorithms for Multiparty
Collaborative Learning", TNNLS 2021. Algorithms 3 to 5 (AFSGD-VP, AFSVRG-VP, AFSAGA-VP); Algorithm 2, the masked sum, is
any of `colonnade.sums`.

No signal is ever sent, and so no label leaves its holder: a label holder takes the score of a row and updates its own
block with its own label. The price: a block whose party has no labels is never updated (VFB² compares with this under
the name AFSVRG-VP).

In the paper each of q label holders asks all others for the scores of a row of its own choice, so q updates of one
block each take q * q contributions (flow="paper"). By default the order of rows is common: one holder of a row's label
collects its score and passes it on to the others who have that label too. They see what they would have asked for, and
all blocks are updated for one contribution each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from colonnade.algorithms.vfb2 import SUMMED, VFB2, BackwardUpdating
from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.rules import Rule
from colonnade.engine.sampling import Batch
from colonnade.engine.session import Session, session_leaks
from colonnade.flows.asynchrony import Given
from colonnade.flows.free_run import Shares
from colonnade.leaks import OF_COLUMNS, TOTALS, Leak, Setting, contributions, nothing


@dataclass(frozen=True)
class AFSGD(VFB2):
    """Each label holder updates its own block from its own labels; blocks without labels stay frozen.

    Parameters
    ----------
    estimator, asynchronous, max_staleness, threads, flow, behind, snapshot_every, table, **training
        As in `VFB2`. An epoch is one pass over the rows.
    """

    name: ClassVar[str] = "AFSGD"
    tells_signals: ClassVar[bool] = False
    moves_unlabelled: ClassVar[bool] = False

    def warnings(self, setting: Setting) -> tuple[str, ...]:
        """A party whose columns do not enter the model should know."""
        frozen = ", ".join(map(repr, setting.unlabelled))
        words = (
            f"parties {frozen} hold no labels: AFSGD never updates their blocks, so their columns do not enter the "
            f"model; use VFB2, or give them labels"
        )
        return (words,) if frozen else ()

    def leaks(self, setting: Setting) -> tuple[Leak, ...]:
        """No signals. Contributions of a party without labels are 0 for ever: there is nothing to see in them."""
        found, holders = (*session_leaks(setting, self), *self.pace_leaks(setting)), setting.holders
        if len(holders) == 1:
            return (*found, nothing(setting, *SUMMED, "total", "prediction"))
        numbers = self.numbers_per_row(setting)
        if self.flow == "paper":  # everybody asks for the scores of its own rows, and passes none on
            zeros = nothing(setting, *SUMMED, "prediction", of=setting.unlabelled)
            return (*found, *contributions(setting, numbers, SUMMED, holders), zeros)
        words = "{who} will hear the scores of people whose label they have too, and so " + (
            "your part of them" if setting.pair else "your part of them added to {theirs}"
        )
        total = Leak(TOTALS, OF_COLUMNS, holders, holders, ("total",), words, numbers)
        zeros = nothing(setting, *SUMMED, "prediction", of=setting.unlabelled)
        return (*found, total, *contributions(setting, numbers, SUMMED, holders), zeros)

    async def train(self, session: Session) -> None:
        """Run this party's side."""
        mine = session.train.held.get(session.net.me)
        # A party without labels never steps: it needs no memory of signals.
        kind, rows = ("sgd", None) if mine is None else (self.estimator, len(mine))
        make = OwnLabels if self.flow == "bounded" or not session.others else OwnScores
        await self.run(make(session, Rule(kind, session.block, rows)))

    def shares(self, session: Session) -> Shares:
        """Every label holder launches all rows that it has a label for."""
        return Shares.of_own_blocks(session)

    def whole(self, session: Session, shares: Shares) -> list[Batch]:
        """Every label holder asks for all its rows."""
        return shares.whole()

    def _askers(self, setting: Setting) -> int:
        return 1 if self.flow == "bounded" else len(setting.holders)


class OwnLabels(BackwardUpdating):
    """What goes backward is the score, to those who have the label of its row, and to nobody else."""

    def __init__(self, session: Session, rule: Rule) -> None:
        super().__init__(session, rule)
        rows, held = session.train.rows, session.train.held
        self._held = {name: np.isin(np.arange(rows), held[name], assume_unique=True) for name in held}

    async def dominate(self, rows: Rows, scores: FloatArray) -> Given:
        """Pass the scores on; those without any of these labels only hear that the batch is done."""
        for name in self.session.others:
            held = self._held.get(name)
            await self.session.net.send(name, "total", None if held is None else scores[held[rows]])
        return self._own(rows, rows, scores)

    async def collaborate(self, holder: str, rows: Rows) -> Given | None:
        """The scores of the rows that this party has labels for, if there are any in the batch."""
        held = self._held.get(self.session.net.me)
        if held is None:
            await self.session.net.recv(holder, "total")
            return None
        mine = rows[held[rows]]
        scores = await self.session.hear_signal(holder, mine, "total")
        return self._own(rows, mine, scores) if len(mine) else None

    def _own(self, rows: Rows, mine: Rows, scores: FloatArray) -> Given:
        return Given(mine, self.session.signal(scores, mine), len(mine) / len(rows))


class OwnScores(OwnLabels):
    """Algorithm 3 as it is printed: whoever asked for the scores of some rows keeps them for its own block."""

    async def dominate(self, rows: Rows, scores: FloatArray) -> Given:
        """Lines 5 and 6: the gradient of its own block follows from the scores and from its own labels."""
        return self._own(rows, rows, scores)

    async def collaborate(self, holder: str, rows: Rows) -> Given | None:
        """Nothing comes back."""
        return None
