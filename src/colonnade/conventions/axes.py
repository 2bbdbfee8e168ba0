"""Round numbers for the axes of charts, and how they are written."""

from __future__ import annotations

import math


def nice(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers between two numbers, at most so many of them where that can be."""
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low] if math.isfinite(low) else []
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * one for one in (1, 2, 2.5, 5, 10, 20) if span / (power * one) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def short_number(value: float) -> str:
    """Write a number for an axis: 12000 is 12k, 0.25 stays as it is."""
    size = abs(value)
    for least, unit, digits in ((1e9, "G", 1e9), (1e6, "M", 1e6), (1e4, "k", 1e3)):
        if size >= least:
            return f"{value / digits:.3g}{unit}".replace("-", "−")
    if size >= 1e3:  # which three digits would write as 1e+03
        return f"{value:.0f}".replace("-", "−")
    return f"{value:.3g}".replace("-", "−") if size >= 1e-4 or not size else f"{value:.0e}".replace("-", "−")
