"""How many rounds sealed training has, about which rows, and how exact each is: all of it public and fixed beforehand.

Nobody sees how far training has come, so nobody could stop it. The schedule follows from the number of rows alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from colonnade.sealed.slots import SLOTS

FEW = 4096  # rows that are so few that every round can take the curvature anew, over a wide range of scores
SAMPLE = 2 * FEW  # rows of a round about a sample
_MOST_SQUARES = 1.35e6  # rows times columns whose curvature is taken anew in one round


@dataclass(frozen=True)
class Round:
    """One step: about the first so many rows, and with the curvature of so many of them, or with the last one."""

    rows: int
    curvature: int
    doublings: int
    tolerance: float
    stretch: tuple[int, int] = (1, 0)  # the step times 5 / 2^2, where the curvature is an old one


def period_for(rows: int) -> float:
    """Return the period of scores where the job does not say: wide where that is cheap."""
    return 256.0 if rows <= FEW else 128.0 if rows <= 2 * SAMPLE else 64.0


def schedule(rows: int, columns: int, rounds: int | None, polish: int | None, samples: int | None) -> tuple[Round, ...]:
    """Return all rounds after the first step, for so many rows and columns of all parties.

    Few rows are cheap: every round takes the curvature anew. With many, a round or two about a sample come first; then
    the curvature is taken from all rows (or from as many as are affordable), and the last rounds go on with it.
    """
    if rows <= FEW:
        # As the inverse has more terms from round to round, steps along flat directions may become longer.
        fresh = [Round(rows, rows, min(12, 6 + 2 * i), 2e-5) for i in range(9 if rounds is None else rounds)]
        return (*fresh, *(Round(rows, 0, 0, 2e-5, (1, 0)),) * (0 if polish is None else polish))
    few = rows <= 2 * SAMPLE
    sample = Round(SAMPLE, SAMPLE, 4, 1e-3)
    first = () if few else (sample,) * (2 if samples is None else samples)
    most = min(rows, max(SAMPLE, int(_MOST_SQUARES / columns) // SLOTS * SLOTS))
    count = (5 if few else 1) if rounds is None else rounds
    again = [Round(rows, most, min(8, 5 + i), 1e-3 if i + 1 < count or polish != 0 else 3e-4) for i in range(count)]
    last = Round(rows, 0, 0, 3e-4, (5, 2))
    return (*first, *again, *(last,) * (1 if polish is None else polish))
