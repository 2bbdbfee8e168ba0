"""Whether a certificate is what it should be: one place decides, of a party's own and of everybody else's.

A party is known by a DNS name in its certificate, letter by letter. Common names, names with a star, e-mail addresses
and URIs name nobody. The chain to an authority is the business of `cryptography.x509.verification`, as of a client and
of a server. Written here by hand is only what it can't express: it takes a star for any name, knows no lists of revoked
certificates (`revocation`), and pins nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from colonnade.errors import CertificateError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.x509.verification import PolicyBuilder

if TYPE_CHECKING:
    from cryptography import x509


LONGEST_CHAIN = 4  # certificates that a party shows: its own, and those between it and the authority
LARGEST = 1 << 14  # bytes of one of them
_SHOWN = 4  # names of a certificate that an error tells
_PIN = re.compile(r"sha256:([0-9a-f]{2}:?){31}[0-9a-f]{2}", re.IGNORECASE)
OUT_OF_DATE = "it, its authority or one between them has expired or is not valid yet"
# The verifier's own words, where others help more.
_WORDS = {
    "2.5.29.35": "it does not say which key signed it (authority key identifier); have it made anew",
    "EKU": "it is not made for both client and server use (extended key usage)",
    "not valid at": OUT_OF_DATE,
}


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of a certificate, as a pin says it and `openssl x509 -fingerprint -sha256` shows it."""
    from cryptography.hazmat.primitives.hashes import SHA256

    return f"sha256:{certificate.fingerprint(SHA256()).hex()}"


def check_pin(text: str) -> str | None:
    """What is wrong with a pin, as the end of a sentence."""
    if _PIN.fullmatch(text):
        return None
    return "must be 'sha256:' and the 64 hexadecimal digits of a certificate's fingerprint"


def plain_pin(text: str) -> str:
    """A pin without colons between its digits."""
    return "sha256:" + text.lower().removeprefix("sha256:").replace(":", "")


def parse(chain: Sequence[bytes]) -> list[x509.Certificate]:
    """Certificates that somebody has sent, in DER, its own first."""
    from cryptography import x509

    if not chain:
        raise CertificateError("is missing")
    if len(chain) > LONGEST_CHAIN or any(len(each) > LARGEST for each in chain):
        raise CertificateError(f"comes with more than {LONGEST_CHAIN} certificates of {LARGEST} bytes")
    try:
        found = [x509.load_der_x509_certificate(each) for each in chain]
        # A signature is whole bytes. The library does not look at how many bits of the last one are said to be unused,
        # so the same certificate could come in other bytes, and under another fingerprint.
        whole = all(each.endswith(b"\0" + one.signature) for each, one in zip(chain, found, strict=True))
    except Exception:  # the library raises several kinds
        whole = False
    if not whole:
        raise CertificateError("is malformed")
    return found


def dns_names(certificate: x509.Certificate) -> list[str]:
    """The DNS names that a certificate is made out to; nothing else in it names a party."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except Exception:  # there are none, or none that can be read
        return []
    return names.value.get_values_for_type(x509.DNSName)


@dataclass(frozen=True)
class Trust:
    """Whom a party believes: authorities, less what they have revoked, and of some parties one certificate alone."""

    authorities: tuple[x509.Certificate, ...]
    revocations: Revocations | None = None
    pins: Mapping[str, str] = field(default_factory=dict)
    words: str = "an authority that is believed here"

    def problems(self, chain: Sequence[x509.Certificate], party: str, name: str, now: datetime) -> Iterator[str]:
        """All that keeps the first of a chain from being the party's, each as the end of "the certificate ..."."""
        own, found = chain[0], dns_names(chain[0])
        named = name in map(str.lower, found)
        if not named:
            shown = ", ".join(repr(one[:60]) for one in found[:_SHOWN]) + (", ..." if len(found) > _SHOWN else "")
            yield f"is made out to {shown or 'no DNS name'}, party {party!r} needs {name!r}"
        try:
            path = self._path(chain, name if named else None, now)
        except CertificateError as error:
            yield str(error)
        else:
            if self.revocations is not None and (problem := self.revocations.problem(path, now)):
                yield problem
        pin = self.pins.get(party)
        if pin is not None and (actual := fingerprint(own)) != pin:
            yield f"is not the one that is pinned for {party!r}: it has {actual}, pinned is {pin}"

    def _path(self, chain: Sequence[x509.Certificate], name: str | None, now: datetime) -> list[x509.Certificate]:
        """From the first of a chain to an authority."""
        from cryptography.x509 import DNSName
        from cryptography.x509.verification import VerificationError

        own, between = chain[0], list(chain[1:])
        try:
            found = self._policy(now).build_client_verifier().verify(own, between)
            if name is not None:
                self._policy(now).build_server_verifier(DNSName(name)).verify(own, between)
        except VerificationError as error:
            raise CertificateError(self._reason(str(error))) from None
        except Exception as error:  # what the library can't read, nobody has checked
            raise CertificateError(f"can't be checked ({type(error).__name__})") from None
        return found.chain

    def _policy(self, now: datetime) -> PolicyBuilder:
        from cryptography.x509.verification import PolicyBuilder, Store

        return PolicyBuilder().store(Store(list(self.authorities))).time(now).max_chain_depth(LONGEST_CHAIN)

    def _reason(self, said: str) -> str:
        for key, words in _WORDS.items():
            if key in said:
                return f"is not accepted: {words}"
        reason = said.removeprefix("validation failed: ").partition(" (encountered processing")[0]
        if "candidates exhausted" in said:
            reason = reason.rpartition("candidates exhausted")[2].strip(": ")
            why = "" if not reason or "signature" in reason or "no interior errors" in reason else f" ({reason})"
            return f"is not signed by {self.words}{why}"
        return f"is not accepted: {reason}"


# -- lists of revoked certificates: a file of the party's own, which its authorities have signed ---------------------

# Whoever gives such a file wants it to count: every certificate between a party and its authority must then be
# covered by a list of the one who signed it, with a good signature, whole, and not out of date. If not, nobody is let
# in.


_PEM = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)
_LIST = "the list of revoked certificates"


@dataclass(frozen=True)
class Revocations:
    """What authorities have revoked."""

    lists: tuple[x509.CertificateRevocationList, ...]

    @classmethod
    def read(cls, data: bytes) -> Revocations:
        """One list in DER form, or one or several in PEM form."""
        from cryptography import x509

        try:
            if found := _PEM.findall(data):
                return cls(tuple(map(x509.load_pem_x509_crl, found)))
            return cls((x509.load_der_x509_crl(data),))
        except ValueError:
            raise CertificateError("holds no list of revoked certificates in PEM or DER form") from None

    def out_of_date(self, now: datetime) -> str | None:
        """The first list that is, as the end of a sentence."""
        for each in self.lists:
            if each.next_update_utc is None:
                return "does not say when the next one is due; get one that does from the authority"
            if now > each.next_update_utc:
                return f"expired on {each.next_update_utc:%d %B %Y}; get a new one from the authority"
            if now < each.last_update_utc:
                return f"is only valid from {each.last_update_utc:%d %B %Y} on"
        return None

    def problem(self, path: Sequence[x509.Certificate], now: datetime) -> str | None:
        """Why a certificate that leads to an authority over this path is not let in, or None."""
        if stale := self.out_of_date(now):
            return f"can't be checked: {_LIST} {stale}"
        for certificate, issuer in pairwise(path):
            lists = [each for each in self.lists if each.issuer == certificate.issuer]
            by = issuer.subject.rfc4514_string()[:80]
            if not lists:
                return f"can't be checked: {_LIST} of {by!r}, who signed it, is missing"
            for each in lists:
                if trouble := _untrusted(each, issuer):
                    return f"can't be checked: {_LIST} of {by!r} {trouble}"
                entry = each.get_revoked_certificate_by_serial_number(certificate.serial_number)
                if entry is not None:
                    return f"was revoked by {by!r} on {entry.revocation_date_utc:%d %B %Y}"
        return None


def _untrusted(each: x509.CertificateRevocationList, issuer: x509.Certificate) -> str | None:
    """Why a list of this issuer's name is not to be believed, or is not a whole one."""
    from cryptography import x509

    try:
        if not each.is_signature_valid(issuer.public_key()):  # type: ignore[arg-type]  # other kinds raise
            return "is not signed by it"
        try:
            usage = issuer.extensions.get_extension_for_class(x509.KeyUsage).value
            if not usage.crl_sign:
                return "is signed with a key that is not for lists (key usage)"
        except x509.ExtensionNotFound:
            pass
        # A list of some kinds of certificates only, or of changes since another list, is marked by such an extension.
        partial = (x509.IssuingDistributionPoint, x509.DeltaCRLIndicator)
        if any(one.critical or isinstance(one.value, partial) for one in each.extensions):
            return "is only a part of one; get the whole"
    except Exception as error:  # what the library can't read, nobody has checked
        return f"can't be read ({type(error).__name__})"
    return None
