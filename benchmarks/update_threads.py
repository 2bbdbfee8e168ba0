"""One thread for a party's updates, and two: seconds to 1e-3 in real processes, in turn, with what the processors did.

Both twins run asynchronously, in pairs one after the other, so that a ratio is within one minute of one machine. On two
cores two threads can only gain where one leaves a core idle: contributions and large updates of a party go on at once
with one thread already, and its partner takes its share. So the cores in use stand beside the seconds. Only updates of
50,000 numbers or more are handed to threads at all (`flows.updates`); those on 64 rows of rcv1 and of news20.binary are
smaller, so that two threads should change nothing there, and those on 64 rows of webspam are larger.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

import colonnade as cn
from reproductions.datasets import DataSet
from reproductions.imitations import imitate
from reproductions.optimum import minimise

Rows = list[tuple[str, str, str]]
STRENGTH, PRECISION = 1e-4, 1e-3
PAIRS = 7


@dataclass(frozen=True)
class Fit:
    """What one run took: seconds of training to the gap, and cores that all parties together kept busy."""

    seconds: float
    cores: float


def update_threads(quick: bool) -> Rows:
    """Two threads for updates beside one: seconds to 1e-3 in processes, medians of pairs, and cores in use."""
    rows: Rows = []
    times, epochs = (1, 2) if quick else (PAIRS, 60)
    for name, data, parties in _cases(quick):
        lowest = 0.0 if quick else minimise(data.X, data.y, "logistic", l2=STRENGTH, intercept=False).value
        for kind in ("saga",) if quick else ("sgd", "saga"):
            if not quick:
                _fit(parties, kind, 1, lowest)  # compiled and warm
            pairs = [[_fit(parties, kind, threads, lowest, epochs) for threads in (1, 2)] for _ in range(times)]
            one, two = ([pair[at] for pair in pairs] for at in (0, 1))
            ratios = sorted(pair[1].seconds / pair[0].seconds for pair in pairs)
            cores = [median(fit.cores for fit in fits) for fits in (one, two)]
            rows.append(
                (
                    f"{name}, {kind.upper()}: two threads",
                    f"{median(fit.seconds for fit in two):.2f} s, {cores[1]:.2f} cores",
                    f"one thread {median(fit.seconds for fit in one):.2f} s, {cores[0]:.2f} cores; ratio of pairs "
                    f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
                )
            )
    return rows


def _cases(quick: bool) -> list[tuple[str, DataSet, list[cn.Party]]]:
    """The imitation of rcv1 between four parties; news20's and webspam's with nearly all columns at one of two."""
    words = imitate("rcv1.binary", 0.01 if quick else 0.3)
    cases = [("rcv1.binary (imitation, 0.3), four parties", words, cn.split(words.X, words.y, into=4))]
    for name, scale, small in (("news20.binary", 0.2, 0.02), ("webspam", 0.01, 0.002)):
        wide = imitate(name, small if quick else scale)
        few = wide.X.shape[1] // 100
        parties = [cn.Party("bank", wide.X[:, :few], wide.y), cn.Party("shop", wide.X[:, few:])]
        cases.append((f"{name} (imitation, {scale:g}), 99 % of the columns at one of two parties", wide, parties))
    return cases


def _fit(parties: list[cn.Party], kind: str, threads: int, lowest: float, epochs: int = 60) -> Fit:
    """One run in processes, timed from the first evaluation on."""
    algorithm = cn.VFB2(kind, batch=64, epochs=epochs, tol=None, goal=lowest + PRECISION, threads=threads)
    model: Any = cn.LogisticRegression(l2=STRENGTH, fit_intercept=False, algorithm=algorithm, sum="plain", verbose=0)
    model.fit(*parties, on=cn.Processes())
    times, spent = [record["time"] for record in model.history_], model.times_.values()
    busy = sum(one.computing + one.communicating for one in spent)
    return Fit(times[-1] - times[0], busy / max(one.total for one in spent))
