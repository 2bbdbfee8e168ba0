"""The opponent of encrypted training: its protocol with python-paillier and gmpy2, one ciphertext at a time.

python one_by_one.py FILE BATCH     FILE: .npz with the passive party's columns X and the rows' signals s

Prints the seconds of one pass over the rows: every signal encrypted, x s for every row and column and their sums,
a mask, and every gradient decrypted. Both sides in one process, since each waits for the other anyway; no messages.
"""

from __future__ import annotations

import secrets
import sys
import time

import numpy as np
from phe import paillier


def epoch(X: np.ndarray, s: np.ndarray, batch: int) -> float:
    public, private = paillier.generate_paillier_keypair(n_length=2048)
    began, worst = time.perf_counter(), 0.0
    for at in range(0, len(X), batch):
        rows = slice(at, at + batch)
        signals = [public.encrypt(float(signal)) for signal in s[rows]]
        for j, column in enumerate(X[rows].T):
            total = public.encrypt(0.0)
            for x, signal in zip(column, signals, strict=True):
                total = total + signal * float(x)
            mask = secrets.randbelow(2**20)
            opened = private.decrypt(total + mask)
            worst = max(worst, abs(opened - mask - float(X[rows, j] @ s[rows])))
    seconds = time.perf_counter() - began
    if worst > 1e-6:
        raise SystemExit("python-paillier found a wrong gradient")
    return seconds


if __name__ == "__main__":
    with np.load(sys.argv[1]) as stored:
        print(epoch(stored["X"], stored["s"], int(sys.argv[2])))
