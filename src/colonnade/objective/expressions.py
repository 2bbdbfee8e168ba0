"""What is to be minimised and what is limited, as a person writes it: cost(), squared_norm(), sums and limits of them.

    objective=squared_norm(), constraints=[cost("dark") <= 0.5, cost("dark") - cost("light") <= 0.05]

An expression is a weighted sum of terms. A term is a mean over rows (the cost of all rows, of a class or of a group, or
a function of the user's own), |w|^2, or a function of the parameters alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import OptionError

Array = npt.NDArray[Any]
# (scores of rows, numbers of their classes) -> (a value of each row, its derivative by each score)
RowFunction = Callable[[Array, Array], tuple[Array, Array]]
# parameters -> (value, gradient)
ParameterFunction = Callable[[Array], tuple[float, Array]]


@dataclass(frozen=True)
class Term:
    """One summand: a mean over rows, |w|^2, or a function of the parameters."""

    kind: str  # "rows", "square" or "parameters"
    of: Any = None  # the class or group of the rows; None is all of them
    function: Any = None  # of rows or of parameters; None is the cost -log(probability of the right class)

    def __str__(self) -> str:
        if self.kind == "square":
            return "|w|²"
        called = "cost" if self.function is None else getattr(self.function, "__name__", "function")
        return f"{called}({'' if self.of is None else repr(self.of)})" if self.kind == "rows" else f"{called}(w)"


@dataclass(frozen=True)
class Expression:
    """A sum of terms, each with its weight, and of a number."""

    terms: tuple[tuple[Term, float], ...]
    constant: float = 0.0

    def __add__(self, other: Any) -> Expression:
        more = as_expression(other)
        summed: dict[Term, float] = {}
        for term, weight in (*self.terms, *more.terms):
            summed[term] = summed.get(term, 0.0) + weight
        kept = tuple((term, weight) for term, weight in summed.items() if weight)
        return Expression(kept, self.constant + more.constant)

    __radd__ = __add__

    def __mul__(self, factor: Any) -> Expression:
        by = _number(factor)
        return Expression(tuple((term, by * weight) for term, weight in self.terms if by), by * self.constant)

    __rmul__ = __mul__

    def __truediv__(self, by: Any) -> Expression:
        if not _number(by):
            raise OptionError("an expression can't be divided by 0")
        return self * (1 / _number(by))

    def __neg__(self) -> Expression:
        return self * -1.0

    def __sub__(self, other: Any) -> Expression:
        return self + -as_expression(other)

    def __rsub__(self, other: Any) -> Expression:
        return -self + as_expression(other)

    def __le__(self, other: Any) -> Constraint:
        rest = self - other
        return Constraint(Expression(rest.terms), -rest.constant)

    def __ge__(self, other: Any) -> Constraint:
        limit: Constraint = -self <= -as_expression(other)
        return limit

    def __lt__(self, other: Any) -> Constraint:
        raise OptionError(f"{self} < {other} is no limit, as limits may be reached; write <=")

    def __gt__(self, other: Any) -> Constraint:
        raise OptionError(f"{self} > {other} is no limit, as limits may be reached; write >=")

    def __pow__(self, power: Any) -> Expression:
        raise OptionError(
            f"({self}) ** {power} is no sum of terms with weights; limit {self} itself with <=, or name a function of "
            f"your own with mean_of or of_parameters"
        )

    def __bool__(self) -> bool:
        raise OptionError(f"{self} is an expression, which is neither true nor false; compare it with <=")

    def __str__(self) -> str:
        parts: list[str] = []
        for term, weight in self.terms:
            size = "" if abs(weight) == 1 else f"{abs(weight):g} "
            sign = ("-" if weight < 0 else "") if not parts else (" - " if weight < 0 else " + ")
            parts.append(f"{sign}{size}{term}")
        if self.constant or not parts:
            parts.append(
                f"{' + ' if self.constant >= 0 else ' - '}{abs(self.constant):g}" if parts else f"{self.constant:g}"
            )
        return "".join(parts)


@dataclass(frozen=True)
class Constraint:
    """A constraint: an expression without a number of its own, and the most that it may be."""

    expression: Expression
    most: float

    def __bool__(self) -> bool:
        raise OptionError(f"{self} is a constraint, which is neither true nor false; write a <= b and b <= c apart")

    def __str__(self) -> str:
        return f"{self.expression} <= {self.most:g}"


def _number(given: Any) -> float:
    if isinstance(given, (bool, np.bool_)) or not isinstance(given, Real) or not math.isfinite(given):
        raise OptionError(f"expressions are multiplied by finite numbers, got {given!r}")
    return float(given)


def as_expression(given: Any) -> Expression:
    """Return an expression, or a finite number as one; refuse anything else."""
    if isinstance(given, Expression):
        return given
    if isinstance(given, (bool, np.bool_)) or not isinstance(given, Real) or not math.isfinite(given):
        raise OptionError(
            f"expected a sum of cost(), squared_norm(), mean_of(...), of_parameters(...) and finite numbers, got "
            f"{given!r}"
        )
    return Expression((), float(given))


def cost(of: Any = None) -> Expression:
    """Return the mean of -log(probability of the right class) over rows.

    Parameters
    ----------
    of : class or group, optional
        Whose rows: those of a class, or of a named group where sites have `groups`; None is all rows.

    Returns
    -------
    Expression
        Something to add, subtract, multiply by numbers and limit with <=.
    """
    return Expression(((Term("rows", of), 1.0),))


def squared_norm() -> Expression:
    """Return |w|², the sum of the squares of all parameters.

    Returns
    -------
    Expression
        Something to add, subtract, multiply by numbers and limit with <=.
    """
    return Expression(((Term("square"), 1.0),))


def mean_of(function: RowFunction, of: Any = None) -> Expression:
    """Return the mean over rows of a function of your own.

    Parameters
    ----------
    function : callable
        function(scores, y) -> (values, slopes): for rows with these scores, one column per class in sorted order, and
        numbers of classes, a value of each row, and its derivative by each score. It must be at the top level of a
        module; on Flower, every site names its own.
    of : class or group, optional
        Whose rows; None is all rows.

    Returns
    -------
    Expression
        Something to add, subtract, multiply by numbers and limit with <=.
    """
    return Expression(((Term("rows", of, _callable("mean_of", function)), 1.0),))


def of_parameters(function: ParameterFunction) -> Expression:
    """Return a function of the parameters alone, which only the server computes.

    Parameters
    ----------
    function : callable
        function(parameters) -> (value, gradient). It must be at the top level of a module.

    Returns
    -------
    Expression
        Something to add, subtract, multiply by numbers and limit with <=.
    """
    return Expression(((Term("parameters", function=_callable("of_parameters", function)), 1.0),))


def _callable(name: str, function: Any) -> Any:
    if not callable(function):
        raise OptionError(f"{name} takes a function, got {function!r}")
    return function
