"""Several scores of a row in shares: how far each is above all others together.

The probability of class k is 1 / (1 + exp(-(z_k - l_k))), where l_k = log sum_{j != k} exp(z_j): a logistic function
again, of a score that has to be made first. log(exp a + exp b) = b + log(1 + exp(a - b)) is one function of waves,
whose values come back from slots to rows by a linear map that each holder takes by itself. Sums of all classes before
and after each take 3 (c - 2) of them.
"""

from __future__ import annotations

import numpy as np

from colonnade.sealed.channel import Channel
from colonnade.sealed.columns import signal_bits
from colonnade.sealed.series import Series
from colonnade.sealed.signals import evaluated
from colonnade.sealed.slots import SlotLayout, row_words
from colonnade.sealed.wide import WordArray


async def above_others(channel: Channel, rows: int, angles: list[WordArray], softplus: Series) -> list[WordArray]:
    """Return a holder's shares of z_k minus the logarithm of all others' sum, for every class k, on the circle."""
    if not channel.holds:
        return angles

    async def together(one: WordArray | None, other: WordArray | None) -> WordArray | None:
        if one is None or other is None:
            return other if one is None else one
        return other + await _shared_softplus(channel, rows, one - other, softplus)

    count = len(angles)
    before: list[WordArray | None] = [None]
    after: list[WordArray | None] = [None]
    for k in range(count - 1):
        before.append(await together(before[-1], angles[k]))
        after.append(await together(after[-1], angles[count - 1 - k]))
    found = []
    for k, angle in enumerate(angles):
        others = await together(before[k], after[count - 1 - k])
        found.append(angle if others is None else angle - others)
    return found


async def _shared_softplus(channel: Channel, rows: int, angles: WordArray, softplus: Series) -> WordArray:
    """Return a holder's share of log(1 + exp(z)), on the circle."""
    layout, bits, unit = SlotLayout(rows), signal_bits(rows), 64 - round(np.log2(softplus.period))
    halves = (await evaluated(channel, layout, angles, softplus, bits, ("signal",), {}))["signal"]
    found = row_words(halves, layout, unit - bits)
    return found + np.uint64(round(softplus.constant * 2.0**unit)) if channel.is_first else found
