"""Mini-batch SSCA: federated optimisation by successive convex approximation, with and without constraints.

Ye and Cui: "Sample-based Federated Learning via Mini-batch SSCA". Everything here is a pure function of what the server
knows: the state before a round and the clients' sums in, the next state out. The equations' numbers are the paper's.

Where the paper must be read with care:
- A-bar below (20) lacks a minus sign. It is the mean *cost*, -sum y log Q, plus tau |w|^2.
- (13) has tau |w|^2 in every round, which (2) gives only if it starts from tau |w|^2 instead of 0. `correct=True` is
  (2) as it is written: the curvature grows from 0 to tau, and the first rounds do not shrink the parameters.
- The paper's own exponents for gamma (0.35, 0.45) do not satisfy its (5), which asks for more than 0.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.engine.rounds import Rounds, check_schedule
from colonnade.errors import OptionError, at_least, whole_number


@dataclass(frozen=True, kw_only=True)
class SSCA(Rounds):
    """Successive convex approximation: Algorithm 1, or Algorithm 2 where a cost is limited.

    The paper's own choices are in `PAPER`; the defaults here do better on MNIST and on adult.

    Parameters
    ----------
    rho, gamma : tuple of two floats
        (a, alpha) of the steps a / t^alpha in (2) and (4).
    tau : float
        The weight of |w - w_t|^2 in (6) and (8).
    correct : bool
        Whether approximations start from 0, as (2) is written, or as (13) has it; see the top of this file.
    penalty : float
        c_1, the price of slack; c_(j+1) is ten times c_j.
    penalties : int
        How many prices are tried, each for `rounds` rounds, until the slack vanishes.
    tolerance : float
        How much the cost over all rows may be above its limit for the slack to count as vanished.
    **rounds
        The keyword parameters of `engine.rounds.Rounds`.
    """

    rho: tuple[float, float] = (0.5, 0.3)
    gamma: tuple[float, float] = (0.5, 0.35)
    tau: float = 0.05
    correct: bool = True
    penalty: float = 1e5
    penalties: int = 3
    tolerance: float = 0.01

    name: ClassVar[str] = "SSCA"
    keeps_limits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("rho", "gamma"):
            check_schedule(option, getattr(self, option), most=1.0)
        if not self.gamma[1] >= self.rho[1]:
            raise OptionError(
                f"gamma / rho must not grow (the paper's (5)): the exponent of gamma must be at least that of rho, "
                f"{self.rho[1]:g}, got {self.gamma[1]:g}"
            )
        if not isinstance(self.correct, bool):
            raise OptionError(f"correct must be True or False, got {self.correct!r}")
        at_least("tau", self.tau, 0, strict=True, finite=True)
        at_least("penalty", self.penalty, 0, strict=True, finite=True)
        whole_number("penalties", self.penalties, 1)
        at_least("tolerance", self.tolerance, 0, finite=True)

    def steps(self, t: int) -> tuple[float, float]:
        """rho and gamma of round t, counted from 1."""
        return self.rho[0] / t ** self.rho[1], self.gamma[0] / t ** self.gamma[1]


# Section VI: (a_1, alpha) and (a_2, alpha + 0.05) for the batch sizes 1, 10 and 100.
PAPER: dict[int, SSCA] = {
    1: SSCA(batch=1, rho=(0.4, 0.4), gamma=(0.4, 0.45), tau=0.1, correct=False),
    10: SSCA(batch=10, rho=(0.6, 0.3), gamma=(0.9, 0.35), tau=0.1, correct=False),
    100: SSCA(batch=100, rho=(0.9, 0.3), gamma=(0.9, 0.35), tau=0.1, correct=False),
}


@dataclass(frozen=True)
class Average:
    """What the clients' sums say about a function: sum over i of N_i / (B N) times the sum over i's batch."""

    cost: float
    gradient: Array


@dataclass(frozen=True)
class State:
    """What the server knows before round t: parameters, approximations, and how the last problem was solved."""

    parameters: Array
    approximations: tuple[Quadratic, ...]
    t: int = 1
    slack: tuple[float, ...] = ()
    multipliers: tuple[float, ...] = ()


def start(parameters: Array, functions: int, options: SSCA) -> State:
    """Line 1 of both algorithms, for so many functions to approximate."""
    curvature = 0.0 if options.correct else options.tau
    return State(parameters, (Quadratic(0.0, np.zeros_like(parameters), curvature),) * functions)


def approximate(before: Quadratic, rho: float, average: Average, at: Array, tau: float) -> Quadratic:
    """(2) and (7), with f-bar from (6) and (8): f + gradient . (w - w_t) + tau |w - w_t|^2.

    The linear part is (14) and (15), the constant (20) with A-bar = cost + tau |w_t|^2; Algorithm 1 needs no constant.
    """
    constant = average.cost - float(average.gradient @ at) + tau * float(at @ at)
    return Quadratic(
        (1 - rho) * before.constant + rho * constant,
        (1 - rho) * before.linear + rho * (average.gradient - 2 * tau * at),
        # with the paper's start this is tau for ever; without it, what (2) gives
        (1 - rho) * before.curvature + rho * tau,
    )


def algorithm_1(state: State, average: Average, options: SSCA, l2: float = 0.0) -> State:
    """One round of Algorithm 1 for cost + l2 |w|^2, problem (11)."""
    w, (rho, gamma) = state.parameters, options.steps(state.t)
    # (12) adds 2 lambda beta . w, where beta is to w_t what B is to the gradient: one and the same recursion.
    whole = replace(average, gradient=average.gradient + 2 * l2 * w)
    approximation = approximate(state.approximations[0], rho, whole, w, options.tau)
    # (16) and (17)
    best = -approximation.linear / (2 * approximation.curvature)
    # (4)
    return State((1 - gamma) * w + gamma * best, (approximation,), state.t + 1)


def algorithm_2(
    state: State, averages: Sequence[Average | None], limits: Sequence[float], c: float, options: SSCA
) -> State:
    """One round of Algorithm 2 for problem (18): the shortest w with cost m at most limit m, for all m.

    An average may be None where no row of that kind was in any batch: its approximation stays as it is.
    """
    w, (rho, gamma) = state.parameters, options.steps(state.t)
    approximations = tuple(
        before if average is None else approximate(before, rho, average, w, options.tau)
        for before, average in zip(state.approximations, averages, strict=True)
    )
    constraints = [
        replace(each, constant=each.constant - limit) for each, limit in zip(approximations, limits, strict=True)
    ]
    known = [m for m, each in enumerate(constraints) if each.curvature > 0]
    solution = problem_19([constraints[m] for m in known], c)
    # (4)
    moved = (1 - gamma) * w + gamma * solution.parameters if known else w
    slack, multipliers = np.zeros((2, len(constraints)))  # of those that no row has yet been seen of: nothing
    slack[known], multipliers[known] = solution.slack, solution.multipliers
    return State(moved, approximations, state.t + 1, tuple(slack.tolist()), tuple(multipliers.tolist()))


def problem_19(constraints: Sequence[Quadratic], c: float) -> Solution:
    """Problem (19): minimise |w|^2 + c s under one constraint (Lemma 1) or several (its dual)."""
    if len(constraints) == 1:
        return lemma_1(constraints[0], c)
    if not constraints:
        return Solution(np.zeros(0), (), ())
    nothing = Quadratic(0.0, np.zeros_like(constraints[0].linear), 1.0)
    return solve(nothing, constraints, c)


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


# -- problem 5 of the SSCA paper: a small convex problem whose quadratic terms are all multiples of |w|^2 ------------

# Minimise F_0(w) + c (s_1 + ... + s_M) so that F_m(w) <= s_m and s_m >= 0, where F_m(w) = a_m + b_m . w + k_m |w|^2.
# Its dual has M variables nu_m between 0 and c, however many parameters w has: for given nu the best w is -(b_0 + sum
# nu_m b_m) / (2 (k_0 + sum nu_m k_m)), and all that the dual needs to know of the b_m are their inner products.


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
