"""Cross-validation and search over parties: scikit-learn's figures, one agreement, the same bits, clear refusals."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import linear_model
from sklearn.base import clone
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.model_selection import cross_validate as theirs

import colonnade as cn
from colonnade.errors import DataError, LabelError, OptionError
from colonnade.objective import losses, scorers
from colonnade.validation.folds import drawn_folds

N = 240
EXACT = cn.BlockNewton(tol=1e-11, epochs=60)


def table(kind="binary", seed=0, rows=N):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 7))
    z = X @ rng.normal(size=7) / 2 + 0.3
    if kind == "real":
        return X, z + rng.normal(size=rows)
    if kind == "count":
        return X, rng.poisson(np.exp(np.clip(z, None, 2))).astype(float)
    if kind == "classes":
        return X, np.array(["a", "b", "c"])[np.digitize(z + rng.normal(size=rows), [-0.5, 0.8])]
    return X, np.where(z + rng.logistic(size=rows) > 0, "yes", "no")


def parties(X, y, cuts=(3,), names=("bank", "shop", "post")):
    blocks = np.split(X, cuts, axis=1) if not sp.issparse(X) else [X[:, : cuts[0]], X[:, cuts[0] :]]
    return [cn.Party(names[k], block, y if k == 0 else None) for k, block in enumerate(blocks)]


def logistic(l2, rows, **more):
    return linear_model.LogisticRegression(C=1 / (rows * l2), solver="newton-cholesky", tol=1e-12, max_iter=500, **more)


# -- scikit-learn's figures --------------------------------------------------------------------------------------------


def test_cross_validate_gives_the_scores_of_scikit_learn():
    X, y = table()
    names = ["roc_auc", "neg_log_loss", "accuracy", "average_precision", "neg_brier_score"]
    found = cn.cross_validate(
        cn.LogisticRegression(l2=0.01, algorithm=EXACT, verbose=0), *parties(X, y), cv=4, scoring=names, seed=3,
        return_indices=True,
    )  # fmt: skip
    folds = list(zip(found["indices"]["train"], found["indices"]["test"], strict=True))
    known = theirs(logistic(0.01, 180), X, y == "yes", cv=folds, scoring=names)
    for name in names:
        assert found[f"test_{name}"] == pytest.approx(known[f"test_{name}"], abs=1e-6), name
    assert set(found) == {"fit_time", "score_time", "indices", *(f"test_{name}" for name in names)}
    assert found["fit_time"].shape == (4,)
    assert (found["fit_time"] > 0).all()


@pytest.mark.parametrize("case", ["ridge", "poisson", "softmax", "three parties"])
def test_search_is_grid_search_on_the_joined_table(case):
    """The same table, the same best options and, on all rows, the same model."""
    kind = {"ridge": "real", "poisson": "count", "softmax": "classes"}.get(case, "binary")
    X, y = table(kind)
    folds = list(KFold(5, shuffle=True, random_state=1).split(X))
    values, rows = [1e-3, 0.3, 1e-2], len(folds[0][0])
    scoring = {"real": "neg_mean_squared_error", "count": "neg_mean_poisson_deviance"}.get(kind, "neg_log_loss")
    model = {"ridge": cn.RidgeRegression, "poisson": cn.PoissonRegression, "softmax": cn.SoftmaxRegression}.get(
        case, cn.LogisticRegression
    )(algorithm=EXACT, verbose=0)
    found = cn.search(model, {"l2": values}, *parties(X, y, (3, 5) if case == "three parties" else (3,)), cv=folds,
                      scoring=scoring)  # fmt: skip
    if kind == "real":
        grid, one = {"alpha": [rows * l2 for l2 in values]}, linear_model.Ridge(solver="cholesky")
    elif kind == "count":
        grid, one = {"alpha": values}, linear_model.PoissonRegressor(solver="newton-cholesky", tol=1e-12)
    else:
        grid, one = {"C": [1 / (rows * l2) for l2 in values]}, logistic(1.0, rows)
    known = GridSearchCV(one, grid, scoring=scoring, cv=folds, refit=False).fit(X, y)
    for key in ("mean_test_score", "std_test_score", *(f"split{fold}_test_score" for fold in range(5))):
        assert found.cv_results_[key] == pytest.approx(known.cv_results_[key], rel=1e-6, abs=1e-6), key
    assert found.cv_results_["rank_test_score"].tolist() == known.cv_results_["rank_test_score"].tolist()
    assert found.best_index_ == known.best_index_
    assert found.best_params_ == {"l2": values[known.best_index_]}
    assert found.best_score_ == pytest.approx(known.best_score_, abs=1e-6)
    assert found.n_splits_ == 5
    assert found.cv_results_["param_l2"].tolist() == values
    again = clone(model).set_params(**found.best_params_).fit(*parties(X, y, (3, 5) if "three" in case else (3,)))
    for name in again.coef_:
        assert np.array_equal(again.coef_[name], found.best_estimator_.coef_[name])


def test_folds_are_drawn_by_the_seed_and_hold_every_row_out_once():
    folds = drawn_folds(23, 5, 7)
    assert sorted(np.concatenate([test for _, test in folds]).tolist()) == list(range(23))
    assert {len(test) for _, test in folds} == {4, 5}
    assert all(not set(train) & set(test) and len(train) + len(test) == 23 for train, test in folds)
    assert all(np.array_equal(a, b) for one, two in zip(folds, drawn_folds(23, 5, 7), strict=True)
               for a, b in zip(one, two, strict=True))  # fmt: skip
    assert any(not np.array_equal(a[1], b[1]) for a, b in zip(folds, drawn_folds(23, 5, 8), strict=True))


# -- the same as fits by themselves ------------------------------------------------------------------------------------


def test_without_a_warm_start_every_fit_has_the_bits_that_it_has_by_itself():
    X, y = table(rows=120)
    split = parties(X, y, (3, 5))
    model = cn.LogisticRegression(l2=0.01, sum="pairwise", verbose=0)
    found = cn.cross_validate(model, *split, cv=3, return_estimator=True, return_indices=True)
    for fitted, train, test, score in zip(
        found["estimator"], *found["indices"].values(), found["test_score"], strict=True
    ):
        alone = clone(model).fit(*(party.take(train) for party in split))
        for name in alone.coef_:
            assert np.array_equal(alone.coef_[name], fitted.coef_[name])
        assert alone.intercept_ == fitted.intercept_
        assert alone.rows_ == fitted.rows_ == len(train)
        assert alone.score(*(party.take(test) for party in split)) == score
    assert not hasattr(model, "_states")  # the model itself is as it was


def test_a_warm_start_takes_fewer_rounds_to_the_same_scores():
    X, y = table()
    grid = {"l2": [1e-4, 1e-3, 1e-2, 1e-1]}
    model = cn.LogisticRegression(algorithm=cn.BlockNewton(tol=1e-10), verbose=0)
    cold, warm = (
        cn.search(model, grid, *parties(X, y), cv=3, scoring="neg_log_loss", warm_start=one) for one in (False, True)
    )
    assert warm.cv_results_["mean_test_score"] == pytest.approx(cold.cv_results_["mean_test_score"], abs=1e-6)
    assert warm.traffic_["shop"].rounds < cold.traffic_["shop"].rounds


def test_the_model_of_a_search_has_its_own_history_and_traffic():
    X, y = table(rows=120)
    found = cn.search(cn.LogisticRegression(verbose=0), {"l2": [0.1, 0.01]}, *parties(X, y), cv=2)
    alone = cn.LogisticRegression(verbose=0, **found.best_params_).fit(*parties(X, y))
    best = found.best_estimator_
    assert [one["loss"] for one in best.history_] == [one["loss"] for one in alone.history_]
    assert best.rounds_ == alone.rounds_ < found.traffic_["shop"].rounds
    assert set(found.times_) == {"bank", "shop"}
    assert 0 < alone.times_["bank"].total < found.times_["bank"].total
    assert best.traffic_["shop"].by_step == {
        step: count for step, count in alone.traffic_["shop"].by_step.items() if step not in ("public key", "goodbye")
    }
    assert "*" in repr(found)
    assert len(found.frame()) == 2


# -- one agreement -----------------------------------------------------------------------------------------------------


def count(traffic, kind):
    return sum(number for step, (number, _) in traffic.by_step.items() if step.split(" in fit ")[0] == kind)


def test_there_is_one_agreement_on_keys_for_all_folds_and_candidates():
    X, y = table(rows=120)
    found = cn.search(
        cn.LogisticRegression(sum="pairwise", verbose=0), {"l2": [0.1, 0.01, 0.001]}, *parties(X, y, (3, 5)), cv=4
    )
    for name, traffic in found.traffic_.items():
        assert count(traffic, "public key") == 2  # one to each of the others
        assert count(traffic, "choice") == (2 if name == "bank" else 0)
    assert count(found.traffic_["bank"], "labelled rows") == 2 * (3 * 4 + 1)  # so many fits were done


def test_every_sum_has_masks_of_its_own():
    """The keys are the same, and what is sent in two fits of the same rows is not."""
    X, y = table(rows=60)
    split = parties(X, y, (3, 5))
    sent = []

    class Seen(cn.Simulation):
        def run(self, programs, observer=None, spare=()):
            from colonnade.runtimes import endpoint

            before = endpoint.Endpoint.send

            async def send(net, to, tag, value):
                if tag.startswith(("directions", "held-out scores")):
                    sent.append((net.me, to, tag, value.tobytes()))
                await before(net, to, tag, value)

            endpoint.Endpoint.send = send
            try:
                return super().run(programs, observer, spare)
            finally:
                endpoint.Endpoint.send = before

    fold = [(np.arange(40), np.arange(40, 60))]
    cn.cross_validate(cn.LogisticRegression(verbose=0), *split, cv=fold * 2, on=Seen())
    by_fit = {}
    for me, to, tag, value in sent:
        by_fit.setdefault((me, to, tag.split(" in fit ")[0]), []).append(value)
    assert by_fit
    assert all(len(set(values)) == len(values) for values in by_fit.values())


def test_processes_give_the_bits_of_the_simulation():
    X, y = table(rows=120)
    model = cn.LogisticRegression(sum="pairwise", verbose=0)
    one, two = (
        cn.search(model, {"l2": [0.1, 0.01]}, *parties(X, y), cv=2, scoring="neg_log_loss", on=on)
        for on in (cn.Simulation(), cn.Processes(secret="rehearsal"))
    )
    assert np.array_equal(one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"])
    assert np.array_equal(one.best_estimator_.coef_["shop"], two.best_estimator_.coef_["shop"])


def test_folds_share_the_time_of_the_line():
    """Side by side they take little more virtual time than one of them."""
    X, y = table(rows=120)
    on = cn.Simulation(latency=0.02)
    model = cn.LogisticRegression(l2=0.01, verbose=0).fit(*parties(X, y), on=on)
    found = cn.cross_validate(model, *parties(X, y), cv=5, on=on)
    assert found["fit_time"].max() < 1.5 * model.history_[-1]["time"]


# -- other models ------------------------------------------------------------------------------------------------------


def test_sealed_models_are_searched_and_show_held_out_scores_alone():
    X, y = table("real", rows=60)
    X, folds = X[:, :4], drawn_folds(60, 2, 0)
    model = cn.RidgeRegression(protection="sealed", verbose=0)
    found = cn.search(model, {"l2": [0.1, 0.01]}, *parties(X, y, (2,)), cv=2, scoring="neg_mean_squared_error")
    for number, l2 in enumerate((0.1, 0.01)):
        known = theirs(linear_model.Ridge(alpha=30 * l2), X, y, cv=list(folds), scoring="neg_mean_squared_error")
        assert found.cv_results_["mean_test_score"][number] == pytest.approx(known["test_score"].mean(), abs=1e-6)
    assert found.best_estimator_.protection_ == "sealed"
    shown = {step.split(" in fit ")[0].split(":")[0] for step in found.traffic_["shop"].by_step}
    assert not shown & {"directions", "scores", "evaluation", "signal", "objective"}
    assert count(found.traffic_["shop"], "held-out scores") == 4
    assert count(found.traffic_["shop"], "sealed key") == 5  # no key of shares is used for two models


@pytest.mark.parametrize(
    ("model", "grid", "near"),
    [
        (
            lambda: cn.KernelClassifier(features=40, algorithm=cn.FDSKL(epochs=3), verbose=0),
            {"alpha": [1e-3, 1e-2]},
            0.5,
        ),
        (lambda: cn.BoostedTreesClassifier(trees=3, algorithm=cn.OpenBoosting(), verbose=0), {"depth": [1, 2]}, 0.0),
        (
            lambda: cn.LogisticRegression(algorithm=cn.FedBCD(epochs=3), verbose=0),
            {"algorithm__local_steps": [1, 3]},
            0.0,
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
def test_kernels_trees_and_other_algorithms(model, grid, near):
    """Each fit is what it is by itself; a kernel's random directions are others in every fit."""
    X, y = table(rows=120)
    split = parties(X, y)
    found = cn.search(model(), grid, *split, cv=2, scoring="roc_auc")
    train, test = drawn_folds(120, 2, 0)[0]
    (option, values), *_ = grid.items()
    for number, value in enumerate(values):
        alone = model().set_params(**{option: value}).fit(*(party.take(train) for party in split))
        score = alone.score(*(party.take(test) for party in split), scoring="roc_auc")
        assert found.cv_results_["split0_test_score"][number] == pytest.approx(score, abs=near)
    assert 0.4 < found.best_score_ <= 1.0
    assert found.best_estimator_.predict(*split).shape == (120,)


@pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
def test_sparse_columns_and_weights_of_rows():
    X, y = table(rows=120)
    sparse = sp.csr_matrix(np.where(np.abs(X) > 0.7, X, 0.0))
    model = cn.LogisticRegression(l2=0.01, algorithm=EXACT, verbose=0)
    dense, thin = (cn.cross_validate(model, *parties(one, y), cv=3)["test_score"] for one in (sparse.toarray(), sparse))
    assert thin == pytest.approx(dense)
    weights = np.random.default_rng(0).integers(1, 4, 120).astype(float)
    split = [cn.Party("bank", X[:, :3], y, sample_weight=weights), cn.Party("shop", X[:, 3:])]
    found = cn.cross_validate(
        cn.BoostedTreesClassifier(trees=2, algorithm=cn.OpenBoosting(), verbose=0), *split, cv=2, return_estimator=True
    )
    train = drawn_folds(120, 2, 0)[0][0]
    alone = cn.BoostedTreesClassifier(trees=2, algorithm=cn.OpenBoosting(), verbose=0).fit(
        *(party.take(train) for party in split)
    )
    assert np.array_equal(alone.decision_function(*split), found["estimator"][0].decision_function(*split))


# -- scorers -----------------------------------------------------------------------------------------------------------

_MODELS = {
    "binary": cn.LogisticRegression, "classes": cn.SoftmaxRegression, "real": cn.RidgeRegression,
    "count": cn.PoissonRegression,
}  # fmt: skip


W = np.random.default_rng(11).gamma(0.7, size=N)
W[:9] = W[:9].round() + 1.0


class Known:
    """Predictions of ours as a fitted model of scikit-learn's."""

    def __init__(self, model, split):
        self._model, self._split, self.classes_ = model, split, np.arange(len(model.classes_))
        self._estimator_type = "classifier" if len(model.classes_) else "regressor"

    def __sklearn_tags__(self):
        from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

        kind = ClassifierMixin if len(self.classes_) else RegressorMixin
        return type("As", (kind, BaseEstimator), {})().__sklearn_tags__()

    def fit(self):
        return self

    def predict(self, X):
        said = self._model.predict(*self._split)
        return np.searchsorted(self._model.classes_, said) if len(self.classes_) else said

    def decision_function(self, X):
        return self._model.decision_function(*self._split)

    def predict_proba(self, X):
        return self._model.predict_proba(*self._split)


@pytest.mark.parametrize("weights", [None, W], ids=["alike", "weighted"])
@pytest.mark.parametrize("kind", list(_MODELS))
def test_scorers_are_those_of_scikit_learn(kind, weights):
    X, y = table(kind)
    split = parties(X, y)
    split[0] = cn.Party("bank", split[0].X, y, sample_weight=weights)
    model = _MODELS[kind](l2=0.01, verbose=0).fit(*split)
    truth = np.searchsorted(model.classes_, y) if len(model.classes_) else y
    loss = losses.loss(model.loss)
    names = [name for name, one in scorers.SCORERS.items() if loss.kind in one.kinds and name != "ks"]
    assert len(names) > 6
    for name in names:
        weighs = {} if weights is None or name == "neg_max_error" else {"sample_weight": weights}
        theirs_is = get_scorer(name)(Known(model, split), X, truth, **weighs)
        assert model.score(*split, scoring=name) == pytest.approx(theirs_is, abs=1e-9), name
    assert model.score(*split) == model.score(*split, scoring="accuracy" if len(model.classes_) else None)


@pytest.mark.parametrize("name", ["ks", *(one for one in scorers.SCORERS if one not in ("ks",))])
def test_a_row_of_weight_two_is_scored_as_two_rows_and_one_of_weight_nothing_as_none(name):
    kind = scorers.SCORERS[name].kinds[0]
    kind = "count" if name == "neg_mean_poisson_deviance" else kind
    rng, (_, y) = np.random.default_rng(3), table(kind, rows=60)
    loss = losses.loss({"binary": "logistic", "classes": "softmax", "real": "square", "count": "poisson"}[kind])
    y = {"binary": np.where(y == "yes", 1.0, -1.0), "classes": np.searchsorted(["a", "b", "c"], y)}.get(kind, y)
    z, times = rng.normal(size=60).round(1), rng.integers(0, 4, 60)
    rows = np.repeat(np.arange(60), times)
    weighed = scorers.scored(name, loss, z, y, weights=times.astype(float))
    assert weighed == pytest.approx(scorers.scored(name, loss, z[rows], y[rows]), abs=1e-12)
    if name != "neg_max_error":
        assert weighed != pytest.approx(scorers.scored(name, loss, z, y), abs=1e-6)
    assert np.isnan(scorers.scored(name, loss, z, y, weights=np.zeros(60)))


def test_folds_are_scored_by_the_weights_of_their_held_out_rows():
    X, y = table()
    folds = list(KFold(3, shuffle=True, random_state=2).split(X))
    names = ["neg_log_loss", "roc_auc", "accuracy"]
    split = [cn.Party("bank", X[:, :3], y, sample_weight=W), cn.Party("shop", X[:, 3:])]
    found = cn.cross_validate(
        cn.LogisticRegression(l2=0.01, algorithm=EXACT, verbose=0), *split, cv=folds, scoring=names
    )
    for fold, (train, test) in enumerate(folds):
        fitted = logistic(0.01, W[train].sum()).fit(X[train], y[train] == "yes", sample_weight=W[train])
        for name in names:
            theirs_is = get_scorer(name)(fitted, X[test], y[test] == "yes", sample_weight=W[test])
            assert found[f"test_{name}"][fold] == pytest.approx(theirs_is, abs=1e-6), name


def test_scores_of_one_class_have_no_auc_and_never_win():
    assert np.isnan(scorers.scored("roc_auc", losses.loss("logistic"), np.arange(3.0), np.ones(3)))
    from colonnade.validation.program import best_of

    assert best_of(np.array([[np.nan, 1.0], [0.2, 0.4], [0.3, 0.3]])) == 1


# -- scikit-learn's conventions ----------------------------------------------------------------------------------------

ESTIMATORS = [
    cn.LogisticRegression(algorithm=cn.VFB2("saga", epochs=3)), cn.SoftmaxRegression(), cn.LinearSVC(),
    cn.RidgeRegression(), cn.PoissonRegression(), cn.KernelClassifier(algorithm=cn.FDSKL(epochs=2)),
    cn.KernelRegressor(), cn.BoostedTreesClassifier(depth=2), cn.BoostedTreesRegressor(), cn.SSCAClassifier(),
]  # fmt: skip


@pytest.mark.parametrize("model", ESTIMATORS, ids=lambda model: type(model).__name__)
def test_clone_and_params_work_as_in_scikit_learn(model):
    copy = clone(model)
    assert copy is not model
    assert copy.get_params() == model.get_params()
    flat, deep = model.get_params(deep=False), model.get_params()
    assert set(flat) == {name for name in deep if "__" not in name}
    for name, value in deep.items():
        if "__" in name:
            outer, inner = name.split("__")
            assert getattr(flat[outer], inner) == value
    assert copy.set_params(**deep).get_params() == deep


def test_options_of_the_algorithm_are_set_by_their_name():
    model = cn.LogisticRegression(algorithm=cn.VFB2("saga", epochs=3))
    copy = clone(model).set_params(algorithm__epochs=7, l2=0.5)
    assert copy.algorithm == cn.VFB2("saga", epochs=7)
    assert copy.l2 == 0.5
    assert model.algorithm.epochs == 3
    both = cn.LogisticRegression().set_params(algorithm=cn.BlockNewton(), algorithm__tol=1e-3)
    assert both.algorithm == cn.BlockNewton(tol=1e-3)
    with pytest.raises(OptionError, match="the option of algorithm"):
        model.set_params(algorithm__magic=1)
    with pytest.raises(OptionError, match="algorithm is 'auto', which has no option 'tol'"):
        cn.LogisticRegression().set_params(algorithm__tol=1)
    with pytest.raises(OptionError, match="epochs"):
        model.set_params(algorithm__epochs=0)


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"cv": 1}, OptionError, "cv must be"),
        ({"cv": "five"}, OptionError, "cv must be a number of folds"),
        ({"cv": 61}, DataError, "61 folds of 60 rows"),
        ({"cv": []}, OptionError, "no fold at all"),
        ({"cv": [([0, 1], [1, 2])]}, DataError, "trains on rows that it holds out"),
        ({"cv": [([0, 1], [60])]}, DataError, "beyond the 60"),
        ({"cv": [([0.5], [1])]}, OptionError, "pair of"),
        ({"scoring": "auc"}, OptionError, "roc_auc.*got 'auc'"),
        ({"scoring": "r2"}, OptionError, "got 'r2'"),
        ({"scoring": []}, OptionError, "name of a scorer"),
        ({"scoring": len}, OptionError, "name of a scorer"),
        ({"on": cn.Simulation}, OptionError, "add \\(\\)"),
    ],
)
def test_what_cant_be_validated_is_refused_before_anything_runs(options, error, words):
    X, y = table(rows=60)
    with pytest.raises(error, match=words):
        cn.cross_validate(cn.LogisticRegression(verbose=0), *parties(X, y), **options)


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ({}, "grid must be a dict"), ([], "grid is empty"), ({"l2": 0.1}, r"grid\['l2'\] must be a list"),
        ({"l2": []}, "one value or more"), ({"l2": "0.1"}, "must be a list"), ({"magic": [1]}, "the option's name"),
        ({"l2": [-1.0]}, "l2 must be"), (3, "grid must be a dict"),
    ],
)  # fmt: skip
def test_grids_that_cant_be_are_refused(grid, words):
    X, y = table(rows=60)
    with pytest.raises(OptionError, match=words):
        cn.search(cn.LogisticRegression(verbose=0), grid, *parties(X, y))


def test_labels_that_folds_cant_do_with_are_refused():
    X, _ = table(rows=40)
    rare = np.arange(40) == 3
    with pytest.raises(LabelError, match="lack a class"):
        cn.cross_validate(cn.LogisticRegression(verbose=0), *parties(X, rare), cv=4)
    y = rare.astype(float)
    y[5] = np.nan
    split = [cn.Party("bank", X[:, :3], y), cn.Party("shop", X[:, 3:], np.where(np.arange(40) == 5, 1.0, np.nan))]
    with pytest.raises(LabelError, match="'bank', the first with labels, and it lacks the labels of 1"):
        cn.cross_validate(cn.LogisticRegression(verbose=0), *split, cv=2)
    with pytest.raises(OptionError, match="estimator of colonnade"):
        cn.cross_validate(linear_model.LogisticRegression(), *parties(X, rare))


def test_models_without_folds_are_refused():
    X, y = table(rows=40)
    with pytest.raises(cn.errors.ColonnadeError, match=r"cross-validation is for|rows"):
        cn.cross_validate(cn.SSCAClassifier(), *parties(X, y))


@pytest.mark.parametrize(
    ("model", "party", "words"),
    [
        (cn.LogisticRegression(class_weight="balanced", verbose=0), {}, "do not take class_weight yet"),
        (cn.LogisticRegression(verbose=0), {"offset": np.zeros(40)}, "an offset or exposure yet, and party 'bank'"),
        (cn.LogisticRegression(verbose=0), {"prepare": {}}, "would be learned from held-out rows too; give"),
    ],
)
def test_what_folds_would_get_wrong_is_refused(model, party, words):
    X, y = np.random.default_rng(0).standard_normal((40, 4)), np.arange(40) % 2
    columns = ["a", "b"] if party.get("prepare") is not None else None
    bank, shop = cn.Party("bank", X[:, :2], y, columns=columns, **party), cn.Party("shop", X[:, 2:])
    with pytest.raises(cn.errors.OptionError, match=words):
        cn.cross_validate(model, bank, shop, cv=2)
