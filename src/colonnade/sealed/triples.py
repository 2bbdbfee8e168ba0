"""Products of two shared matrices, from random ones that are made and multiplied beforehand (Beaver, CRYPTO 1991).

For a product X Y the holders have shares of a random matrix A, of a random B, and of A B. Then they open X - A and
Y - B, which are uniform, and X Y = (X - A) (Y - B) + (X - A) B + A (Y - B) + A B, each term of which is either known to
both or linear in shares. So a product takes one short message each way, and what is long was sent before the round.

A is drawn for one matrix X and opened once, whatever X is multiplied with. Every column of B is used once. For a square
of X nothing but A A is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from colonnade.sealed import wide
from colonnade.sealed.channel import Channel
from colonnade.sealed.wide import WideArray

_WHAT = "triples"


@dataclass(frozen=True)
class Wanted:
    """A matrix (size, size) that will be multiplied with so many columns in all, and with itself if square."""

    size: int
    columns: int
    square: bool = False


class Triple:
    """One holder's shares of A, B and A [A B], or A B."""

    def __init__(self, channel: Channel, wanted: Wanted) -> None:
        self.channel, self.wanted = channel, wanted
        self.matrix = channel.random(wanted.size, wanted.size)
        self.columns = channel.random(wanted.size, wanted.columns)
        self._shared = wide.zeros(0)
        self._opened: WideArray | None = None
        self._of: WideArray | None = None
        self._unused = np.ones(wanted.columns, bool)

    # -- beforehand ----------------------------------------------------------------------------------------------------

    async def ask(self) -> None:
        """Send the encryption of this holder's random numbers."""
        parts = (self.matrix, self.columns) if self.wanted.square else (self.columns,)
        self._factor, channel = np.concatenate(parts, axis=1), self.channel
        self._read: Any = await channel.ask_matrix(_WHAT, channel.partner, self.wanted.size, self._factor)

    async def answer(self) -> None:
        """Multiply the partner's."""
        self._lent = await self.channel.answer_matrix(_WHAT, self.channel.partner, self.matrix, self._factor.shape[1])

    async def read(self) -> None:
        """Add up what is a holder's own, what it has lent and what it has asked for."""
        own = wide.product(self.matrix, self._factor)
        self._shared = wide.add(wide.add(own, self._lent), await self._read())
        del self._factor, self._lent, self._read

    # -- products ------------------------------------------------------------------------------------------------------

    async def times(self, what: str, X: WideArray, start: int, *parts: tuple[WideArray, int]) -> list[WideArray]:
        """Return this holder's shares of X Y / 2^shift for every (Y, shift), of all of which it has shares.

        start: the first column of B that is used for them, and never again.
        """
        Y = np.concatenate([wide.zeros(len(X), 0), *(part for part, _ in parts)], axis=1)
        here = slice(start, start + Y.shape[1])
        drawn = self._taken(X, here)
        told, size = Y, self.wanted.size
        if self._opened is None:
            self._of = X
            told = await self.channel.opened(
                what, np.concatenate([X, Y], axis=1), np.concatenate([self.matrix, drawn], axis=1)
            )
            self._opened, told = told[:, :size], told[:, size:]
        else:
            told = await self.channel.opened(what, Y, drawn)
        offset = size if self.wanted.square else 0
        whole = self._product(told, drawn, self._shared[:, offset + here.start : offset + here.stop])
        found, at = [], 0
        for part, shift in parts:
            end = at + part.shape[1]
            found.append(wide.truncated(whole[:, at:end], shift, first=self.channel.is_first))
            at = end
        return found

    def squared(self, shift: int) -> WideArray:
        """Return this holder's share of X X / 2^shift, once X has been multiplied with something."""
        if self._opened is None or not self.wanted.square:
            raise ValueError("the square of a matrix needs a triple for it, and follows the product with it")
        whole = self._product(self._opened, self.matrix, self._shared[:, : self.wanted.size])
        return wide.truncated(whole, shift, first=self.channel.is_first)

    def _product(self, told: WideArray, drawn: WideArray, shared: WideArray) -> WideArray:
        """(X - A) (Y - B), which the first holder adds, + (X - A) B + A (Y - B) + A B."""
        opened = self._opened
        if opened is None:
            raise ValueError("a triple is used before its matrix is opened")
        right = wide.add(drawn, told) if self.channel.is_first else drawn
        both = wide.add(wide.product(opened, right), wide.product(self.matrix, told))
        return wide.add(both, shared)

    def _taken(self, X: WideArray, here: slice) -> WideArray:
        """Return columns of B, and see to it that they are not used again, nor A for another matrix."""
        if here.stop > self.wanted.columns or not self._unused[here].all():
            raise ValueError(f"columns {here.start} to {here.stop} of a triple are used once, and there are no more")
        if self._of is not None and not np.array_equal(self._of, X):
            raise ValueError("a triple is for one matrix")
        self._unused[here] = False
        return self.columns[:, here]


async def asked(channel: Channel, wanted: list[Wanted]) -> list[Triple]:
    """Draw triples and ask for all of them; they can be used once they are `finished`."""
    found = [Triple(channel, one) for one in wanted]
    for triple in found:
        await triple.ask()
    return found


async def finished(triples: list[Triple]) -> None:
    """Answer the partner's questions about triples, and read its answers."""
    for triple in triples:
        await triple.answer()
    for triple in triples:
        await triple.read()
