"""Estimators in the hands of scikit-learn's own helpers: tags that are right, and a sentence where they can't help."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.ensemble import BaggingClassifier
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_val_predict, cross_val_score, learning_curve
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr, get_tags

import colonnade as cn
from colonnade.errors import DataError
from colonnade.estimators.base import Estimator

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 4))
Y = (X[:, 0] > 0).astype(int)
MODELS = [
    name for name in cn.__all__
    if inspect.isclass(getattr(cn, name)) and issubclass(getattr(cn, name), Estimator)
]  # fmt: skip
CLASSIFIERS = {
    "LogisticRegression", "SoftmaxRegression", "LinearSVC", "KernelClassifier", "NetworkClassifier",
    "TransferClassifier", "BoostedTreesClassifier", "SSCAClassifier",
}  # fmt: skip
REQUIRED = {"NetworkClassifier": {"bank": [3]}, "NetworkRegressor": {"bank": [3]}}


def made(name):
    cls = getattr(cn, name)
    needed = [
        one for one in inspect.signature(cls).parameters.values()
        if one.default is inspect.Parameter.empty and one.kind is one.POSITIONAL_OR_KEYWORD
    ]  # fmt: skip
    return cls(*(REQUIRED.get(name, 0.5) for _ in needed))


def test_all_models_are_asked():
    assert len(MODELS) > 12
    assert set(MODELS) >= CLASSIFIERS


@pytest.mark.parametrize("name", MODELS)
def test_tags_say_what_is_predicted(name):
    model = made(name)
    tags = get_tags(model)
    assert is_classifier(model) == (name in CLASSIFIERS)
    assert is_regressor(model) == (name not in CLASSIFIERS)
    assert (tags.classifier_tags is None) == (name not in CLASSIFIERS)
    assert tags.target_tags.required
    assert tags.input_tags.allow_nan == name.startswith("BoostedTrees")
    assert "sparse=True" in repr(tags)


HELPERS = {
    "cross_val_score": lambda model: cross_val_score(model, X, Y),
    "cross_val_predict": lambda model: cross_val_predict(model, X, Y),
    "learning_curve": lambda model: learning_curve(model, X, Y),
    "GridSearchCV": lambda model: GridSearchCV(model, {"verbose": [0]}).fit(X, Y),
    "RandomizedSearchCV": lambda model: RandomizedSearchCV(model, {"verbose": [0]}, n_iter=1).fit(X, Y),
    "OneVsRestClassifier": lambda model: get_tags(OneVsRestClassifier(model)),
}


@pytest.mark.parametrize("name", ["LogisticRegression", "BoostedTreesClassifier", "RidgeRegression"])
@pytest.mark.parametrize("helper", HELPERS)
def test_helpers_that_cut_one_table_say_what_to_use_instead(name, helper):
    with pytest.raises(DataError, match=r"is fitted to parties.*colonnade\.cross_validate\(model, \*parties\)") as told:
        HELPERS[helper](made(name))
    assert str(told.value).startswith(name)
    assert "colonnade.search(model, grid, *parties)" in str(told.value)


def test_what_the_sentence_names_is_there():
    bank, shop = cn.split(X, Y, into=2)
    model = cn.LogisticRegression(verbose=0)
    assert len(cn.cross_validate(model, bank, shop, cv=2)["test_score"]) == 2
    assert cn.search(model, {"l2": [0.1, 1.0]}, bank, shop, cv=2).best_params_["l2"] in (0.1, 1.0)


def test_pipelines_say_what_to_use_instead():
    model = cn.LogisticRegression()
    with pytest.raises(
        DataError, match=r"expected a Party, got ndarray; .*prepare=\.\.\.\) does what a pipeline would"
    ):
        make_pipeline(StandardScaler(), model).fit(X, Y)
    with pytest.raises(DataError, match=r"party 'bank' is no array, .*prepare=\.\.\.\) where a pipeline"):
        make_pipeline(StandardScaler(), model).fit(cn.Party("bank", X, Y))
    # A pipeline answers with the tags of its first step, and then every fold fails with the sentence.
    with pytest.raises(ValueError, match="expected a Party, got ndarray"):
        cross_val_score(make_pipeline(StandardScaler(), model), X, Y)


def test_a_score_of_one_table_says_what_is_expected():
    model = cn.LogisticRegression(verbose=0).fit(*cn.split(X, Y, into=2))
    with pytest.raises(DataError, match="expected a Party, got ndarray"):
        permutation_importance(model, X, Y)


def test_pictures_of_pipelines_are_drawn():
    pipeline = make_pipeline(StandardScaler(), cn.LogisticRegression())
    assert "LogisticRegression" in estimator_html_repr(pipeline)
    assert "LogisticRegression" in repr(pipeline)


def test_ensembles_end_with_the_sentence():
    with pytest.raises(DataError, match=r"expected a Party, got ndarray|is fitted to parties"):
        BaggingClassifier(cn.LogisticRegression(), n_estimators=2).fit(X, Y)


@pytest.mark.parametrize("name", MODELS)
def test_clones_have_the_options_and_no_model(name):
    model = made(name).set_params(verbose=0)
    copy = clone(model)
    assert copy is not model
    assert repr(copy.get_params()) == repr(model.get_params())
