"""What left this party, for good: one line per message, each chained to the one before.

A line is JSON and ends with the SHA-256 of everything up to it, so a changed, removed or reordered line breaks the
chain. Whoever can write the file could chain all of it anew; the seals, signatures of the party's own key, stop that.
A run begins and ends with a seal, and after each of them the file's end is written down beside it (`.seal`), so that
lines that are missing at the end are missed too.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.errors import LedgerError
from colonnade.runtimes.wire import Value, encode

FORMAT = 1
_START = hashlib.sha256(b"colonnade ledger 1").hexdigest()
_CHAIN = ',"chain":"'  # what a line ends with: this, 64 hexadecimal digits, and two more characters
_TAIL = len(_CHAIN) + 64 + 2
_BEFORE_A_SEAL = 2  # lines that a first run may have written when it crashes before its first seal
_BROKEN = "does not follow from the lines before it: a line was changed, removed or moved"
_SET_ASIDE = "set both files aside, for whoever looks into it, and a new ledger begins"

Sign = Callable[[bytes], bytes]
Check = Callable[[bytes, bytes], bool]  # (what was signed, signature)


def shape(value: Value) -> str:
    """What a message holds, without its content: float64[64], (int, str)."""
    if type(value) is tuple:
        return f"({', '.join(map(shape, value))})"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return f"bytes[{len(value)}]" if isinstance(value, bytes) else type(value).__name__


class Ledger:
    """The ledger of one party, open for one run."""

    def __init__(self, path: Path, sign: Sign, check: Check, *, run: dict[str, Any]) -> None:
        self._path, self._sign = path, sign
        # A line goes to the system as it is written: whatever ends this process, what has left it is in the ledger.
        try:
            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise LedgerError(f"the ledger {path.name!r} can't be opened: {error.strerror}; mend that first") from None
        self._file = open(handle, "a", encoding="utf-8", newline="\n", buffering=1)  # noqa: SIM115
        try:
            _lock(handle, path)
            self._chain, self._count = _end_of(path, check)
        except BaseException:
            self._file.close()
            raise
        self._add({"event": "run", "format": FORMAT, **run})
        self.seal("begin")

    def note(self, peer: str, kind: str, value: Value, size: int) -> None:
        """One message, before it leaves."""
        digest = hashlib.sha256(encode(value)).hexdigest()
        self._add({"to": peer, "kind": kind, "shape": shape(value), "bytes": size, "digest": digest})

    def seal(self, event: str) -> None:
        """Sign the chain so far, and bring it to the disk."""
        signature = base64.b64encode(self._sign(self._chain.encode())).decode()
        self._add({"event": event, "seal": signature})
        self._file.flush()
        os.fsync(self._file.fileno())
        end = json.dumps({"lines": self._count, "chain": self._chain, "seal": self._signed_end()})
        beside = seal_file(self._path)
        partial = beside.with_name(beside.name + ".partial")
        partial.touch(0o600)
        partial.write_text(end + "\n", encoding="utf-8")
        partial.replace(beside)

    def _signed_end(self) -> str:
        return base64.b64encode(self._sign(f"{self._count} {self._chain}".encode())).decode()

    def _add(self, entry: dict[str, Any]) -> None:
        time = datetime.now(UTC).isoformat(timespec="microseconds")
        text = json.dumps({"n": self._count + 1, "time": time, **entry}, separators=(",", ":"))[:-1]
        self._chain = hashlib.sha256((self._chain + text).encode()).hexdigest()
        self._file.write(f'{text}{_CHAIN}{self._chain}"}}\n')
        self._count += 1

    def close(self, event: str = "end") -> None:
        """Seal and end."""
        if not self._file.closed:
            self.seal(event)
            self._file.close()


def seal_file(path: Path) -> Path:
    """Where the ledger's end is written down."""
    return path.with_name(path.name + ".seal")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            yield from enumerate(file, 1)
    except OSError as error:
        raise LedgerError(f"the ledger {path.name!r} can't be read: {error.strerror}") from None


def _lock(handle: int, path: Path) -> None:
    """Two writers would break the chain for good."""
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


def _end_of(path: Path, check: Check) -> tuple[str, int]:
    """(chain, lines) of the file as it is; a last line that a crash cut off is cut away.

    Nothing is added to a ledger of which something is missing: after that nobody could find it out.
    """
    sealed, last = 0, _START
    if seal_file(path).exists():
        sealed, last = _sealed(path, check)
    chain, count, whole = _START, 0, 0
    for number, line in _lines(path):
        if not line.endswith("\n"):
            os.truncate(path, whole)
            break
        if _chained(chain, line) != line[-3 - 64 : -3]:
            raise LedgerError(f"line {number} of {path.name!r} {_BROKEN}; {_SET_ASIDE}")
        chain, count = line[-3 - 64 : -3], number
        whole += len(line.encode("utf-8", "surrogateescape"))
        if number == sealed and chain != last:
            raise LedgerError(f"line {number} of {path.name!r} is another one than its seal says; {_SET_ASIDE}")
    if count < sealed:
        raise LedgerError(f"{path.name!r} has {count} lines, its seal says {sealed}; {_SET_ASIDE}")
    if count > _BEFORE_A_SEAL and not sealed:
        raise LedgerError(f"the seal of {path.name!r} is missing, it belongs beside it; {_SET_ASIDE}")
    return chain, count


def _chained(chain: str, line: str) -> str:
    return hashlib.sha256((chain + line[: -_TAIL - 1]).encode("utf-8", "surrogateescape")).hexdigest()


@dataclass
class Report:
    """What a check of a ledger found."""

    lines: int = 0
    runs: int = 0
    sealed: int = 0  # lines up to the last good seal
    by_kind: Counter[tuple[str, str]] = field(default_factory=Counter)  # messages
    bytes_by_kind: Counter[tuple[str, str]] = field(default_factory=Counter)


def verify(path: Path, check: Check) -> Report:
    """Read a ledger from its first line to its last; the first thing that is wrong is a `LedgerError`."""
    chain, report = _START, Report()
    next(_lines(path), None)  # that there is none says more than that its seal is missing
    sealed, last = _sealed(path, check)
    for number, line in _lines(path):
        entry = _entry(path, number, line)
        told = line[-3 - 64 : -3]
        if entry.get("n") != number or told != _chained(chain, line):
            raise LedgerError(f"line {number} of {path.name!r} {_BROKEN}")
        if "seal" in entry and not check(chain.encode(), _signature(entry["seal"])):
            raise LedgerError(f"line {number} of {path.name!r} has a seal that this party's key did not make")
        chain = told
        if number == sealed and chain != last:
            raise LedgerError(f"line {number} of {path.name!r} is another one than its seal says")
        _count(report, number, entry)
    if report.lines < sealed:
        raise LedgerError(
            f"{path.name!r} has {report.lines} lines, its seal says {sealed}: lines at the end were removed"
        )
    return report


def _count(report: Report, number: int, entry: dict[str, Any]) -> None:
    report.lines = number
    report.runs += entry.get("event") == "run"
    if "seal" in entry:
        report.sealed = number
    if "kind" in entry:
        key = str(entry.get("to")), str(entry["kind"])
        report.by_kind[key] += 1
        size = entry.get("bytes")
        report.bytes_by_kind[key] += size if isinstance(size, int) else 0


def _sealed(path: Path, check: Check) -> tuple[int, str]:
    """(lines, chain) up to where the seal beside the file goes."""
    try:
        end = json.loads(seal_file(path).read_text(encoding="utf-8"))
        lines, last, seal = int(end["lines"]), str(end["chain"]), _signature(end["seal"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise LedgerError(
            f"the seal of {path.name!r} can't be read ({type(error).__name__}): it belongs beside it"
        ) from None
    if not check(f"{lines} {last}".encode(), seal):
        raise LedgerError(
            f"the seal of {path.name!r} is not one that this party's key made; if the key was renewed, set the ledger "
            f"and its seal aside with the old certificate, and a new ledger begins"
        )
    return lines, last


def _signature(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        return b""


def _entry(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict) or not line.endswith('"}\n') or line[-_TAIL - 1 :][: len(_CHAIN)] != _CHAIN:
        raise LedgerError(f"line {number} of {path.name!r} is no line of a ledger: it was changed or cut off")
    return entry


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """All lines, as they are; `verify` says whether they can be believed."""
    for number, line in _lines(path):
        yield _entry(path, number, line)
