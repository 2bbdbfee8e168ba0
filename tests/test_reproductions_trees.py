"""The reproduction of boosted trees: how columns are dealt, what is counted as known, and its short form."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import colonnade as cn
from data_sets import DATA, needs
from reproductions import tree_methods
from reproductions.__main__ import main as reproduce
from reproductions.datasets import Trial
from reproductions.tree_methods import (
    ALONE,
    LIGHTGBM,
    OURS,
    PLAIN,
    PRIVATE,
    SEALED,
    XGBOOST,
    dealt,
    known_cells,
    measure,
)


def trial(rows=1200):
    """The last column decides most, the first one less, and the others nothing."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(rows, 5))
    X[rng.random(X.shape) < 0.02] = np.nan
    known = np.nan_to_num(X)
    y = (2 * known[:, 4] + known[:, 0] + rng.logistic(size=rows) > 0).astype(int)
    cut = 3 * rows // 4
    return Trial(X[:cut], y[:cut], X[cut:], y[cut:])


def test_the_party_without_labels_has_the_strongest_column():
    one = trial()
    order = tree_methods.strongest_first(one.X, one.y, 10)
    assert order[:2] == [4, 0]
    bank, shop = dealt(one.X, one.y, order)
    assert (bank.features, shop.features) == (2, 3)
    assert bank.active
    assert not shop.active
    np.testing.assert_array_equal(shop.X[:, -1], one.X[:, 4])
    np.testing.assert_array_equal(bank.X[:, 0], one.X[:, 0])


@pytest.mark.filterwarnings("ignore:protection='plain'")
def test_our_methods_differ_as_they_should():
    one, order = trial(), [4, 0, 1, 2, 3]
    found = {method: measure(method, one, order, 10) for method in OURS}
    assert found[PLAIN].auc > found[ALONE].auc + 0.1
    assert found[SEALED].auc > found[ALONE].auc + 0.05
    assert found[PRIVATE].auc > 0.5
    assert found[ALONE].megabytes < 0.001 < found[PLAIN].megabytes < found[SEALED].megabytes
    assert found[SEALED].ranges < found[PLAIN].ranges
    assert found[SEALED].guessed <= found[SEALED].known < found[PLAIN].known <= 1


def test_known_cells_are_the_fullest_of_each_range():
    rng = np.random.default_rng(0)
    x = np.repeat([0.0, 1.0, 2.0, 3.0], [400, 300, 200, 100])
    y = (rng.random(1000) < np.where(x < 1.5, 0.1, 0.9)).astype(int)
    bank, shop = cn.Party("bank", rng.normal(size=(1000, 1)), y), cn.Party("shop", x[:, None])
    algorithm = cn.SealedBoosting(ranges=2)
    model = cn.BoostedTreesClassifier(trees=3, bins=4, algorithm=algorithm, verbose=0).fit(bank, shop)
    assert known_cells(model, shop) == (2.0, 0.4, 0.6)  # {0, 1} and {2, 3}: 400 and 200 of 1,000


@pytest.mark.parametrize("missing", [XGBOOST, LIGHTGBM])
def test_without_an_opponent_a_sentence_says_so(missing, tmp_path, monkeypatch, capsys):
    found = tree_methods.find_spec
    for name in (XGBOOST, LIGHTGBM):  # none of them is needed
        monkeypatch.setitem(tree_methods.MODULES, name, "no_such_module" if name == missing else "nor_this_one")
    assert found("no_such_module") is None
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "givemesomecredit.npz", X=rng.normal(size=(300, 4)), y=rng.integers(0, 2, 300))
    assert reproduce(["trees", "--data", str(tmp_path), "--out", str(tmp_path / "out"), "--quick"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"{missing} is not installed, so not compared; make reproduce does it." in said
    assert "a9a is skipped" in said


@needs("a9a.npz")
def test_the_short_form_runs_and_says_its_seed(tmp_path, capsys):
    assert reproduce(["trees", "--data", str(DATA), "--out", str(tmp_path), "--quick", "--seed", "2"]) == 0
    said = capsys.readouterr().out
    assert "short form" in said
    assert "Seeds 2." in said
    tables = {}
    for name in ("data", "auc", "costs", "shown", "runs"):
        with (tmp_path / f"trees-{name}.csv").open(newline="") as file:
            tables[name] = list(csv.DictReader(file))
    assert {row["method"] for row in tables["auc"]} >= {*OURS}
    assert [row["method"] for row in tables["shown"]] == [PLAIN, SEALED, PRIVATE]
    assert all(0 <= float(row["test AUC"]) <= 1 for row in tables["runs"])
