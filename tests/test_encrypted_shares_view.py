"""What either side sees of encrypted training with one label holder, and what would let it see more."""

from __future__ import annotations

import math
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import colonnade as cn
from colonnade.crypto.lattice import Ciphertexts, Lattice
from colonnade.crypto.lattice_parameters import WIDE, primes_of
from colonnade.crypto.lattice_products import ProductLayout, ProductSums
from colonnade.engine.encrypted_shares import EncryptedShares
from colonnade.engine.session import Session
from colonnade.engine.shared_coefficients import MODULUS, numbers_of, signed
from colonnade.errors import ColonnadeError
from colonnade.objective import metrics
from test_encrypted import attack, transcripts

RING = Lattice.of(WIDE)
HEARD_BY_SHOP = {
    "public key", "labelled rows", "encryption key", "block size", "encrypted share: scores",
    "encrypted share: evaluation",
    "encrypted share: penalty", "encrypted signal", "masked share", "verdict", "own coefficients",
}  # fmt: skip
HEARD_BY_BANK = {
    "public key", "block size", "column scales", "starting share", "blinded product: scores",
    "blinded product: evaluation", "blinded product: penalty", "blinded gradient", "scores", "evaluation", "objective",
}  # fmt: skip
BATCH, EPOCHS = 500, 2


def unrelated(seed, n=6000):
    """Columns that know nothing of the labels, so that all that an attack finds was in the messages."""
    rng = np.random.default_rng(seed)
    columns, y = rng.standard_normal((n, 6)), rng.integers(0, 2, n)
    return [cn.Party("bank", columns[:, :3], y), cn.Party("shop", columns[:, 3:])]


def sgd(seed=0, batch=BATCH, epochs=EPOCHS):
    return cn.FedSGD(batch=batch, epochs=epochs, tol=None, step=0.5, schedule="constant", seed=seed)


@pytest.fixture
def kept(monkeypatch):
    """(rows, the shop's share of the gradient over them) of every batch."""
    found, take = [], EncryptedShares.take

    async def taken(self, holder, rows):
        found.append((rows, await take(self, holder, rows)))
        return found[-1][1]

    monkeypatch.setattr(EncryptedShares, "take", taken)
    return found


@pytest.fixture
def opened(monkeypatch):
    """All that the label holder opens, by what it is: numbers modulo 2^96."""
    found, original = {"product": [], "gradient": []}, ProductLayout.open

    def noted(self, key, answer, columns):
        limbs = original(self, key, answer, columns)
        found["gradient" if columns == 3 else "product"].append(numbers_of(limbs))
        return limbs

    monkeypatch.setattr(ProductLayout, "open", noted)
    return found


# -- a party without labels --------------------------------------------------------------------------------------------


def lifted(residues):
    """Residues modulo the primes as fractions of q between -1/2 and 1/2."""
    q, total = math.prod(primes_of(WIDE)), 0
    for prime, row in zip(primes_of(WIDE), residues, strict=True):
        digits = row.astype(np.int64).astype(object) * pow(q // prime, -1, prime) % prime
        total = total + digits * (q // prime)
    return np.array([float(Fraction(int((value + q // 2) % q - q // 2), q)) for value in total])


def guesses(seed, kept):
    """AUCs of guessing labels: from all numbers about a row that the shop has, and from two of them alone.

    These are the coefficients of ciphertexts at the row's place, how they differ from those that were there one epoch
    earlier, and what its own share of the gradient, taken for a gradient, would say.
    """
    kept.clear()
    parties = unrelated(seed)
    y, n, inner = np.asarray(parties[0].y), parties[0].rows, ProductLayout.of(BATCH, 1, (3,)).inner
    seen, _ = transcripts(parties, sgd(seed), "encrypted")
    assert {step for _, step, _ in seen["shop"]} == HEARD_BY_SHOP
    signals = [value for _, step, value in seen["shop"] if step == "encrypted signal"]
    assert inner == BATCH
    features, before, turns = np.zeros((n, 10 * EPOCHS + 2)), {}, n // BATCH
    for at, (raw, (rows, share)) in enumerate(zip(signals, kept, strict=True)):
        given = Ciphertexts.from_bytes(RING, raw, 1)
        halves = np.concatenate((given.c0, given.c1))
        RING.backward(halves)
        places, (epoch, turn) = halves[:, :, :inner], divmod(at, turns)
        features[rows, 10 * epoch : 10 * epoch + 10] = places.reshape(10, inner).T
        if epoch:
            features[rows, -2] = lifted(places[0] - before[turn])
        features[rows, -1] -= parties[1].X[rows] @ (share[:, 0].astype(float) / MODULUS - 0.5)
        before[turn] = places[0]
    return [attack(features, y), metrics.auc(y, features[:, -2]), metrics.auc(y, features[:, -1])]


def test_nothing_that_a_party_without_labels_has_tells_a_label(kept):
    """On 3,000 rows chance alone moves an AUC by 0.011, and the mean over six runs by less than half of that."""
    found = np.array([guesses(seed, kept) for seed in range(6)])
    assert np.abs(found.mean(axis=0) - 0.5).max() < 0.02
    assert np.abs(found - 0.5).max() < 0.06


def test_random_numbers_that_are_drawn_again_would(kept, monkeypatch):
    """An epoch that encrypts with the random numbers of the one before: ciphertexts differ by the signals."""
    begin = EncryptedShares.begin_phase
    monkeypatch.setattr(EncryptedShares, "begin_phase", lambda self, phase: begin(self, "always"))
    assert abs(guesses(0, kept)[1] - 0.5) > 0.15


def test_and_so_would_the_other_share_of_a_gradient(kept, opened):
    """What was sent back before: with batches of ten rows the two shares together give most labels away."""
    parties = unrelated(0, 1000)
    transcripts(parties, sgd(batch=10, epochs=1), "encrypted")
    y, alone, both = np.asarray(parties[0].y), np.zeros(1000), np.zeros(1000)
    for (rows, mine), theirs in zip(kept, opened["gradient"], strict=True):
        alone[rows] -= parties[1].X[rows] @ signed(mine[:, 0]).astype(float)
        both[rows] -= parties[1].X[rows] @ signed((mine + theirs)[:, 0] % MODULUS).astype(float)
    assert metrics.auc(y, both) > 0.7
    assert abs(metrics.auc(y, alone) - 0.5) < 0.07


# -- the label holder --------------------------------------------------------------------------------------------------


def uniform(numbers):
    """The probability that so many uniform numbers lie as unevenly as these."""
    return float(stats.kstest([int(number) / MODULUS for number in numbers], "uniform").pvalue)


def flat(arrays):
    return [number for array in arrays for number in array.reshape(-1)]


def changes(opened, turns):
    """What is opened of gradients more than one epoch earlier at the same place."""
    pairs = zip(opened["gradient"][turns:], opened["gradient"], strict=False)
    return flat((one - other) % MODULUS for one, other in pairs)


def test_what_the_label_holder_opens_is_uniform(opened):
    seen, _ = transcripts(unrelated(0, 1000), sgd(batch=50, epochs=10), "encrypted")
    assert {step for _, step, _ in seen["bank"]} == HEARD_BY_BANK
    assert len(flat(opened["gradient"])) == 600
    assert uniform(flat(opened["gradient"])) > 1e-6
    assert uniform(flat(opened["product"])) > 1e-6
    assert uniform(changes(opened, 20)) > 1e-6
    assert (abs(signed(np.array(flat(opened["gradient"])))) > 2**70).all()


def test_missing_masks_are_noticed(opened, monkeypatch):
    answer = ProductSums.answer

    def bare(self, stream):
        with monkeypatch.context() as patch:
            patch.setattr(type(stream), "words", zeros_first(type(stream).words))
            return answer(self, stream)

    monkeypatch.setattr(ProductSums, "answer", bare)
    with suppress(ColonnadeError):  # shares that are not random are not cut rightly, so that training goes astray
        transcripts(unrelated(0, 1000), sgd(batch=50, epochs=2), "encrypted")
    assert opened["gradient"]
    assert (abs(signed(opened["gradient"][0])) < 2**70).all()


def zeros_first(words):
    """Random words, but zeros the first time: these are the masks of an answer."""
    calls = []

    def drawn(self, count):
        calls.append(count)
        return np.zeros(count, np.uint64) if len(calls) == 1 else words(self, count)

    return drawn


def test_masks_that_come_again_are_noticed(opened, monkeypatch):
    begin = EncryptedShares.begin_phase
    monkeypatch.setattr(EncryptedShares, "begin_phase", lambda self, phase: begin(self, "always"))
    transcripts(unrelated(0, 1000), sgd(batch=50, epochs=3), "encrypted")
    assert uniform(changes(opened, 20)) < 1e-9


@pytest.mark.parametrize("into", [2, 3])
def test_the_label_holder_sees_the_same_scores_as_without_encryption(into, monkeypatch):
    """Of three parties, their sum; no number of any single one's."""
    found, original = [], Session.signal

    def noted(self, scores, rows):
        found.append(scores)
        return original(self, scores, rows)

    monkeypatch.setattr(Session, "signal", noted)
    rng = np.random.default_rng(3)
    columns, y = rng.standard_normal((300, 6)), rng.integers(0, 2, 300)
    parties = cn.split(columns, y, into=into)
    for sum_ in ("encrypted", "pairwise"):
        cn.LogisticRegression(algorithm=sgd(batch=60, epochs=3), sum=sum_, verbose=0).fit(*parties)
    half = len(found) // 2
    assert half == 15
    for hidden, plain in zip(found[:half], found[half:], strict=True):
        np.testing.assert_allclose(hidden, plain, atol=1e-7)
