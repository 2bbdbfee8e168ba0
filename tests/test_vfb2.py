"""VFB²: the synchronous twin against a slow reference, asynchrony as ordinary repeatable tests."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import colonnade as cn
from colonnade.errors import OptionError, PartySilent
from colonnade.objective.penalties import L2
from tables import by_turns

RNG = np.random.default_rng(0)
N, D, STRENGTH = 240, 12, 0.02
X = RNG.standard_normal((N, D))
X[:, 3:][RNG.random((N, D - 3)) < 0.6] = 0.0  # so that columns of CSR blocks wait for their dense terms
Y = np.where(X @ RNG.standard_normal(D) + RNG.logistic(size=N) > 0, 1, 0)


def sigma(z, y):
    return -y / (1 + np.exp(y * z))


def objective(model, parties):
    z = model.decision_function(*parties)
    w = np.concatenate(list(model.coef_.values()))
    return np.logaddexp(0, -(2 * Y - 1) * z).mean() + STRENGTH / 2 * w @ w


def optimum():
    from scipy.optimize import minimize

    def f(w):
        z, y = X @ w[:-1] + w[-1], 2.0 * Y - 1
        s = sigma(z, y) / N
        return np.logaddexp(0, -y * z).mean() + STRENGTH / 2 * w[:-1] @ w[:-1], np.append(
            X.T @ s + STRENGTH * w[:-1], s.sum()
        )

    return minimize(f, np.zeros(D + 1), jac=True, method="BFGS", options={"gtol": 1e-10}).fun


def fit(estimator, parties, on=None, **options):
    given = {"batch": 8, "epochs": 30, "tol": None, **options}
    model = cn.LogisticRegression(l2=STRENGTH, algorithm=cn.VFB2(estimator, **given), verbose=0)
    return model.fit(*parties, on=on)


def bits(model):
    return {name: coef.tobytes() for name, coef in model.coef_.items()}


def reference(estimator, holders, epochs, eta, seed=0, batch=8, uniform=False, every=2, table_at_start=False):
    """Algorithms 1 to 3 one after another in one place, with a table of gradients."""
    A, y = np.column_stack([X, np.ones(N)]), 2.0 * Y - 1
    w, table, penalty = np.zeros(D + 1), np.zeros((N, D + 1)), L2(STRENGTH)
    owner = np.arange(N) % holders
    for epoch in range(1, epochs + 1):
        if (estimator == "svrg" and epoch % every == 0) or (table_at_start and epoch == 1):
            table = sigma(A @ w, y)[:, None] * A
        rng = np.random.default_rng([seed, epoch])
        pieces = []
        for h in range(holders):
            mine = rng.permutation(np.nonzero(owner == h)[0])
            pieces += np.array_split(mine, -(-len(mine) // batch))
        draw = np.random.default_rng([seed, epoch, 1])
        for i in rng.permutation(len(pieces)) if holders > 1 else range(len(pieces)):
            rows = pieces[i]
            if uniform:
                rows = draw.choice(np.nonzero(owner == owner[rows[0]])[0], len(rows), replace=False)
            g = sigma(A[rows] @ w, y[rows])[:, None] * A[rows]
            average = 0.0 if estimator == "sgd" else table.mean(axis=0)
            change = g.mean(axis=0) - (0.0 if estimator == "sgd" else table[rows].mean(axis=0))
            w = w - eta * (change + average + np.append(penalty.gradient(w[:-1]), 0.0))
            if estimator == "saga":
                table[rows] = g
    return w


@pytest.mark.parametrize(
    ("estimator", "more"),
    [("sgd", {}), ("svrg", {}), ("svrg", {"snapshot_every": 1}), ("saga", {}), ("saga", {"table": "start"})],
)
@pytest.mark.parametrize("holders", [1, 3])
def test_the_synchronous_twin_is_the_reference(estimator, more, holders):
    parties = cn.split(X, Y, into=4, active=holders)
    options = {"epochs": 3, "step": 0.2, "schedule": "constant", "asynchronous": False}
    model = fit(estimator, parties, **options, **more)
    w = reference(estimator, holders, 3, 0.2, every=more.get("snapshot_every", 2), table_at_start="table" in more)
    np.testing.assert_allclose(np.concatenate(list(model.coef_.values())), w[:-1], rtol=0, atol=1e-9)
    assert model.intercept_ == pytest.approx(w[-1], rel=0, abs=1e-9)


@pytest.mark.parametrize("estimator", ["sgd", "svrg", "saga"])
@pytest.mark.parametrize("holders", [1, 3])
def test_independent_batches_are_the_reference(estimator, holders):
    """Also SVRG, whose snapshot is of all rows whatever the batches are."""
    parties = cn.split(X, Y, into=4, active=holders)
    options = {"epochs": 4, "step": 0.2, "schedule": "constant", "asynchronous": False, "sampling": "uniform"}
    model = fit(estimator, parties, **options)
    w = reference(estimator, holders, 4, 0.2, uniform=True)
    np.testing.assert_allclose(np.concatenate(list(model.coef_.values())), w[:-1], rtol=0, atol=1e-9)
    assert model.intercept_ == pytest.approx(w[-1], abs=1e-9)


def test_asynchronous_training_on_independent_batches_reaches_the_optimum():
    parties = cn.split(X, Y, into=4, active=2)
    model = fit("saga", parties, epochs=60, sampling="uniform")
    assert objective(model, parties) - optimum() < 1e-6


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("estimator", ["saga", "svrg"])
@pytest.mark.parametrize("rounds", [1, 30, 31, 61, 65])
def test_rounds_are_a_limit_of_exchanges(asynchronous, estimator, rounds):
    """An epoch has 30; SVRG's snapshot of two more is left out where nothing could follow it."""
    model = fit(estimator, cn.split(X, Y, into=3), asynchronous=asynchronous, rounds=rounds)
    assert model.rounds_ == rounds
    assert model.history_[-1]["rounds"] == rounds  # what was done is judged


@pytest.mark.parametrize("sum_", ["pairwise", "two-trees", "plain"])
@pytest.mark.parametrize("topology", ["tree", "star", "ring"])
def test_asynchronous_training_under_every_sum_and_topology(sum_, topology):
    """Several holders ask at once, masks fit whatever the order: no round is lost and the model is good."""
    parties = cn.split(X, Y, into=5, active=3)
    model = cn.LogisticRegression(
        l2=STRENGTH, sum=sum_, topology=topology, algorithm=cn.VFB2("saga", batch=8, epochs=6, tol=None), verbose=0
    ).fit(*parties)
    assert objective(model, parties) - optimum() < 5e-3
    assert {traffic.rounds for traffic in model.traffic_.values()} == {6 * 30}  # everybody saw every exchange


WAYS = [("svrg", {}), ("svrg", {"snapshot_every": 3}), ("saga", {}), ("saga", {"table": "start"})]


@pytest.mark.parametrize(("way", "sparse"), by_turns(WAYS, (False, True)))
def test_asynchronous_training_reaches_the_optimum(way, sparse):
    estimator, more = way
    parties = cn.split(sp.csr_matrix(X) if sparse else X, Y, into=4, active=2)
    model = fit(estimator, parties, epochs=60, **more)
    assert objective(model, parties) - optimum() < 1e-6


def test_an_asynchronous_run_repeats_to_the_bit():
    parties = cn.split(X, Y, into=4, active=2)
    on = cn.Simulation(latency={("party1", "party2"): 0.01}, speeds={"party3": 0.3}, seconds_per_nonzero=1e-6)
    one, two = (fit("saga", parties, on=on, epochs=4) for _ in range(2))
    assert bits(one) == bits(two)
    assert one.history_ == two.history_
    assert bits(fit("saga", parties, on=on, epochs=4, seed=1)) != bits(one)
    elsewhere = cn.Simulation(speeds={"party2": 0.3}, seconds_per_nonzero=1e-6)
    assert bits(fit("saga", parties, on=elsewhere, epochs=4)) != bits(one)  # another order of events


def test_parties_without_labels_learn():
    """Backward updating: every block moves, also where nobody has a label."""
    model = fit("sgd", cn.split(X, Y, into=4), epochs=2)
    assert all(np.abs(coef).min() > 0 for coef in model.coef_.values())


SLOW = cn.Simulation(speeds={"party4": {"forward": 1.0, "backward": 0.02}}, seconds_per_nonzero=1e-5, latency=1e-4)


@pytest.mark.parametrize("estimator", ["sgd", "svrg", "saga"])
def test_nobody_waits_for_a_party_that_falls_behind(estimator):
    """It takes fewer rows of each batch and drops what is still too much; its memory is its own, so it ends close."""
    parties = cn.split(X, Y, into=4, active=2)
    slow, even = (fit(estimator, parties, on=on, epochs=10) for on in (SLOW, cn.Simulation()))
    flow = [record["staleness"] for record in slow.history_[1:]]
    assert sum(at["party4"]["dropped"] for at in flow) > 0
    assert all(at["party4"]["used"] < 0.5 for at in flow[1:])
    assert not any(at[name]["dropped"] for at in flow for name in ("party1", "party2", "party3"))
    assert all(at[name]["used"] == 1.0 for at in flow for name in ("party1", "party2", "party3"))
    regular = [at for record in even.history_[1:] for at in record["staleness"].values()]
    assert not any(at["dropped"] for at in regular)
    assert objective(slow, parties) - objective(even, parties) < 0.02
    twin = fit(estimator, parties, on=SLOW, epochs=10, asynchronous=False)
    assert twin.history_[-1]["time"] > 3 * slow.history_[-1]["time"]


@pytest.mark.parametrize(("estimator", "sparse"), by_turns(("svrg", "saga"), (False, True)))
def test_a_straggler_reaches_the_optimum_too(estimator, sparse):
    parties = cn.split(sp.csr_matrix(X) if sparse else X, Y, into=4, active=2)
    third = cn.Simulation(speeds={"party4": {"forward": 1.0, "backward": 1 / 3}}, seconds_per_nonzero=1e-5)
    assert objective(fit(estimator, parties, on=third, epochs=80), parties) - optimum() < 1e-6


def test_staleness_is_bounded_and_reported():
    """Where messages take long, as many batches as may be are under way, and no more."""
    parties = cn.split(X, Y, into=4, active=2)
    for on, bound in ((SLOW, 2), (SLOW, 8), (cn.Simulation(latency=0.1), 2), (cn.Simulation(latency=0.1), 6)):
        model = fit("saga", parties, on=on, epochs=3, max_staleness=bound)
        seen = [r["staleness"][name] for r in model.history_[1:] for name in model.parties_]
        assert max(s["max"] for s in seen) <= 2 * bound
        assert on is SLOW or max(s["max"] for s in seen) >= bound - 1
        assert all(s["mean"] <= s["p95"] <= s["max"] for s in seen)


def test_who_looks_often_does_not_shrink_the_step_more_often():
    parties = cn.split(X, Y, into=4, active=2)
    for estimator in ("svrg", "saga"):
        assert objective(fit(estimator, parties, epochs=60, evaluate_every=3), parties) - optimum() < 1e-6


# -- deadlines and failures --------------------------------------------------------------------------------------------


def test_a_long_pass_over_one_holders_rows_is_no_silence():
    """SVRG's snapshot asks one holder after another: nobody waits for the last one while the first is at work."""
    parties = cn.split(X, Y, into=3, active=3)
    on = cn.Simulation(seconds_per_nonzero=0.1, deadline=60.0)  # a whole pass takes longer than the deadline
    for asynchronous in (True, False):
        model = fit("svrg", parties, on=on, epochs=2, asynchronous=asynchronous)
        assert model.history_[-1]["time"] > 3 * on.deadline


@pytest.mark.parametrize("on", [cn.Simulation(latency=1.0), cn.Processes(deadline=6.0, slowed={"c": 0.004})])
def test_a_holder_of_few_rows_is_not_silent_while_others_are_at_work(on):
    y = Y.astype(object)
    first, second = y.copy(), y.copy()
    first[-4:], second[:-4] = None, None
    parties = [cn.Party("a", X[:, :4], first), cn.Party("b", X[:, 4:8], second), cn.Party("c", X[:, 8:])]
    model = fit("saga", parties, on=on, epochs=2, batch=2)
    assert model.history_[-1]["time"] > on.deadline


@pytest.mark.parametrize("parties", [(4, 2), (5, 3)])
@pytest.mark.parametrize("make", [cn.VFB2, cn.AFSGD])
@pytest.mark.parametrize("estimator", ["svrg", "saga"])
@pytest.mark.filterwarnings("ignore:.*hold no labels")
def test_a_crash_names_the_party(make, estimator, parties):
    """Whoever it is and whenever it is, though everybody waits for several others at once."""
    cut = cn.split(X, Y, into=parties[0], active=parties[1])
    for k, party in enumerate(cut):
        for at in (0.004, 0.02, 0.031 + 0.007 * k):
            on = cn.Simulation(faults=cn.Faults(crashes={party.name: at}), deadline=5)
            algorithm = make(estimator, batch=8, epochs=30, tol=None, max_staleness=1 + k % 2)
            with pytest.raises(PartySilent, match=f"party {party.name!r} was silent") as caught:
                cn.LogisticRegression(algorithm=algorithm, verbose=0).fit(*cut, on=on)
            for name, outcome in caught.value.outcomes.items():
                assert name == party.name or outcome.error.party == party.name


def test_long_names():
    names = ["the-statistical-office-of-a-country-with-a-very-long-name-" + end for end in "abcd"]
    parties = [cn.Party(name, X[:, 3 * k : 3 * k + 3], Y if k < 2 else None) for k, name in enumerate(names)]
    for estimator in ("svrg", "saga"):
        model = fit(estimator, parties, epochs=2)
        assert model.parties_ == tuple(names)
        assert objective(model, parties) < np.log(2)  # of a model that knows nothing


# -- where it runs -----------------------------------------------------------------------------------------------------


def test_in_processes():
    parties = cn.split(X, Y, into=3, active=2)
    model = fit("saga", parties, on=cn.Processes(), epochs=40)
    assert objective(model, parties) - optimum() < 5e-3


@pytest.mark.parametrize(("estimator", "sparse"), by_turns(("svrg", "saga"), (False, True)))
def test_threads_within_a_party(estimator, sparse):
    """Parallel updates without locks lose a little now and then, and still end at the optimum."""
    parties = cn.split(sp.csr_matrix(X) if sparse else X, Y, into=2, active=2)
    model = fit(estimator, parties, on=cn.Processes(), epochs=40, threads=3)
    assert objective(model, parties) - optimum() < 5e-3
    with_clock = fit(estimator, parties, epochs=20, threads=3)
    assert objective(with_clock, parties) - optimum() < 5e-3


def test_evaluations_within_an_epoch_and_an_end_by_the_clock():
    parties = cn.split(X, Y, into=3, active=2)
    for asynchronous in (True, False):
        often = fit("saga", parties, epochs=2, evaluate_every=7, asynchronous=asynchronous)
        assert [r["epoch"] for r in often.history_] == [0] + [1] * 5 + [2] * 5
        assert [r["rounds"] for r in often.history_[1:6]] == [7, 14, 21, 28, 30]
        half = often.history_[-1]["time"] / 2
        short = fit("saga", parties, epochs=2, evaluate_every=7, asynchronous=asynchronous, seconds=half)
        ended = len(short.history_)
        assert short.history_ == often.history_[:ended]
        assert short.history_[-2]["time"] < half <= short.history_[-1]["time"] + 1e-9
        goal = often.history_[6]["loss"] + 1e-9
        good = fit("saga", parties, epochs=2, evaluate_every=7, asynchronous=asynchronous, goal=goal)
        first = next(i for i, record in enumerate(often.history_) if record["loss"] <= goal)
        assert good.history_ == often.history_[: first + 1]


def test_columns_that_never_occur_change_nothing():
    """A hashing trick: few of many columns have numbers. Validation rows have some in columns of their own."""
    wide = sp.lil_matrix((N, 20 * D))
    places = np.sort(RNG.permutation(20 * D)[:D])
    wide[:, places] = X
    other = wide[:50].tocsr().tolil()
    free = np.setdiff1d(np.arange(20 * D), places)
    other[:, free[::7]] = 3.0
    cut = [(places < 10 * D).nonzero()[0], (places >= 10 * D).nonzero()[0]]
    narrow = [cn.Party("a", sp.csr_matrix(X[:, cut[0]]), Y), cn.Party("b", sp.csr_matrix(X[:, cut[1]]))]
    broad = [cn.Party("a", wide[:, : 10 * D].tocsr(), Y), cn.Party("b", wide[:, 10 * D :].tocsr())]
    held = [cn.Party("a", other[:, : 10 * D].tocsr(), Y[:50]), cn.Party("b", other[:, 10 * D :].tocsr())]
    held_narrow = [cn.Party("a", narrow[0].X[:50], Y[:50]), cn.Party("b", narrow[1].X[:50])]
    for on in (None, cn.Processes()):
        algorithm = cn.VFB2("saga", batch=8, epochs=4, tol=None, asynchronous=False)
        one, two = (
            cn.LogisticRegression(l2=STRENGTH, algorithm=algorithm, verbose=0).fit(*parties, validation=rows, on=on)
            for parties, rows in ((narrow, held_narrow), (broad, held))
        )
        assert two.coef_["a"].shape == (10 * D,)
        everything = np.concatenate(list(two.coef_.values()))
        assert everything[places].tobytes() == np.concatenate(list(one.coef_.values())).tobytes()
        assert not everything[free].any()
        assert one.history_[-1]["validation_loss"] == two.history_[-1]["validation_loss"]


def test_validation_rows_may_be_dense_where_training_rows_are_sparse():
    """Also where most training columns are empty, and are left out."""
    wide = np.zeros((N, 5 * D))
    wide[:, ::5] = X
    train = cn.split(sp.csr_matrix(wide), Y, into=2)
    dense, sparse = (
        fit_with_validation(train, cn.split(kind(wide[:60]), Y[:60], into=2)) for kind in (np.asarray, sp.csr_matrix)
    )
    for one, two in zip(dense, sparse, strict=True):
        assert one["validation_loss"] == pytest.approx(two["validation_loss"], rel=1e-12)
    assert dense[-1]["validation_loss"] < dense[0]["validation_loss"]
    empty = [cn.Party("party1", sp.csr_matrix(wide[:, :6]), Y), cn.Party("party2", sp.csr_matrix((N, 4)))]
    held_out = [cn.Party("party1", wide[:60, :6], Y[:60]), cn.Party("party2", np.ones((60, 4)))]
    assert np.isfinite(fit_with_validation(empty, held_out)[-1]["validation_loss"])


def fit_with_validation(train, validation):
    algorithm = cn.VFB2("saga", batch=8, epochs=4, tol=None)
    return cn.LogisticRegression(algorithm=algorithm, verbose=0).fit(*train, validation=validation).history_


def test_softmax_and_the_nonconvex_penalty():
    labels = np.digitize(X[:, 0] + X[:, 5], [-0.7, 0.7])
    parties = cn.split(X, labels, into=3, active=2)
    model = cn.SoftmaxRegression(
        algorithm=cn.VFB2("saga", batch=8, epochs=20, tol=None), penalty="nonconvex", verbose=0
    )
    assert model.fit(*parties).score(*parties) > 0.9


def test_the_papers_step_sizes_and_alone_in_a_process():
    parties = cn.split(X, Y, into=3)
    losses = {
        schedule: fit("sgd", parties, epochs=2, step=0.3, schedule=schedule).history_[-1]["loss"]
        for schedule in ("constant", "sqrt", "sqrt-parties")
    }
    assert len(set(losses.values())) == 3
    alone = [cn.Party("a", X, Y)]
    one, two = (fit("saga", alone, on=on, epochs=5) for on in (None, cn.Processes()))
    assert bits(one) == bits(two)  # alone, nothing is asynchronous


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: cn.VFB2("adam"), "estimator must be one of 'sgd', 'svrg', 'saga', got 'adam'"),
        (lambda: cn.VFB2(max_staleness=0), "max_staleness must be >= 1 with asynchronous=True, got 0"),
        (lambda: cn.VFB2(max_staleness=-1, asynchronous=False), "max_staleness must be >= 0, got -1"),
        (lambda: cn.VFB2(threads=0), "threads must be >= 1, got 0"),
        (lambda: cn.VFB2(threads=2, asynchronous=False), "threads must be 1 with asynchronous=False, got 2"),
        (lambda: cn.VFB2("sgd", snapshot_every=3), "snapshot_every is SVRG's, got 3 with estimator='sgd'; leave"),
        (lambda: cn.AFSGD("saga", snapshot_every=1), "snapshot_every is SVRG's, got 1 with estimator='saga'"),
        (lambda: cn.VFB2(seconds=0), "seconds must be > 0, got 0"),
        (lambda: cn.VFB2(goal=float("nan")), "goal must be a finite number, got nan"),
        (lambda: cn.VFB2(batch=0), "batch must be >= 1, got 0"),
    ],
)
def test_options_are_refused_in_one_sentence(make, sentence):
    with pytest.raises(OptionError, match=sentence):
        make()
