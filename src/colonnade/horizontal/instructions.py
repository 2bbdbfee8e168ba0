"""The forms that a server's messages to a site may have. What is inside is looked at where it is used."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from colonnade.errors import ProtocolError

_MOST_LIMITS = 1 << 16  # every limit costs a pass over the rows


def instruction(message: Any) -> tuple[str, int, Any]:
    """(stage, number of the sum, content), if that is what a server's message is: a site believes no form of it."""
    if isinstance(message, tuple) and len(message) == 3:
        stage, serial, content = message
        form = _FORMS.get(stage) if isinstance(stage, str) else None
        if form is not None and type(serial) is int and form(content):
            return stage, serial, content
    raise ProtocolError("the server's instruction is none that a server of ours gives; have all use one version")


def _each(*kinds: type) -> Callable[[Any], bool]:
    return lambda content: (
        isinstance(content, tuple) and all(isinstance(one, tuple) and tuple(map(type, one)) == kinds for one in content)
    )


def _is_task(content: Any) -> bool:
    if not isinstance(content, tuple) or not content:
        return False
    kind, *rest = content
    arrays = len(rest) == 3 and type(rest[0]) is int and all(isinstance(one, np.ndarray) for one in rest[1:])
    return not rest if kind == "count" else kind in ("step", "evaluate") and arrays and rest[0] >= (kind == "step")


# What the content of each stage must be; arrays are looked at more closely where their length is known.
_FORMS: dict[str, Callable[[Any], bool]] = {
    "task": _is_task,
    "keys": _each(int, bytes, bytes, bytes, bytes),
    "letters": _each(int, bytes),
    "survivors": lambda content: isinstance(content, tuple) and all(type(one) is int for one in content),
    "signatures": _each(int, bytes),
    "end": lambda content: isinstance(content, np.ndarray),
}


def is_job(job: Any) -> bool:
    """Whether it is (number, names, model, algorithm, limits, l2, threshold); two of them have readers of their own."""
    if not isinstance(job, tuple) or len(job) != 7:
        return False
    number, names, _, _, functions, l2, threshold = job
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        return False
    sizes = type(number) is int and 0 <= number < len(names) and type(functions) is int and type(threshold) is int
    return sizes and 1 <= functions <= _MOST_LIMITS and threshold >= 0 and type(l2) is float and 0 <= l2 < math.inf
