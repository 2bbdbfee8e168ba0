"""One party in a block Newton run: each step of the rounds that `algorithms.block_newton` has in order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from colonnade.blocks import FloatArray
from colonnade.blocks.linear import LinearBlock
from colonnade.blocks.newton import NewtonBlock, OfRows, Place, signed_pieces
from colonnade.blocks.subspace import PastDirections
from colonnade.engine.session import Session
from colonnade.errors import CheckpointError, OptionError, ProtocolError
from colonnade.newton.leader import Leader, Verdict
from colonnade.newton.rows_in_use import RowsInUse
from colonnade.newton.search import Search
from colonnade.objective.penalties import ElasticNet
from colonnade.runtimes.wire import expect_array

# Columns up to which a label holder lets all of its own take part in every search.
_OWN_LIMIT = 1024
# Directions that every party remembers, however many columns it has.
_LEAST_ROOM = 8


class NewtonParty:
    """One party's side: what it remembers, what it sends in a round, and what it does with the answer.

    Parameters
    ----------
    session
        This party in the run.
    sequential
        Whether one party sends a direction per round.
    pieces, memory, grow_from
        As `BlockNewton` has them.
    """

    def __init__(self, session: Session, *, sequential: bool, pieces: int, memory: int, grow_from: int | None) -> None:
        block = session.block
        if not isinstance(block, LinearBlock):
            kind = type(block).__name__
            raise OptionError(f"BlockNewton needs a linear block, got {kind}; use FedSGD or FedBCD for other blocks")
        self.session, self.net, self.block = session, session.net, block
        self.sequential, self.own = sequential, NewtonBlock(block)
        self.leads = self.net.me == session.leader
        tol = session.options.tol
        self.leader = Leader(block.penalty.curvature_bound, pieces, tol) if self.leads else None
        self.alone = len(session.job.holders) == 1
        # Whether all columns of the leader take part in its searches; it then sends no direction.
        self.joins = self.alone and self.own.outputs == 1 and self.own.width <= _OWN_LIMIT
        # The directions of a party with many columns take about half the memory that its columns do.
        numbers = block.columns.nonzeros(np.arange(block.rows)) // (self.own.width * self.own.outputs)
        self.room = min(memory, max(_LEAST_ROOM, numbers))
        self.most_pieces = pieces
        self._secret = self.net.secret(f"signs {session.options.seed}")
        # Where numbers about many rows are; under an elastic net these are whole arrays, in memory.
        self.own.place = self.place = None if isinstance(block.penalty, ElasticNet) else session.keeper
        self._intercept = None if block.intercept is None else block.intercept.copy()
        self.used = RowsInUse(session, block, grow_from, self.place)
        self._search = Search(self.used, self.own, self.leader)
        self._forget()

    # -- the start ----------------------------------------------------------------------------------------------

    async def agree(self) -> None:
        """Agree on how many directions are remembered, and on whether the leader sends any."""
        session, net = self.session, self.net
        if not self.leads:
            await net.send(session.leader, "room", self.room)
            told = await session.hear(session.leader, "room")
            if type(told) is not tuple or [type(one) for one in told] != [int, bool] or not 0 < told[0] <= self.room:
                raise ProtocolError(
                    f"party {session.leader!r} must tell a number up to {self.room} and a bool at step 'room'"
                )
            if told[1] and not (self.alone and self.own.outputs == 1):
                raise ProtocolError(f"party {session.leader!r} must not search with its own columns, as the job stands")
            self.room, self.joins = told
            self.most_pieces = max(1, min(self.most_pieces, self.room // 2))
            return
        for name in session.others:
            told = await net.recv(name, "room")
            if type(told) is not int or not told > 0:
                raise ProtocolError(f"party {name!r} must tell a number above 0 at step 'room'")
            self.room = min(self.room, told)
        await session.tell("room", (self.room, self.joins))
        self.most_pieces = max(1, min(self.most_pieces, self.room // 2))
        if self.leader is not None:
            self.leader.most_pieces = self.most_pieces

    def start_anew(self) -> None:
        """Forget all directions and all scores: at the start, and with every larger sample of rows."""
        self._forget()
        self.used.choose()

    def _forget(self) -> None:
        self.directions = PastDirections(self.own.width * self.own.outputs)
        self.own.forget()
        self.pieces, self.stretch, self.fine, self.misled = 1, 1.0, False, False
        if self.leader is not None:
            self.leader.forget()

    def go_back(self) -> None:
        """Return to where the run began."""
        self.block.weights.restore(0.0, self._intercept)

    # -- the steps of a round -----------------------------------------------------------------------------------

    @property
    def numbers(self) -> int:
        """Numbers about each row that leave a party in a round."""
        return self.own.outputs * self.pieces

    def direction(self, epoch: int, signals: list[OfRows], curvatures: list[OfRows]) -> FloatArray:
        """This party's new directions as columns: its step, and the same with random signs for each piece more."""
        own, names, leader = self.own, self.net.names, self.session.leader
        size = own.width * own.outputs
        turns = [name for name in names if not (self.joins and name == leader)]
        if self.net.me not in turns or (self.sequential and turns[(epoch - 1) % len(turns)] != self.net.me):
            return np.zeros((size, self.pieces))
        own.refresh(curvatures, self.used.count)
        whole = own.step(own.gradient(signals, self.used.count)).reshape(size, 1)
        whole *= self.stretch
        return signed_pieces(whole, self.pieces, self._secret, epoch)

    async def sum_products(self, new: FloatArray, largest: float) -> None:
        """Remember the new directions; their products with all that are remembered are summed at the leader."""
        session = self.session
        self.directions.add(np.ascontiguousarray(new.T, dtype=np.float32), self.room)
        products = [self.directions.times(new[:, j]) for j in range(self.pieces)]
        mine = [self.block.penalty_value(), largest]
        told = np.concatenate([mine, self.directions.times(self.own.pull()), *products])
        totals = await session.sum.total_wide("products", told, session.leader)
        if self.leader is not None and totals is not None:
            self._scale(self.leader.take(totals, self.directions.count, self.pieces))
            self.leader.penalty -= self.block.penalty_value() if self.joins else 0.0

    def _scale(self, largest: float) -> None:
        """Keep the next directions' scores well within the ring, and well above its grain."""
        if largest > 0.0:
            wanted = math.floor(math.log2(0.5 * self.session.sum.narrow.largest / largest))
            self.stretch *= 2.0 ** max(-20, min(20, wanted))

    async def search(self) -> FloatArray:
        """The weights of the best point among all directions, at the leader; elsewhere a share in finding it."""
        return await self._search.run(self.directions.count, joins=self.joins)

    async def move(self, weights: FloatArray) -> None:
        """Everybody goes to where the search ended."""
        leader, shape, used = self.session.leader, (self.directions.count,), self.used
        if self.leads:
            await self.session.tell("move", weights)
        else:
            weights = expect_array(await self.session.hear(leader, "move"), shape, np.float64, leader, "move")
            if not np.isfinite(weights).all():
                raise ProtocolError(f"party {leader!r} must tell finite numbers at step 'move'")
        self.own.add(self.directions.combine(weights))
        if used.held is not None and not (self.joins and self.leads):  # where the search has moved these rows
            used.held.move(weights)
        if used.watched is not None:
            used.watched.move(weights)

    async def judge(self, epoch: int, penalty: float, *, summed: bool, starts: bool = False) -> bool:
        """The objective, what follows from it for the next round, and whether there is one."""
        session, used, totals = self.session, self.used, None
        whole = used.part >= 1.0
        parts = [(used.held, used.count)]
        if session.validation is not None:
            parts.append((used.watched, session.validation.rows))
            session.see(*((None, None) if used.watched is None else (used.watched.z.copy(), used.watched.y)))
        shares = [
            share
            for held, rows in parts
            for share in ((0.0, 0.0, 0.0) if held is None else session.share_of(held.z, held.y, rows, held.value()))
        ]
        mine = np.array([penalty, *shares])
        if summed:
            totals = await session.sum.total_wide("objective", mine, session.leader)
        elif self.leads:
            totals = mine
        if self.leader is not None and totals is not None:
            verdict = self._decide(self.leader, epoch, totals, starts=starts)
            await session.tell("verdict", tuple(verdict))
        else:
            told = await session.hear(session.leader, "verdict")
            verdict = Verdict.believed(told, session.leader, used.part, self.most_pieces, samples=used.samples)
        *_, self.fine, self.misled, self.pieces, self.stretch, used.part = verdict
        if whole and not self.misled:
            session.stopping.heed(verdict.best, verdict.improved)
        return not session.stopping.ends(verdict.stop, self.numbers)

    def _decide(self, leader: Leader, epoch: int, totals: FloatArray, *, starts: bool) -> Verdict:
        """At the leader: the verdict on this round, and the plan for the next one."""
        session, used, value = self.session, self.used, float(totals[0] + totals[1])
        misled = starts and used.samples and leader.misled(value)
        pieces = self._affordable(leader.pieces(value, self.pieces))
        numbers = self.own.outputs * pieces
        judged = (False, False, False)
        if used.part >= 1.0 and not misled:
            judged = session.stopping.judge(epoch, totals, numbers, leader.left)
        # One number about each row more is let out when all rows are looked at for the first time.
        hurry = session.stopping.late() or not session.allowance.affords(numbers + 2 * self.own.outputs)
        part = 1.0 if hurry else leader.larger(used.part)
        return Verdict(*judged, leader.fine, misled, pieces, self.stretch, part)

    def _affordable(self, pieces: int) -> int:
        """As many pieces as may still leave, and one at least."""
        left = self.session.allowance.left / self.own.outputs
        return pieces if pieces <= left + 1e-9 else max(1, math.floor(left + 1e-9))

    # -- a run that was broken off ------------------------------------------------------------------------------

    def freeze(self) -> Any:
        """All that the next round depends on; see `engine.kept.Frozen`."""
        curved = self.own.freeze()
        held = self.used.freeze()
        leader = None if self.leader is None else self.leader.freeze()
        told = (self.used.part, self.fine, self.pieces, self.stretch)
        return (told, self._secret, self.directions.rows, (curved, self.own.bent), held, leader)

    def thaw(self, state: Any) -> None:
        """Take back what `freeze` gave."""
        (part, fine, pieces, stretch), self._secret, directions, (curved, bent), held, leader = state
        self.used.part = part
        self.start_anew()
        self.fine, self.pieces, self.stretch = fine, pieces, stretch
        self.directions.add(directions, self.room)
        if curved:
            chosen = zip(self.used.chosen, curved, strict=True)
            known = [(rows, _known(self.place, one, len(rows))) for (_, rows), one in chosen]
            self.own.make(known, self.used.count, bent.copy())
            self.own.freeze()  # what the version that was taken up knows stays, until there are others
        self.used.thaw(held)
        if self.leader is not None:
            self.leader.thaw(leader)


def _known(place: Place | None, curvature: Any, rows: int) -> Any:
    """Curvatures that were kept, or what was kept of where they are."""
    if isinstance(curvature, np.ndarray):
        return curvature
    if place is None:
        raise CheckpointError("what was kept of rows is on a disk that this run does not use; start the job anew")
    return place.known_numbers(curvature, rows, np.float32)
