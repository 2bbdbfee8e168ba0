"""Transfer learning on encrypted sums: the same trajectory as in the clear, and what is refused."""

# ruff: noqa: E402
from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")

from torch import nn

import colonnade as cn
from colonnade.algorithms import encrypted_transfer
from colonnade.algorithms.encrypted_transfer import EncryptedTransfer, check_spread, encrypted_transfer_leaks
from colonnade.errors import ColonnadeError, OptionError, ProtocolError, TrainingDiverged
from colonnade.leaks import Setting
from test_leaks import Record

RNG = np.random.default_rng(3)
N, COMMON, WIDTH = 700, 600, 3
HIDDEN = RNG.standard_normal((N, 2))
Y = np.where(HIDDEN[:, 0] + 0.3 * RNG.standard_normal(N) > 0, 1.0, -1.0)
X_A = HIDDEN @ RNG.standard_normal((2, 4)) + 0.2 * RNG.standard_normal((N, 4))
X_B = HIDDEN @ RNG.standard_normal((2, 5)) + 0.2 * RNG.standard_normal((N, 5))
UNKNOWN = np.arange(100, 120)  # of these A has no label
GAMMA, L2 = 0.1, 0.02


def parties(y=None, rows=N):
    y = Y.astype(object) if y is None else y
    y[UNKNOWN] = None
    bank = cn.Party("bank", X_A[:rows], y[:rows], ids=np.arange(rows))
    return bank, cn.Party("shop", X_B[N - COMMON : rows], ids=np.arange(N - COMMON, rows))


def networks(bias=True):
    torch.manual_seed(8)
    return {
        name: nn.Sequential(nn.Linear(inputs, 6), nn.Tanh(), nn.Linear(6, WIDTH, bias=bias)).double()
        for name, inputs in (("bank", 4), ("shop", 5))
    }


def algorithm(Q=4, order="parallel", epochs=3, **more):
    given = {"step": 0.3, "schedule": "constant", "tol": None}
    return cn.FedBCD(local_steps=Q, order=order, epochs=epochs, **(given | more))


def fit(given=None, how=None, people=None, **options):
    options = {"gamma": GAMMA, "l2": L2, "protection": "masked"} | options
    model = cn.TransferClassifier(given or networks(), algorithm=how or algorithm(), verbose=0, **options)
    return model.fit(*(people or parties()))


def twin(given, Q, order, alignment, epochs=3, eta=0.3, proximal=0.0):
    """The last layers' trajectory, row by row in plain numpy."""
    common = np.arange(N - COMMON, N)
    y = np.where(np.isin(common, UNKNOWN), 0.0, Y[common])
    known, anchors = (y != 0).sum(), np.setdiff1d(np.arange(N), UNKNOWN)

    def features(module, X):
        h = module[:-1](torch.from_numpy(X)).detach().numpy()
        return h if module[-1].bias is None else np.column_stack([h, np.ones(len(h))])

    def weights(module):
        parts = [module[-1].weight.detach().numpy().T]
        return np.concatenate(parts if module[-1].bias is None else [*parts, module[-1].bias.detach().numpy()[None]])

    a, b = given.values()
    H_A, H_B, all_A = features(a, X_A[common]), features(b, X_B[common]), features(a, X_A[anchors])
    W_A, W_B = weights(a), weights(b)

    def phi():
        return (Y[anchors][:, None] * (all_A @ W_A)).mean(axis=0)

    def slopes(u_b, Phi):
        return np.where(y == 0, 0.0, u_b @ Phi / 4 - y / 2) / known

    def apart(one, other):
        return GAMMA / COMMON * (2 * (one - other) if alignment == "distance" else -other)

    for _ in range(epochs):
        first_A, first_B = W_A, W_B
        u_a, u_b, Phi = H_A @ W_A, H_B @ W_B, phi()
        for _ in range(Q):
            through = u_b.T @ slopes(u_b, phi())
            gradient = H_A.T @ apart(H_A @ W_A, u_b) + np.outer((Y[anchors] @ all_A) / len(anchors), through)
            W_A = W_A - eta * (gradient + L2 * W_A + proximal * (W_A - first_A))
        if order == "sequential":
            u_a, Phi = H_A @ W_A, phi()
        for _ in range(Q):
            now = H_B @ W_B
            gradient = H_B.T @ (np.outer(slopes(now, Phi), Phi) + apart(now, u_a))
            W_B = W_B - eta * (gradient + L2 * W_B + proximal * (W_B - first_B))
    return W_A, W_B


def last(model, name):
    layer = model.modules_[name][-1]
    parts = [layer.weight.detach().numpy().T]
    return np.concatenate(parts if layer.bias is None else [*parts, layer.bias.detach().numpy()[None]])


@pytest.mark.parametrize(
    ("Q", "order", "alignment", "bias", "proximal"),
    [
        (1, "parallel", "distance", True, 0.0),
        (4, "parallel", "distance", True, 0.1),
        (4, "sequential", "distance", False, 0.0),
        (4, "parallel", "product", True, 0.0),
    ],
)
def test_the_trajectory_is_that_of_plain_numbers(Q, order, alignment, bias, proximal):
    given = networks(bias)
    model = fit(given, algorithm(Q, order, proximal=proximal), alignment=alignment)
    for name, expected in zip(("bank", "shop"), twin(given, Q, order, alignment, proximal=proximal), strict=True):
        assert np.abs(last(model, name) - expected).max() < 1e-7  # 23 bits of a feature, 32 behind a number's point
        assert torch.equal(model.modules_[name][0].weight, given[name][0].weight)  # the first layer stays as it was


def test_the_objective_is_that_of_training_in_the_clear():
    still = copy.deepcopy(networks())
    for module in still.values():
        module[0].requires_grad_(False)
    plain = fit(still, algorithm(batch=COMMON), protection="plain", loss="taylor")
    encrypted = fit()
    assert encrypted.protection_ == "masked"
    # The penalty of layers that stay as they were is no part of it.
    for one, other in zip(encrypted.history_, plain.history_, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-7)
        assert np.isnan(one["metric"])  # for which single scores would have to meet single labels


def test_held_out_rows_have_a_metric_and_the_target_predicts_alone(tmp_path):
    held_out = [cn.Party("bank", X_A[:50], Y[:50]), cn.Party("shop", X_B[:50])]
    how = algorithm(10, epochs=20, step=0.05)
    model = cn.TransferClassifier(networks(), protection="masked", optimizer="adam", algorithm=how, verbose=0)
    model.fit(*parties(), validation=held_out)
    assert model.history_[-1]["validation_metric"] > 0.85
    shop = cn.Party("shop", X_B)
    model.save(tmp_path)
    assert np.array_equal(cn.load(tmp_path).decision_function(shop), model.decision_function(shop))
    assert np.mean((model.decision_function(shop) > 0) == (Y > 0)) > 0.75


def test_adaptive_steps_and_processes_give_the_same_bits():
    how = algorithm(3, schedule="adaptive", step=2.0, epochs=4)
    one, other = (fit(how=how, people=parties()) for _ in range(2))
    far = cn.TransferClassifier(networks(), gamma=GAMMA, l2=L2, protection="masked", algorithm=how, verbose=0)
    far.fit(*parties(), on=cn.Processes())
    for name in ("bank", "shop"):
        assert last(one, name).tobytes() == last(other, name).tobytes() == last(far, name).tobytes()


def test_every_message_is_declared(monkeypatch):
    record = Record(monkeypatch)
    fit()
    setting = Setting(("bank", "shop"), ("bank",), sum="encrypted", model="transfer")
    leaks = encrypted_transfer_leaks(setting, algorithm())
    assert not record.unaccounted(setting, leaks)
    kinds = {kind for _, _, kind, _ in record.letters}
    assert kinds.isdisjoint({"representations", "representations to evaluate", "signal", "labels", "scores"})
    assert record.unaccounted(setting, [leak for leak in leaks if "opened gradient" not in leak.kinds])


def test_bad_options_and_too_few_rows():
    def bad(said, *given, error=OptionError, **options):
        with pytest.raises(error, match=said):
            fit(*given, **options)

    bad("loss can't be 'logistic' with protection='masked', which trains the last layers", loss="logistic")
    bad("exchange can't be 'signals' with protection='masked'", exchange="signals")
    bad("anchors can't be 20 with protection='masked'", anchors=20)
    bad("takes all 600 rows in common at once, .*got batch=64; leave batch out", how=algorithm(batch=64))
    bad("sampling can't be 'uniform' with protection='masked'", how=algorithm(sampling="uniform"))
    ends = {**networks(), "shop": nn.Sequential(nn.Linear(5, WIDTH), nn.Tanh())}
    bad("that of party 'shop' must be nn.Linear, alone or at the end of nn.Sequential, got Tanh", ends)
    bad(
        r"400 rows in common are too few .*'bank' sees a sum over them for each of 8 .*at least 440",
        people=parties(rows=500),
    )
    rare = np.where(np.arange(N) % 60 == 0, 1.0, -1.0).astype(object)
    bad("labels of party 'bank' of rows in common hold .* can show", people=parties(rare))
    bad("training diverged", how=algorithm(30, step=1e4, epochs=30), error=TrainingDiverged)


@pytest.mark.parametrize(
    ("method", "tag", "change", "said"),
    [
        ("_moments", "second moments", lambda value: value[:-1], "shop sent .* at step 'second moments'"),
        ("_moments", "second moments", lambda value: value * np.nan, "'shop' sent NaN or infinity at step 'second mo"),
        ("_moments", "encrypted signal", lambda value: value[:-1], "'shop' must send .* bytes at step"),
        ("give", "mean representation", lambda value: value + np.inf, "'bank' sent NaN or infinity at step 'mean repr"),
        ("serve", "opened gradient", lambda value: value[:-1], "bank sent .* at step 'opened gradient'"),
        ("serve", "opened gradient", lambda value: value ^ np.uint32(1 << 31), "'opened gradient' is not what"),
        ("begin", "labelled rows", lambda value: value[:-1], "bank sent .* at step 'labelled rows'"),
        ("begin", "labelled rows", lambda value: np.eye(1, len(value), 3, np.uint8)[0], "says that 1 of 600 rows have"),
        ("begin", "encryption key", lambda value: value[:-1], "sent at step 'encryption key' what can't be"),
    ],
)  # fmt: skip
def test_messages_are_not_believed(method, tag, change, said, monkeypatch):
    """Each is changed on its way out, by the party that sends it in that part of the protocol."""
    from colonnade.runtimes.endpoint import Endpoint

    inside, original, send = [], getattr(EncryptedTransfer, method), Endpoint.send
    function = original.__func__ if method == "begin" else original

    async def wrapped(self, *args):
        inside.append(True)
        try:
            return await function(self, *args)
        finally:
            inside.pop()

    async def sent(self, to, step, value, **more):
        await send(self, to, step, change(value) if inside and step == tag else value, **more)

    monkeypatch.setattr(EncryptedTransfer, method, classmethod(wrapped) if method == "begin" else wrapped)
    monkeypatch.setattr(Endpoint, "send", sent)
    with pytest.raises(ProtocolError, match=said):
        fit()


def test_numbers_beyond_what_is_encrypted_are_named():
    given = networks()
    with torch.no_grad():
        given["shop"][-1].weight.mul_(1e9)
    with pytest.raises(ColonnadeError, match="shop"):
        fit(given)
    assert encrypted_transfer.QUADRATIC.loss == "taylor"


def test_features_in_which_one_row_stands_out_are_refused():
    """A sum over all rows of a feature that one row has is that row's number."""
    features = np.random.default_rng(0).standard_normal((600, 5))
    check_spread(features, "bank")
    check_spread(np.hstack([features, features[:, :1]]), "bank")  # a column twice says nothing of single rows
    rare = np.zeros((600, 1))
    rare[17] = 1.0
    with pytest.raises(OptionError, match="hidden features of party 'bank' are nearly those of a single row"):
        check_spread(np.hstack([features, rare]), "bank")
    mixed = np.hstack([features, rare]) @ np.random.default_rng(1).standard_normal((6, 6))
    with pytest.raises(OptionError, match="leverage"):
        check_spread(mixed, "bank")
