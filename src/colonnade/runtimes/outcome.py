"""What the one who started a run is told when parties failed."""

from __future__ import annotations

from colonnade.errors import ColonnadeError, PartyFailed, RunFailed
from colonnade.runtimes.net import Outcome


def settle(outcomes: dict[str, Outcome]) -> dict[str, Outcome]:
    """Return the outcomes if all is well; else raise the first cause, with `.outcomes` to look further."""
    errors = {name: outcome.error for name, outcome in outcomes.items() if outcome.error is not None}
    if not errors:
        return outcomes
    # A party's own error says more than what the others heard of it.
    party, error = next(
        ((name, e) for name, e in errors.items() if not isinstance(e, RunFailed)),
        next(
            ((name, e) for name, e in errors.items() if getattr(e, "party", name) != name), next(iter(errors.items()))
        ),
    )
    if not isinstance(error, ColonnadeError):
        cause = error
        error = PartyFailed(f"party {party!r} failed: {type(cause).__name__}: {cause}", party)
        error.__cause__ = cause
    error.outcomes = outcomes  # type: ignore[attr-defined]
    raise error
