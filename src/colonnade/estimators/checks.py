"""What is asked of the parties of a fitted model, and of the runtime that it shall run on."""

from __future__ import annotations

from typing import Any

from colonnade.data.party import Party
from colonnade.errors import DataError


def in_order(parties: Any, names: tuple[str, ...], what: str) -> list[Party]:
    """The parties in the order of the model; each exactly once."""
    if not isinstance(parties, (list, tuple)):
        raise DataError(f"{what} needs a list of parties, got {type(parties).__name__}")
    given = {party.name: party for party in parties if isinstance(party, Party)}
    if len(given) != len(parties) or set(given) != set(names):
        got = [party.name if isinstance(party, Party) else type(party).__name__ for party in parties]
        raise DataError(f"{what} needs each of the parties {list(names)} once, got {got}")
    return [given[name] for name in names]


def check_columns(names: tuple[str, ...], party: Party) -> None:
    """The same columns as in training, in the same order; names are compared where both sides brought them."""
    if party.features != len(names):
        raise DataError(
            f"party {party.name!r} has {party.features} columns here and {len(names)} in training; give the same ones"
        )
    made_up = all(name == f"x{j}" for j, name in enumerate(names))
    if party.named and not made_up and party.columns != names:
        j = next(j for j, name in enumerate(names) if party.columns[j] != name)
        raise DataError(
            f"party {party.name!r}: column {j} is {party.columns[j]!r} here and {names[j]!r} in training; give the "
            f"same columns in the same order"
        )
