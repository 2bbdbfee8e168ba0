"""Parties for tests of defences: two of them, the first with labels of two classes, one of which is rarer."""

from __future__ import annotations

import numpy as np

import colonnade as cn
from colonnade.audit.measures import auc
from colonnade.views.recording import Recording


def parties(rows=400, columns=6, classes=2, seed=3, into=2):
    """Return parties whose columns say something about the labels, and far from all."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns))
    if classes > 2:
        scores = X @ rng.standard_normal((columns, classes)) + rng.gumbel(size=(rows, classes))
        return cn.split(X, scores.argmax(axis=1), into=into, active=1, seed=0)
    z = X @ rng.standard_normal(columns) - 1.0
    return cn.split(X, np.where(z + rng.logistic(size=rows) > 0, 1.0, -1.0), into=into, active=1, seed=0)


def auc_of(score, y):
    """Return how often somebody of the second class has the higher score."""
    return auc(np.asarray(score, dtype=np.float64), np.asarray(y) > (0 if np.min(y) < 0 else 0.5))


def advantage(model, given):
    """Return what the signs of signals show of labels beyond what the receiver has anyway."""
    found = model.audit(*given, attacks=["signs of signals"], attackers=["party2"]).findings
    return max((one.advantage for one in found), default=0.0)


def norm_auc(view, y):
    """Return what lengths of signals tell, over all exchanges (Li et al. 2021, section 3.1)."""
    return auc_of(_summed(view, len(y), lambda value: np.linalg.norm(value, axis=1)), y)


def spectral_auc(view, y):
    """Return what the first singular direction of each batch's signals tells (Sun et al. 2022), over all exchanges."""
    before = []

    def along(value):
        centred = value - value.mean(axis=0)
        first = np.linalg.svd(centred, full_matrices=False)[2][0]
        if before and first @ before[0] < 0:
            first = -first
        before[:] = [first]
        return centred @ first

    return auc_of(_summed(view, len(y), along), y)


def _summed(view, rows, score):
    found = np.zeros(rows)
    for one in view.of("message", "signal"):
        if one.rows is not None:
            found[one.rows] += score(one.value.reshape(len(one.rows), -1))
    return found


def split_view(defences, epochs=4):
    """Return what the party without labels sees of split learning with a top network, and the labels."""
    import torch

    given, on = parties(rows=600, columns=6), Recording()
    torch.manual_seed(0)
    networks = {one.name: torch.nn.Linear(one.features, 4).double() for one in given}
    top = torch.nn.Sequential(torch.nn.Linear(8, 1)).double()
    algorithm = cn.FedSGD(epochs=epochs, batch=100, step=0.5, tol=None)
    cn.NetworkClassifier(networks, top=top, algorithm=algorithm, defences=defences, verbose=0).fit(*given, on=on)
    return on.views["party2"], given[0].y
