"""Signals and second derivatives in shares, out of scores in shares: the messages of `sealed.waves`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from colonnade.sealed import waves
from colonnade.sealed.gradients import signal_words
from colonnade.sealed.random_products import RandomProducts
from colonnade.sealed.series import Series
from colonnade.sealed.slots import SlotLayout
from colonnade.sealed.wide import WordArray

Floats = npt.NDArray[np.float64]
_NOTHING: WordArray = np.zeros(0, np.uint64)


async def shared_signals(
    made: RandomProducts, number: int, angles: WordArray, series: Series, labels: Floats | None
) -> tuple[WordArray, WordArray]:
    """Return a holder's shares of the signals of a round, and of the second derivatives if its curvature is a new one.

    angles: this holder's share of the scores on the circle. labels: at the first holder, what they add to the signals.
    The second holder's share of the signals is minus the random vector that was made for this round.
    """
    channel, step = made.members.channel, made.rounds[number]
    if not channel.holds:
        return _NOTHING, _NOTHING
    names = ("signal", "curvature") if step.curvature else ("signal",)
    found = dict.fromkeys(("signal", "curvature"), _NOTHING)
    layout, run = SlotLayout(step.rows), channel.net.in_thread
    if labels is not None:
        raw = await run(waves.ask, channel.narrow, layout, angles, series.harmonics)
        await channel.send(channel.second, "question", "waves", raw)
        for name in names:
            answer = await channel.receive(channel.second, "answer", name, waves.answer_size(layout))
            found[name] = await run(waves.read, channel.narrow, answer, layout)
        return found["signal"] + signal_words(step.rows, series.constant + labels), found["curvature"]
    wanted, masks = {"signal": made.vectors[step.rows][made.place(number)]}, {}
    for name in names:
        masks[name], found[name] = waves.masks_for(wanted.get(name), layout, channel.stream)
    raw = await channel.receive(channel.first, "question", "waves", waves.question_size(layout, series.harmonics))
    key = channel.key_of(channel.first)
    answers = await run(waves.answer, key, raw, layout, angles, series, masks, channel.stream)
    for name in names:
        await channel.send(channel.first, "answer", name, answers[name])
    return found["signal"], found["curvature"]
