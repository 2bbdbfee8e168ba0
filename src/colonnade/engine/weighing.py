"""How much rows count: every label holder brings weights of its own rows, and their mean over all rows becomes 1.

A single label holder divides its weights by their mean, and nobody is told anything. Several of them add up, under the
masks of the sum, what their weights come to; the first one tells the others the mean. Everybody else adds zeros.

How much longer a step may be depends on how uneven weights are. The step says it as a power of two and no finer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from colonnade.blocks import FloatArray
from colonnade.engine.exchange import Part
from colonnade.engine.exposure import ENCRYPTED
from colonnade.errors import DataError, ProtocolError
from colonnade.leaks import MEAN_WEIGHT, OF_LABELS, UNEVEN, Leak, Setting
from colonnade.objective.weighted import weighed
from colonnade.runtimes.net import Net
from colonnade.sums import SecureSum

STEP = "weights of rows"
_MOST_ENCRYPTED = 1024.0  # times the mean: larger signals are cut wrongly too often where coefficients are in shares


@dataclass(frozen=True)
class Unevenness:
    """How far weights of mean 1 are from it, as the first label holder knows it.

    Attributes
    ----------
    squares
        The mean of their squares, rounded up to a power of two: about how much longer a batch's gradient may be.
    largest
        What none of them exceeds.
    """

    squares: float = 1.0
    largest: float = 1.0


def weight_leaks(setting: Setting, *, steps: bool) -> tuple[Leak, ...]:
    """Declare what weights of rows show beside signals, which declare it themselves; steps: whether any is chosen."""
    if not setting.weighted:
        return ()
    found = []
    if steps:
        words = "{who} could work out from the step size how uneven your weights are, as a power of two"
        found.append(Leak(UNEVEN, OF_LABELS, (setting.leader,), setting.parties, ("step size",), words))
    if len(setting.holders) > 1:
        words = "{who} will learn the mean weight of all rows, and between two label holders so that of yours"
        found.append(Leak(MEAN_WEIGHT, OF_LABELS, setting.holders, setting.holders, (STEP,), words))
    return tuple(found)


async def weigh(net: Net, secure: SecureSum, holders: tuple[str, ...], sum_name: str, part: Part) -> Unevenness:
    """Let a part's labels bring weights along whose mean over all rows is 1; rows of a holder without any count 1."""
    mine = None
    if part.y is not None and net.me in holders:
        mine = np.ones(part.rows) if part.weights is None else part.weights
    own = np.zeros(0) if mine is None else mine[part.owned[net.me]]
    largest = float(own.max(initial=0.0))
    found = np.array([float(own.sum()), float(np.square(own).sum()), largest])
    mean, squares = await _means(net, secure, holders, found, part.rows)
    if mine is None or part.y is None:
        return Unevenness()
    if not mean > 0.0:
        raise DataError("all weights of rows are 0, at every label holder; give some row a weight above 0")
    if sum_name == ENCRYPTED and largest > _MOST_ENCRYPTED * mean:
        raise DataError(
            f"encrypted training takes weights of at most {_MOST_ENCRYPTED:.0f} times their mean, and the largest of "
            f"party {net.me!r} is {largest / mean:.4g} times; cut the largest ones off"
        )
    part.y = weighed(part.y, mine / mean)
    # Of several label holders the first one knows the sum of their largest weights, which none of these exceeds.
    return Unevenness(2.0 ** math.ceil(math.log2(max(1.0, squares / mean**2))), max(1.0, float(found[2]) / mean))


async def _means(
    net: Net, secure: SecureSum, holders: tuple[str, ...], found: FloatArray, rows: int
) -> tuple[float, float]:
    """Return the mean of all weights, and of their squares, at label holders; `found` becomes what all have together.

    A label holder that is not the first hears no more than the mean.
    """
    if len(holders) > 1:
        total = await secure.total_wide(STEP, found, holders[0])
        if total is not None:
            found[:] = total
            for name in holders[1:]:
                await net.send(name, STEP, float(total[0] / rows))
        elif net.me in holders:
            told = await net.recv(holders[0], STEP)
            if type(told) is not float or not (math.isfinite(told) and told >= 0.0):
                raise ProtocolError(f"party {holders[0]!r} must tell a mean weight >= 0 at step {STEP!r}")
            return told, 0.0
    return float(found[0]) / rows, float(found[1]) / rows
