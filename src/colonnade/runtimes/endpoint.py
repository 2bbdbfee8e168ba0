"""One party's end of every link: mailboxes, deadlines, and how a failure reaches everybody.

Shared by all runtimes; a runtime only moves frames and owns the clock. What a program gets from this:

- messages of one link arrive once and in order, even where the line duplicates or reorders them;
- every wait ends: with a message, or with an error that names the party and the step;
- a party that fails tells the others at once; one that falls silent is found by asking along all chains of waits
  (X waits for Y, who waits for Z: a probe travels X -> Y -> Z, everyone alive answers X, so X names Z and not Y).
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import deque
from collections.abc import Collection, Iterable
from typing import Any, ClassVar

from colonnade.errors import (
    ColonnadeError,
    InboxFull,
    OptionError,
    PartyFailed,
    PartySilent,
    ProtocolError,
    RunFailed,
)
from colonnade.runtimes.frames import (
    ABORT,
    ALIVE,
    ANY_SIZE,
    BYE,
    DATA,
    FRAME_OVERHEAD,
    LONG,
    MAX_MESSAGE,
    MAX_TAG,
    MOVING,
    PROBE,
)
from colonnade.runtimes.mailboxes import NOTHING, Inbox, OpenWait, Waits
from colonnade.runtimes.net import Doorkeeper, Observer, Promise, Traffic, Watcher
from colonnade.runtimes.wire import Value, encoded_size

# A wait is probed after this part of the deadline and given up after that one; checks come every twentieth,
# so that a run ends *within* its deadline. Whoever was too busy to probe in time still waits that long for the answers.
_PROBE_AT, GIVE_UP_AT, _ANSWER_IN, CHECKS_PER_DEADLINE = 0.70, 0.90, 0.10, 20

# The part of the deadline after which a message of a party that a run does without is taken for lost.
_LOST_AFTER = 1 / 20

# What a party did, as the others are told: never more than this and the names of a party and a step.
SILENT, DIED, ENDED, MALFORMED = "was silent at", "died at", "ended its program before", "sent a malformed message at"
STOPPED, CROWDED = "was stopped by its owner at", "sent more than may wait at"

# Frames between endpoints hold names of parties and steps and a few words, for as many waits as a party may have.
_MOST_TEXTS, _LONGEST_TEXT, _DIGITS = 1 << 13, 256, 19
# Questions of one party that are answered in a fortieth of the deadline; each answer is as good for all that it asked.
_ANSWERS, _ANSWERS_WITHIN = 64, 1 / 40


class Endpoint:
    """The part of a `Net` that is the same everywhere; a runtime adds the line, the clock, `spawn` and `work`."""

    # What a line brings in its order has no gaps: a frame that comes too early is no honest party's.
    in_order: ClassVar[bool] = True
    # Where all parties are one user's, only its memory bounds what waits for a program.
    bounded: ClassVar[bool] = True
    # Only a net around this one, `audit.recording`, has somebody who looks on.
    watcher: ClassVar[Watcher | None] = None

    def __init__(
        self, me: str, names: tuple[str, ...], deadline: float, observer: Observer | None, started: float
    ) -> None:
        self.me, self.names, self.deadline = me, names, deadline
        self.traffic = Traffic()
        self.door: Doorkeeper | None = None
        self.step = "start"
        self.rehearsed: str | None = None  # what secrets are made of where a run is to be repeated
        self._observer, self._started = observer, started
        self._inbox = Inbox(names, bounded=self.bounded)
        self.longest = MAX_MESSAGE if self.bounded else ANY_SIZE  # message that is sent and taken
        # When a piece of a long message last came from each, and at all; how many pieces this party has moved, and what
        # the others say of themselves: when, how many, and how many of these a wait has counted.
        self._moved_at: dict[str, float] = {}
        self._moved_last, self.moved = -math.inf, 0
        self._movers: dict[str, tuple[float, int, int]] = {}
        self._waiting = Waits()
        self._next_out = dict.fromkeys(names, 0)
        self._next_in = dict.fromkeys(names, 0)
        self._held: dict[str, dict[int, tuple[int, str, Any]]] = {name: {} for name in names}
        # when it answered, its own step, then whom it waits for and at which step, for all its waits
        self._alive: dict[str, tuple[Any, ...]] = {}
        self._probes = 0
        self._answered: dict[str, deque[tuple[str, float]]] = {}  # the last questions of each party, and when
        self._gone: set[str] = set()
        self._spared: set[str] = set()
        self._gaps: dict[str, tuple[int, float]] = {}  # of those: the frame that is missing, and since when
        self.broken: RunFailed | None = None

    # -- what a runtime adds ------------------------------------------------------------------------------------

    def _transmit(self, to: str, kind: int, seq: int, tag: str, value: Value) -> int:
        """Put one frame on the line and return its size in bytes."""
        raise TypeError("a runtime's endpoint must move frames")

    def promise(self) -> Promise:
        """See `Net.promise`."""
        raise TypeError("a runtime's endpoint must make promises")

    def _now(self) -> float:
        raise TypeError("a runtime's endpoint must own a clock")

    def _eased(self, frm: str) -> None:
        """The program took something that had waited; a runtime may let the sender know."""

    def _awaits(self, frm: str) -> None:
        """The program begins to wait for a party; a runtime may let it know."""

    # -- the door -----------------------------------------------------------------------------------------------

    def _emit(self, to: str, kind: int, seq: int, tag: str, value: Value) -> None:
        # Everything that leaves a party passes here, control frames too.
        if self.door is not None:
            size = FRAME_OVERHEAD + len(tag.encode()) + encoded_size(value)
            self.door.open_for(to, tag, value, size, self.traffic.rounds, control=kind not in (DATA, LONG))
        self.traffic.out(tag, self._transmit(to, kind, seq, tag, value))

    async def send(self, to: str, tag: str, value: Value) -> None:
        """See `Net.send`."""
        self._may_send(to, tag)
        self._emit(to, DATA, self._next_out[to], tag, value)
        self._next_out[to] += 1  # only now: a value that was refused leaves no gap

    def _may_send(self, to: str, tag: str) -> None:
        """Refuse what can't be sent, whatever it is; else the step begins."""
        if self.broken is not None:
            raise self.broken
        if to not in self._next_out or to == self.me:
            others = ", ".join(repr(name) for name in self.names if name != self.me)
            raise OptionError(f"{self.me!r} can't send {tag!r} to {to!r}; the other parties are {others}")
        if len(tag) > MAX_TAG:
            raise OptionError(f"the name of a step has at most {MAX_TAG} characters, got {len(tag)} in {tag!r}")
        self.step = tag

    async def recv(self, frm: str, tag: str, *, patient: bool = False) -> Any:
        """See `Net.recv`."""
        self.step = tag
        if self._inbox.boxes.get((frm, tag)):
            return self._kept(frm, tag)
        if self.broken is not None:
            raise self.broken
        if frm not in self._next_in or frm == self.me:
            raise OptionError(f"{self.me!r} can't wait for {tag!r} from {frm!r}, which is no other party of this run")
        if frm in self._gone:
            self.break_off(error := self._ended(frm, tag), ENDED)
            raise error
        wait = self._waiting.begin(frm, tag, self.promise(), self._now(), patient=patient)
        self._awaits(frm)
        return await wait.promise

    async def fetch(self, frm: str, tag: str) -> Any:
        """See `Net.fetch`."""
        return await self.recv(frm, tag)

    def heard(self, frm: str, tag: str, value: Any) -> Any:
        """See `Net.heard`; nobody looks on here."""
        return value

    async def recv_within(self, frm: str, tag: str, seconds: float) -> tuple[Any, ...]:
        """See `Net.recv_within`."""
        self.step = tag
        if self._inbox.boxes.get((frm, tag)):
            return (self._kept(frm, tag),)
        if self.broken is not None:
            raise self.broken
        if frm in self._gone or seconds <= 0:
            return ()
        wait = self._waiting.begin(frm, tag, self.promise(), self._now(), patient=True, until=self._now() + seconds)
        self._awaits(frm)
        value = await wait.promise
        return () if value is NOTHING else (value,)

    def _kept(self, frm: str, tag: str) -> Any:
        value = self._inbox.take(frm, tag)
        self._eased(frm)
        return value

    def spare(self, names: Collection[str]) -> None:
        """See `Net.spare`."""
        self._spared |= set(names)

    def ended(self, name: str) -> bool:
        """See `Net.ended`."""
        return name in self._gone

    def make_room(self, longest: int) -> None:
        """Send and take messages of at most so many bytes."""
        self.longest = longest
        self._inbox.make_room(max(0, longest - MAX_MESSAGE))

    def report(self, value: Value) -> None:
        """See `Net.report`."""
        if self._observer is not None:
            self._observer(self.me, self.elapsed(), value)

    def elapsed(self) -> float:
        """See `Net.elapsed`."""
        return self._now() - self._started

    def secret(self, purpose: str) -> bytes:
        """See `Net.secret`."""
        if self.rehearsed is None:
            return os.urandom(32)
        return hashlib.sha256(repr((self.rehearsed, self.me, purpose)).encode()).digest()

    # -- what arrives -------------------------------------------------------------------------------------------

    def deliver(self, frm: str, kind: int, seq: int, tag: str, value: Any) -> None:
        """Take one frame off the line; what no honest party sends is a ProtocolError."""
        if kind in (DATA, BYE):
            held = self._held[frm]
            if kind == DATA and seq == self._next_in[frm] and not held:  # as nearly always
                self._next_in[frm] = seq + 1
                self._accept(frm, tag, value)
            elif seq >= self._next_in[frm]:  # else a duplicate
                if self.in_order and seq > self._next_in[frm]:
                    raise ProtocolError(f"frame {seq} came, though frame {self._next_in[frm]} is still to come")
                held[seq] = (kind, tag, value)
                self._accept_held(frm)
        else:
            words = type(value) is tuple and len(value) <= _MOST_TEXTS
            words = words and all(type(text) is str and len(text) <= _LONGEST_TEXT for text in value)
            self._control(frm, kind, value if words else ())

    def _accept_held(self, frm: str) -> None:
        """Take the frames that were held and are next now."""
        while (frame := self._held[frm].pop(self._next_in[frm], None)) is not None:
            self._next_in[frm] += 1
            if frame[0] == DATA:
                self._accept(frm, frame[1], frame[2])
            else:
                self.peer_ended(frm)

    def _skip_lost(self) -> None:
        """Give up a message of a party that is spared, once others of it have waited for a while behind the gap."""
        for frm in self._spared & set(self._held):
            if not self._held[frm]:
                self._gaps.pop(frm, None)
                continue
            first, since = self._gaps.get(frm, (-1, 0.0))
            if first != self._next_in[frm]:
                self._gaps[frm] = (self._next_in[frm], self._now())
            elif self._now() - since >= _LOST_AFTER * self.deadline:
                del self._gaps[frm]
                self._next_in[frm] = min(self._held[frm])
                self._accept_held(frm)

    def _control(self, frm: str, kind: int, texts: tuple[str, ...]) -> None:
        # Frames between endpoints carry only names of parties and steps.
        if kind == ABORT and len(texts) == 4 and texts[0] in self.names:
            self._hear_abort(*texts)
        elif kind == PROBE and len(texts) == 2 and texts[0] in self.others():
            self._answer_probe(*texts)
        elif kind == ALIVE and len(texts) % 2 == 1 and set(texts[1::2]) <= set(self.names):
            self._alive[frm] = (self._now(), *texts)
        elif kind == MOVING and len(texts) == 1 and texts[0].isdecimal() and len(texts[0]) < _DIGITS:
            self._movers[frm] = (self._now(), int(texts[0]), self._movers.get(frm, (0.0, 0, 0))[2])
        else:
            raise ProtocolError(f"a frame of kind {kind} that no party sends")

    def _accept(self, frm: str, tag: str, value: Any) -> None:
        if not self._waiting.hand(frm, tag, value):
            self._inbox.put(frm, tag, value)

    def peer_ended(self, frm: str) -> None:
        """A party finished its program: whoever still waits for it waits for nothing."""
        self._gone.add(frm)
        self._waiting.end(lambda sender, wait: sender == frm and wait.until is not None)
        if (tag := self._waiting.step_of(frm)) is not None:
            self.break_off(self._ended(frm, tag), ENDED)

    def peer_lost(self, frm: str) -> None:
        """The line to a party broke without a goodbye: its process died."""
        if frm in self._spared:
            self._gone.add(frm)
            self._waiting.end(lambda sender, wait: sender == frm and wait.until is not None)
        elif frm not in self._gone:
            step = self._step_awaited(frm)
            self.break_off(PartyFailed(f"party {frm!r} {DIED} step {step!r}{self._round()}", frm, step), DIED)

    def _ended(self, frm: str, tag: str) -> RunFailed:
        return PartyFailed(f"party {frm!r} {ENDED} step {tag!r}{self._round()}, which {self.me!r} waits for", frm, tag)

    # -- failure ------------------------------------------------------------------------------------------------

    def others(self) -> Iterable[str]:
        """All parties but this one."""
        return (name for name in self.names if name != self.me)

    def goodbye(self) -> None:
        """This party's program is done."""
        for name in self.others():
            self._emit(name, BYE, self._next_out[name], "goodbye", None)  # in its turn: it overtakes no message

    def fail(self, error: BaseException, what: str = "") -> None:
        """This party's program raised: tell the others who failed and where, never what was in the data."""
        if isinstance(error, RunFailed) and self.broken is error:
            return  # heard from another party, or already told
        self.broken = PartyFailed(f"party {self.me!r} failed at step {self.step!r}", self.me, self.step)
        self._tell(self.me, self.step, what or f"failed with {type(error).__name__} at", self.me)

    def break_off(self, error: RunFailed, what: str) -> None:
        """End every wait of this party with `error`, and tell the others."""
        if self.broken is None:
            self.broken = error
            self._tell(error.party, error.step, what, self.me)
            self._fail_waits()

    def distrust(self, frm: str, error: ProtocolError) -> None:
        """Not an honest party's message: name the sender; the line shall bring nothing more from it."""
        what = CROWDED if isinstance(error, InboxFull) else MALFORMED
        self.break_off(PartyFailed(f"party {frm!r} {what} step {self.step!r}: {error}", frm, self.step), what)

    def _tell(self, culprit: str, step: str, what: str, finder: str) -> None:
        for name in self.others():
            if name not in self._gone:
                self._emit(name, ABORT, 0, "abort", (culprit, step, what, finder))

    def _hear_abort(self, culprit: str, step: str, what: str, finder: str) -> None:
        if self.broken is not None:
            return
        found = "" if finder == culprit else f" (as {finder!r} found)"
        kind = PartySilent if what == SILENT else PartyFailed
        self.broken = kind(f"party {culprit!r} {what} step {step!r}{found}", culprit, step)
        # Passed on: this party ends now too, and nobody shall take the end of its line for the cause.
        self._tell(culprit, step, what, finder)
        self._fail_waits()

    def _fail_waits(self) -> None:
        self._waiting.fail(self.broken or ColonnadeError("the run was broken off"))

    # -- deadlines ----------------------------------------------------------------------------------------------

    def check_deadlines(self) -> None:
        """Called by the runtime CHECKS_PER_DEADLINE times per deadline."""
        now = self._now()
        self._skip_lost()
        self._waiting.end(lambda _, wait: wait.until is not None and now >= wait.until)
        for (frm, tag), waits in list(self._waiting.open.items()):
            for wait in waits:
                since = max(wait.since, self._moved_at.get(frm, wait.since))  # what moves is not silent
                waited = 0.0 if wait.patient else (now - since) / self.deadline
                if waited < _PROBE_AT:
                    wait.probed = None
                if wait.probed is None:
                    if waited >= _PROBE_AT:
                        wait.probed = now
                        self._probes += 1
                        # To all that it waits for: a younger wait may be for the one who is silent.
                        for name in dict.fromkeys((frm, *(awaited for _, awaited, _ in self._waiting.oldest()))):
                            self._emit(name, PROBE, 0, "probe", (self.me, str(self._probes)))
                elif waited >= GIVE_UP_AT and now - wait.probed >= _ANSWER_IN * self.deadline:
                    self._give_up(frm, tag, wait)
                    return

    def _answer_probe(self, origin: str, number: str) -> None:
        """Say to the one who asks what this party waits for, and pass the question on to those it waits for, once."""
        answered = self._answered.setdefault(origin, deque(maxlen=_ANSWERS))
        lately = self._now() - _ANSWERS_WITHIN * self.deadline
        if any(number == known for known, _ in answered) or (len(answered) == _ANSWERS and answered[0][1] > lately):
            return
        answered.append((number, self._now()))
        waits = self._waiting.oldest()
        self._emit(origin, ALIVE, 0, "alive", (self.step, *(text for _, *wait in waits for text in wait)))
        if self._now() - self._moved_last < GIVE_UP_AT * self.deadline:
            self._emit(origin, MOVING, 0, "moving", (str(self.moved),))
        for name in dict.fromkeys(name for _, name, _ in waits if name != origin):
            self._emit(name, PROBE, 0, "probe", (origin, number))

    def _moves_on(self, name: str, wait: OpenWait, probed: float) -> bool:
        """Whether a party that seems to be silent moves a long message; it is not believed for ever."""
        when, moved, counted = self._movers.get(name, (-math.inf, 0, 0))
        if when < probed or moved <= counted or wait.extended > self.longest >> 20:
            return False
        self._movers[name] = (when, moved, moved)
        wait.since, wait.probed, wait.extended = self._now(), None, wait.extended + 1
        return True

    def _give_up(self, frm: str, tag: str, wait: OpenWait) -> None:
        probed = wait.since if wait.probed is None else wait.probed
        # Only what was answered since this wait's own probe counts: an older answer tells nothing about now.
        alive = {name: waits for name, (when, *waits) in self._alive.items() if when >= probed}
        culprit, step = frm, tag
        chain = deque([(frm, tag), *((name, at) for since, name, at in self._waiting.oldest() if since <= probed)])
        seen = {self.me}
        while chain:
            name, at = chain.popleft()
            if name in seen:
                continue
            seen.add(name)
            if name not in alive:
                culprit, step = name, at  # asked, and did not answer
                break
            awaited = alive[name][1:]
            if not awaited:
                culprit, step = name, at  # answers, and waits for nobody: busy, unless somebody else is silent
            chain.extend(zip(awaited[::2], awaited[1::2], strict=True))
        if self._moves_on(culprit, wait, probed):
            return
        note = ""
        if culprit in alive:
            note = ", though it is alive (it may be busy, or a message was lost)"
        self.break_off(
            PartySilent(
                f"party {culprit!r} was silent for {GIVE_UP_AT * self.deadline:g} s at step {step!r}"
                f"{self._round()}{note}",
                culprit,
                step,
            ),
            SILENT,
        )

    def _step_awaited(self, frm: str) -> str:
        tag = self._waiting.step_of(frm)
        return self.step if tag is None else tag

    def _round(self) -> str:
        return f" of round {self.traffic.rounds}" if self.traffic.rounds else ""
