"""The label holder's questions to partners: sums over cells that are not its own, and cuts that are worth being opened.

The rows that a sum is about, and what is added up, travel under ring-LWE (`crypto.hinted_sums`): partners see numbers
that look random. How many questions a tree has, and at which of its steps, follows from public options alone, so that
partners can't tell from it what the tree looks like; where there is nothing to ask, zeros are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.boosting.candidates import CellSums, CutCandidate, best_cuts
from colonnade.boosting.partner import (
    ANSWER,
    ASK,
    HINT,
    ORDER,
    PER_HINT,
    QUESTION,
    RENEW,
    SEED,
    numbered,
    sampled,
)  # fmt: skip
from colonnade.boosting.partnership import Partnership
from colonnade.boosting.ranges import Mask
from colonnade.crypto.hinted_parameters import PackedSums
from colonnade.crypto.hinted_sums import SumAsker
from colonnade.crypto.keystream import Keystream
from colonnade.errors import ProtocolError
from colonnade.runtimes.net import TOTAL, Net

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[Any]
# A group of fewer rows is not asked about: noise would drown it, and its cells would be single people.
LEAST_GROUP, LEAST_SHARE = 200, 1 / 32
# How many sums a tree asks for at its first steps: the root, two children, four of theirs.
_STEPS = (1, 2, 4)


def turn(tree: int) -> int | None:
    """Return how many trees have asked before this one, counted from 0; None if it does not ask.

    The trees 1, 2, 3, 5, 8, 13, ... ask, as there is ever less news.
    """
    number, before, after = 0, 1, 2
    while before < tree + 1:
        number, before, after = number + 1, after, before + after
    return number if before == tree + 1 else None


def steps_of(tree: int, output: int, outputs: int) -> tuple[int, ...]:
    """Return how many sums the tree of one score asks for at each of its first steps; none where it does not ask.

    Where there are several scores, one after the other asks about all its steps, and the others about their roots.
    """
    number = turn(tree)
    if number is None:
        return ()
    return _STEPS if number % outputs == output else _STEPS[:1]


def questions_of(trees: int, outputs: int) -> int:
    """Return how many sums are asked for in a whole run, at most."""
    return sum(sum(steps_of(tree, output, outputs)) for tree in range(trees) for output in range(outputs))


def questions_next(done: int, trees: int, outputs: int) -> int:
    """Return how many sums the next round that asks asks for, after so many rounds; 0 if there is none."""
    coming = (sum(sum(steps_of(tree, output, outputs)) for output in range(outputs)) for tree in range(done, trees))
    return next((count for count in coming if count), 0)


class Questions:
    """Sealed questions to all partners in one run.

    Parameters
    ----------
    net
        This party's side of the network.
    partners
        What is known of each partner.
    rows, seed
        How many rows are trained on, and the seed of the sample that sums are about.
    noise
        The standard deviation of the noise on sums of first and of second derivatives, in units of the largest of one
        row.
    """

    def __init__(
        self, net: Net, partners: Sequence[Partnership], rows: int, seed: int, noise: tuple[float, float]
    ) -> None:
        self.net, self.partners, self.noise = net, partners, noise
        self.sample = sampled(rows, seed)
        self._place = np.full(rows, -1, np.int64)
        self._place[self.sample] = np.arange(len(self.sample))
        self._askers: dict[str, SumAsker] = {}
        self._keys: dict[str, bytes] = {}
        self.asked = 0
        self._layout = PackedSums(len(self.sample), *noise)
        self._left, self._awaited = 0, False

    async def prepare(self) -> None:
        """Get from each partner what is needed to read its answers."""
        self._seed = Keystream(self.net.secret("public polynomials")).bytes(32)
        for one in self.partners:
            self._keys[one.name] = self.net.secret(f"rounding for {one.name}")
            await self.net.send(one.name, SEED, self._seed)
        self._awaited = True
        await self._take_hints()

    async def renew(self, upcoming: int) -> None:
        """Have partners make new hints, if those that are there are not good for so many more sums.

        They do it while trees that ask nothing are grown.
        """
        if min(upcoming, PER_HINT) > self._left and not self._awaited:
            for one in self.partners:
                await self.net.send(one.name, ORDER, (RENEW, 0))
            self._awaited = True

    async def _take_hints(self) -> None:
        """Read the hints that are on their way."""
        for one in self.partners if self._awaited else ():
            cells = sum(one.sizes.counts)
            size = self._layout.hint_bytes(cells)
            hint = await self.net.recv(one.name, HINT)
            if type(hint) is not bytes or len(hint) != size:
                raise ProtocolError(f"party {one.name!r} must send {size} bytes for {cells} cells at step {HINT!r}")
            secret = Keystream(self.net.secret(f"questions to {one.name} from {self.asked} on"))
            args = (self._layout, self._seed, cells, hint, secret)
            self._askers[one.name] = await self.net.in_thread(SumAsker, *args)
        self._left, self._awaited = PER_HINT if self._awaited else self._left, False

    async def close(self) -> None:
        """Take what is still on its way, and need no more of it."""
        await self._take_hints()
        self._askers.clear()

    async def ask(
        self, groups: Sequence[Rows | None], g: Floats, h: Floats, ahead: int = 0
    ) -> list[dict[str, CellSums]]:
        """Return, for each group of rows, the sums over each partner's cells; nothing for a group that is None.

        While partners add up, what the next questions need is made, of which there will be so many `ahead`.
        """
        await self.renew(len(groups))
        await self._take_hints()
        self._left -= len(groups)
        largest = (float(np.abs(g).max(initial=1e-300)), float(h.max(initial=1e-300)))
        vectors = [self._vectors(rows, g, h, largest) for rows in groups]
        waiting = {}
        for one in self.partners:
            await self.net.send(one.name, ORDER, (ASK, len(groups)))
            asker, key = self._askers[one.name], self._keys[one.name]
            made = [
                await self.net.in_thread(asker.query, v, w, numbered(key, self.asked + k))
                for k, (v, w, _) in enumerate(vectors)
            ]
            await self.net.send(one.name, QUESTION, b"".join(query for query, _ in made))
            waiting[one.name] = [pending for _, pending in made]
        for one in self.partners if ahead <= self._left else ():
            await self.net.in_thread(self._askers[one.name].prepare, ahead)
        found: list[dict[str, CellSums]] = [{} for _ in groups]
        for one in self.partners:
            size = self._layout.answer_bytes(sum(one.sizes.counts))
            raw = await self.net.recv(one.name, ANSWER)
            if type(raw) is not bytes or len(raw) != size * len(groups):
                raise ProtocolError(f"party {one.name!r} must answer in {size * len(groups)} bytes at step {ANSWER!r}")
            for k, (pending, rows) in enumerate(zip(waiting[one.name], groups, strict=True)):
                G, H = pending.read(raw[k * size : (k + 1) * size])
                if rows is not None:
                    self._watched(one, vectors[k], (G, H))
                    found[k][one.name] = self._scaled(G, H, vectors[k][2], largest)
        self.asked += len(groups)
        self.net.traffic.round()
        return found

    def _vectors(
        self, rows: Rows | None, g: Floats, h: Floats, largest: tuple[float, float]
    ) -> tuple[Floats, Floats, tuple[float, float]]:
        """Return what is asked about a group, its numbers in units of the largest; and their sums."""
        v, w = np.zeros(len(self.sample)), np.zeros(len(self.sample))
        if rows is None:
            return v, w, (0.0, 0.0)
        place = self._place[rows]
        inside = place >= 0
        place, some = place[inside], rows[inside]
        v[place], w[place] = g[some] / largest[0], h[some] / largest[1]
        return v, w, (float(g[some].sum()), float(h[some].sum()))

    def _watched(self, partner: Partnership, asked: tuple[Any, ...], sums: tuple[Floats, Floats]) -> None:
        """Let whoever audits this party know what was asked and answered; full columns are answered by noise."""
        if self.net.watcher is None:
            return
        ranges = partner.ranges
        full = [ranges.count(column) >= ranges.most for column in range(partner.sizes.columns)]
        useless = np.repeat(full, partner.sizes.counts)
        told = tuple((asked[k].copy(), np.where(useless, np.nan, sums[k])) for k in range(2))
        self.net.watcher.saw(TOTAL, "tree sums", partner.name, told, self.sample, self.noise[0])

    def _scaled(self, G: Floats, H: Floats, total: tuple[float, float], largest: tuple[float, float]) -> CellSums:
        """Return sums as if all rows had been asked about, where it was a sample of them."""
        times = len(self._place) / len(self.sample)
        a, b = largest[0] * times, largest[1] * times
        return CellSums(G * a, H * b, (total[0] * times, total[1] * times), (self.noise[0] * a, self.noise[1] * b))

    def worthwhile(
        self, sums: dict[str, CellSums], l2: float, least_weight: float, allowed: Mask | None
    ) -> tuple[str, CutCandidate] | None:
        """Return the cut of any partner's columns that gains most for a group of rows, if there is one."""
        found: list[tuple[str, CutCandidate]] = []
        for one in self.partners:
            cuts = best_cuts(sums[one.name], one.ranges, l2, least_weight)
            found += [(one.name, cut) for cut in cuts if allowed is None or allowed[one.offset + cut.column]]
        return max(found, key=lambda pair: pair[1].gain, default=None)
