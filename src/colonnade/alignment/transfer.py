"""The alignment by oblivious transfer, for two parties; `protocol` says what is sent, and why it is safe.

Ids are cut into bins by a hash that both parties know, about 65,536 of the leader's in each, so that what is held of a
bin at one time fits a processor's cache, and memory grows with the ids alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from math import isqrt

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from colonnade.alignment.ordering import Order, Ordered, by_number, in_order
from colonnade.alignment.role import MOST, TRANSFER, Met, Role, Rows, chunks, count_of
from colonnade.crypto import oblivious_store
from colonnade.crypto.base_transfers import OFFER, Bytes, Choosing, answered
from colonnade.crypto.group import POINT, hashed
from colonnade.crypto.keystream import Keystream
from colonnade.crypto.linear_code import BITS, COLUMNS
from colonnade.crypto.oblivious_store import Words
from colonnade.crypto.transfers import Chooser, RowKeeper, coded, rows_of, words_for
from colonnade.data.ids import Packed, names_of
from colonnade.data.packed_ids import taken
from colonnade.errors import ProtocolError
from colonnade.kernels import cores
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array

BIN = 1 << 16  # ids of the leader in a bin, on average
CHUNK = 1 << 16  # ids that are hashed, or looked up, at once
_VALUES = 1 << 18  # values in a message: 3 MB
MANY = 1 << 25  # ids of which no names are kept, as these take 16 bytes: they are made once more, a fifth more time
_AHEAD = 8  # messages that a party sends before the other one has taken the first of them
_PURPOSE = b"colonnade oblivious alignment v1\0"
_TAG = np.frombuffer(b"colonnade oblivious alignment v1", np.uint8)
_HASHED, _FOUND = 500, 2000  # what an id costs, in the unit of `net.work`: 1 µs, and 4 µs


def bins_of(rows: int) -> tuple[int, int]:
    """Return how many bins a leader with so many ids has, and how many of its ids each of them has room for."""
    bins = count_of(rows, BIN)
    return bins, fullest(rows, bins)


def fullest(rows: int, bins: int) -> int:
    """Return how many of so many ids a bin may have."""
    if bins == 1:
        return rows
    # Bernstein's bound: a bin holds more than mean + t with a chance below exp(-t^2 / (2 (mean + t/3))), which makes
    # less than 2^-40 for all bins together.
    mean, log = count_of(rows, bins), 29 + bins.bit_length()
    return mean + log // 3 + isqrt(log * log // 9 + 2 * log * mean) + 2


def room_of(rows: int) -> int:
    """Return for how many ids there is room in the tables of a leader that says it has so many."""
    bins, count = bins_of(rows)
    return bins * oblivious_store.rows(count)


class _Transfer(Role):
    """A party whose ids are in bins."""

    def __init__(
        self, net: Net, packed: Packed, minimum: int, leader: str, most: int = MOST, method: str = TRANSFER
    ) -> None:
        super().__init__(net, packed, minimum, leader, most, method)
        self.other = next(name for name in net.names if name != net.me)
        self.total = 2 * self.rows
        self.order = np.empty(0, np.uint32)  # the rows, bin by bin
        self.starts = np.empty(0, np.int64)  # where in it each bin starts
        self.noise = Keystream(net.secret("alignment"))
        # Of the ids in their bins: the two parts of a value that are told to find it, and the part that proves it.
        self.heads, self.tails = np.empty(self.rows, np.uint64), np.empty(self.rows, np.uint32)
        self.proofs = np.empty((self.rows, 2), np.uint64)

    async def into_bins(self, bins: int, said: bytes, step: str) -> None:
        """Hash all ids, with a sign of life at this step for each chunk, and put them into bins.

        said: all that was said so far, in which both parties had their part. Hashes hang on it, so that nobody can
        have searched for ids with special ones before.
        """
        session = hashlib.sha512(_PURPOSE + said).digest()
        self.key_of_keys, self.key_of_words = session[:32], session[32:]
        found = np.empty(self.rows, np.uint16)

        def hash_chunk(part: slice) -> None:
            names = names_of(self.packed, part)
            if self.rows < MANY:
                self.names[part] = names
            key = _mixed(names, self.key_of_keys)[:, 0]
            found[part] = ((key >> np.uint64(32)) * np.uint64(bins)) >> np.uint64(32)

        await self.in_pieces(hash_chunk, slice(0, self.rows), step, _HASHED)
        self.order, self.starts = await self.net.in_thread(by_number, found, bins)

    async def in_pieces(
        self, work: Callable[[slice], None], part: slice, step: str, each: int, signs: int | None = None
    ) -> None:
        """Call `work` for pieces of a part, some at a time, each time with a sign of life and a report of progress.

        signs: how many there are in all, where their number would tell the other party how many ids the part has.
        """
        sent = 0
        waiting = [slice(part.start + a.start, part.start + a.stop) for a in chunks(part.stop - part.start, CHUNK)]
        waiting = waiting or [part]  # what work takes by itself shows nobody that there is nothing to do
        while waiting:
            now, waiting = waiting[: cores()], waiting[cores() :]
            for task in [self.net.spawn(self.net.in_thread(work, piece)) for piece in now]:
                await task
            if signs is None or sent < signs:
                await self.net.send(self.other, step, None)
                sent += 1
            await self.worked(now[-1].stop - now[0].start, each)
        for _ in range(sent, signs or 0):
            await self.net.send(self.other, step, None)

    def bins(self) -> Iterator[slice]:
        """Return which part of the order each bin is."""
        for start, stop in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True):
            yield slice(start, stop)

    def keys_of(self, part: slice) -> tuple[Words, Words, Words]:
        """Return names, keys of the table, and words for these ids, in the order of bins."""
        rows = self.order[part]
        names = self.names[rows] if self.rows < MANY else self.names_again(rows)
        return names, _mixed(names, self.key_of_keys), _mixed(names, self.key_of_words)

    def names_again(self, rows: Order) -> Words:
        """Make the names of these ids once more."""
        return names_of(taken(self.packed, rows.astype(np.int64)), slice(0, len(rows)))

    async def heard(self, step: str) -> None:
        """Wait until the other party has taken one more message: what it has not taken lies in somebody's memory."""
        if await self.net.recv(self.other, step) is not None:
            raise ProtocolError(f"party {self.other!r} sent something at step {step!r} before it was its turn")

    def keep(self, part: slice, names: Words, rows: Words) -> None:
        """Keep the values that the rows of these ids make."""
        prints = hashed(np.concatenate([names, rows], axis=1).astype("<u8", copy=False), _TAG)
        self.heads[part] = prints[:, 0]
        self.tails[part] = prints[:, 1] & np.uint64(0xFFFFFFFF)  # 96 bits are told
        self.proofs[part] = prints[:, 2:]

    async def end(self, places: Order, count: int, asked: int) -> Rows:
        """Agree on the rows at these places of the order, and return them in the order of names."""
        self.forget()
        rows = self.order[places]
        names = np.empty((len(rows), 2), np.uint64)
        for part in chunks(len(rows), CHUNK):  # once more, as they would have been in the way
            names[part] = await self.net.in_thread(self.names_again, rows[part])
        order = await self.net.in_thread(in_order, names)
        await self.agree(names[order], count, asked)
        return rows[order].astype(np.int64)

    def forget(self) -> None:
        """Give back the memory of what is not needed any more."""
        self.heads, self.tails = np.empty(0, np.uint64), np.empty(0, np.uint32)
        self.proofs = np.empty((0, 2), np.uint64)


class TransferLeader(_Transfer):
    """The party whose ids choose, which learns values for these ids alone, and compares."""

    async def run(self, met: Mapping[str, Met]) -> Rows:
        """Find the common rows, once sizes are known."""
        asked = max(self.minimum, met[self.other].minimum)
        shape = (COLUMNS, 2, OFFER)
        offer = expect_array(await self.net.recv(self.other, "align offer"), shape, np.uint8, self.other, "align offer")
        answer, keys = await self.net.in_thread(answered, offer, self.noise)
        await self.net.send(self.other, "align reply", answer)
        chooser, (bins, most) = Chooser(keys), bins_of(self.rows)
        await self.into_bins(bins, offer.tobytes() + answer.tobytes(), "align columns")
        if np.diff(self.starts).max() > most:
            raise ProtocolError("a bin of ids is too full, which happens once in 2^40 runs; run it again")
        count = met[self.other].rows
        for part in self.bins():
            await self.give_bin(chooser, part, most, count)
        self.names = np.empty((0, 2), np.uint64)
        common = await self.compare(count, bins)
        enough = len(common) >= asked  # if they are too few, only their number is told
        await self.net.send(self.other, "align common", (len(common), asked))
        for number, part in enumerate(self.bins() if enough else ()):
            found = common[np.searchsorted(common, part.start) : np.searchsorted(common, part.stop)]
            proofs = self.proofs[found]
            await self.net.send(self.other, "align common", proofs[in_order(proofs)])  # which is not that of the rows
            if number >= _AHEAD:
                await self.heard("align values")
        return await self.end(common if enough else common[:0], len(common), asked)

    async def give_bin(self, chooser: Chooser, part: slice, most: int, count: int) -> None:
        """Choose with the ids of a bin, look up their values, and pass the check; count: of the follower's ids."""

        def choose() -> tuple[Words, ...]:
            names, keys, words = self.keys_of(part)
            table = oblivious_store.encode(keys, words, most, self.noise)
            chosen = self.noise.words(128 * words_for(len(table))).reshape(-1, 2)
            chosen[: len(table)] = table
            return (names, keys, chosen, *chooser.choose(chosen))

        def look_up() -> None:
            rows = rows_of(own)[: oblivious_store.rows(most)]
            self.keep(part, names, oblivious_store.find(rows, oblivious_store.slots(keys, most), keys))

        names, keys, chosen, own, told = await self.net.in_thread(choose)
        await self.net.send(self.other, "align columns", told)
        await self.net.in_thread(look_up)
        challenge = await self.behind_signs(self.other, "align challenge", count_of(count, CHUNK))
        if type(challenge) is not bytes or len(challenge) != 8:
            raise ProtocolError(f"party {self.other!r} sent no 8 bytes at step 'align challenge'")
        proof = await self.net.in_thread(chooser.prove, own, chosen, int.from_bytes(challenge, "little"))
        await self.net.send(self.other, "align check", proof)
        await self.worked(part.stop - part.start, _FOUND)

    async def compare(self, count: int, bins: int) -> Order:
        """Return which of its values the follower has too, by their place in the order of bins."""
        mine = await self.net.in_thread(Ordered, self.heads, self.tails)
        known, last = np.zeros(self.rows, np.bool_), 0
        for part in chunks(count, _VALUES):
            await self.still_at_work()
            shape, step = (part.stop - part.start, 3), "align values"
            signs = 0 if part.start else bins * count_of(fullest(count, bins), CHUNK)
            told = expect_array(await self.behind_signs(self.other, step, signs), shape, np.uint32, self.other, step)
            wanted = np.zeros((len(told), 2), np.uint64)
            wanted[:, 0] = told[:, 0] | told[:, 1].astype(np.uint64) << np.uint64(32)
            wanted[:, 1] = told[:, 2]
            if last > wanted[0, 0] or (wanted[1:, 0] < wanted[:-1, 0]).any():  # each would be looked up among all
                raise ProtocolError(f"party {self.other!r} sent values in disorder at step {step!r}")
            last = int(wanted[-1, 0])
            places, there = await self.net.in_thread(mine.find, wanted)
            known[places[there]] = True
        return np.flatnonzero(known).astype(np.uint32)


class TransferFollower(_Transfer):
    """The party with the secret, which can make the value of any id, and tells those of its own."""

    async def run(self, met: Mapping[str, Met]) -> Rows:
        """Help to find the common rows, once sizes are known."""
        bits = np.unpackbits(np.frombuffer(self.noise.bytes(COLUMNS // 8), np.uint8)).astype(np.bool_)
        choosing = await self.net.in_thread(Choosing, bits, self.noise)
        await self.net.send(self.leader, "align offer", choosing.offer)
        answer = expect_array(
            await self.net.recv(self.leader, "align reply"), (COLUMNS, POINT), np.uint8, self.leader, "align reply"
        )
        keys: Bytes = await self.net.in_thread(choosing.keys, answer, self.leader, "align reply")
        self.leader_rows = met[self.leader].rows
        keeper, (bins, most) = RowKeeper(bits, keys), bins_of(self.leader_rows)
        await self.into_bins(bins, choosing.offer.tobytes() + answer.tobytes(), "align challenge")
        signs = count_of(fullest(self.rows, bins), CHUNK * cores())
        for part in self.bins():
            await self.take_bin(keeper, part, most, signs)
        self.names = np.empty((0, 2), np.uint64)
        await self.tell_values()

        verdict = await self.behind_signs(self.leader, "align common", count_of(self.rows, _VALUES))
        count, asked = self.check_verdict(verdict)
        places = await self.hear_common(count) if count >= asked else np.empty(0, np.uint32)
        return await self.end(places, count, asked)

    async def take_bin(self, keeper: RowKeeper, part: slice, most: int, signs: int) -> None:
        """Make the values of the ids of a bin, and check what the leader sent for it.

        signs: of life, as many in each bin: from bins that have none a list of guesses could be thinned out.
        """

        def look_up(piece: slice) -> None:
            names, keys, words = self.keys_of(piece)
            found = oblivious_store.find(rows, oblivious_store.slots(keys, most), keys)
            found ^= coded(words) & keeper.secret
            self.keep(piece, names, found)

        told = await self.behind_signs(self.leader, "align columns", count_of(self.leader_rows, CHUNK))
        length = words_for(oblivious_store.rows(most))
        told = expect_array(told, (COLUMNS, length), np.uint64, self.leader, "align columns")
        challenge = self.noise.bytes(8)
        await self.net.send(self.leader, "align challenge", challenge)
        own = await self.net.in_thread(keeper.take, told)
        rows = await self.net.in_thread(rows_of, own)
        rows = rows[: oblivious_store.rows(most)]
        await self.in_pieces(look_up, part, "align values", _FOUND, signs)  # which may be many more than the leader's
        proof, step = await self.net.recv(self.leader, "align check"), "align check"
        if type(proof) is not tuple or len(proof) != 2:
            raise ProtocolError(f"party {self.leader!r} sent no two arrays at step {step!r}")
        columns = expect_array(proof[0], (COLUMNS,), np.uint64, self.leader, step)
        words = expect_array(proof[1], (BITS,), np.uint64, self.leader, step)
        number = int.from_bytes(challenge, "little")
        await self.net.in_thread(keeper.check, own, number, (columns, words), self.leader, step)

    async def tell_values(self) -> None:
        """Tell the values of all its ids, in their own order, which says nothing: all bins have passed the check."""
        order = (await self.net.in_thread(Ordered, self.heads, self.tails)).order
        for part in chunks(self.rows, _VALUES):
            heads = self.heads[order[part]]
            told = np.empty((len(heads), 3), np.uint32)
            told[:, 0], told[:, 1] = heads, heads >> np.uint64(32)
            told[:, 2] = self.tails[order[part]]
            await self.net.send(self.leader, "align values", told)
            if part.start >= _AHEAD * _VALUES:
                await self.heard("align common")

    async def hear_common(self, count: int) -> Order:
        """Hear which of its ids are common, bin by bin: their places in the order of bins."""
        found = [np.empty(0, np.uint32)]
        for part in self.bins():
            told = await self.net.recv(self.leader, "align common")
            most = min(count, part.stop - part.start)
            if not isinstance(told, np.ndarray) or told.ndim != 2 or len(told) > most:
                raise ProtocolError(f"party {self.leader!r} sent no {most} ids or fewer at step 'align common'")
            told = expect_array(told, (len(told), 2), np.uint64, self.leader, "align common")
            places = await self.net.in_thread(self.find, self.proofs[part], told)
            found.append((part.start + places).astype(np.uint32))
            await self.net.send(self.leader, "align values", None)
            count -= len(told)
        if count:
            raise ProtocolError(f"party {self.leader!r} told {count} common ids too few at step 'align common'")
        return np.concatenate(found)


def _mixed(names: npt.NDArray[np.uint64], key: bytes) -> Words:
    """Return what a key of this run makes of names, 128 bits each."""
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    found: Words = np.frombuffer(cipher.update(names.astype(">u8").tobytes()), "<u8").reshape(-1, 2)
    return found.astype(np.uint64, copy=False)
