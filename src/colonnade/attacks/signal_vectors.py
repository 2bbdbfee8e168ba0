"""Labels from the length and the direction of what comes back about each row.

Li et al., "Label leakage and protection in two-party split learning", 2021: the gradient g of the loss by a row's
embedding is s times the top network's own derivative. Its length grows with |s|, which is larger for whichever class is
rarer and so less expected (the norm-based attack). Its direction turns round with the sign of s, so that gradients of
one label point one way (the direction-based attack, for which one known positive is enough). Where signals are single
numbers, the length is |s| and the direction is its sign.

Sun et al., "Label leakage and protection from forward embedding in vertical federated learning", 2022, need no known
label: the direction in which rows lie furthest apart, the first singular vector, parts them into classes. They take
embeddings (see `spectral`); of gradients it is the same.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.attacks.case import LABELS, Attack, Case, FloatArray, Guess, Rows
from colonnade.attacks.completion import completed_alone
from colonnade.attacks.heard import RowNumbers, by_own_model, in_common, lengths, signals_of, summed, two_classes

_SEALED = 'protection="sealed"; a network has no such switch'


class SignalNorms(Attack):
    """The length of what comes back about a row, in parts of the mean length in its batch."""

    name: ClassVar[str] = "norms of signals"
    paper: ClassVar[str] = "Li et al. 2021"
    about: ClassVar[str] = LABELS
    closed_by: ClassVar[str] = _SEALED

    def guess(self, case: Case) -> Guess | None:
        """Add up the lengths, each divided by its batch's mean so that late exchanges count as early ones do."""
        told = signals_of(case)
        if not told or not two_classes(case):
            return None
        sizes = [(rows, lengths(values)) for rows, values in told]
        found, rows = summed(case, [RowNumbers(rows, (size / size.mean())[:, None]) for rows, size in sizes])
        often, _ = summed(case, [RowNumbers(rows, np.ones((len(rows), 1))) for rows, _ in told])
        return Guess(rows, labels=(found / often)[:, 0])

    def alone(self, case: Case) -> Guess | None:
        """Guess by its own part of the finished model."""
        return by_own_model(case)


class SignalDirections(Attack):
    """The cosine of what comes back about a row with that of rows whose label is known."""

    name: ClassVar[str] = "directions of signals"
    paper: ClassVar[str] = "Li et al. 2021"
    about: ClassVar[str] = LABELS
    closed_by: ClassVar[str] = _SEALED
    known_rows: ClassVar[tuple[int, ...]] = (1, 20)

    def guess(self, case: Case) -> Guess | None:
        """Add up the cosines over all exchanges; a known row speaks for the ones until it is heard of again.

        Of more than two classes each has the mean direction of its known rows, and no known row is no direction.
        """
        told, known = signals_of(case), case.known
        if not told or known.labels is None or not case.public.get("classes", 2):
            return None
        told, labels = in_common(told), _as_classes(known.labels)
        classes = 2 if two_classes(case) else int(case.public["classes"])
        last = self._first(told, known.rows)
        found = []
        for rows, values in told:
            units = values / lengths(values)[:, None]
            place = {int(row): at for at, row in enumerate(rows)}
            for at, row in enumerate(known.rows):
                if int(row) in place and units[place[int(row)]].any():  # one that rounds to 0 has no direction
                    last[at] = units[place[int(row)]]
            score = np.zeros((len(rows), classes))
            for k in range(classes):
                if (labels == k).any():
                    score[:, k] = units @ last[labels == k].mean(axis=0)
            found.append(RowNumbers(rows, score))
        sums, heard = summed(case, found, classes)
        return Guess(heard, labels=sums[:, 1] - sums[:, 0] if classes == 2 else sums)

    def _first(self, told: list[RowNumbers], known: Rows) -> FloatArray:
        """Return the direction of each known row when it is first heard of; 0 if it never is."""
        first = np.zeros((len(known), told[-1].values.shape[1]))
        for rows, values in reversed(told):
            place = {int(row): at for at, row in enumerate(rows)}
            for at, row in enumerate(known):
                if int(row) in place and values[place[int(row)]].any():
                    value = values[place[int(row)]]
                    first[at] = value / float(np.linalg.norm(value))
        return first

    def alone(self, case: Case) -> Guess | None:
        """Guess by its own part of the finished model, or by a model of its own of the known rows."""
        return by_own_model(case) or completed_alone(case)


class SpectralSignals(Attack):
    """The first singular direction of what comes back about the rows of a batch, with no label known."""

    name: ClassVar[str] = "spectral, signals"
    paper: ClassVar[str] = "Sun et al. 2022"
    about: ClassVar[str] = LABELS
    closed_by: ClassVar[str] = _SEALED

    def guess(self, case: Case) -> Guess | None:
        """Add up where rows lie along that direction, which is turned to the side that the last one was on."""
        told = signals_of(case)
        if not told or not two_classes(case):
            return None
        told = in_common(told)
        last, found = np.zeros(told[0].values.shape[1]), []
        for rows, values in told:
            direction = first_direction(values)
            last = -direction if direction @ last < 0.0 else direction
            found.append(RowNumbers(rows, along(values, last)[:, None]))
        sums, heard = summed(case, found)
        return Guess(heard, labels=sums[:, 0])

    def alone(self, case: Case) -> Guess | None:
        """Guess by its own part of the finished model."""
        return by_own_model(case)


def first_direction(values: FloatArray) -> FloatArray:
    """Return the first singular direction of the centred values."""
    centred = values - values.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    found: FloatArray = vectors[:, -1]
    return found


def along(values: FloatArray, direction: FloatArray) -> FloatArray:
    """Return where rows lie along a direction, from their mean, as parts of their spread."""
    place: FloatArray = (values - values.mean(axis=0)) @ direction
    return place / max(float(place.std()), 1e-300)


def _as_classes(labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return labels as the numbers of classes; those of two classes come as -1 and 1, or as 0 and 1."""
    y = np.asarray(labels)
    return (y > 0).astype(np.int64) if y.dtype.kind == "f" else y.astype(np.int64)
