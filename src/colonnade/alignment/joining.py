"""Rows that several parties join by their ids, where an id may stand in several rows, or in no row of a partner.

The alignment itself (`alignment.protocol`) compares different ids and knows nothing of rows. Around it, one party may
have a say in the rows that come out: the keeper, at whose rows the model is trained. In a job this is the first label
holder, whose rows have the labels: several accounts of one customer are several rows there, and every partner repeats
what it knows of the customer. Two parties with several rows of one id would make every pair of them a row, which no
label speaks of; whoever is not the keeper brings an id once.

One message is added to those of the alignment, where the keeper's rows decide:

    tag         from -> to         content
    align rows  keeper -> others   how many ids the joined rows have, and how many rows; then, where ids repeat, how
                                   many rows each of these ids has, in the order of the common ids

With a left join all rows of the keeper stay. Those of the common ids come first, in the alignment's order, the others
behind them in the keeper's: so a partner sees how many these are, which the sizes at the start of every alignment have
told it anyway, and of none of them anything more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.alignment.protocol import align_packed, check_options
from colonnade.alignment.role import AUTO
from colonnade.data.ids import DUPLICATES, EXPAND, FIRST, REFUSE, Bytes, Packed, canonical, pack
from colonnade.data.packed_ids import all_differ, distinct, taken
from colonnade.errors import DataError, OptionError, PolicyRefused, ProtocolError
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import Value, expect_array

Rows = npt.NDArray[np.int64]

INNER, LEFT = JOINS = ("inner", "left")
_MOST = 1 << 31  # rows that may come out
_CHUNK = 1 << 17  # counts in a message


@dataclass(frozen=True)
class Joining:
    """How rows are joined: what becomes of repeated ids, which rows stay, and whose rows count."""

    duplicates: str = REFUSE
    join: str = INNER
    keeper: str = ""  # the party whose rows are all used, where ids repeat or the join is a left one

    def check(self, parties: tuple[str, ...]) -> None:
        """Refuse what is no such option, or can't be between these parties."""
        for key, value, allowed in (("duplicates", self.duplicates, DUPLICATES), ("join", self.join, JOINS)):
            if value not in allowed:
                raise OptionError(f"{key} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
        if self.join == LEFT and len(parties) > 2:
            raise OptionError(
                f"join='left' is between two parties, got {len(parties)}: with more of them a party would learn who is "
                f"common to some, which no alignment tells; join two of them, or use join='inner'"
            )

    def as_value(self) -> tuple[str, str, str]:
        """Return the options in the form in which a process gets them."""
        return self.duplicates, self.join, self.keeper

    @property
    def told(self) -> bool:
        """Whether the keeper tells the others about its rows."""
        return self.duplicates == EXPAND or self.join == LEFT


async def align_rows(
    net: Net,
    ids: Any,
    *,
    minimum: int = 1,
    max_partner_ids: int = _MOST,
    how: Joining = Joining(),
    method: str = AUTO,
    keep: str | Path | None = None,
) -> Rows:
    """Do what `alignment.protocol.align` does, where ids may repeat; the rows of a left join that are absent are -1."""
    leader = check_options(net.names, minimum, None, method, keep)
    how.check(net.names)
    packed = await net.in_thread(lambda: pack(canonical(ids, f"party {net.me!r}", repeated=True)))
    return await join_packed(net, *packed, minimum, leader, how.as_value(), max_partner_ids, method, str(keep or ""))


async def join_packed(
    net: Net,
    text: Bytes,
    ends: Rows,
    minimum: int,
    leader: str,
    options: tuple[str, str, str],
    max_partner_ids: int = _MOST,
    method: str = AUTO,
    keep: str = "",
) -> Rows:
    """Do the same for ids that `ids.pack` has packed and a joining's value, as a runtime can hand them to a process."""
    packed, how = (text, ends), Joining(*options)
    keeps = net.me == how.keeper
    if how.duplicates == FIRST or (how.duplicates == EXPAND and keeps):
        firsts, number = await net.in_thread(distinct, packed)
        different = await net.in_thread(taken, packed, firsts) if len(firsts) < len(ends) else packed
    else:
        await net.in_thread(_refuse_repeated, net.me, packed, how)
        firsts = number = np.arange(len(ends))
        different = packed
    sizes: dict[str, int] = {}
    common = await align_packed(net, *different, minimum, leader, max_partner_ids, method, keep, sizes)
    if not how.told:
        return firsts[common]
    if keeps:
        return await _tell(net, common, firsts, number, how)
    ids = sizes[how.keeper] if how.join == LEFT else len(common)
    people, counts = await _hear(net, ids, len(common), how, max_partner_ids)
    known = np.full(people, -1)
    known[: len(common)] = firsts[common]
    return np.repeat(known, counts)


async def _tell(net: Net, common: Rows, firsts: Rows, number: Rows, how: Joining) -> Rows:
    """Return the keeper's rows in the order of the joined ids, and tell the others what they need of it."""
    used = common
    if how.join == LEFT:
        used = np.concatenate([common, np.setdiff1d(np.arange(len(firsts)), common)])
    place = np.full(len(firsts), -1)
    place[used] = np.arange(len(used))
    if how.duplicates == EXPAND:
        rows = np.flatnonzero(place[number] >= 0)
        rows = rows[np.argsort(place[number[rows]], kind="stable")]
    else:
        rows = firsts[used]
    for name in (one for one in net.names if one != net.me):
        await net.send(name, "align rows", (len(used), len(rows)))
        if how.duplicates == EXPAND:
            counts = np.bincount(place[number[rows]], minlength=len(used)).astype(np.int64)
            for part in _chunks(len(counts)):
                await net.send(name, "align rows", counts[part])
    return rows


async def _hear(net: Net, ids: int, common: int, how: Joining, most: int) -> tuple[int, Rows]:
    """Return how many ids the joined rows have, which have to be so many, and how many rows each of these has."""
    keeper, step = how.keeper, "align rows"
    people, rows = _sizes(await net.recv(keeper, step), keeper)
    if people != ids or rows < people:
        brought = f" of the {ids:,} that it brings" if how.join == LEFT else ""
        raise ProtocolError(
            f"party {keeper!r} says at step {step!r} that {people:,} ids have {rows:,} rows, and {common:,} are "
            f"common{brought}"
        )
    if rows > most:
        raise PolicyRefused(
            f"party {keeper!r} brings {rows:,} rows to the alignment, party {net.me!r} takes {most:,} of a partner at "
            f"most; ask why there are so many, and if that is right raise max_partner_ids in [policy]"
        )
    if how.duplicates != EXPAND:
        if rows != people:
            raise ProtocolError(f"party {keeper!r} has ids in several rows at step {step!r}, and none may repeat")
        return people, np.ones(people, np.int64)
    counts = np.empty(people, np.int64)
    for part in _chunks(people):
        counts[part] = expect_array(await net.recv(keeper, step), (part.stop - part.start,), np.int64, keeper, step)
    # Each is looked at before they are added up: a sum of such numbers could wrap around.
    if len(counts) and (counts.min() < 1 or counts.max() > rows or counts.sum() != rows):
        raise ProtocolError(f"party {keeper!r} sent at step {step!r} numbers of rows that are not {rows:,} in all")
    return people, counts


def _sizes(value: Value, keeper: str) -> tuple[int, int]:
    if type(value) is not tuple or [*map(type, value)] != [int, int]:
        raise ProtocolError(f"party {keeper!r} did not say at step 'align rows' how many rows there are")
    people, rows = int(value[0]), int(value[1])  # type: ignore[arg-type]
    if not 0 <= people <= _MOST or not 0 <= rows <= _MOST:
        raise ProtocolError(f"party {keeper!r} did not say at step 'align rows' how many rows there are")
    return people, rows


def _refuse_repeated(me: str, packed: Packed, how: Joining) -> None:
    if all_differ(packed):
        return
    counts = np.bincount(distinct(packed)[1])
    often = counts[counts > 1]
    found = f"party {me!r}: {len(often)} ids occur more than once, in {int(often.sum())} rows"
    if how.duplicates == EXPAND:
        raise DataError(
            f"{found}; with duplicates = 'expand' only {how.keeper!r} may have several rows of an id, as every pair of "
            f"rows would be a row else; bring one row for each id"
        )
    raise DataError(
        f"{found}; bring one row for each id, or set duplicates to 'first', which takes the first row of each, or to "
        f"'expand', which keeps all rows of one party"
    )


def _chunks(count: int) -> Iterator[slice]:
    for start in range(0, count, _CHUNK):
        yield slice(start, min(start + _CHUNK, count))
