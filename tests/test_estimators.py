"""One contract suite over every estimator: it learns, agrees with scikit-learn, is saved, loaded and cloned."""

from __future__ import annotations

import inspect
import io
import re

import numpy as np
import pytest
from sklearn import linear_model
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

import colonnade as cn
from colonnade import private_files
from colonnade.errors import DataError, LabelError, NotFittedError, OptionError
from colonnade.estimators.base import Estimator

RNG = np.random.default_rng(0)
N, D, L2 = 400, 8, 0.02
X = RNG.standard_normal((N, D))
SCORE = X @ RNG.standard_normal(D) * 0.6
LABELS = {
    "LogisticRegression": np.where(SCORE + RNG.logistic(size=N) > 0, "yes", "no"),
    "SoftmaxRegression": np.digitize(SCORE + RNG.logistic(size=N), [-1.0, 1.0]),
    "LinearSVC": np.where(SCORE + RNG.logistic(size=N) > 0, 7, 3),
    "RidgeRegression": SCORE + 2.0 + 0.1 * RNG.standard_normal(N),
    "PoissonRegression": RNG.poisson(np.exp(0.5 * SCORE)),
}
ALGORITHM = cn.FedSGD(batch=16, epochs=80)

LINEAR = (cn.LogisticRegression, cn.SoftmaxRegression, cn.LinearSVC, cn.RidgeRegression, cn.PoissonRegression)
MODELS = {kind.__name__: kind for kind in LINEAR}


def fitted(name, **options):
    model = MODELS[name](l2=L2, algorithm=ALGORITHM, verbose=0, **options)
    return model.fit(*cn.split(X, LABELS[name], into=3))


@pytest.fixture(scope="module")
def models():
    return {name: fitted(name) for name in MODELS}


@pytest.mark.parametrize("name", MODELS)
def test_the_objective_falls_and_the_history_tells(models, name):
    model = models[name]
    first, last = model.history_[0], model.history_[-1]
    assert last["loss"] < first["loss"]
    assert {"epoch", "time", "loss", "metric", "rounds", "bytes", "messages"} <= set(last)
    assert last["bytes"] > first["bytes"] > 0
    assert last["rounds"] == model.rounds_ > 0
    frame = model.history_frame()
    assert len(frame) == len(model.history_)
    assert frame["rounds"].is_monotonic_increasing


REFERENCES = {
    "LogisticRegression": lambda: linear_model.LogisticRegression(C=1 / (N * L2), tol=1e-10),
    "SoftmaxRegression": lambda: linear_model.LogisticRegression(C=1 / (N * L2), tol=1e-10),
    "RidgeRegression": lambda: linear_model.Ridge(alpha=N * L2),
    "PoissonRegression": lambda: linear_model.PoissonRegressor(alpha=L2, tol=1e-10, max_iter=1000),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_coefficients_are_scikit_learns(models, name):
    """The same penalty means the same model: C = 1 / (n l2), alpha = n l2, alpha = l2."""
    reference = REFERENCES[name]().fit(X, LABELS[name])
    ours = np.concatenate([models[name].coef_[party] for party in models[name].parties_], axis=-1)
    np.testing.assert_allclose(ours, np.squeeze(reference.coef_), atol=0.03)
    if name != "SoftmaxRegression":  # softmax intercepts are determined up to a common constant
        assert models[name].intercept_ == pytest.approx(float(np.squeeze(reference.intercept_)), abs=0.03)
    parties = cn.split(X, LABELS[name], into=3)
    assert models[name].score(*parties) == pytest.approx(reference.score(X, LABELS[name]), abs=0.01)


def test_the_svc_minimises_the_smooth_hinge(models):
    model, t = models["LinearSVC"], np.where(LABELS["LinearSVC"] == 7, 1.0, -1.0)

    def objective(w, b):
        m = t * (X @ w + b)
        losses = np.where(m <= 0, 0.5 - m, np.where(m < 1, (1 - m) ** 2 / 2, 0.0))
        return losses.mean() + L2 / 2 * w @ w

    w = np.concatenate([model.coef_[party] for party in model.parties_])
    here = objective(w, model.intercept_)
    assert here == pytest.approx(min(r["loss"] for r in model.history_), abs=1e-8)
    for direction in np.random.default_rng(1).standard_normal((50, D)):
        assert objective(w + 0.05 * direction / np.linalg.norm(direction), model.intercept_) > here - 1e-4


@pytest.mark.parametrize("name", MODELS)
def test_predictions_are_of_the_labels_kind(models, name):
    parties = [p.take(slice(0, 50)) for p in _parties(name)]
    model = models[name]
    predicted = model.predict(*parties)
    assert predicted.shape == (50,)
    if len(model.classes_):
        assert set(predicted) <= set(model.classes_)
        assert predicted.dtype.kind == LABELS[name].dtype.kind
    else:
        assert predicted.dtype == np.float64
    # parties in another order, or without labels, give the same answer
    bare = [cn.Party(p.name, p.X) for p in reversed(parties)]
    assert model.predict(*bare).tolist() == predicted.tolist()
    z = model.decision_function(*parties)
    whole = sum(p.X @ model.coef_[p.name].T for p in parties) + model.intercept_
    np.testing.assert_allclose(z, whole, atol=1e-9)


def _parties(name):
    return cn.split(X, LABELS[name], into=3)


def test_probabilities(models):
    for name in ("LogisticRegression", "SoftmaxRegression"):
        p = models[name].predict_proba(*_parties(name))
        assert p.shape == (N, len(models[name].classes_))
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
        labels = models[name].classes_[p.argmax(axis=1)]
        assert labels.tolist() == models[name].predict(*_parties(name)).tolist()
    assert not hasattr(models["LinearSVC"], "predict_proba")


def test_the_history_metric_is_the_auc(models):
    model = models["LogisticRegression"]
    z = model.decision_function(*_parties("LogisticRegression"))
    best = min(model.history_, key=lambda record: record["loss"])
    assert best["metric_name"] == "auc"
    assert best["metric"] == pytest.approx(roc_auc_score(LABELS["LogisticRegression"] == "yes", z), abs=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_saved_and_loaded_it_answers_the_same(models, name, tmp_path):
    models[name].save(tmp_path)
    assert sorted(f.name for f in tmp_path.iterdir()) == [f"party{k}.colonnade.npz" for k in (1, 2, 3)]
    again = cn.load(tmp_path)
    assert type(again) is MODELS[name]
    parties = _parties(name)
    assert again.decision_function(*parties).tobytes() == models[name].decision_function(*parties).tobytes()
    assert again.predict(*parties).tolist() == models[name].predict(*parties).tolist()


def test_a_partys_file_holds_nothing_of_the_others(models, tmp_path):
    model = models["LogisticRegression"]
    model.save(tmp_path)
    for mine in model.parties_:
        content = (tmp_path / f"{mine}.colonnade.npz").read_bytes()
        for other in model.parties_:
            assert (model.coef_[other].tobytes() in content) == (mine == other)
        with np.load(tmp_path / f"{mine}.colonnade.npz", allow_pickle=False) as archive:
            assert ("classes" in archive.files) == (mine == "party1")
            assert ("intercept" in archive.files) == (mine == "party1")


def test_files_that_do_not_fit_are_refused(models, tmp_path):
    with pytest.raises(DataError, match="holds no file that ends in"):
        cn.load(tmp_path)
    models["RidgeRegression"].save(tmp_path)
    with pytest.raises(DataError, match="holds a RidgeRegression"):
        cn.LogisticRegression.load(tmp_path)
    (tmp_path / "party2.colonnade.npz").unlink()
    with pytest.raises(DataError, match=r"the files of \['party2'\] are missing"):
        cn.load(tmp_path)
    private_files.write(tmp_path / "party2.colonnade.npz", b"not an archive")
    with pytest.raises(DataError, match="is not a model file of Colonnade"):
        cn.load(tmp_path)
    whole = (tmp_path / "party1.colonnade.npz").read_bytes()
    flipped = whole.replace("party".encode("utf-32-le"), "PARTY".encode("utf-32-le"))  # its checksum does not fit
    assert flipped != whole
    array, other = io.BytesIO(), io.BytesIO()
    np.save(array, np.zeros(3))
    np.savez(other, public=np.array("[1]"))
    for damaged in (whole[:-30], whole[: len(whole) // 2], flipped, array.getvalue(), other.getvalue(), b""):
        (tmp_path / "party2.colonnade.npz").write_bytes(damaged)
        with pytest.raises(DataError, match=r"party2.colonnade.npz is not a model file of Colonnade \("):
            cn.load(tmp_path)
    models["PoissonRegression"].save(tmp_path / "other")
    (tmp_path / "other" / "party2.colonnade.npz").rename(tmp_path / "party2.colonnade.npz")
    with pytest.raises(DataError, match="of different trainings"):
        cn.load(tmp_path)


def test_scikit_learns_conventions():
    model = cn.LogisticRegression(l2=0.5, algorithm=cn.FedBCD(local_steps=3), sum="two-trees")
    copy = clone(model)
    assert copy is not model
    assert copy.get_params() == model.get_params()
    assert repr(copy) == repr(model)
    assert "l2=0.5" in repr(model)
    assert model.set_params(l2=0.1).l2 == 0.1
    with pytest.raises(OptionError, match="the option's name must be one of"):
        model.set_params(learning_rate=1)
    with pytest.raises(NotFittedError, match="is not fitted; call fit"):
        _ = model.coef_
    with pytest.raises(NotFittedError, match="is not fitted"):
        model.predict(cn.Party("a", X))


def test_without_an_intercept():
    model = fitted("LogisticRegression", fit_intercept=False)
    assert model.intercept_ == 0.0


def test_the_nonconvex_penalty_trains():
    model = fitted("LogisticRegression", penalty="nonconvex")
    w = np.concatenate([model.coef_[party] for party in model.parties_])
    t = np.where(LABELS["LogisticRegression"] == "yes", 1.0, -1.0)
    value = np.logaddexp(0, -t * (X @ w + model.intercept_)).mean() + L2 / 2 * (w**2 / (1 + w**2)).sum()
    assert value == pytest.approx(min(r["loss"] for r in model.history_), abs=1e-8)
    # it shrinks large coefficients less than L2 does
    assert np.linalg.norm(w) > np.linalg.norm(np.concatenate(list(fitted("LogisticRegression").coef_.values())))


def test_one_party_alone_and_many():
    y = LABELS["LogisticRegression"]
    alone = cn.LogisticRegression(l2=L2, algorithm=ALGORITHM, verbose=0).fit(cn.Party("bank", X, y))
    assert alone.sum_ == "plain"
    assert sum(t.messages for t in alone.traffic_.values()) == 0
    both = cn.LogisticRegression(l2=L2, algorithm=ALGORITHM, verbose=0).fit(*cn.split(X, y, into=2))
    assert both.sum_ == "plain"
    np.testing.assert_allclose(np.concatenate(list(both.coef_.values())), alone.coef_["bank"], atol=0.02)


def test_label_holders_with_a_part_of_the_rows_each():
    y = LABELS["LogisticRegression"].astype(object)
    first, second = y.copy(), y.copy()
    first[::2], second[1::2] = None, None
    parties = cn.split(X, LABELS["LogisticRegression"], into=3)
    parts = [cn.Party("a", parties[0].X, first), cn.Party("b", parties[1].X, second), cn.Party("c", parties[2].X)]
    model = cn.LogisticRegression(l2=L2, algorithm=ALGORITHM, verbose=0).fit(*parts)
    assert model.holders_ == ("a", "b")
    whole = fitted("LogisticRegression")
    for one, other in zip(model.coef_.values(), whole.coef_.values(), strict=True):
        np.testing.assert_allclose(one, other, atol=0.05)
    # both holders launched rounds: each sent signals
    assert all(model.traffic_[name].by_step["signal"][0] > 0 for name in ("a", "b"))
    assert "signal" not in model.traffic_["c"].by_step


def test_scoring_needs_labels(models):
    with pytest.raises(LabelError, match="score needs the true labels"):
        models["RidgeRegression"].score(*[cn.Party(p.name, p.X) for p in _parties("RidgeRegression")])


# -- what is documented ----------------------------------------------------------------------------------------------

PUBLIC = [kind for kind in (getattr(cn, name) for name in cn.__all__) if isinstance(kind, type)]
CLASSES = [kind for kind in PUBLIC if kind.__module__.split(".")[1] in ("estimators", "algorithms", "data", "runtimes")]
FACES = [kind for kind in CLASSES if issubclass(kind, Estimator)]
METHODS = ("fit", "decision_function", "predict", "predict_proba", "score", "statistics", "save", "load")


def documented(words, section):
    """The names of the entries of one section of a numpydoc docstring."""
    text = inspect.cleandoc(words or "")
    found = re.search(rf"^{section}\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", text, re.DOTALL | re.MULTILINE)
    heads = re.findall(r"^(\S.*)\n {4}\S", found[1] if found else "", re.MULTILINE)
    return {name.lstrip("*") for head in heads for name in head.split(" : ")[0].split(", ")}


def entries(kind, section):
    """Those of a class and of all classes that it is made of."""
    return set().union(*(documented(vars(one).get("__doc__"), section) for one in kind.__mro__))


def test_a_section_of_a_docstring_is_read_entry_by_entry():
    words = """A thing.

    Parameters
    ----------
    a, b : int
        Numbers; c : is not one.
    **more
        Others.

    Attributes
    ----------
    d_
        A result.
    e_
    """
    assert documented(words, "Parameters") == {"a", "b", "more"}
    assert documented(words, "Attributes") == {"d_"}  # an entry without a word is none
    assert documented(None, "Parameters") == set()


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_parameters_are_documented_one_by_one(kind):
    assert set(inspect.signature(kind).parameters) - entries(kind, "Parameters") == set()


@pytest.mark.parametrize("kind", FACES, ids=lambda kind: kind.__name__)
def test_estimators_document_no_parameter_that_they_do_not_have(kind):
    own = documented(vars(kind)["__doc__"], "Parameters") or entries(kind, "Parameters")
    assert own == set(inspect.signature(kind).parameters)
    missing = [name for name in inspect.signature(kind).parameters if not re.search(rf"\b{name}\b", kind.__doc__)]
    assert missing == []  # a subclass names them too, and says where they are described


@pytest.mark.parametrize("kind", FACES, ids=lambda kind: kind.__name__)
def test_methods_of_estimators_are_documented(kind):
    for name in METHODS:
        method = getattr(kind, name, None)
        if method is not None:
            given = set(inspect.signature(method).parameters) - {"self"}
            assert documented(method.__doc__, "Parameters") == given, name
            assert name == "save" or "Returns\n" in inspect.cleandoc(method.__doc__), name
    for name in ("get_params", "set_params", "history_frame"):
        assert "Returns\n" in inspect.cleandoc(getattr(kind, name).__doc__)


@pytest.mark.parametrize("kind", FACES, ids=lambda kind: kind.__name__)
def test_results_are_documented(kind, models):
    known = entries(kind, "Attributes")
    results = {name for name in dir(kind) if name.endswith("_") and not name.startswith("_")}
    if kind.__name__ in models:
        results |= {name for name in vars(models[kind.__name__]) if name.endswith("_")}
    if kind is cn.SSCAClassifier:
        made = kind(hidden=0, algorithm=cn.SSCA(rounds=20), verbose=0).fit(
            *cn.split_rows(X, LABELS["LogisticRegression"], into=2)
        )
        results |= {name for name in vars(made) if name.endswith("_")}
    annotated = {name for one in kind.__mro__ for name in vars(one).get("__annotations__", {}) if name.endswith("_")}
    assert (results | annotated) - known == set()
