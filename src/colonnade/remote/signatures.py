"""Signatures with a party's own key: the seals of its ledger, what it says about others', its part of a handshake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from colonnade.errors import CertificateError
from colonnade.remote.certificates import public_key_of

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
