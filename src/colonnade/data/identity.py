"""Who a site is: an Ed25519 key of its own, and a roster of the other sites' public keys.

A site signs the keys of its masks and the list of those who are left in a sum; the others check the signatures against
their rosters. A roster comes from the organisations themselves (read out on the telephone, say, or in a contract) and
never through the server, which could have made whatever it hands out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from colonnade.errors import DataError, OptionError

KEY_BYTES = 32


class Identity:
    """A site's signing key; `Identity()` makes a new one.

    Parameters
    ----------
    secret
        The 32 bytes of a private key that exists already.

    Attributes
    ----------
    key
        The public key as bytes.
    public
        The public key as text, which the other sites put into their rosters.
    """

    def __init__(self, secret: bytes | None = None) -> None:
        self._private = Ed25519PrivateKey.generate() if secret is None else Ed25519PrivateKey.from_private_bytes(secret)
        self.key: bytes = self._private.public_key().public_bytes_raw()

    @property
    def public(self) -> str:
        """The public key as 64 hexadecimal digits."""
        return self.key.hex()

    @property
    def secret(self) -> bytes:
        """The private key itself, which goes to the site's own program and nowhere else."""
        return self._private.private_bytes_raw()

    def sign(self, statement: bytes) -> bytes:
        """Sign a statement with 64 bytes."""
        return self._private.sign(statement)

    def save(self, path: str | Path) -> None:
        """Write the private key to a new file (PEM, PKCS 8) that only its owner can read."""
        text = self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise DataError(f"{str(path)!r} exists already, and a key is never overwritten; give a new name") from None
        with os.fdopen(file, "wb") as out:
            out.write(text)

    @classmethod
    def load(cls, path: str | Path) -> Identity:
        """Read a private key from a file that `save` or `openssl genpkey -algorithm ed25519` wrote."""
        try:
            found = load_pem_private_key(Path(path).read_bytes(), None)
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(
                f"{str(path)!r} holds no key that can be read ({reason}); write one with Identity().save"
            ) from None
        if not isinstance(found, Ed25519PrivateKey):
            raise DataError(f"{str(path)!r} holds a {type(found).__name__}, an Ed25519 key is needed")
        return cls(found.private_bytes_raw())

    def __repr__(self) -> str:
        return f"Identity(public={self.public!r})"


def verified(key: bytes, statement: bytes, signature: bytes) -> bool:
    """Whether the holder of that public key signed the statement."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def checked_roster(site: str, identity: Any, roster: Any) -> dict[str, bytes] | None:
    """Return a site's roster as {site: public key}, with the site's own key in it; None where none was given."""
    if identity is not None and not isinstance(identity, Identity):
        raise OptionError(f"site {site!r}: identity must be a colonnade.Identity, got {type(identity).__name__}")
    if roster is None:
        return None
    if identity is None:
        raise OptionError(
            f"site {site!r} has a roster and no identity; give identity= too: the other sites look it up in theirs"
        )
    if not isinstance(roster, Mapping) or not all(isinstance(name, str) for name in roster):
        raise OptionError(f"site {site!r}: roster must be {{name of a site: its public key}}, got {roster!r}")
    found = {name: _key(site, name, text) for name, text in roster.items()}
    if found.setdefault(site, identity.key) != identity.key:
        raise OptionError(f"site {site!r} stands in its own roster with another key than its identity has; correct it")
    if len({*found.values()}) < len(found):
        raise OptionError(f"the roster of site {site!r} has the same key for two sites; every site has its own")
    return found


def _key(site: str, name: str, text: Any) -> bytes:
    try:
        key = bytes.fromhex(text)
    except (TypeError, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise OptionError(
            f"the roster of site {site!r} has {text!r} for {name!r}, a public key has {2 * KEY_BYTES} hexadecimal "
            f"digits; ask that site for its Identity.public"
        )
    return key
