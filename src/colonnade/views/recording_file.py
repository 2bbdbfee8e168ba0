"""A recording on disk: encrypted, and believed only after every byte of it was found to be as it was written.

    magic, format, 32 bytes of salt, then pieces of 16 MB, each AES-256-GCM

The key of a file follows (HKDF-SHA256) from the party's own secret, the salt, and whose recording it is: a file of
another party or another training has another key. A piece's nonce is its number and whether it is the last one, so that
pieces can be neither left out, nor moved, nor cut off. The secret lies beside the party's other ones.
"""

from __future__ import annotations

import math
import secrets
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from colonnade import private_files
from colonnade.errors import DataError, ProtocolError
from colonnade.runtimes.wire import decode, encode

RECORDING, KEY = "recording.colonnade", "recordings.key"
_MAGIC, _FORMAT = b"colonnade recording\n", 1
_BYTES, _PIECE, _TAG = 32, 1 << 24, 16
_HEAD = len(_MAGIC) + 1 + _BYTES


def secret_of(folder: Path, *, make: bool = False) -> bytes:
    """Return the secret under which a party's recordings are encrypted; `make` says to make one where there is none."""
    path = folder / KEY
    if make and not path.exists():
        private_files.write(path, secrets.token_bytes(_BYTES).hex() + "\n")
    try:
        content = private_files.read(path, "the key of recordings", DataError)
    except FileNotFoundError:
        raise DataError(
            f"{KEY!r} is missing in {folder.name!r}, and recordings can't be read without it; restore it from a backup"
        ) from None
    try:
        found = bytes.fromhex(content.decode().strip())
    except ValueError:
        found = b""
    if len(found) != _BYTES:
        raise DataError(f"{KEY!r} in {folder.name!r} holds no key of {_BYTES} bytes; restore it from a backup")
    return found


def write_recording(path: Path, secret: bytes, whose: str, value: Any) -> int:
    """Write a wire value, readable by whoever has the secret and its owner alone; return how many bytes it took.

    whose: the party and the training, to which the file is bound.
    """
    salt = secrets.token_bytes(_BYTES)
    cipher, plain = _cipher(secret, salt, whose), encode(value)
    count = max(1, math.ceil(len(plain) / _PIECE))
    with private_files.writing(path) as file:
        file.write(_MAGIC + bytes([_FORMAT]) + salt)
        for number in range(count):
            piece = plain[number * _PIECE : (number + 1) * _PIECE]
            file.write(cipher.encrypt(_nonce(number, last=number == count - 1), piece, None))
    return _HEAD + len(plain) + count * _TAG


def read_recording(path: Path, secret: bytes, whose: str) -> Any:
    """Return the value of a recording, once all of it is known to be as this party wrote it."""
    where = f"{path.name!r} in {path.parent.name!r}"
    content = private_files.read(path, "the recording", DataError)
    if len(content) <= _HEAD or not content.startswith(_MAGIC) or content[len(_MAGIC)] != _FORMAT:
        raise DataError(f"{where} is no recording of this version of colonnade; remove it, and record another run")
    cipher, found = _cipher(secret, content[len(_MAGIC) + 1 : _HEAD], whose), []
    sealed = memoryview(content)[_HEAD:]
    count = math.ceil(len(sealed) / (_PIECE + _TAG))
    try:
        for number in range(count):
            piece = sealed[number * (_PIECE + _TAG) : (number + 1) * (_PIECE + _TAG)]
            found.append(cipher.decrypt(_nonce(number, last=number == count - 1), piece, None))
    except (InvalidTag, ValueError):
        raise DataError(
            f"{where} was changed or cut off, is of another party or training, or {KEY!r} is not the key that it was "
            f"written with; nothing in it is believed: restore both from one backup, or record another run"
        ) from None
    try:
        return decode(b"".join(found), room=math.inf)
    except ProtocolError as error:
        raise DataError(f"{where} can't be read ({error}); record another run") from None


def _cipher(secret: bytes, salt: bytes, whose: str) -> AESGCM:
    about = b"colonnade recording" + bytes([_FORMAT]) + whose.encode()
    return AESGCM(HKDF(algorithm=hashes.SHA256(), length=_BYTES, salt=salt, info=about).derive(secret))


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])
