"""Mini-batch SSCA: federated optimisation by successive convex approximation, with and without constraints.

Ye and Cui: "Sample-based Federated Learning via Mini-batch SSCA". Everything here is a pure function of what the server
knows: the state before a round and the clients' sums in, the next state out. The equations' numbers are the paper's.

Objective and constraints are any `Function`s: sums of means over rows and of |w|^2. Problem (11) is Algorithm 1 with
the cost and lambda |w|^2, problem (18) Algorithm 2 with |w|^2 under a limit on the cost.

Where the paper must be read with care:
- A-bar below (20) lacks a minus sign. It is the mean *cost*, -sum y log Q, plus tau |w|^2.
- (13) has tau |w|^2 in every round, which (2) gives only if it starts from tau |w|^2 instead of 0. `correct=True` is
  (2) as it is written: the curvature grows from 0 to tau, and the first rounds do not shrink the parameters. A limit U,
  which is a part of f_m, then grows from 0 to U in the same way.
- The paper's own exponents for gamma (0.35, 0.45) do not satisfy its (5), which asks for more than 0.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from colonnade.algorithms.quadratics import Array, Quadratic, Solution, lemma_1, solve
from colonnade.engine.rounds import Rounds
from colonnade.errors import OptionError, at_least, one_of, whole_number
from colonnade.objective.schedules import Schedule, at_round, check_steps, first_rise, is_power, told_steps

SURROGATES = ("paper", "linear", "convex")


@dataclass(frozen=True, kw_only=True)
class SSCA(Rounds):
    """Successive convex approximation: Algorithm 1, or Algorithm 2 where there are constraints.

    The paper's own choices are in `PAPER`, and `SSCA.as_printed` is Algorithm 2 without what we added to it. The
    defaults here do better on MNIST and on adult, with batches of about 100; single rows need shorter steps.

    Parameters
    ----------
    rho, gamma : tuple of two floats, callable, or sequence of more than two floats
        The steps of (2) and (4): (a, alpha) for a / t^alpha; a function of the round t = 1, 2, ...; or the values of
        rounds 1, 2, ..., at least as many as `rounds`, the last of which stays. All must be > 0 and <= 1. A function is
        asked at the start, by whoever starts the run, and what is sent are its values. The paper's theorems ask that
        rho, gamma and gamma / rho tend to 0, that the sums of rho and of gamma diverge and that of gamma^2 does not.
        Steps that grow are warned of.
    tau : float
        The weight of |w - w_t|^2 in (6) and (8).
    correct : bool
        Whether approximations start from 0, as (2) is written, or as (13) has it; see the top of this file.
    surrogate : {"paper", "linear", "convex"}
        What an approximation makes of |w|^2: "linear" is (6) and (8), a tangent and tau |w - w_t|^2, "convex" keeps
        |w|^2 as it is, which satisfies Assumption 2 as well, wherever its weight is positive, and "paper" keeps it
        where there is nothing else, as in (19), and takes the tangent in a sum, as in (12).
    penalty : float
        c_1, the price of slack; c_(j+1) is ten times c_j.
    penalties : int
        How many prices are tried, each for `rounds` rounds, until the slack vanishes.
    lower : bool
        Whether a limit that approximations keep and all rows exceed is lowered, by as much, for the next c_j, and
        prices go on until all rows keep it. False is the paper's sequence of c_j, in which only the slack counts.
    tolerance : float
        How much the cost over all rows may be above its limit, or above it for each unit of a limit beyond 1, for the
        limit to count as kept.
    **rounds
        The keyword parameters of `engine.rounds.Rounds`.
    """

    rho: Schedule = (0.2, 0.05)
    gamma: Schedule = (0.2, 0.1)
    tau: float = 0.03
    correct: bool = True
    surrogate: str = "paper"
    penalty: float = 1e5
    penalties: int = 3
    lower: bool = True
    tolerance: float = 0.01

    name: ClassVar[str] = "SSCA"
    keeps_limits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("penalties", self.penalties, 1)
        for option in ("rho", "gamma"):
            checked = check_steps(option, getattr(self, option), self.rounds, self.rounds * self.penalties)
            object.__setattr__(self, option, checked)
        if is_power(self.rho) and is_power(self.gamma) and not self.gamma[1] >= self.rho[1]:
            raise OptionError(
                f"gamma / rho must not grow (the paper's (5)): the exponent of gamma must be at least that of rho, "
                f"{self.rho[1]:g}, got {self.gamma[1]:g}"
            )
        for option in ("correct", "lower"):
            if not isinstance(getattr(self, option), bool):
                raise OptionError(f"{option} must be True or False, got {getattr(self, option)!r}")
        one_of("surrogate", self.surrogate, SURROGATES)
        at_least("tau", self.tau, 0, strict=True, finite=True)
        at_least("penalty", self.penalty, 0, strict=True, finite=True)
        at_least("tolerance", self.tolerance, 0, finite=True)

    @classmethod
    def as_printed(cls, **options: Any) -> SSCA:
        """Return both algorithms as the paper prints them.

        Approximations start as in (13), Algorithm 2 runs once, for `rounds` rounds with c = `penalty`, and no limit is
        lowered. What else is given are keyword parameters of `SSCA`.
        """
        return cls(**{"correct": False, "penalties": 1, "lower": False, **options})

    def as_value(self) -> Any:
        """A form that the wire can carry, in which functions of the round are their values."""
        most = self.rounds * self.penalties
        told = replace(self, rho=told_steps(self.rho, most), gamma=told_steps(self.gamma, most))
        return super(SSCA, told).as_value()

    def warnings(self) -> tuple[str, ...]:
        """Steps that grow from one round to the next are seldom meant, and nothing is proven of them."""
        rises = {option: first_rise(getattr(self, option), self.rounds * self.penalties) for option in ("rho", "gamma")}
        return tuple(
            f"{option} grows from {at_round(getattr(self, option), t - 1):g} in round {t - 1} to "
            f"{at_round(getattr(self, option), t):g} in round {t}; the paper's theorems ask that it falls, as (a, "
            f"alpha) for a / t^alpha does"
            for option, t in rises.items()
            if t is not None
        )

    def steps(self, t: int) -> tuple[float, float]:
        """rho and gamma of round t, counted from 1."""
        return at_round(self.rho, t), at_round(self.gamma, t)

    def kept(self, function: Function) -> float:
        """The weight of |w|^2 that an approximation of this function has as it is."""
        if function.square <= 0 or self.surrogate == "linear":
            return 0.0
        return function.square if self.surrogate == "convex" or not any(function.weights) else 0.0


# Section VI: (a_1, alpha) and (a_2, alpha + 0.05) for the batch sizes 1, 10 and 100.
PAPER: dict[int, SSCA] = {
    1: SSCA.as_printed(batch=1, rho=(0.4, 0.4), gamma=(0.4, 0.45), tau=0.1),
    10: SSCA.as_printed(batch=10, rho=(0.6, 0.3), gamma=(0.9, 0.35), tau=0.1),
    100: SSCA.as_printed(batch=100, rho=(0.9, 0.3), gamma=(0.9, 0.35), tau=0.1),
}


@dataclass(frozen=True)
class Average:
    """What the clients' sums say about a function: sum over i of N_i / (B N) times the sum over i's batch."""

    cost: float
    gradient: Array


@dataclass(frozen=True)
class Function:
    """F_m of Problem 3, without its limit: a sum of means over rows, each with its weight, and of square |w|^2."""

    weights: tuple[float, ...]
    square: float = 0.0

    def average(self, averages: Sequence[Average | None], w: Array, square: float) -> Average | None:
        """Its own average, with `square` |w|^2; None where one of those it is made of is not known."""
        cost, gradient = square * float(w @ w), 2 * square * w
        for weight, each in zip(self.weights, averages, strict=True):
            if not weight:
                continue
            if each is None:
                return None
            cost, gradient = cost + weight * each.cost, gradient + weight * each.gradient
        return Average(cost, gradient)

    def value(self, means: Sequence[float], w: Array) -> float:
        """Its value at w, where these are the means over all rows."""
        known = sum(weight * mean for weight, mean in zip(self.weights, means, strict=True) if weight)
        return float(known + self.square * float(w @ w))


@dataclass(frozen=True)
class Problem:
    """Problem 3: minimise one function under limits on others; without any it is Problem 1."""

    objective: Function
    constraints: tuple[Function, ...] = ()

    @property
    def functions(self) -> tuple[Function, ...]:
        """F_0, F_1, ..., F_M."""
        return (self.objective, *self.constraints)


@dataclass(frozen=True)
class State:
    """What the server knows before round t: parameters, approximations, and how the last problem was solved."""

    parameters: Array
    approximations: tuple[Quadratic, ...]
    t: int = 1
    slack: tuple[float, ...] = ()
    multipliers: tuple[float, ...] = ()


def start(parameters: Array, problem: Problem, options: SSCA) -> State:
    """Line 1 of both algorithms. What is kept as it is, and nothing beside it, needs no approximation."""
    nothing, found = np.zeros_like(parameters), []
    for function in problem.functions:
        kept = options.kept(function)
        known = kept if not any(function.weights) and kept else 0.0
        found.append(Quadratic(0.0, nothing, known if options.correct or known else options.tau + kept))
    return State(parameters, tuple(found))


def approximate(before: Quadratic, rho: float, average: Average, at: Array, tau: float, kept: float = 0.0) -> Quadratic:
    """(2) and (7), with f-bar from (6) and (8): f + gradient . (w - w_t) + tau |w - w_t|^2, and what is kept of |w|^2.

    The linear part is (14) and (15), the constant (20) with A-bar = cost + tau |w_t|^2; Algorithm 1 needs no constant.
    """
    constant = average.cost - float(average.gradient @ at) + tau * float(at @ at)
    return Quadratic(
        (1 - rho) * before.constant + rho * constant,
        (1 - rho) * before.linear + rho * (average.gradient - 2 * tau * at),
        # with the paper's start this is tau for ever; without it, what (2) gives
        (1 - rho) * before.curvature + rho * (tau + kept),
    )


def _approximations(
    state: State, averages: Sequence[Average | None], problem: Problem, options: SSCA
) -> list[Quadratic]:
    """(2) and (7) of all functions; where a function's average is not known, what is known of it stays as it is."""
    w, (rho, _), found = state.parameters, options.steps(state.t), []
    for function, before in zip(problem.functions, state.approximations, strict=True):
        kept = options.kept(function)
        exact = kept and not any(function.weights)
        average = None if exact else function.average(averages, w, function.square - kept)
        found.append(before if average is None else approximate(before, rho, average, w, options.tau, kept))
    return found


def algorithm_1(state: State, averages: Sequence[Average | None], problem: Problem, options: SSCA) -> State:
    """One round of Algorithm 1, for a problem without constraints."""
    w, (_, gamma) = state.parameters, options.steps(state.t)
    # (12) has 2 lambda beta . w, where beta is to w_t what B is to the gradient: one and the same recursion.
    (approximation,) = _approximations(state, averages, problem, options)
    if not approximation.curvature > 0:
        return replace(state, t=state.t + 1)  # no row of it has been seen yet
    # (16) and (17)
    best = -approximation.linear / (2 * approximation.curvature)
    # (4)
    return State((1 - gamma) * w + gamma * best, (approximation,), state.t + 1)


def algorithm_2(
    state: State,
    averages: Sequence[Average | None],
    problem: Problem,
    limits: Sequence[float],
    c: float,
    options: SSCA,
) -> State:
    """One round of Algorithm 2: the least F_0 with F_m at most limit m, for all m.

    An average may be None where no row of that kind was in any batch: the approximations that need it stay as they are.
    """
    w, (_, gamma) = state.parameters, options.steps(state.t)
    objective, *others = approximations = _approximations(state, averages, problem, options)
    constraints = []
    for function, each, limit in zip(problem.constraints, others, limits, strict=True):
        # A limit is a part of f_m, so it has the weight in F-bar_m that (2) has given to all f-bar_m so far.
        kept = options.kept(function)
        whole = kept if kept and not any(function.weights) else options.tau + kept
        constraints.append(replace(each, constant=each.constant - each.curvature / whole * limit))
    known = [m for m, each in enumerate(constraints) if each.curvature > 0]
    slack, multipliers = np.zeros((2, len(constraints)))  # of those that no row has yet been seen of: nothing
    moved = w
    if known and objective.curvature > 0:
        solution = problem_5(objective, [constraints[m] for m in known], c)
        moved = (1 - gamma) * w + gamma * solution.parameters  # (4)
        slack[known], multipliers[known] = solution.slack, solution.multipliers
    return State(moved, tuple(approximations), state.t + 1, tuple(slack.tolist()), tuple(multipliers.tolist()))


def problem_5(objective: Quadratic, constraints: Sequence[Quadratic], c: float) -> Solution:
    """Problem 5: by Lemma 1 where |w|^2 is minimised under one constraint, which is (19), and by its dual otherwise."""
    alone = objective.curvature == 1.0 and not objective.linear.any()
    return lemma_1(constraints[0], c) if alone and len(constraints) == 1 else solve(objective, constraints, c)
