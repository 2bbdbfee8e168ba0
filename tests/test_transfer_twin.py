"""Transfer learning beside a twin in plain numpy, whose gradients are written out, in both forms of the exchange."""

# ruff: noqa: E402
from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")

from torch import nn

import colonnade as cn
from colonnade.algorithms.transfer import TransferSession
from colonnade.errors import ProtocolError

RNG = np.random.default_rng(5)
N, WIDTH = 90, 3
HIDDEN = RNG.standard_normal((N, 2))
Y = np.where(HIDDEN[:, 0] + 0.2 * RNG.standard_normal(N) > 0, 1.0, -1.0)
X_A = HIDDEN @ RNG.standard_normal((2, 4)) + 0.1 * RNG.standard_normal((N, 4))
X_B = HIDDEN @ RNG.standard_normal((2, 5)) + 0.1 * RNG.standard_normal((N, 5))
ANCHORS, COMMON, UNKNOWN = np.arange(60), np.arange(30, 60), np.arange(50, 55)  # of the last A has no label
GAMMA, L2 = 0.1, 0.02


def parties():
    y = Y.astype(object)
    y[UNKNOWN] = None
    bank = cn.Party("bank", X_A[:60], y[:60], ids=np.arange(60))
    return bank, cn.Party("shop", X_B[30:], ids=np.arange(30, N))


def networks():
    torch.manual_seed(8)
    return {
        name: nn.Sequential(nn.Linear(inputs, WIDTH), nn.Tanh()).double() for name, inputs in (("bank", 4), ("shop", 5))
    }


def fit(exchange, loss, Q, order="parallel", epochs=3, eta=0.3):
    algorithm = cn.FedBCD(
        local_steps=Q, order=order, step=eta, schedule="constant", batch=30, epochs=epochs, tol=None, patience=10**6
    )
    options = {"gamma": GAMMA, "l2": L2, "exchange": exchange, "loss": loss}
    return cn.TransferClassifier(networks(), algorithm=algorithm, verbose=0, **options).fit(*parties())


class Numpy:
    """One dense layer with tanh, u = tanh(X W' + b), and its gradient by hand."""

    def __init__(self, module):
        self.W, self.b = (p.detach().numpy().copy() for p in module[0].parameters())

    def __call__(self, X):
        return np.tanh(X @ self.W.T + self.b)

    def gradient(self, X, signal):
        inner = signal * (1 - self(X) ** 2)
        return [inner.T @ X, inner.sum(axis=0)]

    def step(self, gradients, eta):
        self.W -= eta * (gradients[0] + L2 * self.W)
        self.b -= eta * (gradients[1] + L2 * self.b)


def slope(loss, y, z):
    """dl/dphi of the rows with a label, by their number."""
    found = -y / 2 + z / 4 if loss == "taylor" else -y / (1 + np.exp(y * z))
    return np.where(y == 0, 0.0, found) / (y != 0).sum()


def twin(exchange, loss, Q, order="parallel", epochs=3, eta=0.3):
    """FedBCD on the loss of transfer learning, both parties in one place."""
    a, b = (Numpy(module) for module in networks().values())
    known = np.setdiff1d(ANCHORS, UNKNOWN)
    y, n = np.where(np.isin(COMMON, UNKNOWN), 0.0, Y[COMMON]), len(COMMON)

    def phi():
        return (Y[known][:, None] * a(X_A[known])).mean(axis=0)

    def step_of_source(u_b):
        u_a = a(X_A[COMMON])
        through = u_b.T @ slope(loss, y, u_b @ phi())
        apart = a.gradient(X_A[COMMON], GAMMA * 2 * (u_a - u_b) / n)
        along = a.gradient(X_A[known], Y[known][:, None] * through / len(known))
        a.step([one + other for one, other in zip(apart, along, strict=True)], eta)

    def signal(u_a, u_b, Phi):
        return slope(loss, y, u_b @ Phi)[:, None] * Phi + GAMMA * 2 * (u_b - u_a) / n

    for _ in range(epochs):
        stale_a, stale_b, stale_phi = a(X_A[COMMON]), b(X_B[COMMON]), phi()
        for _ in range(Q):
            step_of_source(stale_b)
        if order == "sequential":
            stale_a, stale_phi = a(X_A[COMMON]), phi()
        frozen = signal(stale_a, stale_b, stale_phi)
        for _ in range(Q):
            fresh = signal(stale_a, b(X_B[COMMON]), stale_phi)
            b.step(b.gradient(X_B[COMMON], fresh if exchange == "representations" else frozen), eta)
    return a, b


@pytest.mark.parametrize("order", ["parallel", "sequential"])
@pytest.mark.parametrize("loss", ["logistic", "taylor"])
@pytest.mark.parametrize("exchange", ["representations", "signals"])
def test_trajectories_are_those_of_plain_numpy(exchange, loss, order):
    model, slow = fit(exchange, loss, 4, order), twin(exchange, loss, 4, order)
    for module, expected in zip(model.modules_.values(), slow, strict=True):
        W, b = (p.detach().numpy() for p in module[0].parameters())
        assert np.abs(W - expected.W).max() < 1e-9
        assert np.abs(b - expected.b).max() < 1e-9


def test_both_forms_agree_where_there_is_one_local_step():
    one, other = (fit(exchange, "logistic", 1) for exchange in ("representations", "signals"))
    for name in one.modules_:
        for p, q in zip(one.modules_[name].parameters(), other.modules_[name].parameters(), strict=True):
            assert torch.allclose(p, q, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("tag", "change", "said"),
    [
        ("representations", lambda u: u[:-1], "bank sent .* at step 'representations'"),
        ("representations", lambda u: u * np.nan, "'bank' sent NaN or infinity at step 'representations'"),
        ("mean representation", lambda phi: phi + np.inf, "'bank' sent NaN or infinity at step 'mean representation'"),
        ("mean representation", lambda phi: phi[None], "'mean representation'"),
        ("labels", lambda y: y * 3, "must send -1, 0 or 1 for each row at step 'labels', got"),
        ("labels", lambda y: y.astype(float), "'labels'"),
    ],
)
def test_what_the_source_tells_is_not_believed(tag, change, said, monkeypatch):
    async def told(self, name, signal):
        u_a, phi, y = self._behind
        sent = {"representations": u_a, "mean representation": phi, "labels": y.astype(np.int8)}
        for one, value in sent.items():
            await self.net.send(name, one, np.ascontiguousarray(change(value) if one == tag else value))

    monkeypatch.setattr(TransferSession, "send_signal", told)
    with pytest.raises(ProtocolError, match=said):
        fit("representations", "logistic", 1)
