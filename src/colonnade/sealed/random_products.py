"""Products of everybody's columns with random numbers, for all rounds at once.

A holder draws random coefficients and random signals for every round beforehand, and lets the others multiply their
columns with them, in shares. In a round, a share is sent as its difference to the random numbers, which says nothing,
and the product with the difference is the owner's own business. So a round costs one short message instead of a long
question and a long answer, and one question serves all rounds.

    coefficients    Q_i b and S_i b for random b, of which a holder's share of the coefficients is taken off
    signals         Q_i' r for random r: the first holder's signals are taken off, the second's *are* minus r
    weighted        Q_j' r for random r, of which a holder's share of another's columns times D is taken off
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from colonnade.sealed import wide
from colonnade.sealed.columns import FORWARD_BITS, WhiteColumns
from colonnade.sealed.inverse import CURVATURE_BITS
from colonnade.sealed.members import Members
from colonnade.sealed.schedule import Round
from colonnade.sealed.slots import SlotLayout
from colonnade.sealed.wide import WideArray, WordArray

STATE_BITS = 36  # of coefficients and gradients behind their points
WEIGHTED = "weighted columns"
_MOST_VECTORS = 1024  # that share answers: more of them make many short pieces


class RandomProducts:
    """One party's side of all random products; `await prepared(...)` makes them.

    Attributes
    ----------
    random
        A holder's random coefficients (d, rounds), of each other party.
    vectors
        A holder's random signals (rounds, length), for each number of rows; the first holder's begin with those for the
        signals before the first step, one for every score of a row.
    asked, lent
        This party's shares of products with others' columns, and of its own columns with others' random numbers, by
        what they are, by the other party, and by the number of rows.
    owners
        The parties whose columns are multiplied with D row by row: all but the one with most columns.
    weighted
        A holder's random vectors (d, length), of each owner and round with a new curvature.
    sums, lent_sums
        This party's shares of products with these, by owner, by the party with the other columns or the holder with
        the vectors, and by round.
    fixed
        A holder's share of what is added to the curvature of so many rows.
    """

    def __init__(
        self, members: Members, own: WhiteColumns, rounds: tuple[Round, ...], period: float, outputs: int = 1
    ) -> None:
        self.members, self.own, self.outputs = members, own, outputs
        # Where rows have several scores, each of them is a round of its own here: number r of score k is r outputs + k.
        self.rounds = rounds = tuple(one for one in rounds for _ in range(outputs))
        self.shift = 64 - int(np.log2(period)) - FORWARD_BITS - STATE_BITS
        # For every number of rows that rounds are about: which rounds those are.
        self.groups: dict[int, list[int]] = {members.rows: []}
        for number, one in enumerate(rounds):
            if not one.known:
                self.groups.setdefault(one.rows, []).append(number)
        self.random: dict[str, WideArray] = {}
        self.vectors: dict[int, WordArray] = {}
        self.asked: dict[tuple[str, str, int], Any] = {}
        self.lent: dict[tuple[str, str, int], Any] = {}
        order = list(members.sizes)
        self._by_size = sorted(order, key=lambda name: (members.sizes[name], order.index(name)))
        self.owners = tuple(self._by_size[:-1])
        self.weighted: dict[tuple[str, int], WordArray] = {}
        self.sums: dict[tuple[str, str, int], WordArray] = {}
        self.lent_sums: dict[tuple[str, str, int], WordArray] = {}
        self.fixed: dict[int, WideArray] = {}

    def place(self, number: int) -> int:
        """Return which of the rounds about as many rows this round is."""
        return self.groups[self.rounds[number].rows].index(number)

    def _scored(self) -> list[tuple[int, list[int]]]:
        """Return the numbers of rows of which there are scores, and in which rounds."""
        return [(rows, numbers) for rows, numbers in self.groups.items() if numbers]

    def after(self, owner: str) -> tuple[str, ...]:
        """Return the parties whose columns are multiplied with this owner's weighted ones."""
        return tuple(self._by_size[self._by_size.index(owner) + 1 :])

    def _runs(self) -> Iterator[tuple[str, int, list[int]]]:
        """Yield owners, numbers of rows, and rounds whose weighted columns are multiplied with in one go."""
        curved: dict[int, list[int]] = {}
        for number, one in enumerate(self.rounds):
            if one.curvature:
                curved.setdefault(one.curvature, []).append(number)
        for owner in self.owners:
            most = max(1, _MOST_VECTORS // self.members.sizes[owner])
            for rows, numbers in curved.items():
                for start in range(0, len(numbers), most):
                    yield owner, rows, numbers[start : start + most]

    async def prepare(self) -> None:
        """Ask for all products, answer the others' questions, and read what they answer."""
        holds, me = self.members.channel.holds, self.members.me
        waiting = await self._questions() if holds else {}
        weighted = await self._weighted_questions() if holds else []
        for rows in {one.curvature: None for one in self.rounds if one.curvature}:
            block = wide.from_integers(np.rint(self.own.fixed(rows) * 2.0**CURVATURE_BITS))
            self.fixed[rows] = await self.members.own_blocks("fixed", block)
        for holder in self.members.channel.holders:
            if holder != me:
                await self._answers(holder)
                await self._weighted_answers(holder)
        for key, answer in waiting.items():
            self.asked[key] = await answer()
        for owner, name, numbers, read in weighted:
            share, size = await read(), self.members.sizes[owner]
            for i, number in enumerate(numbers):
                self.sums[owner, name, number] = share[:, i * size : (i + 1) * size]

    async def _weighted_questions(self) -> list[tuple[str, str, list[int], Any]]:
        found, members = list[tuple[str, str, list[int], Any]](), self.members
        for owner, rows, numbers in self._runs():
            columns = {name: members.sizes[name] for name in self.after(owner) if name != members.me}
            if not columns:
                continue
            size = members.sizes[owner]
            drawn, asked = await members.channel.ask_silent(
                WEIGHTED, size * len(numbers), SlotLayout(rows).length, columns
            )
            for i, number in enumerate(numbers):
                self.weighted[owner, number] = drawn[i * size : (i + 1) * size]
            found += [(owner, name, numbers, read) for name, read in asked.items()]
        return found

    async def _weighted_answers(self, holder: str) -> None:
        for owner, rows, numbers in self._runs():
            if self.members.me in self.after(owner):
                size, mine, bound = (
                    self.members.sizes[owner],
                    self.own.tamed_columns(rows),
                    self.own.backward_bound(rows),
                )
                share = await self.members.channel.answer_silent(
                    WEIGHTED, holder, size * len(numbers), SlotLayout(rows).length, mine, bound
                )
                for i, number in enumerate(numbers):
                    self.lent_sums[owner, holder, number] = share[:, i * size : (i + 1) * size]

    async def _questions(self) -> dict[tuple[str, str, int], Any]:
        channel, members, found = self.members.channel, self.members, dict[tuple[str, str, int], Any]()
        for owner, size in members.besides(members.me).items() if self.rounds else ():
            self.random[owner] = channel.random(size, len(self.rounds))
            found["penalty", owner, 0] = await channel.ask_matrix("penalty", owner, size, self.random[owner])
            words = wide.to_words(self.random[owner], self.shift)
            for rows, numbers in self._scored():
                found["scores", owner, rows] = await channel.ask_spread("scores", owner, words[:, numbers], rows)
        for rows, numbers in self.groups.items():
            if count := len(numbers) + self.outputs * channel.is_first:
                length, columns = SlotLayout(rows).length, members.besides(members.me)
                self.vectors[rows], asked = await channel.ask_silent("signals", count, length, columns)
                found.update({("signals", owner, rows): one for owner, one in asked.items()})
        return found

    async def _answers(self, holder: str) -> None:
        channel, own = self.members.channel, self.own
        if self.rounds:
            factor = wide.from_integers(own.penalty)
            penalty = await channel.answer_matrix("penalty", holder, factor, len(self.rounds))
            self.lent["penalty", holder, 0] = penalty
            for rows, numbers in self._scored():
                self.lent["scores", holder, rows] = await channel.answer_spread(
                    "scores", holder, len(numbers), own.forward[:, :rows], own.forward_bound()
                )
        for rows, numbers in self.groups.items():
            if count := len(numbers) + self.outputs * (holder == channel.first):
                length, bound = SlotLayout(rows).length, own.backward_bound(rows)
                self.lent["signals", holder, rows] = await channel.answer_silent(
                    "signals", holder, count, length, own.backward(rows), bound
                )
