"""`colonnade demo`: what federation gains, on data that scikit-learn ships.

A hospital knows the outcome and ten measurements of each patient; a laboratory and an imaging centre hold ten more
columns each. The hospital alone, all three federated (in three processes), all data in one place.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import colonnade as cn
from colonnade import metrics
from colonnade.errors import OptionError
from colonnade.progress import human_bytes

_L2 = 1e-2
_COLUMNS = {"hospital": range(10), "laboratory": range(10, 20), "imaging": range(20, 30)}


@dataclass
class _Data:
    train: list[Any]
    test: list[Any]
    y_test: Any
    joined: tuple[Any, Any, Any]  # training and test columns in one place, training labels


def _load() -> _Data:
    try:
        from sklearn.datasets import load_breast_cancer
        from sklearn.model_selection import train_test_split
    except ModuleNotFoundError:
        raise OptionError("the demo needs scikit-learn for its data; install colonnade[demo]") from None
    X, y = load_breast_cancer(return_X_y=True)
    y = 1 - y  # 1 = malignant
    train, test = train_test_split(range(len(y)), test_size=0.25, random_state=0, stratify=y)
    # Each organisation can do this alone: its own columns, its own training rows.
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    cut = [cn.split(X[rows], y[rows], into=_COLUMNS, active=["hospital"]) for rows in (train, test)]
    return _Data(cut[0], cut[1], y[test], (X[train], X[test], y[train]))


@contextmanager
def _said(console: Console, text: str) -> Iterator[None]:
    with console.status(text):
        yield


def run_demo(out: Path) -> None:
    """Train the three models, print the table, draw the plot."""
    console = Console()
    data = _load()
    rows, features = data.joined[0].shape
    console.print(
        f"[bold]Breast cancer[/bold]: {rows} patients to train on, {features} columns in three organisations."
    )

    with _said(console, "the hospital alone"):
        began = time.perf_counter()
        alone = cn.LogisticRegression(l2=_L2, verbose=0)
        alone.fit(data.train[0])
        alone_row = _row(alone.decision_function(data.test[0]), data.y_test, time.perf_counter() - began)
    with _said(console, "all three, one process each"):
        began = time.perf_counter()
        model = cn.LogisticRegression(l2=_L2, verbose=0)
        model.fit(*data.train, on=cn.Processes())
        federated_row = _row(model.decision_function(*data.test), data.y_test, time.perf_counter() - began)
    with _said(console, "all data in one place"):
        from sklearn.linear_model import LogisticRegression

        began = time.perf_counter()
        X_train, X_test, y_train = data.joined
        central = LogisticRegression(C=1 / (len(y_train) * _L2), max_iter=1000).fit(X_train, y_train)
        central_row = _row(central.decision_function(X_test), data.y_test, time.perf_counter() - began)

    table = Table(title=f"{len(data.y_test)} patients that no model has seen")
    for heading in ("", "AUC", "accuracy", "rounds", "bytes", "seconds"):
        table.add_column(heading, justify="left" if not heading else "right")
    sent = sum(traffic.bytes for traffic in model.traffic_.values())
    table.add_row("the hospital alone", *alone_row[:2], "-", "-", alone_row[2])
    federated = (*federated_row[:2], str(model.rounds_), human_bytes(sent), federated_row[2])
    table.add_row("all three, federated", *federated, style="bold green")
    table.add_row("all data in one place", *central_row[:2], "-", "-", central_row[2])
    console.print(table)
    console.print(
        f"Federated: three processes, contributions summed under {model.sum_} masks; no column and no coefficient left "
        "its organisation. The seconds include starting the processes."
    )
    _plot(model.history_, alone.history_, out)
    console.print(f"Loss and AUC over the rounds: {out}")


def _row(scores: Any, y: Any, seconds: float) -> tuple[str, str, str]:
    auc, accuracy = metrics.auc(y, scores), metrics.accuracy(y, scores > 0)
    return f"{auc:.4f}", f"{accuracy:.4f}", f"{seconds:.2f}"


def _plot(federated: list[dict[str, Any]], alone: list[dict[str, Any]], out: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for history, name in ((federated, "all three, federated"), (alone, "the hospital alone")):
        # The first evaluation is of the model that knows nothing: its AUC of one half would flatten the rest.
        axes[0].plot([r["rounds"] for r in history], [r["loss"] for r in history], label=name)
        axes[1].plot([r["rounds"] for r in history[1:]], [r["metric"] for r in history[1:]], label=name)
    axes[0].set(xlabel="rounds", ylabel="objective", title="Training objective", yscale="log")
    axes[1].set(xlabel="rounds", ylabel="AUC", title="AUC on the training rows")
    for axis in axes:
        axis.legend()
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
    figure.savefig(out, dpi=120)
    plt.close(figure)
