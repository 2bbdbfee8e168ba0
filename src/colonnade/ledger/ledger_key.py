"""Digests that say nothing to those who have only the ledger.

A plain digest of a short message is the message: whoever tries all ids finds the one that was asked about. So every
digest is keyed with a secret that the party keeps beside its ledger. Each line has a key of its own, derived from that
secret: the owner can show one line's key to somebody and so prove what left with that line, and tells nothing about any
other. Nor do two lines about the same message have the same digest.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path

from colonnade import private_files
from colonnade.errors import LedgerError
from colonnade.runtimes.wire import Value, encode

_BYTES = 32


def key_file(path: Path) -> Path:
    """Where the secret of a ledger lies."""
    return path.with_name(path.name + ".key")


def read_key(path: Path) -> bytes:
    """The secret of a ledger."""
    beside = key_file(path)
    try:
        key = bytes.fromhex(private_files.read(beside, "the ledger's key", LedgerError).decode("ascii").strip())
    except OSError as error:
        raise LedgerError(f"the ledger's key {beside.name!r} can't be read: {error.strerror}") from None
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise LedgerError(
            f"the ledger's key {beside.name!r} must hold {_BYTES} bytes in hexadecimal; put it back from a backup, or "
            f"remove it for a new one, with which earlier digests can't be proved"
        )
    return key


def key_for(path: Path) -> bytes:
    """The secret of a ledger; a new one if there is none. Call it only with the ledger locked."""
    if not key_file(path).exists():
        private_files.write(key_file(path), secrets.token_bytes(_BYTES).hex() + "\n")
    return read_key(path)


def fingerprint(key: bytes) -> str:
    """Tells two secrets apart, and says nothing about either."""
    return hashlib.sha256(b"colonnade ledger key\n" + key).hexdigest()[:16]


def line_key(key: bytes, number: int) -> bytes:
    """The key of one line, to be shown to whoever shall believe what left with it."""
    return hmac.digest(key, f"colonnade ledger line {number}".encode(), "sha256")


def digest(of_line: bytes, value: Value) -> str:
    """Of a message, under the key of its line."""
    return hmac.digest(of_line, encode(value), "sha256").hex()
