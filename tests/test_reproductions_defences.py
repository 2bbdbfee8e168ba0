"""The reproduction of defences: every defence has a line, advantages are an audit's, and its short form runs."""

from __future__ import annotations

import csv

import numpy as np

from colonnade.defences import Marvell
from colonnade.defences.registry import DEFENCES
from defended import parties
from reproductions.__main__ import main as reproduce
from reproductions.defences import NORMS, SIGNS, Size, measure, strengths


def test_defences_of_signals_and_labels_all_have_strengths():
    tried = strengths(10)
    ours = {"randomised-labels", "marvell", "compressed-signals", "gaussian-signals", "output-noise"}
    assert set(tried) == {"none", *ours}
    assert ours <= {one.name for one in DEFENCES}
    assert all(len(found) == 4 for kind, found in tried.items() if kind != "none")


def test_advantages_are_those_of_an_audit_and_the_area_is_of_test_rows():
    given, fresh = parties(rows=600), parties(rows=500, seed=3)
    size = Size(epochs=3)
    bare, strong = (measure(given, fresh, one, size, sealed=False) for one in (None, Marvell(divergence=0.01)))
    assert bare.attacks[SIGNS] == bare.worst == 1.0
    assert strong.worst < 0.1
    assert bare.attacks.keys() >= {SIGNS, NORMS}
    assert 0.5 < strong.auc <= bare.auc + 0.05
    sealed = measure(given, fresh, None, size, sealed=True)
    assert SIGNS not in sealed.attacks
    assert sealed.worst == 0.0


def test_the_short_form_runs(tmp_path, capsys):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "ucicreditcard.npz", X=rng.normal(size=(500, 4)), y=rng.integers(0, 2, 500))
    out = tmp_path / "out"
    assert reproduce(["defences", "--data", str(tmp_path), "--out", str(out), "--quick", "--seed", "2"]) == 0
    said = capsys.readouterr().out
    assert "short form" in said
    assert "a9a is skipped" in said
    with (out / "defences-runs.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [row["defence"] for row in lines] == list(strengths(2))
    assert all(0 <= float(row["test AUC"]) <= 1 for row in lines)
