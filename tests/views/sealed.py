"""What a party of sealed training has in the end, as numbers: all that it was told, opened, drew itself and keeps.

Everything that holders and lenders have should be uniform, whatever it is added to or taken from; below the words that
it opens a party should find nothing but noise; and whatever it makes of all this for each row, in real numbers, on the
circle or by solving equations modulo 2^64, should have nothing to do with another's columns, nor with the labels.
`findings` says where that is not so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import scipy.stats

import colonnade as cn
from colonnade.algorithms.sealed_newton import SealedNewton
from colonnade.crypto.keystream import SEED_BYTES, Keystream
from colonnade.crypto.lattice import Lattice
from colonnade.crypto.lattice_keys import SecretKey
from colonnade.kernels import lattice as kernels
from colonnade.sealed import waves, wide
from colonnade.sealed.channel import Channel
from colonnade.sealed.slots import DEGREE, SLOTS, SlotLayout, folded, unfolded
from views import measures

ALMOST_NEVER = 1e-9
_SOME = 1800  # rows on which dimensions are counted
_SHARES = ("answer_silent", "answer_spread", "answer_packed", "answer_rowwise", "answer_matrix")


@dataclass
class SealedView:
    """One party's: what each array is, and the array; the equations that it could solve; what is below its words."""

    me: str
    channel: Any = None
    seen: list[tuple[str, Any]] = field(default_factory=list)
    equations: list[tuple[Any, Any]] = field(default_factory=list)
    below: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))

    def saw(self, what: str, value: Any) -> None:
        """Write it down."""
        self.seen.append((what, np.array(value)))


@dataclass
class Truth:
    """What nobody should find: columns and labels, in the order of rows that all parties know."""

    columns: dict[str, Any]
    y: Any
    rows: int
    holder: str

    def of_first(self, rows: int) -> Truth:
        """The same of the first rows, which a sample is of."""
        return Truth({name: X[:rows] for name, X in self.columns.items()}, self.y[:rows], rows, self.holder)


# -- looking on --------------------------------------------------------------------------------------------------------


@contextmanager
def watching(views: dict[str, SealedView], rows: int) -> Iterator[None]:
    """Write down what every channel of a run gives to its party."""
    owner: dict[int, SealedView] = {}

    def begin(self: Any, net: Any, *args: Any) -> None:
        _begin(self, net, *args)
        view = views.setdefault(net.me, SealedView(net.me))
        view.channel = self
        owner[id(self.narrow)] = owner[id(self.wide)] = view

    def opened(self: SecretKey, answer: bytes, count: int, at: Any = None) -> Any:
        found = _open(self, answer, count, at)
        owner[id(self)].saw(f"opened {found.shape[1:]}", found)
        bits = self.lattice.parameters.word_bits
        owner[id(self)].below[f"{bits} bits"].append(below_words(self, answer, count, at))
        return found

    def masks_for(shares: Any, layout: Any, stream: Any) -> Any:
        masks, share = _masks_for(shares, layout, stream)
        for view in views.values():
            if view.channel.stream is stream:
                view.saw("own mask", share)
        return masks, share

    _begin, _open, _masks_for = Channel.__init__, SecretKey.open, waves.masks_for
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(Channel, "__init__", begin))
        stack.enter_context(mock.patch.object(SecretKey, "open", opened))
        stack.enter_context(mock.patch.object(waves, "masks_for", masks_for))
        for name in ("receive_words", "receive_wide"):
            stack.enter_context(mock.patch.object(Channel, name, _told(views, getattr(Channel, name))))
        stack.enter_context(mock.patch.object(Channel, "receive", _bytes(views, rows, Channel.receive)))
        for name in _SHARES:
            stack.enter_context(mock.patch.object(Channel, name, _kept(views, getattr(Channel, name))))
        stack.enter_context(mock.patch.object(Channel, "ask_silent", _drawn(views, Channel.ask_silent)))
        stack.enter_context(mock.patch.object(Channel, "ask_spread", _asked(views, Channel.ask_spread)))
        stack.enter_context(mock.patch.object(Channel, "opened", _opened(views, Channel.opened)))
        yield


def _told(views: Any, method: Any) -> Any:
    async def receive(self: Any, frm: str, kind: str, what: str, *shape: int) -> Any:
        found = await method(self, frm, kind, what, *shape)
        views[self.me].saw(f"{kind} of {frm}: {what} {shape}", found)
        return found

    return receive


def _bytes(views: Any, rows: int, method: Any) -> Any:
    """A lender's seed stands for its half of the scores."""

    async def receive(self: Any, frm: str, kind: str, what: str, size: int) -> bytes:
        raw: bytes = await method(self, frm, kind, what, size)
        if kind == "share" and what == "scores" and not self.is_first:
            views[self.me].saw(f"seeded half of {frm}", Keystream(raw[:SEED_BYTES]).words(rows))
            views[self.me].saw(f"rest of {frm}", np.frombuffer(raw[SEED_BYTES:], "<u4").reshape(-1, 3))
        return raw

    return receive


def _kept(views: Any, method: Any) -> Any:
    async def answer(self: Any, what: str, asker: str, *args: Any) -> Any:
        share = await method(self, what, asker, *args)
        views[self.me].saw(f"own share for {asker}: {what} {share.shape}", share)
        return share

    return answer


def _drawn(views: Any, method: Any) -> Any:
    async def ask(self: Any, what: str, *args: Any) -> Any:
        drawn, answers = await method(self, what, *args)
        views[self.me].saw(f"drawn: {what} {drawn.shape}", drawn)
        return drawn, answers

    return ask


def _opened(views: Any, method: Any) -> Any:
    """What is opened, and the same without this holder's own random numbers: only the partner's hide it then."""

    async def opened(self: Any, what: str, share: Any, drawn: Any) -> Any:
        found = await method(self, what, share, drawn)
        views[self.me].saw(f"opened: {what} {share.shape}", found)
        views[self.me].saw(f"{what} under the partner's numbers {share.shape}", wide.add(found, drawn))
        return found

    return opened


def _asked(views: Any, method: Any) -> Any:
    async def ask(self: Any, what: str, answerer: str, b: Any, rows: int) -> Any:
        read = await method(self, what, answerer, b, rows)

        async def reading() -> Any:
            found = await read()
            views[self.me].equations.append((b.copy(), found.copy()))
            views[self.me].saw(f"part of {answerer}: {what}", found)
            return found

        return reading

    return ask


def looked_at(
    parties: list[Any], l2: float = 1e-3, kind: Any = cn.LogisticRegression, **options: Any
) -> tuple[dict[str, SealedView], Truth]:
    """Train on shares, and look on at every party."""
    rows = len(parties[0].X)
    views: dict[str, SealedView] = {}
    algorithm = SealedNewton(**options)
    with watching(views, rows):
        kind(l2=l2, algorithm=algorithm, verbose=0).fit(*parties)
    order = np.random.default_rng([algorithm.seed, 0x5EA1]).permutation(rows)
    columns = {party.name: np.asarray(party.X)[order] for party in parties}
    first = next(party for party in parties if party.y is not None)
    y = np.where(np.asarray(first.y)[order] > 0, 1.0, -1.0)
    return views, Truth(columns, y, rows, first.name)


def below_words(key: SecretKey, answer: bytes, count: int, at: Any = None) -> Any:
    """c0 + c1 s of answers without the words in them, in units of a word, from -1/2 to 1/2; by whole numbers alone."""
    parameters = key.lattice.parameters
    bits, n = parameters.answer_bits, parameters.degree
    wanted = n if at is None else len(at)
    limbs, secret = np.empty((n, parameters.answer_limbs), np.uint32), key._key.copy()
    Lattice.of(parameters).backward(secret)
    s = np.fft.rfft(np.concatenate([secret[0, 0], np.zeros(n)]))
    first, second = parameters.answer_words(wanted), parameters.answer_words(n)
    unit = bits - parameters.word_bits
    found = []
    for row in np.frombuffer(answer, "<u4").astype(np.uint32).reshape(count, first + second):
        kernels.unpack_limbs(row[first:], bits, limbs)
        digit = (limbs[:, 0] % (1 << unit)).astype(float)  # what is above a unit stays above it
        cyclic = np.rint(np.fft.irfft(np.fft.rfft(np.concatenate([digit, np.zeros(n)])) * s, 2 * n))
        total = (cyclic[:n] - cyclic[n:]).astype(np.int64)
        kernels.unpack_limbs(row[:first], bits, limbs[:wanted])
        c0 = limbs[:wanted, 0].astype(np.int64)
        found.append((c0 + (total if at is None else total[at])) % (1 << unit))
    return (np.concatenate(found) / 2.0**unit + 0.5) % 1.0 - 0.5


# -- from words to numbers of rows -------------------------------------------------------------------------------------


def centred(words: Any) -> Any:
    """Words of 64 or of 96 bits as real numbers from -1/2 to 1/2."""
    if words.dtype == np.uint64:
        return words.view(np.int64) / 2.0**64
    return (words[..., 2].view(np.int32) * 2.0**32 + words[..., 1]) / 2.0**64


def in_slots(halves: Any, layout: SlotLayout) -> Any:
    """Folded numbers (..., length) as numbers of rows."""
    some = halves.reshape(-1, layout.blocks, SLOTS)
    z = unfolded(some)
    z[..., 0] *= 2.0
    twist = np.exp(1j * np.pi * np.arange(SLOTS) / DEGREE)
    values = np.fft.ifft((z[..., :SLOTS] + 1j * z[..., SLOTS:]) * twist, axis=-1).real.reshape(len(some), -1)
    return values[:, : layout.rows * layout.copies].reshape(len(some), layout.copies, -1).sum(axis=1)


def of_rows(words: Any, rows: int) -> list[Any]:
    """All that an array says of single rows, (count, rows) each; nothing where it is about something else."""
    layout = SlotLayout(rows)
    if words.dtype != np.uint64:
        return [centred(words).reshape(-1, rows)] if words.shape[-2] == rows else []
    if words.shape[-1] == rows:
        turns = centred(words).reshape(-1, rows)
        return [turns, np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)]
    if words.shape[-1] == DEGREE and words.size % (layout.blocks * DEGREE) == 0:
        words = folded(words.reshape(-1, layout.blocks, DEGREE)).reshape(-1, layout.length)
    if words.shape[-1] == layout.length:
        return [in_slots(centred(words), layout)]
    return []


def solved(b: Any, products: Any) -> Any:
    """X (d, n) of b'X = products modulo 2^64, for b (d, T): what nothing but a mask keeps a party from working out."""
    d, rounds = b.shape
    if rounds < d:
        return np.zeros((0, products.shape[1]), np.uint64)
    shift = min(int(x & -x).bit_length() - 1 for x in map(int, b.reshape(-1)) if x)
    left = (b.T >> np.uint64(shift)).copy()
    right = ((products + (np.uint64(1) << np.uint64(shift) >> np.uint64(1))) >> np.uint64(shift)).copy()
    for k in range(d):
        odd = np.flatnonzero(left[k:, k] & np.uint64(1))
        if not len(odd):
            return np.zeros((0, products.shape[1]), np.uint64)
        swap = k + odd[0]
        left[[k, swap]], right[[k, swap]] = left[[swap, k]], right[[swap, k]]
        inverse = np.uint64(pow(int(left[k, k]), -1, 2**64))
        left[k], right[k] = left[k] * inverse, right[k] * inverse
        for other in range(rounds):
            if other != k:
                factor = left[other, k]
                left[other], right[other] = left[other] - factor * left[k], right[other] - factor * right[k]
    return right[:d] << np.uint64(shift)


def combined(view: SealedView) -> Iterator[tuple[str, Any]]:
    """All that a party saw, and sums and differences of every two things of one kind that follow each other."""
    last: dict[str, Any] = {}
    for what, words in view.seen:
        yield what, words
        before = last.get(what)
        if before is not None and before.shape == words.shape:
            narrow = words.dtype == np.uint64
            yield f"change of {what}", words - before if narrow else wide.subtract(words, before)
            yield f"sum of {what}", words + before if narrow else wide.add(words, before)
        last[what] = words
    for b, products in view.equations:
        yield "solution", solved(b, products)


def features(view: SealedView, rows: int) -> Any:
    """Everything as numbers of rows, of spread 1 around 0: (rows, count)."""
    found = [part for _, words in combined(view) if words.size for part in of_rows(words, rows)]
    whole = np.concatenate(found).T if found else np.zeros((rows, 0))
    spread = whole.std(axis=0)
    return (whole - whole.mean(axis=0))[:, spread > 0] / spread[spread > 0]


# -- what can be made of it --------------------------------------------------------------------------------------------


def uneven(view: SealedView) -> list[str]:
    """Which arrays, sums and differences of them are not uniform, nor what is below words."""
    found = []
    for what, words in combined(view):
        if what == "solution" or not words.size:
            continue
        if not words.any() or _p_uniform(centred(words).reshape(-1)) < ALMOST_NEVER:
            found.append(what)
    for what, parts in view.below.items():
        if _p_uniform(np.concatenate(parts)) < ALMOST_NEVER:
            found.append(f"below words of {what}")
    return found


def _p_uniform(values: Any) -> float:
    return float(scipy.stats.kstest(values[:200_000] + 0.5, "uniform").pvalue)


def joined(views: list[SealedView]) -> list[tuple[int, ...]]:
    """Shapes of sums and differences of two things that members of a coalition have, which are not uniform but small.

    Two shares of a number are, whoever has them: what a coalition shares among its own members, it may know. So may it
    know a member's own vector again, from what that one has drawn and told; and a message that went to two of them.
    """
    arrays = [
        (view.me, words)
        for view in views
        for what, words in view.seen
        if words.dtype == np.uint64 and words.size >= 12 and not what.startswith("drawn")
    ]
    for view in views:  # and what lenders handed over about the same thing, added up
        totals: dict[str, Any] = {}
        for what, words in view.seen:
            if what.startswith("share of") and words.dtype == np.uint64 and words.size >= 12:
                about = what.split(": ", maxsplit=1)[1]
                totals[about] = totals[about] + words if about in totals else words
        arrays += [(view.me, total) for total in totals.values()]
    found = set()
    for i, (one, a) in enumerate(arrays):
        for other, b in arrays[i + 1 :]:
            if a.shape != b.shape or (one == other and len(views) > 1) or np.array_equal(a, b):
                continue
            if any(np.abs(centred(both)).max() < 1 / 16 for both in (a + b, a - b)):
                found.add(a.shape)
    return sorted(found)


def findings(view: SealedView, truth: Truth) -> list[str]:
    """What a party finds that it should not, in words; nothing at all if training is sealed."""
    found = [f"not uniform: {what}" for what in uneven(view)]
    numbers = features(view, truth.rows)
    theirs = np.column_stack([X for name, X in truth.columns.items() if name != view.me])
    own = truth.columns[view.me]
    if (most := _largest(numbers, theirs)) > 7 / np.sqrt(truth.rows):
        found.append(f"columns: correlated by {most:.3f}")
    if dimensions := measures.dimensions(numbers[:_SOME], own[:_SOME], theirs[:_SOME]):
        found.append(f"columns: {dimensions} dimensions are determined")
    if numbers.shape[1]:
        floor = measures.with_known_rows([own[:_SOME]], theirs[:_SOME], 15)[0]
        if (best := measures.with_known_rows([numbers[:_SOME]], theirs[:_SOME], 15)[0]) > floor + 0.1:
            found.append(f"columns: R2 of {best:.2f} with 15 known rows")
    if view.me != truth.holder:
        if (most := _largest(numbers, truth.y[:, None])) > 7 / np.sqrt(truth.rows):
            found.append(f"labels: correlated by {most:.3f}")
        if abs((area := label_auc(numbers, truth.y)) - 0.5) > 0.02:
            found.append(f"labels: AUC of {area:.3f}")
    return found


def _largest(numbers: Any, targets: Any) -> float:
    return float(np.sqrt(measures.correlations(numbers, targets).max(initial=0.0)))


def label_auc(numbers: Any, y: Any) -> float:
    """AUC of labels by a ridge regression on everything, each half of the rows by what was fitted on the other."""
    half = len(y) // 2
    score = np.zeros(len(y))
    scaled = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    for fit, test in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
        X = scaled[fit]
        w = np.linalg.solve(X.T @ X + 0.1 * len(X) * np.eye(X.shape[1]), X.T @ (y[fit] - y[fit].mean()))
        score[test] = scaled[test] @ w
    return measures.auc(score, y)
