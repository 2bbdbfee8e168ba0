"""Products of everybody's columns with random numbers, for all rounds at once.

A holder draws random coefficients and random signals for every round beforehand, and lets the others multiply their
columns with them, in shares. In a round, a share is sent as its difference to the random numbers, which says nothing,
and the product with the difference is the owner's own business. So a round costs one short message instead of a long
question and a long answer, and one question serves all rounds.

    coefficients    Q_i b and S_i b for random b, of which a holder's share of the coefficients is taken off
    signals         Q_i' r for random r: the first holder's signals are taken off, the second's *are* minus r
"""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.sealed import wide
from colonnade.sealed.columns import FORWARD_BITS, WhiteColumns
from colonnade.sealed.members import Members
from colonnade.sealed.schedule import Round
from colonnade.sealed.slots import SlotLayout
from colonnade.sealed.wide import WideArray, WordArray

STATE_BITS = 36  # of coefficients and gradients behind their points


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
            self.groups.setdefault(one.rows, []).append(number)
        self.random: dict[str, WideArray] = {}
        self.vectors: dict[int, WordArray] = {}
        self.asked: dict[tuple[str, str, int], Any] = {}
        self.lent: dict[tuple[str, str, int], Any] = {}

    def place(self, number: int) -> int:
        """Return which of the rounds about as many rows this round is."""
        return self.groups[self.rounds[number].rows].index(number)

    async def prepare(self) -> None:
        """Ask for all products, answer the others' questions, and read what they answer."""
        waiting = await self._questions() if self.members.channel.holds else {}
        for holder in self.members.channel.holders:
            if holder != self.members.me:
                await self._answers(holder)
        for key, answer in waiting.items():
            self.asked[key] = await answer()

    async def _questions(self) -> dict[tuple[str, str, int], Any]:
        channel, members, found = self.members.channel, self.members, dict[tuple[str, str, int], Any]()
        for owner, size in members.besides(members.me).items() if self.rounds else ():
            self.random[owner] = channel.random(size, len(self.rounds))
            found["penalty", owner, 0] = await channel.ask_matrix("penalty", owner, size, self.random[owner])
            words = wide.to_words(self.random[owner], self.shift)
            found["scores", owner, 0] = await channel.ask_spread("scores", owner, words, members.rows)
        for rows, numbers in self.groups.items():
            if count := len(numbers) + self.outputs * channel.is_first:
                length, columns = SlotLayout(rows).length, members.besides(members.me)
                self.vectors[rows], asked = await channel.ask_silent("signals", count, length, columns)
                found.update({("signals", owner, rows): one for owner, one in asked.items()})
        return found

    async def _answers(self, holder: str) -> None:
        channel, own = self.members.channel, self.own
        if self.rounds:
            penalty = await channel.answer_matrix("penalty", holder, own.penalty, len(self.rounds))
            self.lent["penalty", holder, 0] = penalty
            self.lent["scores", holder, 0] = await channel.answer_spread(
                "scores", holder, len(self.rounds), own.forward, own.forward_bound()
            )
        for rows, numbers in self.groups.items():
            if count := len(numbers) + self.outputs * (holder == channel.first):
                length, bound = SlotLayout(rows).length, own.backward_bound(rows)
                self.lent["signals", holder, rows] = await channel.answer_silent(
                    "signals", holder, count, length, own.backward(rows), bound
                )
