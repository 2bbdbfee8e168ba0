"""What `colonnade check` looked at, one finding for each thing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from colonnade.errors import ColonnadeError


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `ok` is None where its reader has to judge, or it is not known yet (`later`)."""

    what: str
    ok: bool | None
    text: str
    later: bool = False

    @property
    def mark(self) -> str:
        """How it is marked in a table."""
        return "not yet" if self.later else "" if self.ok is None else "ok" if self.ok else "WRONG"


# What `colonnade check` ends with: 2 is what argparse says of a command that it does not understand.
ALL_WELL, WRONG, NOT_YET = 0, 1, 3


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 1 if anything is wrong, 3 if nothing is, but a partner is not up yet, and else 0."""
    if any(finding.ok is False for finding in findings):
        return WRONG
    return NOT_YET if any(finding.later for finding in findings) else ALL_WELL


def tried(what: str, look: Callable[[], str]) -> Finding:
    """Return what looking found, or why it failed."""
    try:
        return Finding(what, True, look())
    except ColonnadeError as error:
        return Finding(what, False, str(error))
