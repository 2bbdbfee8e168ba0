"""Phases and scores of one party in kernel learning: what is summed where, and who has drawn what.

Gu, Dang, Li, Huang: "Federated Doubly Stochastic Kernel Learning for Vertically Partitioned Data", KDD 2020. `Exchange`
is Algorithm 3 for many rows and features at once; `KernelSession` has line 7 of Algorithm 1, f(x) as a sum of the
owners' parts. `algorithms.fdskl` makes steps of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.coefficients import KernelBlock, PartRows, Table
from colonnade.blocks.phases import Directions, FeaturePiece, Layout, merged, messages, to_features
from colonnade.engine.exchange import Part
from colonnade.engine.session import Session
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array
from colonnade.sums import SecureSum, open_sum

# Rows whose features are computed at a time where many are asked for.
_CHUNK = 2048


@dataclass(frozen=True)
class Lane:
    """What the steps of one label holder go through: a sum and names of messages that are theirs alone.

    Sums for one root have one order at all parties. Steps that do not wait for each other have none, so each label
    holder's go through a lane of their own. `number` is None where there is one lane for all.
    """

    sum: SecureSum
    number: int | None = None

    def tag(self, step: str) -> str:
        """The name of a step's messages in this lane."""
        return step if self.number is None else f"{step} for {self.number}"


class Exchange:
    """Algorithm 3 for many rows and features at once: contributions to phases, summed at the features' owner."""

    def __init__(
        self, net: Net, secure: SecureSum, layout: Layout, directions: Directions, parts: list[Any], budget: int
    ) -> None:
        self.net, self.main, self.layout, self._directions = net, Lane(secure), layout, directions
        self.drawn = dict.fromkeys(layout.owners, 0)  # blocks, as far as this party has heard
        self.refit_from: int | None = None  # the round of the first step that drew no features
        self.train = PartRows(parts[0], layout, net.me, budget)
        self.validation: PartRows | None = None
        if len(parts) > 1:
            # Every party has to know what every owner keeps; the first one has the most features.
            rest = min(self.train.left(owner, layout, budget) for owner in layout.owners)
            self.validation = PartRows(parts[1], layout, net.me, max(0, rest))

    def draw(self, owner: str) -> slice | None:
        """The next block of an owner's features; None if it has drawn all of them."""
        if not self.left(owner):
            return None
        self.drawn[owner] += 1
        return self.layout.span(owner, self.drawn[owner] - 1)

    def left(self, owner: str) -> int:
        """How many blocks an owner has still to draw."""
        return self.layout.blocks(owner) - self.drawn[owner]

    @property
    def drawn_features(self) -> int:
        """How many features are drawn, at all owners together."""
        return sum(min(self.layout.width * blocks, self.layout.of(owner)) for owner, blocks in self.drawn.items())

    @property
    def complete(self) -> bool:
        """Whether all features are drawn."""
        return self.drawn_features == self.layout.features

    async def learn(
        self, part: PartRows, rows: Rows, drawn: Mapping[str, int] | None = None, lane: Lane | None = None
    ) -> Table:
        """Get the missing features of these rows to their owners; returns those of rows that are not kept.

        drawn: the blocks of each owner that count, which all parties must have from one source; None: all that this
        party knows of.
        """
        drawn, lane = drawn or self.drawn, lane or self.main
        beside = part.known.beside(rows) if self.net.me in self.layout.owners else np.zeros((0, 0), dtype=np.float32)
        for owner in self.layout.owners:
            pieces = part.ahead[owner].missing(rows, drawn[owner])
            for some in messages(pieces, self.layout.width):
                await self._get(part, rows, owner, some, beside, lane)
            part.ahead[owner].learn(rows, drawn[owner])
        return beside

    async def _get(
        self, part: PartRows, rows: Rows, owner: str, pieces: list[FeaturePiece], beside: Table, lane: Lane
    ) -> None:
        """One message from each party: its contributions to some pieces, summed at their owner."""
        index = self.layout.owners.index(owner)
        spans = [self.layout.span(owner, piece.number) for piece in pieces]
        mine, cost = [], 0
        for piece, span in zip(pieces, spans, strict=True):
            width = span.stop - span.start
            cost += part.columns.nonzeros(rows[piece.rows]) * width
            mine.append(self._directions.project(part.columns, rows[piece.rows], (index, piece.number), width))
        await self.net.work(cost, "forward")
        if self.net.watcher is not None:
            places = [(index, piece.number) for piece in pieces]
            widths = [span.stop - span.start for span in spans]
            self.net.watcher.turns_to(
                [(rows[piece.rows], at, width) for piece, at, width in zip(pieces, places, widths, strict=True)]
            )
        total = await lane.sum.total_phases(lane.tag("phases"), merged(mine), owner)
        if total is not None:
            at = 0
            for piece, span in zip(pieces, spans, strict=True):
                shape = len(piece.rows), span.stop - span.start
                features = to_features(total[at : at + shape[0] * shape[1]].reshape(shape))
                part.known.take(rows, piece.rows, span, features, beside)
                at += features.size

    async def sample(self, owner: str, rows: Rows) -> Any:
        """Features of the first block at their owner, apart from training: nothing is drawn and nothing kept."""
        width = self.layout.span(owner, 0).stop
        index = self.layout.owners.index(owner)
        mine = self._directions.project(self.train.columns, rows, (index, 0), width)
        total = await self.main.sum.total_phases("phases", mine, owner)
        return None if total is None else to_features(total)

    def freeze(self) -> Any:
        """How many blocks are drawn, and from what; what is known of the rows is computed again."""
        return (tuple(self.drawn.values()), self.refit_from, self._directions.secret, self._directions.phase_secret)

    def thaw(self, state: Any) -> None:
        """Take back what `freeze` gave."""
        drawn, self.refit_from, *secrets = state
        self.drawn = dict(zip(self.drawn, drawn, strict=True))
        self._directions.become(*secrets)


@dataclass
class KernelSession(Session):
    """A session in which f(x) has no part at parties without labels."""

    exchange: Any = None  # made before the session is opened, which already needs it

    @property
    def coefficients(self) -> KernelBlock:
        """This party's block."""
        return cast("KernelBlock", self.block)

    def least_numbers(self) -> float:
        """See `Session.least_numbers`: every feature of every row, and some of them before for the step size."""
        layout = self.exchange.layout
        sample = layout.span(self.leader, 0).stop if self.options.step == "auto" else 0
        return float(layout.features + sample) + 2 * (len(self.job.holders) > 1)

    def numbers_ahead(self) -> float:
        """See `Session.numbers_ahead`: features that no owner keeps are told again in every epoch."""
        layout, train = self.exchange.layout, self.exchange.train
        all_drawn = all(train.ahead[owner].kept >= train.rows for owner in layout.owners)
        again = 0.0 if all_drawn else 2.0 * layout.features
        return again + 2 * (len(self.job.holders) > 1)

    async def evaluate(self, epoch: int) -> bool:
        """See `Session.evaluate`; the history also has how many features are drawn, and where the refit began."""
        if self.net.me == self.leader:
            found = (("features", self.exchange.drawn_features), ("refit", self.exchange.refit_from))
            self.stopping.report(("also", self.stopping.judged, found))
        return await super().evaluate(epoch)

    async def open_lanes(self) -> dict[str, Lane]:
        """A lane for each label holder, with keys and masks of its own; all of them count as one sum."""
        lanes = {}
        for number, holder in enumerate(self.job.holders, 1):
            opened = await open_sum(self.job.sum, self.net, self.job.topology)
            opened.count_with(self.sum)
            lanes[holder] = Lane(opened, number)
        return lanes

    async def sum_parts(self, step: str, mine: FloatArray, holder: str, lane: Lane | None = None) -> FloatArray | None:
        """The sum of all owners' parts of f at one of them."""
        if len(self.job.holders) == 1:  # nobody else has a part
            return mine if self.net.me == holder else None
        lane = lane or self.exchange.main
        return await lane.sum.total(lane.tag(step), mine, holder)

    async def share_signal(self, holder: str, rows: Rows, scores: FloatArray | None) -> FloatArray | None:
        """dL/df of a batch at all owners: their features are this batch's too. None at parties that own none."""
        others = [name for name in self.job.holders if name != self.net.me]
        if self.net.watcher is not None:
            self.net.watcher.about("signal", holder, rows)
        if scores is not None:
            signal = self.signal(scores, rows)
            for name in others:
                await self.net.send(name, "signal", signal)
            return signal
        if self.net.me not in self.job.holders:
            return None
        return expect_array(await self.net.recv(holder, "signal"), (len(rows),), np.float64, holder, "signal")

    async def scores_of(self, part: Part, rows: Rows, holder: str) -> FloatArray | None:
        """f of any rows at one holder: features first, in pieces that fit into memory."""
        of = self.exchange.train if part is self.train else self.exchange.validation
        pieces = []
        for at in range(0, len(rows), _CHUNK):
            some = rows[at : at + _CHUNK]
            beside = await self.exchange.learn(of, some)
            mine = of.part_of_f(some, beside, self.coefficients.values)
            pieces.append(await self.sum_parts("evaluation", mine, holder))
        known = [piece for piece in pieces if piece is not None]
        return np.concatenate(known) if known else None
