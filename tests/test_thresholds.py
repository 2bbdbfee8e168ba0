"""The threshold of decisions: a slow search over all scores, files of the label holder alone, and whole jobs."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_curve

import colonnade as cn
from colonnade.cli.main import main
from colonnade.errors import DataError, LabelError, NotFittedError, OptionError
from colonnade.families import store
from colonnade.jobs import model_file
from colonnade.jobs.job_file import read_job
from colonnade.jobs.party_file import read_party
from colonnade.objective import losses
from colonnade.objective.decisions import Threshold, chosen, given
from colonnade.report import held_out_file
from test_federation import LIMIT, federation, run_all, shelved, start
from test_job import GOOD
from test_leaks import Record
from test_protection_jobs import complete
from test_row_weights import PARTY

pytestmark = pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")

RNG = np.random.default_rng(3)
ROWS = 240
X = RNG.standard_normal((ROWS, 4))
Y = np.where(X @ [1.0, -1.0, 0.5, 0.0] - 1.5 + RNG.logistic(size=ROWS) > 0, "bad", "also good")
TRAIN, REST = np.arange(160), np.arange(160, ROWS)
COSTS = {"cost": [[0, 1], [5, 0]]}
RULES = ["ks", "f1", COSTS, {"cost": [[-1, 2], [3, 0.5]]}]
LOGISTIC, HINGE = losses.loss("logistic"), losses.loss("smooth_hinge")


def cut(rows, y=Y, **more):
    return cn.split(X[rows], y[rows], into={"bank": [0, 1], "shop": [2, 3]}, active=["bank"], **more)


def worth(by, decisions, y, w):
    """How good decisions (1 or 0) are: what a rule makes as large as possible."""
    if by == "ks":
        return np.average(decisions[y == 1], weights=w[y == 1]) - np.average(decisions[y == 0], weights=w[y == 0])
    if by == "f1":
        return f1_score(y, decisions, sample_weight=w, zero_division=0.0)
    return -sum(w[row] * by["cost"][int(y[row])][int(decisions[row])] for row in range(len(y)))


def slow(by, z, y, w):
    """All thresholds one by one, from above: the first of the best."""
    candidates = [np.inf, *sorted(set(z[w > 0].tolist()), reverse=True)]
    found = [worth(by, (z >= at).astype(int), y, w) for at in candidates]
    best = next(place for place, one in enumerate(found) if one >= max(found) - 1e-9)
    return candidates[best]


# -- the choice -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", RULES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_thresholds_are_those_of_a_slow_search(by, weighted, seed):
    rng = np.random.default_rng([seed, 17])
    z = np.round(rng.standard_normal(80), 1)  # ties
    y = (z + rng.logistic(size=80) > 0.5 * seed).astype(int)
    w = rng.integers(0, 4, 80).astype(float) if weighted else np.ones(80)
    found = chosen(by, LOGISTIC, z, 2.0 * y - 1.0, w if weighted else None)
    true = slow(by, z, y, w)
    assert found.at == (true if np.isfinite(true) else np.nextafter(z[w > 0].max(), np.inf))
    np.testing.assert_array_equal(found.predict(z)[w > 0] > 0, (z >= true)[w > 0])


def test_ks_is_scikit_learns():
    z = RNG.standard_normal(200)
    y = (z + RNG.logistic(size=200) > 0).astype(int)
    false, true, levels = roc_curve(y, z)
    assert chosen("ks", HINGE, z, 2.0 * y - 1.0).at == levels[np.argmax(true - false)]


def test_decisions_that_only_cost_are_never_taken():
    z, y = np.array([0.1, 0.2, 0.3, 0.4]), np.array([1.0, -1.0, -1.0, -1.0])
    found = chosen({"cost": [[0, 100], [1, 0]]}, HINGE, z, y)
    assert found.at > z.max()
    assert (found.predict(z) < 0).all()
    assert chosen({"cost": [[0, 1], [100, 0]]}, HINGE, z, y).at == z.min()


def test_a_number_is_a_probability_or_a_score():
    assert given(0.3, LOGISTIC).shown(LOGISTIC) == pytest.approx(0.3)
    assert given(-0.7, HINGE).at == given(-0.7, HINGE).shown(HINGE) == -0.7
    assert given(0.3, LOGISTIC).words(LOGISTIC) == "threshold 0.3 of the probability, as given"
    assert Threshold(0.25, "ks").words(HINGE) == "threshold 0.25 of the score, chosen on held-out rows by ks"


@pytest.mark.parametrize(
    ("by", "sentence"),
    [
        ("gini", "a decision is by 'ks', 'f1', {'cost': [[0, 1], [5, 0]]} or a number, got 'gini'"),
        (True, "or a number, got True"),
        (None, "or a number, got None"),
        (float("nan"), "or a number, got nan"),
        (0.0, "a threshold of probabilities is above 0 and below 1, got 0.0"),
        (1, "a threshold of probabilities is above 0 and below 1, got 1"),
        ({"costs": [[0, 1], [5, 0]]}, "costs are two rows of two numbers"),
        ({"cost": [[0, 1], [5]]}, "costs are two rows of two numbers"),
        ({"cost": [[0, 1], [5, "much"]]}, "costs are two rows of two numbers"),
        ({"cost": [[0, 1], [5, np.inf]]}, "costs are two rows of two numbers"),
        ({"cost": [[1, 0], [0, 5]]}, "a wrong decision must cost more than a right one, got [[1.0, 0.0], [0.0, 5.0]]"),
    ],
)
def test_rules_that_are_refused(by, sentence):
    with pytest.raises(OptionError, match=re.escape(sentence)):
        chosen(by, LOGISTIC, np.arange(4.0), np.array([1.0, 1.0, -1.0, -1.0]))


@pytest.mark.parametrize("arrays", [{"threshold": np.nan}, {"threshold": np.ones(2)}, {"threshold": "0.3"}])
def test_a_file_is_not_believed(arrays):
    with pytest.raises(DataError, match="the file holds a threshold that is none"):
        Threshold.from_arrays({"threshold_by": np.array("ks"), **{key: np.array(one) for key, one in arrays.items()}})
    assert Threshold.from_arrays({}) is None


# -- estimators -------------------------------------------------------------------------------------------------------

MODELS = {
    "linear": lambda: cn.LogisticRegression(l2=1e-2, verbose=0),
    "hinge": lambda: cn.LinearSVC(l2=1e-2, verbose=0),
    "FDML": lambda: cn.LogisticRegression(l2=1e-2, algorithm=cn.FDML(epochs=2, tol=None), verbose=0),
    "kernel": lambda: cn.KernelClassifier(features=16, algorithm=cn.FDSKL(epochs=2, tol=None), verbose=0),
    "trees": lambda: cn.BoostedTreesClassifier(trees=3, depth=2, protection="plain", verbose=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_predictions_go_by_the_threshold(name, tmp_path):
    model = MODELS[name]().fit(*cut(TRAIN))
    usual = model.predict(*cut(REST))
    assert model.threshold_ == (0.0 if name == "hinge" else 0.5)
    w = RNG.integers(1, 4, len(REST)).astype(float)
    found = model.choose_threshold(*cut(REST, sample_weight=w[np.arange(len(REST))]) if name == "linear" else cut(REST))
    weights = w if name == "linear" else np.ones(len(REST))
    z = model.decision_function(*cut(REST))
    at = slow("ks", z, (Y[REST] == "bad").astype(int), weights)
    predicted = model.predict(*cut(REST))
    np.testing.assert_array_equal(predicted, np.where(z >= at, "bad", "also good"))
    assert (predicted != usual).any()
    assert found == model.threshold_ == pytest.approx(at if name == "hinge" else 1 / (1 + np.exp(-at)))
    # Only the label holder's file has it.
    model.save(tmp_path)
    files = {party: store.read_party(tmp_path / f"{party}.colonnade.npz") for party in ("bank", "shop")}
    assert "threshold" in files["bank"][1]
    assert not any("threshold" in key for key in (*files["shop"][1], *files["shop"][0], *files["bank"][0]))
    again = cn.load(tmp_path)
    assert again.threshold_ == model.threshold_
    np.testing.assert_array_equal(again.predict(*cut(REST)), predicted)
    assert model.fit(*cut(TRAIN)).threshold_ == (0.0 if name == "hinge" else 0.5)


def test_networks_keep_a_threshold(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")
    model = cn.NetworkClassifier(
        {name: torch.nn.Linear(2, 1) for name in ("bank", "shop")}, algorithm=cn.FedSGD(epochs=1, tol=None), verbose=0
    ).fit(*cut(TRAIN))
    assert model.choose_threshold(by=0.2) == pytest.approx(0.2)
    np.testing.assert_array_equal(model.predict(*cut(REST)) == "bad", model.predict_proba(*cut(REST))[:, 1] >= 0.2)
    model.save(tmp_path)
    assert cn.load(tmp_path).threshold_ == pytest.approx(0.2)


def test_choosing_shows_no_more_than_a_prediction(monkeypatch):
    model = MODELS["linear"]().fit(*cut(TRAIN))
    seen = []
    for use in (model.predict, lambda *parties: model.choose_threshold(*parties, by=COSTS)):
        with monkeypatch.context() as patch:
            record = Record(patch)
            use(*cut(REST))
        seen.append([(me, to, kind, getattr(value, "shape", None)) for me, to, kind, value in record.letters])
    assert seen[0] == seen[1]


def test_what_has_no_threshold():
    model = MODELS["linear"]()
    with pytest.raises(NotFittedError):
        model.choose_threshold(by=0.3)
    model.fit(*cut(TRAIN))
    sentence = "a threshold is chosen on rows that the model was not trained on, with their labels at 'bank'"
    for parties in ((), (cut(REST)[1], cn.Party("bank", X[REST][:, :2]))):
        with pytest.raises(LabelError, match=sentence):
            model.choose_threshold(*parties)
    with pytest.raises(OptionError, match=r"the threshold 0\.3 is a number, for which no rows are needed"):
        model.choose_threshold(*cut(REST), by=0.3)
    with pytest.raises(LabelError, match="people of both classes"):
        model.choose_threshold(*cut(REST[Y[REST] == "bad"]))
    real = cn.RidgeRegression(verbose=0).fit(*cut(TRAIN, X[:, 0]))
    with pytest.raises(OptionError, match="the loss 'square' has no classes; leave it out"):
        real.choose_threshold(*cut(REST, X[:, 0]))
    several = cn.SoftmaxRegression(verbose=0).fit(*cut(TRAIN))
    with pytest.raises(OptionError, match="the loss 'softmax' has a score for each class; leave it out"):
        several.choose_threshold(*cut(REST))


# -- jobs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "sentence"),
    [
        ('by = "ks"', None),
        ("by = 0.3", None),
        ("by = { cost = [[0, 1], [5, 0]] }", None),
        ('by = "gini"', "key decision.by: a decision is by 'ks', 'f1'"),
        ("by = 2", "key decision.by: a threshold of probabilities is above 0 and below 1, got 2"),
        ("by = { cost = [[1, 0], [0, 5]] }", "key decision.by: a wrong decision must cost more than a right one"),
        ("", "key decision.by: say by what decisions are taken, or how probabilities are calibrated"),
    ],
)
def test_a_party_file_names_a_rule(tmp_path, decision, sentence):
    text = PARTY.replace('weight = "w"\n', "").replace("[certificates]", f"[decision]\n{decision}\n[certificates]")
    (tmp_path / "bank.toml").write_text(text)
    (tmp_path / "job.toml").write_text(GOOD)
    read = replace(read_job(tmp_path / "job.toml"), validation=0.2)
    if sentence is None:
        assert read_party(tmp_path / "bank.toml", read).decision in ("ks", 0.3, COSTS)
        return
    with pytest.raises(OptionError, match=re.escape(sentence)):
        read_party(tmp_path / "bank.toml", read)


def test_a_rule_needs_held_out_rows_two_classes_and_the_first_label_holder(tmp_path):
    text = PARTY.replace('weight = "w"\n', "").replace("[certificates]", '[decision]\nby = "ks"\n[certificates]')
    (tmp_path / "bank.toml").write_text(text)
    (tmp_path / "shop.toml").write_text(text.replace('label = "y"\n', "").replace('"bank"', '"shop"'))
    (tmp_path / "job.toml").write_text(GOOD)
    job = replace(read_job(tmp_path / "job.toml"), validation=0.0)
    with pytest.raises(OptionError, match="a threshold is chosen on held-out rows, and the job holds none out"):
        read_party(tmp_path / "bank.toml", job)
    with pytest.raises(OptionError, match="only the first label holder, 'bank', decides; remove this table"):
        read_party(tmp_path / "shop.toml", job)
    with pytest.raises(OptionError, match="the loss 'square' has no classes; leave it out"):
        read_party(tmp_path / "bank.toml", replace(job, loss="square", validation=0.2))


def test_a_job_weighs_classes_and_decides_by_its_threshold(tmp_path, capsys):
    """From two files to scores: weights and threshold are in the bank's folder, and nowhere else."""
    folder = federation(tmp_path, ("bank", "shop"), 'kind = "BlockNewton"\nepochs = 20')
    job = (folder / "job.toml").read_text().replace("# weighted = false  ", "weighted = true  ")
    (folder / "job.toml").write_text(complete(job))
    bank = (folder / "bank.toml").read_text().replace('# class_weight = "balanced"  ', 'class_weight = "balanced"  ')
    (folder / "bank.toml").write_text(bank.replace("[certificates]", '[decision]\nby = "f1"\n\n[certificates]', 1))
    said = run_all(folder, ("bank", "shop"))
    words = re.search(r"bank: (threshold 0\.\d+ of the probability, chosen on held-out rows by f1)", said["bank"])[1]
    assert "threshold" not in said["shop"]
    part = model_file.load(folder / "bank-files", "bank")
    people = held_out_file.read(shelved(folder, "bank") / held_out_file.FILE)
    y = (np.array(people.labels) == part.classes[1]).astype(int)
    at = slow("f1", people.scores, y, np.ones(len(y)))
    assert 1 / (1 + np.exp(-part.threshold.at)) == pytest.approx(at)
    assert model_file.load(folder / "shop-files", "shop").threshold is None
    assert main(["model", "show", str(folder / "job.toml"), "--as", "bank"]) == 0
    assert words in capsys.readouterr().out
    about = {name: json.loads((shelved(folder, name) / "version.json").read_text()) for name in ("bank", "shop")}
    assert about["bank"]["decision"] == words
    assert "decision" not in about["shop"]
    partner = start(folder, "shop", "serve", "--once")
    asker = start(folder, "bank", "predict", "--out", str(folder / "scores.csv"))
    told = [process.communicate(timeout=LIMIT)[0] for process in (asker, partner)]
    assert [asker.returncode, partner.returncode] == [0, 0], told
    lines = [line.split(",") for line in (folder / "scores.csv").read_text().splitlines()]
    chance = lines[0].index(f"p({part.classes[1]})")
    known = [line for line in lines[1:] if "true" in line]
    assert len(known) > 100
    for line in known:
        assert (part.classes[1] in line) == (float(line[chance]) >= at - 1e-12)
