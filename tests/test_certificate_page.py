"""The page on real certificates is run as it stands, and what comes of it is taken; bundles hold no other's key."""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

from colonnade.cli.main import main
from colonnade.errors import CertificateError
from colonnade.jobs.init import init
from colonnade.jobs.job_file import read_job
from colonnade.jobs.party_file import read_party
from colonnade.remote import certificates
from colonnade.remote.certificates import CertificatePaths

PAGE = Path(__file__).parent.parent / "docs" / "certificates.md"
BLOCK = re.compile(r"^```sh (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here")
def test_what_the_page_makes_is_taken(tmp_path):
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) == 5

    def run(text, name):
        done = subprocess.run(
            ["sh", "-ec", text.replace("bank", name)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (text, done.stderr)
        return done.stdout

    making, fingerprint, request, signing, revoking = (text for _, text in blocks)
    run(making, "bank")
    assert "Fingerprint=" in run(fingerprint, "bank")
    for name in ("bank", "shop"):
        run(request, name)
        run(signing, name)
        assert stat.S_IMODE((tmp_path / f"{name}.key").stat().st_mode) == 0o600

    def paths(name, revoked=None):
        files = (tmp_path / one for one in ("authority.pem", f"{name}.pem", f"{name}.key"))
        return CertificatePaths(*files, revoked)

    for name in ("bank", "shop"):
        assert certificates.load(paths(name), name)
    with pytest.raises(CertificateError, match="bank"):
        certificates.load(paths("shop"), "bank")
    run(revoking, "bank")
    listed = tmp_path / "revoked.pem"
    assert certificates.load(paths("shop", listed), "shop")
    with pytest.raises(CertificateError, match="revoked"):
        certificates.load(paths("bank", listed), "bank")


def test_a_bundle_has_what_its_party_needs_and_nothing_of_the_others(tmp_path, capsys):
    folder = tmp_path / "loans"
    assert main(["init", str(folder), "--parties", "bank,shop,clinic"]) == 0
    assert "shop.tar.gz: all that shop needs" in capsys.readouterr().out
    assert sorted(path.name for path in (folder / "bundles").iterdir()) == ["clinic.tar.gz", "shop.tar.gz"]
    path = folder / "bundles" / "shop.tar.gz"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        assert sorted(archive.getnames()) == [
            "loans/certificates/authority.pem", "loans/certificates/shop.key", "loans/certificates/shop.pem",
            "loans/job.toml", "loans/shop.toml",
        ]  # fmt: skip
        archive.extractall(tmp_path / "there", filter="data")
    there = tmp_path / "there" / "loans"
    others = [key.read_bytes() for key in (folder / "certificates").glob("*.key") if key.stem != "shop"]
    for file in filter(Path.is_file, there.rglob("*")):
        assert not any(secret in file.read_bytes() for secret in others), file
    party = read_party(there / "shop.toml", read_job(there / "job.toml"), "shop")
    assert certificates.load(party.certificates, "shop")


def test_files_of_init_are_read_with_what_they_suggest(tmp_path):
    init(tmp_path / "loans", ["bank", "shop"])
    text = (tmp_path / "loans" / "bank.toml").read_text()
    for line in ("# encoding", "# city", "# joined", "# [prepare]"):
        assert line in text
        text = text.replace(line, line[2:])
    (tmp_path / "loans" / "bank.toml").write_text(text)
    assert read_party(tmp_path / "loans" / "bank.toml", read_job(tmp_path / "loans" / "job.toml"), "bank").prepare
