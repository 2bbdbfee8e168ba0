"""Frames: messages cut out of a byte stream, however the stream is split into pieces, and what is in one."""

from __future__ import annotations

import struct
from typing import Any

from colonnade.errors import OversizedMessage, ProtocolError, at_least
from colonnade.runtimes.values import NEVER_TOO_HEAVY, ROOM, weight
from colonnade.runtimes.wire import Value, decode, encode, encoded_size

# Kinds of frames. Only DATA carries what a program sends, and LONG with the pieces behind it: see `pieces`.
DATA, ABORT, PROBE, ALIVE, BYE, LONG, PIECE, END, MOVING = range(9)
# length (8 bytes), kind (1), sequence number (8), length of the tag (1): what a frame costs beside tag and value
FRAME_OVERHEAD = 18
# Bytes of the longest frame, and of the longest message between organisations, unless their tables have more rows than
# fit into it with so many bytes for each. Where all parties are one user's, only its memory bounds them.
MAX_MESSAGE, BYTES_PER_ROW = 1 << 28, 1 << 10
ANY_SIZE = 1 << 62
MAX_TAG = 63  # characters: at most 4 bytes each, so that the length fits into its byte

HEADER = struct.Struct("<Q")
HEAD = struct.Struct("<BQB")  # kind, sequence number, length of the name of the step
_FRAME = struct.Struct("<QBQB")  # the same after the length of all that follows


def pack_frame(*parts: bytes | bytearray | memoryview) -> bytes:
    """One frame for a byte stream: the length of all parts together (u64), then the parts."""
    total = 0
    for part in parts:
        total += part.nbytes if isinstance(part, memoryview) else len(part)
    return b"".join((HEADER.pack(total), *parts))


def pack_message(kind: int, seq: int, tag: str, value: Value) -> bytes:
    """One frame for the line."""
    name = tag.encode()
    # The length is computed and not measured, so that the bytes of an array are copied once, into the frame itself.
    size = HEAD.size + len(name) + encoded_size(value)
    return encode(value, _FRAME.pack(size, kind, seq, len(name)) + name)


def unpack_head(payload: bytes | bytearray) -> tuple[int, int, str, int]:
    """Kind, sequence number, step, and where the rest begins; anything malformed is a ProtocolError."""
    if len(payload) < HEAD.size:
        raise ProtocolError(f"a frame of {len(payload)} bytes is shorter than its own head of {HEAD.size}")
    kind, seq, length = HEAD.unpack_from(payload)
    start = HEAD.size + length
    try:
        tag = payload[HEAD.size : start].decode()
    except UnicodeDecodeError:
        raise ProtocolError("the name of a step is not UTF-8") from None
    return kind, seq, tag, start


def unpack_message(payload: bytes | bytearray) -> tuple[int, int, str, Any]:
    """The inverse of `pack_message`, without the frame's length; anything malformed is a ProtocolError."""
    kind, seq, tag, start = unpack_head(payload)
    return kind, seq, tag, decode(payload, start)


def check_size(size: int, tag: str, value: Value, longest: int) -> None:
    """Refuse to send what every receiver would refuse to take."""
    if size > NEVER_TOO_HEAVY and weight(value) > ROOM:
        raise OversizedMessage(
            f"a message for step {tag!r} of more small values than a receiver makes room for ({ROOM} bytes beside the "
            f"numbers of arrays); send them as one array"
        )
    if size > longest:
        raise OversizedMessage(
            f"a message of {size} bytes for step {tag!r}, at most {longest} are allowed; send fewer rows at once"
        )


class FrameReader:
    """Cuts a byte stream into the payloads of its frames, however the stream is split into pieces.

    `limit` is the largest payload that may be announced. Only bytes that did arrive are kept, so an announced length
    costs the receiver nothing.
    """

    def __init__(self, limit: int) -> None:
        at_least("limit", limit, 0)
        self.limit = limit
        self._buffer = bytearray()  # one frame that is not complete yet, with its header

    @property
    def pending(self) -> int:
        """Bytes of a frame that is not complete yet; at the end of a stream, anything but 0 is a truncated message."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """The payloads that are complete with these bytes. An announced length over the limit raises at once."""
        if type(data) is not bytes:
            data = bytes(data)
        payloads: list[bytes] = []
        pos = 0
        if self._buffer:
            pos = self._complete(data, payloads)
        end = len(data)
        while end - pos >= 8:
            size = HEADER.unpack_from(data, pos)[0]
            if size > self.limit:
                # Kept, so that a reader that is fed again refuses again and doesn't take the rest for a header.
                self._buffer += data[pos : pos + 8]
                raise self._oversized(size)
            if end - pos - 8 < size:
                break
            payloads.append(data[pos + 8 : pos + 8 + size])
            pos += 8 + size
        if pos < end:
            self._buffer += memoryview(data)[pos:]
        return payloads

    def _complete(self, data: bytes, payloads: list[bytes]) -> int:
        """Take from `data` what the frame in the buffer still lacks, and nothing more; returns how much that was."""
        buffer = self._buffer
        pos = 0
        if len(buffer) < 8:
            pos = min(8 - len(buffer), len(data))
            buffer += data[:pos]
            if len(buffer) < 8:
                return pos
        size = HEADER.unpack_from(buffer)[0]
        if size > self.limit:
            raise self._oversized(size)
        lacking: int = 8 + size - len(buffer)
        if len(data) - pos < lacking:
            buffer += memoryview(data)[pos:]
            return len(data)
        buffer += memoryview(data)[pos : pos + lacking]
        with memoryview(buffer) as view:
            payloads.append(bytes(view[8:]))
        self._buffer = bytearray()
        return pos + lacking

    def _oversized(self, size: int) -> OversizedMessage:
        return OversizedMessage(
            f"a message of {size} bytes was announced, at most {self.limit} are allowed; send smaller batches or "
            f"raise the limit of the receiver"
        )
