"""Certificates: who a party is. One authority signs one certificate per party, with the party's name in it.

Organisations bring certificates of an authority that they all trust. `make_authority` and `issue` make such files for
tests and first steps; an authority made here says in its own name what it is good for.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from colonnade import private_files
from colonnade.errors import CertificateError, OptionError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes

NAME = re.compile("[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
TEST_AUTHORITY = "colonnade test authority, for tests only"
_DAYS = 30
_LONGEST_CHAIN = 4


def dns_name(party: str) -> str:
    """The name that stands in a party's certificate."""
    if NAME.fullmatch(party):
        return f"{party}.colonnade"
    # In-process runtimes allow any text as a name. No party of a job has a dot in its name, so none is mistaken.
    return f"{hashlib.sha256(party.encode()).hexdigest()[:40]}.unnamed.colonnade"


@dataclass(frozen=True)
class Credentials:
    """What a party shows and whom it believes: PEM texts of its certificate, its key and the authority."""

    authority: bytes
    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Credentials(...)"  # a key has no place in a log


@dataclass(frozen=True)
class CertificatePaths:
    """Where a party's three files lie."""

    authority: Path
    certificate: Path
    key: Path

    @classmethod
    def within(cls, folder: Path, party: str) -> CertificatePaths:
        """As `make_authority` and `issue` name them."""
        return cls(folder / "authority.pem", folder / f"{party}.pem", folder / f"{party}.key")


# -- making them -------------------------------------------------------------------------------------------------------


class Authority:
    """A new authority, in memory; its key is drawn here and never leaves unless `write` is asked for."""

    def __init__(self, subject: str = TEST_AUTHORITY, days: float = _DAYS) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name(subject)
        usage = x509.KeyUsage(
            key_cert_sign=True, crl_sign=True, digital_signature=False, content_commitment=False, key_agreement=False,
            key_encipherment=False, data_encipherment=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        builder = _builder(self._name, self._name, self._key, days).add_extension(usage, critical=True)
        self._certificate = _signed(builder.add_extension(x509.BasicConstraints(True, 0), critical=True), self._key)
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
        authority._certificate = _certificates(_bytes(certificate, "authority"), certificate)[0]
        private = _bytes(key, "key of the authority")
        private_files.check(key, "the key of the authority", CertificateError)
        authority._key = _private_key(private, key)  # type: ignore[assignment]
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


def _signed(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


# -- reading them ------------------------------------------------------------------------------------------------------


def _bytes(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(f"the {what} {str(path)!r} can't be read: {error.strerror}") from None


def _certificates(pem: bytes, path: Path) -> list[x509.Certificate]:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise CertificateError(f"{str(path)!r} holds no certificate in PEM form") from None


def _private_key(pem: bytes, path: Path) -> PrivateKeyTypes:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(pem, password=None)
    except TypeError:
        raise CertificateError(f"the key {str(path)!r} is locked with a password; give one without") from None
    except ValueError:
        raise CertificateError(f"{str(path)!r} holds no private key in PEM form") from None


def load(paths: CertificatePaths, party: str) -> Credentials:
    """The credentials of a party; the first thing that is wrong with them is raised."""
    for problem in check(paths, party):
        raise CertificateError(problem)
    return Credentials(
        _bytes(paths.authority, "authority"), _bytes(paths.certificate, "certificate"), _bytes(paths.key, "key")
    )


def check(paths: CertificatePaths, party: str) -> list[str]:
    """Everything that would keep a party with these files from joining, a sentence each."""
    try:
        authorities = _certificates(_bytes(paths.authority, "authority"), paths.authority)
        chain = _certificates(_bytes(paths.certificate, "certificate"), paths.certificate)
        key = _private_key(_bytes(paths.key, "key"), paths.key)
    except CertificateError as error:
        return [str(error)]
    own, problems = chain[0], []
    if own.public_key() != key.public_key():
        problems.append(f"the key {str(paths.key)!r} does not belong to the certificate {str(paths.certificate)!r}")
    if (sentence := private_files.trouble(paths.key, "the key")) is not None:
        problems.append(sentence)
    for what, certificate in (("certificate", own), *(("authority", each) for each in authorities)):
        problems += _check_dates(what, certificate, paths)
    if not _issued_by(chain, authorities):
        problems.append(f"the certificate {str(paths.certificate)!r} is not signed by {str(paths.authority)!r}")
    if dns_name(party) not in (found := _dns_names(own)):
        names = ", ".join(map(repr, found)) or "no name"
        problems.append(
            f"the certificate {str(paths.certificate)!r} is made out to {names}, party {party!r} needs "
            f"{dns_name(party)!r}"
        )
    return problems


def public_key_of(party: str, shown: bytes, authority: bytes) -> PublicKeyTypes:
    """The public key of a certificate that a partner has shown, if the authority made it out to that party."""
    from cryptography import x509

    try:
        authorities, chain = (x509.load_pem_x509_certificates(pem) for pem in (authority, shown))
        issued, names = _issued_by(chain, authorities), _dns_names(chain[0])
    except ValueError:
        raise CertificateError(f"the certificate that is said to be of {party!r} can't be read") from None
    if not issued:
        raise CertificateError(f"the certificate that is said to be of {party!r} is not one of this party's authority")
    if dns_name(party) not in names:
        raise CertificateError(f"the certificate that is said to be of {party!r} is made out to another name")
    return chain[0].public_key()


def _check_dates(what: str, certificate: x509.Certificate, paths: CertificatePaths) -> list[str]:
    path, now = str(getattr(paths, what)), datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        return [f"the {what} {path!r} expired on {certificate.not_valid_after_utc:%d %B %Y}; get a new one"]
    if now < certificate.not_valid_before_utc:
        return [f"the {what} {path!r} is only valid from {certificate.not_valid_before_utc:%d %B %Y} on"]
    return []


def _dns_names(certificate: x509.Certificate) -> list[str]:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return names.value.get_values_for_type(x509.DNSName)


def _issued_by(chain: list[x509.Certificate], authorities: list[x509.Certificate]) -> bool:
    """Whether the first of a chain leads to one of the authorities, over the others of it."""
    from cryptography.exceptions import InvalidSignature

    at = chain[0]
    for _ in range(_LONGEST_CHAIN):
        for issuer in (*authorities, *chain[1:]):
            try:
                at.verify_directly_issued_by(issuer)
            except (ValueError, TypeError, InvalidSignature):
                continue
            if issuer in authorities:
                return True
            at = issuer
            break
        else:
            return False
    return False
