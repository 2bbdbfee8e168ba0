"""What left this party, for good: one line per message, each chained to the one before.

A line is JSON and ends with the SHA-256 of everything up to it, so a changed, removed or reordered line breaks the
chain. Whoever can write the file could chain all of it anew; the seals, signatures of the party's own key, stop that.
A run begins and ends with a seal, and after each of them the file's end is written down beside it (`.seal`), so that
lines that are missing at the end are missed too. An old file with its old seal fits together; that it is old is known
to the partners, who have countersigned newer ones (`witness`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from colonnade import private_files
from colonnade.errors import LedgerError
from colonnade.ledger.lines import (
    BROKEN,
    FORMAT,
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

    def __init__(self, path: Path, sign: Sign, check: Check, *, run: dict[str, Any]) -> None:
        self._path, self._sign = path, sign
        self._memory, self.run = Memory(), secrets.token_hex(8)
        # A line goes to the system as it is written: whatever ends this process, what has left it is in the ledger.
        try:
            handle = private_files.append_to(path)
        except OSError as error:
            raise LedgerError(f"the ledger {path.name!r} can't be opened: {error.strerror}; mend that first") from None
        self._file = open(handle, "a", encoding="utf-8", newline="\n", buffering=1)  # noqa: SIM115
        try:
            private_files.check(path, "the ledger", LedgerError, handle)
            _lock(handle, path)
            self._chain, self._count = _end_of(path, check, self._memory)
            self._key = key_for(path)
        except BaseException:
            self._file.close()
            raise
        self.event("run", {"format": FORMAT, "id": self.run, "key": fingerprint(self._key), **run})
        self.seal("begin")

    def note(self, peer: str, kind: str, value: Value, size: int) -> None:
        """Write down one message, before it leaves."""
        of_it = digest(line_key(self._key, self._count + 1), value)
        self._add({"to": peer, "kind": kind, "shape": shape(value), "bytes": size, "digest": of_it})

    def seal(self, event: str) -> None:
        """Sign the chain so far, and bring it to the disk."""
        signature = base64.b64encode(self._sign(self._chain.encode())).decode()
        self.event(event, {"seal": signature})
        self._file.flush()
        os.fsync(self._file.fileno())
        seal = base64.b64encode(self._sign(f"{self._count} {self._chain}".encode())).decode()
        end = json.dumps({"lines": self._count, "chain": self._chain, "seal": seal})
        private_files.write(seal_file(self._path), end + "\n")

    def event(self, event: str, content: dict[str, Any]) -> None:
        """Write a line about something other than a message."""
        entry = self._add({"event": event, **content})
        self._memory.take(self._count, entry, self._chain)

    def _add(self, content: dict[str, Any]) -> dict[str, Any]:
        time = datetime.now(UTC).isoformat(timespec="microseconds")
        entry = {"n": self._count + 1, "time": time, **content}
        text = json.dumps(entry, separators=(",", ":"))[:-1]
        self._chain = hashlib.sha256((self._chain + text).encode()).hexdigest()
        self._file.write(f'{text},"chain":"{self._chain}"}}\n')
        self._count += 1
        if self._count == 1:
            self._memory.book = self._chain
        return entry

    def close(self, event: str = "end") -> None:
        """Seal the ledger a last time, and close its file."""
        if not self._file.closed:
            self.seal(event)
            self._file.close()

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
        return [dict(record) for record in self._memory.records.get(kind, ())]

    # -- what partners are told, and tell -----------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the ledger's file."""
        return self._path.name

    def head(self, owner: str) -> Head:
        """Return how far the ledger was at its last seal: that much is on the disk."""
        count, chain = next(reversed(self._memory.heads.items()))
        return Head(owner, self._memory.book, count, chain, self.run)

    def holds(self, head: Head) -> bool:
        """Return whether this ledger has once been at this head."""
        return head.book == self._memory.book and self._memory.heads.get(head.lines) == head.chain

    def seen_of(self, partner: str) -> list[Statement]:
        """Return the last that this party has seen of a partner's ledger, in every job; the newest first."""
        return self._memory.seen_of(partner)


def _lock(handle: int, path: Path) -> None:
    """Lock the file, as two writers would break the chain for good."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system: whoever starts a party twice there is not told
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise LedgerError(
            f"another process of this party is running: it has the ledger {path.name!r} open; wait for it, or stop it"
        ) from None


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
