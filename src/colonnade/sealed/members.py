"""Who takes part in sealed training with which columns, and how shares of others get to the two holders.

Two of the parties hold the shares: `first`, the one with the labels, and `second`. All others lend their columns only,
and hand what they have of a result over to the holders. Nothing is learned as long as the two holders do not put their
shares together. Between two parties both hold shares, so neither learns anything.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import ProtocolError
from colonnade.sealed import wide
from colonnade.sealed.channel import Channel
from colonnade.sealed.wide import WideArray, WordArray

MOST_COLUMNS = 400  # of one party, without an intercept: matrices of all parties' columns are multiplied in shares


class Members:
    """All parties with their blocks of columns, one after the other in the order of their names."""

    def __init__(self, channel: Channel, rows: int, sizes: dict[str, int]) -> None:
        self.channel, self.rows, self.sizes = channel, rows, sizes
        ends = np.cumsum(list(sizes.values())).tolist()
        self.of = {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}
        self.width: int = ends[-1]
        self.me = channel.me
        self.lenders = tuple(name for name in sizes if name not in channel.holders)

    @classmethod
    async def agree(cls, channel: Channel, rows: int, columns: int) -> Members:
        """Exchange keys, and tell everybody how many rows and columns there are here."""
        await channel.exchange_keys()
        sizes, net = {channel.me: columns}, channel.net
        for name in channel.others:
            await net.send(name, "sealed sizes", (rows, columns))
        for name in channel.others:
            told = await net.recv(name, "sealed sizes")
            if not isinstance(told, tuple) or len(told) != 2 or any(type(one) is not int for one in told):
                raise ProtocolError(f"party {name!r} must tell its rows and columns at step 'sealed sizes'")
            if told[0] != rows or not 0 < told[1] <= MOST_COLUMNS + 1:
                raise ProtocolError(
                    f"party {name!r} has {told[0]} rows and {told[1]} columns at step 'sealed sizes', and here are "
                    f"{rows} rows; all parties need the same rows, and from 1 to {MOST_COLUMNS} columns"
                )
            sizes[name] = told[1]
        return cls(channel, rows, {name: sizes[name] for name in net.names})

    def besides(self, holder: str) -> dict[str, int]:
        """Return the parties whose columns this one can't multiply with by itself, and how many they have."""
        return {name: size for name, size in self.sizes.items() if name != holder}

    # -- from lenders to holders ---------------------------------------------------------------------------------------

    async def gathered(self, what: str, own: WordArray, asked: dict[str, WordArray]) -> dict[str, WordArray]:
        """Return a holder's shares of something about every party's columns.

        own: this party's share about its own columns. asked: a holder's shares about the others'. A lender's own share
        goes to the second holder; the share of the first, which is uniform, keeps it from saying anything there.
        """
        channel = self.channel
        if not channel.holds:
            await channel.send(channel.second, "share", what, own.tobytes())
            return {}
        found = {**asked, self.me: own}
        if self.me == channel.second:
            for name in self.lenders:
                theirs = await channel.receive_words(name, "share", what, *found[name].shape)
                found[name] = found[name] + theirs
        return {name: found[name] for name in self.sizes}

    async def handed_over(
        self, what: str, share: Any, pair: tuple[str, str], *shape: int, limbs: bool = False
    ) -> npt.NDArray[Any]:
        """Return a holder's share of something that two parties share: lenders among them hand theirs over.

        A lender cuts its share in two, so that no holder has it together with what a lender still knows. Who holds
        nothing of it has zeros. share: an array at the two parties of the pair, None elsewhere. limbs: whether they are
        words of 96 bits.
        """
        channel = self.channel
        found: npt.NDArray[Any] = wide.zeros(*shape) if limbs else np.zeros(shape, np.uint64)
        add: Any = wide.add if limbs else np.add
        for name in pair:
            if name in channel.holders:
                if self.me == name:
                    found = add(found, share)
                continue
            if self.me == name:
                half: Any = channel.random(*shape) if limbs else channel.random_words(*shape)
                rest = wide.subtract(share, half) if limbs else share - half
                await channel.send(channel.first, "share", what, half.tobytes())
                await channel.send(channel.second, "share", what, rest.tobytes())
            elif channel.holds:
                receive: Any = channel.receive_wide if limbs else channel.receive_words
                found = add(found, await receive(name, "share", what, *shape))
        return found

    async def own_blocks(self, what: str, mine: WideArray) -> WideArray:
        """Return a holder's share of matrices that every party has of its own block: each cuts its own in two."""
        channel, found = self.channel, wide.zeros(self.width, self.width)
        half = channel.random(*mine.shape[:2])
        rest, here = wide.subtract(mine, half), self.of[self.me]
        if channel.holds:
            await channel.send(channel.partner, "share", what, half.tobytes())
            found[here, here] = rest
        else:
            await channel.send(channel.first, "share", what, half.tobytes())
            await channel.send(channel.second, "share", what, rest.tobytes())
        for name, size in self.besides(self.me).items() if channel.holds else ():
            found[self.of[name], self.of[name]] = await channel.receive_wide(name, "share", what, size, size)
        return found

    # -- numbers -------------------------------------------------------------------------------------------------------

    def together(self, shares: dict[str, WideArray]) -> WideArray:
        """Return shares about each party's columns as one vector about all of them."""
        found = wide.zeros(self.width)
        for name, share in shares.items():
            found[self.of[name]] = share
        return found

    def scaled(self, words: WordArray, factor: float, bits: int, to_bits: int) -> WideArray:
        """Return shares modulo 2^64 of a small number, times a public factor, modulo 2^96.

        bits, to_bits: how many there are behind the point, before and after.
        """
        first = self.channel.is_first
        return self.rescaled(wide.from_words(words, first=first), factor, bits, to_bits)

    def rescaled(self, share: WideArray, factor: float, bits: int, to_bits: int) -> WideArray:
        """Return shares modulo 2^96 times a public factor, with other bits behind the point.

        A power of two only moves the point. Otherwise bits that are not needed are cut off first, all but ten, so that
        the product with the factor stays small.
        """
        first, exact = self.channel.is_first, factor * 2.0 ** (to_bits - bits)
        mantissa, exponent = math.frexp(exact)
        if mantissa == 0.5:
            away = 1 - exponent
            return wide.truncated(share, away, first=first) if away >= 0 else wide.times(share, 1 << -away)
        spare = max(0, -int(np.ceil(np.log2(exact))) - 10)
        exact *= 2.0**spare
        shift = max(0, 26 - int(np.ceil(np.log2(exact))))
        cut = wide.truncated(share, spare, first=first)
        return wide.truncated(wide.times(cut, round(exact * 2.0**shift)), shift, first=first)
