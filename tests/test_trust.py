"""Whom a party believes: names that count, chains, lists of revoked certificates and pins."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from colonnade.errors import CertificateError, HandshakeFailed
from colonnade.remote import authority as authority_module
from colonnade.remote import certificates
from colonnade.remote.authority import Authority
from colonnade.remote.certificates import CertificatePaths, check, load
from colonnade.remote.signatures import OwnIdentity
from colonnade.remote.trust import check_pin, fingerprint, plain_pin
from odd_certificates import NOT_NAMES, Signer, deep_authority, issue, revoked

AUTHORITY = Authority()
SHOP, BANK = AUTHORITY.issue("shop"), AUTHORITY.issue("bank")
NAME = "bank.colonnade"


def refusal(shown, party="bank", by=SHOP):
    """Why the holder of `by` does not take these credentials for a party's; None if it does."""
    try:
        OwnIdentity(by).believe(shown.chain(), party)
    except HandshakeFailed as error:
        return str(error)
    return None


def test_a_certificate_in_other_bytes_is_not_taken():
    whole = next(der for _ in range(64) if not (der := AUTHORITY.issue("bank").chain()[0])[-1] & 1)
    length = len(x509.load_der_x509_certificate(whole).signature)
    other = whole[: -length - 1] + b"\1" + whole[-length:]  # says that the last bit of the signature, a 0, is unused
    assert fingerprint(x509.load_der_x509_certificate(other)) != fingerprint(x509.load_der_x509_certificate(whole))
    by = OwnIdentity(SHOP)
    assert by.believe((whole,), "bank")
    with pytest.raises(HandshakeFailed, match=r"^its certificate is malformed$"):
        by.believe((other,), "bank")


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", NOT_NAMES.values(), ids=NOT_NAMES)
def test_a_name_that_is_no_dns_name_names_nobody(names):
    found = names(NAME)
    given = [repr(each.value) for each in found if isinstance(each, x509.DNSName)]
    shown = issue(AUTHORITY, found, common=NAME)
    words = ", ".join(given) or "no DNS name"
    assert refusal(shown) == f"its certificate is made out to {words}, party 'bank' needs 'bank.colonnade'"


@pytest.mark.parametrize(
    "more",
    [[], [x509.RFC822Name("joe@bank.example")], [x509.DNSName("bank.example")]],
    ids=["alone", "with an e-mail address", "with another"],
)
def test_a_dns_name_names_a_party_whatever_stands_beside_it(more):
    assert refusal(issue(AUTHORITY, [x509.DNSName(NAME), *more])) is None
    assert refusal(issue(AUTHORITY, [x509.DNSName(NAME.upper()), *more])) is None


def test_many_names_fit_one_line():
    names = [x509.DNSName(f"{'n' * 60}{k}.example") for k in range(100)]
    assert len(refusal(issue(AUTHORITY, names))) < 400


# -- chains ------------------------------------------------------------------------------------------------------------


def test_a_party_is_no_authority():
    """The shop signs a certificate for the bank with its own key, and shows its own as the one in between."""
    forged = Signer(AUTHORITY, SHOP).issue("bank")
    assert "is not signed by an authority that is believed here" in refusal(forged)


def test_an_authority_in_between():
    root = deep_authority()
    middle = Signer(root, issue(root, [], "the bank's own authority", usage=(), is_authority=True))
    own = middle.issue("bank")
    assert refusal(own, by=root.issue("shop")) is None
    alone = replace(own, certificate=authority_module._pem(x509.load_pem_x509_certificate(own.certificate)))
    assert "is not signed by" in refusal(alone, by=root.issue("shop"))
    strict = Authority()  # lets nobody else sign
    middle = Signer(strict, issue(strict, [], "the bank's own authority", usage=(), is_authority=True))
    assert "is not signed by" in refusal(middle.issue("bank"), by=strict.issue("shop"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"key_identifier": False},
            "it does not say which key signed it (authority key identifier); have it made anew",
        ),
        ({"usage": (ExtendedKeyUsageOID.SERVER_AUTH,)}, "it is not made for both client and server use"),
        ({"usage": (ExtendedKeyUsageOID.CLIENT_AUTH,)}, "it is not made for both client and server use"),
        ({"is_authority": True}, "is not accepted"),
    ],
    ids=["as of version 0.1", "for servers", "for clients", "an authority's"],
)
def test_certificates_that_are_not_made_for_parties(options, words):
    assert words in refusal(issue(AUTHORITY, [x509.DNSName(NAME)], **options))


def test_an_expired_one_and_another_authoritys():
    assert "has expired or is not valid yet" in refusal(AUTHORITY.issue("bank", days=-1))
    assert refusal(Authority().issue("bank")) == "its certificate is not signed by an authority that is believed here"


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        ((), "its certificate is missing"),
        ((b"",), "its certificate is malformed"),
        ((b"0\x82\xff\xff" + b"x" * 100,), "its certificate is malformed"),
        ((BANK.chain()[0],) * 5, "its certificate comes with more than 4 certificates of 16384 bytes"),
        ((BANK.chain()[0], b"x" * 20_000), "its certificate comes with more than 4 certificates of 16384 bytes"),
    ],
    ids=["none", "empty", "malformed", "many", "long"],
)
def test_what_is_no_chain(chain, words):
    with pytest.raises(HandshakeFailed) as caught:
        OwnIdentity(SHOP).believe(chain, "bank")
    assert str(caught.value) == words


def test_damaged_certificates_are_refused():
    der = BANK.chain()[0]
    for at in range(0, len(der), 3):
        for bit in (1, 128):
            damaged = bytearray(der)
            damaged[at] ^= bit
            with pytest.raises(HandshakeFailed):
                OwnIdentity(SHOP).believe((bytes(damaged),), "bank")


# -- pins --------------------------------------------------------------------------------------------------------------


def test_a_pinned_party_has_one_certificate():
    (der,) = BANK.chain()
    pin = fingerprint(x509.load_der_x509_certificate(der))
    by = replace(SHOP, pins=(("bank", pin), ("other", "sha256:" + 64 * "0")))
    assert refusal(BANK, by=by) is None
    another = AUTHORITY.issue("bank")
    words = refusal(another, by=by)
    assert words.startswith("its certificate is not the one that is pinned for 'bank': it has sha256:")
    assert words.endswith(f"pinned is {pin}")


@pytest.mark.parametrize("text", ["sha256:" + "ab" * 32, "SHA256:" + ":".join(["AB"] * 32), "sha256:" + "Ab" * 32])
def test_how_a_pin_may_be_written(text):
    assert check_pin(text) is None
    assert plain_pin(text) == "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    "text", ["", "ab" * 32, "sha256:", "sha256:" + "ab" * 31, "sha1:" + "ab" * 32, "sha256:" + "g" * 64]
)
def test_what_is_no_pin(text):
    assert check_pin(text) == "must be 'sha256:' and the 64 hexadecimal digits of a certificate's fingerprint"


# -- lists of revoked certificates -------------------------------------------------------------------------------------


def with_list(data):
    return replace(SHOP, revoked=data)


@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
def test_a_revoked_certificate_is_refused(encoding):
    data = revoked(AUTHORITY, BANK, encoding=encoding)
    assert refusal(BANK, by=with_list(data)).startswith("its certificate was revoked by 'CN=colonnade test authority")
    assert refusal(AUTHORITY.issue("bank"), by=with_list(data)) is None
    assert refusal(BANK, by=with_list(revoked(AUTHORITY, encoding=encoding))) is None


NO_LIST = "its certificate can't be checked: the list of revoked certificates "


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (revoked(AUTHORITY, until=-0.5), NO_LIST + "expired on "),
        (revoked(AUTHORITY, since=-1.0), NO_LIST + "is only valid from "),
        (revoked(Authority("somebody else")), NO_LIST + "of 'CN=colonnade test authority"),
        (revoked(AUTHORITY, key=ec.generate_private_key(ec.SECP256R1())), "is not signed by it"),
        (revoked(AUTHORITY, extension=x509.DeltaCRLIndicator(1)), "is only a part of one; get the whole"),
        (
            revoked(AUTHORITY, extension=x509.IssuingDistributionPoint(None, None, False, True, None, False, False)),
            "is only a part of one; get the whole",
        ),
    ],
    ids=["expired", "of tomorrow", "another authority's", "forged", "of changes", "of some kinds"],
)
def test_a_list_that_is_not_good_lets_nobody_in(data, words):
    assert words in refusal(BANK, by=with_list(data))


def test_every_signer_on_the_way_needs_a_list():
    root = deep_authority()
    middle = Signer(root, issue(root, [], "the bank's own authority", usage=(), is_authority=True))
    own, shop = middle.issue("bank"), root.issue("shop")
    missing = refusal(own, by=replace(shop, revoked=revoked(root)))
    assert missing == f'{NO_LIST}of "CN=the bank\'s own authority", who signed it, is missing'
    both = revoked(middle) + revoked(root)
    assert refusal(own, by=replace(shop, revoked=both)) is None
    assert "was revoked" in refusal(own, by=replace(shop, revoked=revoked(middle, own) + revoked(root)))
    assert "was revoked" in refusal(own, by=replace(shop, revoked=revoked(middle) + revoked(root, middle.credentials)))


# -- in a party's own files --------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    AUTHORITY.write(tmp_path)
    authority_module.issue(tmp_path, "bank")
    return tmp_path


def files(folder, data=None, pins=()):
    paths = CertificatePaths.within(folder, "bank")
    if data is None:
        return replace(paths, pins=pins)
    (folder / "revoked").write_bytes(data)
    return replace(paths, revoked=folder / "revoked", pins=pins)


def test_good_files_are_read(folder):
    pin = certificates.own_fingerprint(files(folder))
    paths = files(folder, revoked(AUTHORITY), (("bank", pin.upper()), ("shop", "sha256:" + ":".join(["AB"] * 32))))
    assert check(paths, "bank") == []
    found = load(paths, "bank")
    assert found.revoked == paths.revoked.read_bytes()
    assert found.pins == (("bank", pin), ("shop", "sha256:" + "ab" * 32))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"something else", "'{path}' holds no list of revoked certificates in PEM or DER form"),
        (revoked(AUTHORITY, until=-0.5), "the list of revoked certificates '{path}' expired on "),
        (revoked(AUTHORITY, since=-1.0), "the list of revoked certificates '{path}' is only valid from "),
        (revoked(Authority("somebody else")), "can't be checked: the list of revoked certificates of"),
    ],
    ids=["none", "expired", "of tomorrow", "another authority's"],
)
def test_a_list_that_is_not_good_is_said_before_a_run(folder, data, words):
    paths = files(folder, data)
    (problem,) = check(paths, "bank")
    assert words.format(path=paths.revoked) in problem
    with pytest.raises(CertificateError):
        load(paths, "bank")


def test_a_list_that_is_not_there(folder):
    paths = replace(files(folder), revoked=folder / "nowhere")
    assert check(paths, "bank") == [
        f"the list of revoked certificates {str(folder / 'nowhere')!r} can't be read: No such file or directory"
    ]


def test_ones_own_certificate_that_was_revoked(folder):
    own = load(files(folder), "bank")
    (problem,) = check(files(folder, revoked(AUTHORITY, own)), "bank")
    assert problem.startswith(f"the certificate {str(folder / 'bank.pem')!r} was revoked by ")
