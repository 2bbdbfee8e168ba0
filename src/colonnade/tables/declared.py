"""What the `[prepare]` section of a party's file says, as steps; mistakes are told before any row is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from colonnade.settings.settings import Settings, nearest, shown
from colonnade.tables.category_steps import Categories, LastStep, OneHot
from colonnade.tables.dates import Date, date_steps
from colonnade.tables.steps import STEPS, Clip, Impute, Log1p, NumberStep, Scale, Standardise
from colonnade.tables.woe import Woe

Step: TypeAlias = NumberStep | LastStep | Date
_NAMES = (*STEPS, Date.name, "as-is")
_PLAIN: dict[str, Callable[[], Step]] = {
    "impute": Impute,
    "standardise": Standardise,
    "scale": Scale,
    "log1p": Log1p,
    "one-hot": OneHot,
    "categories": Categories,
    "woe": Woe,
    "date": Date,
}


def declared_steps(settings: Settings) -> dict[str, tuple[Step, ...]]:
    """Return the steps that the section names, checked without any data, so that mistakes show before rows are read."""
    return {name: _steps(settings, name) for name in settings if name in settings.given}


def _steps(settings: Settings, name: str) -> tuple[Step, ...]:
    """Return the steps of one key."""
    value = settings[name]
    listed = isinstance(value, list)
    steps: list[Step | str] = []
    for number, one in enumerate(value if listed else [value]):
        place = (name, number) if listed else (name,)
        made = _step(settings, place, one)
        if number and isinstance(made, tuple):
            raise settings.error(place, "a date comes before all other steps; write it first")
        if isinstance(made, tuple):
            steps += made
            continue
        steps.append(made)
        if number and any(isinstance(step, (OneHot, Categories, Woe, str)) for step in steps[:-1]):
            words = "nothing can follow one-hot, categories or woe, and as-is stands alone; remove one of the steps"
            raise settings.error(place, words)
        if number and steps[-1] == "as-is":
            raise settings.error(place, "as-is stands alone; remove it or the other steps")
    if not steps:
        raise settings.error(name, 'must be a list of steps, got []; write "as-is" for a column that is not changed')
    return tuple(step for step in steps if not isinstance(step, str))


def _step(settings: Settings, place: tuple[str | int, ...], value: Any) -> Step | tuple[Date, ...] | str:
    if isinstance(value, str):
        if value == "as-is":
            return value
        if value == Date.name:
            return (Date(),)
        if value in _PLAIN:
            return _PLAIN[value]()
        if value == "clip":
            raise settings.error(place, "clip needs its bounds; write { clip = [0, 100] }")
    if isinstance(value, dict) and len(value) == 1:
        [(step, options)] = value.items()
        if step in _MAKERS:
            try:
                return _MAKERS[step](options)
            except ValueError as error:
                raise settings.error((*place, step), str(error)) from None
        if step in _NAMES:
            raise settings.error((*place, step), f'{step} takes no options; write "{step}"')
        value = step
    guess = nearest(value, list(_NAMES)) if isinstance(value, str) else ""
    raise settings.error(place, f"must be one of the steps {', '.join(_NAMES)}, got {shown(value)}{guess}")


def _impute(options: Any) -> Impute:
    given = options if isinstance(options, dict) else {"with": options}
    how, indicator = given.get("with", "median"), given.get("indicator", False)
    if set(given) - {"with", "indicator"} or not isinstance(indicator, bool):
        raise ValueError('must be like { impute = { with = "median", indicator = true } }')
    if how not in ("median", "mean") and not _is_number(how):
        raise ValueError('must be "median", "mean" or a number')
    return Impute(how if isinstance(how, str) else float(how), indicator)


def _clip(options: Any) -> Clip:
    if isinstance(options, dict):
        parts: Any = options.get("quantiles")
        fits = set(options) == {"quantiles"} and isinstance(parts, list) and len(parts) == 2
        if not fits or not all(_is_number(part) for part in parts) or not 0 <= parts[0] < parts[1] <= 1:
            raise ValueError("must be like { clip = { quantiles = [0.01, 0.99] } }, with two numbers from 0 to 1")
        return Clip(-math.inf, math.inf, (float(parts[0]), float(parts[1])))
    if not isinstance(options, list) or len(options) != 2 or not all(_is_number(bound, True) for bound in options):
        raise ValueError("must be two numbers, like { clip = [0, 100] }")
    low, high = map(float, options)
    if low > high:
        raise ValueError(f"must have the lower bound first, got {low:g} and {high:g}")
    return Clip(low, high)


def _one_hot(options: Any) -> OneHot:
    if not isinstance(options, dict) or set(options) - {"most", "least", "reference"}:
        raise ValueError('must be like { one-hot = { most = 50, least = 10, reference = "Berlin" } }')
    for key in ("most", "least"):
        value = options.get(key, 1)
        if type(value) is not int or not 1 <= value <= 10**6:
            raise ValueError("must have whole numbers from 1 to 1000000 as most and least")
    reference = options.get("reference")
    if reference is not None and not isinstance(reference, (str, bool)) and not _is_number(reference):
        raise ValueError("must have a category as reference, true for the most frequent one, or false for none")
    return OneHot(**options)


def _woe(options: Any) -> Woe:
    if not isinstance(options, dict) or set(options) != {"categories"} or not isinstance(options["categories"], bool):
        raise ValueError("must be like { woe = { categories = true } }, for numbers that only stand for something")
    return Woe(nominal=options["categories"])


_MAKERS: dict[str, Callable[[Any], NumberStep | LastStep | tuple[Date, ...]]] = {
    "impute": _impute, "clip": _clip, "one-hot": _one_hot, "woe": _woe, "date": date_steps,
}  # fmt: skip


def _is_number(value: Any, infinite: bool = False) -> bool:
    if isinstance(value, float):
        return math.isfinite(value) or (infinite and math.isinf(value))
    return type(value) is int and abs(value) < 2**1023  # True is no number, and TOML has longer ones than a float
