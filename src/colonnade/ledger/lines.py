"""The lines of a ledger as they stand in its file, and what of them is remembered from run to run.

A line is JSON and ends with the SHA-256 of everything up to it. Since format 2 its digests are keyed and partners
countersign (`witness`); the chain is made as in format 1, so that a ledger of that time simply goes on.

A plain digest of a short message is the message: whoever tries all ids finds the one that was asked about. So every
digest is keyed with a secret that the party keeps beside its ledger. Each line has a key of its own, derived from that
secret: the owner can show one line's key to somebody and so prove what left with that line, and tells nothing about any
other. Nor do two lines about the same message have the same digest.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade import private_files
from colonnade.errors import LedgerError
from colonnade.ledger.receipts import Statement
from colonnade.runtimes.wire import Value, encoded_parts

FORMAT = 2
START = hashlib.sha256(b"colonnade ledger 1").hexdigest().encode()
CHAIN = b',"chain":"'  # what a line ends with: this, 64 hexadecimal digits, and two more characters
TAIL = len(CHAIN) + 64 + 2
OF_RUN = "of run"  # the run of a line, where it is another one than that of the line before
BROKEN = "does not follow from the lines before it: a line was changed, removed or moved"
_EVENT, _FRONT = b'"event":"', 100  # behind the number and the time; a message's line has no such key

Record = Mapping[str, int | str | float]
Check = Callable[[bytes, bytes], bool]  # (what was signed, signature)


def seal_file(path: Path) -> Path:
    """Return the path of the file in which the ledger's end is written down."""
    return path.with_name(path.name + ".seal")


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield all lines with their numbers, line ends included."""
    try:
        with path.open("rb") as file:
            yield from enumerate(file, 1)
    except OSError as error:
        raise LedgerError(f"the ledger {path.name!r} can't be read: {error.strerror}") from None


def chained(chain: bytes, line: bytes) -> bytes:
    """Return what the chain is after this line."""
    return hashlib.sha256(chain + line[: -TAIL - 1]).hexdigest().encode()


def told(line: bytes) -> bytes:
    """Return the chain as the line itself tells it."""
    return line[-3 - 64 : -3]


def is_event(line: bytes) -> bool:
    """Return whether a line is about anything but a message that left."""
    return line.find(_EVENT, 0, _FRONT) > 0


def entry_of(path: Path, number: int, line: bytes) -> dict[str, Any]:
    """Return a line's content."""
    try:
        entry = json.loads(line.decode())
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict) or not line.endswith(b'"}\n') or line[-TAIL - 1 :][: len(CHAIN)] != CHAIN:
        raise LedgerError(f"line {number} of {path.name!r} is no line of a ledger: it was changed or cut off")
    return entry


def sealed(path: Path, check: Check) -> tuple[int, bytes]:
    """Return (lines, chain) up to where the seal beside the file goes."""
    try:
        end = json.loads(seal_file(path).read_text(encoding="utf-8"))
        count, last, seal = int(end["lines"]), str(end["chain"]), signature(end["seal"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise LedgerError(
            f"the seal of {path.name!r} can't be read ({type(error).__name__}): it belongs beside it"
        ) from None
    if not check(f"{count} {last}".encode(), seal):
        raise LedgerError(
            f"the seal of {path.name!r} is not one that this party's key made; if the key was renewed, set the ledger "
            f"and its seal aside with the old certificate, and a new ledger begins"
        )
    return count, last.encode()


def signature(text: Any) -> bytes:
    """Decode a signature from base64; what is none becomes empty, and fits nothing."""
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        return b""


@dataclass
class Memory:
    """What a ledger knows from one run to the next, gathered line by line from its events."""

    book: str = ""  # which ledger this is: the chain after its first line
    heads: dict[int, str] = field(default_factory=dict)  # {line: chain} of all seals
    records: dict[str, list[dict[str, int | str | float]]] = field(default_factory=dict)
    # {partner: {what about: the last that was seen}}, about a job and about a book of the partner's
    _seen: dict[str, dict[tuple[str, str], Statement]] = field(default_factory=dict)

    def take(self, number: int, entry: dict[str, Any], chain: str) -> None:
        """Take in an event; raises ValueError, KeyError or TypeError for one that no version wrote."""
        event = entry.get("event")
        if "seal" in entry:
            self.heads[number] = chain
        if event == "run" and not (type(entry["format"]) is int and 1 <= entry["format"] <= FORMAT):
            raise ValueError(f"it has format {entry['format']!r}, this version reads up to {FORMAT}")
        if event == "remember":
            self.records.setdefault(str(entry["of"]), []).append(dict(entry["record"]))
        elif event == "seen":
            statement = Statement.parse(entry["statement"])
            seen = self._seen.setdefault(statement.head.owner, {})
            seen["job", statement.job] = seen["book", statement.head.book] = statement
        elif event == "accepted":
            self._seen.pop(str(entry["of"]), None)

    def partners(self) -> tuple[str, ...]:
        """Return the partners of whose ledgers anything was seen."""
        return tuple(self._seen)

    def seen_of(self, partner: str) -> list[Statement]:
        """Return the last that was seen of a partner's ledger, in every job and of every book; the newest first."""
        found = dict.fromkeys(self._seen.get(partner, {}).values())
        return sorted(found, key=lambda statement: statement.time, reverse=True)


def remembered(path: Path, number: int, line: bytes, memory: Memory) -> dict[str, Any]:
    """Return the content of an event, after taking it into the memory."""
    entry = entry_of(path, number, line)
    try:
        memory.take(number, entry, told(line).decode())
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerError(
            f"line {number} of {path.name!r} says what this version does not know ({error}); use the one that wrote it"
        ) from None
    return entry


_KIND = re.compile("[a-z][a-z0-9 -]{0,39}")
_MOST = 1 << 14  # characters of a record


def check_record(kind: str, record: Record) -> None:
    """Refuse what would not be the same after it was written and read again."""
    if not _KIND.fullmatch(kind):
        raise LedgerError(f"a kind of record has up to 40 lower-case letters, digits and hyphens, got {kind!r}")
    for key, value in record.items():
        plain = type(key) is str and type(value) in (int, str, float)
        if not plain or (type(value) is float and value - value != 0.0):
            raise LedgerError(
                f"a record of the kind {kind!r} holds texts and finite numbers under names, got {value!r} as {key!r}"
            )
    if len(json.dumps(dict(record))) > _MOST:
        raise LedgerError(f"a record of the kind {kind!r} has at most {_MOST} characters; keep less in one")


# -- keyed digests -----------------------------------------------------------------------------------------------------

_KEY_BYTES = 32


def key_file(path: Path) -> Path:
    """Return the path of a ledger's secret."""
    return path.with_name(path.name + ".key")


def read_key(path: Path) -> bytes:
    """Return the secret of a ledger."""
    beside = key_file(path)
    try:
        key = bytes.fromhex(private_files.read(beside, "the ledger's key", LedgerError).decode("ascii").strip())
    except OSError as error:
        raise LedgerError(f"the ledger's key {beside.name!r} can't be read: {error.strerror}") from None
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise LedgerError(
            f"the ledger's key {beside.name!r} must hold {_KEY_BYTES} bytes in hexadecimal; put it back from a backup, "
            f"or remove it for a new one, with which earlier digests can't be proved"
        )
    return key


def key_for(path: Path) -> bytes:
    """Return the secret of a ledger, and make one if there is none. Call it only with the ledger locked."""
    if not key_file(path).exists():
        private_files.write(key_file(path), secrets.token_bytes(_KEY_BYTES).hex() + "\n")
    return read_key(path)


def fingerprint(key: bytes) -> str:
    """Return what tells two secrets apart and says nothing about either."""
    return hashlib.sha256(b"colonnade ledger key\n" + key).hexdigest()[:16]


def line_key(key: bytes, number: int) -> bytes:
    """Return the key of one line, to be shown to anybody who is to believe what left with it."""
    return hmac.digest(key, f"colonnade ledger line {number}".encode(), "sha256")


def digest(of_line: bytes, value: Value) -> str:
    """Return the digest of a message under the key of its line."""
    made = hmac.new(of_line, digestmod="sha256")
    for part in encoded_parts(value):  # never as a whole: a long message would take as much memory again
        made.update(part)  # type: ignore[arg-type]
    return made.hexdigest()
