"""How many rounds sealed training has, about which rows, and how exact each is: all of it public and fixed beforehand.

Nobody sees how far training has come, so nobody could stop it. The schedule follows from the number of rows alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

FEW = 4096  # rows that are so few that every round can take the curvature anew, over a wide range of scores
MODEST = 4 * FEW  # rows of which a few more rounds do not matter
_MOST_SQUARES = 1.35e6  # rows times columns, up to which all rows are taken for the curvature
_SAMPLE = 2 * FEW  # rows that are taken otherwise, for every 64 columns


@dataclass(frozen=True)
class Round:
    """One step: about the first so many rows, and with the curvature of so many of them, or with the last one.

    Where the curvature is an old one, or the bound itself, it is larger than the true one. So the step is stretched,
    and starts somewhat further along the last one. Both factors are written as a / 2^b.
    """

    rows: int
    curvature: int
    doublings: int
    tolerance: float
    stretch: tuple[int, int] = (1, 0)
    momentum: tuple[int, int] = (0, 0)
    known: bool = False  # whether the label holder knows signals and curvature of this one by itself


def curvature_rows(rows: int, columns: int) -> int:
    """Return of how many rows the curvature and its bound are taken."""
    return rows if rows * columns <= _MOST_SQUARES else min(rows, _SAMPLE * -(-columns // 64))


def schedule(rows: int, columns: int, rounds: int | None, polish: int | None, samples: int | None) -> tuple[Round, ...]:
    """Return all rounds after the first step, for so many rows and columns of all parties.

    Few rows are cheap: every round takes the curvature anew. With more, two rounds with the bound come first, and
    those after the curvature was taken go on with it. With very many, the first rounds are about a sample.
    """
    if rows <= FEW:
        # As the inverse has more terms from round to round, steps along flat directions may become longer.
        fresh = [Round(rows, rows, min(12, 6 + i), 2e-5) for i in range(9 if rounds is None else rounds)]
        return (*fresh, *(Round(rows, 0, 0, 2e-5),) * (polish or 0))
    of = curvature_rows(rows, columns)
    whole = (Round(rows, 0, 0, 2e-3, (3, 1), (3, 4)), Round(rows, 0, 0, 2e-3, (3, 1), (5, 4)))
    first = whole if of == rows else (Round(of, of, 4, 1e-3),) * 2
    usual, after = (4, 2) if rows <= MODEST else (2, 1) if of == rows else (1, 2)
    count = usual if rounds is None else rounds
    chords = after if polish is None else polish
    # With very many rows waves weigh most, and only the last round has to be exact.
    rough, fine = (1e-3, 3e-4) if of != rows and chords else (3e-4, 3e-4)
    again = [Round(rows, of, min(8, 5 + i), 1e-3 if i + 1 < count else rough) for i in range(count)]
    last = [Round(rows, 0, 0, rough if i + 1 < chords else fine, (5, 2), (1, 3)) for i in range(chords)]
    return (*first[: samples if samples is not None else 2], *again, *last)


def for_weights(rounds: tuple[Round, ...], uneven: int, *, more: bool) -> tuple[Round, ...]:
    """Return rounds for rows whose largest weight is 2^uneven times their mean.

    The bound on the curvature is as many times too large then, so that the inverse needs more terms; and, if more
    rounds may be taken than were asked for, the last one with fresh curvature is taken again, or where there is none,
    the last one, which is cheaper, twice as often.
    """
    longer = [replace(one, doublings=min(12, one.doublings + uneven)) if one.curvature else one for one in rounds]
    last = max((i for i, one in enumerate(longer) if one.curvature), default=None)
    if more and last is not None:
        longer[last:last] = [longer[last]] * ((uneven + 1) // 2)
    elif more:
        longer += longer[-1:] * uneven
    return tuple(longer)
