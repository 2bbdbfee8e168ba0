"""Certificates: who a party is. One authority signs one certificate per party, with the party's name in it.

Organisations bring certificates of an authority that they all trust; `authority` makes such files for tests and first
steps.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from colonnade import private_files
from colonnade.errors import CertificateError
from colonnade.remote.trust import LONGEST_CHAIN, OUT_OF_DATE, Revocations, Trust, fingerprint, plain_pin

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes

NAME = re.compile("[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_REVOKED = "list of revoked certificates"


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


# -- reading them ------------------------------------------------------------------------------------------------------


def read_bytes_of(path: Path, what: str) -> bytes:
    """What a file holds; `what` it should be is for the error if it can't be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(f"the {what} {str(path)!r} can't be read: {error.strerror}") from None


def read_certificates(pem: bytes, path: Path) -> list[x509.Certificate]:
    """All certificates in a PEM text; the path is for the error if there are none."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise CertificateError(f"{str(path)!r} holds no certificate in PEM form") from None


def read_private_key(pem: bytes, path: Path) -> PrivateKeyTypes:
    """The private key in a PEM text; the path is for the error if there is none."""
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
        read_bytes_of(paths.authority, "authority"),
        read_bytes_of(paths.certificate, "certificate"),
        read_bytes_of(paths.key, "key"),
        b"" if paths.revoked is None else read_bytes_of(paths.revoked, _REVOKED),
        tuple((name, plain_pin(pin)) for name, pin in paths.pins),
    )


def own_fingerprint(paths: CertificatePaths) -> str:
    """What others pin."""
    return fingerprint(read_certificates(read_bytes_of(paths.certificate, "certificate"), paths.certificate)[0])


def check(paths: CertificatePaths, party: str) -> list[str]:
    """Everything that would keep a party with these files from joining, a sentence each."""
    try:
        authorities = read_certificates(read_bytes_of(paths.authority, "authority"), paths.authority)
        chain = read_certificates(read_bytes_of(paths.certificate, "certificate"), paths.certificate)
        key = read_private_key(read_bytes_of(paths.key, "key"), paths.key)
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
    data = read_bytes_of(path, _REVOKED)
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
