"""Sizes of memory as people write them: "500MB", "2GB", "1.5 GiB"."""

from __future__ import annotations

import re

_SIZE = re.compile(r"\s*([0-9]+(?:[.][0-9]+)?)\s*([KMGT]i?)?B\s*", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def byte_size(text: str) -> int:
    """Return how many bytes a size stands for; ValueError where it is none."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f'must be a number and a unit, like "500MB" or "2GB", got {text!r}')
    unit = (match[2] or "").upper()
    base = 1024 if unit.endswith("I") else 1000
    found = int(float(match[1]) * base ** _POWERS[unit[:1]])
    if found < 1:
        raise ValueError(f"must be above 0, got {text!r}")
    return found


def size_trouble(text: str) -> str | None:
    """Return what is wrong with a size, as the end of a sentence, or None."""
    try:
        byte_size(text)
    except ValueError as error:
        return str(error)
    return None


def in_words(size: float) -> str:
    """Return a size as people read it."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
