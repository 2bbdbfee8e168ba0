"""Exactly once and in order over a line that may break: a stream of numbered bytes, kept until acknowledged.

What two parties say to each other over a whole run is one stream of bytes in each direction, whatever number of
connections carries it. Every message says how many bytes its sender has received so far, and the number of its own
first byte. A receiver that has too much already says that it has less, and the sender waits (`hold`). After a break
both sides say what they have received, and each goes on from there; what arrives twice is
dropped. No I/O here: messages in, messages out.
"""

from __future__ import annotations

import struct
from collections import deque

from colonnade.errors import ProtocolError

# stage of the sender (one byte for the line's own use), bytes it has received so far, number of the first byte here
_HEAD = struct.Struct("<BQQ")
# The most that one message carries: a frame of many megabytes goes in pieces, so that a break costs little of it, no
# receiver needs room for more at once than this, and what TLS makes of a piece stays in the processor's cache.
PIECE = 1 << 16
# Bytes, and frames, that may be on their way. Whoever wants to send more waits until some are acknowledged.
WINDOW, FRAMES = 1 << 25, 1 << 14


class Reliable:
    """One party's end of the two streams of bytes that it shares with a peer."""

    def __init__(self, window: int = WINDOW, piece: int = PIECE, frames: int = FRAMES) -> None:
        self._window, self._piece, self._frames = window, piece, frames
        self.pushed = 0  # bytes given to this side so far
        self.acknowledged = 0  # of which the peer has so many
        self._granted = 0  # and has so many that more may follow them
        self._ends: deque[int] = deque()  # of the frames behind these
        self.received = 0  # bytes of the peer that came in so far
        self._told = 0  # of which it knows
        self._sent: deque[tuple[int, memoryview]] = deque()  # by the number of their first byte
        self._unsent: deque[tuple[int, memoryview]] = deque()
        self._reached = 0  # bytes that were ever sent

    # -- out ----------------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether so much is under way that the next to send should wait."""
        return self.pushed - self._granted >= self._window or len(self._ends) >= self._frames

    @property
    def settled(self) -> bool:
        """Whether the peer has all that was pushed."""
        return self.acknowledged == self.pushed

    @property
    def unacknowledged(self) -> int:
        """Bytes received that the peer does not yet know to have arrived."""
        return self.received - self._told

    @property
    def acknowledge_now(self) -> bool:
        """Whether these are so many that the peer, whose window is as large as ours, may soon wait for it."""
        return self.unacknowledged >= self._window // 8

    def push(self, data: bytes) -> None:
        """Take bytes to send; they are kept until the peer has them."""
        view = memoryview(data)
        for at in range(0, len(data), self._piece):
            self._unsent.append((self.pushed + at, view[at : at + self._piece]))
        self.pushed += len(data)
        self._ends.append(self.pushed)

    def message(self, stage: int = 0, *, even_empty: bool = False, hold: bool = False) -> bytes | None:
        """The next message to send; without anything new to say, None or, on demand, an empty one.

        hold: whether the peer shall send no more than its window until it hears otherwise.
        """
        unsent = self._unsent
        if not unsent and not even_empty:
            return None
        first, room = unsent[0][0] if unsent else self.pushed, self._piece
        parts = []
        while unsent and len(unsent[0][1]) <= room:
            piece = unsent.popleft()
            self._sent.append(piece)
            room -= len(piece[1])
            parts.append(piece[1])
        self._reached = max(self._reached, first + self._piece - room)
        self._told = self._told if hold else self.received
        return b"".join((_HEAD.pack(stage, self._told, first), *parts))

    # -- in -----------------------------------------------------------------------------------------------------

    def take(self, message: bytes) -> tuple[int, bytes]:
        """(stage of the peer, bytes not seen before) of a message; one that no honest peer sends is a ProtocolError."""
        if len(message) < _HEAD.size:
            raise ProtocolError(f"a message of {len(message)} bytes on the line, its head alone has {_HEAD.size}")
        stage, has, first = _HEAD.unpack_from(message)
        if first > self.received:
            raise ProtocolError(f"bytes from number {first} on, though those from {self.received} on are missing")
        self.acknowledge(has)
        self._granted = max(self._granted, has)
        while self._ends and self._ends[0] <= has:
            self._ends.popleft()
        fresh = message[_HEAD.size + self.received - first :]
        self.received += len(fresh)
        return stage, fresh

    def acknowledge(self, has: int) -> None:
        """The peer has received so many bytes."""
        if has > self._reached:
            raise ProtocolError(f"{has} bytes acknowledged of {self._reached} that were sent")
        # The first of those that wait to be repeated may have arrived after all, just before the old line ended.
        for pieces in (self._sent, self._unsent):
            while pieces and pieces[0][0] + len(pieces[0][1]) <= has:
                pieces.popleft()
        self.acknowledged = max(self.acknowledged, has)

    # -- a new connection ---------------------------------------------------------------------------------------

    def fits(self, has: int) -> bool:
        """Whether a peer may have received so many bytes: not more than were sent, and all that it acknowledged."""
        return self.acknowledged <= has <= self._reached

    def resume(self, has: int) -> None:
        """Go on over a new connection to a peer that has received so many bytes: repeat the rest."""
        if not self.fits(has):
            raise ProtocolError(
                f"a peer has received {has} bytes, it had acknowledged {self.acknowledged} of {self._reached}"
            )
        self.acknowledge(has)
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()
