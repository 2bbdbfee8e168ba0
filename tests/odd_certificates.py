"""Certificates that an authority may sign and that no party should be known by, and lists of revoked ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from colonnade.remote import authority as authority_module
from colonnade.remote import certificates
from colonnade.remote.authority import Authority
from colonnade.remote.certificates import Credentials

BOTH = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
# What v stands for is the DNS name that a party needs; none of these is one.
NOT_NAMES = {
    "an e-mail address": lambda v: [x509.DNSName("mallory.example"), x509.RFC822Name(v)],
    "a URI": lambda v: [x509.DNSName("mallory.example"), x509.UniformResourceIdentifier(v)],
    "a common name alone": lambda v: [],
    "a star": lambda v: [x509.DNSName("*.colonnade")],
    "a part of it": lambda v: [x509.DNSName(v.partition(".")[0])],
    "another party's": lambda v: [x509.DNSName("mallory.colonnade")],
}


def name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def issue(authority, names, common="x", *, usage=BOTH, key_identifier=True, is_authority=False, shown=()):
    """A certificate with these alternative names, signed by an authority, or by the holder of other credentials."""
    key = ec.generate_private_key(ec.SECP256R1())
    signing, issuer = authority._key, authority._name
    builder = authority_module._builder(name(common), issuer, key, 3)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(is_authority, None), critical=True)
    if usage:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
    if is_authority:
        builder = builder.add_extension(authority_module._usage(authority=True), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, critical=False)
    if key_identifier:
        known = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
        builder = builder.add_extension(known, critical=False)
    pem = authority_module._pem(authority_module._signed(builder, signing))
    root = getattr(authority, "root", authority)
    return Credentials(root.pem, pem + b"".join(shown), authority_module._key_pem(key))


class Signer:
    """Somebody whose certificate an authority has signed, and who signs others with it."""

    def __init__(self, root, credentials):
        self.root, self.credentials = root, credentials
        self._key = certificates.read_private_key(credentials.key, None)
        self._name = x509.load_pem_x509_certificate(credentials.certificate).subject

    def issue(self, party, **options):
        names = [x509.DNSName(certificates.dns_name(party))]
        return issue(self, names, shown=(self.credentials.certificate,), **options)


def deep_authority():
    """An authority that lets others sign in its name."""
    authority = Authority()
    builder = (
        authority_module._builder(authority._name, authority._name, authority._key, 30)
        .add_extension(x509.BasicConstraints(True, None), critical=True)
        .add_extension(authority_module._usage(authority=True), critical=True)
    )
    authority._certificate = authority_module._signed(builder, authority._key)
    authority.pem = authority_module._pem(authority._certificate)
    return authority


def serial(credentials):
    return x509.load_pem_x509_certificate(credentials.certificate).serial_number


def revoked(authority, *credentials, since=1.0, until=10.0, encoding=Encoding.PEM, extension=None, key=None):
    """A list of these, made so many days ago, the next one due in so many."""
    now = datetime.now(UTC)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority._name)
        .last_update(now - timedelta(days=since))
        .next_update(now + timedelta(days=until))
    )
    for each in credentials:
        entry = x509.RevokedCertificateBuilder().serial_number(serial(each)).revocation_date(now - timedelta(days=2))
        builder = builder.add_revoked_certificate(entry.build())
    if extension is not None:
        builder = builder.add_extension(extension, critical=True)
    return builder.sign(key or authority._key, hashes.SHA256()).public_bytes(encoding)
