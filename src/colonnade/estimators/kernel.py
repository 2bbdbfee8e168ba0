"""The scikit-learn face of kernel learning: FDSKL over several parties."""

from __future__ import annotations

import math
from itertools import repeat
from numbers import Real
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from colonnade.algorithms.fdskl import FDSKL
from colonnade.blocks.columns import columns_to_value
from colonnade.blocks.phases import Kernel
from colonnade.data import labels
from colonnade.data.party import Party, check_together
from colonnade.errors import LabelError, OptionError, at_least, one_of, whole_number
from colonnade.estimators.base import Estimator, ProbabilityMixin
from colonnade.families import family
from colonnade.families.checks import all_labels, label_holders, warn_before
from colonnade.families.kernel import KernelFamily, KernelOptions
from colonnade.families.training import ScoringPart, TrainingJob, TrainingPart
from colonnade.objective import losses
from colonnade.runtimes.net import Runtime, check_runtime
from colonnade.sums import choose_sum

Array = npt.NDArray[Any]
Model = TypeVar("Model", bound="KernelModel")


class KernelModel(Estimator):
    """f(x) = a sum over random features of a kernel, which are computed from all parties' columns together.

    kernel: "rbf", exp(-gamma |x - x'|^2), or "laplace", exp(-gamma |x - x'|_1). gamma: a number, or "scale": 1 /
    (columns * variance), of all parties together. features: random features, shared out among the label holders.
    alpha: weight of |f|^2 / 2 in the objective; in scikit-learn's terms C = 1 / (n alpha). algorithm: options of
    `FDSKL`.
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
        algorithm: FDSKL | None = None,
        sum: str = "auto",  # noqa: A002
        topology: str = "tree",
        verbose: int = 1,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.loss = loss
        self.features = features
        self.alpha = alpha
        self.algorithm = algorithm
        self.sum = sum
        self.topology = topology
        self.verbose = verbose

    # -- training -----------------------------------------------------------------------------------------------

    def fit(self: Model, *parties: Party, on: Runtime | None = None, validation: list[Party] | None = None) -> Model:
        """Train on these parties; `on` says where they run, by default in this process under a virtual clock.

        validation: the same parties with other rows, for early stopping and the history.
        """
        check_runtime(on)
        check_together(parties)
        algorithm = self._check_options(parties[0].rows)
        holders, loss = label_holders(parties), self._minimised()
        gamma = self.gamma if isinstance(self.gamma, str) else float(self.gamma)
        options = KernelOptions(self.kernel, gamma, int(self.features), float(self.alpha))
        kind = family(KernelFamily.name)
        classes = self._classes(parties, loss)
        held_out = self._check_validation(parties, validation)
        sum_name = choose_sum(self.sum, len(parties))
        job = TrainingJob(kind.name, options, loss.name, 1, holders, sum_name, self.topology, algorithm)
        names = tuple(party.name for party in parties)
        job.check(type(self).__name__, names)
        warn_before(job, parties, names)
        parts = {
            party.name: TrainingPart.of(party, classes, loss, other)
            for party, other in zip(parties, held_out or repeat(None), strict=False)
        }
        self._train(job, parties, classes, parts, on)
        return self

    def _describe(self, job: TrainingJob, parties: tuple[Party, ...], classes: Array) -> None:
        super()._describe(job, parties, classes)
        self._block = family(job.family).facts(job)["block"]

    @property
    def gamma_(self) -> float:
        """The kernel's gamma, also where it was "scale"."""
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
        """f of these rows, at the first label holder; every owner of features adds its part."""
        ordered = self._check_rows(parties, on)
        job = self._scoring_job(kernel=self.kernel, features=int(self.features), block=self._block)
        parts = {party.name: ScoringPart(columns_to_value(party.X), self._states[party.name]) for party in ordered}
        return self._score(job, parts, on)

    def _public(self) -> dict[str, Any]:
        return {"block": self._block}

    def _take_public(self, public: dict[str, Any]) -> None:
        self._block = public["block"]


class KernelClassifier(ProbabilityMixin, KernelModel):
    """Two classes. loss: "auto" is "logistic", which has probabilities; or "smooth_hinge", "square" (on -1 and +1)."""

    _LOSSES: ClassVar = {
        "auto": "logistic",
        "logistic": "logistic",
        "smooth_hinge": "smooth_hinge",
        "square": "binary_square",
    }


class KernelRegressor(KernelModel):
    """Real numbers, half the squared error."""

    _LOSSES: ClassVar = {"auto": "square", "square": "square"}
