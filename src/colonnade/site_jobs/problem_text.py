"""Objectives and constraints as a job file writes them: the words of `colonnade.cost`, and nothing else of Python.

    objective = "cost() + 0.1 * cost('dark')"
    constraints = ["squared_norm() <= 50", "cost('dark') - cost('light') <= 0.05"]

The text is parsed and never run. Functions of one's own (`mean_of`, `of_parameters`) are code, which no job carries.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from colonnade.errors import OptionError
from colonnade.objective.expressions import Constraint, Expression, cost, squared_norm

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_LIMITS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {ast.LtE: operator.le, ast.GtE: operator.ge}
_LONGEST, _DEEPEST = 2000, 60


def objective_of(text: str) -> Expression:
    """Return the expression of a text."""
    found = _read(text)
    if not isinstance(found, Expression):
        raise OptionError(f"must be a sum of cost(), cost('a class') and squared_norm(), got {text!r}")
    return found


def constraint_of(text: str) -> Constraint:
    """Return the constraint of a text."""
    found = _read(text)
    if not isinstance(found, Constraint):
        raise OptionError(f"must be a limit such as \"cost('dark') <= 0.5\", got {text!r}")
    return found


def _read(text: str) -> Any:
    if len(text) > _LONGEST:
        raise OptionError(f"must have at most {_LONGEST} characters, got {len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise OptionError(f"must be a sum of cost() and squared_norm(), or a limit of one, got {text!r}") from None
    return _value(tree, text, 0)


def _value(node: ast.expr, text: str, depth: int) -> Any:  # noqa: PLR0911, one return for each form
    if depth > _DEEPEST:
        raise OptionError(f"is nested too deeply: {text!r}")
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, text, depth + 1)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            both = _value(left, text, depth + 1), _value(right, text, depth + 1)
            try:
                return _OPERATORS[type(sign)](*both)
            except (TypeError, ArithmeticError):
                raise OptionError(f"can't multiply or divide two expressions, or by 0: {text!r}") from None
        case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in _LIMITS and not depth:
            both = _value(left, text, 1), _value(right, text, 1)
            found = _LIMITS[type(sign)](*both)
            if not isinstance(found, Constraint):
                raise OptionError(f"limits nothing: {text!r}")
            return found
        case ast.Call(func=ast.Name(id="squared_norm"), args=[], keywords=[]):
            return squared_norm()
        case ast.Call(func=ast.Name(id="cost"), args=[], keywords=[]):
            return cost()
        case ast.Call(func=ast.Name(id="cost"), args=[ast.Constant(value=str() | int() as of)], keywords=[]):
            return cost(of)
    raise OptionError(
        f"knows cost(), cost('a class'), squared_norm(), numbers, +, -, *, /, <= and >= only, got {text!r}; functions "
        f"of one's own are for SSCAClassifier in Python"
    )
