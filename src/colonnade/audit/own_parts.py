"""What a party's own part of a finished model makes of its columns, which the party has whatever it saw of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from colonnade.attacks.case import FloatArray
from colonnade.defences.rounded_scores import blur_of
from colonnade.defences.scores import Blur

Parts = dict[str, FloatArray | None]
_SECRET = b"an audit's own"  # of no party


def own_parts(model: Any, columns: Mapping[str, FloatArray]) -> tuple[Parts, Parts]:
    """Return each party's own part of the scores of the training rows, and what its own trained part makes of them.

    They are the same where contributions are added up. Where a top network takes the outputs of all networks, none of
    these is a part of the score.
    """
    if not hasattr(type(model), "modules_"):
        scores = {name: own_score(model, name, X) for name, X in columns.items()}
        return scores, {name: None if z is None else z.reshape(len(z), -1) for name, z in scores.items()}
    outputs: Parts = dict(_own_outputs(model, columns))
    if getattr(model, "top", None) is not None:
        return dict.fromkeys(columns), outputs
    return {name: z if z is None or z.shape[1] > 1 else z[:, 0] for name, z in outputs.items()}, outputs


def own_score(model: Any, name: str, columns: FloatArray) -> FloatArray | None:
    """Return a party's own part of the model's scores of the training rows, where it has such a part."""
    theta = coefficients(model, name)
    if theta is None:
        return None
    found: FloatArray = columns @ theta.T  # of several scores, a column for each
    return found[:, 0] if len(theta) == 1 else found


def coefficients(model: Any, name: str) -> FloatArray | None:
    """Return a party's coefficients in the finished model, a row for each score; None where it has none."""
    every = getattr(model, "coef_", None) if hasattr(type(model), "coef_") or "coef_" in vars(model) else None
    if every is None or name not in every:
        return None
    found: FloatArray = np.atleast_2d(np.asarray(every[name], dtype=np.float64))
    return found


def asked(
    model: Any, name: str, columns: Mapping[str, FloatArray], scores: Parts
) -> tuple[FloatArray, FloatArray] | None:
    """Return what a label holder has that asks for the scores of the training rows, up to a constant for all of them.

    None for who may not ask, and for models whose scores are no sums of the parties' own parts.
    """
    blur = blur_of(getattr(model, "defences", None) or ())
    parts = [told_part(part, None if one == name else blur) for one, part in scores.items() if part is not None]
    if name not in model.holders_ or model._family == "averaged" or len(parts) < len(scores):
        return None
    total: FloatArray = np.sum(parts, axis=0)
    return columns[name], total


def told_part(score: FloatArray, blur: Blur | None) -> FloatArray:
    """Return a party's part of scores as it leaves that party in predictions; None is one's own, which is exact.

    The noise of an audit is always the same, so that audits repeat; that of a party is drawn from its own secret.
    """
    if not blur:
        return score
    return blur(score.reshape(len(score), -1), _SECRET).reshape(score.shape)


def _own_outputs(model: Any, columns: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Return what each party's trained network gives for the training rows, a row for each."""
    from colonnade.networks.torch_network import NetworkBlock

    found, shapes = {}, getattr(model, "shape", None) or {}
    for name, module in model.modules_.items():
        if name in columns:
            block = NetworkBlock(module, columns[name], party=name, shape=shapes.get(name))
            z = block.scores(np.arange(len(columns[name])))
            found[name] = z.reshape(len(z), -1)
    return found
