"""Several active workers in kernel learning, the label holders: who of them takes a step when.

Gu, Dang, Li, Huang: "Federated Doubly Stochastic Kernel Learning for Vertically Partitioned Data", KDD 2020. Algorithm
1 runs at every active worker, and its line 1 says "keep doing in parallel". What the workers share is f. Nobody writes
into what another holds: a worker draws features of its own, and keeps their coefficients. All that a step changes
elsewhere is the factor of line 10, which commutes with itself. So no lock is needed, and the only conflict is that f(x)
was read without what others have written meanwhile.

Every row belongs to one worker, so what owners know of its features changes in that worker's steps only. How many
features count in a step is told by its worker: parties would not agree on it where steps of others are under way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, Protocol

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.coefficients import Table
from colonnade.engine.kernel_session import Exchange, KernelSession, Lane
from colonnade.engine.sampling import Batch
from colonnade.errors import ProtocolError

IN_TURN, TOGETHER, ASYNCHRONOUS = WORKERS = ("in turn", "together", "asynchronous")


class Reading(NamedTuple):
    """What the first half of a step leaves for the second."""

    rows: Rows
    new: slice | None  # features of the active worker that were drawn for it
    beside: Table  # features of rows that are not kept
    signal: FloatArray | None  # dL/df of the rows, where this party has it
    before: int  # steps that had been written here when f was read


class WorkerSteps(Protocol):
    """What is done about a batch, in two halves; see `fdskl.DoublyStochasticSteps`."""

    session: KernelSession
    exchange: Exchange

    def over(self, holder: str) -> bool:
        """Whether this active worker has nothing more to do."""
        ...

    async def read(
        self,
        holder: str,
        rows: Rows,
        new: slice | None,
        drawn: Mapping[str, int] | None = None,
        lane: Lane | None = None,
    ) -> Reading:
        """All that is sent, up to f(x)."""
        ...

    async def write(self, reading: Reading) -> int:
        """The change of coefficients; how many other steps were written since f was read."""
        ...


async def open_workers(how: str, steps: WorkerSteps) -> InTurn:
    """The workers as the option says; one alone is always in turn."""
    if how == IN_TURN or len(steps.session.job.holders) == 1:
        return InTurn(steps)
    return (Together if how == TOGETHER else AtOwnPace)(steps, await steps.session.open_lanes())


class InTurn:
    """One step after the other, in the order of the batches: f(x) is always the newest."""

    def __init__(self, steps: WorkerSteps) -> None:
        self.steps, self.session, self.exchange = steps, steps.session, steps.exchange

    async def run(self, epoch: int, batches: Sequence[Batch]) -> None:
        """Take a step with each batch."""
        for holder, rows in batches:
            if not self.steps.over(holder):
                await self.steps.write(await self.steps.read(holder, rows, self.exchange.draw(holder)))
                self.session.count_round(epoch)


class Together(InTurn):
    """Each worker a step in every round: all read the same f before any of them writes, side by side."""

    def __init__(self, steps: WorkerSteps, lanes: Mapping[str, Lane]) -> None:
        super().__init__(steps)
        self.lanes = lanes

    def _by_holder(self, batches: Sequence[Batch]) -> dict[str, list[Rows]]:
        return {name: [rows for holder, rows in batches if holder == name] for name in self.lanes}

    async def run(self, epoch: int, batches: Sequence[Batch]) -> None:
        """Take a round with the first batch of each worker, then with the second, and so on."""
        net, shares = self.session.net, self._by_holder(batches)
        for turn in zip_longest(*shares.values()):
            working = [
                (holder, rows)
                for holder, rows in zip(shares, turn, strict=True)
                if rows is not None and not self.steps.over(holder)
            ]
            new = [self.exchange.draw(holder) for holder, _ in working]
            drawn = dict(self.exchange.drawn)
            under_way = [
                net.spawn(self.steps.read(holder, rows, span, drawn, self.lanes[holder]))
                for (holder, rows), span in zip(working, new, strict=True)
            ]
            for reading in [await one for one in under_way]:
                await self.steps.write(reading)
                self.session.count_round(epoch)


class AtOwnPace(Together):
    """Each worker step after step, whatever the others do. They meet only where the model is evaluated."""

    def __init__(self, steps: WorkerSteps, lanes: Mapping[str, Lane]) -> None:
        super().__init__(steps, lanes)
        self._told = {holder: (0,) * len(lanes) for holder in lanes}

    async def run(self, epoch: int, batches: Sequence[Batch]) -> None:
        """Let every worker go through its own batches."""
        shares = self._by_holder(batches)
        lanes = [self.session.net.spawn(self._lane(epoch, holder, rows)) for holder, rows in shares.items()]
        for lane in lanes:
            await lane

    async def _lane(self, epoch: int, holder: str, batches: Sequence[Rows]) -> None:
        """All steps of one worker, as this party takes part in them."""
        flow = self.session.flow
        for rows in batches:
            if self.steps.over(holder):
                return
            new, drawn = await self._begin(holder)
            reading = await self.steps.read(holder, rows, new, drawn, self.lanes[holder])
            between = await self.steps.write(reading)
            if self.session.net.me in self.lanes:  # others have no part of f, so nothing of theirs is stale
                flow.staleness.append(between)
                flow.rows, flow.used = flow.rows + len(rows), flow.used + len(rows)
            self.session.count_round(epoch)

    async def _begin(self, holder: str) -> tuple[slice | None, dict[str, int]]:
        """Line 3 of Algorithm 1, sent to all: not the row, which is public, but how many blocks of each owner count."""
        net, exchange = self.session.net, self.exchange
        if holder == net.me:
            new, told = exchange.draw(holder), tuple(exchange.drawn.values())
            await self.session.tell_each("pace", told)
        else:
            heard = await net.recv(holder, "pace")
            new = exchange.draw(holder)
            told = self._blocks(heard, holder)
        self._told[holder] = told
        return new, dict(zip(exchange.drawn, told, strict=True))

    def _blocks(self, heard: Any, holder: str) -> tuple[int, ...]:
        """What a worker told, if it can be true: no fewer blocks than before or than are its own, no more than are."""
        exchange = self.exchange
        most = {owner: exchange.layout.blocks(owner) for owner in exchange.drawn}
        fits = type(heard) is tuple and len(heard) == len(most) and all(type(blocks) is int for blocks in heard)
        if not fits or not all(
            low <= blocks <= high for low, blocks, high in zip(self._told[holder], heard, most.values(), strict=True)
        ):
            raise ProtocolError(f"party {holder!r} must tell how many blocks of features are drawn at step 'pace'")
        told: tuple[int, ...] = heard
        if told[list(most).index(holder)] != exchange.drawn[holder]:
            raise ProtocolError(f"party {holder!r} tells another number of its own blocks than it has drawn")
        return told
