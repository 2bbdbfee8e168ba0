"""Each attack on data that papers on attacks use, beside what these papers say.

Two parties, the first with the labels. Every attack is carried out on that kind of training which shows most: signals
and sums of first-order training, directions of block Newton, embeddings of networks with a top network, phases of
kernels, cells of trees. What counts is the order of success, as models and data differ from the papers'.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import colonnade as cn
from colonnade.audit.findings import AuditFinding
from colonnade.audit.registry import ATTACKS
from colonnade.errors import ColonnadeWarning
from reproductions.audit_papers import PAPERS
from reproductions.datasets import Array, MissingData
from reproductions.mnist_halves import pictures
from reproductions.report import Table, make_folder, show, work_off
from reproductions.tree_methods import raw_tables

NAME = "audit-attacks"
SETS = ("breast cancer", "ucicreditcard", "a9a", "mnist")
ROWS, SHORT = 4_000, 150  # of which two thirds are trained on
FEW = 40  # columns of the short form, or hardly more: attacks that rebuild columns take their number times itself
DIGITS = (3, 8)
_HIDDEN, _WIDTH = 16, 8


@dataclass(frozen=True)
class Setting:
    """A way to train: what it is called, the model for so many columns at each party, and how many hold labels."""

    words: str
    model: Callable[[Mapping[str, int]], Any]
    active: int = 1
    sets: tuple[str, ...] = SETS


def _network(widths: Mapping[str, int]) -> Any:
    import torch
    from torch import nn

    torch.manual_seed(0)
    made = {
        name: nn.Sequential(nn.Linear(count, _HIDDEN), nn.Tanh(), nn.Linear(_HIDDEN, _WIDTH)).double()
        for name, count in widths.items()
    }
    top = nn.Sequential(nn.Tanh(), nn.Linear(_WIDTH * len(widths), 1)).double()
    return cn.NetworkClassifier(made, top=top, algorithm=cn.FedSGD(epochs=10, step=0.1), verbose=0)


def _first_order(_: Mapping[str, int]) -> Any:
    return cn.LogisticRegression(algorithm=cn.FedSGD(epochs=10), verbose=0)


SETTINGS = (
    Setting("linear, FedSGD", _first_order),
    Setting("linear, BlockNewton", lambda _: cn.LogisticRegression(verbose=0)),
    Setting("linear, two label holders", _first_order, 2),
    Setting("network with a top network", _network),
    Setting("kernel, FDSKL", lambda _: cn.KernelClassifier(verbose=0), sets=SETS[:3]),
    Setting("trees, sealed", lambda _: cn.BoostedTreesClassifier(verbose=0), sets=SETS[:3]),
    Setting("trees, plain", lambda _: cn.BoostedTreesClassifier(protection="plain", verbose=0), sets=SETS[:3]),
)  # fmt: skip


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Audit every setting on every set, print the tables and write them to `out`."""
    began = time.monotonic()
    tables, said = _tables(data, seed, quick=quick)
    make_folder(out)
    jobs = [(name, setting) for name in tables for setting in SETTINGS if name in setting.sets]
    jobs = [job for job in jobs if not quick or job[1] in SETTINGS[:2]]
    found = work_off(jobs, lambda job: _audited(*tables[job[0]], job[1], seed), NAME, threads=1)
    foot = [*said, f"{time.monotonic() - began:.0f} s, {len(jobs)} runs; one cut, seed {seed}"]
    show(["Attacks on two parties, beside what their papers say."], [_table(found, tuple(tables))], foot, out, NAME)


def _tables(data: Path, seed: int, *, quick: bool) -> tuple[dict[str, tuple[Array, Array]], list[str]]:
    """Return columns and labels of each set that is there, and what is missing."""
    from sklearn.datasets import load_breast_cancer

    bunch, most = load_breast_cancer(), SHORT if quick else ROWS
    found = {"breast cancer": (bunch.data, bunch.target)}
    said: list[str] = []
    try:
        sets, said = raw_tables(SETS[1:3], data, quick=quick)
        found |= {name: (one.X, (np.asarray(one.y) > 0).astype(int)) for name, one in sets.items()}
    except MissingData as error:
        said = [f"{error}."]
    try:
        (X, y), _ = pictures(data, DIGITS, (most, 1), seed)
        kept = X.reshape(len(X), -1)
        found["mnist"] = (kept[:, kept.std(axis=0) > 0.1], (y == DIGITS[1]).astype(int))
    except MissingData as error:
        said.append(f"{error}.")
    drawn = {name: _drawn(X, y, most, seed) for name, (X, y) in found.items()}
    if quick:
        drawn = {name: (X[:, :: max(1, X.shape[1] // FEW)], y) for name, (X, y) in drawn.items()}
    return drawn, said


def _drawn(X: Array, y: Array, most: int, seed: int) -> tuple[Array, Array]:
    rows = np.random.default_rng(seed).permutation(len(X))[:most]
    some = np.asarray(X, dtype=np.float64)[rows]
    some = some[:, some.std(axis=0) > 0.0]
    return (some - some.mean(axis=0)) / some.std(axis=0), np.asarray(y)[rows]


def _audited(X: Array, y: Array, setting: Setting, seed: int) -> tuple[AuditFinding, ...]:
    at = len(X) * 2 // 3
    train, others = (cn.split(X[some], y[some], into=2, active=setting.active) for some in (slice(at), slice(at, None)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColonnadeWarning)
        model = setting.model({party.name: party.features for party in train}).fit(*train)
        found: tuple[AuditFinding, ...] = model.audit(*train, others=others, seed=seed).findings
    return found


def _table(found: Mapping[tuple[str, Setting], tuple[AuditFinding, ...]], sets: tuple[str, ...]) -> Table:
    rows = []
    for attack in ATTACKS:
        cells = []
        for name in sets:
            best = [
                (one, setting.words)
                for (of, setting), findings in found.items()
                for one in findings
                if of == name and one.attack == attack.name
            ]
            cells.append(_said(*max(best, key=lambda pair: pair[0].advantage)) if best else "–")
        rows.append([attack.name, attack.paper, *cells, PAPERS.get(attack.name, "")])
    words = [
        "Score of floor, and the advantage: the part of what was left to find that was found; best of all settings.",
        "A dash: the attack had nothing to go by.",
    ]
    return Table("attacks", "Attacks", ("attack", "from", *sets, "what the paper says"), rows, words)


def _said(finding: AuditFinding, setting: str) -> str:
    had = f", {finding.had}" if finding.had else ""
    return f"{finding.measure} {finding.score:.2f} of {finding.floor:.2f}: {finding.advantage:.2f} ({setting}{had})"
