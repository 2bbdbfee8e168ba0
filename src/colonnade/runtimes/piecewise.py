"""Long messages on real lines: sent a piece at a time, as the line takes them, and put together where they arrive.

What a program sees stays as it was: messages of one link arrive once and in order, and `send` is one call. While a long
message leaves, other messages to the same party wait behind it, and only what endpoints say to each other overtakes it,
so a party stays able to answer, and to say that it has failed. What is under way is bounded by the line's window.

A message that moves is no silence: whoever waits for its sender starts to count anew with every piece, and a third
party that waits for one of the two hears that they are busy moving it. Both of these can last no longer than the
longest message takes at a piece per deadline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from colonnade.errors import OversizedMessage, PartySilent, ProtocolError, RunFailed
from colonnade.runtimes import pieces
from colonnade.runtimes.endpoint import GIVE_UP_AT, SILENT, Endpoint
from colonnade.runtimes.frames import (
    ABORT,
    BYE,
    DATA,
    END,
    HEADER,
    LONG,
    PIECE,
    check_size,
    pack_message,
    unpack_head,
    unpack_message,
)
from colonnade.runtimes.net import Promise
from colonnade.runtimes.wire import Value

# Seconds that a long message takes before anybody is told how far it is, and between two such reports.
_WORTH_A_WORD, _BETWEEN = 2.0, 1.0
TRANSFER = "transfer"  # the kind of these reports: sender, receiver, bytes so far, bytes in all


@dataclass
class _Way:
    """How far a message is on its way."""

    frm: str
    to: str
    total: int
    since: float
    told: float = 0.0


class Piecewise(Endpoint):
    """The part of a `Net` over lines that sends and takes long messages; a runtime adds the lines."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._cutting: dict[str, pieces.Leaving] = {}
        self._turns: dict[str, deque[Promise]] = {name: deque() for name in self.names}
        self._arriving: dict[str, tuple[pieces.Arriving, _Way]] = {}
        self._held_up: list[tuple[float, str, str, Promise]] = []  # since, party, step
        self._given_up = dict.fromkeys(self.names, 0)  # bytes of messages that each began to send, and did not end

    # -- what a runtime adds ------------------------------------------------------------------------------------

    def _put_frame(self, to: str, frame: bytes) -> None:
        """Put a whole frame on the line."""
        raise TypeError("a runtime's net must put frames on its lines")

    def _full(self, to: str) -> bool:
        """Whether so much is under way to a party that the next piece should wait; never if nobody will take it."""
        raise TypeError("a runtime's net must know how much is under way")

    # -- out ----------------------------------------------------------------------------------------------------

    def _transmit(self, to: str, kind: int, seq: int, tag: str, value: Value) -> int:
        if kind == LONG:
            leaving = pieces.Leaving((LONG, PIECE, END), seq, tag, value)
            check_size(leaving.size, tag, value, self.longest)
            self._put_frame(to, leaving.head)
            self._cutting[to] = leaving
            return leaving.size
        frame = pack_message(kind, seq, tag, value)
        check_size(len(frame), tag, value, self.longest)
        self._put_frame(to, frame)
        return len(frame)

    async def send(self, to: str, tag: str, value: Value) -> None:
        """See `Net.send`; a long message leaves a piece at a time, and others to the same party wait behind it."""
        turns = self._turns.get(to)
        if turns is None or not (turns or pieces.is_long(value)):
            await super().send(to, tag, value)
            return
        turn = self.promise()
        turns.append(turn)
        try:
            if turns[0] is not turn:
                await turn
            if pieces.is_long(value):
                await self._send_long(to, tag, value)
            else:
                await super().send(to, tag, value)
        finally:
            turns.remove(turn)
            if turns and not turns[0].done():
                turns[0].set_result(None)

    async def _send_long(self, to: str, tag: str, value: Value) -> None:
        self._may_send(to, tag)
        self._emit(to, LONG, self._next_out[to], tag, value)
        self._next_out[to] += 1
        leaving = self._cutting[to]
        way = _Way(self.me, to, leaving.total, self._now())
        try:
            frames = leaving.frames()
            while self._next_piece(to, frames):
                self.moved += 1
                self._moved_last = self._now()
                self._say_how_far(way, leaving.sent)
                await self.room_for(to, tag)
                if self.broken is not None:
                    raise self.broken
        except BaseException:
            if self.broken is None:  # the task was cancelled: the line goes on without this message
                self._put_frame(to, leaving.withdrawal)
            raise
        finally:
            del self._cutting[to]

    def _next_piece(self, to: str, frames: Iterator[bytes]) -> bool:
        """Make a piece and put it on the line; whether there was one."""
        for frame in frames:
            self._put_frame(to, frame)
            return True
        return False

    async def room_for(self, to: str, tag: str) -> None:
        """Wait while too much is under way to a party."""
        while self._full(to) and self.broken is None:
            self.step = tag
            promise = self.promise()
            self._held_up.append((self._now(), to, tag, promise))
            self._awaits(to)  # that it takes something, which it may only do when this party does so too
            await promise

    def go_on_sending(self) -> None:
        """A line may have room again."""
        for held in [held for held in self._held_up if not self._full(held[1])]:
            self._held_up.remove(held)
            if not held[3].done():
                held[3].set_result(None)

    def _say_how_far(self, way: _Way, done: int) -> None:
        now = self._now()
        if now - way.since < _WORTH_A_WORD or (now - way.told < _BETWEEN and done < way.total):
            return
        way.told = now
        self.report((TRANSFER, way.frm, way.to, done, way.total))

    # -- in -----------------------------------------------------------------------------------------------------

    def arrived(self, frm: str, payload: bytes | bytearray) -> int:
        """Take one frame off the line, and say of what kind it is; what no honest party sends is a ProtocolError."""
        if payload and LONG <= payload[0] <= END:
            kind, seq, tag, start = unpack_head(payload)
            self._take_part(frm, kind, seq, tag, memoryview(payload)[start:])
            return kind
        if HEADER.size + len(payload) > self.longest:
            raise OversizedMessage(
                f"a message of {HEADER.size + len(payload)} bytes came, at most {self.longest} are taken here; send "
                f"fewer rows at once, or raise max_message_mb in [policy] of the receiver"
            )
        kind, seq, tag, value = unpack_message(payload)
        if frm in self._arriving:
            if kind == DATA:
                raise ProtocolError(f"a message for step {tag!r} came in the middle of a longer one")
            if kind in (ABORT, BYE):
                del self._arriving[frm]  # the rest of it will not come
        self.deliver(frm, kind, seq, tag, value)
        return kind

    def _take_part(self, frm: str, kind: int, seq: int, tag: str, payload: memoryview) -> None:
        if self.broken is not None:
            return
        now = self._now()
        if kind == LONG:
            if frm in self._arriving or seq != self._next_in[frm]:
                raise ProtocolError(f"long message {seq} for step {tag!r} came, though another one was to come")
            arriving = pieces.Arriving(seq, tag, payload, self.longest)
            self._arriving[frm] = arriving, _Way(frm, self.me, arriving.total, now)
            self._next_in[frm] = seq + 1
            return
        if frm not in self._arriving or seq != self._arriving[frm][0].seq:
            raise ProtocolError(f"a piece of message {seq} came, of which nothing else did")
        arriving, way = self._arriving[frm]
        if kind == PIECE:
            arriving.take(payload)
            if self._given_up[frm] <= self.longest:  # who sends messages that never end is as good as silent
                self.moved += 1
                self._moved_at[frm] = self._moved_last = now
            self._say_how_far(way, arriving.arrived)
            return
        del self._arriving[frm]
        if payload.nbytes:
            self._accept(frm, arriving.tag, arriving.finish(payload))
        else:
            self._given_up[frm] += arriving.arrived

    # -- failure and deadlines ----------------------------------------------------------------------------------

    def _fail_waits(self) -> None:
        held_up, self._held_up = self._held_up, []
        for _, _, _, promise in held_up:
            if not promise.done():
                promise.set_exception(self.broken or RunFailed("the run was broken off"))
        self._arriving.clear()
        super()._fail_waits()

    def check_deadlines(self) -> None:
        """See `Endpoint.check_deadlines`; a send that is held up is a wait too."""
        super().check_deadlines()
        self.go_on_sending()
        for since, to, tag, _ in self._held_up:
            if self._now() - since >= GIVE_UP_AT * self.deadline:
                leaving = self._cutting.get(to)
                far = f", with {leaving.sent} of {leaving.total} bytes of a message on their way" if leaving else ""
                text = f"party {to!r} took nothing for {GIVE_UP_AT * self.deadline:g} s at step {tag!r}"
                self.break_off(PartySilent(f"{text}{self._round()}{far}", to, tag), SILENT)
                return
