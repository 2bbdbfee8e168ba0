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
from colonnade.remote.revocation import Revocations
from colonnade.remote.trust import LONGEST_CHAIN, OUT_OF_DATE, Trust, fingerprint, plain_pin

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes

NAME = re.compile("[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_REVOKED = "list of revoked certificates"
TEST_AUTHORITY = "colonnade test authority, for tests only"
_DAYS = 30


def dns_name(party: str) -> str:
    """The name that stands in a party's certificate."""
    if NAME.fullmatch(party):
        return f"{party}.colonnade"
    # In-process runtimes allow any text as a name. No party of a job has a dot in its name, so none is mistaken.
    return f"{hashlib.sha256(party.encode()).hexdigest()[:40]}.unnamed.colonnade"


@dataclass(frozen=True)
class Credentials:
    """What a party shows and whom it believes: PEM texts of its certificate, its key and the authority.

    revoked: lists of revoked certificates, in PEM or DER. pins: of some parties, the fingerprint of the one certificate
    that is theirs.
    """

    authority: bytes
    certificate: bytes
    key: bytes
    revoked: bytes = b""
    pins: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return "Credentials(...)"  # a key has no place in a log

    def chain(self) -> tuple[bytes, ...]:
        """The certificates that the party shows, in DER, its own first."""
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding

        return tuple(each.public_bytes(Encoding.DER) for each in x509.load_pem_x509_certificates(self.certificate))

    def trust(self) -> Trust:
        """Whom the party believes."""
        from cryptography import x509

        revocations = Revocations.read(self.revoked) if self.revoked else None
        return Trust(tuple(x509.load_pem_x509_certificates(self.authority)), revocations, dict(self.pins))


@dataclass(frozen=True)
class CertificatePaths:
    """Where a party's three files lie, perhaps a list of revoked certificates, and the fingerprints of some peers'."""

    authority: Path
    certificate: Path
    key: Path
    revoked: Path | None = None
    pins: tuple[tuple[str, str], ...] = ()

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
        _bytes(paths.authority, "authority"),
        _bytes(paths.certificate, "certificate"),
        _bytes(paths.key, "key"),
        b"" if paths.revoked is None else _bytes(paths.revoked, _REVOKED),
        tuple((name, plain_pin(pin)) for name, pin in paths.pins),
    )


def own_fingerprint(paths: CertificatePaths) -> str:
    """What others pin."""
    return fingerprint(_certificates(_bytes(paths.certificate, "certificate"), paths.certificate)[0])


def check(paths: CertificatePaths, party: str) -> list[str]:
    """Everything that would keep a party with these files from joining, a sentence each."""
    try:
        authorities = _certificates(_bytes(paths.authority, "authority"), paths.authority)
        chain = _certificates(_bytes(paths.certificate, "certificate"), paths.certificate)
        key = _private_key(_bytes(paths.key, "key"), paths.key)
        revoked = _revocations(paths.revoked)
    except CertificateError as error:
        return [str(error)]
    own, problems = chain[0], []
    if own.public_key() != key.public_key():
        problems.append(f"the key {str(paths.key)!r} does not belong to the certificate {str(paths.certificate)!r}")
    if (sentence := private_files.trouble(paths.key, "the key")) is not None:
        problems.append(sentence)
    if len(chain) > LONGEST_CHAIN:
        problems.append(f"{str(paths.certificate)!r} holds {len(chain)} certificates, allowed are {LONGEST_CHAIN}")
    dates = []
    for what, certificate in (("certificate", own), *(("authority", each) for each in authorities)):
        dates += _check_dates(what, certificate, paths)
    now = datetime.now(UTC)
    if revoked is not None and (stale := revoked.out_of_date(now)):
        dates.append(f"the {_REVOKED} {str(paths.revoked)!r} {stale}")
        revoked = None
    pins = {name: plain_pin(pin) for name, pin in paths.pins}
    trust = Trust(tuple(authorities), revoked, pins, words=repr(str(paths.authority)))
    # What is out of date is said once; what else is wrong shows at a time when the certificate was good.
    when = min(max(now, own.not_valid_before_utc), own.not_valid_after_utc)
    others = trust.problems(chain, party, dns_name(party), when)
    found = [problem for problem in others if not dates or OUT_OF_DATE not in problem]
    return [*problems, *dates, *(f"the certificate {str(paths.certificate)!r} {problem}" for problem in found)]


def _revocations(path: Path | None) -> Revocations | None:
    if path is None:
        return None
    data = _bytes(path, _REVOKED)
    try:
        return Revocations.read(data)
    except CertificateError as error:
        raise CertificateError(f"{str(path)!r} {error}") from None


def public_key_of(party: str, shown: bytes, authority: bytes) -> PublicKeyTypes:
    """The public key of a certificate that a partner has shown, if the authority made it out to that party.

    What a partner signed stays signed: a certificate that has expired since then is looked at as of its last day.
    """
    from cryptography import x509

    try:
        authorities, chain = (x509.load_pem_x509_certificates(pem) for pem in (authority, shown))
    except ValueError:
        raise CertificateError(f"the certificate that is said to be of {party!r} can't be read") from None
    when = min(max(datetime.now(UTC), chain[0].not_valid_before_utc), chain[0].not_valid_after_utc)
    trust = Trust(tuple(authorities), words="this party's authority")
    if problem := next(trust.problems(chain, party, dns_name(party), when), None):
        raise CertificateError(f"the certificate that is said to be of {party!r} {problem}")
    return chain[0].public_key()


def _check_dates(what: str, certificate: x509.Certificate, paths: CertificatePaths) -> list[str]:
    path, now = str(getattr(paths, what)), datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        return [f"the {what} {path!r} expired on {certificate.not_valid_after_utc:%d %B %Y}; get a new one"]
    if now < certificate.not_valid_before_utc:
        return [f"the {what} {path!r} is only valid from {certificate.not_valid_before_utc:%d %B %Y} on"]
    return []
