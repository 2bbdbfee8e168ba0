"""The problem of a model as its user states it, made into numbers: which means over rows, and what is made of them.

`cost_limit=U` is short for objective=squared_norm(), constraints=[cost() <= U]; a dict limits the cost of each class or
group. Neither is cost() + l2 |w|^2, without constraints.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from colonnade.algorithms.ssca import Function, Problem
from colonnade.errors import OptionError, at_least
from colonnade.horizontal.conduct import vanished
from colonnade.horizontal.row_keys import EVERY_ROW, RowKeys
from colonnade.objective.expressions import Constraint, Expression, Term, cost, squared_norm

COST = -1  # in the place of a function's number


@dataclass(frozen=True)
class StatedProblem:
    """A problem in numbers, and how its parts are called."""

    rows: RowKeys
    measures: tuple[tuple[int, int], ...]  # means over rows: (number of the key, number of the function)
    problem: Problem  # weights are those of the measures, then of the functions of parameters
    limits: tuple[float, ...]
    labels: tuple[Any, ...]  # under which attributes have each constraint
    row_functions: tuple[Any, ...] = ()
    parameter_functions: tuple[Any, ...] = ()
    usual: bool = True  # whether cost() + l2 |w|^2 is minimised, without constraints

    @classmethod
    def of(cls, *, l2: float = 0.0, cost_limit: Any = None, grouped: bool = False) -> StatedProblem:
        """Read the options of a problem of the paper's: (11) with `l2`, or (18) with `cost_limit`."""
        if cost_limit is None:
            return cls.stated(cost() + l2 * squared_norm(), (), grouped, usual=True)
        if not isinstance(cost_limit, Mapping):
            _check("cost_limit", cost_limit)
            return cls.stated(squared_norm(), [cost() <= cost_limit], grouped, labels=(None,))
        if not cost_limit:
            raise OptionError("cost_limit is an empty dict; give a limit for at least one class or group")
        for key, limit in cost_limit.items():
            _check(f"cost_limit[{key!r}]", limit)
        limits = [cost(key) <= limit for key, limit in cost_limit.items()]
        return cls.stated(squared_norm(), limits, grouped, labels=tuple(cost_limit))

    @classmethod
    def stated(
        cls,
        objective: Expression,
        constraints: Iterable[Constraint],
        grouped: bool,
        labels: tuple[Any, ...] | None = None,
        usual: bool = False,
    ) -> StatedProblem:
        """Make numbers of an objective and constraints; `labels` are the constraints' own words by default.

        These are the words of its expression; where two limits are on one expression, those of the limit.
        """
        constraints = tuple(constraints)
        every = (objective, *(limit.expression for limit in constraints))
        terms = dict.fromkeys(term for expression in every for term, _ in expression.terms)
        of_rows = [term for term in terms if term.kind == "rows"]
        if not of_rows:
            raise OptionError("neither the objective nor a constraint is about rows; name cost() in one of them")
        keys = tuple(dict.fromkeys(term.of for term in of_rows if term.of is not None))
        own = tuple(dict.fromkeys(term.function for term in of_rows if term.function is not None))
        alone = tuple(term for term in terms if term.kind == "parameters")
        measures = tuple(
            (
                EVERY_ROW if term.of is None else keys.index(term.of),
                COST if term.function is None else own.index(term.function),
            )
            for term in of_rows
        )
        functions = [_function(expression, (*of_rows, *alone)) for expression in every]
        for function, expression in zip(functions, every, strict=True):
            if not any(function.weights) and not function.square:
                raise OptionError(f"{expression} does not depend on the parameters; leave it out")
        return cls(
            RowKeys(keys, grouped),
            measures,
            Problem(functions[0], tuple(functions[1:])),
            tuple(limit.most for limit in constraints),
            _words(constraints) if labels is None else labels,
            own,
            tuple(term.function for term in alone),
            usual,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """How sentences call the rows of each measure; "" is all rows."""
        return tuple(
            "" if key == EVERY_ROW else f"{self.rows.what} {self.rows.keys[key]!r}" for key, _ in self.measures
        )

    def by_key(self, values: Sequence[float]) -> dict[Any, float]:
        """Return {class, group or words of a constraint: value}; the key of all rows is None."""
        return dict(zip(self.labels or (None,), values, strict=False))

    def _called(self, label: Any) -> str:
        """How sentences call what is limited."""
        if label is None:
            return "the cost"
        return f"the cost of {self.rows.what} {label!r}" if label in self.rows.keys else str(label)

    def sentence(self, costs: Sequence[float], slack: Sequence[float], rounds: int, wait: float | None) -> str:
        """Say which limits were not kept and what was reached; without costs nobody knows, and that is said."""
        if not costs:
            return (
                f"nobody knows whether the limits are met: too few sites answered the last evaluation, over all their "
                f"rows, in time; raise wait, now {wait} (the model as it is can be used)"
            )
        slack = slack or (0.0,) * len(costs)  # every round was skipped
        missed = [
            f"{self._called(label)} is "
            + ("not known, as no site that has such rows answered" if math.isnan(value) else f"{value:.4g}")
            + f", the limit {limit:g}"
            for label, value, limit, rest in zip(self.labels, costs, self.limits, slack, strict=True)
            if not value <= limit or not vanished(rest, limit)
        ]
        return (
            f"the limits could not all be met in {rounds} rounds: {'; '.join(missed)}; raise them, or give more "
            f"rounds, a larger batch or more hidden cells (the model as it is can be used)"
        )


def _words(constraints: Sequence[Constraint]) -> tuple[str, ...]:
    """Words for each constraint that no other one has: what is limited, with its limit, and a number if need be."""
    short = [str(limit.expression) for limit in constraints]
    whole = [words if short.count(words) == 1 else str(limit) for words, limit in zip(short, constraints, strict=True)]
    return tuple(
        words if (nth := whole[:at].count(words)) == 0 else f"{words} ({nth + 1})" for at, words in enumerate(whole)
    )


def _function(expression: Expression, terms: Sequence[Term]) -> Function:
    weights = dict(expression.terms)
    square = sum(weight for term, weight in expression.terms if term.kind == "square")
    return Function(tuple(weights.get(term, 0.0) for term in terms), float(square))


def _check(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise OptionError(f"{name} must be a number > 0, got {value!r}")
    at_least(name, float(value), 0, strict=True, finite=True)


def check_problem(
    l2: float | None, cost_limit: Any, objective: Any, constraints: Any, keeps_limits: bool, method: Any
) -> None:
    """Refuse options that state two problems at once, or one that the algorithm can't solve."""
    options = {"cost_limit": cost_limit, "objective": objective, "constraints": constraints}
    given = [name for name, value in options.items() if value is not None]
    if given and not keeps_limits:
        raise OptionError(f"{given[0]} needs algorithm=SSCA(...), got {method!r}; no other keeps a limit")
    if len(given) > 1 and cost_limit is not None:
        raise OptionError(f"cost_limit states a problem of its own; leave it or {given[1]} out")
    if l2 is not None and given and given[0] != "constraints":
        minimised = "|w|² itself" if cost_limit is not None else "what it says"
        raise OptionError(f"l2 is a part of cost() + l2 |w|², and {given[0]} minimises {minimised}; leave l2 out")
    if objective is not None and not isinstance(objective, Expression):
        raise OptionError(f"objective must be a sum of cost(), squared_norm() and the like, got {objective!r}")
    each = () if constraints is None or isinstance(constraints, Constraint) else constraints
    if not isinstance(each, (tuple, list)) or not all(isinstance(one, Constraint) for one in each):
        raise OptionError(f"constraints must be a list of limits such as cost() <= 0.5, got {constraints!r}")


def state_problem(l2: float, cost_limit: Any, objective: Any, constraints: Any, grouped: bool) -> StatedProblem:
    """Return the problem of checked options; `grouped` is whether keys of costs are groups rather than classes."""
    if objective is None and constraints is None:
        return StatedProblem.of(l2=l2, cost_limit=cost_limit, grouped=grouped)
    each = () if constraints is None else constraints
    usual = cost() + l2 * squared_norm()
    given = (each,) if isinstance(each, Constraint) else tuple(each)
    return StatedProblem.stated(usual if objective is None else objective, given, grouped)
