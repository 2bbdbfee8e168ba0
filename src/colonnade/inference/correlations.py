"""Correlations of all parties' columns come to the first label holder, without any of the columns.

Every party has white, rotated columns U_k (`blocks.information`). Of every two parties, the one that comes first in the
order has a key pair of its own:

    party i                                party j                             first label holder
    [[U_i]]       -- sealed columns ->
                                           [[W]] = U_j^T [[U_i]]
                  <- sealed products --    [[W + rho]], rho uniform modulo n
    decrypts: W + rho mod n                                   -- product shares ->
                                           rho                -- product shares ->   W

Every key comes with a proof that gcd(n, φ(n)) = 1, without which nobody multiplies under it (`crypto.key_proof`). So
party i sees uniform numbers, whatever it has sent, and party j sees ciphertexts under i's key; nobody but the first
label holder learns W. No coalition without i can open what i has encrypted, which is why each party has a key of its
own instead of one key of the first label holder for all. Rows go in portions, and all parties wait for each other after
every portion, so no wait is longer than the work on one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.ciphertexts import Packing, WholeColumns, to_rows, whole_numbers_of
from colonnade.blocks.columns import DenseColumns
from colonnade.crypto.modular import Bytes, Digits, Threads, whole_numbers
from colonnade.crypto.paillier import PrivateKey, PublicKey
from colonnade.engine.encrypted import key_context
from colonnade.engine.session import Session
from colonnade.errors import ProtocolError
from colonnade.kernels import cores
from colonnade.runtimes.wire import expect_array

# The numbers of white columns are at most 1. Encrypted, they have FRACTION_BITS after the point and one bit before it;
# where they multiply ciphertexts, they have VALUE_BITS altogether. Correlations are then known to about 1e-10.
FRACTION_BITS, VALUE_BITS = 40, 31
# Products of ciphertexts in a portion of rows: they take some seconds on any machine, far below any deadline.
_PORTION, _FEWEST, _MOST = 1 << 20, 64, 4096
_PER_VALUE = 6  # products that a value of a column takes, about


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
    bits
        The length of the Paillier keys.
    """

    def __init__(self, session: Session, order: Sequence[str], sizes: Mapping[str, int], rows: int, bits: int) -> None:
        self._session, self._net, self._order, self._sizes = session, session.net, tuple(order), sizes
        self._bits, self._rows = bits, rows
        self._threads = Threads(cores())
        self._own: PrivateKey | None = None
        self._keys: dict[str, PublicKey] = {}
        at = self._order.index(self._net.me)
        self._before, self._after = self._order[:at], self._order[at + 1 :]
        self._packings = {
            name: Packing(bits, sizes[name], FRACTION_BITS + 1, rows, VALUE_BITS) for name in self._order[:-1]
        }

    async def matrix(self, columns: FloatArray) -> FloatArray | None:
        """Return the products of all parties' columns at the first party of the order, and None elsewhere."""
        try:
            await self._tell_keys()
            shares = await self._shares(columns)
            return await self._gather(shares)
        finally:
            self._threads.close()

    async def _tell_keys(self) -> None:
        net = self._net
        if self._after:
            self._own = await net.in_thread(PrivateKey.generate, self._bits, self._threads)
            context = key_context(self._session, "statistics", net.me)
            await self._session.tell("paillier key", await net.in_thread(self._own.to_wire_value, context))
            self._keys[net.me] = self._own.public
        for name in self._order[:-1]:
            if name != net.me:
                told, context = await net.recv(name, "paillier key"), key_context(self._session, "statistics", name)
                checked = PublicKey.from_wire_value
                self._keys[name] = await net.in_thread(checked, told, self._bits, name, context, self._threads)

    # -- products -----------------------------------------------------------------------------------------------

    def _portions(self) -> list[Rows]:
        """Cut the rows into portions of nearly one size, as every party does alike."""
        order, sizes = self._order, self._sizes
        work = max(
            (
                sizes[name] * sum(self._packings[one].chunks for one in order[:at])
                for at, name in enumerate(order)
                if at
            ),
            default=1,
        )
        most = min(_MOST, max(_FEWEST, _PORTION // (_PER_VALUE * max(1, work))))
        return np.array_split(np.arange(self._rows), -(-self._rows // most))

    async def _shares(self, columns: FloatArray) -> dict[tuple[str, str], Bytes]:
        """Return this party's shares of the products of its columns with those of each other party, by (i, j)."""
        net, me = self._net, self._net.me
        whole = WholeColumns(DenseColumns(columns), ones=False, bits=VALUE_BITS, within=1.0)
        sums: dict[str, list[Digits]] = {}
        portions = self._portions()
        for at, rows in enumerate(portions):
            if self._own is not None:
                sealed = await net.in_thread(self._seal, columns[rows])
                for name in self._after:
                    await net.send(name, "sealed columns", sealed)
            for name in self._before:
                shape = (len(rows), self._packings[name].chunks, self._keys[name].square.width)
                sealed = expect_array(await net.recv(name, "sealed columns"), shape, np.uint8, name, "sealed columns")
                found = await net.in_thread(self._products, name, sealed, whole, rows)
                sums[name] = await net.in_thread(self._add, name, sums[name], found) if name in sums else found
            await self._keep_pace(at)
            net.report(("statistics", at + 1, len(portions)))
        shares: dict[tuple[str, str], Bytes] = {}
        for name in self._before:
            shares[name, me] = await self._blind(name, sums[name], whole)
        if self._own is not None:
            for name in self._after:
                count, width = self._ciphertexts(me, name), self._own.public.square.width
                raw = await net.recv(name, "sealed products")
                raw = expect_array(raw, (count, width), np.uint8, name, "sealed products")
                opened = await net.in_thread(self._own.decrypt, raw, name, "sealed products")
                shares[me, name] = to_rows(opened, self._own.public)
        return shares

    def _seal(self, part: FloatArray) -> Bytes:
        own, packing = self._own, self._packings[self._net.me]
        if own is None:
            raise ProtocolError(f"party {self._net.me!r} has no key to encrypt with")
        what = f"a white column of party {self._net.me!r}"
        whole = whole_numbers_of(part, FRACTION_BITS, FRACTION_BITS + 1, what, "standardise the columns")
        return packing.encrypt(own.public, whole, own.residues(len(part) * packing.chunks))

    def _products(self, name: str, sealed: Bytes, whole: WholeColumns, rows: Rows) -> list[Digits]:
        return self._packings[name].products(
            self._keys[name], sealed, whole.entries(rows), whole.width, name, "sealed columns"
        )

    def _add(self, name: str, one: list[Digits], other: list[Digits]) -> list[Digits]:
        return [self._keys[name].square.times(a, b) for a, b in zip(one, other, strict=True)]

    async def _keep_pace(self, at: int) -> None:
        """Wait until everybody has done this portion, so that nobody is more than a portion ahead."""
        await self._session.tell("pace", at)
        for name in self._session.others:
            if await self._net.recv(name, "pace") != at:
                raise ProtocolError(
                    f"party {name!r} is at another portion of the rows at step 'pace'; run the same job"
                )
        self._net.traffic.round()

    async def _blind(self, name: str, sums: list[Digits], whole: WholeColumns) -> Bytes:
        """Send products that `name` decrypts to its share, and return the masks, which are the other share."""
        key, packing = self._keys[name], self._packings[name]
        layout = packing.layout(whole.width)
        masks = packing.masks(key, layout)
        residues = await self._net.in_thread(key.residues, len(masks))
        blinded = await self._net.in_thread(packing.blind, key, sums, layout, masks, residues)
        await self._net.send(name, "sealed products", blinded)
        return to_rows(masks, key)

    # -- at the first label holder ------------------------------------------------------------------------------

    async def _gather(self, mine: dict[tuple[str, str], Bytes]) -> FloatArray | None:
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
                shape = (self._ciphertexts(*pair), self._keys[pair[0]].width)
                known[name, pair] = expect_array(share, shape, np.uint8, name, "product shares")
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

    def _ciphertexts(self, first: str, second: str) -> int:
        """How many ciphertexts the products of a pair of parties take."""
        return self._packings[first].layout(self._sizes[second]).groups * self._packings[first].chunks

    def _joined(self, first: str, second: str, opened: Bytes, masks: Bytes) -> FloatArray:
        """Join W from its two shares, with a row for each column of the second party and a column for the first's."""
        packing = self._packings[first]
        layout = packing.layout(self._sizes[second])
        whole = packing.unblind(self._keys[first], whole_numbers(opened), whole_numbers(masks), layout)
        if whole is None:
            raise ProtocolError(
                f"the shares of parties {first!r} and {second!r} at step 'product shares' do not belong together; one "
                f"of them uses another key, or encrypted something else"
            )
        found: FloatArray = whole / (2.0**FRACTION_BITS * (2**VALUE_BITS - 1))
        return found
