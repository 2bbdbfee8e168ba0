"""Encrypted signals and opened gradients, as several label holders use them: the weights, and what either side learns.

Most of it is looked at with one label holder that opens gradients too. Where there is really one, none is opened:
tests/test_encrypted_shares.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

import colonnade as cn
from colonnade.crypto import lattice_products
from colonnade.crypto.lattice import Ciphertexts, Lattice
from colonnade.crypto.lattice_parameters import WIDE
from colonnade.crypto.lattice_products import ProductLayout, new_secret_key
from colonnade.engine import encrypted
from colonnade.engine.encrypted import EncryptedSignals, whole_signals
from colonnade.engine.session import Session
from colonnade.errors import ColonnadeError, OptionError, RingOverflow
from colonnade.families import store
from colonnade.families.training import train
from colonnade.objective import metrics
from tables import by_turns
from test_exposure import opened_gradients, small_batches  # noqa: F401 (fixtures)
from test_kept import Shelf, run
from test_security import Recorder
from training_programs import linear_job, part_of

pytestmark = pytest.mark.usefixtures("opened_gradients")
RNG = np.random.default_rng(0)
N = 100
X = RNG.standard_normal((N, 9))
X[:, 1] = RNG.integers(0, 2, N)
X[RNG.random(X.shape) < 0.2] = 0.0
Z = X @ RNG.standard_normal(9) + RNG.logistic(size=N)
KEY, SIGNAL, BLINDED, OPENED = "encryption key", "encrypted signal", "blinded gradient", "opened gradient"
RING = Lattice.of(WIDE)


def fit(parties, algorithm, model=cn.LogisticRegression, **options):
    options = {"sum": "encrypted", **options}
    return model(algorithm=algorithm, verbose=0, **options).fit(*parties)


class FixedPoint(EncryptedSignals):
    """The same fixed-point numbers without any encryption: Python's whole numbers, one at a time."""

    @classmethod
    async def begin(cls, session):
        return cls(session)

    async def give(self, signal, rows, to):
        whole = whole_signals(signal.reshape(len(rows), -1), self.session.net.me)
        for name in to:
            await self.session.net.send(name, SIGNAL, whole)

    async def serve(self, to, etas, proximal):
        pass

    async def take(self, holder, rows):
        whole = (await self.session.net.recv(holder, SIGNAL)).astype(np.int64).astype(object)
        values = self.columns.part(rows)(0, self.columns.width).astype(np.int64).astype(object)
        gradient = values.T @ whole
        return gradient.astype(float) * (self.columns.scale / 2.0**32)[:, None] / len(rows)


async def same_batches(self):
    """Instead of `Session.agree`: a run in the clear whose first epoch is one batch too."""
    self._batch, self._whole_first = self.options.batch_for(self.train.rows), True
    await agree(self)


agree = Session.agree
SGD = cn.FedSGD(batch=20, epochs=5, tol=None, step=0.5, schedule="constant")
BCD = cn.FedBCD(local_steps=5, batch=20, epochs=5, tol=None, step=0.2, schedule="constant")
CASES = {
    "FedSGD": (2, 1, SGD, {}),
    "FedBCD-p": (2, 1, BCD, {}),
    "FedBCD-p, adaptive": (3, 1, cn.FedBCD(local_steps=5, batch=20, epochs=5, tol=None), {}),
    "FedPBCD-p": (3, 1, cn.FedBCD(local_steps=5, proximal=0.3, batch=20, epochs=5, tol=None, step=0.2), {}),
    "FedBCD-s": (2, 1, cn.FedBCD(local_steps=3, order="sequential", batch=20, epochs=5, tol=None), {}),
    "two label holders": (3, 2, BCD, {}),
    "decay by step": (3, 2, replace(BCD, order="sequential-once", schedule="sqrt", decay="step", step=0.5), {}),
    "other penalty": (2, 1, BCD, {"penalty": "nonconvex", "fit_intercept": False}),
    "svm": (2, 1, BCD, {"model": cn.LinearSVC}),
    "ridge": (2, 2, BCD, {"model": cn.RidgeRegression}),
    "softmax": (3, 1, BCD, {"model": cn.SoftmaxRegression, "classes": 4}),
    "more classes than columns": (2, 2, BCD, {"model": cn.SoftmaxRegression, "classes": 14}),
}


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize(("case", "kind"), by_turns(CASES, ("dense", "csr")))
def test_encrypted_is_the_fixed_point_run_and_nearly_the_plain_one(case, kind, monkeypatch):
    """20 rounds or more."""
    into, active, algorithm, options = CASES[case]
    options = dict(options)
    classes = options.pop("classes", 2)
    y = (
        Z
        if options.get("model") is cn.RidgeRegression
        else np.digitize(Z, np.quantile(Z, np.arange(1, classes) / classes))
    )
    parties = cn.split(sp.csr_matrix(X) if kind == "csr" else X, y, into=into, active=active)
    sealed = fit(parties, algorithm, **options)
    assert sealed.rounds_ >= 20
    with monkeypatch.context() as patch:
        patch.setattr(Session, "agree", same_batches)
        plain = fit(parties, algorithm, sum="pairwise", **options)
    monkeypatch.setattr(encrypted, "EncryptedSignals", FixedPoint)
    clear = fit(parties, algorithm, **options)
    for name in sealed.parties_:
        np.testing.assert_array_equal(sealed.coef_[name], clear.coef_[name])
        np.testing.assert_allclose(sealed.coef_[name], plain.coef_[name], atol=1e-6, rtol=0)
    np.testing.assert_allclose(sealed.intercept_, clear.intercept_, atol=0, rtol=0)
    np.testing.assert_allclose(sealed.intercept_, plain.intercept_, atol=1e-6, rtol=0)


@pytest.mark.usefixtures("small_batches")
def test_wide_tables_share_answers(monkeypatch):
    """3,000 columns, of which a batch of 20 rows has some 60; and one party's columns are all zeros in most rows.

    How many columns have a number in a batch is not to be seen: there are as many answers for all of them.
    """
    rng = np.random.default_rng(5)
    wide = sp.random(N, 3000, density=0.001, random_state=rng, format="csr")
    few = np.zeros((N, 2))
    few[:3] = rng.standard_normal((3, 2))
    y = Z > 0
    parties = [cn.Party("bank", X[:, :3], y), cn.Party("shop", wide), cn.Party("gym", few)]
    sealed = fit(parties, SGD)
    messages, sent = sealed.traffic_["shop"].by_step[BLINDED]
    assert sent / messages < 10 * 120_000  # eight answers or so
    assert len({sealed.traffic_["shop"].by_step[BLINDED][1] % messages}) == 1
    monkeypatch.setattr(encrypted, "EncryptedSignals", FixedPoint)
    clear = fit(parties, SGD)
    for name in sealed.parties_:
        np.testing.assert_array_equal(sealed.coef_[name], clear.coef_[name])


def test_many_rows_go_in_portions(monkeypatch):
    """The same bits, and nobody is a portion ahead; a batch of one portion has no message for it."""
    rng = np.random.default_rng(4)
    wide, y = rng.standard_normal((330, 6)), rng.integers(0, 4, 330)
    parties = cn.split(wide, y, into=3)
    once = fit(parties, cn.FedSGD(epochs=3, tol=None, batch=330), cn.SoftmaxRegression)
    assert "pace" not in once.traffic_["party2"].by_step
    monkeypatch.setattr(ProductLayout, "of", staticmethod(lambda n, outputs, _: ProductLayout(n, outputs, 70, 2, 4)))
    monkeypatch.setattr(lattice_products, "_PORTION", 1)
    often = fit(parties, cn.FedSGD(epochs=3, tol=None, batch=330), cn.SoftmaxRegression)
    assert [often.traffic_[name].by_step["pace"][0] for name in ("party2", "party3")] == [12, 12]
    assert often.traffic_["party1"].by_step[SIGNAL][0] == 3 * 5 * 2
    for name in often.parties_:
        np.testing.assert_array_equal(once.coef_[name], often.coef_[name])


@pytest.mark.usefixtures("small_batches")
def test_an_exchange_costs_the_same_for_any_number_of_local_steps():
    """FedBCD's point under encryption: fewer rounds are fewer ciphertexts."""
    parties = cn.split(X, Z > 0, into=2)
    once, often = (
        fit(parties, cn.FedBCD(local_steps=Q, batch=20, epochs=1, tol=None, step=0.1)).traffic_ for Q in (1, 20)
    )
    assert {n: t.bytes for n, t in once.items()} == {n: t.bytes for n, t in often.items()}


def test_the_usual_algorithm_and_a_model_that_is_kept(tmp_path):
    rng = np.random.default_rng(3)
    columns = rng.standard_normal((600, 9))
    parties = cn.split(columns, columns @ rng.standard_normal(9) + rng.logistic(size=600) > 0, into=2)
    model = cn.LogisticRegression(sum="encrypted", verbose=0).fit(*parties)
    model.save(tmp_path)
    again = cn.load(tmp_path)
    assert again.sum == "encrypted"
    np.testing.assert_array_equal(again.predict(*parties), model.predict(*parties))
    assert model.score(*parties) > 0.75


def test_files_of_models_from_paillier_s_time_are_read(tmp_path):
    """They name the sum by its old word, and the length of keys."""
    parties = cn.split(X, Z > 0, into=2)
    model = cn.LogisticRegression(algorithm=cn.FedSGD(epochs=1), verbose=0).fit(*parties)
    model.save(tmp_path)
    for party in model.parties_:
        public, arrays = store.read_party(tmp_path / f"{party}{store.SUFFIX}")
        options = {**public.pop("options"), "sum": "paillier", "key_bits": 2048}
        told = {**public, "sum": "paillier", "options": options}
        store.write_party(tmp_path, party, {k: v for k, v in told.items() if k not in ("party", "format")}, arrays)
    again = cn.load(tmp_path)
    assert (again.sum, again.sum_) == ("encrypted", "encrypted")
    np.testing.assert_array_equal(again.predict(*parties), model.predict(*parties))


@pytest.mark.usefixtures("small_batches")
def test_a_broken_run_goes_on_with_new_keys(monkeypatch):
    algorithm, made = cn.FedBCD(local_steps=3, batch=30, epochs=3, tol=None), []
    monkeypatch.setattr(encrypted, "new_secret_key", lambda: made.append(new_secret_key()) or made[-1])
    whole, records = run(algorithm, [Shelf() for _ in range(3)], sum_="encrypted")
    shelves = [Shelf() for _ in range(3)]
    run(cn.FedBCD(local_steps=3, batch=30, epochs=1, tol=None), shelves, sum_="encrypted")
    for shelf in shelves:  # as a run of three epochs leaves them after the first
        _, *rest = shelf.load(1)
        shelf.save(1, (True, *rest))
    resumed, rest = run(algorithm, shelves, sum_="encrypted")
    assert (resumed, rest) == (whole, records)
    assert len({key.public for key in made}) == len(made) == 6  # two holders, three runs


# -- what a party sees -------------------------------------------------------------------------------------------------


def transcripts(parties, algorithm, sum_, wrap=Recorder):
    """Train, and return what every party received."""
    seen = {party.name: [] for party in parties}
    holders = tuple(party.name for party in parties if party.active)
    job = linear_job(algorithm, holders, sum_=sum_, intercept=False)

    def program(name):
        async def recorded(net, job, mine):
            return await train(wrap(net, seen[name]), job, mine)

        return recorded

    encoded = {party.name: part_of(party) for party in parties}
    outcomes = cn.Simulation().run({name: (program(name), (job, mine)) for name, mine in encoded.items()})
    return seen, outcomes


def rows_of(algorithm, n, sum_):
    """(epoch, rows) of every message with signals, in the public order of rows, with one label holder."""
    for epoch in range(1, algorithm.epochs + 1):
        shuffled = np.random.default_rng([algorithm.seed, epoch]).permutation(np.arange(n))
        whole = epoch == 1 and sum_ == "encrypted"
        for rows in np.array_split(shuffled, 1 if whole else -(-n // algorithm.batch)):
            yield epoch, rows


def attack(features, y):
    """Learn to guess labels from messages, by ridge regression on half of the rows; the AUC on the others."""
    half = len(y) // 2
    mean, scale = features[:half].mean(axis=0), features[:half].std(axis=0) + 1e-9
    F = (features - mean) / scale
    weights = np.linalg.solve(F[:half].T @ F[:half] + 10 * np.eye(F.shape[1]), F[:half].T @ (y[:half] - 0.5))
    return metrics.auc(y[half:], F[half:] @ weights)


def coefficients(raw, rows):
    """What a ciphertext has at the place of each row: residues of both of its halves."""
    layout = ProductLayout.of(rows, 1, (3,))
    given = Ciphertexts.from_bytes(RING, raw, layout.ciphertexts(rows))
    found = np.stack((given.c0, given.c1))
    for half in found:
        RING.backward(half)
    return found[..., : layout.inner].transpose(1, 3, 0, 2).reshape(-1, 10)[:rows]


def test_no_message_about_a_row_tells_its_label():
    """Columns that know nothing of the labels, so that all that an attack finds was in the messages."""
    # On 5,000 rows chance alone moves the AUC by 0.0082: the bounds are six times as far.
    rng, n = np.random.default_rng(1), 10_000
    columns, y = rng.standard_normal((n, 6)), rng.integers(0, 2, n)
    parties = [cn.Party("bank", columns[:, :3], y), cn.Party("shop", columns[:, 3:])]
    algorithm = cn.FedSGD(batch=1000, epochs=2, tol=None, step=0.1, schedule="constant")
    for sum_, tag in (("pairwise", "signal"), ("encrypted", SIGNAL)):
        seen, _ = transcripts(parties, algorithm, sum_)
        received = [value for _, step, value in seen["shop"] if step == tag]
        width = 1 if tag == "signal" else 10
        features = np.zeros((n, 2 * width))
        for (epoch, rows), value in zip(rows_of(algorithm, n, sum_), received, strict=True):
            of_rows = value if tag == "signal" else coefficients(value, len(rows))
            features[rows, width * (epoch - 1) : width * epoch] = of_rows.reshape(len(rows), -1)
        found = attack(features, y)
        if tag == "signal":
            assert found == 1.0
        else:
            assert 0.45 < found < 0.55
            steps = {step for _, step, _ in seen["shop"]}
            assert "signal" not in steps
            assert {SIGNAL, OPENED, KEY} <= steps


def gradients_of(parties, algorithm, monkeypatch):
    """What the passive party unblinds."""
    found, original = [], EncryptedSignals.take

    async def take(self, holder, rows):
        gradient = await original(self, holder, rows)
        found.append((rows, gradient))
        return gradient

    monkeypatch.setattr(EncryptedSignals, "take", take)
    transcripts(parties, algorithm, "encrypted")
    return found


def test_its_own_gradients_tell_a_party_what_the_security_page_says(monkeypatch):
    """x_i . g holds |x_i|^2 s_i: over E epochs an AUC of Phi(sqrt(2 E d / b)); the first one counts with all rows."""
    rng, n, d, b, epochs = np.random.default_rng(2), 2400, 10, 600, 3
    columns, y = rng.standard_normal((n, 2 + d)), rng.integers(0, 2, n)
    parties = [cn.Party("bank", columns[:, :2], y), cn.Party("shop", columns[:, 2:])]
    algorithm = cn.FedSGD(batch=b, epochs=epochs, tol=None, step=1e-3, schedule="constant")
    guess = np.zeros(n)
    for rows, gradient in gradients_of(parties, algorithm, monkeypatch):
        guess[rows] -= columns[rows, 2:] @ gradient[:, 0]
    expected = stats.norm.cdf(math.sqrt(2 * d * (1 / n + (epochs - 1) / b)))
    assert metrics.auc(y, guess) == pytest.approx(expected, abs=0.05)


@pytest.mark.usefixtures("small_batches")
def test_batches_no_larger_than_the_number_of_columns_would_be_solved_for_signals(monkeypatch):
    """What is refused is refused with reason, also beyond the first round and without any lattice."""
    rng, d = np.random.default_rng(2), 10
    columns, y = rng.standard_normal((50, 2 + d)), rng.integers(0, 2, 50)
    parties = [cn.Party("bank", columns[:, :2], y), cn.Party("shop", columns[:, 2:])]
    algorithm = cn.FedSGD(batch=d, epochs=2, tol=None, step=1e-3, schedule="constant")
    for rows, gradient in gradients_of(parties, algorithm, monkeypatch)[1:]:
        signal = np.linalg.solve(columns[rows, 2:].T, gradient[:, 0] * len(rows))
        assert ((signal < 0) == y[rows]).all()


@pytest.mark.usefixtures("small_batches")
def test_what_the_label_holder_opens_is_uniform(monkeypatch):
    keys = []
    monkeypatch.setattr(encrypted, "new_secret_key", lambda: keys.append(new_secret_key()) or keys[-1])
    parties = cn.split(X, Z > 0, into=2)
    algorithm = cn.FedSGD(batch=10, epochs=21, tol=None, step=1e-9, schedule="constant")
    seen, _ = transcripts(parties, algorithm, "encrypted")
    (key,), opened = keys, []
    answers = [value for _, step, value in seen["party1"] if step == BLINDED]
    for answer, rows in zip(answers, [N] + [10] * 200, strict=True):
        limbs = ProductLayout.of(rows, 1, (4,)).open(key, answer, 4)[:, 0]
        opened += [int.from_bytes(one.tobytes(), "little") for one in limbs]
    assert len(opened) == 804
    assert stats.kstest([number / 2**96 for number in opened], "uniform").pvalue > 1e-9
    # nothing of them comes twice, though the model stands still and some batches' gradients are nearly the same: any
    # two of 804 uniform numbers agree in their first 50 bits once in 3e9 runs
    assert min(b - a for a, b in pairwise(sorted(opened))) > 2 ** (96 - 50)


# -- refusals and lies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [cn.VFB2(), cn.VFB2("sgd", asynchronous=False), cn.AFSGD(), cn.FDML()])
def test_algorithms_that_need_signals_row_by_row(algorithm):
    with pytest.raises(
        OptionError, match=f"{algorithm.name} needs them row by row at every party; use FedSGD or FedBCD"
    ):
        fit(cn.split(X, Z > 0, into=2), algorithm)


def test_a_partys_own_program_refuses_them_too():
    with pytest.raises(ColonnadeError, match="VFB2 needs them row by row"):
        transcripts(cn.split(X, (Z > 0).astype(int), into=2), cn.VFB2("sgd", asynchronous=False, epochs=1), "encrypted")


def test_other_refusals():
    parties = cn.split(X, Z > 0, into=2)
    with pytest.raises(OptionError, match="sum='encrypted' encrypts the signals of linear models"):
        cn.KernelClassifier(sum="encrypted", verbose=0).fit(*parties)
    with pytest.raises(OptionError, match=r"sum='paillier' is called 'encrypted' now, .*; write 'encrypted'"):
        cn.LogisticRegression(sum="paillier", verbose=0).fit(*parties)


@pytest.mark.usefixtures("small_batches")
def test_signals_beyond_the_fixed_point():
    huge = cn.split(X, 1e7 * Z, into=2)
    with pytest.raises(ColonnadeError, match=r"a signal of party 'party1' reaches .*, encrypted ones must be below"):
        fit(huge, SGD, model=cn.RidgeRegression)
    with pytest.raises(RingOverflow, match="a signal of party 'bank' reaches nan"):
        whole_signals(np.array([0.0, np.nan]), "bank")
    np.testing.assert_array_equal(whole_signals(np.array([-0.5, 2.0**-33, 2.0**-32]), "x"), [-(2.0**31), 0.0, 1.0])


class Lying(Recorder):
    """A party whose messages of one step are something else."""

    step, lie = "", None

    async def send(self, to, tag, value):
        await self._net.send(to, tag, type(self).lie(value) if tag == self.step else value)


def other_key(value):
    """Ciphertexts of ones, under a key that nobody was told."""
    count = (len(value) - 32) // WIDE.polynomial_bytes
    return new_secret_key().encrypt_scaled(np.ones((count, WIDE.degree)), 94)


LIES = {
    "key of a wrong size": (KEY, lambda value: value[:-1], "'party1' sent at step 'encryption key' .* public key must"),
    "key that is none": (KEY, lambda value: 5, "'party1' sent .* got a value of type int"),
    "key of other parameters": (KEY, lambda value: b"0" + value[1:], "is one of other parameters"),
    "columns that are no number": ("block size", lambda value: -1, "must tell a number of columns"),
    "signals of a wrong size": (SIGNAL, lambda value: value[1:], "'party1' must send .* bytes at step 'encrypted sig"),
    "signals in the clear": (SIGNAL, lambda value: np.zeros(20), "'encrypted signal', got a value of type ndarray"),
    "beyond q": (SIGNAL, lambda value: b"\xff" * len(value), "'party1' sent at step 'encrypted signal' .* not below"),
    "signals under another key": (SIGNAL, other_key, "uses another key, or its signals were none"),
    "gradients of a wrong size": (BLINDED, lambda value: value[1:], "'party2' must send .* at step 'blinded gradient'"),
    "too many gradients": (BLINDED, lambda value: 2 * value, "'party2' must send .* bytes at step 'blinded gradient'"),
    "other gradients": (BLINDED, lambda value: value[::-1], "is not the gradient that it was sent"),
    "other answers": (OPENED, lambda value: value[::-1].copy(), "is not the gradient that it was sent"),
    "too few answers": (OPENED, lambda value: value[1:], "party1 sent .* 'opened gradient'"),
}


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("lie", LIES)
def test_what_no_honest_party_sends(lie):
    step, how, sentence = LIES[lie]
    liar = type("Liar", (Lying,), {"step": step, "lie": staticmethod(how)})
    with pytest.raises(ColonnadeError, match=sentence):
        transcripts(cn.split(X, (Z > 0).astype(int), into=2), SGD, "encrypted", liar)
