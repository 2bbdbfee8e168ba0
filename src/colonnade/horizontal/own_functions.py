"""Functions of a user's own in a problem: how they are named to other processes, and what they must return.

The names are arguments of the programs, given by whoever starts them. A server tells a site only the number of a
function, which the site looks up among those that it was given itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.algorithms.ssca import Average
from colonnade.errors import OptionError
from colonnade.horizontal.torch_whole import function_name
from colonnade.objective.expressions import ParameterFunction, RowFunction

Array = npt.NDArray[Any]


def function_names(functions: tuple[Any, ...]) -> tuple[str, ...]:
    """Return 'package.module:function' of each; refuse one that other processes could not import."""
    names = []
    for function in functions:
        name = function_name(function)
        if name is None:
            raise OptionError(
                f"a function of an objective or constraint must be at the top level of a module you can import, got "
                f"{function!r}; move it there"
            )
        names.append(name)
    return tuple(names)


def checked(function: RowFunction) -> RowFunction:
    """Return the function of rows, which refuses anything but (a value of each row, a slope for each score)."""

    def careful(scores: Array, y: Array) -> tuple[Array, Array]:
        called = getattr(function, "__name__", "the function")
        try:
            found = function(np.asarray(scores, dtype=np.float64), y)
        except Exception as error:  # whatever a function of the user's raises
            raise OptionError(f"{called}(scores, y) raised {type(error).__name__}: {error}") from error
        if not isinstance(found, tuple) or len(found) != 2:
            raise OptionError(f"{called}(scores, y) must return (values, slopes), it returned {type(found).__name__}")
        try:
            values, slopes = (np.asarray(part, dtype=np.float64) for part in found)
        except (TypeError, ValueError):
            raise OptionError(f"{called}(scores, y) must return numbers, it returned {found!r:.60}") from None
        if values.shape != (len(y),) or slopes.shape != scores.shape:
            raise OptionError(
                f"{called}(scores, y) must return a value for each of {len(y)} rows and slopes of the shape "
                f"{scores.shape}, it returned {values.shape} and {slopes.shape}"
            )
        for what, part in (("value", values), ("slope", slopes)):
            if not np.isfinite(part).all() and np.isfinite(scores).all():
                row = int(np.argwhere(~np.isfinite(part))[0][0])
                raise OptionError(
                    f"{called}(scores, y) must return finite numbers, its {what} of the scores {scores[row].tolist()} "
                    f"is {part[row].tolist()}"
                )
        return values, slopes

    return careful


def average_of(function: ParameterFunction, w: Array) -> Average:
    """Return the value and gradient of a function of the parameters; refuse what is not of their shape or finite."""
    called = getattr(function, "__name__", "the function")
    try:
        found = function(w.copy())
    except Exception as error:  # whatever a function of the user's raises
        raise OptionError(f"{called}(w) raised {type(error).__name__}: {error}") from error
    if not isinstance(found, tuple) or len(found) != 2:
        raise OptionError(f"{called}(w) must return (value, gradient), it returned {type(found).__name__}")
    value, gradient = float(found[0]), np.asarray(found[1], dtype=np.float64)
    if gradient.shape != w.shape or not np.isfinite(gradient).all() or not np.isfinite(value):
        raise OptionError(
            f"{called}(w) must return a number and a gradient of {len(w)} numbers, all finite, it returned {value!r} "
            f"and an array of the shape {gradient.shape}"
        )
    return Average(value, gradient)
