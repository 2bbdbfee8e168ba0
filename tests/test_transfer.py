"""Federated transfer learning: the loss and its gradients against autograd in one place, and what it is for."""

# ruff: noqa: E402
from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")

from torch import nn

import colonnade as cn
from colonnade.errors import DataError, LabelError, NotFittedError, OptionError, TrainingDiverged

RNG = np.random.default_rng(21)
N, WIDTH = 120, 4
HIDDEN = RNG.standard_normal((N, 3))
Y = np.where(HIDDEN[:, 0] + 0.3 * RNG.standard_normal(N) > 0, "good", "bad")
X_A = np.tanh(HIDDEN @ RNG.standard_normal((3, 6))) + 0.1 * RNG.standard_normal((N, 6))
X_B = np.tanh(HIDDEN @ RNG.standard_normal((3, 5))) + 0.1 * RNG.standard_normal((N, 5))
IDS = np.arange(1000, 1000 + N)
OF_A, OF_B = np.arange(80), np.arange(50, N)[::-1]  # 30 rows in common, in another order at B
COMMON = np.arange(50, 80)


def source(y=Y):
    return cn.Party("bank", X_A[OF_A], y[OF_A], ids=IDS[OF_A])


def target(y=None):
    return cn.Party("shop", X_B[OF_B], None if y is None else y[OF_B], ids=IDS[OF_B])


def networks(width=WIDTH):
    torch.manual_seed(4)
    return {
        name: nn.Sequential(nn.Linear(inputs, 6), nn.Tanh(), nn.Linear(6, width)).double()
        for name, inputs in (("bank", 6), ("shop", 5))
    }


WHOLE = {"step": 0.3, "schedule": "constant", "batch": 30, "epochs": 4, "tol": None}
GAMMA, L2 = 0.2, 0.01


def objective(a, b, rows, gamma=GAMMA, l2=L2, alignment="distance", u_a=None, u_b=None):
    """The paper's loss by its formulas, with means."""
    y = torch.from_numpy(np.where(Y == "good", 1.0, -1.0))
    phi = (y[OF_A][:, None] * a(torch.from_numpy(X_A[OF_A]))).mean(dim=0)
    u_a = a(torch.from_numpy(X_A[rows])) if u_a is None else u_a
    u_b = b(torch.from_numpy(X_B[rows])) if u_b is None else u_b
    told = torch.log(1 + torch.exp(-y[rows] * (u_b @ phi))).mean()
    apart = ((u_a - u_b) ** 2).sum(dim=1).mean() if alignment == "distance" else -(u_a * u_b).sum(dim=1).mean()
    penalty = sum((p**2).sum() for net in (a, b) for p in net.parameters())
    return told + gamma * apart + l2 / 2 * penalty


def descend(given, epochs, Q, eta, proximal=0.0, alignment="distance", exchange="representations"):
    """Both parties' Q steps from one exchange, of u_B and dL/du_B or of u_B and what that depends on, in one place."""
    a, b = (copy.deepcopy(given[name]) for name in ("bank", "shop"))
    for _ in range(epochs):
        stale = b(torch.from_numpy(X_B[COMMON])).detach().requires_grad_()
        (signal,) = torch.autograd.grad(objective(a, b, COMMON, l2=0.0, alignment=alignment, u_b=stale), stale)
        u_a = a(torch.from_numpy(X_A[COMMON])).detach()
        y = torch.from_numpy(np.where(Y == "good", 1.0, -1.0))
        phi = (y[OF_A][:, None] * a(torch.from_numpy(X_A[OF_A]))).mean(dim=0).detach()
        before = {p: p.detach().clone() for net in (a, b) for p in net.parameters()}
        for _ in range(Q):
            of_a = torch.autograd.grad(
                objective(a, b, COMMON, l2=0.0, alignment=alignment, u_b=stale.detach()), list(a.parameters())
            )
            u_b = b(torch.from_numpy(X_B[COMMON]))
            if exchange == "representations":
                told = torch.log(1 + torch.exp(-y[COMMON] * (u_b @ phi))).mean()
                apart = (u_b - u_a).square().sum(dim=1) if alignment == "distance" else -(u_b * u_a).sum(dim=1)
                of_b = torch.autograd.grad(told + GAMMA * apart.mean(), list(b.parameters()))
            else:
                of_b = torch.autograd.grad(u_b, list(b.parameters()), signal)
            with torch.no_grad():
                for p, g in zip([*a.parameters(), *b.parameters()], [*of_a, *of_b], strict=True):
                    p -= eta * (g + L2 * p + proximal * (p - before[p]))
    return a, b


@pytest.mark.parametrize("exchange", ["representations", "signals"])
@pytest.mark.parametrize("alignment", ["distance", "product"])
@pytest.mark.parametrize(("Q", "proximal"), [(1, 0.0), (3, 0.0), (3, 0.5)])
def test_loss_and_steps_are_those_of_autograd_in_one_place(Q, proximal, alignment, exchange):
    given = networks()
    algorithm = cn.FedBCD(**WHOLE, local_steps=Q, proximal=proximal)
    model = cn.TransferClassifier(
        given, gamma=GAMMA, l2=L2, alignment=alignment, exchange=exchange, algorithm=algorithm, verbose=0
    ).fit(source(), target())
    slow = descend(given, 4, Q, 0.3, proximal, alignment, exchange)
    for trained, expected in zip(model.modules_.values(), slow, strict=True):
        for one, other in zip(trained.parameters(), expected.parameters(), strict=True):
            assert torch.allclose(one, other, rtol=0, atol=1e-10)
    first = float(objective(given["bank"], given["shop"], COMMON, alignment=alignment).detach())
    last = float(objective(*slow, COMMON, alignment=alignment).detach())
    assert model.history_[0]["loss"] == pytest.approx(first, abs=1e-9)
    assert model.history_[-1]["loss"] == pytest.approx(last, abs=1e-9)


def test_one_step_is_the_gradient_of_the_whole():
    """With Q = 1 and all rows in a batch both parties take one step of plain gradient descent on L."""
    given = networks()
    model = cn.TransferClassifier(
        given, gamma=GAMMA, l2=L2, algorithm=cn.FedSGD(**(WHOLE | {"epochs": 1})), verbose=0
    ).fit(source(), target())
    a, b = (given[name] for name in ("bank", "shop"))
    parameters = [*a.parameters(), *b.parameters()]
    found = torch.autograd.grad(objective(a, b, COMMON), parameters)
    trained = [p for module in model.modules_.values() for p in module.parameters()]
    for after, before, gradient in zip(trained, parameters, found, strict=True):
        assert torch.allclose(after, before - 0.3 * gradient, rtol=0, atol=1e-10)


@pytest.mark.parametrize("Q", [15, 50, pytest.param(100, marks=pytest.mark.long)])
def test_many_local_steps_converge_from_representations_and_diverge_from_one_signal(Q):
    """Equation (9): with a frozen signal the target does not see how far it has come, and runs away."""
    algorithm = cn.FedBCD(**(WHOLE | {"epochs": 25, "step": 0.5}), local_steps=Q, patience=10**6)
    model = cn.TransferClassifier(networks(), algorithm=algorithm, verbose=0).fit(source(), target())
    losses = [record["loss"] for record in model.history_]
    assert losses[-1] < 0.2 * losses[0]
    assert max(losses) == losses[0]
    with pytest.raises(TrainingDiverged):
        cn.TransferClassifier(networks(), exchange="signals", algorithm=algorithm, verbose=0).fit(source(), target())


def test_the_target_learns_from_labels_it_never_had():
    algorithm = cn.FedBCD(local_steps=3, step=0.5, schedule="constant", batch=15, epochs=150, tol=None)
    held_out = [cn.Party("bank", X_A[80:], Y[80:]), cn.Party("shop", X_B[80:])]
    model = cn.TransferClassifier(networks(), algorithm=algorithm, verbose=0)
    model.fit(source(), target(), validation=held_out)
    strangers = np.arange(80, N)  # rows of the target that the source has never seen
    others = cn.Party("shop", X_B[strangers], Y[strangers])
    assert model.score(others) > 0.8
    assert model.history_[-1]["validation_metric"] > 0.9
    assert model.predict_proba(others).shape == (40, 2)
    assert set(model.predict(others)) <= {"good", "bad"}
    phi = model.decision_function(others)
    a, b = model.modules_.values()
    y = torch.from_numpy(np.where(Y[OF_A] == "good", 1.0, -1.0))
    expected = b(torch.from_numpy(X_B[strangers])) @ (y[:, None] * a(torch.from_numpy(X_A[OF_A]))).mean(dim=0)
    assert np.allclose(phi, expected.detach().numpy(), atol=1e-12)


def test_rows_without_a_label_help_to_align():
    partly = Y.astype(object)
    partly[60:70] = None
    model = cn.TransferClassifier(networks(), algorithm=cn.FedSGD(**WHOLE), verbose=0).fit(source(partly), target())
    whole = cn.TransferClassifier(networks(), algorithm=cn.FedSGD(**WHOLE), verbose=0).fit(source(), target())
    assert model.history_[0]["loss"] != whole.history_[0]["loss"]
    assert model.history_[-1]["loss"] < model.history_[0]["loss"]


def test_rows_of_one_class_have_no_area_under_a_curve():
    """As everywhere: a metric that has no value is not made up."""
    good = np.nonzero(Y == "good")[0][:9]
    held_out = [cn.Party("bank", X_A[good], Y[good]), cn.Party("shop", X_B[good])]
    model = cn.TransferClassifier(networks(), algorithm=cn.FedSGD(**WHOLE), verbose=0)
    model.fit(source(), target(), validation=held_out)
    assert all(np.isnan(record["validation_metric"]) for record in model.history_)
    assert all(0.0 <= record["metric"] <= 1.0 for record in model.history_)


def test_phi_from_some_of_the_labelled_rows():
    algorithm = cn.FedSGD(**(WHOLE | {"batch": 10, "epochs": 30, "step": 0.5}))
    model = cn.TransferClassifier(networks(), anchors=20, algorithm=algorithm, verbose=0).fit(source(), target())
    assert model.history_[-1]["loss"] < 0.8 * model.history_[0]["loss"]


def test_everywhere_the_same_bits_and_kept(tmp_path):
    algorithm = cn.FedBCD(**(WHOLE | {"batch": 10}), local_steps=2, order="sequential")
    one, other = (cn.TransferClassifier(networks(), anchors=25, algorithm=algorithm, verbose=0) for _ in range(2))
    one.fit(source(), target())
    other.fit(target(), source(), on=cn.Processes())
    for name in ("bank", "shop"):
        assert all(np.array_equal(a, b) for a, b in zip(one._states[name][1], other._states[name][1], strict=True))
    one.save(tmp_path)
    again = cn.load(tmp_path)
    assert type(again) is cn.TransferClassifier
    assert np.array_equal(again.predict_proba(target()), one.predict_proba(target(), on=cn.Processes()))
    assert set(one.traffic_["shop"].by_step) <= {
        "representations", "representations to evaluate", "objective", "goodbye",
    }  # fmt: skip
    assert np.array_equal(cn.TransferClassifier.load(tmp_path).classes_, ["bad", "good"])


def test_bad_input():
    def bad(error, said, *parties, given=None, **options):
        options = {"algorithm": cn.FedSGD(**WHOLE), "verbose": 0} | options
        with pytest.raises(error, match=said):
            cn.TransferClassifier(given or networks(), **options).fit(*(parties or (source(), target())))

    bad(DataError, "between two parties, got 1", source())
    bad(LabelError, "both parties hold labels", source(), target(Y))
    bad(LabelError, "no party holds labels", cn.Party("bank", X_A, ids=IDS), target())
    bad(DataError, "'shop' has no ids", source(), cn.Party("shop", X_B))
    bad(DataError, "have 0 rows in common", source(), cn.Party("shop", X_B, ids=IDS + 5000))
    bad(
        OptionError,
        "representations of 4 numbers and that of 'shop' of 3",
        given={**networks(), "shop": nn.Linear(5, 3)},
    )
    bad(OptionError, "party 'shop' has no network", given={"bank": nn.Linear(6, 2)})
    bad(OptionError, "gamma must be >= 0", gamma=-0.1)
    bad(OptionError, "alignment must be one of 'distance', 'product', got 'cosine'", alignment="cosine")
    bad(OptionError, "loss must be one of 'auto', 'logistic', 'taylor', got 'hinge'", loss="hinge")
    bad(OptionError, "exchange must be one of 'representations', 'signals', got 'all'", exchange="all")
    bad(OptionError, "anchors must be a whole number >= 1", anchors=0.5)
    bad(OptionError, "step must be a number for transfer learning", algorithm=cn.FedSGD())
    apart = Y.astype(object)
    apart[COMMON] = None
    bad(LabelError, "none of the 30 rows that 'bank' and 'shop' have in common has a label", source(apart), target())
    bad(
        LabelError,
        "and the labels hold 3",
        cn.Party("bank", X_A, np.arange(N) % 3, ids=IDS),
        target(),
    )
    far = cn.FedSGD(**(WHOLE | {"step": 1e200}))
    bad(TrainingDiverged, "gave NaN, infinite or huge numbers in round", algorithm=far)
    with pytest.raises(NotFittedError):
        cn.TransferClassifier(networks()).predict(target())
    model = cn.TransferClassifier(networks(), algorithm=cn.FedSGD(**WHOLE), verbose=0).fit(source(), target())
    with pytest.raises(DataError, match="needs the rows of the target 'shop' alone, got \\['bank', 'shop'\\]"):
        model.predict(source(), target())
