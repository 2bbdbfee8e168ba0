"""What partners say about each other's ledgers: "I have seen line N of yours, and the chain was H there".

A `Head` is how far a ledger is, and its owner signs it. A `Statement` is a partner's word that it has seen one, with
the owner's signature in it: neither of the two can deny it, and none can make it up. A file of receipts holds a
partner's statements with its certificate, for whoever checks a ledger.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from colonnade import private_files
from colonnade.errors import LedgerError

FORMAT = 1
MOST_TEXT = 1 << 13  # characters of a statement
MOST_CERTIFICATE = 1 << 16  # bytes of a certificate and those that lead to its authority
_MOST_FILE = 1 << 28
_HASH, _RUN = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{16}")
_PARTS = ("by", "of", "book", "lines", "head", "run", "job", "time", "proof")


@dataclass(frozen=True)
class Head:
    """How far a ledger is, at one of its seals."""

    owner: str
    book: str  # which ledger: the chain after its first line
    lines: int
    chain: str
    run: str  # the owner's number of the run that it belongs to

    def __post_init__(self) -> None:
        fits = _HASH.fullmatch(self.book) and _HASH.fullmatch(self.chain) and _RUN.fullmatch(self.run)
        if not fits or type(self.lines) is not int or not 0 < self.lines < 1 << 53:
            raise ValueError("it is no head of a ledger")

    @property
    def to_sign(self) -> bytes:
        """The bytes that the owner signs."""
        return b"colonnade ledger head\n" + json.dumps(asdict(self), sort_keys=True).encode()


@dataclass(frozen=True)
class Statement:
    """A partner's word that it has seen a head."""

    by: str
    head: Head
    job: str  # the name of the job in which
    time: str
    proof: str  # the owner's signature of the head, in base64

    @property
    def text(self) -> str:
        """The statement as it is signed, kept and sent."""
        head = self.head
        values = (self.by, head.owner, head.book, head.lines, head.chain, head.run, self.job, self.time, self.proof)
        return json.dumps(dict(zip(_PARTS, values, strict=True)), separators=(",", ":"))

    @property
    def to_sign(self) -> bytes:
        """The bytes that the partner signs."""
        return b"colonnade ledger receipt\n" + self.text.encode()

    @property
    def date(self) -> str:
        """The time of the statement, as people write it."""
        return f"{datetime.fromisoformat(self.time):%d %B %Y %H:%M} UTC"

    @classmethod
    def parse(cls, text: Any) -> Statement:
        """Read what `text` has written; ValueError for anything else."""
        if type(text) is not str or len(text) > MOST_TEXT:
            raise ValueError("it is no statement about a ledger")
        try:
            parts = json.loads(text)
            by, of, book, lines, chain, run, job, time, proof = (parts[name] for name in _PARTS)
            if {type(one) for one in (by, of, book, chain, run, job, time, proof)} != {str}:
                raise TypeError
            if datetime.fromisoformat(time).tzinfo is not UTC:
                raise TypeError
            found = cls(by, Head(of, book, lines, chain, run), job, time, proof)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError("it is no statement about a ledger") from None
        if found.text != text:
            raise ValueError("it is no statement about a ledger")
        return found


@dataclass(frozen=True)
class Receipt:
    """A statement with the partner's signature, and the certificate to check it by."""

    statement: Statement
    signature: bytes
    certificate: bytes  # of the partner, in PEM


def write_receipts(path: Path, by: str, certificate: bytes, signed: Iterable[tuple[str, str]]) -> int:
    """Write (statement, signature in base64) of one partner to a file; returns how many there are."""
    kept = [list(one) for one in signed]
    content = {"format": FORMAT, "by": by, "certificate": certificate.decode("ascii", "replace"), "receipts": kept}
    try:
        private_files.write(path, json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise LedgerError(f"the receipts can't be written to {str(path)!r}: {error.strerror}") from None
    return len(kept)


def read_receipts(path: Path) -> list[Receipt]:
    """Read a partner's file of receipts; nothing of what it says is believed yet."""
    try:
        if path.stat().st_size > _MOST_FILE:
            raise ValueError
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise LedgerError(f"{path.name} has format {content['format']!r}, this version reads format {FORMAT}")
        certificate = str(content["certificate"]).encode()
        return [
            Receipt(Statement.parse(text), base64.b64decode(signature, validate=True), certificate)
            for text, signature in content["receipts"]
        ]
    except OSError as error:
        raise LedgerError(f"the receipts {str(path)!r} can't be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise LedgerError(
            f"{path.name} is no file of receipts; the partner makes one with `colonnade ledger receipts`"
        ) from None
