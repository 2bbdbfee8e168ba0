"""Logistic regression with encrypted signals and coefficients in shares, and the products that it is made of."""

from __future__ import annotations

import resource
import time
from functools import partial

import numpy as np

import colonnade as cn
from colonnade.crypto.lattice_products import (
    ProductLayout,
    ProductSums,
    new_secret_key,
    private_keystream,
    read_public_key,
)
from kernel_learning import DATA
from reproductions.datasets import read_npz
from shortest import best

Rows = list[tuple[str, str, str]]
Cut = tuple[np.ndarray, np.ndarray, int, int]  # columns, labels, columns of the label holder, batch


def breast_cancer(quick: bool) -> Cut:
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    # 10 of the 30 columns at the other party, and all rows in one batch.
    return _standardised(X), y, 20, 569


def credit(quick: bool) -> Cut:
    """24,000 of the 30,000 rows, 23 columns in their own order."""
    stored = read_npz(DATA, "ucicreditcard", ("X", "y"))
    rows = np.random.default_rng(0).permutation(len(stored["y"]))[: 600 if quick else 24_000]
    return _standardised(stored["X"][rows].astype(float)), stored["y"][rows], 13, 600 if quick else 1024


def _standardised(X: np.ndarray) -> np.ndarray:
    return (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)


def encrypted_training(quick: bool) -> Rows:
    """FedSGD with encrypted signals, two parties; Paillier's figures are its last ones, of the same machine and day."""
    rows: Rows = []
    # (bar, Paillier's seconds by the clock in processes, its seconds of processors)
    beside = {"breast_cancer": (0.2, 0.11, 0.14), "credit": (0.3, 3.4, 4.6)}
    epochs = 2 if quick else 11
    for load in (breast_cancer, credit):
        X, y, cut, batch = load(quick)
        parties = cn.Party("bank", X[:, :cut], y), cn.Party("shop", X[:, cut:])
        times, sent = {}, 0.0
        for where, on in (("processes", cn.Processes()), ("simulation", cn.Simulation())):
            algorithm = cn.FedSGD(batch=batch, epochs=epochs, tol=None, step=0.5, schedule="constant")
            model = cn.LogisticRegression(algorithm=algorithm, sum="encrypted", verbose=0)
            began, worked = time.perf_counter(), _processor_seconds()
            model.fit(*parties, on=on)
            whole, worked = time.perf_counter() - began, _processor_seconds() - worked
            seen = [record["time"] for record in model.history_]
            # By the clock where parties have processes of their own, and by the processor where one does all the work.
            times[where] = float(np.median(np.diff(seen[1:]))) if where == "processes" else worked / epochs
            if where == "processes":
                first, sent = whole - (epochs - 1) * times[where], sum(t.bytes for t in model.traffic_.values())
        name, (bar, clock, processor) = load.__name__, beside[load.__name__]
        rows += [
            (
                f"{name}: {len(X)} rows, {X.shape[1] - cut} columns, the first epoch with start and keys",
                f"{first:.2f} s",
                "-",
            ),
            (
                f"{name}: a later epoch by the clock, in processes, the median of ten",
                f"{times['processes']:.3f} s",
                f"bar: {bar} s; Paillier {clock} s, ratio {clock / times['processes']:.0f}; "
                f"{sent / epochs / 1e6:.1f} MB in both directions",
            ),
            (
                f"{name}: an epoch, seconds of processors at both parties",
                f"{times['simulation']:.3f} s",
                f"Paillier {processor} s, ratio {processor / times['simulation']:.0f}",
            ),
        ]
    return rows


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def encrypted_products(quick: bool) -> Rows:
    """X^T [[s]] and X [[T]] of one batch, one core: all that both sides do, and the bytes both ways."""
    rows: Rows = []
    key = new_secret_key()
    public = read_public_key(key.public)
    for whole, columns in ((500, 15), (1024, 10), (24_000, 10)):
        count = whole // 20 if quick else whole
        rng = np.random.default_rng(0)
        X, s = np.rint(rng.uniform(-1, 1, (count, columns)) * 2**23), np.rint(rng.uniform(-1, 1, (count, 1)) * 2**32)
        layout = ProductLayout.of(count, 1, (columns,))
        seconds = best(partial(_product, layout, key, public, X, s), 1 if quick else 20)
        size = layout.ciphertext_bytes(count) + layout.answer_bytes(columns)
        ciphertexts = f"{layout.ciphertexts(count)} ciphertexts, {layout.answers(columns)} answers"
        rows.append(
            (f"{count} rows, {columns} columns", f"{1e3 * seconds:.1f} ms", f"{ciphertexts}, {size / 1e6:.2f} MB")
        )
        layout = ProductLayout.of(columns, 1, (count,))
        shares = np.frombuffer(rng.bytes(12 * columns), np.uint32).reshape(columns, 1, 3)
        seconds = best(partial(_scores, layout, key, public, X, shares), 1 if quick else 20)
        size = layout.ciphertext_bytes(columns) + layout.answer_bytes(count)
        ciphertexts = f"{layout.ciphertexts(columns)} ciphertexts, {layout.answers(count)} answers"
        words = f"the same columns times a share, {columns} numbers, for scores"
        rows.append((words, f"{1e3 * seconds:.1f} ms", f"{ciphertexts}, {size / 1e6:.2f} MB"))
    return rows


def _scores(layout, key, public, X: np.ndarray, shares: np.ndarray) -> None:  # type: ignore[no-untyped-def]
    sums = ProductSums(layout, public, len(X), 28)
    for first, last in layout.portions:
        part = X[:, first:last]
        sums.add(layout.encrypt_shares(key, shares[first:last]), last - first, lambda i, j, part=part: part[i:j].T)
    layout.open(key, sums.answer(private_keystream())[0], len(X))


def _product(layout, key, public, X: np.ndarray, s: np.ndarray) -> None:  # type: ignore[no-untyped-def]
    sums = ProductSums(layout, public, X.shape[1], 23)
    for first, last in layout.portions:
        part = X[first:last]
        sums.add(layout.encrypt(key, s[first:last]), last - first, lambda i, j, part=part: part[:, i:j])
    layout.open(key, sums.answer(private_keystream())[0], X.shape[1])
