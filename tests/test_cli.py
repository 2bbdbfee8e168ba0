"""The command line: help, the demo as a newcomer runs it, and errors as one sentence."""

from __future__ import annotations

import re

import pytest

from colonnade.cli.demo_data import patients
from colonnade.cli.main import main


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "demo" in text
    assert "reproduce" in text


def test_the_demo_shows_what_federation_gains(capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
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
    common = int(re.search(r"hospital: trained on (\d+) common rows", text)[1])
    held_out = int(re.search(r"hospital: trained on \d+ common rows, (\d+) held out", text)[1])
    assert common + held_out == len(patients().common)
    assert "hospital: scored 140 people" in text
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_the_demo_clears_no_folder_but_its_own(capsys, tmp_path):
    (tmp_path / "precious.txt").touch()
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert "is there already and no earlier demo's" in capsys.readouterr().err
    assert (tmp_path / "precious.txt").exists()


def test_a_missing_data_set_is_one_sentence(capsys, tmp_path):
    assert main(["reproduce", "fedbcd-rounds", "--data", str(tmp_path), "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err.strip()
    assert said.startswith("colonnade: ")
    assert "physionet2012" in said
    assert "\n" not in said


def test_an_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["fly"])
    assert ended.value.code == 2
    assert "invalid choice: 'fly'" in capsys.readouterr().err
