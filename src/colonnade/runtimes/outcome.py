"""What the one who started a run is told when parties failed."""

from __future__ import annotations

import traceback
from collections.abc import Collection

from colonnade.errors import PartyFailed, RunFailed
from colonnade.runtimes.net import Outcome


def failed(party: str, step: str, kind: str, text: str, trace: str) -> PartyFailed:
    """An error in a party's program that is not one of ours, as the starter sees it: with `.trace`."""
    error = PartyFailed(f"party {party!r} failed at step {step!r}: {kind}: {text}", party, step)
    error.trace = trace  # type: ignore[attr-defined]
    return error


def foreign(party: str, step: str, cause: BaseException) -> PartyFailed:
    """The same for an error that was raised in this process."""
    error = failed(party, step, type(cause).__name__, str(cause), "".join(traceback.format_exception(cause)))
    error.__cause__ = cause
    return error


def died(party: str, error: BaseException) -> bool:
    """Whether this is a party's own death, and no error that it raised or heard of."""
    return isinstance(error, PartyFailed) and error.party == party and not hasattr(error, "trace")


def settle(outcomes: dict[str, Outcome], spare: Collection[str] = ()) -> dict[str, Outcome]:
    """Return the outcomes if all is well; else raise the first cause, with `.outcomes` to look further.

    spare: parties that may have died; an error that one of them raised itself is an error all the same.
    """
    errors = {
        name: outcome.error
        for name, outcome in outcomes.items()
        if outcome.error is not None and not (name in spare and died(name, outcome.error))
    }
    if not errors:
        return outcomes
    # A party's own error says more than what the others found, and that more than what it heard about itself.
    own = [name for name, error in errors.items() if not isinstance(error, RunFailed) or hasattr(error, "trace")]
    found = [name for name, error in errors.items() if isinstance(error, RunFailed) and error.party != name]
    first = errors[min(own or found or errors, key=lambda name: outcomes[name].seconds)]
    first.outcomes = outcomes  # type: ignore[attr-defined]
    raise first
