"""One party's side of block Newton: what it sends in a round, and what it does with the answer."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from colonnade.algorithms.newton_leader import Leader, next_part
from colonnade.algorithms.newton_search import Search
from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.linear import LinearBlock
from colonnade.blocks.newton import NewtonBlock, OfRows, PastDirections
from colonnade.blocks.subspace import Held
from colonnade.engine.parts import Part
from colonnade.engine.session import CHUNK, Session
from colonnade.errors import OptionError, ProtocolError
from colonnade.runtimes.wire import expect_array

# Columns up to which a label holder lets all of its own take part in every search.
_OWN_LIMIT = 1024
# Directions that every party remembers, however many columns it has.
_LEAST_ROOM = 8
# The largest number in two bytes.
_MOST_SHORT = 32767.0
# Directions are stretched at most so far, and so little, that their scores use the ring well.
_SHORTEST, _LONGEST = 1e-300, 1e300


class NewtonParty:
    """All that a party remembers between rounds."""

    def __init__(self, session: Session, *, sequential: bool, pieces: int, memory: int, grow_from: int | None) -> None:
        block = session.block
        if not isinstance(block, LinearBlock):
            kind = type(block).__name__
            raise OptionError(f"BlockNewton needs a linear block, got {kind}; use FedSGD or FedBCD for other blocks")
        self.session, self.net, self.loss, self.block = session, session.net, session.job.loss, block
        self.sequential, self.own = sequential, NewtonBlock(block)
        self.leads = self.net.me == session.leader
        self.alone = len(session.job.holders) == 1  # one party has all labels: nobody else is asked in a search
        self.leader = Leader(block.penalty.curvature_bound, pieces, session.options.tol) if self.leads else None
        # Whether all columns of the leader take part in its searches; it then sends no direction.
        self.joins = self.alone and self.own.outputs == 1 and self.own.width <= _OWN_LIMIT
        # The directions of a party with many columns take about half the memory that its columns do.
        numbers = block.columns.nonzeros(np.arange(block.rows)) // (self.own.width * self.own.outputs)
        self.room = min(memory, max(_LEAST_ROOM, numbers))
        self.part = 1.0 if grow_from is None else min(1.0, grow_from / session.train.rows)
        self.samples, self.most_pieces = self.part < 1.0, pieces
        self._secret = self.net.secret(f"signs {session.options.seed}")
        self.search = Search(self)
        self._intercept = None if block.intercept is None else block.intercept.copy()
        self._start_anew()

    async def agree(self) -> None:
        """On how many directions are remembered, and on whether the leader sends any."""
        session, net = self.session, self.net
        if not self.leads:
            await net.send(session.leader, "room", self.room)
            told = await net.recv(session.leader, "room")
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

    def _start_anew(self) -> None:
        """No directions yet: at the start, and with every larger sample of rows."""
        self.directions = PastDirections(self.own.width * self.own.outputs)
        self.pieces, self.stretch, self.fine, self.own.curved = 1, 1.0, False, []
        self.misled = False
        self.held: Held | None = None  # the rows whose label this holder has
        self.watched: Held | None = None  # and those of the validation part
        self.chosen = [(holder, rows) for holder in self.session.job.holders if len(rows := self._rows_of(holder))]
        self.rows = sum(len(rows) for _, rows in self.chosen)
        if self.leader is not None:
            self.leader.forget()

    def _rows_of(self, holder: str) -> Rows:
        """A holder's rows that are used now: the first ones of an order that the seed gives."""
        rows = self.session.train.owned[holder]
        if self.part >= 1.0 or not len(rows):
            return rows
        order = np.random.default_rng([self.session.options.seed, len(rows)]).permutation(len(rows))
        return np.sort(rows[order[: math.ceil(self.part * len(rows))]])

    # -- the start ----------------------------------------------------------------------------------------------

    async def begin(self, epoch: int = 0) -> bool:
        """The scores of all rows that are used now; says whether to go on."""
        go_on = await self._look_around(epoch)
        if self.misled:  # a sample that few columns could fit to the letter is no place to start from
            self.block.weights.restore(0.0, self._intercept)
            go_on = await self._look_around(epoch, again=True)
        if go_on and self.leads and self.joins:
            await self.search.run()
        return go_on

    async def _look_around(self, epoch: int, *, again: bool = False) -> bool:
        self._start_anew()
        for holder, rows in self.chosen:
            self.held = await self._held_of(self.session.train, rows, holder, epoch) or self.held
        if (part := self.session.validation) is not None:
            for holder, rows in part.owned.items():
                self.watched = await self._held_of(part, rows, holder, epoch) or self.watched
        return await self._judge(epoch, self.block.penalty_value(), summed=True, starts=not again)

    async def end(self, epoch: int) -> None:
        """If rounds ran out on a sample: what the model is worth on all rows."""
        if self.part < 1.0:
            self.part = 1.0
            await self.begin(epoch)

    async def _held_of(self, part: Part, rows: Rows, holder: str, epoch: int) -> Held | None:
        """The scores as they are now, at the holder."""
        if epoch or not self.alone:
            return self._hold(part, rows, await self.session.scores_of(part, rows, holder))
        # At the very start all weights are 0, and only the intercept of the one label holder is not.
        return self._hold(part, rows, self.block.scores(rows, part.columns)) if self.leads else None

    def _hold(self, part: Part, rows: Rows, z: FloatArray | None) -> Held | None:
        return None if z is None or part.y is None else Held(self.loss, part.y[rows], z)

    # -- a round ------------------------------------------------------------------------------------------------

    async def round(self, epoch: int) -> bool:
        """Signals out, directions in, a search, and the move that it found; says whether to go on."""
        session = self.session
        signals, curvatures = await self._signals()
        touched = sum(session.block.touched(rows) for _, rows in self.chosen)
        await self.net.work(2 * touched, "backward")
        new, scores, largest = self._fitting(self._direction(epoch, signals, curvatures))
        await self.net.work(touched * self.pieces, "forward")
        if self.part < 1.0:
            session.allowance.focus((1.0 - self.part) * self._numbers)
        await self._sum_up(scores)
        session.count_round(epoch)
        self.directions.add(np.ascontiguousarray(new.T, dtype=np.float32), self.room)
        products = [self.directions.times(new[:, j]) for j in range(self.pieces)]
        mine = [self.block.penalty_value(), largest]
        told = np.concatenate([mine, self.directions.times(self.own.pull()), *products])
        totals = await session.sum.total_wide("products", told, session.leader)
        if self.leader is not None and totals is not None:
            self._scale(self.leader.take(totals, self.directions.count, self.pieces))
            self.leader.penalty -= self.block.penalty_value() if self.joins else 0.0
        weights = await self.search.run()
        await self._move(weights)
        part, penalty = self.part, 0.0
        if self.leader is not None:
            penalty = self.leader.penalty_at(weights) + (self.block.penalty_value() if self.joins else 0.0)
        go_on = await self._judge(epoch, penalty, summed=not self.alone)
        return await self.begin(epoch) if self.part > part else go_on

    @property
    def _numbers(self) -> int:
        """About each row, that leave a party in a round."""
        return self.own.outputs * self.pieces

    async def _signals(self) -> tuple[list[OfRows], list[OfRows]]:
        """Signals and curvatures of all rows."""
        signals, curvatures = [], []
        for holder, rows in self.chosen:
            held = self.held if holder == self.net.me else None
            told = None if held is None else self.loss.signal(held.z, held.y)
            signal = await self._tell_or_hear("signal", holder, rows, told)
            curvature = self.loss.curvature_from(signal)
            if curvature is None:
                told = None if held is None else self.loss.curvature(held.z, held.y)
                curvature = await self._tell_or_hear("curvatures", holder, rows, told)
            signals.append((rows, signal))
            curvatures.append((rows, curvature))
        return signals, curvatures

    async def _tell_or_hear(self, tag: str, holder: str, rows: Rows, told: FloatArray | None) -> FloatArray:
        """A number for each of a holder's rows: in two bytes while rounds bring much, later in four."""
        kind: Any = np.float32 if self.fine else np.int16
        if told is not None:
            unit = 1.0 if self.fine else max(float(np.abs(told).max(initial=0.0)), 1e-300) / _MOST_SHORT
            short = (told if self.fine else np.rint(told / unit)).astype(kind)
            if tag == "signal":
                self.session.allowance.backward(told.size)
            await self.session.tell(tag, (unit, short))
        else:
            shape = (len(rows),) if self.own.outputs == 1 else (len(rows), self.own.outputs)
            heard = await self.net.recv(holder, tag)
            if type(heard) is not tuple or len(heard) != 2 or type(heard[0]) is not float:
                raise ProtocolError(f"party {holder!r} must tell a unit and an array at step {tag!r}")
            unit, short = heard[0], expect_array(heard[1], shape, kind, holder, tag)
            if not (math.isfinite(unit) and np.isfinite(short).all()):
                raise ProtocolError(f"party {holder!r} must tell finite numbers at step {tag!r}")
        return short.astype(np.float64) * unit

    def _direction(self, epoch: int, signals: list[OfRows], curvatures: list[OfRows]) -> FloatArray:
        """This party's new directions as columns: its step, and the same with random signs for each piece more."""
        own, names, leader = self.own, self.net.names, self.session.leader
        size = own.width * own.outputs
        turns = [name for name in names if not (self.joins and name == leader)]
        if self.net.me not in turns or (self.sequential and turns[(epoch - 1) % len(turns)] != self.net.me):
            return np.zeros((size, self.pieces))
        own.refresh(curvatures, self.rows)
        whole = own.step(own.gradient(signals, self.rows)).reshape(size, 1)
        whole *= self.stretch
        if self.pieces == 1:
            return whole
        found = np.empty((size, self.pieces))
        found[:, :1] = whole
        np.multiply(whole, self._signs(epoch, size), out=found[:, 1:])
        return found

    def _signs(self, epoch: int, size: int) -> Any:
        """+1 or -1 for each column and each piece but the first, from this party's own secret.

        Whoever knew them could solve the pieces' sums for single columns, masks or none.
        """
        count = size * (self.pieces - 1)
        stream = hashlib.shake_256(self._secret + epoch.to_bytes(8, "little")).digest(-(-count // 8))
        bits = np.unpackbits(np.frombuffer(stream, dtype=np.uint8), count=count).reshape(size, self.pieces - 1)
        return (2 * bits.astype(np.int8)) - 1

    def _fitting(self, new: FloatArray) -> tuple[FloatArray, list[tuple[str, Part, FloatArray]], float]:
        """Directions that fit into the narrow ring, their scores for each holder, and the largest of these.

        A direction may be of any length, since the search finds out how far to go.
        """
        most, session = 0.99 * self.session.sum.narrow.largest, self.session
        while True:
            new[...] = new.astype(np.float32)
            scores = [(holder, session.train, self._scores(new, rows)) for holder, rows in self.chosen]
            if (part := session.validation) is not None:
                scores += [(holder, part, self._scores(new, rows, part.columns)) for holder, rows in part.owned.items()]
            largest = max((float(np.abs(one).max(initial=0.0)) for _, _, one in scores), default=0.0)
            if not largest > most:
                return new, scores, largest
            new *= 0.5 * most / largest

    def _scores(self, new: FloatArray, rows: Rows, of: Any = None) -> FloatArray:
        """A row for each score, a column for each direction."""
        count = new.shape[1]
        z = self.own.forward(rows, new.reshape(self.own.width, self.own.outputs * count), of)
        return z.reshape(len(rows) * self.own.outputs, count)

    async def _sum_up(self, scores: list[tuple[str, Part, FloatArray]]) -> None:
        """Everybody's directions, at the holder of each row's label."""
        for holder, part, mine in scores:
            parts = [mine[at : at + CHUNK] for at in range(0, len(mine), CHUNK)]
            found = [await self.session.sum.total_narrow("directions", one, holder) for one in parts]
            held = self.held if part is self.session.train else self.watched
            if holder == self.net.me and held is not None and found:
                held.add(np.concatenate([one for one in found if one is not None]), self.room)

    def _scale(self, largest: float) -> None:
        """Keep the next directions' scores well within the ring, and well above its grain."""
        if largest > 0.0:
            wanted = math.floor(math.log2(0.5 * self.session.sum.narrow.largest / largest))
            self.stretch *= 2.0 ** max(-20, min(20, wanted))

    # -- the search, and what follows -------------------------------------------------------------------------------

    async def _move(self, weights: FloatArray) -> None:
        """Everybody goes to where the search ended."""
        leader, shape = self.session.leader, (self.directions.count,)
        if self.leads:
            await self.session.tell("move", weights)
        else:
            weights = expect_array(await self.net.recv(leader, "move"), shape, np.float64, leader, "move")
            if not np.isfinite(weights).all():
                raise ProtocolError(f"party {leader!r} must tell finite numbers at step 'move'")
        self.own.add(self.directions.combine(weights))
        for held in (self.held, self.watched):
            if held is not None:
                held.z = held.z + held.along(weights)

    async def _judge(self, epoch: int, penalty: float, *, summed: bool, starts: bool = False) -> bool:
        """The objective, what follows from it for the next round, and whether there is one."""
        session, totals = self.session, None
        parts = [(self.held, self.rows)]
        if session.validation is not None:
            parts.append((self.watched, session.validation.rows))
        shares = [
            share
            for held, rows in parts
            for share in ((0.0, 0.0, 0.0) if held is None else session.share_of(held.z, held.y, rows))
        ]
        mine, whole = np.array([penalty, *shares]), self.part >= 1.0
        if summed:
            totals = await session.sum.total_wide("objective", mine, session.leader)
        elif self.leads:
            totals = mine
        if self.leader is not None and totals is not None:
            value = float(totals[0] + totals[1])
            self.misled = starts and self.samples and self.leader.misled(value)
            self.pieces = self._affordable(self.leader.pieces(value, self.pieces))
            judged = whole and not self.misled
            left = self.leader.left
            verdict = session.stopping.judge(epoch, totals, self._numbers, left) if judged else (False, False, False)
            # One number about each row more is let out when all rows are looked at for the first time.
            hurry = session.stopping.late() or not session.allowance.affords(self._numbers + 2 * self.own.outputs)
            self.part = 1.0 if hurry else self.leader.larger(self.part)
            self.fine = self.leader.fine
            told = (*verdict, self.fine, self.misled, self.pieces, self.stretch, self.part)
            await session.tell("verdict", told)
        else:
            heard = self._believable(await self.net.recv(session.leader, "verdict"))
            verdict, self.fine, self.misled, self.pieces, self.stretch, self.part = heard
        if whole and not self.misled:
            session.stopping.heed(*verdict[:2])
        return not session.stopping.ends(verdict[2], self._numbers)

    def _affordable(self, pieces: int) -> int:
        """As many pieces as may still leave, and one at least."""
        left = self.session.allowance.left / self.own.outputs
        return pieces if pieces <= left + 1e-9 else max(1, math.floor(left + 1e-9))

    def _believable(self, told: Any) -> tuple[tuple[bool, bool, bool], bool, bool, int, float, float]:
        """A verdict that the job and this party's own limits allow: what a leader asks for is never simply done."""
        leader, kinds = self.session.leader, [type(one) for one in told] if type(told) is tuple else []
        if kinds != [bool] * 5 + [int, float, float]:
            raise ProtocolError(f"party {leader!r} must tell five bools and three numbers at step 'verdict'")
        *_, misled, pieces, stretch, part = told
        if not 1 <= pieces <= self.most_pieces:
            raise ProtocolError(
                f"party {leader!r} asks for directions in {pieces} pieces at step 'verdict', the job allows "
                f"{self.most_pieces} at most"
            )
        if not _SHORTEST <= stretch <= _LONGEST:
            raise ProtocolError(f"party {leader!r} asks for directions {stretch:g} times as long at step 'verdict'")
        if part not in (self.part, next_part(self.part), 1.0) or (misled and not self.samples):
            raise ProtocolError(
                f"party {leader!r} asks for {part:.3g} of the rows at step 'verdict', after {self.part:.3g} of them; "
                f"the job lets samples only grow"
            )
        return told[:3], told[3], misled, pieces, stretch, part

    # -- a run that was broken off ------------------------------------------------------------------------------

    def freeze(self) -> Any:
        """See `kept.Frozen`."""
        curved = tuple([curvature for _, curvature in self.own.curved])
        held = tuple([None if one is None else one.freeze() for one in (self.held, self.watched)])
        leader = None if self.leader is None else self.leader.freeze()
        told = (self.part, self.fine, self.pieces, self.stretch)
        return (told, self._secret, self.directions.rows, (curved, self.own.bent), held, leader)

    def thaw(self, state: Any) -> None:
        """The inverse."""
        (self.part, fine, pieces, stretch), self._secret, directions, (curved, bent), held, leader = state
        self._start_anew()
        self.fine, self.pieces, self.stretch = fine, pieces, stretch
        self.directions.add(directions, self.room)
        if curved:
            known = [(rows, curvature) for (_, rows), curvature in zip(self.chosen, curved, strict=True)]
            self.own.make(known, self.rows, bent.copy())
        if held[0] is not None:
            self.held = self._hold(self.session.train, dict(self.chosen)[self.net.me], held[0][0])
        if held[1] is not None and (part := self.session.validation) is not None:
            self.watched = self._hold(part, part.owned[self.net.me], held[1][0])
        for one, kept in zip((self.held, self.watched), held, strict=True):
            if one is not None:
                one.thaw(kept)
        if self.leader is not None:
            self.leader.thaw(leader)
