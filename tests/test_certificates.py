"""Certificates and keys: made for tests, and checked in a sentence for each thing that is wrong."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from colonnade.errors import CertificateError, OptionError
from colonnade.remote import certificates
from colonnade.remote.authority import TEST_AUTHORITY, Authority, issue, make_authority
from colonnade.remote.certificates import CertificatePaths, check, dns_name, load
from odd_certificates import Signer, deep_authority
from odd_certificates import issue as odd

posix = pytest.mark.skipif(os.name != "posix", reason="no modes of files here")


@pytest.fixture
def folder(tmp_path):
    make_authority(tmp_path)
    issue(tmp_path, "bank")
    return tmp_path


def problems(folder, party="bank", **paths):
    own = CertificatePaths.within(folder, "bank")
    return check(CertificatePaths(**{**vars(own), **paths}), party)


def test_what_is_made_is_good(folder):
    paths = CertificatePaths.within(folder, "bank")
    assert check(paths, "bank") == []
    credentials = load(paths, "bank")
    assert credentials.authority == paths.authority.read_bytes()
    assert credentials.certificate == paths.certificate.read_bytes()
    assert credentials.key == paths.key.read_bytes()


def test_a_key_is_not_shown(folder):
    credentials = load(CertificatePaths.within(folder, "bank"), "bank")
    assert "PRIVATE" not in repr(credentials) + str(credentials)


@posix
def test_private_keys_are_for_their_owner_alone(folder):
    for name in ("authority.key", "bank.key"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600
    issue(folder, "bank")  # again: the old file is replaced, its mode is not looser
    assert (folder / "bank.key").stat().st_mode & 0o777 == 0o600
    assert problems(folder) == []


def test_the_authority_says_what_it_is_good_for(folder):
    found = x509.load_pem_x509_certificate((folder / "authority.pem").read_bytes())
    assert "for tests only" in TEST_AUTHORITY
    assert found.subject.rfc4514_string().replace("\\", "") == f"CN={TEST_AUTHORITY}"
    own = x509.load_pem_x509_certificate((folder / "bank.pem").read_bytes())
    assert own.issuer == found.subject
    assert own.not_valid_after_utc - datetime.now(UTC) < timedelta(days=31)


def test_an_authority_is_not_replaced_by_accident(folder):
    before = (folder / "authority.key").read_bytes()
    with pytest.raises(OptionError, match=r"authority.key exists already; remove it, or choose another folder"):
        make_authority(folder)
    assert (folder / "authority.key").read_bytes() == before


@pytest.mark.parametrize("name", ["Bank", "bank.shop", "-bank", "bank-", "", "b" * 41, "bänk", "a b", "a/b", ".."])
def test_names_that_no_job_has_are_refused(folder, name):
    with pytest.raises(OptionError, match="at most 40 lower-case letters, digits and inner hyphens"):
        issue(folder, name)


@pytest.mark.parametrize("name", ["b", "0", "b" * 40, "city-bank-2"])
def test_names_that_jobs_have(name):
    assert dns_name(name) == f"{name}.colonnade"


def test_names_of_experiments_never_meet():
    names = ["bank", "Bank", "BANK", "bank.colonnade", "", "bänk", "b" * 41, "x.unnamed"]
    assert len({dns_name(name).lower() for name in names}) == len(names)


# -- what is wrong with them -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["authority", "certificate", "key"])
def test_a_file_that_is_missing_or_holds_something_else(folder, what):
    other = folder / "other"
    assert problems(folder, **{what: other}) == [f"the {what} {str(other)!r} can't be read: No such file or directory"]
    other.write_text("something else")
    kind = "private key" if what == "key" else "certificate"
    assert problems(folder, **{what: other}) == [f"{str(other)!r} holds no {kind} in PEM form"]
    with pytest.raises(CertificateError, match="in PEM form"):
        load(CertificatePaths(**{**vars(CertificatePaths.within(folder, "bank")), what: other}), "bank")


def test_a_key_of_somebody_else(folder):
    other = issue(folder, "shop")
    assert problems(folder, key=other.key) == [
        f"the key {str(other.key)!r} does not belong to the certificate {str(folder / 'bank.pem')!r}"
    ]


@posix
def test_a_key_that_others_can_read(folder):
    (folder / "bank.key").chmod(0o644)
    sentence = "has mode 644, with which others than its owner can use it; allowed is 600: chmod 600"
    assert problems(folder) == [f"the key {str(folder / 'bank.key')!r} {sentence} {folder / 'bank.key'}"]


def test_a_key_with_a_password(folder):
    from cryptography.hazmat.primitives import serialization as s

    key = s.load_pem_private_key((folder / "bank.key").read_bytes(), None)
    locked = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.BestAvailableEncryption(b"secret"))
    (folder / "bank.key").write_bytes(locked)
    assert problems(folder) == [f"the key {str(folder / 'bank.key')!r} is locked with a password; give one without"]


def test_dates(folder, monkeypatch):
    issue(folder, "bank", days=-2)
    day = datetime.now(UTC) - timedelta(days=2)
    assert problems(folder) == [
        f"the certificate {str(folder / 'bank.pem')!r} expired on {day:%d %B %Y}; get a new one"
    ]
    issue(folder, "bank", days=400)
    for days, words in ((-1, "is only valid from"), (100, "expired on")):
        monkeypatch.setattr(certificates, "datetime", Calendar(days))
        assert [words in problem for problem in problems(folder)][-1:] == [True]
        monkeypatch.undo()


class Calendar:
    """A clock that is so many days off."""

    def __init__(self, days):
        self._off = timedelta(days=days)

    def now(self, zone):
        return datetime.now(zone) + self._off


def test_another_authority(folder, tmp_path):
    other = tmp_path / "other"
    make_authority(other)
    assert problems(folder, authority=other / "authority.pem") == [
        f"the certificate {str(folder / 'bank.pem')!r} is not signed by {str(other / 'authority.pem')!r}"
    ]
    # of several authorities, one is enough
    (folder / "authority.pem").write_bytes(Authority().pem + (folder / "authority.pem").read_bytes())
    assert problems(folder) == []


def test_another_name(folder):
    assert problems(folder, party="shop") == [
        f"the certificate {str(folder / 'bank.pem')!r} is made out to 'bank.colonnade', party 'shop' needs "
        f"'shop.colonnade'"
    ]
    assert "is made out to no DNS name" in problems(folder, certificate=folder / "authority.pem")[-2]


def test_all_that_is_wrong_is_said_at_once(folder, tmp_path):
    other = tmp_path / "other"
    make_authority(other)
    paths = issue(other, "shop", days=-0.02)  # when the authority was there
    found = problems(folder, certificate=paths.certificate)
    for words, problem in zip(("belong", "expired", "made out", "signed"), found, strict=True):
        assert words in problem


def test_an_authority_in_between(folder):
    """The certificate's file brings the one that signed it, which the authority signed."""
    root = deep_authority()
    root.write(folder)
    middle = Signer(root, odd(root, [], "the bank's own authority", usage=(), is_authority=True))
    own = middle.issue("bank")
    (folder / "bank.key").write_bytes(own.key)
    first, last = own.certificate.split(b"-----END CERTIFICATE-----\n")[:2]
    end = b"-----END CERTIFICATE-----\n"
    (folder / "bank.pem").write_bytes(first + end)
    assert ["not signed by" in problem for problem in problems(folder)] == [True]
    (folder / "bank.pem").write_bytes(first + end + last + end)
    assert problems(folder) == []
    (folder / "bank.pem").write_bytes(first + end + 4 * (last + end))
    assert problems(folder) == [f"{str(folder / 'bank.pem')!r} holds 5 certificates, allowed are 4"]
