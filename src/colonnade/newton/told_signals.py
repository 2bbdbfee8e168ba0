"""How signals and curvatures of all rows get to everybody: in two bytes each while rounds bring much, later in four."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.newton import OfRows, ToldNumbers
from colonnade.blocks.row_blocks import BLOCK, each_block, in_order
from colonnade.engine.session import Session
from colonnade.errors import ProtocolError
from colonnade.newton.rows_in_use import RowsInUse
from colonnade.runtimes.wire import expect_array

# The largest number in two bytes.
_MOST_SHORT = 32767.0


async def told_signals(used: RowsInUse, *, fine: bool, heeds: bool = True) -> tuple[list[OfRows], list[OfRows]]:
    """Signals and curvatures of all rows; of none, where this party only tells them and heeds them no more.

    fine: in four bytes. Curvatures are told where the loss says that they don't follow from signals.
    """
    session, signals, curvatures = used.session, [], []
    shape = () if used.block.outputs == 1 else (used.block.outputs,)
    for holder, rows in used.chosen:
        if session.net.watcher is not None:
            session.net.watcher.about("signal", holder, rows)
        held = used.held if holder == session.net.me else None
        how = (session, holder, rows, shape)
        told = None if held is None else held.signal
        signal = await _tell_or_hear("signal", *how, told, fine=fine, heeds=heeds)
        curvature = signal.made(session.job.loss.curvature_from)
        if curvature is None:
            told = None if held is None else held.curvature
            curvature = await _tell_or_hear("curvatures", *how, told, fine=fine, heeds=heeds)
        signals.append((rows, signal))
        curvatures.append((rows, curvature))
    return signals, curvatures


async def _tell_or_hear(
    tag: str,
    session: Session,
    holder: str,
    rows: Rows,
    each: tuple[int, ...],
    told: Callable[[int, int], FloatArray] | None,
    *,
    fine: bool,
    heeds: bool,
) -> ToldNumbers:
    """Numbers of this shape for each of a holder's rows.

    told: the numbers of rows from one to before another, at their holder, which never has all of them in full.
    """
    kind: Any = np.float32 if fine else np.int16
    shape = (len(rows), *each)
    if told is not None:
        unit = 1.0 if fine else max(_largest(told, len(rows)), 1e-300) / _MOST_SHORT
        short = np.empty(shape, kind)

        def shorten(at: int, end: int) -> None:
            short[at:end] = told(at, end) if fine else np.rint(told(at, end) / unit)

        each_block(shorten, len(rows))
        if tag == "signal":
            session.allowance.backward(short.size)
        await session.tell(tag, (unit, short))
        if not heeds:
            short = short[:0]
    else:
        heard = await session.hear(holder, tag)
        if type(heard) is not tuple or len(heard) != 2 or type(heard[0]) is not float:
            raise ProtocolError(f"party {holder!r} must tell a unit and an array at step {tag!r}")
        unit, short = heard[0], expect_array(heard[1], shape, kind, holder, tag)
        if not (math.isfinite(unit) and (kind is np.int16 or np.isfinite(short).all())):
            raise ProtocolError(f"party {holder!r} must tell finite numbers at step {tag!r}")
    return ToldNumbers(short, unit)


def _largest(told: Callable[[int, int], FloatArray], count: int) -> float:
    """The largest size of numbers that are known a block at a time."""

    def make(at: int, end: int) -> float:
        some = told(at, end)
        return max(float(some.max(initial=0.0)), -float(some.min(initial=0.0)))

    return max(in_order(make, [*range(0, count, BLOCK), count] if count else [0]), default=0.0)
