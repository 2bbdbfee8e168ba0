"""The inverse of a shared matrix, by products alone, and the steps that are taken with it.

With E = I - M H small, H^-1 = (I + E + E^2 + ...) M, and (I + E^4) (I + E^2) (I + E) M has eight of these terms after
three products of matrices, which can be made side by side with the powers of E (Schulz 1933, unrolled). Directions in
which E is close to one are not inverted but only stretched as far as the number of terms allows: a step along them is
too short, which is safe. Were E larger than one anywhere, it would blow up, so M must start from below.

As M H is at most one, M may be stretched by 3/2 before each product: then E lies between -1/2 and 1, its square is at
most one again, and steps along flat directions grow threefold instead of twofold with each product. Directions that
were inverted already fall back to 3/4 by that, so the last two products are made without.

Every inverse starts from that of the bound, so the bound's inverse is opened minus random numbers once in a run. The
inverse of a round's own curvature is made only if a later round needs it. Otherwise its terms are multiplied with the
gradient alone, which is shorter. Triples for all of it are made for all rounds at once (`Steps`).
"""

from __future__ import annotations

import numpy as np

from colonnade.sealed import wide
from colonnade.sealed.channel import Channel
from colonnade.sealed.schedule import Round
from colonnade.sealed.triples import Triple, Wanted, asked, finished
from colonnade.sealed.wide import WideArray

CURVATURE_BITS = 28  # of H behind the point
INVERSE_BITS = 16  # of M behind the point: its entries may be thousands
RESIDUAL_BITS = 22  # of E behind the point, whose entries are below one
_BOUND = -1  # in place of the number of the round whose inverse is meant
_PLAIN = 2  # products without a stretch in the end
_ENOUGH = 0.7  # of the terms that were wanted


def identity(size: int, bits: int, *, first: bool) -> WideArray:
    """Return a share of the identity: all of it at the first holder."""
    found = wide.zeros(size, size)
    if first:
        found[np.arange(size), np.arange(size)] = wide.from_integers(np.array(1 << bits))
    return found


def stretched(doublings: int) -> tuple[bool, ...]:
    """Return before which products M is stretched, so that about as many terms are made as by so many doublings."""
    wanted = 2**doublings
    for count in range(doublings + 1):
        most = max(0, count - _PLAIN)
        if 3**most * 2 ** (count - most) >= _ENOUGH * wanted:
            few = next((m for m in range(most) if 3**m * 2 ** (count - m) >= wanted), most)
            return (True,) * few + (False,) * (count - few)
    return (False,) * doublings


def triples_for(size: int, doublings: int, columns: int) -> list[Wanted]:
    """Return the triples of `refined`, where M and vectors beside it have so many columns in all."""
    count = len(stretched(doublings))
    return [Wanted(size, columns, square=i + 1 < count) for i in range(count)]


def triples_for_first(size: int, doublings: int) -> list[Wanted]:
    """Return the triples of `first_inverse`."""
    return [Wanted(size, 0, square=True), *triples_for(size, doublings - 1, size)]


async def first_inverse(residual: WideArray, scale: float, doublings: int, triples: list[Triple]) -> WideArray:
    """Return a share of scale (I + E + ... ), where the inverse starts as a public multiple of the identity."""
    size, first = len(residual), triples[0].channel.is_first
    whole = wide.add(identity(size, RESIDUAL_BITS, first=first), residual)
    shift = RESIDUAL_BITS - INVERSE_BITS
    inverse = wide.truncated(wide.times(whole, round(2.0**16 * scale)), 16 + shift, first=first)
    await triples[0].times("inverse", residual, 0)
    return await refined(triples[0].squared(RESIDUAL_BITS), inverse, doublings - 1, triples[1:])


async def refined(residual: WideArray, factor: WideArray, doublings: int, triples: list[Triple]) -> WideArray:
    """Return a share of (I + E + ... + E^(2^doublings - 1)) times M, and times vectors beside it, or these alone."""
    size = len(residual)
    for longer, triple in zip(stretched(doublings), triples, strict=True):
        first = triple.channel.is_first
        if longer:  # I - 3/2 (I - E)
            half = identity(size, RESIDUAL_BITS - 1, first=first)
            residual = wide.subtract(_by_three_halves(residual, first=first), half)
            factor = _by_three_halves(factor, first=first)
        (found,) = await triple.times("inverse", residual, 0, (factor, RESIDUAL_BITS))
        factor = wide.add(factor, found)
        if triple.wanted.square:
            residual = triple.squared(RESIDUAL_BITS)
    return factor


def _by_three_halves(share: WideArray, *, first: bool) -> WideArray:
    return wide.truncated(wide.times(share, 3), 1, first=first)


# -- all steps of a run ------------------------------------------------------------------------------------------------


class Steps:
    """One holder's side of all steps of a run.

    rounds: those after the first step, once for each score that a row has. refinements: how often the solution is
    refined where the loss is quadratic; each needs a product with the bound and a step with its inverse.
    """

    def __init__(
        self, channel: Channel, size: int, rounds: tuple[Round, ...], refinements: int, outputs: int = 1
    ) -> None:
        self.channel, self.size, self.rounds, self.refinements = channel, size, rounds, refinements
        # Which inverse each step is about, and its first column of the triple; the first step of score k is -1 - k.
        self._place: dict[int, tuple[int, int]] = {-1 - k: (_BOUND, k) for k in range(outputs)}
        self._columns = {_BOUND: outputs + refinements}
        self._place |= {number: (_BOUND, outputs + number) for number in range(refinements)}
        last = [_BOUND] * outputs
        for number, one in enumerate(rounds):
            score = number % outputs
            about = _BOUND if one.curvature else last[score]
            self._place[number] = about, self._columns.get(about, 0)
            self._columns[about] = self._columns.get(about, 0) + (size + 1 if one.curvature else 1)
            last[score] = number if one.curvature else last[score]

    def keeps(self, number: int) -> bool:
        """Whether the inverse of this round's curvature is needed again."""
        return number in self._columns

    async def ask(self) -> None:
        """Ask for all triples."""
        wanted = {about: [Wanted(self.size, columns)] for about, columns in self._columns.items()}
        terms = {
            number: triples_for(self.size, one.doublings, 1 + self.size * self.keeps(number))
            for number, one in enumerate(self.rounds)
            if one.curvature
        }
        self._inverses = {about: await asked(self.channel, one) for about, one in wanted.items()}
        self._terms = {number: await asked(self.channel, some) for number, some in terms.items()}
        count = [Wanted(self.size, self.refinements)] if self.refinements else []
        self._bound = await asked(self.channel, count)

    async def finish(self) -> None:
        """Answer the partner's questions, and read its answers."""
        groups = (*self._inverses.values(), *self._terms.values(), self._bound)
        await finished([triple for some in groups for triple in some])

    async def chord(self, number: int, inverse: WideArray, gradient: WideArray) -> WideArray:
        """Return a share of M g, with an inverse that was there before this round."""
        about, start = self._place[number]
        (found,) = await self._inverses[about][0].times("step", inverse, start, (gradient[:, None], INVERSE_BITS))
        return found[:, 0]

    async def newton(
        self, number: int, inverse: WideArray, curvature: WideArray, gradient: WideArray
    ) -> tuple[WideArray, WideArray]:
        """Return shares of the inverse of a new curvature, made from that of the bound, and of it times the gradient.

        Where no later round needs it, the inverse is left as it was.
        """
        (about, start), keeps = self._place[number], self.keeps(number)
        shift = INVERSE_BITS + CURVATURE_BITS - RESIDUAL_BITS
        product, step = await self._inverses[about][0].times(
            "newton", inverse, start, (curvature, shift), (gradient[:, None], INVERSE_BITS)
        )
        residual = wide.subtract(identity(self.size, RESIDUAL_BITS, first=self.channel.is_first), product)
        factor = np.concatenate([inverse, step], axis=1) if keeps else step
        found = await refined(residual, factor, self.rounds[number].doublings, self._terms[number])
        return (found[:, :-1] if keeps else inverse), found[:, -1]

    async def refine(self, number: int, bound: WideArray, state: WideArray) -> WideArray:
        """Return a share of the bound times the coefficients."""
        (found,) = await self._bound[0].times("solution", bound, number, (state[:, None], CURVATURE_BITS))
        return found[:, 0]
