"""Alignment finds the rows that all parties have in common, without showing anybody the other rows.

It is private set intersection, and has three forms. One party, the leader, compares; the others are followers. Common
rows come in the order of their ids' hashes, whatever the form. This order is the same at every party and in every run,
and tells nothing that the common ids do not. docs/security.md says what each party learns.

**diffie-hellman** (`powers`), for any number of parties and for small sets (Meadows 1986; Huberman, Franklin & Hogg
1999; De Cristofaro & Tsudik 2010 for why it is safe), in its form as an oblivious function (Jarecki & Liu 2010), for
many parties (Kolesnikov, Matania, Pinkas, Rosulek & Trieu, CCS 2017). H(x) is the point of an id x (`crypto.group`),
written as a base of powers. The leader has a secret r; every follower j has a secret s_j. Both are made for this run.
These are all messages that leave a party:

    tag            from -> to           content
    align size     leader -> followers  how many ids it has, how many have to be common, whom it takes for the leader,
                   and back             how many ids it accepts from a partner, and which form it wants
    align blinded  leader -> followers  1. H(x)^r for each of its ids x, in an order that is drawn for this run: points
                                        that look random without r
    align answer   follower -> leader   2. each of these points to the power s_j. The leader takes r away again and has
                                        H(x)^(s_j) of its own ids alone, as it does not know s_j
    align key      between followers    a public key, for the secret that every two followers share
    align table    follower -> leader   first an empty message per 2048 masked ids, as a sign of life; then
                                        3. for each of its ids y a share z_j(y), in an oblivious store in which whoever
                                        knows H(y)^(s_j) finds it, and anybody else finds noise. Between two parties
                                        there are no shares: just hashes of H(y)^(s_j), sorted, as many as it has ids
    align common   leader -> followers  first empty messages, as signs of life; then how many ids are common and how
                                        many have to be; then, if there are enough, 4. the ids x whose shares, one out
                                        of each table, add up to 0: as hashes of H(x)^(s_j), which mean something to
                                        party j alone, and only if it has x
    align agreed   all -> all           5. a digest of what each party now believes to be common

Every two followers share a key, and both add what it makes of an id to their shares of that id, so that all shares of
an id add up to 0. If one follower does not have the id, the others' shares are as good as random: the leader learns who
is common to *all*, never to some. The order of step 1 is drawn because a follower could raise points to several powers,
and would see by which one a common id was raised, and so where among the leader's rows it stood. The leader multiplies
once per id and party, a follower once per id of its own and of the leader's; ids go in chunks, which flow through all
parties at once and through all cores of each.

**oblivious-transfer** (`transfer`), for two parties and large sets: symmetric cryptography but for the first 624
transfers (Pinkas, Rosulek, Trieu & Yanai, EUROCRYPT 2020). The follower has a secret s. The leader's ids are the keys
of an oblivious store, with a hash H1(x) of 128 bits as the value of each, and each row of the store is the choice of
one transfer (`crypto.transfers`). So for each of its own ids x, and for no other, the leader knows a row t(x), and the
follower can work it out for every id: t(x) = q(x) + C(H1(x)) s. What a hash makes of it is the value of x.

    align size     as above
    align offer    follower -> leader   1. s, hidden, for the first transfers (`crypto.base_transfers`)
    align reply    leader -> follower   a point for each of them, from which the follower makes one of two keys
    align columns  leader -> follower   first empty messages, as signs of life; then 2. for each bin of about 65,536 ids
                                        the store, masked by key streams of which the follower lacks one
    align challenge follower -> leader  first empty messages, as signs of life; then for each bin 8 random bytes
    align check    leader -> follower   sums over the columns of a bin, which only columns of a store satisfy
    align values   follower -> leader   first empty messages, as signs of life, as many in each bin; then, after all
                                        checks, 3. 96 bits
                                        of the value of each of its ids, in an order of their own; then empty messages
                                        again, one for each bin of which it has heard what is common
    align common   leader -> follower   as above; and 4. bin by bin another 128 bits of the values that are common,
                                        in an order of their own
    align agreed   as above

It takes a hundredth of the time per id, and as many bytes. The order of steps 2 and 3 is what makes it safe: no value
leaves the follower before all columns have passed their checks.

**served** (`served`), for two parties of which one has many ids, the server, and the other asks about few, again and
again (Freedman, Ishai, Pinkas & Reingold, TCC 2005, for sets by an oblivious function; Jarecki & Liu 2010; Kiss, Liu,
Schneider, Asokan & Pinkas, PoPETs 2017, for a server that does its work once). The server has a key k, which lasts for
as long as its ids stay as they are. The tag of an id x is 80 bits of a hash of x and H(x)^k, its proof another 128.

    align size     as above; the last thing it says is whether its tags are made
    align blinded  asker -> server      1. H(x)^r for each of its ids, with a secret r and an order of this run
    align answer   server -> asker      2. the same to the power k. The asker takes r away, and can make tags and proofs
                                        of its own ids alone
    align set      server -> asker      first empty messages, as signs of life, while it makes the tags of its ids; then
                                        their digest
    align have     asker -> server      whether it has kept the tags of this digest
    align tags     server -> asker      3. if not: all tags, in the order of numbers
    align common   asker -> server      first empty messages, as signs of life; how many ids are common, and how many
                                        have to be; then, if there are enough, 4. where their tags stand, and the proofs
    align agreed   as above

The first run costs the server a multiplication per id. A later one costs three for each id that is asked about, and as
many bytes as these take.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from colonnade.alignment.kept_tags import ServedIds, on_disk
from colonnade.alignment.powers import PowersFollower, PowersLeader
from colonnade.alignment.role import AUTO, METHODS, MOST, POWERS, SERVED, TRANSFER, Met, Role, Rows
from colonnade.alignment.served import AskingParty, ServingParty
from colonnade.alignment.transfer import TransferFollower, TransferLeader, room_of
from colonnade.data.ids import Bytes, canonical, pack
from colonnade.errors import DataError, OptionError, PolicyRefused
from colonnade.runtimes.net import Net

_FEW = 4096  # ids of both parties: below, the first transfers take as long as multiplying all ids
TIMES = 100  # a server with tags at hand is quicker than transfers if it has so many times the ids that are asked about


async def align(
    net: Net,
    ids: Any,
    *,
    minimum: int = 1,
    leader: str | None = None,
    max_partner_ids: int = MOST,
    method: str = AUTO,
    keep: str | Path | None = None,
) -> Rows:
    """Find this party's rows whose ids all parties have.

    Parameters
    ----------
    net
        The party's view of the federation.
    ids
        One id per row, as for a `Party`.
    minimum
        How many ids have to be common; the largest number that a party asks for counts.
    leader
        The party that compares, the same at all parties; by default the first of them. In the form "served" it is the
        one with fewer ids, whatever is given here.
    max_partner_ids
        How many ids another party may bring. A party that brings all ids that there could be learns which of them the
        others have.
    method
        "oblivious-transfer" (two parties), "diffie-hellman", "served" (two parties, with `keep`), or "auto", the same
        at all parties: the first one for two parties with some thousand ids or more, the third one where the tags of
        the party with more ids are made already, and it has 100 times as many.
    keep
        A folder of this party's own for its key and for tags, in the form "served".

    Returns
    -------
    array of int64
        The numbers of these rows, in an order that is the same at all parties.

    Raises
    ------
    TooFewInCommon
        At all parties, if fewer ids than `minimum` are common.
    """
    chosen = check_options(net.names, minimum, leader, method, keep)
    packed = await net.in_thread(lambda: pack(canonical(ids, f"party {net.me!r}")))
    return await align_packed(net, *packed, minimum, chosen, max_partner_ids, method, str(keep or ""))


def check_options(
    names: tuple[str, ...], minimum: int, leader: str | None, method: str = AUTO, keep: str | Path | None = None
) -> str:
    """Return the leader's name, if parties can be aligned with these options."""
    if len(names) < 2:
        raise OptionError(f"alignment needs two or more parties, got {len(names)}")
    if type(minimum) is not int or minimum < 1:
        raise OptionError(f"minimum must be a whole number >= 1, got {minimum!r}")
    if leader is not None and leader not in names:
        raise OptionError(f"leader must be one of the parties {', '.join(map(repr, names))}, got {leader!r}")
    if method not in METHODS:
        raise OptionError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}")
    if method in (TRANSFER, SERVED) and len(names) > 2:
        raise OptionError(
            f"method {method!r} aligns two parties, and there are {len(names)}; leave method out, or give {POWERS!r}"
        )
    if keep is not None and (not isinstance(keep, (str, Path)) or not str(keep)):
        raise OptionError(f"keep must be a folder, got {keep!r}")
    if method == SERVED and keep is None:
        raise OptionError(f"method {SERVED!r} keeps a key and tags for later runs; name a folder for them in keep")
    return leader or names[0]


async def align_packed(
    net: Net,
    text: Bytes,
    ends: Rows,
    minimum: int,
    leader: str,
    max_partner_ids: int = MOST,
    method: str = AUTO,
    keep: str = "",
    sizes: dict[str, int] | None = None,
) -> Rows:
    """Do what `align` does for ids that `ids.pack` has packed, as a runtime can hand them to a process.

    `sizes` is filled with how many ids the others say that they bring, as far as this party hears it.
    """
    if not len(ends):
        raise DataError(f"party {net.me!r}: no ids were given; alignment needs at least one")
    packed, leads = (text, ends), net.me == leader
    role, folder = Role(net, packed, minimum, leader, max_partner_ids, method), Path(keep)
    if keep and method in (AUTO, SERVED) and len(net.names) == 2:
        role.ready = await on_disk(net, folder, ServedIds.ready, folder, packed)
    met = await role.meet()
    if sizes is not None:
        sizes |= {name: other.rows for name, other in met.items()}
    chosen = chosen_method(role, met)
    if chosen == SERVED:
        (other,) = met
        if asks(role, met[other]):
            return await AskingParty(net, packed, minimum, max_partner_ids, folder if keep else None).run(met)
        return await ServingParty(net, packed, minimum, other, max_partner_ids, folder).run(met)
    if chosen == TRANSFER:
        form = TransferLeader if leads else TransferFollower
        return await form(net, packed, minimum, leader).run(met)
    kind = PowersLeader if leads else PowersFollower
    return await kind(net, packed, minimum, leader).run(met)


def asks(role: Role, other: Met) -> bool:
    """Return whether a party is the one that asks, in the form "served"."""
    return role.rows < other.rows or (role.rows == other.rows and role.net.me == role.leader)


def chosen_method(role: Role, met: dict[str, Met]) -> str:
    """Return the form of this alignment, about which both parties come to the same result."""
    if role.method in (POWERS, SERVED) or len(role.net.names) > 2:
        return SERVED if role.method == SERVED else POWERS
    ((name, other),) = met.items()
    if role.method == AUTO:
        few, many, ready = (
            (role.rows, other.rows, other.ready) if asks(role, other) else (other.rows, role.rows, role.ready)
        )
        if ready and many >= TIMES * few:
            return SERVED
    size, most = (role.rows, other.most) if role.net.me == role.leader else (other.rows, role.most)
    room = room_of(size)
    if role.method == AUTO:
        return TRANSFER if role.rows + other.rows >= _FEW and room <= most else POWERS
    if room > most:
        follower = name if role.net.me == role.leader else role.net.me
        raise PolicyRefused(
            f"the tables of party {role.leader!r}, which brings {size:,} ids to the alignment, have room for {room:,} "
            f"if it cheats, and party {follower!r} takes {most:,} of a partner at most; leave method out, or raise "
            f"max_partner_ids in [policy] of {follower!r}"
        )
    return TRANSFER
