"""Block Newton: near the optimum of a linear model in tens of rounds.

Every party minimises its own quadratic model of the objective (`blocks.newton`), in which its signal follows its own
change: s + c (z_k,new - z_k,old), with the curvature c = d²L/dz². For most losses c follows from the signal and is not
sent. The scores of these directions are summed securely at the label holder, which finds the best point in the space of
all directions so far (`blocks.subspace`) and tells everybody the weights that lead there. That is one exchange, and
`NewtonParty.round` has it in order. What the first label holder decides is in `newton_leader`.

Near copies of a column at two parties make a direction slow: each party moves as if the other stood still. Where the
search sees progress slow down, parties send their direction in several pieces, each with random signs of its columns.
Each piece is one more dimension for the search, and for the messages. The signs are every party's own secret: with them
and the products of directions, whoever receives the sums could undo them and solve for single columns.

A label holder of all rows lets all its own columns take part in the search, and sends no direction. Several label
holders search together: the few numbers of each trial are summed like everything else. docs/adr/0014-block-newton.md
has the trials that led here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from colonnade.algorithms.newton_leader import GROWTH, Leader, Search, Verdict
from colonnade.algorithms.proximal_newton import ProximalNewton
from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.linear import LinearBlock
from colonnade.blocks.newton import NewtonBlock, OfRows, Place, ToldNumbers, signed_pieces
from colonnade.blocks.row_blocks import BLOCK, each_block, in_order, run_of
from colonnade.blocks.subspace import Held, PastDirections, Steps
from colonnade.engine.exchange import Part
from colonnade.engine.options import Training
from colonnade.engine.session import CHUNK, Session, session_leaks
from colonnade.errors import CheckpointError, OptionError, ProtocolError, one_of, whole_number
from colonnade.leaks import Leak, Setting, columns, contributions, nothing, objective, products, sequential, signals
from colonnade.objective.losses import sends_curvature
from colonnade.objective.penalties import ElasticNet
from colonnade.runtimes.wire import expect_array

# Messages about rows.
_SUMMED = ("directions", "evaluation")
# What a schedule without steps has in place of them; other values are refused.
_FIXED: dict[str, Any] = {
    "step": 1.0, "schedule": "constant", "batch": None, "sampling": "passes", "rounds": None, "evaluate_every": None,
}  # fmt: skip
# Columns up to which a label holder lets all of its own take part in every search.
_OWN_LIMIT = 1024
# Directions that every party remembers, however many columns it has.
_LEAST_ROOM = 8
# Rows whose scores under new directions are in full at a time.
_SPAN = 1 << 20
# The largest number in two bytes.
_MOST_SHORT = 32767.0


@dataclass(frozen=True)
class BlockNewton(Training):
    """Second-order steps: a round is one exchange, and an epoch is one round.

    Parameters
    ----------
    order : {"parallel", "sequential"}
        "sequential" takes one party's direction per round, which shows the label holder whose it was.
    pieces : int
        Into how many pieces a direction is cut, at most, where progress is slow; 1 is the fewest bytes per round.
    memory : int
        Directions that the search goes back to, at most.
    grow_from : int, optional
        Rows to start with, from each label holder in proportion. They become four times as many whenever they bring
        little more, up to all rows. None is all rows from the start.
    tol, patience, epochs, goal, metric_goal, seconds, seed
        As in `engine.options.Training`. There is no step, no schedule and no batch.
    """

    order: str = "parallel"
    pieces: int = 8
    memory: int = 512
    grow_from: int | None = None
    tol: float | None = field(default=1e-6, kw_only=True)
    patience: int = field(default=3, kw_only=True)
    epochs: int = field(default=200, kw_only=True)
    step: float | str = field(default=1.0, kw_only=True)
    schedule: str = field(default="constant", kw_only=True)

    name: ClassVar[str] = "BlockNewton"
    second_order: ClassVar[bool] = True
    worthwhile: ClassVar[float | None] = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("order", self.order, ("parallel", "sequential"))
        whole_number("pieces", self.pieces, 1)
        whole_number("memory", self.memory, 2)
        if self.pieces > self.memory // 2:
            raise OptionError(f"pieces must be at most half of memory={self.memory}, got {self.pieces}; lower it")
        if self.grow_from is not None:
            whole_number("grow_from", self.grow_from, 1)
        for option, only in _FIXED.items():
            if getattr(self, option) != only:
                raise OptionError(
                    f"BlockNewton takes no {option}, got {getattr(self, option)!r}; leave it out, or use VFB2 or FedBCD"
                )

    def batch_for(self, rows: int) -> int:
        """All rows: every round is about all of them."""
        return rows

    def smallest_batch(self, rows: int, holders: int) -> int:
        """Rows of the smallest message."""
        share = max(1, rows // holders)
        return share if self.grow_from is None else max(1, min(share, self.grow_from // holders))

    def numbers_between(self, outputs: int, parties: int, holders: int, batches: int) -> float:
        """Directions in one piece; as many times more as there are pieces, which the label holder says (`pieces`)."""
        return outputs

    def least_numbers(self, outputs: int, parties: int, holders: int, batches: int) -> float:
        """A round; several label holders, and those who begin with a sample of rows, look at all rows once besides."""
        return outputs * (1 + (holders > 1 or self.grow_from is not None))

    def numbers_per_row(self, setting: Setting) -> int | None:
        """As many as a direction has pieces, in every round; and scores, whenever rows are looked at that are new."""
        if setting.outputs is None or (self.grow_from is not None and setting.rows is None):
            return None
        looks = 1
        if self.grow_from is not None and setting.rows is not None:
            # Samples grow fourfold, may have to be looked at twice, and there is a last look at all rows.
            looks += 2 * (2 + math.ceil(math.log(max(1.0, setting.rows / self.grow_from), GROWTH)))
        return (looks + self.epochs * self.pieces) * setting.outputs

    def leaks(self, setting: Setting) -> tuple[Leak, ...]:
        """Directions there, signals back, and at the first label holder the products of directions."""
        numbers, back = self.numbers_per_row(setting), None
        if setting.outputs is not None:
            back = self.epochs * setting.outputs
        return (
            *session_leaks(setting, self),
            *contributions(setting, numbers, _SUMMED),
            *signals(setting, back, ("signal", "curvatures") if sends_curvature(setting.loss) else ("signal",)),
            products(setting, (setting.leader,), ("products",)),
            objective(setting, ("trial", "search", "move")),
            nothing(setting, "search", of=setting.unlabelled),  # zeros
            columns(setting, setting.parties, ("room",)),
            *(sequential(setting, numbers, _SUMMED) if self.order == "sequential" else ()),
        )

    async def train(self, session: Session) -> None:
        """Run this party's side."""
        party = NewtonParty(session, self)
        if isinstance(party.block.penalty, ElasticNet):
            await self._train_to_zeros(session, ProximalNewton(party))
            return
        await party.agree()
        found = await session.resume(party)
        done, go_on = found or (0, await party.begin())
        for epoch in range(done + 1, self.epochs + 1):
            if not go_on:
                return
            go_on = await party.round(epoch)
            session.keep(epoch, go_on, party)
        await party.end(self.epochs)

    async def _train_to_zeros(self, session: Session, party: ProximalNewton) -> None:
        """Run this party's side under an elastic net."""
        done, go_on = await session.resume(party) or (0, await party.begin())
        for epoch in range(done + 1, self.epochs + 1):
            if not go_on:
                return
            go_on = await party.round(epoch)
            session.keep(epoch, go_on, party)


class NewtonParty:
    """One party's side: what it remembers, what it sends in a round, and what it does with the answer."""

    def __init__(self, session: Session, options: BlockNewton) -> None:
        block = session.block
        if not isinstance(block, LinearBlock):
            kind = type(block).__name__
            raise OptionError(f"BlockNewton needs a linear block, got {kind}; use FedSGD or FedBCD for other blocks")
        self.session, self.net, self.loss, self.block = session, session.net, session.job.loss, block
        self.sequential, self.own = options.order == "sequential", NewtonBlock(block)
        self.leads = self.net.me == session.leader
        self.alone = len(session.job.holders) == 1  # one party has all labels: nobody else is asked in a search
        self.leader = Leader(block.penalty.curvature_bound, options.pieces, options.tol) if self.leads else None
        # Whether all columns of the leader take part in its searches; it then sends no direction.
        self.joins = self.alone and self.own.outputs == 1 and self.own.width <= _OWN_LIMIT
        # The directions of a party with many columns take about half the memory that its columns do.
        numbers = block.columns.nonzeros(np.arange(block.rows)) // (self.own.width * self.own.outputs)
        self.room = min(options.memory, max(_LEAST_ROOM, numbers))
        self.part = 1.0 if options.grow_from is None else min(1.0, options.grow_from / session.train.rows)
        self.samples, self.most_pieces = self.part < 1.0, options.pieces
        self._secret = self.net.secret(f"signs {options.seed}")
        self.search = Search(self)
        # Where numbers about many rows are; under an elastic net these are whole arrays, in memory.
        self.place: Place | None = None if isinstance(block.penalty, ElasticNet) else session.keeper
        self.own.place = self.place
        self._intercept = None if block.intercept is None else block.intercept.copy()
        self._start_anew()

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

    def _start_anew(self) -> None:
        """Forget all directions: at the start, and with every larger sample of rows."""
        self.directions = PastDirections(self.own.width * self.own.outputs)
        self.own.forget()
        self.pieces, self.stretch, self.fine, self.misled = 1, 1.0, False, False
        self.held: Held | None = None  # the rows whose label this holder has
        self.watched: Held | None = None  # and those of the validation part
        self.chosen = [(holder, rows) for holder in self.session.job.holders if len(rows := self._rows_of(holder))]
        self.rows = sum(len(rows) for _, rows in self.chosen)
        if self.samples and self.net.watcher is not None:
            self.net.watcher.looks_at(np.concatenate([rows for _, rows in self.chosen]))
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
        """Sum the scores of all rows that are used now; says whether to go on."""
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
        """If rounds ran out on a sample, see what the model is worth on all rows."""
        if self.part < 1.0:
            self.part = 1.0
            await self.begin(epoch)

    async def _held_of(self, part: Part, rows: Rows, holder: str, epoch: int) -> Held | None:
        """The scores as they are now, at the holder."""
        if epoch or not self.alone or self.session.job.started:
            return self._hold(part, rows, await self.session.scores_of(part, rows, holder))
        # At the very start all weights are 0, and only the intercept of the one label holder is not.
        return self._hold(part, rows, self.block.scores(rows, part.columns)) if self.leads else None

    def _hold(self, part: Part, rows: Rows, z: FloatArray | None) -> Held | None:
        if z is None or part.y is None:
            return None
        y = part.y if len(rows) == len(part.y) and run_of(rows) == 0 else part.y[rows]
        place = self.place if part is self.session.train else None
        return Held(self.loss, y, z, 1.0 / self.session.sum.narrow.scale, place)

    def _no_scores(self, rows: int) -> FloatArray:
        return np.zeros(rows if self.own.outputs == 1 else (rows, self.own.outputs))

    # -- a round, in order --------------------------------------------------------------------------------------

    async def round(self, epoch: int) -> bool:
        """One exchange: signals out, directions in, a search, and the move that it found; says whether to go on."""
        session = self.session
        # 1. Every label holder sends the signals of its rows.
        signals, curvatures = await self._signals(heeds=not (self.joins and self.leads))
        touched = sum(session.block.touched(rows) for _, rows in self.chosen)
        await self.net.work(2 * touched, "backward")
        # 2. Every party makes its direction, as long as the ring allows.
        direction = self._direction(epoch, signals, curvatures)
        del signals, curvatures  # as many numbers as there are rows, and no longer needed
        new, scores, largest = self._fitting(direction)
        await self.net.work(touched * self.pieces, "forward")
        # 3. The scores of all directions are summed at the label holders.
        if self.part < 1.0:
            session.allowance.focus((1.0 - self.part) * self._numbers)
        await self._sum_up(scores)
        session.count_round(epoch)
        # 4. The leader gets the products of all directions, for the penalty.
        await self._sum_products(new, largest)
        # 5. The leader searches, alone or with the other label holders, and everybody moves. Where the leader joins in
        # with its own columns, the search itself has moved these.
        weights = await self.search.run()
        await self._move(weights)
        # 6. The objective says how to go on.
        part, penalty = self.part, 0.0
        if self.leader is not None:
            penalty = self.leader.penalty_at(weights) + (self.block.penalty_value() if self.joins else 0.0)
        go_on = await self._judge(epoch, penalty, summed=not self.alone)
        return await self.begin(epoch) if self.part > part else go_on

    @property
    def _numbers(self) -> int:
        """Numbers about each row that leave a party in a round."""
        return self.own.outputs * self.pieces

    async def _signals(self, *, heeds: bool = True) -> tuple[list[OfRows], list[OfRows]]:
        """Signals and curvatures of all rows; of none, where this party only tells them and heeds them no more."""
        signals, curvatures = [], []
        for holder, rows in self.chosen:
            if self.net.watcher is not None:
                self.net.watcher.about("signal", holder, rows)
            held = self.held if holder == self.net.me else None
            told = None if held is None else held.signal
            signal = await self._tell_or_hear("signal", holder, rows, told, heeds=heeds)
            curvature = signal.made(self.loss.curvature_from)
            if curvature is None:
                told = None if held is None else held.curvature
                curvature = await self._tell_or_hear("curvatures", holder, rows, told, heeds=heeds)
            signals.append((rows, signal))
            curvatures.append((rows, curvature))
        return signals, curvatures

    async def _tell_or_hear(
        self, tag: str, holder: str, rows: Rows, told: Callable[[int, int], FloatArray] | None, *, heeds: bool
    ) -> ToldNumbers:
        """A number for each of a holder's rows: in two bytes while rounds bring much, later in four.

        told: the numbers of rows from one to before another, at their holder, which never has all of them in full.
        """
        kind: Any = np.float32 if self.fine else np.int16
        shape = (len(rows),) if self.own.outputs == 1 else (len(rows), self.own.outputs)
        if told is not None:
            unit = 1.0 if self.fine else max(_largest(told, len(rows)), 1e-300) / _MOST_SHORT
            short = np.empty(shape, kind)

            def shorten(at: int, end: int) -> None:
                short[at:end] = told(at, end) if self.fine else np.rint(told(at, end) / unit)

            each_block(shorten, len(rows))
            if tag == "signal":
                self.session.allowance.backward(short.size)
            await self.session.tell(tag, (unit, short))
            if not heeds:
                short = short[:0]
        else:
            heard = await self.session.hear(holder, tag)
            if type(heard) is not tuple or len(heard) != 2 or type(heard[0]) is not float:
                raise ProtocolError(f"party {holder!r} must tell a unit and an array at step {tag!r}")
            unit, short = heard[0], expect_array(heard[1], shape, kind, holder, tag)
            if not (math.isfinite(unit) and (kind is np.int16 or np.isfinite(short).all())):
                raise ProtocolError(f"party {holder!r} must tell finite numbers at step {tag!r}")
        return ToldNumbers(short, unit)

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
        return signed_pieces(whole, self.pieces, self._secret, epoch)

    def _fitting(self, new: FloatArray) -> tuple[FloatArray, list[tuple[str, Part, Steps]], float]:
        """Directions that fit into the narrow ring, their scores for each holder, and the largest of these.

        A direction may be of any length, since the search finds out how far to go.
        """
        most, session = 0.99 * self.session.sum.narrow.largest, self.session
        asked: list[tuple[str, Part, Rows]] = [(holder, session.train, rows) for holder, rows in self.chosen]
        if (part := session.validation) is not None:
            asked += [(holder, part, rows) for holder, rows in part.owned.items()]
        while True:
            new[...] = new.astype(np.float32)
            found = [self._scores(rows, new, most, part.columns) for _, part, rows in asked]
            largest = max((one for _, one in found), default=0.0)
            if not largest > most:
                return new, [(*each[:2], steps) for each, (steps, _) in zip(asked, found, strict=True)], largest
            new *= 0.5 * most / largest

    def _scores(self, rows: Rows, new: FloatArray, most: float, of: Any) -> tuple[Steps, float]:
        """Scores of directions in steps of the narrow ring, as far as they fit there, and the largest of them.

        Who has no direction to send, as a leader that searches with its own columns, has zeros.
        """
        steps = np.zeros((len(rows) * self.own.outputs, new.shape[1]), np.int32)
        largest = 0.0
        for at in range(0, len(rows) if new.any() else 0, _SPAN):
            some = self.own.scores(rows[at : at + _SPAN], new, of)
            largest = max(largest, float(some.max(initial=0.0)), -float(some.min(initial=0.0)))
            if not largest > most:
                some *= self.session.sum.narrow.scale
                first = at * self.own.outputs
                np.rint(some, out=some)
                steps[first : first + len(some)] = some
        return steps, largest

    async def _sum_up(self, scores: list[tuple[str, Part, Steps]]) -> None:
        """Everybody's directions, at the holder of each row's label."""
        scale = self.session.sum.narrow.scale
        for holder, part, mine in scores:
            held = self.held if part is self.session.train else self.watched
            places = held.add(mine.shape[1], self.room) if holder == self.net.me and held is not None else []
            for at in range(0, len(mine), CHUNK):
                some = mine[at : at + CHUNK] / scale
                found = await self.session.sum.total_narrow("directions", some, holder)
                if found is not None:
                    for column, one in zip(places, found.T, strict=False):
                        column[at : at + CHUNK] = np.rint(one * scale)

    async def _sum_products(self, new: FloatArray, largest: float) -> None:
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

    async def _move(self, weights: FloatArray) -> None:
        """Everybody goes to where the search ended."""
        leader, shape = self.session.leader, (self.directions.count,)
        if self.leads:
            await self.session.tell("move", weights)
        else:
            weights = expect_array(await self.session.hear(leader, "move"), shape, np.float64, leader, "move")
            if not np.isfinite(weights).all():
                raise ProtocolError(f"party {leader!r} must tell finite numbers at step 'move'")
        self.own.add(self.directions.combine(weights))
        if self.held is not None and not (self.joins and self.leads):  # where the search has moved these rows
            self.held.move(weights)
        if self.watched is not None:
            self.watched.move(weights)

    async def _judge(self, epoch: int, penalty: float, *, summed: bool, starts: bool = False) -> bool:
        """The objective, what follows from it for the next round, and whether there is one."""
        session, totals, whole = self.session, None, self.part >= 1.0
        parts = [(self.held, self.rows)]
        if session.validation is not None:
            parts.append((self.watched, session.validation.rows))
            session.see(*((None, None) if self.watched is None else (self.watched.z.copy(), self.watched.y)))
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
            verdict = Verdict.believed(told, session.leader, self.part, self.most_pieces, samples=self.samples)
        *_, self.fine, self.misled, self.pieces, self.stretch, self.part = verdict
        if whole and not self.misled:
            session.stopping.heed(verdict.best, verdict.improved)
        return not session.stopping.ends(verdict.stop, self._numbers)

    def _decide(self, leader: Leader, epoch: int, totals: FloatArray, *, starts: bool) -> Verdict:
        """At the leader: the verdict on this round, and the plan for the next one."""
        session, value = self.session, float(totals[0] + totals[1])
        misled = starts and self.samples and leader.misled(value)
        pieces = self._affordable(leader.pieces(value, self.pieces))
        numbers = self.own.outputs * pieces
        judged = (False, False, False)
        if self.part >= 1.0 and not misled:
            judged = session.stopping.judge(epoch, totals, numbers, leader.left)
        # One number about each row more is let out when all rows are looked at for the first time.
        hurry = session.stopping.late() or not session.allowance.affords(numbers + 2 * self.own.outputs)
        part = 1.0 if hurry else leader.larger(self.part)
        return Verdict(*judged, leader.fine, misled, pieces, self.stretch, part)

    def _affordable(self, pieces: int) -> int:
        """As many pieces as may still leave, and one at least."""
        left = self.session.allowance.left / self.own.outputs
        return pieces if pieces <= left + 1e-9 else max(1, math.floor(left + 1e-9))

    # -- a run that was broken off ------------------------------------------------------------------------------

    def freeze(self) -> Any:
        """All that the next round depends on; see `engine.kept.Frozen`."""
        curved = self.own.freeze()
        held = tuple([None if one is None else one.freeze() for one in (self.held, self.watched)])
        leader = None if self.leader is None else self.leader.freeze()
        told = (self.part, self.fine, self.pieces, self.stretch)
        return (told, self._secret, self.directions.rows, (curved, self.own.bent), held, leader)

    def _known(self, curvature: Any, rows: int) -> Any:
        """Curvatures that were kept, or what was kept of where they are."""
        if isinstance(curvature, np.ndarray):
            return curvature
        if self.place is None:
            raise CheckpointError("what was kept of rows is on a disk that this run does not use; start the job anew")
        return self.place.known_numbers(curvature, rows, np.float32)

    def thaw(self, state: Any) -> None:
        """Take back what `freeze` gave."""
        (self.part, fine, pieces, stretch), self._secret, directions, (curved, bent), held, leader = state
        self._start_anew()
        self.fine, self.pieces, self.stretch = fine, pieces, stretch
        self.directions.add(directions, self.room)
        if curved:
            known = [(rows, self._known(one, len(rows))) for (_, rows), one in zip(self.chosen, curved, strict=True)]
            self.own.make(known, self.rows, bent.copy())
            self.own.freeze()  # what the version that was taken up knows stays, until there are others
        if held[0] is not None:
            rows = dict(self.chosen)[self.net.me]
            self.held = self._hold(self.session.train, rows, self._no_scores(len(rows)))
        if held[1] is not None and (part := self.session.validation) is not None:
            self.watched = self._hold(part, part.owned[self.net.me], held[1][0])
        for one, kept in zip((self.held, self.watched), held, strict=True):
            if one is not None:
                one.thaw(kept)
        if self.leader is not None:
            self.leader.thaw(leader)


def _largest(told: Callable[[int, int], FloatArray], count: int) -> float:
    """The largest size of numbers that are known a block at a time."""

    def make(at: int, end: int) -> float:
        some = told(at, end)
        return max(float(some.max(initial=0.0)), -float(some.min(initial=0.0)))

    return max(in_order(make, [*range(0, count, BLOCK), count] if count else [0]), default=0.0)
