"""Block Newton: near the optimum of a linear model in tens of rounds.

Every party minimises its own quadratic model of the objective (`blocks.newton`), in which its signal follows its own
change: s + c (z_k,new - z_k,old), with the curvature c = d²L/dz². For most losses c follows from the signal and is not
sent. The scores of these directions are summed securely at the label holder, which finds the best point in the space of
all directions so far (`blocks.subspace`) and tells everybody the weights that lead there. That is one exchange, and
`BlockNewton._round` has it in order. Each step is in `newton`: what a party does in `newton.party`, what the first
label holder decides in `newton.leader`.

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
from dataclasses import dataclass, field
from typing import Any, ClassVar

from colonnade.algorithms.proximal_newton import ProximalNewton
from colonnade.engine.options import Training
from colonnade.engine.session import Session, session_leaks
from colonnade.errors import OptionError, one_of, whole_number
from colonnade.leaks import Leak, Setting, columns, contributions, nothing, objective, products, sequential, signals
from colonnade.newton.leader import GROWTH
from colonnade.newton.party import NewtonParty
from colonnade.newton.summed_directions import fitting, sum_up
from colonnade.newton.told_signals import told_signals
from colonnade.objective.losses import sends_curvature
from colonnade.objective.penalties import ElasticNet

# Messages about rows.
_SUMMED = ("directions", "evaluation")
# What a schedule without steps has in place of them; other values are refused.
_FIXED: dict[str, Any] = {
    "step": 1.0, "schedule": "constant", "batch": None, "sampling": "passes", "rounds": None, "evaluate_every": None,
}  # fmt: skip


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
        party = NewtonParty(
            session,
            sequential=self.order == "sequential",
            pieces=self.pieces,
            memory=self.memory,
            grow_from=self.grow_from,
        )
        if isinstance(party.block.penalty, ElasticNet):
            await self._train_to_zeros(session, ProximalNewton(party))
            return
        await party.agree()
        found = await session.resume(party)
        done, go_on = found or (0, await self._begin(party))
        for epoch in range(done + 1, self.epochs + 1):
            if not go_on:
                return
            go_on = await self._round(party, epoch)
            session.keep(epoch, go_on, party)
        if party.used.part < 1.0:  # rounds ran out on a sample: see what the model is worth on all rows
            party.used.part = 1.0
            await self._begin(party, self.epochs)

    async def _train_to_zeros(self, session: Session, party: ProximalNewton) -> None:
        """Run this party's side under an elastic net."""
        done, go_on = await session.resume(party) or (0, await party.begin())
        for epoch in range(done + 1, self.epochs + 1):
            if not go_on:
                return
            go_on = await party.round(epoch)
            session.keep(epoch, go_on, party)

    async def _begin(self, party: NewtonParty, epoch: int = 0) -> bool:
        """Sum the scores of all rows that are used now; says whether to go on."""
        go_on = await self._look_around(party, epoch)
        if party.misled:  # a sample that few columns could fit to the letter is no place to start from
            party.go_back()
            go_on = await self._look_around(party, epoch, again=True)
        if go_on and party.leads and party.joins:
            await party.search()
        return go_on

    async def _look_around(self, party: NewtonParty, epoch: int, *, again: bool = False) -> bool:
        party.start_anew()
        await party.used.look(epoch)
        return await party.judge(epoch, party.block.penalty_value(), summed=True, starts=not again)

    async def _round(self, party: NewtonParty, epoch: int) -> bool:
        """One exchange: signals out, directions in, a search, and the move that it found; says whether to go on."""
        session, net, used = party.session, party.net, party.used
        # 1. Every label holder sends the signals of its rows.
        signals, curvatures = await told_signals(used, fine=party.fine, heeds=not (party.joins and party.leads))
        touched = used.touched()
        await net.work(2 * touched, "backward")
        # 2. Every party makes its direction, as long as the ring allows.
        direction = party.direction(epoch, signals, curvatures)
        del signals, curvatures  # as many numbers as there are rows, and no longer needed
        new, scores, largest = fitting(used, party.own, direction)
        await net.work(touched * party.pieces, "forward")
        # 3. The scores of all directions are summed at the label holders.
        if used.part < 1.0:
            session.allowance.focus((1.0 - used.part) * party.numbers)
        await sum_up(used, scores, party.room)
        session.count_round(epoch)
        # 4. The leader gets the products of all directions, for the penalty.
        await party.sum_products(new, largest)
        # 5. The leader searches, alone or with the other label holders, and everybody moves. Where the leader joins in
        # with its own columns, the search itself has moved these.
        weights = await party.search()
        await party.move(weights)
        # 6. The objective says how to go on.
        part, penalty = used.part, 0.0
        if party.leader is not None:
            penalty = party.leader.penalty_at(weights) + (party.block.penalty_value() if party.joins else 0.0)
        go_on = await party.judge(epoch, penalty, summed=not party.alone)
        return await self._begin(party, epoch) if used.part > part else go_on
