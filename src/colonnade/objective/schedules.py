"""Steps of an algorithm over rounds: a / t^alpha, a function of the round, or a list of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, TypeGuard

import numpy as np

from colonnade.errors import OptionError

Schedule = tuple[float, ...] | Sequence[float] | Callable[[int], float]

_FEWEST = 3  # values; two numbers are (a, alpha)


def is_power(given: Schedule) -> TypeGuard[tuple[float, float]]:
    """Whether these are (a, alpha), for a / t^alpha."""
    return isinstance(given, (tuple, list)) and len(given) == 2


def check_schedule(name: str, given: Any, most: float = math.inf) -> None:
    """Refuse anything but a pair (a, alpha) with 0 < a <= most and alpha >= 0."""
    numbers = isinstance(given, (tuple, list)) and len(given) == 2
    numbers = numbers and all(isinstance(v, Real) and not isinstance(v, bool) and math.isfinite(v) for v in given)
    if not numbers or not 0 < given[0] <= most or not given[1] >= 0:
        bound = "" if math.isinf(most) else f" <= {most:g}"
        raise OptionError(f"{name} must be (a, alpha) with 0 < a{bound} and alpha >= 0, for a / t^alpha, got {given!r}")


def check_steps(name: str, given: Any, rounds: int, most: int) -> Schedule:
    """Return a schedule whose values are all > 0 and <= 1; `most` rounds is as long as a run can be.

    Values come back as a tuple of at least three numbers, which nobody takes for (a, alpha).
    """
    if callable(given):
        for t in range(1, most + 1):
            _check_value(f"{name}({t})", _asked(name, given, t))
        asked: Schedule = given
        return asked
    if isinstance(given, np.ndarray):
        if given.ndim != 1:
            raise OptionError(f"{name} must be one row of values, got an array of shape {given.shape}")
        values: list[Any] = given.tolist()
    elif isinstance(given, (tuple, list)) and len(given) > 2:
        values = [*given]
    elif is_power(given):
        check_schedule(name, given, most=1.0)
        return (given[0], given[1])
    else:
        raise OptionError(
            f"{name} must be (a, alpha) for a / t^alpha, a function of the round t, or a value for each round, got "
            f"{given!r} ({type(given).__name__})"
        )
    if len(values) < rounds:
        raise OptionError(
            f"{name} has {len(values)} values for {rounds} rounds; give one for each round, or a tuple (a, alpha) for "
            f"a / t^alpha"
        )
    for t, value in enumerate(values, 1):
        _check_value(f"{name} of round {t}", value)
    return _filled([float(value) for value in values])


def first_rise(given: Schedule, most: int) -> int | None:
    """Return the first of `most` rounds with a longer step than the one before; None where steps never grow."""
    if is_power(given):
        return None
    values = [at_round(given, t) for t in range(1, most + 1)]
    return next((t for t in range(2, most + 1) if values[t - 1] > values[t - 2]), None)


def told_steps(given: Schedule, most: int) -> Schedule:
    """Return a schedule that can be sent: of a function its values in `most` rounds."""
    return _filled([at_round(given, t) for t in range(1, most + 1)]) if callable(given) else given


def at_round(given: Schedule, t: int) -> float:
    """Return the step of round t, counted from 1; after the last of listed values it stays what it is."""
    if callable(given):
        return float(given(t))
    return given[0] / t ** given[1] if is_power(given) else given[min(t, len(given)) - 1]


def _filled(values: list[float]) -> tuple[float, ...]:
    return tuple(values + values[-1:] * (_FEWEST - len(values)))


def _asked(name: str, given: Callable[[int], float], t: int) -> Any:
    try:
        return given(t)
    except Exception as error:
        raise OptionError(
            f"{name} must be a function of the round t = 1, 2, ...; {name}({t}) raised {error!r}"
        ) from error


def _check_value(what: str, value: Any) -> None:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real) or not 0 < float(value) <= 1:
        raise OptionError(f"{what} must be a number > 0 and <= 1, got {value!r}")
