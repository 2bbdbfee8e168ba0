"""Logistic regression with encrypted signals, beside the same protocol one ciphertext at a time."""

from __future__ import annotations

import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

import colonnade as cn
from alignment import OPPONENT
from colonnade.crypto.modular import Modulus
from kernel_learning import DATA
from reproductions.datasets import read_npz
from shortest import best

Rows = list[tuple[str, str, str]]
HERE = Path(__file__).parent
Cut = tuple[
    np.ndarray, np.ndarray, int, int, int
]  # columns, labels, columns of the label holder, batch, opponent's rows


def breast_cancer(quick: bool) -> Cut:
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    # 10 of the 30 columns at the other party: batches have at least 55 rows for each, so all 569 here.
    return _standardised(X), y, 20, 569, 20 if quick else 128


def credit(quick: bool) -> Cut:
    """24,000 of the 30,000 rows, 23 columns in their own order."""
    stored = read_npz(DATA, "ucicreditcard", ("X", "y"))
    rows = np.random.default_rng(0).permutation(len(stored["y"]))[: 600 if quick else 24_000]
    return (
        _standardised(stored["X"][rows].astype(float)),
        stored["y"][rows],
        13,
        600 if quick else 1024,
        20 if quick else 128,
    )


def _standardised(X: np.ndarray) -> np.ndarray:
    return (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)


def encrypted_training(quick: bool) -> Rows:
    """FedSGD under 2048-bit Paillier keys, two parties in processes; python-paillier + gmpy2 takes them one by one."""
    rows: Rows = []
    bars = {"breast_cancer": ("3.8 s", "1.5 s"), "credit": ("-", "20 s")}
    epochs = 2 if quick else 4
    for load in (breast_cancer, credit):
        X, y, cut, batch, few = load(quick)
        algorithm = cn.FedSGD(batch=batch, epochs=epochs, tol=None, step=0.5, schedule="constant")
        model = cn.LogisticRegression(algorithm=algorithm, sum="paillier", verbose=0)
        parties = cn.Party("bank", X[:, :cut], y), cn.Party("shop", X[:, cut:])
        began = time.perf_counter()
        model.fit(*parties, on=cn.Processes())
        whole = time.perf_counter() - began
        times = [record["time"] for record in model.history_]
        later = (times[-1] - times[1]) / (epochs - 1)
        name, (bar, bar_later) = load.__name__, bars[load.__name__]
        sent = sum(traffic.bytes for traffic in model.traffic_.values()) / epochs / 1e6
        rows += [
            (
                f"{name}: {len(X)} rows, {X.shape[1] - cut} columns, the first epoch with start and keys",
                f"{whole - (epochs - 1) * later:.2f} s",
                f"bar: {bar}",
            ),
            (f"{name}: a later epoch", f"{later:.2f} s", f"bar: {bar_later}; {sent:.1f} MB in both directions"),
        ]
        theirs = one_by_one(X[:few, cut:], batch)
        if theirs is not None:
            seconds = theirs * len(X) / few
            rows.append(
                (
                    f"{name}: one by one, an epoch, from {few} rows",
                    f"{seconds:.1f} s",
                    f"bar: 5 times ours, ratio {seconds / later:.0f}",
                )
            )
    return rows


def one_by_one(X: np.ndarray, batch: int) -> float | None:
    """The opponent's seconds for these rows; None where it is not installed."""
    if subprocess.run([OPPONENT, "-c", "import phe, gmpy2"], check=False, capture_output=True).returncode:
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npz"
        np.savez(file, X=X, s=np.random.default_rng(0).uniform(-1, 1, len(X)))
        command = [OPPONENT, str(HERE / "one_by_one.py"), str(file), str(batch)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def modular_products(quick: bool) -> Rows:
    """Products modulo a number of so many bits, one core, beside Python's own and GMP's one at a time."""
    rows: Rows = []
    for bits in (2048, 4096):
        m = (1 << bits) - 1
        x, count = pow(3, 10 * bits, m), 64 if quick else 2048
        modulus = Modulus(m)
        many = modulus.encode([x] * count)
        ours = best(partial(modulus.times, many, many), 1 if quick else 20) / count
        theirs = best(partial(_squares, x, m), 1 if quick else 20) / 200
        rows.append(
            (f"{bits} bits", f"{ours * 1e6:.2f} µs", f"Python {theirs * 1e6:.1f} µs, ratio {theirs / ours:.0f}")
        )
        gmp = gmp_product(bits)
        if gmp is not None:
            rows.append((f"{bits} bits, gmpy2", f"{gmp * 1e6:.2f} µs", f"ratio {gmp / ours:.1f}"))
    return rows


def _squares(x: int, m: int) -> None:
    for _ in range(200):
        _ = x * x % m


def gmp_product(bits: int) -> float | None:
    program = (
        f"import gmpy2, timeit; m = gmpy2.mpz(2)**{bits} - 1; x = gmpy2.powmod(3, 10 * {bits}, m); "
        f"print(min(timeit.repeat(lambda: x * x % m, number=2000, repeat=20)) / 2000)"
    )
    done = subprocess.run([OPPONENT, "-c", program], check=False, capture_output=True, text=True)
    return float(done.stdout) if done.returncode == 0 else None
