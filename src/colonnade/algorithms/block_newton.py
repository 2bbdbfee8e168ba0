"""Block Newton: near the optimum of a linear model in tens of rounds.

Every party minimises its own quadratic model of the objective (`blocks.newton`), in which its signal follows its own
change: s + c (z_k,new - z_k,old), with the curvature c = d²L/dz². For most losses c follows from the signal and is not
sent. The scores of these directions are summed securely at the label holder, which finds the best point in the space of
all directions so far (`subspace`) and tells everybody the weights that lead there. That is one exchange.

Near copies of a column at two parties make a direction slow: each party moves as if the other stood still. Where the
search sees progress slow down, parties send their direction in several pieces, each with random signs of its columns.
Each piece is one more dimension for the search, and for the messages. The signs are every party's own secret: with them
and the products of directions, who receives the sums could undo them and solve for single columns.

A label holder of all rows lets all its own columns take part in the search, and sends no direction. Several label
holders search together: the few numbers of each trial are summed like everything else. docs/adr/0014-block-newton.md
has the trials that led here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from colonnade.algorithms.newton_leader import GROWTH
from colonnade.algorithms.newton_party import NewtonParty
from colonnade.engine.options import Training
from colonnade.engine.session import Session, session_leaks
from colonnade.errors import OptionError, one_of, whole_number
from colonnade.leaks import Leak, Setting, columns, contributions, nothing, objective, products, sequential, signals

# Messages about rows.
_SUMMED = ("directions", "evaluation")
# What a schedule without steps has in place of them; other values are refused.
_FIXED: dict[str, Any] = {"step": 1.0, "schedule": "constant", "batch": None, "evaluate_every": None}


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
            *signals(setting, back, ("signal", "curvatures") if setting.loss == "poisson" else ("signal",)),
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
        await party.agree()
        found = await session.resume(party)
        done, go_on = found or (0, await party.begin())
        for epoch in range(done + 1, self.epochs + 1):
            if not go_on:
                return
            go_on = await party.round(epoch)
            session.keep(epoch, go_on, party)
        await party.end(self.epochs)
