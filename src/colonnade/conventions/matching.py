"""Whether parties and columns are those of the training."""

from __future__ import annotations

from typing import Any

from colonnade.data.party import Party
from colonnade.errors import DataError


def in_order(parties: Any, names: tuple[str, ...], what: str) -> list[Party]:
    """Return the parties in the order of the model; each of them has to be given exactly once."""
    if not isinstance(parties, (list, tuple)):
        raise DataError(f"{what} needs a list of parties, got {type(parties).__name__}")
    given = {party.name: party for party in parties if isinstance(party, Party)}
    if len(given) != len(parties) or set(given) != set(names):
        got = [party.name if isinstance(party, Party) else type(party).__name__ for party in parties]
        raise DataError(f"{what} needs each of the parties {list(names)} once, got {got}")
    return [given[name] for name in names]


def check_columns(names: tuple[str, ...], party: Party) -> None:
    """Refuse columns other than those of the training; names are compared where both sides brought them."""
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
