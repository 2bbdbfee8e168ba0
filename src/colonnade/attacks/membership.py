"""Who was trained on, from a finished model's scores.

Carlini, Chien, Nasr, Song, Terzis, Tramèr: "Membership inference attacks from first principles", IEEE S&P 2022,
Algorithm 1 (LiRA), with one variance for all people, as they advise where there are few shadow models. The attacker
trains models of the same kind on halves of the people, and asks of each person whether the score is as that of models
which have seen them, or as that of models which have not. Yeom, Giacomelli, Fredrikson, Jha: "Privacy risk in machine
learning", CSF 2018: whose loss is small was trained on.

Parties know who was trained on, as they have aligned their rows. This is about all others who get to see scores, with
the labels of those whom they ask about.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.attacks.case import MEMBERS, PEOPLE, Attack, Case, FloatArray, Guess
from colonnade.objective import losses

_SHADOWS = 16  # models that are trained, each person in half of them
_LEAST = 1e-12  # of a variance


def confidence(case: Case, scores: FloatArray) -> FloatArray:
    """Return how sure a model is of each person's label: log(p / (1 - p)) for classes, and minus the loss for others.

    Over models it is nearly normal, which is why they take the first in place of the loss.
    """
    y, count = np.asarray(case.labels), len(scores)
    z = scores.reshape(count, -1)
    if case.loss == "logistic":
        margin: FloatArray = y * z[:, 0]
        return margin
    if case.loss == "softmax":
        places = np.asarray(y, dtype=np.int64)
        own = z[np.arange(count), places]
        others = z.copy()
        others[np.arange(count), places] = -np.inf
        top = others.max(axis=1)
        ratio: FloatArray = own - top - np.log(np.exp(others - top[:, None]).sum(axis=1))
        return ratio
    lost: FloatArray = losses.loss(case.loss).values(z[:, 0] if z.shape[1] == 1 else z, y)
    return -lost


class LossThreshold(Attack):
    """Whose loss is small was trained on."""

    name: ClassVar[str] = "membership by loss"
    paper: ClassVar[str] = "Yeom et al. 2018"
    about: ClassVar[str] = PEOPLE
    question: ClassVar[str] = MEMBERS
    needs: ClassVar[str] = "scores and labels of people"
    closed_by: ClassVar[str] = "a larger l2, or more rows"

    def guess(self, case: Case) -> Guess | None:
        """Order people by how sure the model is of their labels."""
        if case.asked is None or case.labels is None:
            return None
        return Guess(np.arange(len(case.labels)), people=confidence(case, case.asked[1]))


class LikelihoodRatio(Attack):
    """The likelihood of a score among models that have seen the person, over that among models that have not."""

    name: ClassVar[str] = "membership by likelihood ratio"
    paper: ClassVar[str] = "Carlini et al. 2022"
    about: ClassVar[str] = PEOPLE
    question: ClassVar[str] = MEMBERS
    needs: ClassVar[str] = f"scores and labels of people, {_SHADOWS} models of its own"
    closed_by: ClassVar[str] = "a larger l2, or more rows"

    linear: ClassVar[bool] = True  # whether it is for linear models, which are trained in no time

    def guess(self, case: Case) -> Guess | None:
        """Train models on halves of the people, and compare."""
        if self._of_others(case) or case.asked is None or case.labels is None or case.shadows is None:
            return None
        count, rng = len(case.labels), case.rng("shadow models")
        inside, sure = np.zeros((_SHADOWS, count), dtype=bool), np.zeros((_SHADOWS, count))
        for first in range(0, _SHADOWS, 2):  # in pairs, so that each person is in exactly half of the models
            order = rng.permutation(count)
            for model, half in zip((first, first + 1), np.array_split(order, 2), strict=True):
                inside[model, half] = True
                sure[model] = confidence(case, case.shadows(np.sort(half)))
        return Guess(np.arange(count), people=likelihood_ratio(confidence(case, case.asked[1]), sure, inside))

    def _of_others(self, case: Case) -> bool:
        return (case.public.get("family") == "linear") is not self.linear


class NetworkLikelihoodRatio(LikelihoodRatio):
    """The same for models that take long to train."""

    name: ClassVar[str] = "membership by likelihood ratio, slow models"
    closed_by: ClassVar[str] = "a larger l2, fewer epochs, or more rows"
    linear: ClassVar[bool] = False
    slow: ClassVar[bool] = True


def likelihood_ratio(seen: FloatArray, sure: FloatArray, inside: npt.NDArray[np.bool_]) -> FloatArray:
    """Return log N(seen; models with the person) - log N(seen; models without), one variance each for all people.

    seen: confidence of the model that is attacked; sure, inside: of each shadow model, and who was in its half.
    """
    found = np.zeros(len(seen))
    for sign, these in ((1.0, inside), (-1.0, ~inside)):
        times = np.maximum(1, these.sum(axis=0))
        mean = np.where(these, sure, 0.0).sum(axis=0) / times
        apart = np.where(these, sure - mean, 0.0) ** 2
        variance = max(float(apart.sum() / max(1, these.sum() - len(seen))), _LEAST)
        found += sign * (-0.5 * np.log(variance) - 0.5 * (seen - mean) ** 2 / variance)
    return found
