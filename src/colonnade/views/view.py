"""All that one party of a run saw, in order, and which rows each number is about.

A party sees every message that it receives; at the root of a sum, the total less its own part; and what it does itself:
its contributions, its steps, the signals that it sends. Which rows a number is about follows from what is public, which
is who owns which row, the order of batches, and the seed. Messages of a masked sum are uniform and say nothing; one
that does not look uniform is kept as a number that can be read, and so is the difference of two that does not, so that
a mask that is missing or was used before shows.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from colonnade.errors import DataError
from colonnade.runtimes.net import CLEAR, OWN, PASSING, TOLD
from colonnade.views.unmasked import GRAINS, PassingMessages

_ALIKE = {"total": "signal"}  # steps about the same rows as another one
# Numbers of all rows of a holder, in portions where there are many.
_ABOUT_ALL = ("evaluation", "directions", "embeddings to evaluate", "representations to evaluate")


@dataclass(frozen=True)
class Observation:
    """One thing that a party saw.

    Attributes
    ----------
    kind
        One of those in `runtimes.net`: a total, a message, its own part, and so on.
    tag
        The step.
    party
        Who sent it, or whom it was for.
    value
        The numbers, or whatever else it was.
    rows
        The rows that they are about; None where they are about none.
    grain
        What the numbers are rounded to.
    """

    kind: str
    tag: str
    party: str
    value: Any
    rows: Any = None
    grain: float = 0.0


@dataclass
class View:
    """All that one party saw, in order, and what of the job is public; it is the `Watcher` of a recorded run.

    Attributes
    ----------
    me, names
        Who looked, and all parties.
    seen
        What it saw, in order.
    owned
        The rows of each label holder.
    rows
        How many rows are trained on.
    options
        The algorithm with its options; None where nothing was trained.
    widths
        The columns of each party as far as they are known; how many there are is no secret, statistics tell it too.
    phases
        Which angles are to be summed next: (rows, place, width).
    outputs
        How many numbers the last signal had for each row.
    looked_at
        The training rows that evaluations look at; None is all of them.
    """

    me: str
    names: tuple[str, ...]
    seen: list[Observation] = field(default_factory=list)
    owned: dict[str, Any] = field(default_factory=dict)
    rows: int = 0
    options: Any = None
    widths: dict[str, int] = field(default_factory=dict)
    phases: list[tuple[Any, tuple[int, int], int]] = field(default_factory=list)
    outputs: int = 1
    looked_at: Any = None
    _held_out: dict[str, int] = field(default_factory=dict, repr=False)
    _last: dict[str, Any] = field(default_factory=dict, repr=False)
    _done: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int), repr=False)
    _queues: dict[tuple[str, str], deque[Any]] = field(default_factory=lambda: defaultdict(deque), repr=False)
    _passing: PassingMessages = field(default_factory=PassingMessages, repr=False, compare=False)
    _made: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    _first_told: str = field(default="", repr=False, compare=False)  # whom this party tells its signals first

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what follows from what was seen, which is worked out when it is first asked for, and then kept."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def saw(self, kind: str, tag: str, party: str, value: Any, rows: Any = None, grain: float = 0.0) -> None:
        """Write one thing down."""
        self.seen.append(Observation(kind, tag, party, value, rows, grain))

    def of(self, kind: str, *tags: str) -> list[Observation]:
        """Return what was seen of one kind, at steps whose names begin so; at all steps where none is named."""
        return [one for one in self.seen if one.kind == kind and (not tags or one.tag.startswith(tags))]

    # -- what is public: whose rows come when -------------------------------------------------------------------

    def shares_out(self, owned: Mapping[str, Any], rows: int, options: Any) -> None:
        """See `Watcher`; of training and held-out rows, the training rows come first and count."""
        if not self.owned:
            self.owned, self.rows = dict(owned), rows
        elif not self._held_out:
            self._held_out = {holder: len(rows) for holder, rows in owned.items()}
        self.options = options

    def looks_at(self, rows: Any) -> None:
        """See `Watcher`."""
        self.looked_at = rows

    def about(self, tag: str, holder: str, rows: Any) -> None:
        """See `Watcher`."""
        self._queues[tag, holder] = deque([rows])

    def turns_to(self, phases: Collection[tuple[Any, tuple[int, int], int]]) -> None:
        """See `Watcher`."""
        self.phases = list(phases)

    def expects(self, batches: Collection[tuple[str, Any]], epoch: int) -> None:
        """The order of an epoch is known: which rows the next sums and signals of each holder are about."""
        repeats = max(1, len(self.names) - 1) if getattr(self.options, "order", "") == "sequential" else 1
        for holder, rows in batches:
            self._queues["scores", holder].extend([rows] * repeats)
            self._queues["signal", holder].append(rows)
            for name in self.names:
                for step in ("embeddings", "representations"):
                    self._queues[step, name].append(rows)

    def expects_whole(self, batches: Collection[tuple[str, Any]], epoch: int) -> None:
        """A snapshot of all rows comes before the batches that follow it."""
        for holder, rows in batches:
            self._queues["snapshot", holder].append(rows)
            self._queues["signal", holder].append(rows)

    def rows_of(self, tag: str, holder: str, count: int) -> Any:
        """Return the rows that `count` numbers of a step are about, where it is about rows."""
        if tag == "phases" or tag.startswith("phases for "):
            told, self.phases = self.phases, []  # by `turns_to`
            return told
        step = tag.split(" for ", maxsplit=1)[0]
        step = _ALIKE.get(step, step)
        queue = self._queues.get((step, holder))
        if step == "curvatures":  # they come behind the signal of the same rows
            rows = self._last.get(holder, np.arange(count))
        elif queue:
            rows = queue.popleft()
        elif step in _ABOUT_ALL:
            return self._portion(step, holder, count)
        elif step == "signal":
            rows = self.owned.get(holder, np.arange(count))
        elif step in ("prediction", "embeddings to predict"):
            rows = np.arange(count)
        else:
            return None
        if count and count != len(rows):
            raise DataError(f"{count} numbers of {holder!r} at {tag!r} are about {len(rows)} rows, but which")
        if step == "signal":
            self._last[holder] = rows
        return rows

    def _portion(self, step: str, holder: str, count: int) -> Any:
        """Return the rows of the next portion of a sum over all rows, training rows first; None of held-out rows.

        Directions have the scores of a row one below the other, where it has several.
        """
        rows = self.owned.get(holder, np.arange(self.rows or count))  # of embeddings the holder is who made them
        if self.looked_at is not None:
            rows = rows[np.isin(rows, self.looked_at)]
        each = self.outputs if step == "directions" else 1
        apart = self._held_out.get(holder, 0) if holder in self.owned else sum(self._held_out.values())
        train, held_out = len(rows) * each, apart * each
        at = self._done[step, holder]
        end = at + count
        if end > train + held_out or at < train < end:
            raise DataError(f"{count} numbers of {holder!r} at {step!r} are about {len(rows)} rows, but which")
        self._done[step, holder] = end % (train + held_out) if train + held_out else 0
        return np.repeat(rows, each)[at:end] if end <= train else None

    # -- messages -----------------------------------------------------------------------------------------------

    def received(self, frm: str, tag: str, value: Any) -> None:
        """Take down a message, unless it is uniform, as a masked one is."""
        if isinstance(value, np.ndarray) and value.dtype in GRAINS:
            rows = self._last_rows(tag, len(value))
            if not tag.startswith("phases") and (shown := self._passing.shown(frm, tag, value, rows)) is not None:
                self.saw(PASSING, tag, frm, *shown, GRAINS[value.dtype])
            return
        numbers, grain = opened(value)
        readable = isinstance(numbers, np.ndarray) and numbers.dtype.kind == "f" and numbers.ndim
        if readable and tag == "signal":
            self.outputs = numbers.size // max(1, len(numbers))
        self.saw(CLEAR, tag, frm, numbers, self.rows_of(tag, frm, len(numbers)) if readable else None, grain)

    def sent(self, to: str, tag: str, value: Any) -> None:
        """Take down a signal that leaves, once, though it leaves for everybody."""
        self._first_told = self._first_told or (to if tag == "signal" else "")
        if tag == "signal" and to == self._first_told:
            numbers, grain = opened(value)
            self.outputs = numbers.size // max(1, len(numbers))
            self.saw(TOLD, tag, to, numbers, self.rows_of(tag, self.me, len(numbers)), grain)

    def _last_rows(self, tag: str, count: int) -> Any:
        """Return the rows of the sum that is under way: those of this party's own part of it."""
        own = [one for one in self.seen[-64:] if one.kind == OWN and one.tag == tag and len(one.value) == count]
        return own[-1].rows if own else None


def opened(value: Any) -> tuple[Any, float]:
    """Return (numbers, what they are rounded to); block Newton's signals are a unit and short numbers."""
    if type(value) is tuple and len(value) == 2 and isinstance(value[1], np.ndarray) and type(value[0]) is float:
        unit, short = value
        return short.astype(np.float64) * unit, unit if short.dtype.kind == "i" else 2.0**-24
    return value, 0.0
