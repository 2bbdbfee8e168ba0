"""FDSKL: kernel learning on split columns by doubly stochastic gradients.

Gu, Dang, Li, Huang: "Federated Doubly Stochastic Kernel Learning for Vertically Partitioned Data", KDD 2020. Algorithm
1 runs at a worker with labels (`DoublyStochasticSteps`, line by line), Algorithm 2 computes its part of f(x), Algorithm
3 gets omega . x + b to it (`kernel_session.Exchange`). The model is f(x) = sum of alpha_i phi_i(x), equation (7);
feature i and its coefficient belong to the worker that drew it. "Keep doing in parallel", line 1, is `active_workers`.

Beyond the paper: a step takes a batch of rows and draws a block of features. What an owner once learnt of a row it
keeps, within `cache_mb`. When `features` are drawn, steps go on over all of them with momentum, so the solution does
not stop where the features end; `refit=False` ends there, as printed. Phases carry a fresh mask in every message, and
directions are every party's own (see `blocks.phases`, also for what Algorithm 3 lacks).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, cast

import numpy as np

from colonnade.algorithms.active_workers import WORKERS, Reading, open_workers
from colonnade.blocks import Rows
from colonnade.blocks.coefficients import KernelBlock
from colonnade.engine.kernel_session import KernelSession, Lane
from colonnade.engine.options import Training
from colonnade.engine.session import Session, session_leaks
from colonnade.errors import OptionError, at_least, one_of, whole_number
from colonnade.leaks import DISTANCES, OF_COLUMNS, SHARED, Leak, Setting, columns, contributions, nothing, signals
from colonnade.objective.losses import Loss

DIRECTIONS = ("private", "shared")
_SAMPLE = 1024  # rows that tell of the curvature
_BOLDEST = 2.0
# Without a refit, the noise of features that are seen once bounds a step: `docs/adr/0038-fdskl-as-printed.md`.
_NOISE = 8.0


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
    refit : bool
        Whether steps go on over all features when they are drawn. False is the paper's Algorithm 1 as printed, with a
        constant step: training ends with the last block. Then a smaller `block` makes more steps.
    workers : {"in turn", "together", "asynchronous"}
        How several label holders work: one step after the other; each a step in every round, all from the same f; or
        each at its own pace, as in the paper, with whatever the others have written by then.
    cache_mb : int
        Megabytes that an owner may use for features of rows that it has seen.
    **training
        The keyword parameters of `engine.options.Training`.
    """

    block: int = 256
    momentum: float = 0.9
    directions: str = "private"
    cache_mb: int = 1024
    refit: bool = True
    workers: str = "in turn"
    epochs: int = field(default=30, kw_only=True)

    name: ClassVar[str] = "FDSKL"
    family: ClassVar[str] = "kernel"
    tells_signals: ClassVar[bool] = False  # to other label holders only

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("block", self.block, 1)
        whole_number("cache_mb", self.cache_mb, 0)
        one_of("directions", self.directions, DIRECTIONS)
        one_of("workers", self.workers, WORKERS)
        if not isinstance(self.refit, bool):
            raise OptionError(f"refit must be True or False, got {self.refit!r}")
        at_least("momentum", self.momentum, 0)
        if not self.momentum < 1:
            raise OptionError(f"momentum must be below 1, got {self.momentum!r}")
        if not self.refit and self.schedule == "adaptive":
            # There is no way back to better coefficients where features are drawn once: the printed step is constant.
            object.__setattr__(self, "schedule", "constant")

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
        shared = signals(setting, self._signalled(setting), to=holders) if self.refit else ()
        return (*found, *parts, *shared, zeros)

    def boldness(self, loss: Loss) -> float:
        """Momentum lengthens every step already."""
        return min(loss.boldness, _BOLDEST)

    def drawing_step(self, eta: float, width: int, features: int, loss: Loss) -> float:
        """The "auto" step of a block of so many of all features, from the step that the whole kernel would bear."""
        if self.refit:  # a few features know the kernel badly: a block goes as far as its part of all would
            return eta * width / features
        return min(eta, width / (_NOISE * loss.curvature_bound))

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
        """Algorithm 1: steps and evaluations, until nothing more is gained or, without a refit, nothing more drawn."""
        kernel = cast("KernelSession", session)
        exchange, workers = kernel.exchange, await open_workers(self.workers, DoublyStochasticSteps(self, kernel))
        done, go_on = await session.begin(exchange)
        for epoch in range(done + 1, self.epochs + 1):
            if not go_on:
                return
            batches = list(session.batches(epoch))
            if not batches:  # as many exchanges as `rounds` allows are done
                return
            stride = self.evaluate_every or len(batches)
            for at in range(0, len(batches), stride):
                await workers.run(epoch, batches[at : at + stride])
                go_on = await session.evaluate(epoch) and (self.refit or not exchange.complete)
                if not go_on:
                    break
            session.keep(epoch, go_on, exchange)


class DoublyStochasticSteps:
    """Algorithm 1 at one party: what it does about a batch of rows and a block of features of one active worker.

    A step has two halves. `read` is all that is sent, and ends with f(x) at the active worker; `write` changes the
    coefficients of whoever has any. When they follow each other is up to `active_workers`.
    """

    def __init__(self, method: FDSKL, session: KernelSession) -> None:
        self.method, self.session, self.exchange = method, session, session.exchange
        self._written = 0  # steps

    def over(self, holder: str) -> bool:
        """Whether this active worker has nothing more to do: its features are drawn, and there is no refit."""
        return not self.method.refit and self.exchange.left(holder) == 0

    async def read(
        self,
        holder: str,
        rows: Rows,
        new: slice | None,
        drawn: Mapping[str, int] | None = None,
        lane: Lane | None = None,
    ) -> Reading:
        """Lines 2 to 7, `holder` is the active worker. `new` are its new features, None when it has all of them."""
        session, exchange, momentum = self.session, self.exchange, 0.0 if new is not None else self.method.momentum
        # Lines 2 and 3: the rows. Their order comes from the public seed, so no index is sent. Line 4: omega_i, which
        # every party draws its own part of.
        before = self._written
        # Line 5, Algorithm 3: omega_i . x + b of these rows, of all features whose owners do not have it yet.
        beside = await exchange.learn(exchange.train, rows, drawn, lane)
        # Line 6, Algorithm 2: every owner's part of f(x).
        mine = exchange.train.part_of_f(rows, beside, session.coefficients.ahead(momentum))
        # Line 7: f(x), their sum.
        scores = await session.sum_parts("scores", mine, holder, lane)
        if new is not None:
            return Reading(rows, new, beside, None if scores is None else session.signal(scores, rows), before)
        # Beyond the paper: features of other owners move too, for which they need the signal.
        exchange.refit_from = exchange.refit_from or session.net.traffic.rounds + 1
        return Reading(rows, None, beside, await session.share_signal(holder, rows, scores), before)

    async def write(self, reading: Reading) -> int:
        """Lines 8 to 10. Returns how many other steps were written here since this one was read."""
        session, block, method = self.session, self.session.coefficients, self.method
        eta, rows, new = session.eta(), reading.rows, reading.new
        if new is None:
            await self._go_on(reading, eta)
        else:
            width = new.stop - new.start
            if method.step == "auto":
                eta = method.drawing_step(eta, width, self.exchange.layout.features, session.job.loss)
            alpha = None
            if reading.signal is not None:
                # Lines 8 and 9: alpha_i = -gamma L'(f(x), y) phi_i(x), the mean over the rows, shared by the block's
                # features. The kept phi_i(x) come from line 5.
                known, count = self.exchange.train.known, len(rows) * width
                alpha = -eta * block.towards(known, rows, reading.beside, reading.signal, count)[new]
            # Line 10: alpha_j <- (1 - gamma lambda) alpha_j for all features j drawn before, at every worker. Each of
            # them takes part in every step, so none has to be told.
            block.shrink(1.0 - eta * block.strength)
            if alpha is not None:
                block.place(new, alpha)
        between, self._written = self._written - reading.before, self._written + 1
        return between

    async def _go_on(self, reading: Reading, eta: float) -> None:
        """Beyond the paper: when all features are drawn, steps on all of them, at all owners, with momentum."""
        if reading.signal is None:
            return
        session, block, rows = self.session, self.session.coefficients, reading.rows
        momentum, known = self.method.momentum, self.exchange.train.known
        await session.net.work(len(rows) * block.width, "backward")
        pull = block.strength * block.ahead(momentum)
        count = len(rows) * self.exchange.layout.features
        block.move(block.towards(known, rows, reading.beside, reading.signal, count, pull), eta, momentum)
