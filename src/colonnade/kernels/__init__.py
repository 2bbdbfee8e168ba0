"""Every function that is compiled, each with a slow twin in the tests that it must equal."""

from __future__ import annotations

import os

from colonnade.errors import OptionError


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """How many threads a pass over rows has: one for each core, or COLONNADE_THREADS of them if that is fewer."""
    told = os.environ.get("COLONNADE_THREADS", "").strip()
    if not told:
        return cores()
    if not told.isdecimal() or int(told) < 1:
        raise OptionError(f"COLONNADE_THREADS must be a whole number of threads, 1 or more, got {told!r}; leave it out")
    return min(int(told), cores())
