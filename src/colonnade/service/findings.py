"""What `colonnade check` looked at, one finding for each thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from colonnade.errors import ColonnadeError


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `ok` is None where its reader has to judge."""

    what: str
    ok: bool | None
    text: str


def tried(what: str, look: Callable[[], str]) -> Finding:
    """Return what looking found, or why it failed."""
    try:
        return Finding(what, True, look())
    except ColonnadeError as error:
        return Finding(what, False, str(error))
