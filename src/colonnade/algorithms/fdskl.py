"""FDSKL: kernel learning on split columns by doubly stochastic gradients.

Gu, Dang, Li, Huang: "Federated Doubly Stochastic Kernel Learning for Vertically Partitioned Data", KDD 2020. Algorithm
1 runs at a worker with labels (`FDSKL._step`, line by line), Algorithm 2 computes its part of f(x), Algorithm 3 gets
omega . x + b to it (`Exchange`). The model is f(x) = sum of alpha_i phi_i(x), equation (7); feature i and its
coefficient belong to the worker that drew it.

Beyond the paper: a step takes a batch of rows and draws a block of features. What an owner once learnt of a row it
keeps, within `cache_mb`. When `features` are drawn, steps go on over all of them with momentum, so the solution does
not stop where the features end. Phases carry a fresh mask in every message, and directions are every party's own (see
`blocks.phases`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.coefficients import KernelBlock, PartRows, Table
from colonnade.blocks.phases import Directions, FeaturePiece, Layout, merged, messages, to_features
from colonnade.engine.exchange import Part
from colonnade.engine.options import Training
from colonnade.engine.session import Session, session_leaks
from colonnade.errors import OptionError, at_least, one_of, whole_number
from colonnade.leaks import DISTANCES, OF_COLUMNS, SHARED, Leak, Setting, columns, contributions, nothing, signals
from colonnade.objective.losses import Loss
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array
from colonnade.sums import SecureSum

DIRECTIONS = ("private", "shared")
# Rows whose features are computed at a time where many are asked for, and rows that tell of the curvature.
_CHUNK, _SAMPLE = 2048, 1024
_BOLDEST = 2.0


@dataclass(frozen=True)
class FDSKL(Training):
    """Doubly stochastic gradients: rows and features are both drawn.

    Parameters
    ----------
    block : int
        Features that are drawn in a step.
    momentum : float
        The momentum of the steps that follow when all features are drawn.
    directions : {"private", "shared"}
        "shared" is the paper's form, which lets whoever receives a party's contributions solve for its columns.
    cache_mb : int
        Megabytes that an owner may use for features of rows that it has seen.
    **training
        The keyword parameters of `engine.options.Training`.
    """

    block: int = 256
    momentum: float = 0.9
    directions: str = "private"
    cache_mb: int = 1024
    epochs: int = field(default=30, kw_only=True)

    name: ClassVar[str] = "FDSKL"
    family: ClassVar[str] = "kernel"
    tells_signals: ClassVar[bool] = False  # to other label holders only

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("block", self.block, 1)
        whole_number("cache_mb", self.cache_mb, 0)
        one_of("directions", self.directions, DIRECTIONS)
        at_least("momentum", self.momentum, 0)
        if not self.momentum < 1:
            raise OptionError(f"momentum must be below 1, got {self.momentum!r}")

    def batch_for(self, rows: int) -> int:
        """Rows per batch where there are so many: large ones, but with enough of them in an epoch."""
        return min(rows, max(16, min(256, rows // 50))) if self.batch is None else super().batch_for(rows)

    def numbers_of_a_batch(self, outputs: int, parties: int) -> int:
        """None that counts: a feature of a row is the same number whenever it is told."""
        return 0

    def numbers_per_row(self, setting: Setting) -> int | None:
        """One for each feature; what is sent again says nothing new."""
        return setting.features

    def leaks(self, setting: Setting) -> tuple[Leak, ...]:
        """Phases at the label holders, who own the features; scores and signals between them."""
        everybody, holders, several = setting.parties, setting.holders, len(setting.holders) > 1
        far = "" if setting.pair else ", with {theirs} added"
        found = [
            *session_leaks(setting, self),
            Leak(
                DISTANCES, OF_COLUMNS, everybody, holders, ("phases",),
                "{who} could work out how far apart any two people are in your columns" + far
                + ", from {count} angles at most about each of {people}",
                setting.features, left=True,
            ),
        ]  # fmt: skip
        if self.directions == "shared":
            found.append(Leak(
                SHARED, OF_COLUMNS, everybody, holders, ("phases",),
                "{who} could work out your columns themselves, up to what all people have in common, as directions are "
                "shared", setting.features, left=True,
                warning="directions='shared': every party can work out everybody's directions, so who receives a "
                "party's phases can solve them for differences of that party's columns between rows; use "
                "directions='private' outside of comparisons",
            ))  # fmt: skip
        if setting.scaled:
            found.append(columns(setting, everybody, ("kernel scale", "gamma")))
        if not several:  # nobody else has a part of a score
            return (*found, nothing(setting, "scores", "evaluation", "prediction"))
        parts = contributions(setting, None, ("scores", "evaluation"), holders)
        zeros = nothing(setting, "scores", "evaluation", "prediction", of=setting.unlabelled)
        return (*found, *parts, *signals(setting, self._signalled(setting), to=holders), zeros)

    def boldness(self, loss: Loss) -> float:
        """Momentum lengthens every step already."""
        return min(loss.boldness, _BOLDEST)

    async def prepare(self, session: Session) -> None:
        """A first block of features of some rows, at the first label holder: it tells how long a step may be."""
        if self.step != "auto":
            return
        exchange = cast("KernelSession", session).exchange
        rows = np.sort(np.random.default_rng([self.seed, 0]).permutation(session.train.rows)[:_SAMPLE])
        found = await exchange.sample(session.leader, rows)
        if found is not None:
            cast("KernelBlock", session.block).sample(found)

    async def train(self, session: Session) -> None:
        """Algorithm 1: steps and evaluations, until nothing more is gained."""
        kernel = cast("KernelSession", session)
        done, go_on = await session.begin(kernel.exchange)
        for epoch in range(done + 1, self.epochs + 1):
            if not go_on:
                return
            batches = list(session.batches(epoch))
            if not batches:  # as many exchanges as `rounds` allows are done
                return
            stride = self.evaluate_every or len(batches)
            for at in range(0, len(batches), stride):
                for holder, rows in batches[at : at + stride]:
                    await self._step(kernel, holder, rows)
                    session.count_round(epoch)
                go_on = await session.evaluate(epoch)
                if not go_on:
                    break
            session.keep(epoch, go_on, kernel.exchange)

    async def _step(self, session: KernelSession, holder: str, rows: Rows) -> None:
        """Lines 2 to 10 of Algorithm 1 for a batch of rows and a block of features; `holder` is the active worker."""
        # Lines 2 and 3: the rows. Their order comes from the public seed, so no index is sent.
        exchange, block = session.exchange, session.coefficients
        # Line 4: new omega_i, if there are any left to draw; every party knows that from the order of the batches.
        new = exchange.draw(holder)
        # Line 5, Algorithm 3: omega_i . x + b of these rows, of all features whose owners do not have it yet.
        beside = await exchange.learn(exchange.train, rows)
        # Line 6, Algorithm 2: every owner's part of f(x).
        momentum = 0.0 if new is not None else self.momentum
        mine = exchange.train.part_of_f(rows, beside, block.ahead(momentum))
        # Line 7: f(x), their sum.
        scores = await session.sum_parts("scores", mine, holder)
        eta = session.eta()
        if new is None:
            await self._go_on(session, holder, rows, beside, scores, eta)
            return
        width = new.stop - new.start
        if self.step == "auto":
            # A few features know the kernel badly: what is drawn from them goes as far as a part of all would.
            eta *= width / exchange.layout.features
        alpha = None
        if scores is not None:
            # Lines 8 and 9: alpha_i = -gamma L'(f(x), y) phi_i(x), the mean over the rows, shared by the block's
            # features. The kept phi_i(x) come from line 5.
            signal, known = session.signal(scores, rows), exchange.train.known
            alpha = -eta * block.towards(known, rows, beside, signal, len(rows) * width)[new]
        # Line 10: alpha_j <- (1 - gamma lambda) alpha_j for all features j that were drawn before, at every worker.
        block.shrink(1.0 - eta * block.strength)
        if alpha is not None:
            block.place(new, alpha)

    async def _go_on(
        self, session: KernelSession, holder: str, rows: Rows, beside: Table, scores: FloatArray | None, eta: float
    ) -> None:
        """Beyond the paper: when all features are drawn, steps on all of them, at all owners, with momentum."""
        signal = await session.share_signal(holder, rows, scores)
        if signal is None:
            return
        block, exchange = session.coefficients, session.exchange
        await session.net.work(len(rows) * block.width, "backward")
        pull = block.strength * block.ahead(self.momentum)
        count = len(rows) * exchange.layout.features
        block.move(block.towards(exchange.train.known, rows, beside, signal, count, pull), eta, self.momentum)


class Exchange:
    """Algorithm 3 for many rows and features at once: contributions to phases, summed at the features' owner."""

    def __init__(
        self, net: Net, secure: SecureSum, layout: Layout, directions: Directions, parts: list[Any], budget: int
    ) -> None:
        self.net, self._sum, self.layout, self._directions = net, secure, layout, directions
        self.drawn = dict.fromkeys(layout.owners, 0)  # blocks
        self.train = PartRows(parts[0], layout, net.me, budget)
        self.validation: PartRows | None = None
        if len(parts) > 1:
            # Every party has to know what every owner keeps; the first one has the most features.
            rest = min(self.train.left(owner, layout, budget) for owner in layout.owners)
            self.validation = PartRows(parts[1], layout, net.me, max(0, rest))

    def draw(self, owner: str) -> slice | None:
        """The next block of an owner's features; None if it has drawn all of them."""
        number = self.drawn[owner]
        if number == self.layout.blocks(owner):
            return None
        self.drawn[owner] += 1
        return self.layout.span(owner, number)

    async def learn(self, part: PartRows, rows: Rows) -> Table:
        """Get the missing features of these rows to their owners; returns those of rows that are not kept."""
        beside = part.known.beside(rows) if self.net.me in self.layout.owners else np.zeros((0, 0), dtype=np.float32)
        for owner in self.layout.owners:
            pieces = part.ahead[owner].missing(rows, self.drawn[owner])
            for some in messages(pieces, self.layout.width):
                await self._get(part, rows, owner, some, beside)
            part.ahead[owner].learn(rows, self.drawn[owner])
        return beside

    async def _get(self, part: PartRows, rows: Rows, owner: str, pieces: list[FeaturePiece], beside: Table) -> None:
        """One message from each party: its contributions to some pieces, summed at their owner."""
        index = self.layout.owners.index(owner)
        spans = [self.layout.span(owner, piece.number) for piece in pieces]
        mine, cost = [], 0
        for piece, span in zip(pieces, spans, strict=True):
            width = span.stop - span.start
            cost += part.columns.nonzeros(rows[piece.rows]) * width
            mine.append(self._directions.project(part.columns, rows[piece.rows], (index, piece.number), width))
        await self.net.work(cost, "forward")
        total = await self._sum.total_phases("phases", merged(mine), owner)
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
        total = await self._sum.total_phases("phases", mine, owner)
        return None if total is None else to_features(total)

    def freeze(self) -> Any:
        """How many blocks are drawn, and from what; what is known of the rows is computed again."""
        return (tuple(self.drawn.values()), self._directions.secret, self._directions.phase_secret)

    def thaw(self, state: Any) -> None:
        """Take back what `freeze` gave."""
        drawn, *secrets = state
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

    async def sum_parts(self, tag: str, mine: FloatArray, holder: str) -> FloatArray | None:
        """The sum of all owners' parts of f at one of them."""
        if len(self.job.holders) == 1:  # nobody else has a part
            return mine if self.net.me == holder else None
        return await self.sum.total(tag, mine, holder)

    async def share_signal(self, holder: str, rows: Rows, scores: FloatArray | None) -> FloatArray | None:
        """dL/df of a batch at all owners: their features are this batch's too. None at parties that own none."""
        others = [name for name in self.job.holders if name != self.net.me]
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
