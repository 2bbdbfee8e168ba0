"""What a training run is about: what the parties agree on, a party's rows, and what asynchrony did to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.blocks import Rows
from colonnade.objective.losses import Loss

Batch: TypeAlias = tuple[str, Rows]  # the label holder that computes its signal, and its rows


@dataclass(frozen=True)
class Agreement:
    """What all parties agree on before they start.

    Parameters
    ----------
    loss : Loss
        What is minimised.
    holders : tuple of str
        The parties with labels; the first of them, the leader, decides when to stop.
    sum, topology : str
        The secure sum, and the way that its messages take.
    key_bits : int
        The size of each label holder's Paillier key, where signals are encrypted.
    """

    loss: Loss
    holders: tuple[str, ...]
    sum: str
    topology: str
    key_bits: int = 2048


@dataclass
class Part:
    """A party's rows of the training or of the validation data.

    Parameters
    ----------
    columns : Any
        What the block takes; None is the training data, which the block holds itself.
    rows : int
        How many there are.
    y : array, optional
        The labels, at a label holder.
    labelled : array of bool, optional
        Which rows have one there.
    owned : dict
        The rows for which each label holder computes the signal; known when the parties have told each other.
    held : dict
        The rows for which each label holder has a label.
    """

    columns: Any
    rows: int
    y: npt.NDArray[Any] | None
    labelled: npt.NDArray[np.bool_] | None
    owned: dict[str, Rows] = field(default_factory=dict)
    held: dict[str, Rows] = field(default_factory=dict)


def shared_out(held: npt.NDArray[np.bool_]) -> list[Rows]:
    """Which rows belong to each holder, from who has a label for which: they take turns, to share the work."""
    turn = np.arange(held.shape[1]) % np.maximum(1, held.sum(axis=0)) + 1
    return [np.nonzero(mask & (held[: at + 1].sum(axis=0) == turn))[0] for at, mask in enumerate(held)]


@dataclass
class Flow:
    """What asynchrony did to one party since the last evaluation."""

    staleness: list[int] = field(default_factory=list)  # own updates between reading and applying, for each signal
    dropped: int = 0
    rows: int = 0  # of all batches whose signals came
    used: int = 0  # those of them that were not left out

    def take(self) -> tuple[float, float, int, int, float]:
        """(mean, 95 %, largest staleness; signals dropped; part of the others' rows that was used), and start anew."""
        seen, dropped, used = np.array(self.staleness), self.dropped, self.used / max(1, self.rows)
        self.staleness, self.dropped, self.rows, self.used = [], 0, 0, 0
        return float(seen.mean()), float(np.quantile(seen, 0.95)), int(seen.max()), dropped, used
