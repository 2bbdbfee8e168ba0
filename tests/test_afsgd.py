"""AFSGD-VP: against a slow reference, frozen blocks, and what never leaves a label holder."""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from colonnade.errors import ColonnadeWarning

RNG = np.random.default_rng(0)
N, D, STRENGTH = 240, 12, 0.02
X = RNG.standard_normal((N, D))
Y = np.where(X @ RNG.standard_normal(D) + RNG.logistic(size=N) > 0, 1, 0)


def sigma(z, y):
    return -y / (1 + np.exp(y * z))


def fit(estimator, parties, on=None, **options):
    given = {"batch": 8, "epochs": 30, "tol": None, **options}
    model = cn.LogisticRegression(l2=STRENGTH, algorithm=cn.AFSGD(estimator, **given), verbose=0)
    return model.fit(*parties, on=on)


def reference(estimator, blocks, labelled, epochs, eta):
    """Each block is updated with the rows of a batch that its owner has labels for, all from the same scores."""
    A, y = [np.column_stack([X[:, b], np.full(N, float(k == 0))]) for k, b in enumerate(blocks)], 2.0 * Y - 1
    w = [np.zeros(a.shape[1]) for a in A]
    tables = [np.zeros(a.shape) for a in A]
    count, seen, owner = labelled.sum(axis=0), np.cumsum(labelled, axis=0), np.zeros(N, dtype=int)
    for i in range(N):
        owner[i] = next(k for k in range(len(A)) if labelled[k, i] and seen[k, i] == i % count[i] + 1)
    for epoch in range(1, epochs + 1):
        if estimator == "svrg" and epoch % 2 == 0:
            z = sum(a @ v for a, v in zip(A, w, strict=True))
            tables = [(sigma(z, y) * labelled[k])[:, None] * a for k, a in enumerate(A)]
        rng = np.random.default_rng([0, epoch])
        pieces = []
        for k in range(len(A)):
            mine = rng.permutation(np.nonzero(owner == k)[0])
            pieces += np.array_split(mine, -(-len(mine) // 8))
        for i in rng.permutation(len(pieces)):
            z = sum(a[pieces[i]] @ v for a, v in zip(A, w, strict=True))
            for k, a in enumerate(A):
                has = labelled[k, pieces[i]]
                rows = pieces[i][has]
                if not len(rows):
                    continue
                g = sigma(z[has], y[rows])[:, None] * a[rows]
                average = 0.0 if estimator == "sgd" else tables[k].sum(axis=0) / labelled[k].sum()
                change = g.mean(axis=0) - (0.0 if estimator == "sgd" else tables[k][rows].mean(axis=0))
                step = eta * len(rows) / len(pieces[i])
                w[k] = w[k] - step * (change + average + STRENGTH * np.append(w[k][:-1], 0.0))
                if estimator == "saga":
                    tables[k][rows] = g
    return w


@pytest.mark.parametrize("estimator", ["sgd", "svrg", "saga"])
@pytest.mark.parametrize("everywhere", [True, False])
def test_the_synchronous_twin_is_the_reference(estimator, everywhere):
    blocks = [range(4), range(4, 8), range(8, 12)]
    labelled = np.ones((3, N), dtype=bool)
    if not everywhere:
        labelled[0, :90], labelled[1, 60:180], labelled[2] = False, False, RNG.random(N) < 0.4
        labelled[0] |= ~labelled.any(axis=0)
    parties = [
        cn.Party(f"party{k + 1}", X[:, block], np.where(labelled[k], Y.astype(object), None))
        for k, block in enumerate(blocks)
    ]
    model = fit(estimator, parties, epochs=3, step=0.2, schedule="constant", asynchronous=False)
    for (name, coef), w in zip(model.coef_.items(), reference(estimator, blocks, labelled, 3, 0.2), strict=True):
        np.testing.assert_allclose(coef, w[:-1], rtol=0, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_with_all_labels_everywhere_it_is_vfb2(asynchronous):
    """Whether the signal travels or is computed anew from the same label makes no difference to a block."""
    parties = cn.split(X, Y, into=4, active=4)
    mine = fit("saga", parties, epochs=3, asynchronous=asynchronous)
    algorithm = cn.VFB2("saga", batch=8, epochs=3, tol=None, asynchronous=asynchronous)
    other = cn.LogisticRegression(l2=STRENGTH, algorithm=algorithm, verbose=0).fit(*parties)
    assert [c.tobytes() for c in mine.coef_.values()] == [c.tobytes() for c in other.coef_.values()]


@pytest.fixture(scope="module")
def best():
    """The lowest objective that updates of all parties reach."""
    parties = cn.split(X, Y, into=4, active=4)
    central = cn.LogisticRegression(l2=STRENGTH, algorithm=cn.VFB2("saga", batch=8, epochs=80, tol=None), verbose=0)
    central.fit(*parties)
    return min(record["loss"] for record in central.history_)


@pytest.mark.parametrize("estimator", ["svrg", "saga"])
def test_with_labels_everywhere_it_reaches_the_optimum_asynchronously(estimator, best):
    model = fit(estimator, cn.split(X, Y, into=4, active=4), epochs=40)
    assert min(record["loss"] for record in model.history_) - best < 1e-6


def test_blocks_without_labels_stay_frozen_and_the_user_is_told():
    parties = cn.split(X, Y, into=4, active=2)
    with pytest.warns(ColonnadeWarning, match="parties 'party3', 'party4' hold no labels: AFSGD never updates"):
        model = fit("saga", parties, epochs=10)
    assert not model.coef_["party3"].any()
    assert not model.coef_["party4"].any()
    assert model.coef_["party1"].all()
    learnt = cn.LogisticRegression(l2=STRENGTH, algorithm=cn.VFB2("saga", batch=8), verbose=0).fit(*parties)
    assert learnt.score(*parties) > model.score(*parties) + 0.05


def test_no_signal_leaves_its_holder_and_scores_go_only_where_the_label_is():
    y = Y.astype(object)
    first, second = y.copy(), y.copy()
    first[:200], second[100:] = None, None  # no row in common but 0 to 99 and 200 to 239
    parties = [cn.Party("a", X[:, :4], first), cn.Party("b", X[:, 4:8], second), cn.Party("c", X[:, 8:], y)]
    model = fit("saga", parties, epochs=2)
    assert all("signal" not in traffic.by_step for traffic in model.traffic_.values())
    # "c" owns rows 100 to 199 alone and every other one of the rest; what it sends to "a" and "b" is what they have
    everything = cn.split(X, Y, into=[range(4), range(4, 8), range(8, 12)], active=3)
    whole = fit("saga", everything, epochs=2)
    passed_on = sum(t.by_step["total"][1] for t in model.traffic_.values())
    assert passed_on < 0.6 * sum(t.by_step["total"][1] for t in whole.traffic_.values())


def test_an_asynchronous_run_repeats_to_the_bit():
    parties = cn.split(X, Y, into=4, active=4)
    on = cn.Simulation(speeds={"party2": {"forward": 1.0, "backward": 0.3}}, seconds_per_nonzero=1e-6)
    one, two = (fit("saga", parties, on=on, epochs=3) for _ in range(2))
    assert [c.tobytes() for c in one.coef_.values()] == [c.tobytes() for c in two.coef_.values()]
    assert one.history_ == two.history_


def test_label_holders_with_a_part_of_the_rows_each():
    y = (2.0 * Y - 1).astype(object)
    first, second = y.copy(), y.copy()
    first[:100], second[150:] = None, None
    parties = [cn.Party("a", X[:, :6], first), cn.Party("b", X[:, 6:], second)]
    model = fit("svrg", parties, epochs=30)
    assert model.score(*parties) > 0.75


def test_in_processes():
    model = fit("saga", cn.split(X, Y, into=3, active=3), on=cn.Processes(), epochs=30)
    assert model.history_[-1]["loss"] < 0.4
