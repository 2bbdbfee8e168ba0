"""Parties of one process are brought to the rows that they have in common, in one order."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from colonnade.alignment.joining import INNER, LEFT, Joining, join_packed
from colonnade.alignment.protocol import check_options
from colonnade.alignment.role import AUTO, MOST
from colonnade.data.ids import REFUSE, pack
from colonnade.data.party import Party
from colonnade.data.together import check_names
from colonnade.errors import DataError
from colonnade.progress import Line, of_transfer
from colonnade.runtimes.net import Runtime, check_runtime
from colonnade.runtimes.simulation import Simulation


def align_parties(
    *parties: Party,
    on: Runtime | None = None,
    minimum: int = 1,
    leader: str | None = None,
    duplicates: str = REFUSE,
    join: str = INNER,
    verbose: int = 1,
    method: str = AUTO,
    keep: str | Path | None = None,
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
        and the others learn. With "served" it is the one with fewer ids.
    duplicates
        What becomes of ids that a party has in several rows: "refuse" is an error, "first" takes the first row of each.
        With "expand" all rows of one party stay, as several accounts of a customer do, and the others repeat theirs,
        so that they learn how many rows each common id has there. That party is the first one with labels, or without
        labels the first one; the others bring an id once.
    join
        "inner" for the rows of ids that all have. With "left" all rows of that same party stay, and in those that the
        other one does not have, what it brings is missing: NaN, or rows of zeros where its columns are sparse. Trees
        take that as it is, other models where the party says `prepare=` how to fill it. The other party then has no
        `ids`, as it does not learn these. Only between two parties.
    verbose
        0 for no progress line.
    method
        "oblivious-transfer" (two parties), "diffie-hellman", "served" (two parties), or "auto": the first one for two
        parties with some thousand ids or more. With "served" the party with more ids makes a tag of each, once, and
        later runs cost as much as the other party's ids alone; "auto" takes it from then on, where the one has 100
        times as many ids as the other. The result is the same.
    keep
        A folder for what "served" keeps, in which each party has one by its name. Whoever asks again learns whether the
        other's ids are still the same.

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
    chosen = check_options(tuple(party.name for party in parties), minimum, leader, method, keep)
    how = Joining(duplicates, join, next((party.name for party in parties if party.active), parties[0].name))
    how.check(tuple(party.name for party in parties))
    for party in parties:
        if party.ids is None:
            raise DataError(f"party {party.name!r} has no ids to align by; give them as Party(name, X, ids=...)")
    options = (minimum, chosen, how.as_value(), MOST, method)
    programs = {
        party.name: (join_packed, (*pack(np.asarray(party.ids)), *options, folder_of(keep, party.name)))
        for party in parties
    }
    progress = _Progress(len(parties), verbose)
    try:
        outcomes = (on or Simulation()).run(programs, progress.observe)
    finally:
        progress.close()
    absent = {party.name for party in parties if join == LEFT and party.name != how.keeper}
    return [
        (party.take_or_missing if party.name in absent else party.take)(outcomes[party.name].value) for party in parties
    ]


def folder_of(keep: str | Path | None, party: str) -> str:
    """Return where a party keeps what is for later runs; the names of two parties may differ in anything."""
    return "" if keep is None else str(Path(keep).absolute() / quote(party, safe=" ").replace(".", "%2E"))


class _Progress:
    """A live line that says how much of the work of all parties is done, once each has said how much there is."""

    def __init__(self, parties: int, verbose: int) -> None:
        self._parties = parties
        self._told: dict[str, tuple[int, int]] = {}
        self._line = Line("aligning", None, verbose)

    def observe(self, party: str, seconds: float, value: Any) -> None:
        if value[0] == "transfer":
            self._line.show(*of_transfer(*value[1:]))
            return
        _, *told = value
        self._told[party] = (told[0], told[1])
        if len(self._told) == self._parties:
            done, total = (sum(each) for each in zip(*self._told.values(), strict=True))
            self._line.show(done, f"{done:,} of {total:,} masks", ("aligning", total))

    def close(self) -> None:
        self._line.close()
