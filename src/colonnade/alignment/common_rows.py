"""Parties of one process are brought to the rows that they have in common, in one order."""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.alignment.protocol import align_packed, check_options
from colonnade.data.ids import pack
from colonnade.data.party import Party, check_names
from colonnade.errors import DataError
from colonnade.progress import Line, of_transfer
from colonnade.runtimes.net import Runtime, check_runtime
from colonnade.runtimes.simulation import Simulation


def align_parties(
    *parties: Party, on: Runtime | None = None, minimum: int = 1, leader: str | None = None, verbose: int = 1
) -> list[Party]:
    """Bring parties to the rows whose ids all of them have, in one order, without showing anybody the other ids.

    Parameters
    ----------
    *parties
        Two or more parties with ids.
    on
        Where the parties run, as for `fit`; by default in this process, as a simulation.
    minimum
        How many rows have to be in common.
    leader
        The name of the party that compares masked ids, by default the first one; docs/security.md says what the leader
        and the others learn.
    verbose
        0 for no progress line.

    Returns
    -------
    list of Party
        The same parties in the same order, each with the common rows.

    Raises
    ------
    TooFewInCommon
        If fewer than `minimum` rows are in common.
    """
    check_runtime(on)
    check_names(parties)
    chosen = check_options(tuple(party.name for party in parties), minimum, leader)
    for party in parties:
        if party.ids is None:
            raise DataError(f"party {party.name!r} has no ids to align by; give them as Party(name, X, ids=...)")
    programs = {party.name: (align_packed, (*pack(np.asarray(party.ids)), minimum, chosen)) for party in parties}
    progress = _Progress(parties, chosen, verbose)
    try:
        outcomes = (on or Simulation()).run(programs, progress.observe)
    finally:
        progress.close()
    return [party.take(outcomes[party.name].value) for party in parties]


class _Progress:
    """A live line that says how many ids of all have been masked."""

    def __init__(self, parties: tuple[Party, ...], leader: str, verbose: int) -> None:
        self._done: dict[str, int] = {}
        first = next(party.rows for party in parties if party.name == leader)
        self._total = first * (2 * len(parties) - 1) + sum(party.rows for party in parties if party.name != leader)
        self._line = Line("aligning", self._total, verbose)

    def observe(self, party: str, seconds: float, value: Any) -> None:
        if value[0] == "transfer":
            self._line.show(*of_transfer(*value[1:]))
            return
        self._done[party] = value[1]
        done = sum(self._done.values())
        self._line.show(done, f"{done:,} of {self._total:,} masks", ("aligning", self._total))

    def close(self) -> None:
        self._line.close()
