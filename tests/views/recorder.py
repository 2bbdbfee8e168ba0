"""A runtime that writes down, from outside, all that each party of a run gets to see.

A party sees: every message that it receives; at the root of a sum, the total less its own part; and what it does itself
(its contributions, its steps, the signals that it sends). Which rows a number is about follows from what is public: who
owns which rows, the order of batches, the seed. Messages of a masked sum are uniform and say nothing; one that does not
look uniform is kept as a number that can be read, so that a missing mask is seen here.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

import colonnade as cn
from colonnade.engine.encrypted import EncryptedSignals
from colonnade.engine.encrypted_shares import EncryptedShares
from colonnade.engine.kernel_session import Exchange
from colonnade.engine.session import Session
from colonnade.engine.stopping import Stopping
from colonnade.flows.updates import larger
from colonnade.inference.correlations import Correlations
from colonnade.sums.base import SecureSum

# Kinds of what is seen.
TOTAL, CLEAR, PASSING, OWN, TOLD, DID = "total less own part", "message", "not masked", "own part", "told", "did"
# A uniform number lies in this part of its ring by chance once in 2^3 times, sixteen of them together once in 2^48.
_NARROW, _ENOUGH = 3, 16
_GRAINS = {np.dtype(np.uint64): 2.0**-36, np.dtype(np.uint32): 2.0**-20}


@dataclass(frozen=True)
class Seen:
    """One thing that a party saw: what kind, at which step, from whom, the numbers, and the rows they are about."""

    kind: str
    tag: str
    sender: str
    value: Any
    rows: Any = None
    grain: float = 0.0  # what the numbers are rounded to


@dataclass
class View:
    """All that one party saw, in order, and what of the job is public."""

    me: str
    names: tuple[str, ...]
    seen: list[Seen] = field(default_factory=list)
    owned: dict[str, Any] = field(default_factory=dict)  # rows of each label holder
    rows: int = 0
    options: Any = None
    widths: dict[str, int] = field(default_factory=dict)  # columns of each party: no secret, statistics tell them too
    phases: list[tuple[Any, tuple[int, int], int]] = field(default_factory=list)  # (rows, place, width) to be summed
    _queues: dict[tuple[str, str], deque[Any]] = field(default_factory=lambda: defaultdict(deque))

    def saw(self, kind: str, tag: str, sender: str, value: Any, rows: Any = None, grain: float = 0.0) -> None:
        """Write it down."""
        self.seen.append(Seen(kind, tag, sender, value, rows, grain))

    def of(self, kind: str, *tags: str) -> list[Seen]:
        """What was seen of one kind, at steps whose names begin so; at all steps where none is named."""
        return [one for one in self.seen if one.kind == kind and (not tags or one.tag.startswith(tags))]

    def expect(self, batches: Sequence[tuple[str, Any]], epoch: int) -> None:
        """The order of an epoch is known: which rows the next sums and signals of each holder are about."""
        repeats = max(1, len(self.names) - 1) if getattr(self.options, "order", "") == "sequential" else 1
        for holder, rows in batches:
            self._queues["scores", holder].extend([rows] * repeats)
            self._queues["signal", holder].append(rows)
            for name in self.names:
                self._queues["embeddings", name].append(rows)

    def expect_snapshot(self, batches: Sequence[tuple[str, Any]], epoch: int) -> None:
        """SVRG's pass over all rows comes before the batches of its epoch."""
        if getattr(self.options, "estimator", "") == "svrg" and epoch % self.options.snapshot_every == 0:
            for holder, rows in larger(batches):
                self._queues["snapshot", holder].append(rows)
                self._queues["signal", holder].append(rows)

    def rows_of(self, tag: str, holder: str, count: int) -> Any:
        """The rows that `count` numbers of a step are about, where it is about rows."""
        step = tag.split(" for ", maxsplit=1)[0]
        step = {"total": "signal", "curvatures": "signal"}.get(step, step)
        queue = self._queues.get((step, holder))
        if queue:
            rows = queue.popleft()
        elif step in ("evaluation", "directions", "signal"):
            rows = self.owned.get(holder, np.arange(count))
        elif step in ("prediction", "embeddings to evaluate", "embeddings to predict"):
            rows = np.arange(count)
        else:
            return None
        if count and count != len(rows):
            raise AssertionError(f"{count} numbers of {holder!r} at {tag!r} are about {len(rows)} rows, but which")
        return rows


class Tap:
    """A party's net that writes down what arrives, and signals that leave."""

    def __init__(self, net: Any, view: View) -> None:
        self._net, self.view = net, view

    def __getattr__(self, name: str) -> Any:
        return getattr(self._net, name)

    async def recv(self, frm: str, tag: str, *, patient: bool = False) -> Any:
        value = await self._net.recv(frm, tag, patient=patient)
        self._received(frm, tag, value)
        return value

    async def recv_within(self, frm: str, tag: str, seconds: float) -> Any:
        found = await self._net.recv_within(frm, tag, seconds)
        for value in found:
            self._received(frm, tag, value)
        return found

    async def send(self, to: str, tag: str, value: Any) -> None:
        first = next(name for name in self.view.names if name != self.view.me)
        if tag == "signal" and to == first:
            numbers, grain = opened(value)
            self.view.saw(TOLD, tag, to, numbers, self.view.rows_of(tag, self.view.me, len(numbers)), grain)
        await self._net.send(to, tag, value)

    def _received(self, frm: str, tag: str, value: Any) -> None:
        view = self.view
        if isinstance(value, np.ndarray) and value.dtype in _GRAINS:
            shift = 8 * value.dtype.itemsize - _NARROW
            top = (value + (value.dtype.type(1) << value.dtype.type(shift - 1))) >> value.dtype.type(shift)
            if value.size >= _ENOUGH and not top.any() and tag != "phases":
                signed = value.view(np.int64 if value.dtype == np.uint64 else np.int32)
                grain = _GRAINS[value.dtype]
                view.saw(PASSING, tag, frm, signed * grain, _last_rows(view, tag, len(value)), grain)
            return
        numbers, grain = opened(value)
        readable = isinstance(numbers, np.ndarray) and numbers.dtype.kind == "f" and numbers.ndim
        rows = view.rows_of(tag, frm, len(numbers)) if readable else None
        view.saw(CLEAR, tag, frm, numbers, rows, grain)


def _last_rows(view: View, tag: str, count: int) -> Any:
    """The rows of the sum that is under way: those of this party's own part of it."""
    own = [one for one in view.seen[-64:] if one.kind == OWN and one.tag == tag and len(one.value) == count]
    return own[-1].rows if own else None


def opened(value: Any) -> tuple[Any, float]:
    """(numbers, what they are rounded to); block Newton's signals are a unit and short numbers."""
    if type(value) is tuple and len(value) == 2 and isinstance(value[1], np.ndarray) and type(value[0]) is float:
        unit, short = value
        return short.astype(np.float64) * unit, unit if short.dtype.kind == "i" else 2.0**-24
    return value, 0.0


class Recording:
    """A runtime around another one; `views` says what each party saw in all runs so far."""

    def __init__(self, inner: Any = None) -> None:
        self.inner, self.views = inner or cn.Simulation(), dict[str, View]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def run(self, programs: Any, observer: Any = None, spare: Any = ()) -> Any:
        """Run, and listen."""
        names = tuple(programs)
        for name in names:
            self.views.setdefault(name, View(name, names))
        tapped = {name: (_tapped(program, self.views[name]), args) for name, (program, args) in programs.items()}
        with listening():
            return self.inner.run(tapped, observer, spare)


def _tapped(program: Any, view: View) -> Any:
    async def run(net: Any, *args: Any) -> Any:
        return await program(Tap(net, view), *args)

    return run


@contextmanager
def listening() -> Iterator[None]:
    """Sums, and the few places where a party learns which rows it is about, tell the view of their net."""
    with ExitStack() as stack:
        # Elements are shares: what the root makes of them is noted where it knows it, in `_shared_total`.
        for name in [name for name in vars(SecureSum) if name.startswith("total") and name != "total_elements"]:
            stack.enter_context(mock.patch.object(SecureSum, name, _total(getattr(SecureSum, name), name)))
        for kind, name, told in _PLACES:
            stack.enter_context(mock.patch.object(kind, name, told(getattr(kind, name))))
        yield


def _total(method: Any, name: str) -> Any:
    async def total(self: SecureSum, tag: str, value: Any, root: str, *hidden: Any, **more: Any) -> Any:
        view = getattr(self.net, "view", None)
        if view is None:
            return await method(self, tag, value, root, *hidden, **more)
        grain = {"total": self.ring.grain, "total_narrow": self.narrow.grain}.get(name, 0.0)
        rows = view.phases[:] if name == "total_phases" else view.rows_of(tag, root, len(value))
        view.phases.clear()
        view.saw(OWN, tag, root, value, rows, grain)
        found = await method(self, tag, value, root, *hidden, **more)
        if found is not None:
            view.saw(TOTAL, tag, "all others", found - value, rows, grain)
        return found

    return total


def _shared_total(method: Any) -> Any:
    async def total(self: EncryptedShares, tag: str, mine: Any, *made: Any) -> Any:
        view, root = self.session.net.view, self.session.net.me
        rows, grain = view.rows_of(tag, root, len(mine)), self.session.sum.ring.grain
        view.saw(OWN, tag, root, mine, rows, grain)
        found = await method(self, tag, mine, *made)
        view.saw(TOTAL, tag, "all others", found - mine, rows, grain)
        return found

    return total


def _shared_out(method: Any) -> Any:
    async def share_out(self: Session, part: Any) -> None:
        await method(self, part)
        view = self.net.view
        view.owned, view.rows, view.options = dict(part.owned), part.rows, self.options

    return share_out


def _batches(method: Any) -> Any:
    def batches(self: Session, epoch: int) -> Any:
        found = list(method(self, epoch))
        self.net.view.expect(found, epoch)
        return iter(found)

    return batches


def _whole_pass(method: Any) -> Any:
    def whole_pass(self: Session, epoch: int) -> Any:
        found = method(self, epoch)
        self.net.view.expect_snapshot(found, epoch)
        return found

    return whole_pass


def _noted(tag: str) -> Callable[[Any], Any]:
    """What a party decides for itself, from public numbers: its step sizes, and what follows from a verdict."""

    def wrap(method: Any) -> Any:
        def noted(self: Session | Stopping, *args: Any) -> Any:
            found = method(self, *args)
            self.net.view.saw(DID, tag, self.net.me, found if tag == "eta" else args)
            return found

        return noted

    return wrap


def _phases(method: Any) -> Any:
    async def get(self: Exchange, part: Any, rows: Any, owner: str, pieces: Any, beside: Any, lane: Any) -> None:
        spans = [self.layout.span(owner, piece.number) for piece in pieces]
        index = self.layout.owners.index(owner)
        self.net.view.phases[:] = [
            (rows[piece.rows], (index, piece.number), span.stop - span.start)
            for piece, span in zip(pieces, spans, strict=True)
        ]
        await method(self, part, rows, owner, pieces, beside, lane)

    return get


def _gradients(method: Any) -> Any:
    async def take(self: EncryptedSignals, holder: str, rows: Any) -> Any:
        found = await method(self, holder, rows)
        self.session.net.view.saw(CLEAR, "own gradient", holder, found, rows)
        return found

    return take


def _given(method: Any) -> Any:
    async def give(self: EncryptedSignals, signal: Any, rows: Any, to: Any) -> None:
        self.session.net.view.saw(TOLD, "signal", "all others", signal, rows)
        await method(self, signal, rows, to)

    return give


def _products(method: Any) -> Any:
    async def matrix(self: Correlations, columns: Any) -> Any:
        self._net.view.saw(OWN, "correlations", self._net.me, columns)
        found = await method(self, columns)
        if found is not None:
            self._net.view.saw(TOTAL, "correlations", "all others", found)
        return found

    return matrix


_PLACES: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
    (Session, "share_out", _shared_out),
    (Session, "batches", _batches),
    (Session, "whole_pass", _whole_pass),
    (Session, "eta", _noted("eta")),
    (Stopping, "heed", _noted("heed")),
    (Exchange, "_get", _phases),
    (EncryptedSignals, "take", _gradients),
    (EncryptedSignals, "give", _given),
    (EncryptedShares, "total", _shared_total),
    (Correlations, "matrix", _products),
)
