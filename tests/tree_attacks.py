"""What each party of sealed trees gets to see, written down from outside, and attackers who make the most of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import colonnade as cn
from colonnade.boosting.leader import TreeLeader
from colonnade.boosting.partner import CUTS, QUESTION, TreePartner
from colonnade.boosting.questions import Questions
from colonnade.crypto.hinted_ring import uncut
from colonnade.views.tree_cells import posterior

Floats = npt.NDArray[np.float64]
Cells = npt.NDArray[np.uint8]


@dataclass
class Asked:
    """One sum as the label holder knows it: what it sealed of each row, and what came back from each partner."""

    g: Floats
    h: Floats
    sums: dict[str, tuple[Floats, Floats]]  # in units of the largest g and h of a row


@dataclass
class TreeRun:
    """One training run, from the side of everybody."""

    leader: Any = None
    partners: dict[str, Any] = field(default_factory=dict)
    received: dict[str, list[tuple[float, str, Any]]] = field(default_factory=dict)  # by partners: when, what
    asked: list[Asked] = field(default_factory=list)
    model: Any = None

    def cells(self, name: str) -> Cells:
        """The truth: the cell of every training row in each of a partner's columns."""
        partner = self.partners[name]
        return partner.cells[:, : partner.rows]

    def told(self, name: str, tag: str) -> list[Any]:
        """What a partner received at one step."""
        return [value for _, step, value in self.received[name] if step == tag]


class Listening:
    """A partner's net that writes down what arrives, and when."""

    def __init__(self, net: Any, seen: list[tuple[float, str, Any]]) -> None:
        self._net, self._seen = net, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._net, name)

    async def recv(self, frm: str, tag: str, *, patient: bool = False) -> Any:
        value = await self._net.recv(frm, tag, patient=patient)
        self._seen.append((self._net.elapsed(), tag, value))
        return value


@contextmanager
def watching(run: TreeRun) -> Iterator[None]:
    """Write down what happens in the runs inside; every party is in this process."""

    def partner(self: Any, net: Any, *args: Any, **more: Any) -> None:
        begin_partner(self, Listening(net, run.received.setdefault(net.me, [])), *args, **more)
        run.partners[net.me] = self

    def leader(self: Any, *args: Any, **more: Any) -> None:
        begin_leader(self, *args, **more)
        run.leader = self

    async def ask(self: Any, groups: Any, g: Floats, h: Floats, ahead: int = 0) -> Any:
        largest = (np.abs(g).max(), h.max())
        useless = {one.name: _without_sums(one) for one in self.partners}  # columns that are answered by random words
        found = await questions(self, groups, g, h, ahead)
        for rows, sums in zip(groups, found, strict=True):
            if rows is None:
                continue
            v, w = np.zeros(len(g)), np.zeros(len(g))
            v[rows], w[rows] = g[rows] / largest[0], h[rows] / largest[1]
            noise = next(iter(sums.values())).noise
            times = noise[0] / self.noise[0], noise[1] / self.noise[1]
            told = {
                k: (np.where(useless[k], np.nan, one.G / times[0]), np.where(useless[k], np.nan, one.H / times[1]))
                for k, one in sums.items()
            }
            run.asked.append(Asked(v, w, told))
        return found

    begin_partner, begin_leader, questions = TreePartner.__init__, TreeLeader.__init__, Questions.ask
    with (
        mock.patch.object(TreePartner, "__init__", partner),
        mock.patch.object(TreeLeader, "__init__", leader),
        mock.patch.object(Questions, "ask", ask),
    ):
        yield


def watched(parties: Sequence[cn.Party], algorithm: Any = "auto", **options: Any) -> TreeRun:
    """Train on these parties, and return what everybody saw."""
    run = TreeRun()
    with watching(run):
        run.model = cn.BoostedTreesClassifier(algorithm=algorithm, verbose=0, **options).fit(*parties)
    return run


# -- the label holder, after the cells of a partner --------------------------------------------------------------------


@dataclass(frozen=True)
class Guessed:
    """How much of one column is guessed right: without any run, from ranges, and from ranges and sums."""

    cells: int
    ranges: int
    before: float
    by_ranges: float
    by_all: float

    @property
    def above(self) -> float:
        """The part of the rows by which the whole view beats the best guess without it."""
        return max(self.by_ranges, self.by_all) - self.before


def guessed(run: TreeRun, name: str, noise: float) -> list[Guessed]:
    """Guess the cell of every row in each column of a partner, from all that the label holder has seen.

    The attacker is given the share of every cell beside, which it would have to estimate from the sums.
    """
    partner = next(one for one in run.leader.partners if one.name == name)
    truth, found = run.cells(name), []
    vectors, sums = _evidence(run, name)
    for column, count in enumerate(partner.sizes.counts):
        cells, here = truth[column], slice(*partner.sizes.starts[column : column + 2])
        share = np.bincount(cells, minlength=count) / len(cells)
        first, codes = partner.ranges.first[column], partner.codes[column, : len(cells)]
        prior = share * (codes[:, None] == first)
        prior /= prior.sum(axis=1, keepdims=True)
        known = ~np.isnan(sums[:, here]).any(axis=1) if len(vectors) else np.zeros(0, bool)
        after = posterior(prior, vectors[known], sums[known, here], noise) if known.any() else prior
        right = [float((one.argmax(axis=1) == cells).mean()) for one in (prior, after)]
        found.append(Guessed(count, len(np.unique(first)), float(share.max()), *right))
    return found


def _without_sums(partner: Any) -> npt.NDArray[np.bool_]:
    """Which of a partner's cells belong to columns that can't be cut any further."""
    full = [partner.ranges.count(column) >= partner.ranges.most for column in range(partner.sizes.columns)]
    return np.repeat(full, partner.sizes.counts)


def _evidence(run: TreeRun, name: str) -> tuple[Floats, Floats]:
    """All vectors that were asked about, and the sums over a partner's cells that came back."""
    if not run.asked:
        return np.zeros((0, 0)), np.zeros((0, 0))
    pairs = [(v, sums) for one in run.asked for v, sums in zip((one.g, one.h), one.sums[name], strict=True)]
    return np.array([v for v, _ in pairs]), np.array([sums for _, sums in pairs])


def spent(run: TreeRun, noise: float) -> Floats:
    """How much the sums tell of each row, as rho of zero-concentrated differential privacy for its cell in one column.

    A row that moves from one cell to another changes two sums by its g, and two by its h: the squared distance is
    2 (g^2 + h^2), in units of the largest, and a normal mechanism spends half of it divided by the noise's variance.
    """
    found: Floats = sum((one.g**2 + one.h**2 for one in run.asked), np.zeros(1)) / noise**2
    return found


# -- a partner, after the labels ---------------------------------------------------------------------------------------


def words_received(run: TreeRun, name: str) -> Floats:
    """What a partner holds of each row: the signed word of the row in every question, as parts of 2^63."""
    maker = run.partners[name]._sums
    size, words, found = maker.layout.query_bytes(), np.empty(0, np.uint64), []
    for raw in run.told(name, QUESTION):
        for at in range(0, len(raw), size):
            words = np.empty(maker.layout.rows + maker.layout.ring.degree, np.uint64)
            uncut(memoryview(raw)[at : at + size], words)
            found.append(words[: maker.layout.rows].view(np.int64) * 2.0**-63)
    return np.array(found)


def features_of_words(words: Floats) -> Floats:
    """What might show something: words, how they change, points on the circle, low bits, and what many have in common.

    Words and their changes are counted modulo 2^64, as they are.
    """
    first = np.angle(np.exp(1j * np.pi * (words - words[0])[1:])) / np.pi
    change = np.angle(np.exp(1j * np.pi * np.diff(words, axis=0))) / np.pi
    low = np.mod(words * 2.0**16, 1.0)
    single = [words[:6], change[:6], first[:6], low[:3], np.cos(np.pi * words[:3])]
    common = []
    for part in (words, change, first, low):
        common.append(part.mean(axis=0)[None])
        common.append(np.linalg.svd(part - part.mean(axis=1, keepdims=True), full_matrices=False)[2][:2])
    return np.concatenate([*single, *common]).T


def sides_of_cuts(run: TreeRun, name: str) -> Floats:
    """On which side of each cut that was opened a row is, in the order in which they were: the partner knows both."""
    cells, found = run.cells(name), []
    for wanted in run.told(name, CUTS):
        for column, cut in wanted:
            mask = np.unpackbits(np.frombuffer(cut, np.uint8))
            found.append(mask[cells[column]].astype(float))
    return np.array(found).T


def label_auc(features: Floats, y: npt.NDArray[Any], known: int, draws: int = 8) -> float:
    """How well labels are told by somebody who knows so many of them and fits these features to them; a mean."""
    spread = features.std(axis=0)
    features = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    found = []
    for draw in range(draws):
        order = np.random.default_rng(draw).permutation(len(y))
        some, rest = order[:known], order[known:]
        model = LogisticRegression(C=0.1, max_iter=300).fit(features[some], y[some])
        found.append(roc_auc_score(y[rest], model.decision_function(features[rest])))
    return float(np.mean(found))
