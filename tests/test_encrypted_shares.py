"""Encrypted training with one label holder: coefficients in two shares, and no gradient opened to anybody."""

from __future__ import annotations

import secrets
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

import colonnade as cn
from colonnade.crypto.lattice_products import ProductLayout
from colonnade.engine import shared_coefficients as shared
from colonnade.engine.exposure import usual_batch
from colonnade.engine.shared_coefficients import MODULUS, CoefficientShare, numbers_of, scaled, signed
from colonnade.errors import ColonnadeError, OptionError, RunFailed
from colonnade.families.training import train
from tables import by_turns
from test_encrypted import Lying, other_key, transcripts
from test_kept import Shelf
from training_programs import linear_job, part_of

RNG = np.random.default_rng(0)
N = 100
X = RNG.standard_normal((N, 9)) * [1, 1, 1, 3, 0.01, 1, 1, 50, 1]
X[:, 1] = RNG.integers(0, 2, N)
X[RNG.random(X.shape) < 0.2] = 0.0
SCALED = X / [1, 1, 1, 3, 0.01, 1, 1, 50, 1]
Z = SCALED @ RNG.standard_normal(9) + RNG.logistic(size=N)


def fit(parties, algorithm, model=cn.LogisticRegression, **options):
    options = {"sum": "encrypted", "l2": 1e-3, **options}
    return model(algorithm=algorithm, verbose=0, **options).fit(*parties)


# -- the weights -------------------------------------------------------------------------------------------------------


def test_weights_are_those_of_a_few_lines_of_numpy():
    """Forty epochs of plain gradient descent on mini-batches, as one would write it down."""
    epochs, eta, l2, y = 40, 0.3, 1e-3, np.where(Z > 0, 1.0, -1.0)
    theta, intercept = np.zeros(9), 0.0
    for epoch in range(1, epochs + 1):
        for rows in np.array_split(np.random.default_rng([7, epoch]).permutation(N), 5):
            z = SCALED[rows] @ theta + intercept
            s = -y[rows] / (1.0 + np.exp(y[rows] * z))
            theta = theta - eta * (SCALED[rows].T @ s / len(rows) + l2 * theta)
            intercept -= eta * s.mean()
    algorithm = cn.FedSGD(batch=20, epochs=epochs, tol=None, step=eta, schedule="constant", seed=7)
    model = fit(cn.split(SCALED, Z > 0, into=3), algorithm)
    np.testing.assert_allclose(np.concatenate([*model.coef_.values()]), theta, atol=1e-8, rtol=0)
    assert model.intercept_ == pytest.approx(intercept, abs=1e-8)
    objective = np.log1p(np.exp(-y * (SCALED @ theta + intercept))).mean() + 0.5 * l2 * theta @ theta
    assert model.history_[-1]["loss"] == pytest.approx(objective, rel=1e-9)


BCD = cn.FedBCD(local_steps=5, batch=20, epochs=5, tol=None, step=0.02, schedule="constant")
CASES = {
    "FedSGD": (2, cn.FedSGD(batch=20, epochs=5, tol=None, step=0.1, schedule="constant"), {}),
    "FedSGD, tiny batches": (2, cn.FedSGD(batch=3, epochs=2, tol=None), {}),
    "FedBCD-p": (2, BCD, {}),
    "FedBCD-p, adaptive": (3, cn.FedBCD(local_steps=5, batch=20, epochs=8, tol=None), {}),
    "FedPBCD-p": (3, cn.FedBCD(local_steps=5, proximal=0.3, batch=20, epochs=5, tol=None, step=0.02), {}),
    "FedBCD-s": (2, cn.FedBCD(local_steps=3, order="sequential", batch=20, epochs=5, tol=None), {}),
    "FedBCD-s, four parties": (
        4, cn.FedBCD(local_steps=3, order="sequential", proximal=0.1, batch=20, epochs=3, tol=None), {},
    ),
    "FedBCD-s in one exchange": (
        4, cn.FedBCD(local_steps=3, order="sequential-once", schedule="sqrt", decay="step", step=0.1, batch=20,
                     epochs=3, rounds=11, sampling="uniform", tol=None), {},
    ),
    "no penalty": (2, BCD, {"l2": 0.0}),
    "svm": (2, BCD, {"model": cn.LinearSVC}),
    "ridge": (2, BCD, {"model": cn.RidgeRegression}),
    "poisson": (2, cn.FedSGD(batch=20, epochs=5, tol=None), {"model": cn.PoissonRegression}),
    "softmax": (3, BCD, {"model": cn.SoftmaxRegression, "classes": 4}),
    "more classes than columns": (2, BCD, {"model": cn.SoftmaxRegression, "classes": 14}),
}  # fmt: skip


def labels_for(model, classes=2):
    if model is cn.RidgeRegression:
        return 1e6 * Z
    if model is cn.PoissonRegression:
        return np.floor(np.exp(0.3 * Z))
    return np.digitize(Z, np.quantile(Z, np.arange(1, classes) / classes))


@pytest.mark.filterwarnings("ignore:.*standardise the columns", "ignore:order='sequential'")
@pytest.mark.parametrize(("case", "kind"), by_turns(CASES, ("dense", "csr")))
def test_the_weights_are_those_of_the_plain_run(case, kind):
    """Columns of very different sizes; the same batches, now that the first epoch is none of its own."""
    into, algorithm, options = CASES[case]
    options = dict(options)
    y = labels_for(options.get("model"), options.pop("classes", 2))
    columns = X if algorithm.step == "auto" else SCALED
    parties = cn.split(sp.csr_matrix(columns) if kind == "csr" else columns, y, into=into)
    hidden, plain = (fit(parties, algorithm, sum=sum_, **options) for sum_ in ("encrypted", "pairwise"))
    assert hidden.rounds_ == plain.rounds_
    size = max(1.0, np.abs(np.concatenate([one.ravel() for one in plain.coef_.values()])).max())
    for name in plain.parties_:
        np.testing.assert_allclose(hidden.coef_[name], plain.coef_[name], atol=1e-7 * size, rtol=0)
    np.testing.assert_allclose(hidden.intercept_, plain.intercept_, atol=1e-7 * size, rtol=0)
    losses = [[record["loss"] for record in model.history_] for model in (hidden, plain)]
    np.testing.assert_allclose(*losses, rtol=1e-6)  # a first step that overshoots makes more of small differences


def test_validation_rows_may_be_larger_than_all_that_were_trained_on():
    parties, other = (cn.split(factor * SCALED, Z > 0, into=2) for factor in (1.0, 4.0))
    algorithm = cn.FedSGD(batch=20, epochs=3, tol=None, step=0.1)
    models = [
        cn.LogisticRegression(algorithm=algorithm, sum=sum_, verbose=0).fit(*parties, validation=other)
        for sum_ in ("encrypted", "pairwise")
    ]
    losses = [[record["validation_loss"] for record in model.history_] for model in models]
    np.testing.assert_allclose(*losses, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*standardise the columns")
def test_a_party_without_a_number_in_any_row_and_one_with_very_many_columns():
    rng = np.random.default_rng(5)
    wide = sp.random(N, 3000, density=0.01, random_state=rng, format="csr")
    parties = [cn.Party("bank", SCALED[:, :3], Z > 0), cn.Party("shop", wide), cn.Party("gym", sp.csr_matrix((N, 2)))]
    algorithm = cn.FedSGD(batch=50, epochs=2, tol=None, step=0.5, schedule="constant")
    hidden, plain = (fit(parties, algorithm, sum=sum_) for sum_ in ("encrypted", "pairwise"))
    for name in plain.parties_:
        np.testing.assert_allclose(hidden.coef_[name], plain.coef_[name], atol=1e-7, rtol=0)


def test_many_columns_go_in_portions(monkeypatch):
    parties = cn.split(SCALED, Z > 0, into=2)
    algorithm = cn.FedSGD(batch=50, epochs=2, tol=None, step=0.5, schedule="constant")
    once = fit(parties, algorithm)
    assert "pace" not in once.traffic_["party2"].by_step
    monkeypatch.setattr("colonnade.crypto.lattice_products._PORTION", 1)
    monkeypatch.setattr(ProductLayout, "of", staticmethod(lambda n, outputs, _: ProductLayout(n, outputs, 2, 3, 1)))
    often = fit(parties, algorithm)
    assert often.traffic_["party2"].by_step["pace"][0] > 100
    np.testing.assert_allclose(once.coef_["party2"], often.coef_["party2"], atol=1e-9, rtol=0)


@pytest.mark.parametrize("on", [cn.Simulation(), cn.Processes()], ids=["simulation", "processes"])
def test_a_run_may_end_within_an_epoch(on):
    """What was sent for a next batch that never comes is nobody's business."""
    algorithm = cn.FedSGD(batch=20, epochs=3, tol=None, step=0.3, schedule="constant", evaluate_every=1, goal=0.65)
    hidden, plain = (
        cn.LogisticRegression(algorithm=algorithm, sum=sum_, verbose=0).fit(*cn.split(SCALED, Z > 0, into=3), on=on)
        for sum_ in ("encrypted", "pairwise")
    )
    assert hidden.rounds_ == plain.rounds_ not in (5, 10, 15)
    np.testing.assert_allclose(hidden.coef_["party3"], plain.coef_["party3"], atol=1e-7, rtol=0)


# -- numbers modulo 2^96 -----------------------------------------------------------------------------------------------


def shares_of(values):
    """Any whole numbers in two shares, one of them uniform."""
    first = np.array([secrets.randbits(96) for _ in values], dtype=object)
    return first, (np.array([int(value) for value in values], dtype=object) - first) % MODULUS


@pytest.mark.parametrize("factor", [0.3, 1e-9, 2.75, -0.7, 1.0, 1.0 - 2.0**-53])
def test_shares_times_a_public_number(factor):
    values = [int(value) for value in RNG.integers(-(2**50), 2**50, 200)]
    powers = RNG.integers(-20, 5, 200)
    first, second = shares_of(values)
    found = scaled(first, factor, powers, first=True) + scaled(second, factor, powers, first=False)
    exact = [value * Fraction(factor) * Fraction(2) ** int(power) for value, power in zip(values, powers, strict=True)]
    for got, wanted in zip(signed(found % MODULUS), exact, strict=True):
        assert abs(got - wanted) <= 8 + abs(wanted) * Fraction(1, 2**46)


def test_whole_numbers_times_numbers_modulo_two_to_the_ninety_sixth():
    whole = RNG.integers(-(2**28), 2**28, (50, 600)).astype(float)
    numbers = np.array([[secrets.randbits(96) for _ in range(2)] for _ in range(600)], dtype=object)
    masks = RNG.integers(0, 2**32, (50, 2, 3), dtype=np.uint32)
    exact = (whole.astype(np.int64).astype(object) @ numbers - numbers_of(masks)) % MODULUS
    assert (numbers_of(shared.product(whole, numbers, masks)) == exact).all()
    rounded = shared.upper(shared.limbs_of(exact))
    assert (rounded.astype(object) == ((exact + 2**31) >> 32) % 2**64).all()


def test_columns_have_powers_of_two_that_hold_their_values():
    largest = np.array([0.0, 1.0, 0.99, 5.0, 1e-9, 2.0**40])
    exponents = shared.exponents_of(largest)
    assert exponents.tolist() == [-18, 1, 0, 3, -18, 41]
    assert (largest < 2.0**exponents).all()
    share, other = (CoefficientShare(exponents[:, None].ravel(), 1, first=first) for first in (True, False))
    theta = RNG.standard_normal(6)
    share.value = shares_of(np.rint(theta * 2.0 ** (exponents + 40)))[0][:, None]
    other.value = (np.array([round(t * 2.0 ** (e + 40)) for t, e in zip(theta, exponents.tolist(), strict=True)],
                            dtype=object)[:, None] - share.value) % MODULUS  # fmt: skip
    np.testing.assert_allclose(share.opened(other.value)[:, 0], theta, atol=2.0**-20)


# -- runs that are broken off --------------------------------------------------------------------------------------


def run(algorithm, shelves, on=None):
    """(every party's parameters to the bit, the records) of a run of three parties that keeps."""
    parties = cn.split(SCALED, (Z > 0).astype(int), into=3)
    job, records = linear_job(algorithm, ("party1",), sum_="encrypted"), []
    programs = {
        party.name: (partial(train, keeper=shelf), (job, part_of(party)))
        for party, shelf in zip(parties, shelves, strict=True)
    }
    outcomes = (on or cn.Simulation()).run(programs, lambda _party, _seconds, value: records.append(value))
    states = [b"".join(one.tobytes() for one in outcome.value if one is not None) for outcome in outcomes.values()]
    return states, [value[1:] for value in records if value[0] == "record"]


KEPT = [
    cn.FedSGD(batch=30, epochs=4, tol=None),
    cn.FedBCD(local_steps=3, order="sequential", batch=30, epochs=4, tol=None, evaluate_every=2),
]


@pytest.mark.parametrize("algorithm", KEPT, ids=str)
def test_a_broken_run_goes_on_to_the_same_bits(algorithm):
    """Under the same secret: the shares are kept, and every epoch draws its own random numbers."""
    whole, records = run(algorithm, [Shelf() for _ in range(3)])
    assert run(algorithm, [None] * 3) == (whole, records)
    for when in (0.1, 0.3, 0.6):
        shelves, faults = [Shelf() for _ in range(3)], cn.Faults(crashes={"party2": when})
        with pytest.raises(RunFailed, match="party2"):
            run(algorithm, shelves, cn.Simulation(latency=0.01, faults=faults))
        assert run(algorithm, shelves) == (whole, records)
    other = run(algorithm, [Shelf() for _ in range(3)], cn.Simulation(secret="another"))
    assert other != (whole, records)  # the last bits hang on random numbers
    mine, theirs = (np.frombuffer(b"".join(states)) for states, _ in ((whole, 0), other))
    np.testing.assert_allclose(mine, theirs, atol=1e-9, rtol=0)


def test_what_is_kept_of_shared_coefficients_is_a_share():
    shelves = [Shelf() for _ in range(3)]
    (_, own, _), _ = run(KEPT[0], shelves)
    _, _, ((weights, _, _), (share,)), *_ = shelves[1].load(4)
    assert not weights.any()
    assert share.shape == (3, 1, 3)
    assert own not in shelves[1].kept[4]
    assert [len(shelf.load(4)[2][1]) for shelf in shelves] == [2, 1, 1]


def test_coefficients_that_were_told_are_not_followed_by_others():
    """Going back behind the end, after everybody was told, would tell coefficients of another run."""
    shelves = [Shelf() for _ in range(3)]
    whole = run(KEPT[0], shelves)
    assert shelves[0].versions()[-1] == 5  # one more than epochs: that they were told
    again = [Shelf() for _ in range(3)]
    for old, new in zip(shelves, again, strict=True):
        new.kept = dict(old.kept)
    assert run(KEPT[0], again)[0] == whole[0]  # they are told the same once more
    shelves[2].forget(2)
    with pytest.raises(ColonnadeError, match=r"'party[12]' has kept that coefficients in shares were told already"):
        run(KEPT[0], shelves)


def test_a_party_that_leaves_half_way_is_named_and_nobody_is_told_anything():
    parties = cn.split(SCALED, (Z > 0).astype(int), into=2)
    told = []

    class Telling(Lying):
        async def send(self, to, tag, value):
            told.append(tag)
            await self._net.send(to, tag, value)

    model = linear_job(KEPT[0], ("party1",), sum_="encrypted")

    async def program(net, job, mine):
        return await train(Telling(net, []), job, mine)

    clock = cn.Simulation(latency=0.01, faults=cn.Faults(crashes={"party1": 0.5}))
    with pytest.raises(RunFailed, match="party1"):
        clock.run({party.name: (program, (model, part_of(party))) for party in parties})
    assert "encrypted signal" in told
    assert "own coefficients" not in told


# -- refusals and lies -------------------------------------------------------------------------------------------------


def test_batches_of_any_size_and_rare_labels_are_allowed():
    rare = np.zeros(N, dtype=int)
    rare[[7, 50]] = 1
    model = fit(cn.split(SCALED, rare, into=2), cn.FedSGD(batch=1, epochs=1, tol=None))
    assert model.rounds_ == N
    assert usual_batch({"bank": 10, "shop": 500}, ("bank",), 1, 10_000) == 256
    assert usual_batch({"bank": 10, "shop": 500}, ("bank",), 1, 99) == 99


def test_penalties_whose_gradient_is_not_linear():
    words = r"sum='encrypted' with one label holder .* needs penalty 'l2', got 'nonconvex'; use 'l2', or another sum"
    with pytest.raises(OptionError, match=words):
        fit(cn.split(SCALED, Z > 0, into=2), BCD, penalty="nonconvex")
    job = linear_job(BCD, ("party1",), sum_="encrypted", penalty="nonconvex")
    part = {party.name: part_of(party) for party in cn.split(SCALED, (Z > 0).astype(int), into=2)}
    with pytest.raises(ColonnadeError, match=words):
        cn.Simulation().run({name: (train, (job, mine)) for name, mine in part.items()})


@pytest.mark.filterwarnings("ignore:.*standardise the columns")
def test_numbers_beyond_the_shares():
    huge = SCALED.copy()
    huge[3, 7] = 1e20
    with pytest.raises(
        ColonnadeError, match=r"a column of party 'party2' has a value of 2\^67 or so, .* scale this col"
    ):
        fit(cn.split(huge, Z > 0, into=2), cn.FedSGD(batch=20, epochs=1, step=1e-9))
    with pytest.raises(
        ColonnadeError, match=r"scores at step 'scores' reach .*, the shares hold less than|contribution"
    ):
        fit(cn.split(1e4 * SCALED, Z > 0, into=2), cn.FedSGD(batch=20, epochs=5, step=1e3, schedule="constant"))
    with pytest.raises(ColonnadeError, match=r"a signal of party 'party1' reaches .*, encrypted ones must be below"):
        fit(cn.split(SCALED, 1e-6 * Z, into=2), cn.FedSGD(batch=20, epochs=5, step=1e3, schedule="constant"),
            model=cn.RidgeRegression)  # fmt: skip


LIES = {
    "scales that are none": ("column scales", lambda value: value.astype(float), "party2 sent .* 'column scales'"),
    "too few scales": ("column scales", lambda value: value[1:], "party2 sent .* 'column scales'"),
    "scales out of range": ("column scales", lambda value: value + np.int8(100), "powers of two from -19 to 60 at"),
    "a start of another shape": ("starting share", lambda value: value[1:], "party2 sent .* 'starting share'"),
    "a start in other words": ("starting share", lambda value: value.astype(np.uint64), "party2 sent .* 'starting sh"),
    "a share of a wrong size": (
        "encrypted share: scores",
        lambda value: value[1:],
        "'party1' must send .* 'encrypted s",
    ),
    "a share in the clear": ("encrypted share: scores", lambda value: np.zeros(4), "got a value of type ndarray"),
    "a share beyond q": (
        "encrypted share: evaluation",
        lambda value: b"\xff" * len(value),
        "'party1' sent .* not below",
    ),
    "a product of a wrong size": (
        "blinded product: scores",
        lambda value: value[1:],
        "'party2' must send .* 'blinded p",
    ),
    "two products": (
        "blinded product: penalty",
        lambda value: 2 * value,
        "'party2' must send .* 'blinded product: pen",
    ),
    "products in the clear": ("blinded product: penalty", lambda value: 1, "got a value of type int"),
    "a masked share of a wrong size": ("masked share", lambda value: value[1:], "party1 sent .* 'masked share'"),
    "coefficients of a wrong size": ("own coefficients", lambda value: value[1:], "'party1' must send .* 'own coeff"),
    "shares under another key": ("encrypted share: evaluation", other_key, "scores at step '.*' reach"),
    "signals of a wrong size": (
        "encrypted signal",
        lambda value: value[1:],
        "'party1' must send .* 'encrypted signal'",
    ),
    "gradients of a wrong size": (
        "blinded gradient",
        lambda value: value[1:],
        "'party2' must send .* 'blinded gradient'",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_no_honest_party_sends(lie):
    step, how, sentence = LIES[lie]
    liar = type("Liar", (Lying,), {"step": step, "lie": staticmethod(how)})
    with pytest.raises(ColonnadeError, match=sentence):
        transcripts(cn.split(SCALED, (Z > 0).astype(int), into=2), KEPT[0], "encrypted", liar)


@pytest.mark.parametrize("told", [1.5, True, 501, None])
def test_a_size_of_the_target_that_is_none(told):
    liar = type("Liar", (Lying,), {"step": "size of the target", "lie": staticmethod(lambda value: told)})
    seen = {}

    async def program(net, job, mine):
        return await train(liar(net, seen.setdefault(net.me, [])), job, mine)

    job = linear_job(KEPT[0], ("party1",), sum_="encrypted", of="square")
    parts = {party.name: part_of(party, of="square") for party in cn.split(SCALED, Z, into=2)}
    with pytest.raises(ColonnadeError, match="'party1' must tell a power of two from -500 to 500 at step 'size of the"):
        cn.Simulation().run({name: (program, (job, mine)) for name, mine in parts.items()})
