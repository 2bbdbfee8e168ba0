"""What defences cost and leave: the attacks that are measured with, and a short form where the data are at hand."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from data_sets import DATA, needs
from reproductions.__main__ import main as reproduce
from reproductions.defences_networks import area, correlations, explained

RNG = np.random.default_rng(0)


def test_columns_are_explained_by_what_holds_them_and_by_nothing_else():
    target = RNG.standard_normal((400, 3))
    mixed = target @ RNG.standard_normal((3, 3))
    assert explained([mixed, RNG.standard_normal((400, 2))], target, 100) > 0.95
    assert explained([RNG.standard_normal((400, 3))], target, 100) < 0.05
    noise = mixed + 100 * RNG.standard_normal((400, 3))
    assert explained([noise], target, 100) < 0.1
    assert explained([np.ones((400, 1))], target, 100) < 0.05  # a column that does not vary is left out


def test_areas_and_correlations():
    positive = RNG.integers(0, 2, 50).astype(bool)
    scores = np.arange(50.0) + 30 * positive
    pairs = [a > b for a in scores[positive] for b in scores[~positive]]
    assert area(scores + 1e-6 * RNG.standard_normal(50), positive) == pytest.approx(np.mean(pairs), abs=0.02)
    a = RNG.standard_normal((50, 2))
    np.testing.assert_allclose(correlations(3 - 2 * a, a), 1)
    np.testing.assert_allclose(correlations(a[:, ::-1], a), np.corrcoef(a.T)[0, 1] ** 2)


@needs("mnist.npz")
@needs("ucicreditcard.npz")
def test_the_short_form(tmp_path, capsys):
    pytest.importorskip("torch")
    arguments = ["defences-networks", "--data", str(DATA), "--out", str(tmp_path), "--quick", "--seed", "2"]
    assert reproduce(arguments) == 0
    said = capsys.readouterr().out
    assert "short form" in said
    for name, lines in (("networks-1", 5), ("networks-2", 5), ("scores-3", 7), ("scores-4", 7)):
        with (tmp_path / f"defences-networks-{name}.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) == lines
