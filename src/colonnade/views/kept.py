"""A view that is kept: it never gets in the way of the run, is bounded in size, and turns into a wire value and back.

What is kept says who told what about which rows. Ciphertexts, keys and masked numbers say nothing to anybody who looks
on, and only their steps are kept. Rows are kept once, however many observations are about them. Of several trainings in
one run, as a cross-validation has them, only the last one is followed: its steps alone have the names of a run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from colonnade.engine.options import Training
from colonnade.errors import ColonnadeError, DataError
from colonnade.families import NAMES, family
from colonnade.runtimes.net import OWN, TOLD
from colonnade.runtimes.values import encoded_size
from colonnade.views.view import Observation, View

MEGABYTE = 1_000_000
_ASIDE = re.compile(r" in (?:fit|trial) \d+$")  # steps of strands: see `validation.strands`
_SMALL = 1 << 31

P = ParamSpec("P")
T = TypeVar("T")


def _unless_ended(
    method: Callable[Concatenate[KeptView, P], T],
) -> Callable[Concatenate[KeptView, P], T | None]:
    """Look on no longer once the recording has ended; whatever goes wrong ends the recording, and not the run."""

    @wraps(method)
    def guarded(self: KeptView, /, *args: P.args, **options: P.kwargs) -> T | None:
        if self.ended:
            return None
        try:
            return method(self, *args, **options)
        except (ColonnadeError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            self.ended = f"it could not follow the run any more: {error}"
            return None

    return guarded


@dataclass
class KeptView(View):
    """A view of a real run.

    Attributes
    ----------
    most
        The most bytes that it may take.
    size
        How many it takes so far, about.
    ended
        Why it was ended before the run was over; empty if it was not.
    lost
        The step from which on nobody looking on could say which rows numbers are about; empty if everybody could.
    """

    most: int = 512 * MEGABYTE
    size: int = 0
    ended: str = ""
    lost: str = ""
    _counted: set[int] = field(default_factory=set, repr=False)  # rows that count in `size` already

    @_unless_ended
    def saw(self, kind: str, tag: str, party: str, value: Any, rows: Any = None, grain: float = 0.0) -> None:
        """Write one thing down, unless there is no room left for it; then the recording ends."""
        value = _without_bytes(value)
        taken = encoded_size(value) + 64 + self._size_of(rows)
        if self.size + taken > self.most:
            self.ended = f"it reached {self.most / MEGABYTE:g} MB at step {tag!r} (record_mb under [audit])"
            return
        self.size += taken
        super().saw(kind, tag, party, value, rows, grain)

    def _size_of(self, rows: Any) -> int:
        if not isinstance(rows, np.ndarray) or id(rows) in self._counted:
            return 0
        self._counted.add(id(rows))  # the array stays alive with its observation, so its id stays its own
        return 4 * rows.size

    @_unless_ended
    def received(self, frm: str, tag: str, value: Any) -> None:
        """See `View.received`; what trainings beside the run's own are told is not followed."""
        if _ASIDE.search(tag) is None:
            super().received(frm, tag, value)

    @_unless_ended
    def sent(self, to: str, tag: str, value: Any) -> None:
        """See `View.sent`."""
        super().sent(to, tag, value)

    @_unless_ended
    def rows_of(self, tag: str, holder: str, count: int) -> Any:
        """See `View.rows_of`; where the order of a run is not the one that was expected, no rows are named any more."""
        if self.lost:
            return None
        try:
            return super().rows_of(tag, holder, count)
        except DataError:
            self.lost = tag
            return None

    @_unless_ended
    def expects(self, batches: Collection[tuple[str, Any]], epoch: int) -> None:
        """See `View.expects`."""
        super().expects(batches, epoch)

    @_unless_ended
    def expects_whole(self, batches: Collection[tuple[str, Any]], epoch: int) -> None:
        """See `View.expects_whole`."""
        super().expects_whole(batches, epoch)

    @_unless_ended
    def shares_out(self, owned: Mapping[str, Any], rows: int, options: Any) -> None:
        """See `View.shares_out`."""
        super().shares_out(owned, rows, options)


def told_of_each(view: View, people: int, about_rows: Callable[[str], bool]) -> float:
    """Count how many numbers about each person left a party, in its parts of others' sums and its signals.

    That is all of these numbers over all people, as budgets count them. about_rows: whether a step is about people
    where the view names no rows, as it names none that are held out.
    """
    told = [one for one in view.seen if (one.kind == OWN and one.party != view.me) or one.kind == TOLD]
    count = sum(np.size(one.value) for one in told if one.rows is not None or about_rows(one.tag))
    return count / people if people else 0.0


# -- as a wire value -----------------------------------------------------------------------------------------------


class _Rows:
    """Arrays of row numbers, each once; what refers to one names its place."""

    def __init__(self) -> None:
        self.arrays: list[Any] = []
        self._places: dict[bytes, int] = {}

    def put(self, rows: Any) -> Any:
        """Return what stands for rows: nothing, the place of an array, or the same of phases of several rows."""
        if rows is None:
            return None
        if isinstance(rows, list | tuple):
            return tuple((self.put(of), tuple(map(int, place)), int(width)) for of, place, width in rows)
        found = np.asarray(rows)
        if found.dtype.kind not in "iu":
            raise DataError(f"rows are whole numbers, got an array of {found.dtype}")
        small = np.ascontiguousarray(found, dtype=np.int32 if found.max(initial=0) < _SMALL else np.int64)
        digest = hashlib.sha256(small.dtype.char.encode() + small.tobytes()).digest()
        if digest not in self._places:
            self._places[digest] = len(self.arrays)
            self.arrays.append(small)
        return self._places[digest]


def view_to_value(view: View) -> Any:
    """Return a view as a value that the wire could carry; `view_from_value` undoes this."""
    rows = _Rows()
    seen = tuple((one.kind, one.tag, one.party, one.value, rows.put(one.rows), float(one.grain)) for one in view.seen)
    owned = tuple((name, rows.put(of)) for name, of in view.owned.items())
    options = None if view.options is None else view.options.as_value()
    widths = tuple(view.widths.items())
    return (view.me, view.names, int(view.rows), options, owned, widths, tuple(rows.arrays), seen)


def view_from_value(value: Any) -> View:
    """Return the view that `view_to_value` made a value of, or raise `DataError`."""
    try:
        me, names, count, options, owned, widths, arrays, seen = value
        tables = [np.asarray(one, dtype=np.int64) for one in arrays]

        def rows(of: Any) -> Any:
            if of is None:
                return None
            return tables[of] if isinstance(of, int) else [(rows(one), place, width) for one, place, width in of]

        algorithm = None if options is None else _algorithm(*options)
        found = View(me, tuple(names), owned={name: rows(of) for name, of in owned}, rows=count, options=algorithm)
        found.widths = dict(widths)
        found.seen = [
            Observation(kind, tag, party, told, rows(of), grain) for kind, tag, party, told, of, grain in seen
        ]
    except (ColonnadeError, TypeError, ValueError, LookupError, AttributeError) as error:
        raise DataError(f"what was recorded is no view of a run ({error}); record another one") from None
    return found


def _algorithm(name: str, given: Any) -> Training:
    """Return the algorithm that `Training.as_value` described."""
    for kind in NAMES:
        for one in family(kind).algorithms:
            if one.name == name:
                found: Training = one(**dict(given))
                return found
    raise LookupError(f"there is no algorithm {name!r}")


def _without_bytes(value: Any) -> Any:
    """Return a value without the ciphertexts and keys in it, which are bytes; what the wire can't carry as it can."""
    if isinstance(value, bytes | bytearray | memoryview):
        return None
    if isinstance(value, list | tuple):
        return tuple(map(_without_bytes, value))
    return value
