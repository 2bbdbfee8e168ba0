"""Bad input gets one clear sentence before any work starts; nothing hangs and nothing is half done."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import colonnade as cn
from colonnade.audit.auditing import Audit
from colonnade.errors import (
    ColonnadeError,
    ColonnadeWarning,
    DataError,
    InputError,
    LabelError,
    OptionError,
    PartyFailed,
    RingOverflow,
    SingleFeatureWarning,
)
from colonnade.timelines.timeline import Timeline

RNG = np.random.default_rng(0)
X = RNG.standard_normal((80, 6))
Y = (X[:, 0] > 0).astype(int)
QUICK = cn.FedSGD(batch=16, epochs=2)


class NeverStarted:
    """A runtime that fails the test if bad input gets as far as a run."""

    def run(self, programs, observer=None):
        raise AssertionError("work started")


def parts(y=Y, **changes):
    given = {"a": X[:, :3], "b": X[:, 3:], **changes}
    return [cn.Party("a", given["a"], y), cn.Party("b", given["b"])]


@pytest.mark.parametrize(
    ("model", "parties", "error", "sentence"),
    [
        (cn.LogisticRegression(), [], DataError, "no party was given"),
        (cn.LogisticRegression(), parts(y=None), LabelError, "no party holds labels; give y to at least one Party"),
        (cn.LogisticRegression(), parts(b=X[:70, 3:]), DataError, "has 70 rows, party 'a' has 80"),
        (cn.LogisticRegression(), [*parts(), cn.Party("a", X)], DataError, "the name 'a' is used by 2 parties"),
        (cn.LogisticRegression(), parts(y=np.ones(80)), LabelError, "only one class"),
        (cn.LogisticRegression(), parts(y=np.arange(80) % 3), LabelError, "3 classes.*use SoftmaxRegression"),
        (cn.RidgeRegression(), parts(y=np.array(["x", "y"] * 40)), LabelError, "the labels are text"),
        (cn.PoissonRegression(), parts(y=np.arange(80) - 2), LabelError, "2 negative"),
        (cn.SoftmaxRegression(), parts(y=np.zeros(80)), LabelError, "only one class"),
        (cn.LogisticRegression(l2=-1.0), parts(), OptionError, "l2 must be >= 0, got -1.0"),
        (cn.LogisticRegression(l2="much"), parts(), OptionError, "l2 must be"),
        (
            cn.LogisticRegression(penalty="l1"),
            parts(),
            OptionError,
            "penalty must be one of 'l2', 'nonconvex', 'elasticnet', got 'l1'",
        ),
        (cn.LogisticRegression(sum="magic"), parts(), OptionError, "sum must be one of .* got 'magic'"),
        (cn.LogisticRegression(topology="web"), parts(), OptionError, "topology must be one of .* got 'web'"),
        (cn.LogisticRegression(algorithm="sgd"), parts(), OptionError, "algorithm must be one of FedSGD"),
        (
            cn.LogisticRegression(),
            [cn.Party("a", X[:, :3], Y, ids=range(80)), cn.Party("b", X[:, 3:], ids=[*range(1, 80), 0])],
            DataError,
            "ids of 'a' and 'b' are not aligned: 80 rows differ, the first is row 0",
        ),
        (
            cn.LogisticRegression(),
            [cn.Party("a", X[:, :3], Y), cn.Party("b", X[:, 3:], 1 - Y)],
            LabelError,
            "parties 'a' and 'b' disagree about 80 labels, the first in row 0",
        ),
        (
            cn.LogisticRegression(),
            [cn.Party("a", X[:, :3], Y), cn.Party("b", X[:, 3:], np.where(Y, "y", "n"))],
            LabelError,
            "one party's labels are text and another's are numbers",
        ),
        (
            cn.LogisticRegression(),
            parts(y=np.where(np.arange(80) < 5, np.nan, Y)),
            LabelError,
            "5 of 80 rows have no label at any party",
        ),
        (
            cn.LogisticRegression(algorithm=cn.FedSGD(batch=81)),
            parts(),
            OptionError,
            "batch must be at most the 80 rows",
        ),
    ],
)
def test_one_sentence_before_any_work(model, parties, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        model.fit(*parties, on=NeverStarted())
    assert "\n" not in str(caught.value)
    assert not hasattr(model, "history_")


@pytest.mark.parametrize(
    ("validation", "error", "sentence"),
    [
        (parts()[:1], DataError, r"validation needs each of the parties \['a', 'b'\] once, got \['a'\]"),
        ([cn.Party("a", X[:, :3]), cn.Party("b", X[:, 3:])], LabelError, "holds labels in training and none here"),
        (parts(b=X), DataError, "party 'b' has 6 columns here and 3 in training"),
        (parts()[0], DataError, "validation needs a list of parties, got Party"),
        ((X, Y), DataError, r"once, got \['ndarray', 'ndarray'\]"),
        (parts(y=np.where(np.arange(80) < 5, np.nan, Y)), LabelError, "5 of 80 rows have no label at any party"),
        (parts(b=X[:9, 3:]), DataError, "has 9 rows, party 'a' has 80"),
        (parts(y=Y + 5), LabelError, "the classes known from training are 0, 1"),
    ],
)
def test_validation_data_is_checked_too(validation, error, sentence):
    with pytest.raises(error, match=sentence):
        cn.LogisticRegression().fit(*parts(), validation=validation, on=NeverStarted())


def test_a_party_with_a_single_column_is_told_what_that_shows():
    with pytest.warns(SingleFeatureWarning, match="party 'b' has a single column: FedBCD's Theorem 2"):
        cn.LogisticRegression(algorithm=QUICK, verbose=0).fit(*parts(b=X[:, 3:4]))


def test_columns_of_very_different_size_are_named():
    income = np.column_stack([X[:, 3] * 5e4, X[:, 4]])
    with pytest.warns(ColonnadeWarning, match=r"party 'b': column 'x0' \(about 5.6e\+04\) is far larger than 'x1'"):
        cn.LogisticRegression(algorithm=cn.FedSGD(tol=None), verbose=0).fit(*parts(b=income))
    rare = sp.csr_matrix(np.eye(80)[:, :2])  # a category that occurs once is not a small column
    cn.LogisticRegression(algorithm=QUICK, verbose=0).fit(*parts(b=rare))


def test_training_that_ran_out_of_epochs_says_so():
    algorithm = cn.FedSGD(step=0.01, schedule="constant", epochs=7)
    with pytest.warns(ColonnadeWarning, match="training stopped after 7 epochs while the objective still fell"):
        cn.LogisticRegression(algorithm=algorithm, verbose=0).fit(*parts())


@pytest.mark.parametrize("y", [3e5 + 1e5 * X[:, 0], 1e7 * X[:, 0]])
def test_targets_of_any_size(y):
    model = cn.RidgeRegression(verbose=0).fit(*parts(y=y))
    assert model.score(*parts(y=y)) > 0.99


@pytest.mark.parametrize("algorithm", ["auto", cn.VFB2("sgd"), cn.VFB2("saga"), cn.FedBCD()])
def test_a_very_strong_penalty_is_no_accident(algorithm):
    model = cn.LogisticRegression(l2=1000.0, algorithm=algorithm, verbose=0).fit(*parts())
    assert np.abs(np.concatenate(list(model.coef_.values()))).max() < 1e-2


def test_few_rows_need_no_option():
    few = [party.take(slice(0, 5)) for party in parts()]
    for algorithm in ("auto", cn.FedBCD(), cn.VFB2(), cn.FedSGD(epochs=np.int64(3))):
        model = cn.LogisticRegression(algorithm=algorithm, verbose=0).fit(*few)
        assert model.history_[-1]["loss"] < model.history_[0]["loss"]


@pytest.mark.parametrize(
    ("on", "sentence"),
    [
        (
            cn.Processes,
            r"on must be a runtime such as Simulation\(\) or Processes\(\), got the class Processes; add \(\)",
        ),
        ("processes", "on must be a runtime .* got a str"),
    ],
)
def test_a_runtime_that_is_none(on, sentence):
    with pytest.raises(OptionError, match=sentence):
        cn.LogisticRegression().fit(*parts(), on=on)


def test_columns_in_another_order_are_refused():
    frames = [pd.DataFrame(X[:, :3], columns=["a", "b", "c"]), pd.DataFrame(X[:, 3:], columns=["d", "e", "f"])]
    train = [cn.Party("a", frames[0], Y), cn.Party("b", frames[1])]
    model = cn.LogisticRegression(algorithm=QUICK, verbose=0).fit(*train)
    swapped = [train[0], cn.Party("b", frames[1][["e", "d", "f"]])]
    with pytest.raises(DataError, match="party 'b': column 0 is 'e' here and 'd' in training"):
        model.predict(*swapped)
    with pytest.raises(DataError, match="column 0 is 'e' here"):
        cn.LogisticRegression().fit(*train, validation=[cn.Party("a", frames[0], Y), swapped[1]])
    model.predict(train[0], cn.Party("b", X[:, 3:]))  # no names, nothing to compare


def test_prediction_is_checked():
    model = cn.LogisticRegression(algorithm=QUICK, verbose=0).fit(*parts())
    with pytest.raises(DataError, match=r"prediction needs each of the parties \['a', 'b'\] once, got \['a'\]"):
        model.predict(parts()[0])
    with pytest.raises(DataError, match="party 'b' has 6 columns here and 3 in training"):
        model.predict(*parts(b=X))


HOLES = np.where(np.arange(240).reshape(80, 3) == 130, np.nan, X[:, 3:])  # one, in row 43 of column 1
CODES = np.column_stack([X[:, 3], np.arange(80) % 4, np.arange(80) % 3])
MISSING = (
    "^party 'b': X has 1 values that are NaN, the first in row 43, column number 1; impute or drop them first, or "
    "train boosted trees, which take them$"
)
CATEGORIES = (
    r"^party 'b' names the columns 'x1', 'x2' as categories, which only boosted trees take; encode them first \(for "
    r"example one-hot\), or train boosted trees$"
)


def with_values(b, **options):
    return [cn.Party("a", X[:, :3], Y, ids=range(80)), cn.Party("b", b, ids=range(80), **options)]


def networks():
    torch = pytest.importorskip("torch")
    return {"a": torch.nn.Linear(3, 1), "b": torch.nn.Linear(3, 1)}


# Every model but trees: how it is made, and whose rows it predicts.
MODELS = {
    "linear": (lambda: cn.LogisticRegression(algorithm=QUICK, verbose=0), slice(None)),
    "sealed": (lambda: cn.LogisticRegression(protection="sealed", verbose=0), slice(None)),
    "averaged": (lambda: cn.LogisticRegression(algorithm=cn.FDML(epochs=2), verbose=0), slice(None)),
    "kernel": (lambda: cn.KernelClassifier(algorithm=cn.FDSKL(epochs=2), features=8, verbose=0), slice(None)),
    "networks": (lambda: cn.NetworkClassifier(networks(), algorithm=cn.FedSGD(epochs=1), verbose=0), slice(None)),
    "transfer": (
        lambda: cn.TransferClassifier(networks(), algorithm=cn.FedSGD(step=0.1, epochs=1), verbose=0),
        slice(1, 2),
    ),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: with_values(HOLES), MISSING),
        (lambda: with_values(sp.csr_matrix(HOLES)), MISSING),
        (lambda: with_values(CODES, categories=[1, 2]), CATEGORIES),
    ],
    ids=["missing", "missing in CSR", "categories"],
)
def test_values_that_only_trees_take(name, wrong, sentence):
    make, _ = MODELS[name]
    with pytest.raises(DataError, match=sentence):
        make().fit(*wrong(), on=NeverStarted())
    with pytest.raises(DataError, match=sentence):
        make().fit(*with_values(X[:, 3:]), validation=wrong(), on=NeverStarted())


@pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
@pytest.mark.parametrize("name", [name for name in MODELS if name != "sealed"])
def test_values_that_only_trees_take_are_refused_in_use(name):
    make, predicted = MODELS[name]
    model = make().fit(*with_values(X[:, 3:]))
    for wrong, sentence in ((with_values(HOLES), MISSING), (with_values(CODES, categories=[1, 2]), CATEGORIES)):
        with pytest.raises(DataError, match=sentence):
            model.predict(*wrong[predicted], on=NeverStarted())
        if name == "linear":
            with pytest.raises(DataError, match=sentence):
                model.statistics(*wrong, on=NeverStarted())


@pytest.mark.parametrize("on", [cn.Simulation(), cn.Processes()])
def test_an_overflow_of_the_ring_ends_the_run_everywhere(on):
    algorithm = cn.FedSGD(step=1e12, schedule="constant", batch=16, epochs=3)
    sentence = (
        r"a contribution of party '.' reaches .*the ring of 64 bits holds less than .* for 2 parties; scale the columns"
    )
    with pytest.raises(RingOverflow, match=sentence) as caught:
        cn.RidgeRegression(algorithm=algorithm, verbose=0).fit(*parts(y=X @ np.ones(6)), on=on)
    outcomes = caught.value.outcomes
    assert set(outcomes) == {"a", "b"}
    assert all(isinstance(o.error, ColonnadeError) for o in outcomes.values())
    assert any(isinstance(o.error, PartyFailed) for o in outcomes.values()) or len(outcomes) == 2


def test_a_crash_in_the_middle_of_training_names_party_and_step():
    faults = cn.Faults(crashes={"b": 0.01})
    with pytest.raises(ColonnadeError, match=r"party 'b' was silent .* at step 'scores' of round") as caught:
        cn.LogisticRegression(algorithm=QUICK, verbose=0).fit(*parts(), on=cn.Simulation(faults=faults, deadline=5))
    assert (caught.value.party, caught.value.step) == ("b", "scores")


def test_frames_say_where_pandas_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    said = r"^{} needs pandas, which is not installed; pip install pandas$"
    with pytest.raises(InputError, match=said.format(r"frame\(\)")):
        Timeline().frame()
    model = cn.LogisticRegression(protection="plain", algorithm=cn.FedBCD(epochs=1), verbose=0)
    model.fit(*parts())
    with pytest.raises(InputError, match=said.format(r"history_frame\(\)")):
        model.history_frame()
    with pytest.raises(InputError, match=said.format(r"to_frame\(\)")):
        Audit(()).to_frame()
