"""What the first label holder of block Newton, the leader, decides: weights, pieces, samples, and when it is enough.

A `Leader` remembers products of directions, and how fast it goes. A `Verdict` is what everybody hears after a round;
what a leader asks for is never simply done.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from colonnade.blocks import FloatArray
from colonnade.errors import ProtocolError
from colonnade.kernels import gram

# Rounds that may be left at the present pace before directions are cut into more pieces.
_PATIENT = 12.0
# Rounds whose falls say what the pace is, and the slowest pace that is believed.
_SPAN, _SLOWEST = 3, 0.98
# What a round is expected to reach where no tolerance is given, as a part of the objective.
_TOL = 1e-6
# Signals in two bytes will do until a round brings less than this part of the objective.
_FINE = 1e-4
# What a search may gain at most from a direction that is nothing but rounding, as a part of the objective.
_NOISE = 1e-9
# What is left of the square of a direction that depends on those before it, and what its weight costs then.
_DEPENDENT, _NEVER = 1e-10, 1e30
# A sample of rows has taught what it can when a round brings less than this part of the objective.
_LEARNT, GROWTH = 0.003, 4.0
# Rounds on one sample, at most.
_LONGEST = 10

# Directions are stretched at most so far, and so little, that their scores use the ring well.
_SHORTEST_STRETCH, _LONGEST_STRETCH = 1e-300, 1e300


def next_part(part: float) -> float:
    """The part of the rows in the sample that follows a sample of this part."""
    return min(1.0, GROWTH * part)


class Verdict(NamedTuple):
    """What the leader tells everybody after a round."""

    best: bool
    improved: bool
    stop: bool
    fine: bool  # whether signals go in four bytes from now on
    misled: bool  # whether the sample has led to where it is worse than at the start
    pieces: int  # of the next directions
    stretch: float  # by which they are lengthened
    part: float  # of the rows, for the next round

    @classmethod
    def believed(cls, told: Any, leader: str, part: float, most_pieces: int, *, samples: bool) -> Verdict:
        """A verdict that was received, if the job and this party's own limits allow it.

        Parameters
        ----------
        told : Any
            What the leader sent.
        leader : str
            Who that is, for errors.
        part : float
            The part of the rows in the last round.
        most_pieces : int
            The pieces that the job allows.
        samples : bool
            Whether the job begins with a sample of the rows.
        """
        kinds = [type(one) for one in told] if type(told) is tuple else []
        if kinds != [bool] * 5 + [int, float, float]:
            raise ProtocolError(f"party {leader!r} must tell five bools and three numbers at step 'verdict'")
        found = cls(*told)
        if not 1 <= found.pieces <= most_pieces:
            raise ProtocolError(
                f"party {leader!r} asks for directions in {found.pieces} pieces at step 'verdict', the job allows "
                f"{most_pieces} at most"
            )
        if not _SHORTEST_STRETCH <= found.stretch <= _LONGEST_STRETCH:
            raise ProtocolError(
                f"party {leader!r} asks for directions {found.stretch:g} times as long at step 'verdict'"
            )
        if found.part not in (part, next_part(part), 1.0) or (found.misled and not samples):
            raise ProtocolError(
                f"party {leader!r} asks for {found.part:.3g} of the rows at step 'verdict', after {part:.3g} of them; "
                f"the job lets samples only grow"
            )
        return found


class Leader:
    """Decides about weights, pieces and samples; every party hears what it decides."""

    def __init__(self, strength: float, pieces: int, tol: float | None) -> None:
        self._strength, self.most_pieces, self._tol = strength, pieces, tol or _TOL
        self.gram = np.zeros((0, 0))  # products of all directions, over all parties
        self.pull = np.zeros(0)  # of the penalty, along each of them
        self.penalty = 0.0  # before the move
        self._falls: list[float] = []
        self._value = math.inf
        self._since = 0  # rounds since there were more pieces
        self._first = math.inf  # the objective before the first round of all

    def bend(self, grain: float, rows: int) -> FloatArray:
        """The penalty's second derivatives along the directions; of a penalty that is not L2, a bound on them.

        Scores are rounded to a grain. Where directions depend on each other, what is left of them is rounding, and a
        search would use it with huge weights: weights cost a little, too little to matter for other directions.
        """
        bent = self._strength * self.gram
        bent[np.diag_indices(len(bent))] += grain * grain / 12.0 / (2.0 * rows * _NOISE)
        # Whoever depends on the others altogether stays out: there are more directions than columns in the end. The
        # newest come first, as they know most; an old one may be the same but for its rounding.
        factor = self.gram[::-1, ::-1].copy()
        gram.cholesky(factor, _DEPENDENT)
        idle = len(bent) - 1 - np.nonzero(np.diag(factor) == 0.0)[0]
        bent[idle, idle] += _NEVER
        return bent

    def take(self, totals: FloatArray, count: int, new: int) -> float:
        """Take everybody's penalty and products; the last `new` directions are new. Returns the largest scores' sum."""
        self.penalty, largest = float(totals[0]), float(totals[1])
        self.pull, products = totals[2 : 2 + count], totals[2 + count :].reshape(new, count)
        kept, before = count - new, len(self.gram)
        gram = np.zeros((count, count))
        gram[:kept, :kept] = self.gram[before - kept :, before - kept :]
        gram[kept:], gram[:, kept:] = products, products.T
        self.gram = gram
        return largest

    def penalty_at(self, weights: FloatArray) -> float:
        """The penalty after a move; of a penalty that is not L2, a bound on it."""
        bent = self._strength * (self.gram * weights).sum(axis=1)
        return self.penalty + float((self.pull * weights).sum() + 0.5 * (weights * bent).sum())

    def pieces(self, value: float, now: int) -> int:
        """Into how many pieces the next directions are cut: twice as many where the pace would take too long."""
        if math.isfinite(self._value):
            self._falls.append(self._value - value)
        self._value, self._since = value, self._since + 1
        pace, goal = self._pace(), self._tol * abs(value)
        if self._since < _SPAN or not pace > 0.0:
            return now
        fall = self._falls[-1]
        left = math.log(max(goal, 1e-300) / fall) / math.log(pace) if fall > goal else 0.0
        if left <= _PATIENT or now == self.most_pieces:
            return now
        self._since = 0
        return min(self.most_pieces, 2 * now)

    def _pace(self) -> float:
        """What a round's fall is multiplied with for the next one's; 0 while nobody can say."""
        recent = self._falls[-_SPAN - 1 :]
        if len(recent) <= _SPAN or not min(recent) > 0.0:
            return 0.0
        return float(min(_SLOWEST, (recent[-1] / recent[0]) ** (1.0 / _SPAN)))

    @property
    def left(self) -> float:
        """What the objective will still fall by at the present pace."""
        pace = self._pace()
        return self._falls[-1] * pace / (1.0 - pace) if pace else 0.0

    @property
    def fine(self) -> bool:
        """Whether signals are needed in full: their rounding stays as large as it was, and progress does not."""
        return any(fall < _FINE * abs(self._value) for fall in self._falls)

    def larger(self, part: float) -> float:
        """The part of the rows for the next round: more of them as soon as these bring little."""
        if part >= 1.0 or not self._falls:
            return part
        learnt = self._falls[-1] < _LEARNT * abs(self._value) or len(self._falls) >= _LONGEST
        return next_part(part) if learnt else part

    def misled(self, value: float) -> bool:
        """Whether a smaller sample has led to where it is worse for more rows than at the very start."""
        if math.isinf(self._first):
            self._first = value
        return not value <= self._first + _LEARNT * abs(self._first)

    def forget(self) -> None:
        """Forget all directions: what was found on the old rows says nothing about others."""
        self.gram, self.pull = np.zeros((0, 0)), np.zeros(0)
        self._falls, self._value, self._since = [], math.inf, 0

    def freeze(self) -> Any:
        """All that the next round depends on; see `engine.kept.Frozen`."""
        return (self.gram, self._value, self._since, self._first, np.array(self._falls))

    def thaw(self, state: Any) -> None:
        """Take back what `freeze` gave."""
        gram, self._value, self._since, self._first, falls = state
        self.gram, self._falls = gram.copy(), falls.tolist()
