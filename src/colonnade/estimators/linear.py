"""The scikit-learn face of linear models over several parties."""

from __future__ import annotations

import sys
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy.typing as npt

from colonnade.algorithms import ALGORITHMS, Algorithm
from colonnade.blocks.columns import columns_to_value
from colonnade.data import labels
from colonnade.data.party import Party, check_together
from colonnade.engine.exposure import ENCRYPTED
from colonnade.errors import OptionError
from colonnade.estimators.base import Estimator, ProbabilityMixin
from colonnade.estimators.torch_files import holds_networks
from colonnade.families import family
from colonnade.families.checks import (
    all_labels,
    check_encrypted,
    check_exposure,
    label_holders,
    owned_rows,
    warn_before,
)
from colonnade.families.linear import AveragedFamily, LinearOptions, choose
from colonnade.families.training import ScoringPart, TrainingJob, TrainingPart
from colonnade.objective import losses, penalties
from colonnade.runtimes.net import Runtime, check_runtime
from colonnade.sums import choose_sum

if TYPE_CHECKING:
    from colonnade.inference.statistics import Statistics

Array = npt.NDArray[Any]
Model = TypeVar("Model", bound="LinearModel")


class LinearModel(Estimator):
    """A linear score over all parties' columns, and a loss.

    The objective is the mean loss plus l2 / 2 times the squared length of all coefficients (the intercept is free);
    in scikit-learn's terms C = 1 / (n l2). penalty="nonconvex" is the penalty of VFB², problem (14).
    algorithm="auto" is BlockNewton, or VFB2("saga", asynchronous=False) where a party has very many columns; either
    ends at the optimum and needs no step size. Which one, and why, is said in one line.
    sum: how contributions are added up, "pairwise", "two-trees", "plain" or "paillier"; "auto" is "pairwise", or
    "plain" with two parties. "paillier" adds them up as "pairwise" and encrypts the signals, under keys of `key_bits`
    bits; it goes with FedSGD (then "auto" is that) and FedBCD. A batch then has at least 55 times as many rows as a
    party has columns, and the first epoch is one batch of all rows: smaller ones would show that party the labels.
    """

    loss: ClassVar[str]
    rows_: int | None = None  # it was trained on; None where a file does not say

    def __init__(
        self,
        *,
        l2: float = 1e-4,
        penalty: str = "l2",
        fit_intercept: bool = True,
        algorithm: Algorithm | str = "auto",
        sum: str = "auto",  # noqa: A002
        topology: str = "tree",
        key_bits: int = 2048,
        verbose: int = 1,
    ) -> None:
        self.l2 = l2
        self.penalty = penalty
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.sum = sum
        self.topology = topology
        self.key_bits = key_bits
        self.verbose = verbose

    def _minimised(self) -> losses.Loss:
        return losses.loss(self.loss)

    def _public(self) -> dict[str, Any]:
        return {} if self.rows_ is None else {"rows": self.rows_}

    def _take_public(self, public: dict[str, Any]) -> None:
        self.rows_ = public.get("rows")

    # -- training -----------------------------------------------------------------------------------------------

    def fit(self: Model, *parties: Party, on: Runtime | None = None, validation: list[Party] | None = None) -> Model:
        """Train on these parties; `on` says where they run, by default in this process under a virtual clock.

        validation: the same parties with other rows, for early stopping and the history.
        """
        loss = self._minimised()
        check_runtime(on)
        check_together(parties)
        self._check_options(parties[0].rows)
        holders = label_holders(parties)
        classes = labels.class_labels(all_labels(parties), loss)
        outputs = loss.outputs(len(classes))
        algorithm = self._chosen(parties, outputs)
        kind = family(algorithm.family)
        options = LinearOptions(self.penalty, float(self.l2), bool(self.fit_intercept))
        held_out = self._check_validation(parties, validation)
        sum_name = choose_sum(self.sum, len(parties))
        job = TrainingJob(
            kind.name, options, self.loss, outputs, holders, sum_name, self.topology, algorithm, self.key_bits
        )
        names = tuple(party.name for party in parties)
        job.check(type(self).__name__, names)
        warn_before(job, parties, names)
        if sum_name == ENCRYPTED:
            check_exposure(parties, owned_rows(parties, holders), algorithm, outputs, intercept=self.fit_intercept)
        parts = {
            party.name: TrainingPart.of(party, classes, loss, other)
            for party, other in zip(parties, held_out or repeat(None), strict=False)
        }
        self._train(job, parties, classes, parts, on)
        return self

    def _describe(self, job: TrainingJob, parties: tuple[Party, ...], classes: Array) -> None:
        super()._describe(job, parties, classes)
        self.rows_ = parties[0].rows

    def _check_options(self, rows: int) -> None:
        penalties.penalty(self.penalty, self.l2)
        self._check_sums(linear=True)
        algorithm = self.algorithm
        if algorithm == "auto":
            return
        if isinstance(algorithm, str) or not isinstance(algorithm, tuple(ALGORITHMS.values())):
            raise OptionError(f"algorithm must be one of {', '.join(ALGORITHMS)}, or 'auto', got {algorithm!r}")
        algorithm.batch_for(rows)

    def _chosen(self, parties: tuple[Party, ...], outputs: int) -> Algorithm:
        """What `algorithm` stands for."""
        found, columns = self.algorithm, [party.features for party in parties]
        if isinstance(found, str):
            found, reason = choose(parties[0].rows, columns, outputs, encrypted=self.sum == ENCRYPTED)
            if self.verbose:
                print(f"algorithm: {found.name}, as {reason}", file=sys.stderr)
        check_encrypted(self.sum, found, self.key_bits)
        return found

    # -- what was learnt ----------------------------------------------------------------------------------------

    @property
    def coef_(self) -> dict[str, Array]:
        """{party: its coefficients}, shape (columns,) or (classes, columns)."""
        self._check_fitted()
        return {name: theta[:, 0] if theta.shape[1] == 1 else theta.T for name, (theta, *_) in self._states.items()}

    @property
    def intercept_(self) -> Any:
        """The intercept, which the first label holder owns: a number, or one per class. With FDML, {party: its own}."""
        self._check_fitted()
        found = {
            name: 0.0 if intercept is None else float(intercept[0]) if len(intercept) == 1 else intercept
            for name, (_, intercept, *_) in self._states.items()
        }
        return found if self._family == AveragedFamily.name else found[self.holders_[0]]

    # -- use ----------------------------------------------------------------------------------------------------

    def decision_function(self, *parties: Party, on: Runtime | None = None) -> Array:
        """Scores of these rows, summed at the first label holder as in training.

        With FDML: the log odds of the combined probability, or for softmax the logarithms of all of them.
        """
        ordered = self._check_rows(parties, on)
        parts = {party.name: ScoringPart(columns_to_value(party.X), self._states[party.name]) for party in ordered}
        scores: Array = family(self._family).decode(self.loss, self._score(self._scoring_job(), parts, on))
        return scores

    # -- statistics ---------------------------------------------------------------------------------------------

    def statistics(
        self,
        *parties: Party,
        on: Runtime | None = None,
        rows: int = 20_000,
        level: float = 0.95,
        key_bits: int = 2048,
    ) -> Statistics:
        """Standard errors, p values and intervals of every party's own coefficients, and how well the model fits.

        Give the rows that it was trained on. rows: correlations between parties come from a sample of so many, where
        there are more. level: of the confidence intervals. key_bits: of the parties' Paillier keys, made for this run.
        docs/guide.md says what confidence means here, docs/security.md what each party learns.
        """
        from colonnade.estimators.linear_statistics import statistics_of

        return statistics_of(self, parties, on, rows, level, key_bits)


class LogisticRegression(ProbabilityMixin, LinearModel):
    """Two classes, logistic loss."""

    loss = "logistic"


class SoftmaxRegression(ProbabilityMixin, LinearModel):
    """Two or more classes, cross-entropy."""

    loss = "softmax"


class LinearSVC(LinearModel):
    """Two classes, the smooth hinge of FDSKL Table 1."""

    loss = "smooth_hinge"


class RidgeRegression(LinearModel):
    """Real numbers, half the squared error; l2 is scikit-learn's alpha / n."""

    loss = "square"


class PoissonRegression(LinearModel):
    """Counts, Poisson likelihood with a log link."""

    loss = "poisson"


MODELS: dict[str, type[LinearModel]] = {
    kind.__name__: kind
    for kind in (LogisticRegression, SoftmaxRegression, LinearSVC, RidgeRegression, PoissonRegression)
}


def load(folder: str | Path) -> Estimator:
    """Whatever model the files in `folder` hold."""
    if holds_networks(folder):
        from colonnade.estimators.torch_networks import NetworkModel

        return NetworkModel.load(folder)
    return Estimator.load(folder)
