"""Functions of shared scores, in shares: the messages of `sealed.waves`.

Where rows have several scores, the probability of class k is 1 / (1 + exp(-(z_k - l_k))), with
l_k = log sum_{j != k} exp(z_j): a logistic function again, of a score that has to be made first. log(exp a + exp b) =
b + log(1 + exp(a - b)) is one function of waves, whose values come back from slots to rows by a linear map that each
holder takes by itself. Sums of all classes before and after each take 3 (c - 2) of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colonnade.sealed import waves
from colonnade.sealed.channel import Channel
from colonnade.sealed.columns import signal_bits
from colonnade.sealed.gradients import signal_words
from colonnade.sealed.random_products import RandomProducts
from colonnade.sealed.series import Series
from colonnade.sealed.slots import SlotLayout, row_words
from colonnade.sealed.wide import WordArray

Floats = npt.NDArray[np.float64]
_NOTHING: WordArray = np.zeros(0, np.uint64)


@dataclass(frozen=True)
class LabelShare:
    """What the first holder adds to the signals of one score, row by row.

    offsets: what labels add. weights: of rows, as the offsets have them already, or None where all are 1.
    """

    offsets: Floats
    weights: Floats | None = None


async def shared_signals(
    made: RandomProducts, number: int, angles: WordArray, series: Series, own: LabelShare | None, most: float
) -> tuple[WordArray, WordArray]:
    """Return a holder's shares of the signals of a round, and of the second derivatives if its curvature is a new one.

    angles: this holder's share of the scores on the circle. own: at the first holder. most: what no weight exceeds.
    The second holder's share of the signals is minus the random vector that was made for this round.
    """
    channel, step = made.members.channel, made.rounds[number]
    if not channel.holds:
        return _NOTHING, _NOTHING
    names = ("signal", "curvature") if step.curvature else ("signal",)
    layout, bits = SlotLayout(step.rows), made.own.signal_bits(step.rows)
    wanted = {} if channel.is_first else {"signal": made.vectors[step.rows][made.place(number)]}
    sizes = None if own is None or own.weights is None else own.weights / most
    found = await evaluated(channel, layout, angles, series.stretched(most), bits, names, wanted, sizes)
    if own is not None:
        weights = np.ones(step.rows) if own.weights is None else own.weights
        found["signal"] = found["signal"] + signal_words(step.rows, own.offsets + weights * series.constant, bits)
        if step.curvature and series.level:
            found["curvature"] = found["curvature"] + signal_words(step.rows, weights * series.level, bits)
    return found["signal"], found["curvature"]


async def evaluated(
    channel: Channel,
    layout: SlotLayout,
    angles: WordArray,
    series: Series,
    bits: int,
    names: tuple[str, ...],
    wanted: dict[str, WordArray],
    sizes: Floats | None = None,
) -> dict[str, WordArray]:
    """Return a holder's shares, in folded words, of the named functions of a series, without their constants.

    bits: behind the point. wanted: what the second holder's share of one of them shall be minus of. sizes: the first
    holder's factors of rows.
    """
    found, run = dict.fromkeys(("signal", "curvature"), _NOTHING), channel.net.in_thread
    if channel.is_first:
        raw = await run(waves.ask, channel.narrow, layout, angles, series, bits, sizes)
        await channel.send(channel.second, "question", "waves", raw)
        for name in names:
            answer = await channel.receive(channel.second, "answer", name, waves.answer_size(layout))
            found[name] = await run(waves.read, channel.narrow, answer, layout)
        return found
    masks = {}
    for name in names:
        masks[name], found[name] = waves.masks_for(wanted.get(name), layout, channel.stream)
    raw = await channel.receive(channel.first, "question", "waves", waves.question_size(layout, series.harmonics))
    key = channel.key_of(channel.first)
    answers = await run(waves.answer, key, raw, layout, angles, series, masks, channel.stream)
    for name in names:
        await channel.send(channel.first, "answer", name, answers[name])
    return found


# -- several scores of a row -------------------------------------------------------------------------------------------


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
