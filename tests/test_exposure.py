"""What a party can work out of its own exact gradients, by lattice reduction, and the batches in which it can't."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import colonnade as cn
from colonnade.blocks import whole_columns
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.blocks.whole_columns import WholeColumns
from colonnade.engine import encrypted, exchange, exposure, session
from colonnade.engine.encrypted import EncryptedSignals
from colonnade.engine.exposure import EXACT_BITS, check_labels, label_bits, least_batch, shown_bits, usual_batch
from colonnade.errors import ColonnadeError, OptionError
from colonnade.families import checks, linear

ONE = cn.FedSGD(epochs=1, tol=None, step=0.1, schedule="constant")


@pytest.fixture
def opened_gradients(monkeypatch):
    """One label holder opens gradients as several do: with fewer parties there is less to look at."""
    for module in (checks, exchange, exposure, linear, session):
        monkeypatch.setattr(module, "in_shares", lambda sum_name, holders: False)


pytestmark = pytest.mark.usefixtures("opened_gradients")


@pytest.fixture
def small_batches(monkeypatch):
    """What is refused elsewhere: to see what would come of it, or because it is beside the point."""
    monkeypatch.setattr(exposure, "EXACT_BITS", 0)
    monkeypatch.setattr(session, "check_labels", lambda *_, **__: None)


def table(rows, columns, seed=0):
    """A label holder with two columns, and another party; labels that have nothing to do with either."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((rows, 2 + columns)), rng.integers(0, 2, rows)
    return [cn.Party("bank", X[:, :2], y), cn.Party("shop", X[:, 2:])]


def fit(parties, algorithm=ONE, model=cn.LogisticRegression, **options):
    options = {"sum": "encrypted", **options}
    return model(algorithm=algorithm, verbose=0, **options).fit(*parties)


# -- the attack --------------------------------------------------------------------------------------------------------


def reduced(basis, delta=0.99):
    """Lenstra, Lenstra and Lovász's reduction: whole numbers for the vectors, floats for what is decided by them."""
    vectors, near = [np.array(row, dtype=object) for row in basis], np.array(basis, dtype=float)
    across, size = np.zeros_like(near), np.zeros(len(near))  # the same vectors made orthogonal, and their squares
    k = 0
    while k < len(vectors):
        changed = True
        while changed:
            parts, changed = across[:k] @ near[k] / size[:k], False
            for j in range(k - 1, -1, -1):
                if abs(parts[j]) > 0.51 and (times := round(parts[j])):  # a little above a half: floats are near
                    vectors[k], changed = vectors[k] - times * vectors[j], True
                    parts[: j + 1] -= times * np.append(across[:j] @ near[j] / size[:j], 1.0)
            near[k] = vectors[k].astype(float)
        rest = near[k] - parts @ across[:k]
        across[k] = rest - (across[:k] @ rest / size[:k]) @ across[:k]
        size[k] = across[k] @ across[k]
        if k and size[k] < (delta - parts[-1] ** 2) * size[k - 1]:
            vectors[k], vectors[k - 1] = vectors[k - 1], vectors[k]
            near[[k, k - 1]], k = near[[k - 1, k]], k - 1
        else:
            k += 1
    return vectors


def labels_from(whole, gradient):
    """Labels of 0 and 1 with this gradient of a first batch, by the shortest vectors of a lattice; None if none shows.

    There all signals are 2^31 (1 - 2 y), so that whole^T y is known exactly.
    """
    rows, columns = whole.shape
    sums = [int(whole[:, j].sum()) for j in range(columns)]
    known = [(total - int(g) // 2**31) // 2 for total, g in zip(sums, gradient, strict=True)]
    heavy = 256  # what does not add up is long
    basis = [
        [2 * (i == k) for k in range(rows)] + [0] + [heavy * int(value) for value in whole[i]] for i in range(rows)
    ]
    basis.append([-1] * rows + [1] + [-heavy * total for total in known])
    for vector in reduced(basis):
        if all(abs(value) == 1 for value in vector[: rows + 1]) and not any(vector[rows + 1 :]):
            return np.array([(1 + value * vector[rows]) // 2 for value in vector[:rows]], dtype=int)
    return None


def first_gradient(parties, monkeypatch, algorithm=ONE):
    """(rows of the first batch, the passive party's whole numbers of them, its gradient) as that party has them."""
    seen, opened, take, unmasked = [], [], EncryptedSignals.take, encrypted.unmasked

    async def taken(self, holder, rows):
        seen.append(np.array(rows))
        return await take(self, holder, rows)

    def unblinded(*args):
        opened.append(unmasked(*args))
        return opened[-1]

    monkeypatch.setattr(EncryptedSignals, "take", taken)
    monkeypatch.setattr(encrypted, "unmasked", unblinded)
    fit(parties, algorithm)
    rows, columns = seen[0], WholeColumns(DenseColumns(parties[1].X), ones=False)
    whole = columns.part(rows)(0, columns.width).astype(np.int64).astype(object)
    return rows, whole, opened[0][:, 0]


def test_small_batches_would_show_all_labels(small_batches, monkeypatch):
    """Sixty-four rows, six columns: nobody needs more than a laptop and some seconds."""
    parties = table(64, 6)
    rows, whole, gradient = first_gradient(parties, monkeypatch)
    np.testing.assert_array_equal(labels_from(whole, gradient), parties[0].y[rows])


@pytest.mark.parametrize("algorithm", [ONE, cn.FedBCD(local_steps=5, batch=64)], ids=["no batch named", "64"])
def test_and_are_refused(algorithm, monkeypatch):
    with pytest.raises(
        OptionError, match=r"batches of 64 rows of party 'bank' .* 'shop' .* 6 columns.* least 330 rows"
    ):
        first_gradient(table(64, 6), monkeypatch, algorithm)


@pytest.mark.filterwarnings("ignore:party .* has a single column")
@pytest.mark.parametrize("columns", [1, 2])
def test_the_smallest_batch_that_is_allowed_does_not(columns, monkeypatch):
    """The same attack on the same program: if it finds labels with the right gradient, they are wrong ones."""
    parties = table(EXACT_BITS * columns, columns)
    rows, whole, gradient = first_gradient(parties, monkeypatch)
    y = parties[0].y[rows]
    assert (whole.T @ (1 - 2 * y) == [int(g) // 2**31 for g in gradient]).all()  # it has what it needs
    found = labels_from(whole, gradient)
    assert found is None or ((whole.T @ found == whole.T @ y).all() and (found == y).mean() < 0.75)


@pytest.mark.filterwarnings("ignore:party .* has a single column")
def test_other_labels_have_the_same_gradient_to_the_last_bit(monkeypatch):
    """A column, 55 rows: of some positives and some negatives, so many with equal sums can be exchanged."""
    parties = table(EXACT_BITS, 1)
    rows, whole, _ = first_gradient(parties, monkeypatch)
    y, values = parties[0].y[rows], whole[:, 0].astype(np.int64)
    chosen = [np.nonzero(y == label)[0][:15] for label in (0, 1)]
    within = np.arange(1 << 15)[:, None] >> np.arange(15) & 1  # every choice of fifteen rows
    sums = [within @ values[some] for some in chosen]
    _, *places = np.intersect1d(*sums, return_indices=True)
    assert len(places[0]) > 5  # the first is to exchange nothing
    for pair in zip(*places, strict=True):
        other = y.copy()
        for some, place in zip(chosen, pair, strict=True):
            other[some] ^= within[place]
        assert (whole.T @ other == whole.T @ y).all()


def test_the_first_batch_is_all_rows_whatever_the_seed(monkeypatch):
    """So that runs with other seeds and batches have one and the same gradient, and not one more each."""
    found, parties = [], table(400, 2)
    for seed, batch in ((0, None), (1, None), (2, 200), (3, 134)):
        with monkeypatch.context() as patch:
            chosen = cn.FedSGD(epochs=2, tol=None, step=0.1, schedule="constant", seed=seed, batch=batch)
            rows, _, gradient = first_gradient(parties, patch, chosen)
        assert sorted(rows) == list(range(400))
        found.append(gradient)
    np.testing.assert_array_equal(found, [found[0]] * 4)


def test_every_label_holder_begins_with_all_of_its_rows(monkeypatch):
    taken, take = [], EncryptedSignals.take

    async def noted(self, holder, rows):
        taken.append((holder, self.session.net.me, len(rows)))
        return await take(self, holder, rows)

    monkeypatch.setattr(EncryptedSignals, "take", noted)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((700, 4)), rng.integers(0, 2, 700)
    model = fit(cn.split(X, y, into=2, active=2), cn.FedSGD(epochs=3, batch=175, tol=None))
    assert sorted(taken[:2]) == [("party1", "party2", 350), ("party2", "party1", 350)]
    assert {one for _, _, one in taken[2:]} == {175}
    assert model.rounds_ == len(taken) == 2 + 2 * 4


# -- rules -------------------------------------------------------------------------------------------------------------


def test_how_many_rows_a_batch_needs():
    assert (encrypted.FRACTION_BITS, whole_columns.VALUE_BITS) == (exposure.SIGNAL_BITS, exposure.VALUE_BITS)
    assert [least_batch(columns) for columns in (0, 1, 15)] == [0, 55, 825]
    assert least_batch(15, outputs=2) == 825
    assert least_batch(15, outputs=4) == math.ceil(825 * 3 / 2)  # three gradients a column, two bits a label
    for columns in (1, 2, 15, 40):
        for rows in (*range(1, 200), 824, 825, 1649, 1650, 2474, 2475, 100_000):
            batch = usual_batch({"bank": 90, "shop": columns}, ("bank",), 1, rows)
            least = max(64, least_batch(columns))
            pieces = np.array_split(np.arange(rows), -(-rows // batch))
            assert min(map(len, pieces)) >= min(rows, least)


def test_breast_cancer_is_too_small():
    """569 rows and 15 columns at the other party: the batch of all rows would not do either."""
    with pytest.raises(
        OptionError, match=r"of its 15 columns.* at least 825 rows: the 569 rows .* are too few, so give"
    ):
        fit(table(569, 15), "auto")


def test_batches_are_looked_at_as_they_are_cut():
    """Of 1,000 rows, batches of 825 at most are two of 500."""
    parties = table(1000, 10)
    with pytest.raises(OptionError, match=r"batches of 500 rows .* at least 550 rows: set batch to 1000, or leave it"):
        fit(parties, cn.FedSGD(batch=825))
    assert fit(parties, replace(ONE, batch=1000)).rounds_ == 1
    with pytest.raises(OptionError, match="batch must be at most the 1000 rows, got 1100"):
        fit(parties, cn.FedSGD(batch=1100))


def test_the_only_label_holder_may_have_any_number_of_columns():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((120, 32)), rng.integers(0, 2, 120)
    fit([cn.Party("bank", X[:, :30], y), cn.Party("shop", X[:, 30:])])
    # but not where there is another one, for whose rows it is like everybody else
    with pytest.raises(OptionError, match=r"batches of 60 rows of party 'shop' .* party 'bank' .* its 31 columns"):
        fit([cn.Party("bank", X[:, :30], y), cn.Party("shop", X[:, 30:], y)])


def test_classes_ask_for_more():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((240, 4)), rng.integers(0, 4, 240)
    parties = cn.split(X, y, into=2)
    fit(cn.split(X, y > 1, into=2), ONE)
    fit(parties, ONE, model=cn.SoftmaxRegression)
    with pytest.raises(OptionError, match=r"its 2 columns and 4 classes, which are exact.* at least 165 rows"):
        fit(parties, cn.FedSGD(batch=120), model=cn.SoftmaxRegression)


def test_rare_labels_are_refused_by_who_holds_them():
    """Of two positives in 300 rows every party finds which they are: 300 · 299 / 2 sums are soon tried."""
    parties = table(300, 2)
    rare = np.zeros(300, dtype=int)
    rare[[7, 200]] = 1
    with pytest.raises(ColonnadeError, match=r"the 300 labels of party 'bank' hold 15 bits, as the rarest .* 2 times"):
        fit([cn.Party("bank", parties[0].X, rare), parties[1]])
    rare[:60] = 1
    fit([cn.Party("bank", parties[0].X, rare), parties[1]])


def test_what_labels_hold_and_gradients_show():
    assert label_bits(np.array([0.0, 0.0, 1.0, 1.0])) == pytest.approx(math.log2(6))
    assert label_bits(np.ones(9)) == pytest.approx(0.0)
    # as many bits as the entropy of sums of values of 23 bits, times 0 or 1
    y = np.arange(400) % 2.0
    normal = 0.5 * math.log2(2 * math.pi * math.e * 100)
    assert shown_bits(y, 1, 1, classes=True) == pytest.approx(normal + 23, abs=1e-6)
    assert shown_bits(y, 3, 5, classes=True) == pytest.approx(12 * shown_bits(y, 1, 1, classes=True))
    assert shown_bits(y, 1, 1, classes=False) == pytest.approx(shown_bits(y, 1, 1, classes=True))
    assert shown_bits(y / 3, 1, 1, classes=False) > shown_bits(y, 1, 1, classes=False) + 30
    assert shown_bits(y, 0, 1, classes=True) == 0.0
    with pytest.raises(OptionError, match="the 400 labels of party 'bank' hold 0 bits"):
        check_labels("bank", np.zeros(400), {"bank": 9, "shop": 1}, 1, classes=True)
    check_labels("bank", y, {"bank": 900, "shop": 5}, 1, classes=True)


def test_real_labels_and_counts_are_allowed():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 4))
    fit(cn.split(X, rng.standard_normal(120), into=2), ONE, model=cn.RidgeRegression)
    fit(cn.split(X, rng.poisson(1.0, 120), into=2), ONE, model=cn.PoissonRegression)
