"""`cross_validate` and `search`: scikit-learn's cross-validation and grid search for models over several parties."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from colonnade.data.party import Party
from colonnade.errors import needed
from colonnade.estimators.base import Estimator
from colonnade.notebooks.cells import TextCell
from colonnade.runtimes.net import Outcome, Runtime
from colonnade.validation.program import Validated
from colonnade.validation.request import Named, ValidationRequest, candidates_of


def cross_validate(
    model: Estimator,
    *parties: Party,
    cv: Any = 5,
    scoring: Named = None,
    seed: int = 0,
    on: Runtime | None = None,
    return_estimator: bool = False,
    return_indices: bool = False,
) -> dict[str, Any]:
    """Train a model on all folds but one and score it on that one, for each fold, in one run of the parties.

    The result is that of scikit-learn's `cross_validate` on the joined table. The folds go side by side, with one
    agreement on keys. The model itself is not changed.

    Parameters
    ----------
    model : Estimator
        A linear model, a kernel or boosted trees, with its options.
    *parties : Party
        The same rows in the same order at each of them, as for `fit`; the first with labels has the label of every row.
    cv : int or iterable
        How many folds are drawn, without a look at labels, or pairs of (train, test) with the numbers of rows.
    scoring : str or list of str, optional
        Names of scikit-learn's scorers, such as "roc_auc" or "neg_mean_squared_error"; None is what `score` returns.
    seed : int
        The seed of the folds, which all parties know.
    on : Runtime, optional
        Where the parties run, as in `fit`.
    return_estimator, return_indices : bool
        Whether the fitted model of every fold, and the rows of every fold, are returned as well.

    Returns
    -------
    dict
        `test_score`, or `test_<name>` for each of several scorers, and `fit_time` and `score_time` in seconds of the
        runtime, each an array with a number per fold; `estimator` and `indices` where they were asked for.
    """
    asked = ValidationRequest(model, [{}], parties, cv, scoring, seed, on)
    found = asked.run(refit=False, warm=False, states=return_estimator)
    leader = found[asked.leader]
    each = [leader.fits[0, fold] for fold in range(len(asked.folds))]
    result: dict[str, Any] = {
        "fit_time": np.array([fit.seconds for fit in each]),
        "score_time": np.array([fit.scoring for fit in each]),
    }
    for place, name in enumerate(asked.names):
        result[f"test_{name}"] = leader.scores[0, :, place].copy()
    if return_estimator:
        result["estimator"] = [asked.fitted(found, 0, fold) for fold in range(len(asked.folds))]
    if return_indices:
        train, test = zip(*asked.folds, strict=True)
        result["indices"] = {"train": train, "test": test}
    return result


class SearchResult(TextCell):
    """What a search has found, under the names that scikit-learn's `GridSearchCV` has.

    Attributes
    ----------
    best_params_ : dict
        The options that did best.
    best_score_ : float
        Their mean score over the folds.
    best_index_ : int
        Their place in `cv_results_`.
    best_estimator_ : Estimator
        The model with these options, trained on all rows.
    cv_results_ : dict
        A column for each option, fold, mean, spread and rank, with a row per candidate.
    n_splits_ : int
        How many folds there were.
    refit_time_ : float
        Seconds that the last fit took, by the clock of the runtime.
    traffic_ : dict
        {party: what it sent} in the whole search.
    times_ : dict
        {party: what its time went into} in the whole search.
    """

    best_estimator_: Estimator

    def __init__(
        self, asked: ValidationRequest, found: Mapping[str, Validated], outcomes: Mapping[str, Outcome]
    ) -> None:
        leader = found[asked.leader]
        self.cv_results_ = _table(asked, leader)
        self.n_splits_, self.best_index_ = len(asked.folds), leader.best
        self.best_params_ = asked.candidates[leader.best]
        self.best_score_ = float(self.cv_results_[f"mean_test_{asked.names[0]}"][leader.best])
        self.refit_time_ = 0.0 if leader.refit is None else leader.refit.seconds
        self.traffic_ = {name: outcome.traffic for name, outcome in outcomes.items()}
        self.times_ = {name: outcome.times for name, outcome in outcomes.items()}
        self._metric = asked.names[0]

    def frame(self) -> Any:
        """Return `cv_results_` as a pandas data frame, one row per candidate."""
        pd = needed("pandas", "frame()")

        return pd.DataFrame(self.cv_results_)

    def __repr__(self) -> str:
        table, of = self.cv_results_, self._metric
        rows = [
            f"{'*' if number == self.best_index_ else ' '} {table[f'mean_test_{of}'][number]:+.6f} "
            f"± {table[f'std_test_{of}'][number]:.6f}  {params}"
            for number, params in enumerate(table["params"])
        ]
        return "\n".join([f"mean {of} over {self.n_splits_} folds", *rows])


def search(
    model: Estimator,
    grid: Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Iterable[Any]]],
    *parties: Party,
    cv: Any = 5,
    scoring: Named = None,
    seed: int = 0,
    on: Runtime | None = None,
    warm_start: bool = True,
) -> SearchResult:
    """Cross-validate a model with every combination of some options, and train the best one on all rows.

    All fits are one run of the parties, with one agreement on keys. Linear models that differ in `l2` alone are trained
    one after another, from the largest on, and each starts where the last one ended; folds go side by side.

    Parameters
    ----------
    model : Estimator
        A linear model, a kernel or boosted trees, with the options that are the same for all.
    grid : dict or list of dict
        {option: values to try}, where options of the algorithm are written `algorithm__tol`; or several of these.
    *parties : Party
        The same rows in the same order at each of them, as for `fit`; the first with labels has the label of every row.
    cv, scoring, seed, on
        As in `cross_validate`; of several scorers the first one chooses.
    warm_start : bool
        False trains every fit from the start, so that each has the very bits that it has by itself.

    Returns
    -------
    SearchResult
        The best options and their score, a table of all, and the model that was trained on all rows.
    """
    asked = ValidationRequest(model, candidates_of(grid), parties, cv, scoring, seed, on)
    found = asked.run(refit=True, warm=bool(warm_start), states=False)
    result = SearchResult(asked, found, asked.outcomes)
    result.best_estimator_ = asked.refitted(found)
    return result


def _table(asked: ValidationRequest, leader: Validated) -> dict[str, Any]:
    """Return the table that `GridSearchCV` calls `cv_results_`."""
    count, folds = len(asked.candidates), range(len(asked.folds))
    table: dict[str, Any] = {}
    for name, place in (("fit", 2), ("score", 3)):
        times = np.array([[leader.fits[candidate, fold][place] for fold in folds] for candidate in range(count)])
        table[f"mean_{name}_time"], table[f"std_{name}_time"] = times.mean(axis=1), times.std(axis=1)
    for option in sorted({name for params in asked.candidates for name in params}):
        column = np.empty(count, dtype=object)
        column[:] = [params.get(option) for params in asked.candidates]
        missing = [option not in params for params in asked.candidates]
        table[f"param_{option}"] = np.ma.MaskedArray(column, mask=missing)
    table["params"] = asked.candidates
    for place, name in enumerate(asked.names):
        scores = leader.scores[:, :, place]
        for fold in folds:
            table[f"split{fold}_test_{name}"] = scores[:, fold].copy()
        means = scores.mean(axis=1)
        table[f"mean_test_{name}"], table[f"std_test_{name}"] = means, scores.std(axis=1)
        known = np.where(np.isnan(means), -math.inf, means)
        table[f"rank_test_{name}"] = np.array([1 + int((known > one).sum()) for one in known], dtype=np.int32)
    return table
