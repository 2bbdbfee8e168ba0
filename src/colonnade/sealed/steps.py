"""Newton's steps on shares: the inverse of the curvature times the gradient, from triples made for all rounds at once.

Every inverse starts from that of the bound, so the bound's inverse is opened minus random numbers once in a run. The
inverse of a round's own curvature is made only if a later round needs it. Otherwise its terms are multiplied with the
gradient alone, which is shorter.
"""

from __future__ import annotations

import numpy as np

from colonnade.sealed import wide
from colonnade.sealed.channel import Channel
from colonnade.sealed.inverse import CURVATURE_BITS, INVERSE_BITS, RESIDUAL_BITS, identity, refined, triples_for
from colonnade.sealed.schedule import Round
from colonnade.sealed.triples import Wanted, asked, finished
from colonnade.sealed.wide import WideArray

_BOUND = -1  # in place of the number of the round whose inverse is meant


class Steps:
    """One holder's side of all steps of a run.

    rounds: those after the first step. refinements: how often the solution is refined where the loss is quadratic; each
    needs a product with the bound and a step with its inverse.
    """

    def __init__(self, channel: Channel, size: int, rounds: tuple[Round, ...], refinements: int) -> None:
        self.channel, self.size, self.rounds, self.refinements = channel, size, rounds, refinements
        # Which inverse each step is about, and its first column of the triple; the first step is number -1.
        self._place: dict[int, tuple[int, int]] = {-1: (_BOUND, 0)}
        self._columns = {_BOUND: 1 + refinements}
        self._place |= {number: (_BOUND, 1 + number) for number in range(refinements)}
        last = _BOUND
        for number, one in enumerate(rounds):
            about = _BOUND if one.curvature else last
            self._place[number] = about, self._columns.get(about, 0)
            self._columns[about] = self._columns.get(about, 0) + (size + 1 if one.curvature else 1)
            last = number if one.curvature else last

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
