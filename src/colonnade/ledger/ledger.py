"""What left this party, for good: one line per message, each chained to the one before.

A line is JSON and ends with the SHA-256 of everything up to it, so a changed, removed or reordered line breaks the
chain. Whoever can write the file could chain all of it anew; the seals, signatures of the party's own key, stop that.
A run begins and ends with a seal, and after each of them the file's end is written down beside it (`.seal`), so that
lines that are missing at the end are missed too. An old file with its old seal fits together; that it is old is known
to the partners, who have countersigned newer ones (`witness`).

A party may train while it serves: two processes write to one ledger, and take turns. Whoever has the turn first reads
what the other has added, and goes on from there. A line of another run than the line before it names its own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from colonnade import private_files
from colonnade.errors import LedgerError
from colonnade.ledger.lines import (
    BROKEN,
    FORMAT,
    OF_RUN,
    START,
    Check,
    Memory,
    Record,
    chained,
    check_record,
    digest,
    entry_of,
    fingerprint,
    is_event,
    key_for,
    line_key,
    lines,
    remembered,
    seal_file,
    sealed,
    told,
)
from colonnade.ledger.receipts import Head, Statement
from colonnade.ledger.turns import give_turn, locked, take_turn, write_whole
from colonnade.runtimes.wire import Value

_BEFORE_A_SEAL = 2  # lines that a first run may have written when it crashes before its first seal
_SET_ASIDE = "set both files aside, for whoever looks into it, and a new ledger begins"

Sign = Callable[[bytes], bytes]


def shape(value: Value) -> str:
    """Describe what a message holds without its content, as in float64[64] or (int, str)."""
    if type(value) is tuple:
        return f"({', '.join(map(shape, value))})"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return f"bytes[{len(value)}]" if isinstance(value, bytes) else type(value).__name__


class Ledger:
    """The ledger of one party, open for one run."""

    def __init__(self, path: Path, sign: Sign, check: Check, *, run: dict[str, Any], lane: str = "") -> None:
        """Open the ledger, and write that a run begins; of each lane, such as "scoring", there is but one at a time."""
        self._path, self._sign = path, sign
        self._memory, self.run = Memory(), secrets.token_hex(8)
        self.sent: dict[str, int] = {}  # bytes that this run has sent to each
        self._guard, self._depth, self._size, self._last = threading.RLock(), 0, 0, False
        # A line goes to the system as it is written: whatever ends this process, what has left it is in the ledger.
        try:
            handle = private_files.append_to(path)
        except OSError as error:
            raise LedgerError(f"the ledger {path.name!r} can't be opened: {error.strerror}; mend that first") from None
        self._file = open(handle, "ab", buffering=0)  # noqa: SIM115
        self._lane = -1
        try:
            private_files.check(path, "the ledger", LedgerError, handle)
            self._lane = take_lane(path, lane)
            take_turn(handle, path)
            self._depth = 1  # the whole beginning is one turn
            try:
                self._chain, self._count = _end_of(path, check, self._memory)
                self._size = os.fstat(handle).st_size
                self._key = key_for(path)
                self.event("run", {"format": FORMAT, "id": self.run, "key": fingerprint(self._key), **run})
                self.seal("begin")
            finally:
                self._depth = 0
                give_turn(handle)
        except BaseException:
            self._leave()
            raise

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Have the ledger alone: what was read in a turn still holds when something is written in it."""
        with self._guard:
            if not self._depth:
                take_turn(self._file.fileno(), self._path)
            self._depth += 1
            try:
                if self._depth == 1:
                    self._catch_up()
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    give_turn(self._file.fileno())

    def _catch_up(self) -> None:
        """Take in what another process of this party has added since; a line that its crash cut off is cut away."""
        size = os.fstat(self._file.fileno()).st_size
        if size == self._size:
            return
        if size < self._size:
            raise LedgerError(
                f"the ledger {self._path.name!r} has lost lines while a run was writing to it; {_SET_ASIDE}"
            )
        with self._path.open("rb") as file:
            file.seek(self._size)
            for line in file:
                if not line.endswith(b"\n"):
                    os.truncate(self._path, self._size)
                    break
                chain, number = self._chain.encode(), self._count + 1
                if chained(chain, line) != told(line):
                    raise LedgerError(f"line {number} of {self._path.name!r} {BROKEN}; {_SET_ASIDE}")
                self._chain, self._count, self._last = told(line).decode(), number, False
                self._size += len(line)
                if is_event(line):
                    remembered(self._path, number, line, self._memory)

    def note(self, peer: str, kind: str, value: Value, size: int) -> None:
        """Write down one message, before it leaves."""
        with self.turn():
            of_it = digest(line_key(self._key, self._count + 1), value)
            self._add({"to": peer, "kind": kind, "shape": shape(value), "bytes": size, "digest": of_it})
            self.sent[peer] = self.sent.get(peer, 0) + size

    def seal(self, event: str) -> None:
        """Sign the chain so far, and bring it to the disk."""
        with self.turn():
            signature = base64.b64encode(self._sign(self._chain.encode())).decode()
            self.event(event, {"seal": signature})
            os.fsync(self._file.fileno())
            seal = base64.b64encode(self._sign(f"{self._count} {self._chain}".encode())).decode()
            end = json.dumps({"lines": self._count, "chain": self._chain, "seal": seal})
            private_files.write(seal_file(self._path), end + "\n")

    def event(self, event: str, content: dict[str, Any]) -> None:
        """Write a line about something other than a message."""
        with self.turn():
            entry = self._add({"event": event, **content})
            self._memory.take(self._count, entry, self._chain)

    def _add(self, content: dict[str, Any]) -> dict[str, Any]:
        time = datetime.now(UTC).isoformat(timespec="microseconds")
        entry = {"n": self._count + 1, "time": time, **content}
        if not self._last and content.get("event") != "run":
            entry[OF_RUN] = self.run
        text = json.dumps(entry, separators=(",", ":"))[:-1]
        chain = hashlib.sha256((self._chain + text).encode()).hexdigest()
        line = f'{text},"chain":"{chain}"}}\n'.encode()
        write_whole(self._file.fileno(), line)
        self._chain, self._count, self._size, self._last = chain, self._count + 1, self._size + len(line), True
        if self._count == 1:
            self._memory.book = self._chain
        return entry

    def close(self, event: str = "end") -> None:
        """Seal the ledger a last time, and close its file."""
        if not self._file.closed:
            self.seal(event)
            self._leave()

    def _leave(self) -> None:
        self._file.close()
        if self._lane >= 0:
            os.close(self._lane)
            self._lane = -1

    # -- from run to run ----------------------------------------------------------------------------------------

    def remember(self, kind: str, record: Record) -> None:
        """Keep a record of the party's own within the chain, for this run and all later ones.

        kind: any name, of up to 40 lower-case letters, digits, hyphens and spaces. It is on its way to the disk at once
        and signed with the next seal, at the latest when the run ends.
        """
        check_record(kind, record)
        self.event("remember", {"of": kind, "record": dict(record)})

    def remembered(self, kind: str) -> list[dict[str, int | str | float]]:
        """Return all records of a kind, from all runs, the oldest first."""
        with self.turn():
            return [dict(record) for record in self._memory.records.get(kind, ())]

    # -- what partners are told, and tell -----------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the ledger's file."""
        return self._path.name

    def head(self, owner: str) -> Head:
        """Return how far the ledger was at its last seal: that much is on the disk."""
        with self.turn():
            count, chain = next(reversed(self._memory.heads.items()))
        return Head(owner, self._memory.book, count, chain, self.run)

    def holds(self, head: Head) -> bool:
        """Return whether this ledger has once been at this head."""
        with self.turn():
            return head.book == self._memory.book and self._memory.heads.get(head.lines) == head.chain

    @property
    def partners(self) -> tuple[str, ...]:
        """The partners of whose ledgers this party has seen anything."""
        return self._memory.partners()

    def seen_of(self, partner: str) -> list[Statement]:
        """Return the last that this party has seen of a partner's ledger, in every job; the newest first."""
        return self._memory.seen_of(partner)


def take_lane(path: Path, lane: str) -> int:
    """Return a lock that no other process of this party has, in this lane; it goes with the process."""
    handle = private_files.append_to(path.with_name(f"{path.name}{lane and '.'}{lane}.lock"))
    if not locked(handle):
        os.close(handle)
        raise LedgerError(
            f"another process of this party is running: it has the ledger {path.name!r} open; wait for it, or stop it"
        )
    return handle


def _end_of(path: Path, check: Check, memory: Memory) -> tuple[str, int]:
    """Return (chain, lines) of the file as it is; a last line that a crash cut off is cut away.

    Nothing is added to a ledger of which something is missing: after that nobody could find it out.
    """
    count_sealed, last = 0, START
    if seal_file(path).exists():
        count_sealed, last = sealed(path, check)
    chain, count, whole = START, 0, 0
    for number, line in lines(path):
        if not line.endswith(b"\n"):
            os.truncate(path, whole)
            break
        if chained(chain, line) != told(line):
            raise LedgerError(f"line {number} of {path.name!r} {BROKEN}; {_SET_ASIDE}")
        chain, count = told(line), number
        whole += len(line)
        if number == 1:
            memory.book = chain.decode()
        if is_event(line):
            remembered(path, number, line, memory)
        if number == count_sealed and chain != last:
            raise LedgerError(f"line {number} of {path.name!r} is another one than its seal says; {_SET_ASIDE}")
    if count < count_sealed:
        raise LedgerError(f"{path.name!r} has {count} lines, its seal says {count_sealed}; {_SET_ASIDE}")
    if count > _BEFORE_A_SEAL and not count_sealed:
        raise LedgerError(f"the seal of {path.name!r} is missing, it belongs beside it; {_SET_ASIDE}")
    return chain.decode(), count


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """Yield all lines as they are; `verify` says whether they can be believed."""
    for number, line in lines(path):
        yield entry_of(path, number, line)
