"""Lists of revoked certificates: a file of the party's own, which its authorities have signed.

Whoever gives such a file wants it to count: every certificate between a party and its authority must then be covered by
a list of the one who signed it, with a good signature, whole, and not out of date. If not, nobody is let in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from colonnade.errors import CertificateError

if TYPE_CHECKING:
    from cryptography import x509

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
