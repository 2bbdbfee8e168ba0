"""Rows that count unequally: a loss times a weight for each row, and labels that bring these weights along.

The party with the labels multiplies values, signals and curvatures with the weights of its rows, whose mean is 1. So
nothing that leaves it has another name or size than without weights, and everybody else does what it did before. Where
labels are cut into batches, weights are cut with them: both are in one array, a label and a weight for each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from colonnade.objective.losses import Floats, Kind, Labels, Loss, Poisson

_LABEL, _WEIGHT = "label", "weight"


def weighed(y: Labels, weights: Floats) -> Labels:
    """Return labels that bring their rows' weights along; `labels_of` and `weights_of` take them apart."""
    out = np.empty(len(y), dtype=[(_LABEL, y.dtype, y.shape[1:]), (_WEIGHT, np.float64)])
    out[_LABEL], out[_WEIGHT] = y, weights
    return out


def labels_of(y: Labels) -> Labels:
    """Return the labels alone."""
    return y if y.dtype.names is None else np.ascontiguousarray(y[_LABEL])


def weights_of(y: Labels) -> Floats | None:
    """Return the weights alone; None where labels bring none, and all rows count alike."""
    return None if y.dtype.names is None else np.ascontiguousarray(y[_WEIGHT])


def amount_of(y: Labels) -> float:
    """Return how much these rows count together: the sum of their weights, or their number."""
    return float(len(y)) if y.dtype.names is None else float(y[_WEIGHT].sum())


@dataclass(frozen=True)
class Weighted(Loss):
    """Another loss, times the weight of each row, which comes with its label."""

    of: Loss

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return the name of the other loss: a model is the same kind of model, whatever its rows count."""
        return self.of.name

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        """Return which labels the other loss takes."""
        return self.of.kind

    @property
    def curvature_bound(self) -> float:  # type: ignore[override]
        """Return the bound for a weight of 1; who knows the weights knows how much larger it is."""
        return self.of.curvature_bound

    @property
    def boldness(self) -> float:  # type: ignore[override]
        """Return the other loss's."""
        return self.of.boldness

    def outputs(self, classes: int) -> int:
        """Return the width of the score for that many classes."""
        return self.of.outputs(classes)

    def values(self, z: Floats, y: Labels) -> Floats:
        """Return the weighted loss of each row."""
        return self._times(self.of.values(z, labels_of(y)), y)

    def signal(self, z: Floats, y: Labels) -> Floats:
        """Return the weighted signal of each row."""
        return self._times(self.of.signal(z, labels_of(y)), y)

    def curvature(self, z: Floats, y: Labels) -> Floats:
        """Return the weighted curvature of each row."""
        return self._times(self.of.curvature(z, labels_of(y)), y)

    def sight(self, z: Floats, y: Labels) -> tuple[Floats, Floats, Floats]:
        """Return weighted values, signal and curvature."""
        values, signal, curvature = self.of.sight(z, labels_of(y))
        return self._times(values, y), self._times(signal, y), self._times(curvature, y)

    def curvature_from(self, signal: Floats) -> Floats | None:
        """Return about how large the curvature is, which only shapes directions: a signal does not tell the weight."""
        return self.of.curvature_about(signal)

    @property
    def log_link(self) -> bool:  # type: ignore[override]
        """Return whether the mean is exp(z)."""
        return self.of.log_link

    def information(self, z: Floats, y: Labels) -> Floats:
        """Return the weighted information of each row."""
        return self._times(self.of.information(z, labels_of(y)), y)

    def predict(self, z: Floats) -> Labels:
        """Return the decision of the other loss."""
        return self.of.predict(z)

    def start(self, y: Labels) -> float:
        """Return where an intercept starts: losses start it from the mean of the labels, here the weighted one."""
        known = labels_of(y)
        return self.of.start(np.array([mean_of(y)]) if known.ndim == 1 else known)  # with offsets about there will do

    def usual_curvature(self, y: Labels) -> float:
        """Return the weighted mean curvature where training starts."""
        return mean_of(y) if isinstance(self.of, Poisson) else super().usual_curvature(y)

    def apart(self, z: Floats, y: Labels) -> tuple[Loss, Floats, Labels]:
        """Return the other loss, scores with their offsets, and labels alone."""
        return self.of.apart(z, labels_of(y))

    def probability(self, z: Floats) -> Floats:
        """Return the probability of each class."""
        return self.of.probability(z)

    def _times(self, found: Floats, y: Labels) -> Floats:
        weights = weights_of(y)
        if weights is None:
            return found
        out: Floats = found * (weights if found.ndim == 1 else weights[:, None])
        return out


def mean_of(y: Labels) -> float:
    """Return the mean of numeric labels, in which each row counts by its weight."""
    weights: Any = weights_of(y)
    return float(labels_of(y).mean()) if weights is None else float(np.average(labels_of(y), weights=weights))


def plain(loss: Loss) -> Loss:
    """Return the loss without weights."""
    return loss.of if isinstance(loss, Weighted) else loss
