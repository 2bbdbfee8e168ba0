"""The runs that are looked at: every algorithm with its default options, on breast cancer split into 2 to 4 parties."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

import colonnade as cn
from colonnade.jobs.budget import allowance
from colonnade.jobs.policy import Policy
from colonnade.views.recording import Recording
from colonnade.views.view import View

L2 = 1e-4  # the estimators' own
PARTIES = (2, 3, 4)
_MODELS = 20
_SLOW = 3  # epochs under encryption


@dataclass(frozen=True)
class Cell:
    """One algorithm: its name in the figures, in words, who holds labels, and what is run."""

    key: str
    words: str
    run: Callable[[list[Any], Recording], Any]
    active: int = 1


@dataclass
class Seeing:
    """A run that was looked at: what each party saw, and the truth."""

    views: dict[str, View]
    parties: dict[str, Any]
    y: Any
    model: Any


def _linear(algorithm: Any, sum_: str = "auto") -> Callable[[list[Any], Recording], Any]:
    def run(parties: list[Any], on: Recording) -> Any:
        return cn.LogisticRegression(algorithm=algorithm, sum=sum_, verbose=0).fit(*parties, on=on)

    return run


def _within_budget(parties: list[Any], on: Recording) -> Any:
    """As many rounds as the default policy of a job lets pass: half as many numbers as the party with fewest has."""
    rounds = allowance(Policy.max_directions, min(party.features for party in parties))
    algorithm = cn.BlockNewton(epochs=rounds, pieces=1, tol=None)
    return cn.LogisticRegression(algorithm=algorithm, verbose=0).fit(*parties, on=on)


def _kernel(directions: str) -> Callable[[list[Any], Recording], Any]:
    def run(parties: list[Any], on: Recording) -> Any:
        return cn.KernelClassifier(algorithm=cn.FDSKL(directions=directions), verbose=0).fit(*parties, on=on)

    return run


def _statistics(parties: list[Any], on: Recording) -> Any:
    model = cn.LogisticRegression(verbose=0).fit(*parties)
    model.statistics(*parties, on=on)
    return model


def _predictions(count: int) -> Callable[[list[Any], Recording], Any]:
    def run(parties: list[Any], on: Recording) -> Any:
        for l2 in [L2] if count == 1 else np.logspace(-5, 1, count):
            model = cn.LogisticRegression(l2=float(l2), verbose=0).fit(*parties)
            model.decision_function(*parties, on=on)
        return model

    return run


def _network(top: bool) -> Callable[[list[Any], Recording], Any]:
    def run(parties: list[Any], on: Recording) -> Any:
        import torch
        from torch import nn

        torch.manual_seed(0)
        width = 4 if top else 1
        networks = {
            party.name: nn.Sequential(nn.Linear(party.features, 8), nn.Tanh(), nn.Linear(8, width)).double()
            for party in parties
        }
        whole = nn.Sequential(nn.Linear(width * len(parties), 4), nn.Tanh(), nn.Linear(4, 1)).double() if top else None
        algorithm = cn.FedSGD(epochs=20, step=0.1) if top else cn.FedSGD(epochs=20)
        return cn.NetworkClassifier(networks, top=whole, algorithm=algorithm, verbose=0).fit(*parties, on=on)

    return run


CELLS = tuple(
    Cell(*cell)
    for cell in (
        ("newton", "BlockNewton", _linear(cn.BlockNewton())),
        ("newton-budget", "BlockNewton within the default budget of a job", _within_budget),
        ("newton-sequential", "BlockNewton, sequential", _linear(cn.BlockNewton(order="sequential"))),
        ("newton-two-holders", "BlockNewton, two label holders", _linear(cn.BlockNewton()), 2),
        ("fedsgd", "FedSGD", _linear(cn.FedSGD())),
        ("fedbcd", "FedBCD", _linear(cn.FedBCD())),
        ("fedbcd-sequential", "FedBCD, sequential", _linear(cn.FedBCD(order="sequential"))),
        ("vfb2-sgd", "VFB2, sgd", _linear(cn.VFB2("sgd"))),
        ("vfb2-sgd-in-step", "VFB2, sgd, in step", _linear(cn.VFB2("sgd", asynchronous=False))),
        ("vfb2-svrg", "VFB2, svrg", _linear(cn.VFB2("svrg"))),
        ("vfb2-svrg-in-step", "VFB2, svrg, in step", _linear(cn.VFB2("svrg", asynchronous=False))),
        ("vfb2-saga", "VFB2, saga", _linear(cn.VFB2())),
        ("vfb2-saga-in-step", "VFB2, saga, in step", _linear(cn.VFB2(asynchronous=False))),
        ("afsgd", "AFSGD, two label holders", _linear(cn.AFSGD()), 2),
        ("fdml", "FDML", _linear(cn.FDML())),
        ("fedsgd-encrypted", f"FedSGD, `encrypted`, {_SLOW} epochs", _linear(cn.FedSGD(epochs=_SLOW), "encrypted")),
        ("fedbcd-encrypted", f"FedBCD, `encrypted`, {_SLOW} epochs", _linear(cn.FedBCD(epochs=_SLOW), "encrypted")),
        ("fdskl", "FDSKL", _kernel("private")),
        ("fdskl-shared", "FDSKL, shared directions", _kernel("shared")),
        ("network", "networks, 20 epochs", _network(top=False)),
        ("network-top", "networks with a top network, 20 epochs", _network(top=True)),
        ("statistics", "statistics of a model", _statistics),
        ("prediction", "predictions of one model", _predictions(1)),
        ("predictions", f"predictions of {_MODELS} models", _predictions(_MODELS)),
    )
)
BY_KEY = {cell.key: cell for cell in CELLS}


def look(cell: Cell, into: int) -> Seeing:
    """Run a cell, and look on."""
    data = load_breast_cancer()
    X = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    parties = cn.split(X, data.target, into=into, active=cell.active, seed=0)
    on = Recording()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = cell.run(parties, on)
    for view in on.views.values():
        view.rows = view.rows or len(X)
        view.widths = {party.name: party.features for party in parties}
    return Seeing(on.views, {party.name: party for party in parties}, np.where(data.target > 0, 1.0, -1.0), model)
