"""An authority of one's own, for tests and first steps: it says in its own name what it is good for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from colonnade import private_files
from colonnade.errors import CertificateError, OptionError
from colonnade.remote.certificates import (
    NAME,
    CertificatePaths,
    Credentials,
    dns_name,
    read_bytes_of,
    read_certificates,
    read_private_key,
)

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

TEST_AUTHORITY = "colonnade test authority, for tests only"
_DAYS = 30


class Authority:
    """A new authority, in memory; its key is drawn here and never leaves unless `write` is asked for."""

    def __init__(self, subject: str = TEST_AUTHORITY, days: float = _DAYS) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name(subject)
        own = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = (
            _builder(self._name, self._name, self._key, days)
            .add_extension(_usage(authority=True), critical=True)
            .add_extension(x509.BasicConstraints(True, 0), critical=True)
            .add_extension(own, critical=False)
        )
        self._certificate = _signed(builder, self._key)
        self.pem = _pem(self._certificate)

    def issue(self, party: str, days: float = _DAYS) -> Credentials:
        """A certificate for a party, with a key of its own; a negative number of days makes one that has expired."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        both_ways = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            _builder(_common_name(party[:64]), self._name, key, days)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(dns_name(party))]), critical=False)
            .add_extension(x509.BasicConstraints(False, None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(both_ways), critical=False)
            .add_extension(_usage(authority=False), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        return Credentials(self.pem, _pem(_signed(builder, self._key)), _key_pem(key))

    def write(self, folder: Path) -> None:
        """Keep the authority as authority.pem and authority.key."""
        private_files.make_folder(folder)
        (folder / "authority.pem").write_bytes(self.pem)
        private_files.write(folder / "authority.key", _key_pem(self._key))

    @classmethod
    def read(cls, folder: Path) -> Authority:
        """The authority that `write` kept."""
        certificate, key = folder / "authority.pem", folder / "authority.key"
        authority = cls.__new__(cls)
        authority._certificate = read_certificates(read_bytes_of(certificate, "authority"), certificate)[0]
        private = read_bytes_of(key, "key of the authority")
        private_files.check(key, "the key of the authority", CertificateError)
        authority._key = read_private_key(private, key)  # type: ignore[assignment]
        authority._name, authority.pem = authority._certificate.subject, _pem(authority._certificate)
        return authority


def make_authority(folder: Path, days: float = _DAYS) -> Authority:
    """A new test authority, kept in the folder; one that is already there is not replaced."""
    if (folder / "authority.key").exists():
        raise OptionError(f"{folder / 'authority.key'} exists already; remove it, or choose another folder")
    authority = Authority(days=days)
    authority.write(folder)
    return authority


def issue(folder: Path, party: str, days: float = _DAYS) -> CertificatePaths:
    """A certificate and a key for a party, from the authority in the folder."""
    if not NAME.fullmatch(party):
        raise OptionError(
            f"the name of a party has at most 40 lower-case letters, digits and inner hyphens, got {party!r}"
        )
    paths = CertificatePaths.within(folder, party)
    credentials = Authority.read(folder).issue(party, days)
    paths.certificate.write_bytes(credentials.certificate)
    private_files.write(paths.key, credentials.key)
    return paths


def _common_name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    from cryptography import x509

    # It begins an hour ago: another organisation's clock may be slow.
    end = datetime.now(UTC) + timedelta(days=days)
    begin = min(end, datetime.now(UTC)) - timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        key_cert_sign=authority, crl_sign=authority, digital_signature=not authority, content_commitment=False,
        key_agreement=False, key_encipherment=False, data_encipherment=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _signed(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
