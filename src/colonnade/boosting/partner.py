"""A party without labels in the training of trees: it adds up numbers that it can't read, and opens cuts one by one.

It is told which of its cuts are opened, and at the end which of them the model uses; of labels, derivatives, nodes and
scores it sees nothing. `boosting.leader` is the other side of each step.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from colonnade.boosting.options import TreePart
from colonnade.boosting.ranges import Codes, ColumnSizes, Ranges, sides_of
from colonnade.crypto.hinted_parameters import PackedSums
from colonnade.crypto.hinted_sums import SumMaker
from colonnade.crypto.keystream import Keystream
from colonnade.engine.kept import Keeper, common_version
from colonnade.errors import PolicyRefused, ProtocolError
from colonnade.runtimes.net import Net

# Steps of the protocol, each with what it shows; `algorithms.boosted` declares it.
SIZES, SEED, HINT, BINS = "tree sizes", "tree seed", "tree hint", "tree bins"
ORDER, QUESTION, ANSWER = "tree order", "tree question", "tree answer"
CUTS, SIDES, RECORD, MODEL = "tree cuts", "tree sides", "tree record", "tree model"
KEPT = "kept versions"  # of `engine.kept`, too
# What the label holder orders next.
ASK, RENEW, KEEP, END = "ask", "renew", "keep", "end"
SAMPLE = 1 << 16  # rows that sums are about, at most
MOST_AT_ONCE, MOST_TREES = 64, 1 << 31  # sums that are asked for in one message, and numbers of trees, at most
# Sums that are read with one hint. A label holder that cheats in every one of them learns 23 of the 2,048 coefficients
# of a mask from each, and what is left has to stay as good as unknown (ADR 32).
PER_HINT = 28


def sampled(rows: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the rows that sums over partners' cells are about: all, or where there are many a sample, sorted."""
    if rows <= SAMPLE:
        return np.arange(rows)
    return np.sort(np.random.default_rng([seed, 0x7EE5]).permutation(rows)[:SAMPLE])


def numbered(key: bytes, number: int) -> Keystream:
    """Return the stream of secrets for one question, from a key that is made anew in every run, also in a resumed one.

    So no two questions ever share one; and a run whose secrets are given repeats to the bit, broken off or not.
    """
    return Keystream(hashlib.sha256(key + number.to_bytes(8, "little")).digest())


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


class TreePartner:
    """A party without labels in one training run.

    Parameters
    ----------
    net, leader
        This party's side of the network, and the label holder.
    sizes
        What it tells of its columns.
    cells
        The cell of every row in each of its columns, training rows first, then those held out.
    rows
        How many of them are training rows.
    part
        What this party brings and allows.
    ranges
        How many ranges of a column the job opens, at most.
    sealing
        The seed of the rows that sums are about, and the noise on sums; None where training is in the open.
    questions
        How many sums the job asks for; None is any number, as far as this party's own limit goes.
    keeper
        Where this party keeps its progress.
    """

    def __init__(
        self,
        net: Net,
        leader: str,
        sizes: ColumnSizes,
        cells: Codes,
        rows: int,
        part: TreePart,
        ranges: int,
        sealing: tuple[int, tuple[float, float]] | None = None,
        keeper: Keeper | None = None,
        questions: int | None = None,
    ) -> None:
        self.net, self.leader, self.sizes, self.cells, self.rows = net, leader, sizes, cells, rows
        self.part, self.keeper, self._sealing = part, keeper, sealing
        self.ranges = Ranges(sizes, ranges)
        self.final: tuple[Codes | None, ...] = (None,) * sizes.columns
        self._noise_key, self._left = b"", 0
        # Sums that were answered in this run, and of those before it those that it goes on from; and at any time.
        self._answered = self._ever_answered = 0
        own = part.most_questions
        self._most = _least(own, questions)
        self._most_ever = _least(own, None if questions is None else 2 * questions)  # what a break lost is asked again
        self._version, self._kept = 0, (self.ranges.freeze(), 0)

    async def tell_sizes(self) -> None:
        """Tell the label holder how many cells each column has."""
        await self.net.send(self.leader, SIZES, self.sizes.as_value())

    async def tell_bins(self) -> None:
        """Tell the label holder the cell of every row: training in the open."""
        await self.net.send(self.leader, BINS, self.cells)

    # -- sealed training -----------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Make what the label holder needs, once, to read sums over cells from answers, and nothing else."""
        if self._sealing is None:
            raise TypeError("a partner in open training answers no questions")
        seed, noise = self._sealing
        told = await self.net.recv(self.leader, SEED)
        if type(told) is not bytes or len(told) != 32:
            raise ProtocolError(f"party {self.leader!r} must tell 32 bytes at step {SEED!r}")
        some = sampled(self.rows, seed)
        self._noise_key = self.net.secret("noise on cells")
        self._made_of = (PackedSums(len(some), *noise), told, np.ascontiguousarray(self.cells[:, some]))
        await self._send_hint()

    async def _send_hint(self) -> None:
        """Make a hint under masks of its own, which is good for some sums."""
        secret = Keystream(self.net.secret(f"masks of cells from sum {self._answered} on"))
        self._sums = await self.net.in_thread(SumMaker, *self._made_of, self.sizes.counts, secret)
        self._left = PER_HINT
        await self.net.send(self.leader, HINT, await self.net.in_thread(self._sums.hint))

    async def resume(self) -> None:
        """Go back to the last tree after which all parties have kept their progress."""
        if self.keeper is None:
            return
        ever, first = None, self.ranges.freeze()
        if (latest := max(self.keeper.versions(), default=None)) is not None:
            *_, ever, self._ever_answered = self.keeper.load(latest)
        version = await common_version(self.net, self.keeper)
        self.keeper.forget(version)
        if version:
            first, self._answered, *_ = self.keeper.load(version)
            self.net.report(("resumed", version))
        self.ranges.thaw(first, ever)
        self._version, self._kept = version, (first, self._answered)
        self._note()
        if self._sealing is not None:
            await self.net.send(self.leader, RECORD, tuple(self.ranges.ever))

    def _note(self) -> None:
        """Keep, before it leaves, what is told from now on: a break must not give it back to be told once more."""
        if self.keeper is not None:
            self.keeper.save(self._version, (*self._kept, tuple(self.ranges.ever), self._ever_answered))

    async def _tell_kept(self, number: int) -> None:
        """Tell the label holder that this is kept, so that it is never ahead by more than what both still have."""
        if self.keeper is not None:
            await self.net.send(self.leader, KEPT, (number,))

    async def tell_opened(self) -> None:
        """Send the ranges that an earlier model uses, from which training goes on: what predictions tell anyway."""
        earlier = self.part.earlier
        if earlier is None:
            return
        self.ranges.thaw(
            np.zeros(count, np.uint8) if one is None else one
            for count, one in zip(self.sizes.counts, earlier, strict=True)
        )
        told = max((self.ranges.count(column) for column in range(self.sizes.columns)), default=0)
        if told > self.ranges.most:
            raise PolicyRefused(
                f"the model that training goes on from uses {told} ranges of a column of {self.net.me!r}, and the job "
                f"lets the label holder learn {self.ranges.most}; raise ranges in [algorithm], or train anew"
            )
        found = [self.ranges.codes(k, self.cells[k]) for k in range(self.sizes.columns) if self.ranges.opened(k)]
        if found:
            await self.net.send(self.leader, SIDES, np.stack(found))

    async def serve(self) -> None:
        """Do what the label holder orders, until it is done."""
        while True:
            order = await self.net.recv(self.leader, ORDER, patient=True)
            if type(order) is not tuple or len(order) != 2 or type(order[1]) is not int:
                raise ProtocolError(f"party {self.leader!r} must give an order and a number at step {ORDER!r}")
            what, number = order
            if what == END:
                return
            if what == ASK and self._sealing is not None and 1 <= number <= MOST_AT_ONCE:
                await self._answer(number)
                await self._open()
            elif what == RENEW and self._sealing is not None and self._left < PER_HINT:
                await self._send_hint()
            elif what == KEEP and 1 <= number < MOST_TREES:
                self._version, self._kept = number, (self.ranges.freeze(), self._answered)
                self._note()
                await self._tell_kept(number)
            else:
                raise ProtocolError(f"party {self.leader!r} gave an order that there is none of at step {ORDER!r}")

    async def _answer(self, count: int) -> None:
        """Add up numbers that this party can't read over its cells, with noise that nobody else knows."""
        for most, so_far in ((self._most, self._answered), (self._most_ever, self._ever_answered)):
            if most is not None and so_far + count > most:
                raise ProtocolError(f"party {self.leader!r} asked for more than {most} sums, at step {QUESTION!r}")
        if count > self._left:
            raise ProtocolError(
                f"party {self.leader!r} asked for {count} sums at step {QUESTION!r}, and the hint is good for "
                f"{self._left} more"
            )
        self._left -= count
        size = self._sums.layout.query_bytes()
        raw = await self.net.recv(self.leader, QUESTION)
        if type(raw) is not bytes or len(raw) != count * size:
            raise ProtocolError(f"party {self.leader!r} must ask in {count} times {size} bytes at step {QUESTION!r}")
        await self.net.work(self._made_of[2].size * count)
        found = []
        for k in range(count):
            noise = numbered(self._noise_key, self._answered + k)
            answer = await self.net.in_thread(self._sums.answer, raw[k * size : (k + 1) * size], noise)
            found.append(self._only_useful(answer, noise))
        self._answered += count
        self._ever_answered += count
        self._note()
        self.net.traffic.round()
        await self.net.send(self.leader, ANSWER, b"".join(found))

    def _only_useful(self, answer: bytes, stream: Keystream) -> bytes:
        """Return an answer with random words for columns that can't be cut any further: nobody needs their sums."""
        words = np.frombuffer(answer, "<u8").copy()
        for column, start in enumerate(self.sizes.starts[:-1].tolist()):
            if self.ranges.count(column) >= self.ranges.most:
                words[start : start + self.sizes.counts[column]] = stream.words(self.sizes.counts[column])
        return words.tobytes()

    async def _open(self) -> None:
        """Tell of every row on which side of the cuts it is that the label holder asks for; refuse too many."""
        wanted = await self.net.recv(self.leader, CUTS)
        if type(wanted) is not tuple or any(type(one) is not tuple or len(one) != 2 for one in wanted):
            raise ProtocolError(f"party {self.leader!r} must name cuts as pairs at step {CUTS!r}")
        sides = []
        for one in wanted:
            column, cut = self.ranges.check(one[0], one[1], self.leader, CUTS)
            sides += sides_of(self.ranges, column, cut, self.cells[column])
            self.ranges.open(column, cut)
        if wanted:
            self._note()
            await self.net.send(self.leader, SIDES, np.stack(sides))

    # -- the model -----------------------------------------------------------------------------------------------------

    async def learn_model(self, sealed: bool) -> None:
        """Hear which ranges of which columns the model uses, which predictions will tell; they may be no finer ones."""
        told = await self.net.recv(self.leader, MODEL)
        if type(told) is not tuple or len(told) != self.sizes.columns:
            raise ProtocolError(f"party {self.leader!r} must name ranges of every column at step {MODEL!r}")
        found: list[Codes | None] = []
        for column, one in enumerate(told):
            count = self.sizes.counts[column]
            if one is None:
                found.append(None)
                continue
            if not isinstance(one, np.ndarray) or one.dtype != np.uint8 or one.shape != (count,):
                raise ProtocolError(f"party {self.leader!r} must name the range of every cell at step {MODEL!r}")
            if (one > np.arange(count)).any() or (one[one] != one).any():
                raise ProtocolError(f"party {self.leader!r} must call ranges by their first cells at step {MODEL!r}")
            first = self.ranges.first[column]
            if sealed and (one[first] != one).any():
                raise ProtocolError(
                    f"party {self.leader!r} wants finer ranges of column {column} for predictions than training "
                    f"opened, at step {MODEL!r}"
                )
            found.append(one)
        self.final = tuple(found)
        await self._tell_kept(MOST_TREES)
