"""Embeddings that do not gather by the label: what the label holder adds to the signals of a top network.

Sun, Yang, Yao, Wang: "Label leakage and protection from forward embedding in vertical federated learning", 2022,
section 4: a party without labels finds them in its own embeddings, which training draws apart by class, by their first
singular vector (the spectral attack). The label holder therefore minimises its loss plus alpha DCOR(f(X), y), of the
embeddings f(X) of each other party, and what comes back to that party is the derivative of both. Their paper takes the
logarithm of DCOR; here it is DCOR itself, as in `distance_correlation`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.defences.base import LABEL_HOLDER, Defence, FloatArray
from colonnade.defences.distance_correlation import in_pieces
from colonnade.errors import at_least
from colonnade.leaks import OF_LABELS, SIGNALS


@dataclass(frozen=True, kw_only=True)
class LabelCorrelation(Defence):
    """The distance correlation of each party's embeddings with the labels is added to what the label holder minimises.

    Parameters
    ----------
    weight : float
        alpha, how much a distance correlation of 1 counts beside the mean loss of a row.
    """

    weight: float = 1.0

    name: ClassVar[str] = "label-correlation"
    paper: ClassVar[str] = "Sun et al. 2022"
    protects: ClassVar[str] = OF_LABELS
    by: ClassVar[str] = LABEL_HOLDER
    families: ClassVar[tuple[str, ...]] = ("split",)
    changes: ClassVar[tuple[str, ...]] = (SIGNALS,)

    def __post_init__(self) -> None:
        at_least("weight", self.weight, 0, strict=True, finite=True)

    def added(self, embeddings: FloatArray, y: npt.NDArray[Any], spans: Mapping[str, slice], me: str) -> FloatArray:
        """Return what is added to the signals of a batch.

        Parameters
        ----------
        embeddings
            Those of all parties, side by side.
        y
            The labels as the loss takes them: numbers, of which whole ones are classes.
        spans
            Where each party's are.
        me
            The label holder, whose own embeddings go nowhere.
        """
        torch = importlib.import_module("torch")
        apart = np.eye(int(y.max(initial=0)) + 1)[y] if y.dtype.kind == "i" else y[:, None]
        labels, found = torch.from_numpy(np.ascontiguousarray(apart, dtype=np.float64)), np.zeros_like(embeddings)
        for name, span in spans.items():
            if name != me:
                z = torch.from_numpy(np.ascontiguousarray(embeddings[:, span])).requires_grad_()
                (slope,) = torch.autograd.grad(in_pieces(labels, z), z)
                found[:, span] = self.weight * len(y) * slope.numpy()  # signals are of the sum over rows
        return found
