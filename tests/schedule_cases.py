"""The algorithms that random schedules are tried on, each over a few rows, and what their right models are.

`bits`: the parameters of a run on a perfect line, at every party and to the bit, with the same history. `optimum`:
asynchronous runs end where the order of events takes them, so the objective is at most `tolerance` of the whole way,
from all parameters 0 to the optimum, above the optimum. `answered`: the model of exactly those sites that stayed to the
end of each sum, to the bit. `common`: the rows that all parties have, in one order.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.optimize import minimize

import colonnade as cn
from colonnade.alignment.protocol import align_packed
from colonnade.data.ids import canonical, pack
from colonnade.errors import ColonnadeWarning
from colonnade.runtimes.wire import encode

RNG = np.random.default_rng(0)
ROWS, COLUMNS, L2 = 48, 8, 0.02
X = RNG.standard_normal((ROWS, COLUMNS))
Y = np.where(X[:, 0] - X[:, 5] + 0.5 * X[:, 3] + 0.5 * RNG.logistic(size=ROWS) > 0, 1, 0)
# A perfect line on which every message takes a second: the length of a run in seconds is its length in messages.
STILL = cn.Simulation(latency=1.0, bandwidth=1e18, seconds_per_nonzero=0.0, deadline=1000.0)


@dataclass(frozen=True)
class Case:
    """One algorithm with its options."""

    name: str
    make: Callable[..., Any]  # of the cast, sum= and topology=
    right: str = "bits"
    tolerance: float = 0.0
    holders: int = COLUMNS  # label holders, at most
    keeps: bool = True  # whether a run that is broken off can go on


@dataclass(frozen=True)
class Cast:
    """Who takes part: so many parties, of whom the first hold the labels."""

    parties: int
    holders: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"party{k + 1}" for k in range(self.parties))

    def blocks(self) -> dict[str, Any]:
        return dict(zip(self.names, np.array_split(np.arange(COLUMNS), self.parties), strict=True))

    def split(self) -> list[cn.Party]:
        return cn.split(X, Y, into=self.blocks(), active=self.holders)


@dataclass(frozen=True)
class Right:
    """How a run on a perfect line ends, and how long it is."""

    model: Any
    messages: int
    seconds: float


def linear(algorithm: Any, kind: Any = cn.LogisticRegression) -> Callable[..., Any]:
    return lambda _cast, **options: kind(algorithm=algorithm, l2=L2, verbose=0, **options)


def kernel(workers: str) -> Callable[..., Any]:
    method = cn.FDSKL(block=4, batch=16, epochs=4, tol=None, workers=workers)
    return lambda _cast, **options: cn.KernelClassifier(features=12, alpha=1e-2, algorithm=method, verbose=0, **options)


def network(algorithm: Any, top: bool = False) -> Callable[..., Any]:
    def make(cast: Cast, **options: Any) -> Any:
        from torch import nn

        networks = {
            name: nn.Sequential(nn.Linear(len(columns), 3 if top else 1)) for name, columns in cast.blocks().items()
        }
        for number, module in enumerate(networks.values()):
            _fill(module, number)
        over = nn.Sequential(nn.Tanh(), nn.Linear(3 * cast.parties, 1)) if top else None
        if over is not None:
            _fill(over, 99)
        return cn.NetworkClassifier(networks, top=over, algorithm=algorithm, verbose=0, **options)

    return make


def _fill(module: Any, seed: int) -> None:
    import torch

    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.from_numpy(rng.uniform(-0.5, 0.5, tuple(parameter.shape)).astype(np.float32)))


def identifiers(cast: Cast) -> dict[str, list[str]]:
    """Of each party, in an order of its own."""
    rng = np.random.default_rng(cast.parties)
    return {name: [str(one) for one in rng.permutation(24)[:18]] for name in cast.names}


def rows(algorithm: Any) -> Callable[..., Any]:
    return lambda _cast, **options: cn.SSCAClassifier(hidden=0, algorithm=algorithm, verbose=0, **options)


SHORT: dict[str, Any] = {"batch": 16, "epochs": 3, "tol": None}
LONG: dict[str, Any] = {"batch": 12, "epochs": 40, "tol": None}
FREELY: dict[str, Any] = {**LONG, "flow": "paper", "schedule": "constant", "step": 0.1}
SEVERAL = {"holders": 3}
CASES = (
    Case("FedSGD", linear(cn.FedSGD(**SHORT)), **SEVERAL),
    Case("FedSGD, softmax", linear(cn.FedSGD(**SHORT), cn.SoftmaxRegression), **SEVERAL),
    Case("FedBCD, parallel", linear(cn.FedBCD(local_steps=3, **SHORT)), **SEVERAL),
    Case("FedBCD, sequential", linear(cn.FedBCD(local_steps=2, order="sequential", **SHORT)), **SEVERAL),
    Case("FedBCD, curvature", linear(cn.FedBCD(local_steps=2, signal="curvature", **SHORT)), **SEVERAL),
    *(
        Case(f"VFB2 {estimator}, synchronous", linear(cn.VFB2(estimator, asynchronous=False, **SHORT)), **SEVERAL)
        for estimator in ("sgd", "svrg", "saga")
    ),
    *(
        Case(f"VFB2 {estimator}, asynchronous", linear(cn.VFB2(estimator, **LONG)), "optimum", 0.1, **SEVERAL)
        for estimator in ("sgd", "svrg", "saga")
    ),
    Case("AFSGD saga, synchronous", linear(cn.AFSGD("saga", asynchronous=False, **SHORT)), **SEVERAL),
    Case("AFSGD svrg, asynchronous", linear(cn.AFSGD("svrg", **LONG)), "optimum", 0.1, **SEVERAL),
    Case("VFB2 sgd, printed", linear(cn.VFB2("sgd", **FREELY)), "optimum", 0.1, **SEVERAL),
    Case("AFSGD svrg, printed", linear(cn.AFSGD("svrg", **FREELY)), "optimum", 0.1, **SEVERAL),
    Case("FDML, synchronous", linear(cn.FDML(asynchronous=False, **SHORT)), holders=1),
    Case("FDML, asynchronous", linear(cn.FDML(**LONG)), "optimum", 0.1, holders=1),
    Case("FDSKL", kernel("in turn"), **SEVERAL),
    Case("FDSKL, together", kernel("together"), **SEVERAL),
    # Pieces have signs of their own choice, which need not be the same in the next run.
    Case("BlockNewton", linear(cn.BlockNewton(epochs=5, tol=None, pieces=1)), **SEVERAL),
    Case(
        "BlockNewton, sequential", linear(cn.BlockNewton(epochs=6, tol=None, pieces=1, order="sequential")), **SEVERAL
    ),
    Case("BlockNewton, growing", linear(cn.BlockNewton(epochs=8, tol=None, pieces=1, grow_from=12)), **SEVERAL),
    Case(
        "BlockNewton, pieces",
        linear(cn.BlockNewton(epochs=12, tol=None, pieces=3, memory=8)),
        "optimum",
        1e-6,
        **SEVERAL,
    ),
    *(
        (
            Case("network, FedSGD", network(cn.FedSGD(step=0.3, **SHORT)), **SEVERAL),
            Case("network, FedBCD", network(cn.FedBCD(local_steps=2, step=0.3, **SHORT)), **SEVERAL),
            Case("network, top", network(cn.FedBCD(local_steps=2, step=0.3, **SHORT), top=True), holders=1),
        )
        if importlib.util.find_spec("torch")
        else ()
    ),
    Case("SSCA, rows", rows(cn.SSCA(batch=6, rounds=4)), "answered", keeps=False),
    Case("FedAvg, rows", rows(cn.FedAvg(batch=6, rounds=4)), "answered", keeps=False),
    Case("alignment", identifiers, "common", keeps=False),
)


def fit(case: Case, cast: Cast, on: Any, **options: Any) -> Any:
    """Train, and return the model; or align, and return every party's rows."""
    if case.right == "common":
        programs = {
            name: (align_packed, (*pack(canonical(ids, name)), 1, cast.names[0]))
            for name, ids in identifiers(cast).items()
        }
        return {name: outcome.value for name, outcome in on.run(programs).items()}
    data = cast.split()
    if case.right == "answered":
        data = cn.split_rows(X, Y, into=cast.parties, seed=1)
        options.pop("topology", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColonnadeWarning)
        return case.make(cast, **options).fit(*data, on=on)


@cache
def still(case: Case, cast: Cast) -> Right:
    """The run that nothing disturbs."""
    ended: list[Any] = []

    class Noted:
        def run(self, *args: Any) -> Any:
            ended.append(STILL.run(*args))
            return ended[0]

    model = fit(case, cast, Noted())
    outcomes = ended[0].values()
    return Right(model, sum(one.traffic.messages for one in outcomes), max(one.seconds for one in outcomes))


def bits(model: Any) -> tuple[Any, ...]:
    """All that a run says of its result: every party's parameters, and the history without times and traffic."""
    states = tuple((name, bytes(encode(state))) for name, state in sorted(model._states.items()))
    return states, [(one["epoch"], one["rounds"], one["loss"]) for one in model.history_]


def in_common(cast: Cast, found: Any) -> bool:
    """Whether these are the rows that all parties have, in the same order at each."""
    sets = identifiers(cast)
    orders = [[sets[name][row] for row in found[name]] for name in cast.names]
    return set(orders[0]) == set.intersection(*map(set, sets.values())) and all(one == orders[0] for one in orders)


# -- the objective, apart from the code under test ---------------------------------------------------------------------


def objective(case: Case, cast: Cast, parameters: Any) -> float:
    """Mean loss and penalty of all coefficients, in the order of the columns, followed by the intercepts."""
    w, b = parameters[:COLUMNS], parameters[COLUMNS:]
    scores = np.array([X[:, own] @ w[own] for own in cast.blocks().values()])
    if case.name.startswith("FDML"):
        shares = np.array([len(own) for own in cast.blocks().values()]) / COLUMNS
        p = shares @ (1.0 / (1.0 + np.exp(-(scores + b[:, None]))))
        losses = -np.log(np.maximum(np.where(Y == 1, p, 1.0 - p), 1e-300))
    else:
        losses = np.logaddexp(0.0, np.where(Y == 1, -1.0, 1.0) * (scores.sum(axis=0) + b[0]))
    return float(losses.mean() + 0.5 * L2 * (w @ w))


def parameters_of(case: Case, cast: Cast, model: Any) -> Any:
    intercepts = model.intercept_.values() if case.name.startswith("FDML") else [model.intercept_]
    return np.concatenate([*(model.coef_[name] for name in cast.names), list(intercepts)])


@cache
def optimum(case: Case, cast: Cast) -> tuple[float, float]:
    """(the objective where all parameters are 0, the lowest there is)."""
    intercepts = cast.parties if case.name.startswith("FDML") else 1
    free = np.ones(COLUMNS + intercepts, dtype=bool)
    if case.name.startswith("AFSGD"):  # who has no labels never learns
        for name in cast.names[cast.holders :]:
            free[cast.blocks()[name]] = False
    start = np.zeros(len(free))

    def value(some: Any) -> float:
        whole = start.copy()
        whole[free] = some
        return objective(case, cast, whole)

    found = minimize(value, start[free], options={"gtol": 1e-9, "maxiter": 5000})
    return value(start[free]), float(found.fun)


def distance(case: Case, cast: Cast, model: Any) -> float:
    """How far above the optimum a model is, as a part of the whole way."""
    first, lowest = optimum(case, cast)
    return (objective(case, cast, parameters_of(case, cast, model)) - lowest) / (first - lowest)
