"""FedBCD, Theorem 1 and Remarks 2 and 3: how fast the gradient falls with local steps and with exchanges.

Liu et al., "FedBCD", IEEE Transactions on Signal Processing 70, 2022, Section V. With eta = O(eps) and
Q = O(1 / sqrt(eps)) the mean of |grad L|^2 over T = O(1 / eps^2) local steps is O(eps). So it falls like T^(-1/2), and
with T / Q exchanges like their power -2/3, where one step per exchange has -1/2.

The step is Theorem 1's own (step="theorem"), which for a large Q is proportional to 1 / Q^2, as eps is to 1 / Q^2 in
Remark 3. So a series of Q, each with T in proportion to Q^4, goes along the theorem's own path.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log
from pathlib import Path

import numpy as np

from colonnade.algorithms import FedBCD
from colonnade.algorithms.theorem_step import largest_step
from colonnade.data.party import Party
from colonnade.estimators.linear import LogisticRegression
from reproductions.datasets import Array
from reproductions.optimum import minimise
from reproductions.report import Panel, Table, make_folder, plot, show, work_off, write_csv

NAME = "fedbcd-rate"
ROWS, COLUMNS, BATCH, L2 = 2048, 8, 16, 0.01
# Where a run is looked at, in parts of it; between two of these the gradient is taken to change evenly. It falls fast
# in the beginning: without the first looks, half of a long run's mean would be that assumption.
LOOKS = (0.0, *(2.0**-k for k in range(11, 0, -1)), 0.75, 1.0)
# (what it is called, whether the signal follows a party's own steps as in equation (9), K, promised power of rounds)
SERIES = (
    ("FedBCD-p, exact", True, 2, -2 / 3),
    ("FedBCD-p, frozen", False, 2, -2 / 3),
    ("FedBCD-p, exact", True, 4, -2 / 3),
    ("FedSGD", False, 2, -1 / 2),
)


@dataclass(frozen=True)
class Size:
    """How much is run: all of it by default, less for a short form."""

    seeds: int = 1
    steps: tuple[int, ...] = (4, 6, 8, 11)  # Q; Theorem 1 asks for sqrt(S / K) at least, 2.8 and 2
    first: int = 300  # exchanges with the first Q
    single: tuple[int, ...] = (1000, 4000, 16000)  # exchanges of FedSGD


QUICK = Size(1, (4, 6), 60, (60, 240))


@dataclass(frozen=True)
class Point:
    """A run up to one look: which series, its Q and step (None is the theorem's), all its exchanges, and the look."""

    series: int
    Q: int
    eta: float | None
    rounds: int
    seed: int
    look: float

    @property
    def done(self) -> int:
        """Exchanges up to the look: a run with fewer of them is the beginning of one with more."""
        return round(self.look * self.rounds)


@dataclass(frozen=True)
class Problem:
    """Logistic regression on drawn rows, at K parties; all of it is here, so that its gradient can be worked out."""

    X: Array
    y: Array

    @classmethod
    def drawn(cls, seed: int) -> Problem:
        """Standard normal columns, labels from a logistic model: no separation, and L known well."""
        rng = np.random.default_rng([seed, 0xFA7E])
        X = rng.standard_normal((ROWS, COLUMNS))
        return cls(X, np.where(X @ rng.standard_normal(COLUMNS) + rng.logistic(size=ROWS) > 0, 1, 0))

    def parties(self, count: int) -> list[Party]:
        """Equal shares of the columns; the first has the labels."""
        cuts = np.array_split(np.arange(COLUMNS), count)
        return [Party(f"party{k}", self.X[:, cut], self.y if k == 1 else None) for k, cut in enumerate(cuts, 1)]

    def squared_gradient(self, w: Array) -> float:
        """|grad L|^2 over all rows, with the penalty."""
        y = 2.0 * self.y - 1.0
        signal = -y / (1.0 + np.exp(y * (self.X @ w)))
        return float(np.square(self.X.T @ signal / ROWS + L2 * w).sum())

    def step(self, parties: int, Q: int) -> float:
        """The theorem's step, from the table as a whole; for the table and for FedSGD's series."""
        cuts = np.array_split(np.arange(COLUMNS), parties)
        eigenvalue = sum(float(np.linalg.eigvalsh(self.X[:, c].T @ self.X[:, c] / ROWS)[-1]) for c in cuts)
        m = float(np.square(self.X).sum()) / ROWS
        squares = (m / 4) ** 2 + m / 2 * L2 * parties**0.5 + parties * L2**2
        return largest_step(eigenvalue / 4 + L2, squares, Q)


def squared_gradient_at(problem: Problem, point: Point) -> float:
    """Train up to a look, and work out the gradient there."""
    _, fresh, count, _ = SERIES[point.series]
    if point.done == 0:
        return problem.squared_gradient(np.zeros(COLUMNS))
    algorithm = FedBCD(
        point.Q, signal="exact" if fresh else "frozen", step="theorem" if point.eta is None else point.eta,
        schedule="constant", sampling="uniform", batch=BATCH, epochs=ceil(point.done * BATCH / ROWS),
        rounds=point.done, tol=None, seed=point.seed,
    )  # fmt: skip
    model = LogisticRegression(l2=L2, fit_intercept=False, algorithm=algorithm, sum="plain", verbose=0)
    return problem.squared_gradient(np.concatenate(list(model.fit(*problem.parties(count)).coef_.values())))


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    make_folder(out)
    problem, seeds = Problem.drawn(seed), range(seed, seed + size.seeds)
    runs = [run for at in range(len(SERIES)) for run in _runs(at, problem, size)]
    points = [Point(at, Q, eta, rounds, s, look) for at, Q, eta, rounds in runs for s in seeds for look in LOOKS]
    # The long ones first: at the end both threads are busy.
    points.sort(key=lambda point: -point.done * point.Q)
    found = work_off(points, lambda point: squared_gradient_at(problem, point), NAME)
    fall = log(2) - minimise(problem.X, problem.y, "logistic", l2=L2, intercept=False).value
    means = {one: float(np.mean([_mean(found, one, s) for s in seeds])) for one in runs}
    rows = []
    for one, mean in means.items():
        at, Q, eta, rounds = one
        name, _, count, _ = SERIES[at]
        step = problem.step(count, Q) if eta is None else eta
        sizes = (f"{step:.3g}", f"{Q * rounds:,}", f"{rounds:,}", f"{2 * fall / (step * Q * rounds):.2e}")
        rows.append((name, str(count), str(Q), *sizes, f"{mean:.2e}"))
    header = ("algorithm", "K", "Q", "eta", "T", "rounds", "of (11)", "here")
    words = ['"of (11)" is the first term of the bound, 2 (L(0) - min L) / (eta T); "here" is the mean of |grad L|².']
    first = Table("runs", "1. Mean squared gradient over a run", header, rows, words)
    head = [
        f"The rate of FedBCD's Remark 3{', short form' if quick else ''}. Seeds {', '.join(map(str, seeds))}.",
        f"Logistic regression on {ROWS} drawn rows of {COLUMNS} columns, l2 {L2:g}, batches of {BATCH} drawn "
        f"independently. The gradient is that of the objective over all rows.",
    ]
    panel = Panel("Remark 3", "log10 of mean |grad L|²", _lines(means), across="log10 of rounds (exchanges)")
    foot = [plot([panel], out / f"{NAME}.png"), f"Tables are in {out}. {time.monotonic() - began:.0f} s."]
    show(head, [first, _slopes(means)], foot, out, NAME)
    looks = ((*SERIES[p.series][:3], p.Q, p.rounds, p.seed, p.done, value) for p, value in found.items())
    write_csv(out / f"{NAME}-looks.csv", ("algorithm", "fresh", "K", "Q", "rounds", "seed", "look", "|grad L|²"), looks)


Run = tuple[int, int, float | None, int]  # a series, Q, eta, exchanges


def _runs(at: int, problem: Problem, size: Size) -> list[Run]:
    """The runs of a series: T in proportion to Q^4, so exchanges to Q^3; FedSGD's step falls as T^(-1/2)."""
    if SERIES[at][0] == "FedSGD":
        first = problem.step(2, 1)
        return [(at, 1, first * (size.single[0] / rounds) ** 0.5, rounds) for rounds in size.single]
    return [(at, Q, None, round(size.first * (Q / size.steps[0]) ** 3)) for Q in size.steps]


def _mean(found: Mapping[Point, float], one: Run, seed: int) -> float:
    """The mean over a run, by the trapezoid rule over its looks."""
    values = [found[Point(*one, seed, look)] for look in LOOKS]
    return float(sum((b - a) * (x + y) / 2 for (a, b), (x, y) in zip(pairwise(LOOKS), pairwise(values), strict=True)))


def _series(means: Mapping[Run, float], at: int) -> tuple[Sequence[float], Sequence[float], Sequence[float]]:
    """Logarithms of the rounds, of the local steps, and of the mean squared gradient."""
    mine = [(log(rounds), log(Q * rounds), log(mean)) for (one, Q, _, rounds), mean in means.items() if one == at]
    rounds, steps, values = zip(*mine, strict=True)
    return rounds, steps, values


def _slopes(means: Mapping[Run, float]) -> Table:
    rows = []
    for at, (name, _, count, power) in enumerate(SERIES):
        rounds, steps, values = _series(means, at)
        last = (values[-1] - values[-2]) / (rounds[-1] - rounds[-2])
        by_rounds, by_steps = (float(np.polyfit(x, values, 1)[0]) for x in (rounds, steps))
        rows.append((name, str(count), f"{by_steps:.2f}", "-0.50", f"{by_rounds:.2f}", f"{last:.2f}", f"{power:.2f}"))
    header = ("algorithm", "K", "by T", "promised", "by rounds", "last two", "promised by rounds")
    words = [
        'Powers fitted on logarithms over all runs of a series; "last two" is between its two longest runs. Remark 3 '
        "promises a bound: a power below its own is better than that, one above it has not come so far yet.",
    ]
    return Table("slopes", "2. Powers of T and of the rounds", header, rows, words)


def _lines(means: Mapping[Run, float]) -> list[tuple[str, Sequence[float], Sequence[float]]]:
    lines: list[tuple[str, Sequence[float], Sequence[float]]] = []
    for at, (name, _, count, _) in enumerate(SERIES):
        rounds, _, values = _series(means, at)
        lines.append((f"{name}, K = {count}", [r / log(10) for r in rounds], [v / log(10) for v in values]))
    return lines
