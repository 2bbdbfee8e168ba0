"""What all estimators of linear models are: options, training, coefficients, scores and statistics."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy.typing as npt

from colonnade.algorithms import ALGORITHMS, Algorithm, SealedNewton
from colonnade.blocks.column_values import columns_to_value
from colonnade.conventions import preparing
from colonnade.data import labels
from colonnade.data.party import Party
from colonnade.data.together import check_together
from colonnade.defences.base import Defence
from colonnade.defences.registry import checked
from colonnade.engine.exposure import ENCRYPTED, check_penalty
from colonnade.errors import DataError, OptionError
from colonnade.estimators.base import Estimator
from colonnade.estimators.initial import linear_start
from colonnade.families import family
from colonnade.families.checks import (
    all_labels,
    check_exposure,
    label_holders,
    owned_rows,
    weighted,
    with_class_weights,
)
from colonnade.families.linear import AveragedFamily, LinearFamily, LinearOptions, choose
from colonnade.families.protection import SEALED, check_sealed, check_without_effect, check_word, seals
from colonnade.families.training import ScoringPart, TrainingJob
from colonnade.objective import losses, penalties
from colonnade.runtimes.net import Runtime, check_runtime

if TYPE_CHECKING:
    from colonnade.inference.statistics import Statistics

Array = npt.NDArray[Any]
Model = TypeVar("Model", bound="LinearModel")


class LinearModel(Estimator):
    """A linear score over all parties' columns, and a loss; the base of all linear models.

    The objective is the mean loss plus the penalty of all coefficients. In scikit-learn's terms, `C` is 1 / (n l2) for
    n rows.

    Parameters
    ----------
    l2 : float
        The weight of the penalty, at least 0.
    l1 : float
        The weight of the sum of absolute coefficients, at least 0. Above 0 it makes coefficients exactly 0 that are of
        little use; with l2 it is an elastic net. BlockNewton, FedSGD, FedBCD, VFB2 and AFSGD take it, and `statistics`
        and sealed training do not.
    penalty : {"l2", "elasticnet", "nonconvex"}
        "l2" is l2 / 2 times the squared length of all coefficients, and "elasticnet" l1 times the sum of their
        absolute values besides; "l2" with l1 above 0 is the same. "nonconvex" is l2 / 2 times the sum of
        w² / (1 + w²), the penalty of VFB², problem (14).
    fit_intercept : bool
        Whether there is an intercept. It is not penalised and belongs to the first label holder; with FDML every party
        has one of its own.
    penalise_intercept : bool
        Whether the penalty is on the intercept too, as on the coefficient of a column of ones, which the papers' models
        have. Sealed training and FDML do not take it.
    class_weight : {None, "balanced"} or dict
        How much rows of each class count in the training of a classifier, beside the `sample_weight` of a `Party`:
        "balanced" lets all classes weigh the same, and {class: weight} names what they weigh, as in scikit-learn.
    algorithm : Algorithm or "auto"
        How the model is trained: `BlockNewton`, `VFB2`, `FedSGD`, `FedBCD`, `AFSGD`, `FDML` or `SealedNewton`, with its
        options. "auto" is `BlockNewton()`, or `VFB2("saga", asynchronous=False)` where a party has more than 2,048
        columns or its matrices would take too long; both end at the optimum and need no step size. With
        protection="sealed", "auto" is `SealedNewton()`, and with sum="encrypted" `FedSGD()`. One line on stderr says
        which it is, and why.
    protection : {"auto", "sealed", "masked", "plain"}
        How training is protected. "sealed" trains on shares, by `SealedNewton`: each party learns its own coefficients,
        and nothing else of the training; `sum` and `topology` have no effect then. "masked" trains in the
        open, under the masks of `sum`, which hide nothing between two parties. "plain" trains in the open, with sums in
        the clear. "auto" is "sealed" if the algorithm is a `SealedNewton`, and else what `sum` says.
    sum : {"auto", "pairwise", "neighbours", "two-trees", "plain", "encrypted"}
        How contributions are added up. "auto" is "pairwise" (masks), or "plain" with two parties, between whom no mask
        hides anything. "encrypted" adds up as "pairwise" does and encrypts the signals as well; it goes with `FedSGD`
        and `FedBCD`. A batch then needs 55 rows for each column of a party (more with more than two classes), and the
        first epoch is one batch of all rows, because smaller batches would show that party the labels.
    topology : {"tree", "star", "ring"} or str
        Along which tree the sums travel; the model is the same with each of them. A text such as "c>b b>a a>bank" is a
        tree of one's own, see `sums.written_trees`.
    defences : list of Defence
        What parties do to what leaves them, so that less follows: see docs/defences.md. Empty is nothing.
    verbose : int
        1 shows a live line if a run takes longer than half a second, and says which algorithm "auto" chose; 0 is
        silent.

    Attributes
    ----------
    coef_ : dict
        {party: its coefficients}, of shape (columns,), or (classes, columns) for softmax. Where the party's columns
        came as a pandas frame they are a Series, or a DataFrame, with the columns' names.
    intercept_ : float, numpy array or dict
        The intercept: a number, or one for each class; with FDML, {party: its own}.
    rows_ : int or None
        How many rows the model was trained on; None where a file does not say.
    parties_, holders_, classes_, columns_, history_, traffic_, times_, rounds_, sum_, protection_
        Who took part and how training went; `Estimator` describes each of them.
    """

    loss: ClassVar[str]
    _levels = True
    rows_: int | None = None  # None where a file does not say how many rows there were

    def __init__(
        self,
        *,
        l2: float = 1e-4,
        penalty: str = "l2",
        fit_intercept: bool = True,
        penalise_intercept: bool = False,
        class_weight: str | Mapping[Any, float] | None = None,
        algorithm: Algorithm | str = "auto",
        protection: str = "auto",
        sum: str = "auto",  # noqa: A002
        topology: str = "tree",
        verbose: int = 1,
        l1: float = 0.0,
        defences: Sequence[Defence] = (),
    ) -> None:
        self.l2 = l2
        self.l1 = l1
        self.penalty = penalty
        self.fit_intercept = fit_intercept
        self.penalise_intercept = penalise_intercept
        self.class_weight = class_weight
        self.algorithm = algorithm
        self.protection = protection
        self.sum = sum
        self.topology = topology
        self.verbose = verbose
        self.defences = defences

    def _minimised(self) -> losses.Loss:
        return losses.loss(self.loss)

    def _public(self) -> dict[str, Any]:
        return {} if self.rows_ is None else {"rows": self.rows_}

    def _take_public(self, public: dict[str, Any]) -> None:
        self.rows_ = public.get("rows")

    # -- training -----------------------------------------------------------------------------------------------

    def fit(
        self: Model,
        *parties: Party,
        on: Runtime | None = None,
        validation: list[Party] | None = None,
        initial: LinearModel | Mapping[str, Any] | None = None,
    ) -> Model:
        """Train on these parties.

        Parameters
        ----------
        *parties : Party
            The same rows in the same order at each of them, and labels at one at least; `align_parties` finds such
            rows.
        on : Runtime, optional
            Where the parties run: `Simulation(...)`, `Processes(...)`, or a runtime of `colonnade.remote`. None is
            `Simulation()`: all of them in this process, under a virtual clock.
        validation : list of Party, optional
            The same parties with other rows, for early stopping and for the history. The model that does best on them
            is kept. With protection="sealed" it is a request for a metric: after training the label holder sees the
            scores of these rows, and it alone the loss and the metric, in one record of `history_`.
        initial : LinearModel or dict, optional
            Where training starts: a fitted model of the same class with the same parties, or {party: coefficients} in
            the shape of `coef_`, or {party: (coefficients, intercept)} for a party with an intercept. A party that is
            not named starts at zero. None is zero, with the best intercept for that. Sealed training and
            sum="encrypted" take none.

        Returns
        -------
        LinearModel
            The model itself.
        """
        loss = self._minimised()
        check_runtime(on)
        check_together(parties)
        parties, validation = self._prepare(parties, validation)
        self._check_options(parties[0].rows)
        holders = label_holders(parties)
        classes = labels.class_labels(all_labels(parties), loss)
        outputs = loss.outputs(len(classes))
        algorithm = self._chosen(parties, outputs)
        kind = family(algorithm.family)
        held_out = self._check_validation(parties, validation)
        parties, held_out = with_class_weights(self.class_weight, parties, held_out, classes)
        options = LinearOptions(self.penalty, float(self.l2), bool(self.fit_intercept))
        options = replace(options, weighted=weighted(parties, held_out), l1=float(self.l1))
        options = replace(options, penalised=bool(self.penalise_intercept))
        sum_name = self._summed(LinearFamily.name, len(parties))
        how = (sum_name, self.topology, algorithm, checked(self.defences))
        job = TrainingJob(kind.name, options, self.loss, outputs, holders, *how)
        self._check(job, parties)
        check_penalty(sum_name, holders, options.penalises().name)
        if sum_name == ENCRYPTED:
            check_exposure(parties, owned_rows(parties, holders), algorithm, outputs, intercept=self.fit_intercept)
        self._train(job, parties, classes, held_out, on, linear_start(initial, self, job, parties, classes))
        return self

    def _describe(self, job: TrainingJob, parties: tuple[Party, ...], classes: Array) -> None:
        super()._describe(job, parties, classes)
        self.rows_ = parties[0].rows

    def _check_options(self, rows: int) -> None:
        penalties.penalty(self.penalty, self.l2, self.l1)
        self._check_sums(linear=True)
        algorithm = self.algorithm
        if not isinstance(algorithm, tuple(ALGORITHMS.values())) and not _is_auto(algorithm):
            raise OptionError(f"algorithm must be one of {', '.join(ALGORITHMS)}, or 'auto', got {algorithm!r}")
        check_word(self.protection, family(LinearFamily.name))
        check_sealed(self.protection, algorithm, SealedNewton)
        if self.protection == SEALED or seals(algorithm):
            by_default = {"sum": "auto", "topology": "tree"}
            check_without_effect({option: (getattr(self, option), usual) for option, usual in by_default.items()})
        if not isinstance(algorithm, str):
            algorithm.batch_for(rows)

    def _chosen(self, parties: tuple[Party, ...], outputs: int) -> Algorithm:
        """Return the algorithm that the option `algorithm` stands for, and say so where it was chosen here."""
        found, columns = self.algorithm, [party.features for party in parties]
        if self.protection == SEALED and isinstance(found, str):
            found = SealedNewton()
            if self.verbose:
                print(f"algorithm: {found.name}, as protection is 'sealed'", file=sys.stderr)
        elif isinstance(found, str):
            found, reason = choose(parties[0].rows, columns, outputs, encrypted=self.sum == ENCRYPTED)
            if self.verbose:
                print(f"algorithm: {found.name}, as {reason}", file=sys.stderr)
        found.check_sum(self.sum)
        return found

    # -- what was learnt ----------------------------------------------------------------------------------------

    @property
    def coef_(self) -> dict[str, Any]:
        """Return {party: its coefficients}, of shape (columns,), or (classes, columns) for softmax."""
        self._check_fitted()
        found = {name: theta[:, 0] if theta.shape[1] == 1 else theta.T for name, (theta, *_) in self._states.items()}
        for name in self._framed & set(found):
            found[name] = preparing.in_pandas(found[name], self.columns_[name], self.classes_)
        return found

    @property
    def intercept_(self) -> Any:
        """Return the first label holder's intercept, a number or one per class; with FDML, {party: its own}."""
        self._check_fitted()
        found = {
            name: 0.0 if intercept is None else float(intercept[0]) if len(intercept) == 1 else intercept
            for name, (_, intercept, *_) in self._states.items()
        }
        return found if self._family == AveragedFamily.name else found[self.holders_[0]]

    # -- use ----------------------------------------------------------------------------------------------------

    def decision_function(self, *parties: Party, on: Runtime | None = None) -> Array:
        """Return the scores of these rows, summed at the first label holder as in training.

        With FDML these are the log odds of the combined probability, or for softmax the logarithms of all
        probabilities.

        Parameters
        ----------
        *parties : Party
            All parties of the model with the same columns as in training, in any order; labels are not looked at.
        on : Runtime, optional
            Where the parties run, as in `fit`.

        Returns
        -------
        numpy array
            One score per row, or for softmax one column per class.
        """
        ordered = self._check_rows(parties, on)
        parts = {party.name: ScoringPart(columns_to_value(party.X), self._states[party.name]) for party in ordered}
        scores: Array = family(self._family).decode(self.loss, self._score(self._scoring_job(), parts, on))
        return self._with_offsets(scores, ordered)

    def _with_offsets(self, scores: Array, parties: list[Party]) -> Array:
        """Return scores with what the first label holder adds to them, which is its own affair."""
        for party in parties:
            if party.added is None:
                continue
            if party.name != self.holders_[0]:
                raise DataError(
                    f"party {party.name!r} gives rows an offset or an exposure; give them to {self.holders_[0]!r}, "
                    f"where scores are summed"
                )
            exposure = party.exposure is not None
            family(LinearFamily.name).check_offsets(party.name, self.loss, self.holders_, exposure=exposure)
            scores = scores + party.added
        return scores

    # -- statistics ---------------------------------------------------------------------------------------------

    def statistics(
        self,
        *parties: Party,
        on: Runtime | None = None,
        rows: int = 20_000,
        level: float = 0.95,
    ) -> Statistics:
        """Return standard errors, p values and intervals of each party's coefficients, and how well the model fits.

        Logistic, ridge, Poisson, gamma, Tweedie and negative binomial models with penalty="l2" and no l1 have them,
        unless FDML trained them. docs/guide.md says
        what confidence means here, and docs/security.md what each party learns.

        Parameters
        ----------
        *parties : Party
            All parties, with the rows and labels that the model was trained on.
        on : Runtime, optional
            Where the parties run, as in `fit`.
        rows : int
            Where there are more rows than this, correlations between parties come from a sample of so many.
        level : float
            The confidence of the intervals.

        Returns
        -------
        Statistics
            A table of coefficients for each party, and deviances, AIC, AUC and KS; printed, it is one table.
        """
        from colonnade.estimators.linear_statistics import statistics_of

        return statistics_of(self, parties, on, rows, level)


def _is_auto(algorithm: Any) -> bool:
    return isinstance(algorithm, str) and algorithm == "auto"
