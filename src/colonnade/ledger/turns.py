"""Turns of processes that write to one file: locks of the system, which end with the process that has them.

Where the system has no such locks (Windows), whoever starts a party twice is not told.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from colonnade.errors import LedgerError

_PATIENCE = 30.0  # seconds that a turn may take: it is a line or a seal, unless its process hangs
_PAUSE = 0.002


def locked(handle: int) -> bool:
    """Lock an open file for this process alone; return whether that worked."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def take_turn(handle: int, path: Path) -> None:
    """Lock the file, as two who write at once would break the chain for good; wait for one who has the turn."""
    until = time.monotonic() + _PATIENCE
    while not locked(handle):
        if time.monotonic() > until:
            raise LedgerError(
                f"another process of this party has held the ledger {path.name!r} for {_PATIENCE:g} seconds; stop it, "
                f"or wait until it goes on"
            )
        time.sleep(_PAUSE)


def give_turn(handle: int) -> None:
    """Let the next one write."""
    try:
        import fcntl
    except ImportError:
        return
    fcntl.flock(handle, fcntl.LOCK_UN)


def write_whole(handle: int, content: bytes) -> None:
    """Hand all of it over to the system, which may take it in several pieces."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]
