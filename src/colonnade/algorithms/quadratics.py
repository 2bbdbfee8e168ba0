"""Problem 5 of the SSCA paper: a small convex problem whose quadratic terms are all multiples of |w|^2.

Minimise F_0(w) + c (s_1 + ... + s_M) so that F_m(w) <= s_m and s_m >= 0, where F_m(w) = a_m + b_m . w + k_m |w|^2. Its
dual has M variables nu_m between 0 and c, however many parameters w has: for given nu the best w is -(b_0 + sum nu_m
b_m) / (2 (k_0 + sum nu_m k_m)), and all that the dual needs to know of the b_m are their inner products. Lemma 1 is its
closed form for one constraint and |w|^2 to be minimised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colonnade.errors import OptionError

Array = npt.NDArray[np.float64]

_ITERATIONS, _HALVINGS = 500, 60
# A constraint counts as kept, and a bound as reached, to this part of the numbers it is made of; or nearly so.
_EXACT, _NEAR = 1e-13, 1e-10
_RIDGE = 1e-14  # for constraints that say the same twice, of a matrix with 1 on its diagonal
# Gains below this part of the dual's value drown in its rounding.
_BLIND = 1e-12


@dataclass(frozen=True)
class Quadratic:
    """constant + linear . w + curvature |w|^2."""

    constant: float
    linear: Array
    curvature: float

    def __call__(self, w: Array) -> float:
        """Its value at w."""
        return float(self.constant + self.linear @ w + self.curvature * (w @ w))

    def above_zero(self, w: Array) -> float:
        """What its value at w exceeds 0 by; nothing where that is no more than the rounding of its parts."""
        parts = (self.constant, float(self.linear @ w), self.curvature * float(w @ w))
        value = self(w)
        return value if value > _NEAR * sum(map(abs, parts)) else 0.0


@dataclass(frozen=True)
class Solution:
    """(w, s) of Problem 5, and the multipliers of its constraints."""

    parameters: Array
    slack: tuple[float, ...]
    multipliers: tuple[float, ...]


def lemma_1(constraint: Quadratic, c: float) -> Solution:
    """Lemma 1. The constraint's constant is A - U, its linear part B and C, its curvature tau."""
    tau, room = constraint.curvature, -constraint.constant  # U - A
    b = float(constraint.linear @ constraint.linear)
    inside = b + 4 * tau * room
    # (23)
    nu = c
    if inside > 0:
        nu = min(max((math.sqrt(b / inside) - 1) / tau, 0.0), c)
    # (21) and (22)
    w = -nu * constraint.linear / (2 * (1 + nu * tau))
    return Solution(w, (constraint.above_zero(w),), (nu,))


def solve(objective: Quadratic, constraints: Sequence[Quadratic], c: float) -> Solution:
    """Problem 5, through its dual."""
    if not objective.curvature > 0:
        raise OptionError(f"the objective must be strongly convex (curvature > 0), got {objective.curvature!r}")
    every = (objective, *constraints)
    linear = np.stack([each.linear for each in every])
    dual = _Dual(
        np.array([each.constant for each in constraints]),
        np.array([each.curvature for each in every]),
        linear @ linear.T,
    )
    nu = _newton(dual, len(constraints), c)
    weights = np.concatenate([[1.0], nu])
    w = -(weights @ linear) / (2.0 * (weights @ dual.curvatures))
    slack = tuple(each.above_zero(w) for each in constraints)
    return Solution(w, slack, tuple(nu.tolist()))


@dataclass(frozen=True)
class _Dual:
    """The dual with its sign changed: convex, to be minimised over 0 <= nu <= c."""

    constants: Array
    curvatures: Array
    gram: Array  # inner products of b_0, b_1, ...

    def value(self, nu: Array) -> float:
        weights = np.concatenate([[1.0], nu])
        return float(weights @ self.gram @ weights / (4.0 * (weights @ self.curvatures)) - nu @ self.constants)

    def slope(self, nu: Array) -> tuple[Array, Array, Array]:
        """First and second derivatives, and the size of the numbers that the first ones are made of."""
        weights = np.concatenate([[1.0], nu])
        length = weights @ self.curvatures
        products = self.gram @ weights  # with u = b_0 + sum nu_m b_m
        square = weights @ products
        parts = self.constants, products[1:] / (2 * length), self.curvatures[1:] * square / (4 * length**2)
        first = -parts[0] + parts[1] - parts[2]
        # of the gradients b_m + 2 k_m w of the constraints: all inner products, over 2 (k_0 + sum nu k)
        k = self.curvatures[1:]
        cross = np.outer(products[1:], k) / length
        second = (self.gram[1:, 1:] - cross - cross.T + np.outer(k, k) * square / length**2) / (2 * length)
        return first, second, np.abs(parts[0]) + np.abs(parts[1]) + np.abs(parts[2])


def _newton(dual: _Dual, constraints: int, c: float) -> Array:
    """Newton's method within the box (Bertsekas 1982): exact at bounds, quadratic between them.

    The slope in nu_m is minus the constraint's value: when all of them are 0, or push against a bound, it is done.
    """
    nu = np.zeros(constraints)
    for _ in range(_ITERATIONS):
        first, second, size = dual.slope(nu)
        pressed = ((nu <= 0) & (first >= 0)) | ((nu >= c) & (first <= 0))
        free = ~pressed & (np.abs(first) > _EXACT * size)
        if not free.any():
            return nu
        nu, moved = _search(dual, nu, _step(nu, first, second, ~pressed, c), first, c)
        if not moved and (np.abs(first) > _NEAR * size)[free].any():
            # Rounding has spoilt Newton's step (constraints that say nearly the same): each for itself still goes down.
            nu, moved = _search(dual, nu, np.where(pressed, 0.0, -first / _bends(second)), first, c)
        if not moved:
            return nu
    return nu


def _step(nu: Array, first: Array, second: Array, moving: npt.NDArray[np.bool_], c: float) -> Array:
    """Newton's step for those that move; who stands at a bound and would leave by it stays, and the rest think again.

    Cut off at the bound instead, what is left of the step need not go down at all, and the search would end there.
    """
    moving, scale = moving.copy(), 1.0 / np.sqrt(_bends(second))
    while True:
        step, of = np.zeros(len(nu)), scale[moving]
        block = second[np.ix_(moving, moving)] * np.outer(of, of) + _RIDGE * np.eye(len(of))
        step[moving] = -of * np.linalg.solve(block, of * first[moving])
        leaving = moving & (((nu <= 0) & (step < 0)) | ((nu >= c) & (step > 0)))
        if not leaving.any() or leaving[moving].all():
            return step
        moving &= ~leaving


def _bends(second: Array) -> Array:
    """Second derivatives in each multiplier alone, none of them 0."""
    bends = np.diag(second)
    return np.maximum(bends, max(float(bends.max(initial=0.0)) * 1e-24, 1e-200))


def _search(dual: _Dual, nu: Array, step: Array, first: Array, c: float) -> tuple[Array, bool]:
    """As far along the step, bent at the bounds, as the dual falls; False where rounding leaves nothing to gain."""
    value, length = dual.value(nu), 1.0
    for _ in range(_HALVINGS):
        trial = np.clip(nu + length * step, 0.0, c)
        if np.array_equal(trial, nu):
            break
        gain = float(first @ (trial - nu))
        if abs(gain) <= _BLIND * (1.0 + abs(value)):
            # Too close for the values to tell: the slopes still can.
            after = dual.slope(trial)[0]
            closer = bool(np.abs(after[step != 0]).max() < np.abs(first[step != 0]).max())
            return (trial, True) if closer else (nu, False)
        if dual.value(trial) <= value + 1e-4 * gain:
            return trial, True
        length /= 2
    return nu, False
