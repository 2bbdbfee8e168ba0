"""Estimators of kernel models over several parties, trained by FDSKL."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from colonnade.algorithms.fdskl import FDSKL
from colonnade.blocks.column_values import columns_to_value
from colonnade.blocks.phases import Kernel
from colonnade.conventions.probabilities import ProbabilityMixin
from colonnade.data import labels
from colonnade.data.party import Party
from colonnade.data.together import check_together
from colonnade.defences.base import Defence
from colonnade.defences.registry import checked
from colonnade.errors import LabelError, OptionError, at_least, one_of, whole_number
from colonnade.estimators.base import Estimator
from colonnade.estimators.initial import kernel_start
from colonnade.families import family
from colonnade.families.checks import all_labels, label_holders, weighted, with_class_weights
from colonnade.families.kernel import KernelFamily, KernelOptions
from colonnade.families.training import ScoringPart, TrainingJob
from colonnade.objective import losses
from colonnade.runtimes.net import Runtime, check_runtime

Array = npt.NDArray[Any]
Model = TypeVar("Model", bound="KernelModel")


class KernelModel(Estimator):
    """A model over random features of a kernel, computed from all parties' columns together; the base of both classes.

    The model is f(x), a sum over the random features; the objective is the mean loss plus alpha / 2 times |f|². In
    scikit-learn's terms, `C` of `SVC` is 1 / (n alpha) for n rows.

    Parameters
    ----------
    kernel : {"rbf", "laplace"}
        "rbf" is exp(-gamma |x - x'|²), "laplace" is exp(-gamma |x - x'|₁).
    gamma : float or "scale"
        The kernel's gamma. "scale" is scikit-learn's 1 / (columns * variance), from sums over all parties.
    loss : str
        The loss; "auto" is the usual one of the class, which also names the others.
    features : int
        How many random features there are, shared out among the label holders, so at least one for each. More of them
        approximate the kernel better.
    alpha : float
        The weight of |f|² / 2 in the objective, at least 0.
    class_weight : {None, "balanced"} or dict
        How much rows of each class count in the training of a classifier, beside the `sample_weight` of a `Party`:
        "balanced" lets all classes weigh the same, and {class: weight} names what they weigh, as in scikit-learn.
    algorithm : FDSKL, optional
        How the model is trained; None is `FDSKL()`.
    protection : {"auto", "masked", "plain"}
        How training is protected. "masked" is under the masks of `sum`, which hide nothing between two parties; "plain"
        is with sums in the clear, and "auto" is what `sum` says. "sealed" is for linear models, and refused here.
    sum : {"auto", "pairwise", "neighbours", "two-trees", "plain"}
        How contributions are added up. "auto" is "pairwise" (masks), or "plain" with two parties, between whom no mask
        hides anything.
    topology : {"tree", "star", "ring"} or str
        Along which tree the sums travel; the model is the same with each of them. A text such as "c>b b>a a>bank" is a
        tree of one's own, see `sums.written_trees`.
    defences : list of Defence
        What parties do to what leaves them, so that less follows: see docs/defences.md. Empty is nothing.
    verbose : int
        1 shows a live line if a run takes longer than half a second; 0 is silent.

    Attributes
    ----------
    gamma_ : float
        The kernel's gamma, also where the option was "scale".
    parties_, holders_, classes_, columns_, history_, traffic_, times_, rounds_, sum_, protection_
        Who took part and how training went; `Estimator` describes each of them. A record of `history_` also has
        `features`, how many are drawn by then, and `refit`, the round from which on steps draw no more, or None.
    """

    _LOSSES: ClassVar[dict[str, str]]

    def __init__(
        self,
        *,
        kernel: str = "rbf",
        gamma: float | str = "scale",
        loss: str = "auto",
        features: int = 4096,
        alpha: float = 1e-5,
        class_weight: str | Mapping[Any, float] | None = None,
        algorithm: FDSKL | None = None,
        protection: str = "auto",
        sum: str = "auto",  # noqa: A002
        topology: str = "tree",
        verbose: int = 1,
        defences: Sequence[Defence] = (),
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.loss = loss
        self.features = features
        self.alpha = alpha
        self.class_weight = class_weight
        self.algorithm = algorithm
        self.protection = protection
        self.sum = sum
        self.topology = topology
        self.verbose = verbose
        self.defences = defences

    # -- training -----------------------------------------------------------------------------------------------

    def fit(
        self: Model,
        *parties: Party,
        on: Runtime | None = None,
        validation: list[Party] | None = None,
        initial: KernelModel | None = None,
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
            is kept.
        initial : KernelModel, optional
            A fitted model of the same class to go on from, with the same parties, kernel and features; its gamma is
            kept where the option is "scale". None draws features of its own.

        Returns
        -------
        KernelModel
            The model itself.
        """
        check_runtime(on)
        check_together(parties)
        parties, validation = self._prepare(parties, validation)
        algorithm = self._check_options(parties[0].rows)
        holders, loss = label_holders(parties), self._minimised()
        gamma = self.gamma if isinstance(self.gamma, str) else float(self.gamma)
        if isinstance(gamma, str) and isinstance(initial, KernelModel):
            gamma = initial.gamma_
        kind = family(KernelFamily.name)
        classes = self._classes(parties, loss)
        held_out = self._check_validation(parties, validation)
        parties, held_out = with_class_weights(self.class_weight, parties, held_out, classes)
        counts = weighted(parties, held_out)
        options = KernelOptions(self.kernel, gamma, int(self.features), float(self.alpha), counts)
        sum_name = self._summed(kind.name, len(parties))
        how = (sum_name, self.topology, algorithm, checked(self.defences))
        job = TrainingJob(kind.name, options, loss.name, 1, holders, *how)
        self._check(job, parties)
        self._train(job, parties, classes, held_out, on, kernel_start(initial, self, job, parties, classes))
        return self

    def _describe(self, job: TrainingJob, parties: tuple[Party, ...], classes: Array) -> None:
        super()._describe(job, parties, classes)
        self._block = family(job.family).facts(job)["block"]

    @property
    def gamma_(self) -> float:
        """Return the kernel's gamma, also where the option was "scale"."""
        self._check_fitted()
        return float(self._states[self.holders_[0]][3])

    def _minimised(self) -> losses.Loss:
        return losses.loss(self._LOSSES[self.loss])

    def _check_options(self, rows: int) -> FDSKL:
        one_of("kernel", self.kernel, Kernel.NAMES)
        one_of("loss", self.loss, tuple(self._LOSSES))
        if not (isinstance(self.gamma, str) and self.gamma == "scale"):
            if isinstance(self.gamma, (str, bool)) or not isinstance(self.gamma, Real) or not math.isfinite(self.gamma):
                raise OptionError(f"gamma must be a number > 0 or 'scale', got {self.gamma!r}")
            at_least("gamma", self.gamma, 0, strict=True)
        whole_number("features", self.features, 1)
        at_least("alpha", self.alpha, 0, finite=True)
        self._check_sums()
        algorithm = FDSKL() if self.algorithm is None else self.algorithm
        if not isinstance(algorithm, KernelFamily.algorithms):
            raise OptionError(f"algorithm must be FDSKL(...), got {algorithm!r}; linear models take the others")
        algorithm.batch_for(rows)
        return algorithm

    def _classes(self, parties: tuple[Party, ...], loss: losses.Loss) -> Array:
        found = all_labels(parties)
        if loss.kind == "binary" and len(np.unique(found)) > 2:
            raise LabelError(
                f"a kernel model separates two classes, got {len(np.unique(found))}; train one model per class against "
                f"the rest, or use SoftmaxRegression"
            )
        return labels.class_labels(found, loss)

    # -- use ----------------------------------------------------------------------------------------------------

    def decision_function(self, *parties: Party, on: Runtime | None = None) -> Array:
        """Return f of these rows at the first label holder, to which every owner of features adds its part.

        Parameters
        ----------
        *parties : Party
            All parties of the model with the same columns as in training, in any order; labels are not looked at.
        on : Runtime, optional
            Where the parties run, as in `fit`.

        Returns
        -------
        numpy array
            One score per row.
        """
        ordered = self._check_rows(parties, on)
        job = self._scoring_job(kernel=self.kernel, features=int(self.features), block=self._block)
        parts = {party.name: ScoringPart(columns_to_value(party.X), self._states[party.name]) for party in ordered}
        return self._score(job, parts, on)

    def _public(self) -> dict[str, Any]:
        return {"block": self._block}

    def _take_public(self, public: dict[str, Any]) -> None:
        self._block = public["block"]


class KernelClassifier(ProbabilityMixin, KernelModel):
    """A kernel classifier: two classes, and a boundary that need not be straight.

    The losses are "logistic", which is "auto" and the only one with probabilities (`predict_proba`), "smooth_hinge"
    (that of FDSKL, Table 1) and "square" (half the squared distance of f from -1 and +1). `score` is the accuracy. With
    "smooth_hinge" the model is close to scikit-learn's `SVC(C=1 / (n * alpha))`.

    The parameters are those of `KernelModel`: kernel, gamma, loss, features, alpha, class_weight, algorithm,
    protection, sum, topology, defences, verbose.
    """

    _LOSSES: ClassVar = {
        "auto": "logistic",
        "logistic": "logistic",
        "smooth_hinge": "smooth_hinge",
        "square": "binary_square",
    }


class KernelRegressor(KernelModel):
    """A kernel regression: labels are real numbers, the loss is half the squared error.

    The only loss is "square", which is also "auto"; `score` is R². The model approximates scikit-learn's
    `KernelRidge(alpha=n * alpha)` with the same kernel.

    The parameters are those of `KernelModel`: kernel, gamma, loss, features, alpha, class_weight, algorithm,
    protection, sum, topology, defences, verbose.
    """

    _LOSSES: ClassVar = {"auto": "square", "square": "square"}
