"""What each algorithm shows, attacked: the audit of every algorithm with two and with three parties.

No paper's table: the question is what an honest partner can find out about labels, columns and people in one run. Each
run is audited as `model.audit` does it: every party's view, every attack, each beside what the attacker would have had
without the run. Breast cancer, 569 people and 30 columns, dealt to the parties in their order; the first holds labels.
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
from colonnade.attacks.case import COLUMNS, LABELS, PEOPLE
from colonnade.audit.auditing import Audit
from colonnade.audit.findings import AuditFinding
from colonnade.errors import ColonnadeWarning
from colonnade.inversions.score_equations import EqualitySolving, GenerativeRegression, ScoreRegression
from reproductions.report import Table, make_folder, show, work_off, write_csv

NAME = "audit"
L2 = 1e-3  # with less, classes that can be told apart drive scores beyond sealed training's period
PARTIES = (2, 3)
PAGE = "audit.md"
BEGIN, END = "<!-- written by `python -m reproductions audit` -->", "<!-- end of what it writes -->"
_ABOUT = {LABELS: "labels", COLUMNS: "columns", PEOPLE: "people"}
# Scores of the finished model are asked for after training, however it was trained.
_OF_SCORES = frozenset({EqualitySolving.name, GenerativeRegression.name, ScoreRegression.name})
_HEAD = ("training", "parties", "labels", "columns, from training", "columns, from scores of training rows", "people")


@dataclass(frozen=True)
class Cell:
    """One way to train: what it is called, a model of it, and how many parties hold labels."""

    words: str
    model: Callable[[int], Any]
    active: int = 1
    needs: str = ""
    columns: int = 30


def _linear(algorithm: Any = None, **more: Any) -> Callable[[int], Any]:
    given = {} if algorithm is None else {"algorithm": algorithm}
    return lambda _: cn.LogisticRegression(l2=L2, verbose=0, **given, **more)


def _encrypted(_: int) -> Any:
    return cn.LogisticRegression(l2=L2, algorithm=cn.FedSGD(epochs=3), sum="encrypted", verbose=0)


def _network(width: int, *, top: bool) -> Callable[[int], Any]:
    def made(parties: int) -> Any:
        import torch
        from torch import nn

        torch.manual_seed(0)
        columns = [len(some) for some in np.array_split(np.arange(30), parties)]
        networks = {
            f"party{at + 1}": nn.Sequential(nn.Linear(count, 8), nn.Tanh(), nn.Linear(8, width)).double()
            for at, count in enumerate(columns)
        }
        whole = nn.Sequential(nn.Linear(width * parties, 4), nn.Tanh(), nn.Linear(4, 1)).double() if top else None
        step = cn.FedSGD(epochs=20, step=0.1) if top else cn.FedSGD(epochs=20)
        return cn.NetworkClassifier(networks, top=whole, algorithm=step, verbose=0)

    return made


def _shared_directions(_: int) -> Any:
    return cn.KernelClassifier(algorithm=cn.FDSKL(directions="shared"), verbose=0)


CELLS = (
    Cell("sealed, `SealedNewton`", _linear(protection="sealed")),
    Cell("masked, `BlockNewton`, the default", _linear()),
    Cell("masked, `BlockNewton`, sequential", _linear(cn.BlockNewton(order="sequential"))),
    Cell("masked, `FedSGD`", _linear(cn.FedSGD())),
    Cell("masked, `FedBCD`", _linear(cn.FedBCD())),
    Cell("masked, `VFB2`, sgd", _linear(cn.VFB2("sgd"))),
    Cell("masked, `VFB2`, svrg", _linear(cn.VFB2("svrg"))),
    Cell("masked, `VFB2`, saga", _linear(cn.VFB2())),
    Cell("masked, `AFSGD`, two label holders", _linear(cn.AFSGD()), 2),
    Cell("masked, `FDML`", _linear(cn.FDML())),
    Cell("plain sums, `FedSGD`", _linear(cn.FedSGD(), protection="plain")),
    Cell('`sum="encrypted"`, `FedSGD`', _encrypted),
    Cell('`sum="encrypted"`, `FedSGD`, two label holders, four columns', _encrypted, 2, "", 4),
    Cell("kernels, `FDSKL`", lambda _: cn.KernelClassifier(verbose=0)),
    Cell("kernels, `FDSKL`, shared directions", _shared_directions),
    Cell("networks, summed scores", _network(1, top=False), needs="torch"),
    Cell("networks with a top network", _network(4, top=True), needs="torch"),
    Cell("trees, `SealedBoosting`", lambda _: cn.BoostedTreesClassifier(verbose=0)),
    Cell("trees, `OpenBoosting`", lambda _: cn.BoostedTreesClassifier(protection="plain", verbose=0)),
)  # fmt: skip
QUICK = (CELLS[0], CELLS[3])  # with two parties


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Audit every way to train, print the tables, and write them, and the page's, to `out`."""
    began = time.monotonic()
    make_folder(out)
    cells = [cell for cell in (QUICK if quick else CELLS) if _installed(cell.needs)]
    jobs = [(cell, parties) for cell in cells for parties in (PARTIES[:1] if quick else PARTIES)]
    # One after the other: networks begin with parameters that are drawn from one stream for all threads.
    found = work_off(jobs, lambda job: audit_of(*job, seed=seed), NAME, threads=1)
    every = findings_of(found)
    write_csv(out / f"{NAME}-{every.name}.csv", every.header, every.rows)
    seconds = f"{time.monotonic() - began:.0f} s, {len(jobs)} runs; one cut, seed {seed}"
    show(
        ["The audit of every algorithm, on breast cancer: 569 people, 30 columns."],
        [summary_of(found)],
        [seconds],
        out,
        NAME,
    )
    (out / PAGE).write_text(as_markdown(found), encoding="utf-8")


def audit_of(cell: Cell, parties: int, seed: int = 0) -> Audit:
    """Train once with so many parties, and audit the run."""
    from sklearn.datasets import load_breast_cancer

    table = load_breast_cancer()
    X = ((table.data - table.data.mean(axis=0)) / table.data.std(axis=0))[:, : cell.columns]
    order = np.random.default_rng(seed).permutation(len(X))
    train, rest = order[: len(X) * 3 // 4], order[len(X) * 3 // 4 :]
    given, others = (cn.split(X[some], table.target[some], into=parties, active=cell.active) for some in (train, rest))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColonnadeWarning)
        model = cell.model(parties).fit(*given)
        found: Audit = model.audit(*given, others=others, seed=seed)
    return found


def _installed(library: str) -> bool:
    if library:
        try:
            __import__(library)
        except ImportError:
            return False
    return True


# -- tables ------------------------------------------------------------------------------------------------------------

Found = Mapping[tuple[Cell, int], Audit]


def summary_of(found: Found) -> Table:
    """A line for each run: the largest advantage about labels, columns and people, and of which attack it is."""
    rows = []
    for (cell, parties), audit in found.items():
        best = [
            _worst(audit, LABELS),
            _worst(audit, COLUMNS, scores=False),
            _worst(audit, COLUMNS, scores=True),
            _worst(audit, PEOPLE),
        ]
        rows.append([cell.words, str(parties), *(_said(one) for one in best)])
    words = [
        "The advantage is the part of what an attacker could not know without the run that it found: 0 none, 1 all.",
        "Above 0.05 it counts as open. A dash: no attack had anything to go by.",
    ]
    return Table("summary", "What a partner can find out", _HEAD, rows, words)


def findings_of(found: Found) -> Table:
    """Every attack of every run that had anything to go by."""
    head = ("training", "parties", "attack", "by", "on", "it had", "best", "score", "floor", "advantage")
    rows = [
        [
            cell.words, str(parties), one.attack, one.attacker, f"{one.target}, {_ABOUT[one.about]}", one.had, one.what,
            f"{one.measure} {one.score:.3f}", f"{one.floor:.3f}", f"{one.advantage:.2f}",
        ]
        for (cell, parties), audit in found.items() for one in audit.findings
    ]  # fmt: skip
    return Table("findings", "Every attack", head, rows)


def _worst(audit: Audit, about: str, *, scores: bool = False) -> AuditFinding | None:
    found = [one for one in audit.findings if one.about == about and (one.attack in _OF_SCORES) == scores]
    return max(found, key=lambda one: one.advantage, default=None)


def _said(finding: AuditFinding | None) -> str:
    if finding is None:
        return "–"
    if finding.advantage <= 0.0:
        return "0"
    had = f", {finding.had}" if finding.had else ""
    return (
        f"{finding.advantage:.2f} ({finding.attack}{had}: {finding.measure} {finding.score:.2f} of {finding.floor:.2f})"
    )


def as_markdown(found: Found) -> str:
    """The summary as the page has it, between its marks."""
    table = summary_of(found)
    lines = [f"| {' | '.join(table.header)} |", "| --- | ---: | --- | --- | --- | --- |"]
    lines += [f"| {' | '.join(row)} |" for row in table.rows]
    return "\n".join([BEGIN, "", *lines, "", END, ""])
