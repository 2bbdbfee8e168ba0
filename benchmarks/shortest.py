"""How a short action is timed."""

from __future__ import annotations

import time
from collections.abc import Callable

quick = False  # set by `run.py --quick`: once will do to see that it works


def best(action: Callable[[], object], times: int) -> float:
    """The shortest of several runs: on a busy machine the least disturbed one."""
    seconds = []
    for _ in range(1 if quick else times):
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    return min(seconds)
