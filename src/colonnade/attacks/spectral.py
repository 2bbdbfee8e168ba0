"""Labels from embeddings, with no label known: classes lie apart along the direction of the largest spread.

Sun, Yang, Yao, Wang: "Label leakage and protection from forward embedding in vertical federated learning", 2022:
in the spectral attack the embeddings f of a batch are centred, v is the first right singular vector, and
(f - mean) v parts the two classes. Like theirs, the attacker is a party without labels, and the embeddings are its own
trained network's. (Contributions of others are only seen by whoever has the labels of these rows, in Colonnade.) The
same of its raw columns is what it had before.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from colonnade.attacks.case import LABELS, Attack, Case, Guess
from colonnade.attacks.heard import by_own_model, two_classes
from colonnade.attacks.signal_vectors import along, first_direction


class SpectralEmbeddings(Attack):
    """The first singular direction of the attacker's own embeddings."""

    name: ClassVar[str] = "spectral, embeddings"
    paper: ClassVar[str] = "Sun et al. 2022"
    about: ClassVar[str] = LABELS
    closed_by: ClassVar[str] = "top=None"

    def guess(self, case: Case) -> Guess | None:
        """Return where rows lie along that direction; single numbers have none but the one that they are."""
        if case.embedding is None or case.embedding.shape[1] < 2 or not two_classes(case):
            return None
        return Guess(np.arange(case.rows), labels=along(case.embedding, first_direction(case.embedding)))

    def alone(self, case: Case) -> Guess | None:
        """Do the same with the raw columns."""
        if case.own is None or not case.own.shape[1]:
            return by_own_model(case)
        spread = case.own.std(axis=0)
        scaled = case.own / np.where(spread > 0.0, spread, 1.0)
        return Guess(np.arange(case.rows), labels=along(scaled, first_direction(scaled)))
