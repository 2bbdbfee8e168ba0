"""What either side of encrypted transfer learning sees of the other's rows, measured by attacks over a whole run."""

# ruff: noqa: E402
from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")

from torch import nn

import colonnade as cn
from colonnade.algorithms.encrypted_transfer import EncryptedTransfer
from colonnade.objective import metrics
from test_leaks import Record

N, GAMMA, ROUNDS = 600, 0.1, 12
HEARD_BY_SHOP = {
    "public key", "labelled rows", "block size", "encryption key", "mean representation", "encrypted signal",
    "opened gradient", "blinded gradient", "verdict",
}  # fmt: skip
HEARD_BY_BANK = {
    "public key", "block size", "encryption key", "second moments", "encrypted signal", "blinded gradient",
    "opened gradient", "objective",
}  # fmt: skip


def unrelated(seed):
    """Columns of the shop that know nothing of the bank's labels or columns: all that is found was in messages."""
    rng = np.random.default_rng(seed)
    X_A, X_B, y = rng.standard_normal((N, 4)), rng.standard_normal((N, 5)), rng.integers(0, 2, N)
    return cn.Party("bank", X_A, y, ids=np.arange(N)), cn.Party("shop", X_B, ids=np.arange(N))


def networks():
    torch.manual_seed(1)
    made = {"bank": nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3))}
    made["shop"] = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    return {name: module.double() for name, module in made.items()}


def train(seed, protection):
    how = cn.FedBCD(local_steps=3, step=0.5, schedule="constant", epochs=ROUNDS, batch=N, tol=None)
    options = {"gamma": GAMMA, "protection": protection, "loss": "taylor", "algorithm": how, "verbose": 0}
    return cn.TransferClassifier(networks(), **options).fit(*unrelated(seed))


def features(module, X):
    h = module[:-1](torch.from_numpy(X)).detach().numpy()
    return np.column_stack([h, np.ones(len(h))])


@pytest.fixture
def seen(monkeypatch):
    """What each party has after an exchange, in the clear: sums at both."""
    found, take, moments = {"bank": [], "shop": []}, EncryptedTransfer.take, EncryptedTransfer._moments

    async def taken(self, *args):
        found["shop"].append(await take(self, *args))
        return found["shop"][-1]

    async def summed(self):
        sums = await moments(self)
        if sums is not None:
            found["bank"].append(sums)
        return sums

    monkeypatch.setattr(EncryptedTransfer, "take", taken)
    monkeypatch.setattr(EncryptedTransfer, "_moments", summed)
    return found


def fitted(H, target):
    """The best guess of numbers of rows from their sums with H: their regression on H."""
    return H @ np.linalg.lstsq(H, target, rcond=None)[0]


def test_in_the_clear_both_sides_have_all_rows(monkeypatch):
    """The attack's other half: without encryption there is nothing to solve for."""
    record = Record(monkeypatch)
    train(0, "plain")
    bank, _ = unrelated(0)
    sent = {(me, kind): value for me, _, kind, value in record.letters}
    assert sorted(sent["bank", "labels"].tolist()) == sorted((2 * np.asarray(bank.y) - 1).tolist())
    assert sent["bank", "representations"].shape == sent["shop", "representations"].shape == (N, 3)


def test_the_shop_has_no_more_than_sums_however_many_rounds(seen, monkeypatch):
    """All that it sees in a run is one matrix, H_B'[y, H_A], times the bank's weights; a guess of labels from it is no
    better than the regression of them on columns that know nothing.
    """
    record, aucs, chance = Record(monkeypatch), [], []
    for seed in range(3):
        seen["shop"].clear()
        train(seed, "masked")
        bank, shop = unrelated(seed)
        y, modules = 2.0 * np.asarray(bank.y) - 1, networks()
        H_A, H_B = features(modules["bank"], bank.X), features(modules["shop"], shop.X)
        whole = H_B.T @ np.column_stack([y / 2, 2 * GAMMA * H_A])
        assert whole.shape == (7, 5)  # so that not everything is this matrix times something
        assert len(seen["shop"]) == ROUNDS
        for told in seen["shop"]:
            phi, sums = told[0], told[1:]
            weights = np.linalg.lstsq(whole, sums, rcond=None)[0]
            assert np.abs(whole @ weights - sums).max() < 1e-4 * np.abs(sums).max()
            # The bank's weights being unknown, the direction of Phi is what says most about the labels' part.
            guess = H_B @ np.linalg.solve(H_B.T @ H_B, sums @ phi)
        aucs.append(metrics.auc(y, guess))
        chance.append(metrics.auc(y, fitted(H_B, y)))
    assert {kind for _, to, kind, value in record.letters if to == "shop" and value is not None} == HEARD_BY_SHOP
    assert max(aucs) <= max(chance) + 0.02
    assert max(chance) < 0.62  # of 7 columns among 600 rows, which fit some noise; labels in the clear give 1


def test_the_bank_has_no_more_than_sums_however_many_rounds(seen, monkeypatch):
    record = Record(monkeypatch)
    model = train(5, "masked")
    bank, shop = unrelated(5)
    y, modules = 2.0 * np.asarray(bank.y) - 1, networks()
    X = np.column_stack([features(modules["bank"], bank.X), y])
    H_B = features(modules["shop"], shop.X)
    whole = X.T @ H_B
    assert len(seen["bank"]) == ROUNDS + 1  # and the last evaluation
    assert {kind for _, to, kind, value in record.letters if to == "bank" and value is not None} == HEARD_BY_BANK
    layer = model.modules_["shop"][-1]
    weights = np.concatenate([layer.weight.detach().numpy().T, layer.bias.detach().numpy()[None]])
    assert np.abs(seen["bank"][-1][: X.shape[1]] - whole @ weights).max() < 1e-4  # that matrix times its weights
    u = H_B @ weights
    guess = X @ np.linalg.solve(X.T @ X, seen["bank"][-1][: X.shape[1]])
    told = 1 - np.square(u - guess).sum(axis=0) / np.square(u - u.mean(axis=0)).sum(axis=0)
    assert told.max() < 0.05  # of a representation's variance; in the clear it is all of it


def test_what_is_opened_for_the_other_is_uniform(monkeypatch):
    """The party with the key opens sums under masks, whose bits are as often 0 as 1, whatever they are sums of."""
    from colonnade.crypto.lattice_products import ProductLayout

    opened, original = [], ProductLayout.open

    def noted(self, key, answer, columns):
        opened.append(original(self, key, answer, columns))
        return opened[-1]

    monkeypatch.setattr(ProductLayout, "open", noted)
    train(0, "masked")
    bits = np.unpackbits(np.concatenate([one.reshape(-1) for one in opened]).view(np.uint8)).reshape(-1, 96)
    assert len(bits) > 400
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(len(bits))
