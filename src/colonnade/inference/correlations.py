"""Correlations of all parties' columns come to the first label holder, without any of the columns.

Every party has white, rotated columns U_k (`blocks.information`). Of every two parties, the one that comes first in the
order has a key pair of its own:

    party i                                party j                             first label holder
    [[U_i]]       -- sealed columns ->
                                           [[W]] = U_j^T [[U_i]]
                  <- sealed products --    [[W + rho]], rho uniform
    decrypts: W + rho                                         -- product shares ->
                                           rho                -- product shares ->   W

Party i sees uniform numbers, whatever it has sent and whatever its key is (`crypto.lattice_products`), and party j sees
ciphertexts under i's key; nobody but the first label holder learns W. No coalition without i can open what i has
encrypted, which is why each party has a key of its own instead of one key of the first label holder for all. Rows go in
portions, and all parties wait for each other after every portion, so no wait is longer than the work on one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from colonnade.blocks import FloatArray
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.blocks.whole_columns import WholeColumns, whole_numbers_of
from colonnade.crypto.lattice_keys import LatticePublicKey, SecretKey
from colonnade.crypto.lattice_products import (
    LIMBS,
    ProductLayout,
    ProductSums,
    Shares,
    new_secret_key,
    private_keystream,
    unmasked,
)
from colonnade.engine.encrypted import hear_bytes, hear_key, sent_by
from colonnade.errors import ProtocolError
from colonnade.runtimes.net import OWN, TOTAL, Net
from colonnade.runtimes.wire import Value, expect_array

# The numbers of white columns are at most 1. Encrypted, they have FRACTION_BITS after the point and one bit before it;
# where they multiply ciphertexts, they have VALUE_BITS altogether. Correlations are then known to about 1e-10.
FRACTION_BITS, VALUE_BITS = 40, 31
# No correlation exceeds 1, and rounding adds little to it.
_LARGEST = 2.0 ** (FRACTION_BITS + VALUE_BITS + 1)


class Told(Protocol):
    """What has to be known of the run that correlations are part of."""

    net: Net

    @property
    def others(self) -> Sequence[str]:
        """All parties but this one."""
        ...

    async def tell_each(self, tag: str, value: Value) -> None:
        """Send the same to everybody else."""
        ...


class Correlations:
    """One party's side of the products between all parties' columns.

    Parameters
    ----------
    session
        The run that this is part of.
    order
        All parties, the first label holder first; each encrypts for those after it.
    sizes
        How many columns each party has.
    rows
        How many rows the columns have.
    """

    def __init__(self, session: Told, order: Sequence[str], sizes: Mapping[str, int], rows: int) -> None:
        self._session, self._net, self._order, self._sizes = session, session.net, tuple(order), sizes
        self._own: SecretKey | None = None
        self._keys: dict[str, LatticePublicKey] = {}
        self._randomness = private_keystream()
        at = self._order.index(self._net.me)
        self._before, self._after = self._order[:at], self._order[at + 1 :]
        self._layouts = {
            name: ProductLayout.of(rows, sizes[name], tuple(sorted({sizes[one] for one in self._order[k + 1 :]})))
            for k, name in enumerate(self._order[:-1])
        }

    async def matrix(self, columns: FloatArray) -> FloatArray | None:
        """Return the products of all parties' columns at the first party of the order, and None elsewhere."""
        watcher = self._net.watcher
        if watcher is not None:
            watcher.saw(OWN, "correlations", self._net.me, columns)
        await self._tell_keys()
        shares = await self._shares(columns)
        found = await self._gather(shares)
        if watcher is not None and found is not None:
            watcher.saw(TOTAL, "correlations", "all others", found)
        return found

    async def _tell_keys(self) -> None:
        net = self._net
        if self._after:
            self._own = await net.in_thread(new_secret_key)
            await self._session.tell_each("encryption key", self._own.public)
        for name in self._order[:-1]:
            if name != net.me:
                self._keys[name] = await hear_key(net, name)

    # -- products -----------------------------------------------------------------------------------------------

    async def _shares(self, columns: FloatArray) -> dict[tuple[str, str], Shares]:
        """Return this party's shares of the products of its columns with those of each other party, by (i, j)."""
        net, me = self._net, self._net.me
        whole = WholeColumns(DenseColumns(columns), ones=False, bits=VALUE_BITS, within=1.0)
        sums = {
            name: ProductSums(self._layouts[name], self._keys[name], whole.width, VALUE_BITS) for name in self._before
        }
        # Who has more columns needs more messages: everybody does as many turns as the one with the most.
        turns = max((len(layout.portions) for layout in self._layouts.values()), default=0)
        for at in range(turns):
            for name in (me, *self._before):
                if name in self._layouts and at < len(self._layouts[name].portions):
                    first, last = self._layouts[name].portions[at]
                    if name == me:
                        await self._seal(columns[first:last])
                    else:
                        size = self._layouts[name].ciphertext_bytes(last - first)
                        sealed = await hear_bytes(net, name, "sealed columns", size)
                        part = whole.part(np.arange(first, last))
                        with sent_by(name, "sealed columns"):
                            await net.in_thread(sums[name].add, sealed, last - first, part)
            await self._keep_pace(at)
            net.report(("statistics", at + 1, turns))
        shares: dict[tuple[str, str], Shares] = {}
        for name in self._before:
            answer, shares[name, me] = await net.in_thread(sums[name].answer, self._randomness)
            await net.send(name, "sealed products", answer)
        if self._own is not None:
            layout = self._layouts[me]
            for name in self._after:
                size = layout.answer_bytes(self._sizes[name])
                answer = await hear_bytes(net, name, "sealed products", size)
                shares[me, name] = await net.in_thread(layout.open, self._own, answer, self._sizes[name])
        return shares

    async def _seal(self, part: FloatArray) -> None:
        """Send a portion of this party's columns, encrypted, to all after it."""
        net, own = self._net, self._own
        if own is None:
            raise ProtocolError(f"party {net.me!r} has no key to encrypt with")
        what = f"a white column of party {net.me!r}"
        whole = whole_numbers_of(part, FRACTION_BITS, FRACTION_BITS + 1, what, "standardise the columns")
        sealed = await net.in_thread(self._layouts[net.me].encrypt, own, whole)
        for name in self._after:
            await net.send(name, "sealed columns", sealed)

    async def _keep_pace(self, at: int) -> None:
        """Wait until everybody has done this portion, so that nobody is more than a portion ahead."""
        await self._session.tell_each("pace", at)
        for name in self._session.others:
            if await self._net.recv(name, "pace") != at:
                raise ProtocolError(
                    f"party {name!r} is at another portion of the rows at step 'pace'; run the same job"
                )
        self._net.traffic.round()

    # -- at the first label holder ------------------------------------------------------------------------------

    async def _gather(self, mine: dict[tuple[str, str], Shares]) -> FloatArray | None:
        net, leader = self._net, self._order[0]
        if net.me != leader:
            await net.send(leader, "product shares", tuple(mine[pair] for pair in self._pairs(net.me)))
            return None
        known = {(net.me, pair): share for pair, share in mine.items()}
        for name in self._order[1:]:
            told = await net.recv(name, "product shares")
            pairs = self._pairs(name)
            if type(told) is not tuple or len(told) != len(pairs):
                raise ProtocolError(f"party {name!r} must tell {len(pairs)} shares at step 'product shares'")
            for pair, share in zip(pairs, told, strict=True):
                shape = (self._sizes[pair[1]], self._sizes[pair[0]], LIMBS)
                known[name, pair] = expect_array(share, shape, np.uint32, name, "product shares")
        starts = dict(zip(self._order, np.cumsum([0, *(self._sizes[name] for name in self._order)]), strict=False))
        out = np.eye(sum(self._sizes.values()))
        for first, second in (pair for name in self._order for pair in self._pairs(name) if pair[0] == name):
            found = self._joined(first, second, *(known[name, (first, second)] for name in (first, second)))
            rows, columns = (slice(starts[name], starts[name] + self._sizes[name]) for name in (second, first))
            out[rows, columns], out[columns, rows] = found, found.T
        return out

    def _pairs(self, name: str) -> list[tuple[str, str]]:
        """Return the pairs that a party belongs to, as (who encrypts, who multiplies)."""
        at = self._order.index(name)
        return [(one, name) for one in self._order[:at]] + [(name, one) for one in self._order[at + 1 :]]

    def _joined(self, first: str, second: str, opened: Shares, masks: Shares) -> FloatArray:
        """Join W from its two shares, with a row for each column of the second party and a column for the first's."""
        whole = unmasked(opened, masks, _LARGEST)
        if whole is None:
            raise ProtocolError(
                f"the shares of parties {first!r} and {second!r} at step 'product shares' do not belong together; one "
                f"of them uses another key, or encrypted something else"
            )
        found: FloatArray = whole / (2.0**FRACTION_BITS * (2**VALUE_BITS - 1))
        return found
