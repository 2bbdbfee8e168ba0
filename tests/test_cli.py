"""The command line: help, the demo as a newcomer runs it, and errors as one sentence."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from colonnade.cli import demo
from colonnade.cli.demo_data import patients
from colonnade.cli.main import main
from colonnade.jobs import model_file
from colonnade.ledger import verify
from colonnade.service import check
from colonnade.versions.shelf import Shelf
from colonnade.versions.version import Version
from ports import free_ports


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "demo" in text
    assert "predict" in text


@pytest.mark.parametrize(("command", "words"), [("dashboard", "a local page"), ("replay", "who would work")])
def test_help_of_a_command_says_what_it_does(capsys, command, words):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert words in capsys.readouterr().out


def test_the_demo_shows_what_federation_gains(capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(demo, "_free_ports", free_ports)
    folder = tmp_path / "demo"
    assert main(["demo", "--out", str(folder)]) == 0
    text = capfd.readouterr().out
    auc = {
        name: float(re.search(rf"{name}\W+([\d.]+)", text)[1])
        for name in ("the hospital alone", "all three, federated", "all data in one place")
    }
    assert abs(auc["all three, federated"] - auc["all data in one place"]) <= 0.002
    assert auc["all three, federated"] > auc["the hospital alone"]
    assert "All three ledgers verified" in text
    common = int(re.search(r"hospital: trained on (\d+) common rows; protection sealed", text)[1])
    assert common == len(patients().common)
    assert "laboratory:   training: nothing; nobody learns anything from it but its own coefficients" in text
    assert "hospital: scored 140 people" in text
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_the_demo_reads_what_scikit_learn_would():
    theirs, ours = load_breast_cancer(), patients()
    np.testing.assert_array_equal(ours.X, theirs.data)
    np.testing.assert_array_equal(ours.y, 1 - theirs.target)
    assert ours.names == theirs.feature_names.tolist()


def test_the_demo_clears_no_folder_but_its_own(capsys, tmp_path):
    (tmp_path / "precious.txt").touch()
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert "is there already and no earlier demo's" in capsys.readouterr().err
    assert (tmp_path / "precious.txt").exists()


@pytest.mark.parametrize("name", ["notes", "notes/first", "full"])
def test_a_federation_needs_a_folder_of_its_own(capsys, tmp_path, name):
    (tmp_path / "notes").write_text("mine\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").touch()
    assert main(["init", str(tmp_path / name), "--parties", "bank,shop"]) == 1
    said = capsys.readouterr().err
    assert re.search(r"(Not a directory\)|not empty); choose another", said)
    assert said.count("\n") == 1
    assert (tmp_path / "notes").read_text() == "mine\n"


@pytest.fixture
def first(tmp_path, monkeypatch, capsys):
    """A new federation, whose command is to be called with what stands before the job."""
    monkeypatch.setenv("COLUMNS", "200")
    main(["init", str(tmp_path / "first"), "--parties", "bank,shop"])
    capsys.readouterr()

    def show(*command):
        code = main([*command, str(tmp_path / "first" / "job.toml"), "--as", "bank"])
        return code, capsys.readouterr().out

    return show


# What rich would take for colours: the first vanished, and the second ended the command.
BRACKETS = "set it in [policy], not in [/Rome]"


def test_brackets_in_a_finding_are_shown(first, monkeypatch):
    found = [check.Finding("peer [bold]", False, BRACKETS)]
    monkeypatch.setattr(check, "check", lambda *_: found)
    code, said = first("check")
    assert code == 1
    assert "peer [bold]" in said
    assert BRACKETS in said


def test_brackets_in_the_names_of_columns_and_classes_are_shown(first, monkeypatch):
    public = {"model": "SoftmaxRegression", "parties": ["bank", "shop"], "rows": 3, "family": "linear"}
    classes = np.array(["[red]", "[/b]", "c"])
    part = model_file.ModelPart("bank", public, (np.zeros((1, 3)), np.ones(3)), classes, (BRACKETS,), None)
    monkeypatch.setattr(model_file, "load", lambda *_: part)
    monkeypatch.setattr(Shelf, "promoted", lambda _: Version("", Path("nowhere")))
    code, said = first("model", "show")
    assert code == 0, said
    assert all(name in said for name in ("[red]", "[/b]", BRACKETS, "(intercept)", "+1.0000"))


def test_brackets_in_a_ledger_are_shown(first, monkeypatch):
    key = ("shop", BRACKETS)
    run = verify.Run(1, "2026-11-18T10:00", "loans", ("shop",))
    run.sent[key], run.sent_bytes[key] = 1, 2
    report = SimpleNamespace(each=[run], lines=1, sealed=1, runs=1)
    monkeypatch.setattr(verify, "verify", lambda *_, **__: report)
    code, said = first("ledger", "show")
    assert (code, "there is no ledger yet, as nothing has left bank" in said) == (0, True)
    monkeypatch.setattr(Path, "exists", lambda _: True)
    code, said = first("ledger", "show")
    assert code == 0
    assert BRACKETS in said


def test_an_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["fly"])
    assert ended.value.code == 2
    assert "invalid choice: 'fly'" in capsys.readouterr().err


def test_a_report_needs_the_name_of_a_file(tmp_path, capsys):
    assert main(["init", str(tmp_path / "loans"), "--parties", "bank,shop"]) == 0
    assert main(["report", str(tmp_path / "loans/job.toml"), "--as", "bank", "--out", str(tmp_path)]) == 1
    assert "is a folder; give the name of a file in it" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["--parties", "--sites"])
def test_a_run_without_its_data_waits_for_nobody(tmp_path, capsys, kind):
    assert main(["init", str(tmp_path / "loans"), kind, "bank,shop,clinic"]) == 0
    assert main(["run", str(tmp_path / "loans/job.toml"), "--as", "shop"]) == 1
    said = capsys.readouterr()
    assert "waiting" not in said.out
    assert "key data.source: the file" in said.err
    assert "is not there" in said.err


def test_the_only_label_holder_is_told_whom_its_service_would_be_for(tmp_path, capsys):
    assert main(["init", str(tmp_path / "loans"), "--parties", "bank,shop"]) == 0
    assert main(["serve", str(tmp_path / "loans/job.toml"), "--as", "bank"]) == 1
    assert "'bank' is the only label holder, so nobody else asks for scores" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="other systems have other signals")
def test_a_command_that_a_script_put_behind_it_ends_by_sigterm():
    """A shell starts such a command with Ctrl-C ignored; service managers and `kill` end it all the same."""
    program = (
        "import os, signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "from colonnade.cli.terminal import log; log(); "
        "os.kill(os.getpid(), signal.SIGTERM); time.sleep(5); print('it goes on')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert "KeyboardInterrupt" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("given", "near", "option"),
    [
        (["init", "loans", "--party", "bank,shop"], "; did you mean '--parties'?", "--parties"),
        (["dashboard", "loans", "--as", "bank", "--prot=80"], "; did you mean '--port'?", "[--port "),
        (["run", "job.toml", "--as", "bank", "--what"], "", "[--mpi]"),
    ],
)
def test_an_unknown_option_is_answered_with_the_options_of_its_command(capsys, given, near, option):
    with pytest.raises(SystemExit) as ended:
        main(given)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    wrong = next(one for one in given if one.startswith(("--par", "--pro", "--wha")))
    assert f"colonnade {given[0]}: error: unrecognized arguments: {wrong}" in said
    assert said.endswith(f"{near}\n")
    assert "did you mean" in said or not near
    assert option in said  # the usage is the command's own
