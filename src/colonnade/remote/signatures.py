"""Signatures with a party's own key: the seals of its ledger, what it says about others', its part of a handshake.

TLS looks less closely at names than a party does. So in the handshake each side shows its certificates once more, and
signs what was said with its own key (`OwnIdentity`): nobody else can.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from colonnade.errors import CertificateError, HandshakeFailed
from colonnade.remote.certificates import Credentials, dns_name, public_key_of
from colonnade.remote.trust import parse

# Before all that is signed here: a signature made for a handshake fits no ledger, and the other way round.
_PURPOSE = b"colonnade handshake\0"
Check = Callable[[bytes, bytes], bool]  # (what was signed, signature) -> whether it fits


def signer(key: bytes) -> Callable[[bytes], bytes]:
    """Sign with a private key in PEM."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

    private = serialization.load_pem_private_key(key, None)
    if isinstance(private, ec.EllipticCurvePrivateKey):
        return lambda data: private.sign(data, ec.ECDSA(hashes.SHA256()))
    if isinstance(private, rsa.RSAPrivateKey):
        return lambda data: private.sign(data, padding.PKCS1v15(), hashes.SHA256())
    if isinstance(private, ed25519.Ed25519PrivateKey):
        return private.sign
    raise CertificateError(f"a party signs with an EC, RSA or Ed25519 key, got {type(private).__name__}")


def checker(certificate: Path) -> Check:
    """Check signatures against a certificate in PEM: (what was signed, signature) -> whether it fits."""
    from cryptography import x509

    try:
        return verifier(x509.load_pem_x509_certificate(certificate.read_bytes()).public_key())
    except (OSError, ValueError) as error:
        raise CertificateError(
            f"the certificate {certificate.name!r} can't be read ({error}); give a PEM file"
        ) from None


def vouched(authority: bytes) -> Callable[[str, bytes], Check]:
    """How to check a partner's signatures, from its name and a certificate that it showed and this authority made."""

    def check_of(party: str, certificate: bytes) -> Check:
        return verifier(public_key_of(party, certificate, authority))

    return check_of


def vouched_by(authority: Path) -> Callable[[str, bytes], Check]:
    """The same, with the authority's certificate in a file."""
    try:
        return vouched(authority.read_bytes())
    except OSError as error:
        raise CertificateError(f"the authority {str(authority)!r} can't be read: {error.strerror}") from None


def verifier(public: Any) -> Check:
    """Check signatures against a public key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

    def check(data: bytes, signature: bytes) -> bool:
        try:
            if isinstance(public, ec.EllipticCurvePublicKey):
                public.verify(signature, data, ec.ECDSA(hashes.SHA256()))
            elif isinstance(public, rsa.RSAPublicKey):
                public.verify(signature, data, padding.PKCS1v15(), hashes.SHA256())
            elif isinstance(public, ed25519.Ed25519PublicKey):
                public.verify(signature, data)
            else:
                return False
        except InvalidSignature:
            return False
        return True

    return check


# -- in a handshake ----------------------------------------------------------------------------------------------------


class OwnIdentity:
    """A party's own, and what it makes of others'."""

    def __init__(self, credentials: Credentials) -> None:
        self.chain = credentials.chain()
        self._sign = signer(credentials.key)
        self._trust = credentials.trust()

    def sign(self, role: str, transcript: bytes) -> bytes:
        """A signature that only this party can make, of what was said, in its role."""
        return self._sign(_signed(role, transcript))

    def believe(self, chain: tuple[bytes, ...], party: str) -> Callable[[str, bytes, bytes], bool]:
        """Whether these certificates are a party's: raises, or returns what checks (role, transcript, signature)."""
        try:
            certificates = parse(chain)
        except CertificateError as error:
            raise HandshakeFailed(f"its certificate {error}") from None
        for problem in self._trust.problems(certificates, party, dns_name(party), datetime.now(UTC)):
            raise HandshakeFailed(f"its certificate {problem}")
        check = verifier(certificates[0].public_key())
        return lambda role, transcript, signature: check(_signed(role, transcript), signature)


def _signed(role: str, transcript: bytes) -> bytes:
    return _PURPOSE + role.encode() + b"\0" + transcript
