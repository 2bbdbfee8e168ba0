"""What happened in a run under the virtual clock, kept so that it can be looked at: work, messages, waits, epochs.

No value that a party holds or sends is in it, only who was busy when, and the names and sizes of messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from colonnade import private_files
from colonnade.errors import OptionError, at_least, needed
from colonnade.runtimes.times import Times

MOST = 1_000_000  # entries of a kind that are kept: a page of more of them is too large to be looked at


class Work(NamedTuple):
    """A piece of work of one party."""

    party: str
    lane: str  # "forward" for contributions, "backward" for updates
    start: float
    end: float


class Message(NamedTuple):
    """One message, or one copy of it where a line made two."""

    sender: str
    receiver: str
    step: str
    bytes: int
    sent: float
    arrived: float | None  # None if it never did

    @property
    def last(self) -> float:
        """Return the second at which nothing of it is on the line any more."""
        return self.sent if self.arrived is None else self.arrived


class Wait(NamedTuple):
    """A stretch of time in which a program of a party waited for another party's message."""

    party: str
    sender: str
    step: str
    start: float
    end: float


class EvaluationMark(NamedTuple):
    """An evaluation, at the moment at which its party told of it."""

    at: float
    party: str
    epoch: int
    round: int
    loss: float
    metric: float


class Timeline:
    """Who worked, waited and sent what, from the start of a run to its end; `Simulation(onlooker=...)` fills it.

    Where one call makes several runs, they follow each other.

    Parameters
    ----------
    most : int
        How many entries of each kind are kept.

    Attributes
    ----------
    parties : tuple of str
        The parties, in the order of the run.
    seconds : float
        The virtual second at which the last of them ended.
    work, messages, waits, marks : list
        All that happened, in the order in which it became known.
    ends : dict
        {party: the second at which its program ended}.
    error : str
        Why the run failed; empty if it did not.
    left_out : int
        Entries that were not kept, as there were more than `most` of their kind.
    """

    def __init__(self, *, most: int = MOST) -> None:
        at_least("most", most, 1)
        self.parties: tuple[str, ...] = ()
        self.seconds, self.error, self.left_out = 0.0, "", 0
        self.work: list[Work] = []
        self.messages: list[Message] = []
        self.waits: list[Wait] = []
        self.marks: list[EvaluationMark] = []
        self.ends: dict[str, float] = {}
        self._most, self._start = most, 0.0  # the second at which the last run began
        self._times: dict[str, Times] = {}

    # -- what the virtual clock tells -----------------------------------------------------------------------------

    def begun(self, parties: Sequence[str]) -> None:
        """See `Onlooker.begun`."""
        self.parties += tuple(name for name in parties if name not in self.parties)
        self._start = self.seconds

    def worked(self, party: str, lane: str, start: float, end: float) -> None:
        """See `Onlooker.worked`."""
        self._keep(self.work, Work(party, lane, self._start + start, self._start + end))

    def sent(self, frm: str, to: str, tag: str, size: int, at: float, arrivals: Sequence[float]) -> None:
        """See `Onlooker.sent`."""
        for arrival in arrivals or (None,):
            arrived = None if arrival is None else self._start + arrival
            self._keep(self.messages, Message(frm, to, tag, size, self._start + at, arrived))

    def waited(self, party: str, frm: str, tag: str, since: float, until: float) -> None:
        """See `Onlooker.waited`."""
        self._keep(self.waits, Wait(party, frm, tag, self._start + since, self._start + until))

    def reported(self, party: str, at: float, value: Any) -> None:
        """See `Onlooker.reported`."""
        if isinstance(value, tuple) and len(value) >= 6 and value[0] == "record":
            _, _, epoch, rounds, loss, metric, *_ = value
            self._keep(
                self.marks, EvaluationMark(self._start + at, party, int(epoch), int(rounds), float(loss), float(metric))
            )

    def ended(self, party: str, at: float, times: Times, error: BaseException | None) -> None:
        """See `Onlooker.ended`."""
        before = self._times.get(party, Times())
        self._times[party] = Times(*(a + b for a, b in zip(before.as_value(), times.as_value(), strict=True)))
        self.ends[party] = self._start + at
        self.seconds = max(self.seconds, self._start + at)
        if error is not None and not self.error:
            self.error = str(error)

    def _keep(self, entries: list[Any], entry: Any) -> None:
        if len(entries) < self._most:
            entries.append(entry)
        else:
            self.left_out += 1

    # -- what is asked of it --------------------------------------------------------------------------------------

    @property
    def times(self) -> dict[str, Times]:
        """Return {party: what it did with its time}, as `times_` of the model has it."""
        return dict(self._times)

    @property
    def lost(self) -> list[Message]:
        """Return the messages that never arrived."""
        return [one for one in self.messages if one.arrived is None]

    def between(self, start: float, end: float) -> Timeline:
        """Return what happened from one second to another; what reaches over an end is cut there.

        Parameters
        ----------
        start, end : float
            Seconds of the run; the clock of the part goes on from `start`.

        Returns
        -------
        Timeline
            The part, whose `times` are of the whole run.
        """
        if not 0.0 <= start < end:
            raise OptionError(f"between takes two seconds, 0 <= start < end, got {start!r} and {end!r}")
        part = Timeline(most=self._most)
        part.parties = self.parties
        part.work = [
            one._replace(start=max(one.start, start), end=min(one.end, end))
            for one in self.work
            if one.start < end and one.end > start
        ]
        part.waits = [
            one._replace(start=max(one.start, start), end=min(one.end, end))
            for one in self.waits
            if one.start < end and one.end > start
        ]
        part.messages = [
            one
            for one in self.messages
            if one.sent < end and (one.sent if one.arrived is None else one.arrived) > start
        ]
        part.marks = [one for one in self.marks if start <= one.at <= end]
        part.ends = {party: at for party, at in self.ends.items() if start <= at <= end}
        part.seconds, part.error, part.left_out = min(end, self.seconds), self.error, self.left_out
        part._times = dict(self._times)
        return part

    def sent_by_pair(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return {(sender, receiver): (messages, bytes)}; a message that a line doubled counts twice."""
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for one in self.messages:
            count, size = found.get((one.sender, one.receiver), (0, 0))
            found[one.sender, one.receiver] = (count + 1, size + one.bytes)
        return found

    def waited_for(self) -> dict[tuple[str, str], float]:
        """Return {(who waited, for whom): seconds}; a party that listens to several at once counts for each."""
        found: dict[tuple[str, str], float] = {}
        for one in self.waits:
            key = (one.party, one.sender)
            found[key] = found.get(key, 0.0) + one.end - one.start
        return found

    def frame(self) -> Any:
        """Return everything as a pandas data frame, one row per entry, sorted by its start."""
        pd = needed("pandas", "frame()")

        rows: list[tuple[Any, ...]] = [("work", one.party, "", one.lane, one.start, one.end, 0) for one in self.work]
        rows += [("wait", one.party, one.sender, one.step, one.start, one.end, 0) for one in self.waits]
        rows += [("message", o.sender, o.receiver, o.step, o.sent, o.arrived, o.bytes) for o in self.messages]
        names = ["kind", "party", "other", "step", "start", "end", "bytes"]
        return pd.DataFrame(rows, columns=names).sort_values("start", kind="stable", ignore_index=True)

    # -- how it is shown ------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write it as one HTML page to look around in, by mouse or keys, which needs no network; return its path."""
        from colonnade.timelines.page import page_of

        where = Path(path)
        if not where.absolute().parent.is_dir():
            raise OptionError(f"{str(path)!r} is in a folder that is not there; make it first")
        if where.is_dir():
            raise OptionError(f"{str(path)!r} is a folder; give the name of a file in it")
        private_files.write(where, page_of(self).encode())
        return where

    def __str__(self) -> str:
        from colonnade.timelines.lanes import as_text

        return as_text(self)

    def __repr__(self) -> str:
        what = f"{len(self.parties)} parties, {self.seconds:.6g} s, {len(self.messages):,} messages"
        return f"Timeline({what}{', failed' if self.error else ''})"

    def _repr_html_(self) -> str:
        from colonnade.timelines.drawing import as_figure

        return as_figure(self)
