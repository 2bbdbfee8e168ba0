"""What is a party's own is for its owner only: from the moment it is written, and whenever it is read."""

from __future__ import annotations

import os
import shutil
import stat

import numpy as np
import pytest

import colonnade as cn
from colonnade import private_files
from colonnade.cli.main import main
from colonnade.errors import CertificateError, CheckpointError, DataError, OptionError
from colonnade.estimators import torch_files
from colonnade.families import store
from colonnade.jobs import model_file
from colonnade.jobs.checkpoints import Checkpoints
from colonnade.remote import certificates
from colonnade.remote.authority import issue, make_authority
from colonnade.remote.certificates import CertificatePaths
from colonnade.service import http

pytestmark = pytest.mark.skipif(os.name != "posix", reason="this system knows no such modes")
OPEN = [0o640, 0o604, 0o660, 0o666, 0o644, 0o610]


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def _careless():
    """The owner's umask takes nothing away: what is private is so by our own doing."""
    before = os.umask(0)
    yield
    os.umask(before)


def everything(folder):
    """All that a party's own program writes, but for the ledger: see test_ledger.py."""
    model_file.save_history(folder, [{"epoch": 1, "loss": 0.5}])
    store.write_party(folder, "bank", {"parties": ["bank"], "family": "linear"}, {"theta": np.zeros(2)})
    http.token_in(folder / "http.token")
    Checkpoints(folder / "checkpoints" / "state", b"job").save(1, (1.0,))


def test_from_the_moment_it_is_made(tmp_path):
    folder = tmp_path / "new" / "bank-files"
    private_files.make_folder(folder)
    everything(folder)
    found = {path.name: mode(path) for path in [folder, folder.parent, *folder.rglob("*")]}
    assert found == {
        "new": 0o700, "bank-files": 0o700, "checkpoints": 0o700, "state": 0o700, "1.kept": 0o600,
        "history.json": 0o600, "bank.colonnade.npz": 0o600, "http.token": 0o600,
    }  # fmt: skip
    with private_files.writing(folder / "one") as file:  # there is no window
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
        assert {path.name for path in folder.iterdir() if "one" in path.name} == {".one.partial"}
        file.write(b"all of it")
    assert (folder / "one").read_bytes() == b"all of it"
    assert not list(folder.glob(".*"))


def test_an_earlier_file_with_a_wider_mode_is_replaced_by_a_private_one(tmp_path):
    path = tmp_path / "history.json"
    path.write_text("old")
    path.chmod(0o666)
    model_file.save_history(tmp_path, [])
    assert mode(path) == 0o600


def test_a_link_that_waits_for_a_file_is_not_followed(tmp_path):
    other = tmp_path / "other"
    other.write_text("as it was")
    (tmp_path / ".secret.partial").symlink_to(other)
    private_files.write(tmp_path / "secret", b"secret")
    assert (other.read_text(), (tmp_path / "secret").read_bytes()) == ("as it was", b"secret")


def test_what_fails_leaves_the_file_before_it(tmp_path):
    path = tmp_path / "model"
    private_files.write(path, "before")

    def failing():
        with private_files.writing(path) as file:
            file.write(b"half")
            raise RuntimeError("full")

    with pytest.raises(RuntimeError):
        failing()
    assert (path.read_text(), [one.name for one in tmp_path.iterdir()]) == ("before", ["model"])


def test_what_init_makes(tmp_path):
    assert main(["init", str(tmp_path / "loans"), "--parties", "bank,shop"]) == 0
    folder = tmp_path / "loans" / "certificates"
    assert mode(folder) == 0o700
    assert {path.name: mode(path) for path in folder.glob("*.key")} == dict.fromkeys(
        ("authority.key", "bank.key", "shop.key"), 0o600
    )


@pytest.mark.parametrize("wrong", OPEN)
def test_what_others_may_use_is_not_read(tmp_path, wrong):
    everything(tmp_path)
    make_authority(tmp_path)
    paths = issue(tmp_path, "bank")
    readers = {
        "bank.colonnade.npz": (lambda: store.read_party(tmp_path / "bank.colonnade.npz"), DataError, "the model file"),
        "http.token": (lambda: http.token_in(tmp_path / "http.token"), OptionError, "the token"),
        "checkpoints/state/1.kept": (
            lambda: Checkpoints(tmp_path / "checkpoints" / "state", b"job").versions(), CheckpointError,
            "the checkpoint",
        ),
        "bank.key": (lambda: certificates.load(paths, "bank"), CertificateError, "the key"),
        "authority.key": (lambda: issue(tmp_path, "bank"), CertificateError, "the key of the authority"),
    }  # fmt: skip
    for name, (read, error, what) in readers.items():
        path = tmp_path / name
        read()
        path.chmod(wrong)
        with pytest.raises(error) as refused:
            read()
        assert str(refused.value) == (
            f"{what} {str(path)!r} has mode {wrong:o}, with which others than its owner can use it; allowed is 600: "
            f"chmod 600 {path}"
        )
        path.chmod(0o600)
        read()


def test_models_of_estimators_are_private_too(tmp_path):
    X = np.random.default_rng(0).standard_normal((60, 4))
    parties = cn.split(X, X[:, 0] > 0, into=2)
    model = cn.LogisticRegression(algorithm=cn.FedSGD(epochs=1), verbose=0).fit(*parties)
    model.save(tmp_path / "model")
    files = sorted((tmp_path / "model").iterdir())
    assert [mode(path) for path in (files[0].parent, *files)] == [0o700, 0o600, 0o600]
    assert cn.load(tmp_path / "model").parties_ == model.parties_
    copied = tmp_path / "copied"
    shutil.copytree(files[0].parent, copied, copy_function=shutil.copyfile)  # as from an archive: modes are lost
    with pytest.raises(DataError, match=r"the model file .* has mode 666, .* chmod 600"):
        cn.load(copied)


def test_weights_of_networks(tmp_path):
    pytest.importorskip("safetensors")
    torch_files.write_party(tmp_path, "bank", {"parties": ["bank"]}, {}, {"w": np.zeros(3)})
    path = tmp_path / f"bank{torch_files.SUFFIX}"
    assert mode(path) == 0o600
    assert torch_files.read_party(path)[0] == "bank"
    path.chmod(0o644)
    with pytest.raises(DataError, match=r"the model file .* has mode 644, .* chmod 600"):
        torch_files.read_party(path)


def test_a_folder_that_others_may_look_into_is_named_before_a_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")  # so that the table breaks no words
    assert main(["init", str(tmp_path / "loans"), "--parties", "bank,shop"]) == 0
    folder = tmp_path / "loans" / "bank-files"
    folder.mkdir(mode=0o755)
    (tmp_path / "loans" / "bank.csv").write_text("id,label\n")
    job = str(tmp_path / "loans" / "job.toml")
    assert main(["run", job, "--as", "bank"]) == 1
    assert f"has mode 755, with which others than its owner can use it; allowed is 700: chmod 700 {folder}" in (
        capsys.readouterr().err
    )
    assert main(["check", job, "--as", "bank"]) == 1
    assert "has mode 755" in " ".join(capsys.readouterr().out.split())


def test_paths_that_are_none_of_ours(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        private_files.make_folder(tmp_path / "file")
    paths = CertificatePaths.within(tmp_path, "bank")
    assert certificates.check(paths, "bank")[0].endswith("can't be read: No such file or directory")
