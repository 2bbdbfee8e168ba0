"""What defences of networks and of scores cost, and what they leave to attacks: privacy and utility on two data sets.

Networks: two parties with half of the columns each, MNIST's 3 against 8 and UCICreditCard, and a top network at the
label holder. The label holder knows the other's columns of some rows and regresses them on its embeddings (ridge); as
far as its own columns tell them too, that is no gain. The other party splits its own embeddings by their first singular
vector, which may be the label (Sun et al. 2022, section 3).

Scores: linear models of which the asker knows all coefficients, and solves for the other's columns what it hears of a
person's score of each class (Luo et al. 2021, section IV).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import colonnade as cn
from colonnade.data.party import Party
from colonnade.defences import (
    Bottleneck,
    Defence,
    DistanceCorrelation,
    LabelCorrelation,
    NoisyEmbeddings,
    RoundedScores,
)
from colonnade.networks.torch_modules import need_torch
from colonnade.runtimes.net import CLEAR
from colonnade.views.recording import Recording
from reproductions.datasets import Array, read_npz
from reproductions.report import Table, make_folder, show

NAME = "defences-networks"
_RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
_LATE = 5  # evaluations whose embeddings are averaged, against noise
# What an attacker takes of a run's evaluations.
LAST, LATE, ALL = "last epoch", "mean of five", "all epochs"


@dataclass(frozen=True)
class Size:
    """How much is run: all of it by default, less for a short form."""

    train_rows: int = 3000
    test_rows: int = 4000
    epochs: int = 12
    known: int = 200
    weights: tuple[float, ...] = (0.3, 1.0, 3.0)
    bottlenecks: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1)
    noises: tuple[float, ...] = (0.25, 0.5, 1.0)
    labels: tuple[float, ...] = (0.1, 0.3, 1.0)


QUICK = Size(400, 400, 2, 100, (1.0,), (0.03,), (0.5,), (0.3,))


@dataclass(frozen=True, eq=False)
class Halves:
    """Columns of two parties, of rows to train with and to test with; the first party has the labels."""

    name: str
    own: tuple[Array, Array]
    theirs: tuple[Array, Array]
    y: tuple[Array, Array]
    width: int  # of an embedding
    hidden: int

    def parties(self, part: int) -> list[Party]:
        """The two of them, with training (0) or test rows (1)."""
        return [Party("bank", self.own[part], self.y[part]), Party("shop", self.theirs[part])]


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    sets = [digits(data, size, seed, (3, 8)), credit(data, size, seed)]
    make_folder(out)
    torch = need_torch()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", cn.errors.ColonnadeWarning)  # what a top network shows is what is measured here
    try:
        tables = [networks_table(one, size, seed, place) for place, one in enumerate(sets, 1)]
    finally:
        torch.set_num_threads(threads)
    linear = [ten_digits(data, size, seed), credit(data, size, seed)]
    tables += [scores_table(one, seed, place) for place, one in enumerate(linear, 3)]
    head = [f"Defences of networks and scores{', short form' if quick else ''}. Seed {seed}.", *tables_words(size)]
    seconds = time.monotonic() - began
    show(head, tables, [f"Tables are in {out}. {seconds:.0f} s."], out, NAME)


def tables_words(size: Size) -> list[str]:
    """What all tables have in common."""
    return [
        f"{size.train_rows} rows to train with, {size.test_rows} to test with; networks learn by FedSGD with Adam, "
        f"{size.epochs} epochs, batches of 128.",
        f"Attacks on columns know {size.known} rows; gain is (found - alone) / (1 - alone), where alone is what own "
        f"columns tell.",
    ]


# -- data --------------------------------------------------------------------------------------------------------------


def digits(data: Path, size: Size, seed: int, two: tuple[int, int]) -> Halves:
    """Left and right halves of two digits' pictures."""
    X, y = _pictures(data, size, seed, two)
    cut = X[0].shape[2] // 2
    left, right = ([part[:, :, at].reshape(len(part), -1) for part in X] for at in (slice(cut), slice(cut, None)))
    return Halves("mnist, 3 against 8", (left[0], left[1]), (right[0], right[1]), y, 16, 64)


def ten_digits(data: Path, size: Size, seed: int) -> Halves:
    """All digits, as 49 means over 4 x 4 pixels, of which nine in the middle are the other party's."""
    X, y = _pictures(data, size, seed, tuple(range(10)))
    means = [part.reshape(len(part), 7, 4, 7, 4).mean(axis=(2, 4)) for part in X]
    middle = np.zeros((7, 7), dtype=bool)
    middle[2:5, 2:5] = True
    own, theirs = ([part[:, chosen] for part in means] for chosen in (~middle, middle))
    return Halves("mnist, 10 digits", (own[0], own[1]), (theirs[0], theirs[1]), y, 0, 0)


def credit(data: Path, size: Size, seed: int) -> Halves:
    """UCICreditCard's 23 columns, dealt in turn."""
    stored = read_npz(data, "ucicreditcard", ("X", "y"))
    rows = np.random.default_rng([seed, 0xDEF]).permutation(len(stored["y"]))[: size.train_rows + size.test_rows]
    train, test = rows[: size.train_rows], rows[size.train_rows :]
    X = np.asarray(stored["X"], dtype=np.float64)
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    own, theirs = ((X[train][:, at::2], X[test][:, at::2]) for at in (0, 1))
    return Halves("ucicreditcard", own, theirs, (stored["y"][train], stored["y"][test]), 8, 32)


def _pictures(
    data: Path, size: Size, seed: int, which: tuple[int, ...]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    stored = read_npz(data, "mnist", ("X", "y", "X_test", "y_test"))
    X, y = [], []
    for name, count in (("", size.train_rows), ("_test", size.test_rows)):
        chosen = np.nonzero(np.isin(stored[f"y{name}"], which))[0]
        chosen = np.random.default_rng([seed, 0xDEF]).permutation(chosen)[:count]
        X.append((stored[f"X{name}"][chosen].reshape(len(chosen), 28, 28).astype(np.float64) - 33.3) / 78.6)
        y.append(stored[f"y{name}"][chosen])
    return (X[0], X[1]), (y[0], y[1])


# -- networks ----------------------------------------------------------------------------------------------------------


def networks_table(halves: Halves, size: Size, seed: int, place: int) -> Table:
    """One line for each defence and strength."""
    defences: list[tuple[Defence, ...]] = [()]
    defences += [(DistanceCorrelation(weight=one),) for one in size.weights]
    defences += [(Bottleneck(weight=one),) for one in size.bottlenecks]
    defences += [(NoisyEmbeddings(noise=one),) for one in size.noises]
    defences += [(LabelCorrelation(weight=one),) for one in size.labels]
    alone = explained([halves.own[0]], halves.theirs[0], size.known)
    lines = []
    for one in defences:
        model, embeddings = trained(halves, one, size, seed)
        found = {}
        for what, tables in embeddings.items():
            both = [tables, [*tables, halves.own[0]]]
            found[what] = max(explained(each, halves.theirs[0], size.known) for each in both)
        gains = [max(0.0, (found[what] - alone) / (1 - alone)) for what in (LAST, LATE, ALL)]
        positive = halves.y[1] == np.max(halves.y[1])
        utility = area(model.decision_function(*halves.parties(1)), positive)
        labels = area(spectral(model, halves.theirs[0]), halves.y[0] == np.max(halves.y[0]))
        told = one[0].words if one else "none"
        lines.append((told, f"{utility:.3f}", *(f"{one:.2f}" for one in gains), f"{max(labels, 1 - labels):.2f}"))
    head = ("defence", "test AUC", f"gain, {LAST}", LATE, ALL, "labels, spectral AUC")
    words = [f"From own columns alone {alone:.2f} of the columns' variance is explained."]
    return Table(f"networks-{place}", f"{place}. Networks, {halves.name}", head, lines, words)


def trained(halves: Halves, defences: tuple[Defence, ...], size: Size, seed: int) -> tuple[Any, dict[str, list[Array]]]:
    """A model, and what the label holder saw of the other's embeddings, in three forms."""
    torch, width, hidden = need_torch(), halves.width, halves.hidden
    nn = torch.nn
    torch.manual_seed(seed)
    columns = {"bank": halves.own[0].shape[1], "shop": halves.theirs[0].shape[1]}
    networks = {
        name: nn.Sequential(nn.Linear(count, hidden), nn.ReLU(), nn.Linear(hidden, width))
        for name, count in columns.items()
    }
    top = nn.Sequential(nn.Linear(2 * width, 16), nn.ReLU(), nn.Linear(16, 1))
    method = cn.FedSGD(epochs=size.epochs, batch=128, tol=None, seed=seed)
    model, on = (
        cn.NetworkClassifier(networks, top=top, optimizer="adam", algorithm=method, defences=defences, verbose=0),
        Recording(),
    )
    model.fit(*halves.parties(0), on=on)
    told = np.concatenate([one.value for one in on.views["bank"].of(CLEAR, "embeddings to evaluate")])
    seen = told.reshape(-1, len(halves.y[0]), width)  # every evaluation is of all rows, some at a time
    return model, {LAST: [seen[-1]], LATE: [seen[-_LATE:].mean(axis=0)], ALL: list(seen)}


def explained(tables: Sequence[Array], target: Array, known: int) -> float:
    """The part of the variance of columns that ridge regression on these tables explains, learnt from known rows."""
    # Each table as a whole has one scale: single columns that hardly vary among known rows would drown the others.
    centred = [table - table[:known].mean(axis=0) for table in tables]
    lengths = [max(float(np.sqrt((table[:known] ** 2).sum(axis=1).mean())), 1e-9) for table in centred]
    A = np.column_stack([table / length for table, length in zip(centred, lengths, strict=True)])
    mean, best = target[:known].mean(axis=0), -np.inf
    for ridge in _RIDGES:  # an attacker would find the best one by leaving rows out
        inner = A[:known] @ A[:known].T + ridge * np.eye(known)
        found = A[known:] @ (A[:known].T @ np.linalg.solve(inner, target[:known] - mean))
        wrong = ((found + mean - target[known:]) ** 2).sum()
        best = max(best, 1 - wrong / ((target[known:] - mean) ** 2).sum())
    return float(max(best, 0.0))


def spectral(model: Any, columns: Array) -> Array:
    """A party's own embeddings along their first singular vector, before anything is put around them."""
    torch, module = need_torch(), model.modules_["shop"]
    module = getattr(module, "network", module)
    with torch.no_grad():
        own = module(torch.from_numpy(columns).float()).double().numpy()
    return np.asarray(np.linalg.svd(own - own.mean(axis=0), full_matrices=False)[0][:, 0])


def area(scores: Array, positive: Array) -> float:
    """The area under the ROC curve."""
    order = np.argsort(np.argsort(scores, kind="stable"), kind="stable") + 1.0
    high = int(positive.sum())
    return float((order[positive].sum() - high * (high + 1) / 2) / (high * (len(scores) - high)))


# -- scores ------------------------------------------------------------------------------------------------------------


def scores_table(halves: Halves, seed: int, place: int) -> Table:
    """One line for each way to tell less of a party's part of a score."""
    many = len(np.unique(halves.y[0])) > 2
    made = cn.SoftmaxRegression if many else cn.LogisticRegression
    method = cn.FedSGD(epochs=20, tol=None, seed=seed)
    model: Any = made(algorithm=method, verbose=0).fit(*halves.parties(0))
    test = halves.parties(1)
    exact = model.decision_function(*test)
    own = halves.own[1] @ np.atleast_2d(model.coef_["bank"]).T + model.intercept_
    told: list[tuple[str, tuple[Defence, ...]]] = [("none", ())]
    told += [(f"round to {one} decimals", (RoundedScores(digits=one),)) for one in (2, 1, 0)]
    told += [(f"noise {one}", (RoundedScores(digits=None, noise=one),)) for one in (0.3, 1.0, 3.0)]
    lines = []
    for words, defences in told:
        model.defences = defences
        scores = model.decision_function(*test)
        if many:
            utility = f"{np.mean(model.classes_[scores.argmax(axis=1)] == halves.y[1]):.3f}"
            changed = np.mean(scores.argmax(axis=1) != exact.argmax(axis=1))
        else:
            utility = f"{area(scores, halves.y[1] == np.max(halves.y[1])):.3f}"
            changed = np.mean((scores > 0) != (exact > 0))
        coefficients = np.atleast_2d(model.coef_["shop"])
        found = np.linalg.lstsq(coefficients, (scores.reshape(len(own), -1) - own).T, rcond=None)[0].T
        fits = correlations(found, halves.theirs[1])
        lines.append((words, utility, f"{100 * changed:.1f} %", f"{fits.max():.2f}", f"{fits.mean():.2f}"))
    head = (
        "own parts of scores",
        "accuracy" if many else "test AUC",
        "decisions changed",
        "best column",
        "mean column",
    )
    below = [f"{halves.theirs[1].shape[1]} columns from {exact.reshape(len(own), -1).shape[1]} scores of a person; R²."]
    return Table(f"scores-{place}", f"{place}. Scores, {halves.name}", head, lines, below)


def correlations(found: Array, target: Array) -> Array:
    """R² of each column with its own estimate."""
    a, b = found - found.mean(axis=0), target - target.mean(axis=0)
    return np.asarray((a * b).sum(axis=0) ** 2 / np.maximum((a * a).sum(axis=0) * (b * b).sum(axis=0), 1e-300))
