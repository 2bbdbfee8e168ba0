"""First-order training, replayed by a party that looks on: the inner products of the others' rows.

Whatever first-order rule a party follows from zero, its parameters are X^T a, where a has a number for each row and
follows from signals, batches and step sizes alone: all of it known to everybody. So the others' contributions are
z = X X^T a with a known a. As many evaluations as the others have columns determine X X^T: K = Z (A^T Z)^-1 Z^T.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.runtimes.net import CLEAR, DID, OWN, TOLD, TOTAL
from colonnade.views.completion import completed
from colonnade.views.numbers import FloatArray, LinearNumbers, Rows, in_whole, scores_from_signals
from colonnade.views.view import Observation, View

_REPLAYED = ("FedSGD", "FedBCD", "VFB2", "AFSGD")
# Coefficients of rows are kept for each sum where totals of all rows do not come, up to so many numbers in all.
_MOST_KEPT = 2**24


class FirstOrderReplay:
    """a of every sum and evaluation so far.

    Parameters
    ----------
    view
        What the party saw.
    y
        Its labels as -1 and 1, all rows; None where it has none.
    l2
        How strong the penalty is.
    sums
        Whether a is kept for each sum of a batch, too.
    """

    def __init__(self, view: View, y: npt.NDArray[Any] | None, l2: float, *, sums: bool = True) -> None:
        self.view, self.y, self.l2, self._sums = view, y, l2, sums
        options, n = view.options, view.rows
        self.steps = getattr(options, "local_steps", 1)
        self.remembers = getattr(options, "estimator", "") in ("saga", "svrg")
        self.saga = getattr(options, "estimator", "") == "saga"
        first = next((one.value for one in view.seen if one.kind in (TOLD, CLEAR) and one.tag == "signal"), None)
        outputs = first.shape[1] if isinstance(first, np.ndarray) and first.ndim == 2 else 1
        self.a, self.memory = np.zeros((n, outputs)), np.zeros((n, outputs))
        # The first label holder's intercept is a column of ones without a penalty.
        self.pace = next((one.value[1] for one in view.of(CLEAR, "step size")), 1.0)
        self.intercept = np.zeros(outputs)
        self.best = (self.a, self.intercept)
        self.at_evaluations: list[FloatArray] = []
        self.at_sums: list[tuple[Rows, FloatArray, FloatArray]] = []  # (rows, a, intercept) of each batch
        self._etas: list[float] = []
        self._signals: list[tuple[Rows, FloatArray]] = []
        self._snapshots: dict[bytes, bool] = {}

    def run(self) -> FirstOrderReplay:
        """Go from the first thing that was seen to the last."""
        view, pending = self.view, False
        z: dict[int, FloatArray] = {}
        for one in view.seen:
            if (
                one.kind in (OWN, TOTAL) and one.tag == "evaluation" and not pending
            ):  # in a mirrored view the total alone
                self.at_evaluations.append(self.a.copy())
                pending = True  # several label holders: one evaluation of all of them
            elif one.kind == OWN and one.tag.startswith(("scores", "snapshot")):
                if self._sums:
                    self.at_sums.append((one.rows, self.a.copy(), self.intercept.copy()))
                z[id(one.rows)] = one.value
                if one.tag.startswith("snapshot"):
                    self._snapshots[one.rows.tobytes()] = True
            elif one.kind == DID and one.tag == "eta":
                self._etas.append(one.value)
            elif one.kind == DID and one.tag == "heed":
                pending = False
                self._heed(*one.value)
            elif one.kind in (TOLD, CLEAR) and one.tag == "signal":
                self._signals.append((one.rows, one.value.reshape(len(one.rows), -1)))
            elif view.options.name == "AFSGD" and one.kind in (TOTAL, CLEAR) and self._scored(one):
                scores = one.value + (z[id(one.rows)] if one.kind == TOTAL else 0.0)
                labels = np.asarray(self.y)[one.rows]
                self._signals.append((one.rows, (-labels / (1 + np.exp(labels * scores)))[:, None]))
            self._step()
        return self

    def _scored(self, one: Observation) -> bool:
        """Return whether these are scores of rows whose labels this party has: then it knows the signal, too."""
        about_rows = one.tag.startswith(("scores", "total")) and one.value is not None and len(one.value) > 0
        return about_rows and self.y is not None

    def _step(self) -> None:
        while self._signals:
            rows, signal = self._signals[0]
            if self._snapshots and self._snapshots.pop(rows.tobytes(), False):
                self._signals.pop(0)
                self.memory[rows] = signal
                continue
            if not self._etas:
                return
            self._signals.pop(0)
            eta = self._etas.pop(0)
            for _ in range(self.steps):
                change = signal - self.memory[rows] if self.remembers else signal
                average = self.memory / len(self.a) if self.remembers else np.zeros((1, self.a.shape[1]))
                self.a = self.a - eta * (average + self.l2 * self.a)
                self.a[rows] -= eta * change / len(rows)
                self.intercept = self.intercept - eta * self.pace * (change.mean(axis=0) + average.sum(axis=0))
            if self.saga:
                self.memory[rows] = signal

    def _heed(self, best: bool, improved: bool) -> None:
        if best:
            self.best = (self.a.copy(), self.intercept.copy())
        elif self.view.options.schedule == "adaptive" and not improved:
            self.a, self.intercept = self.best[0].copy(), self.best[1].copy()


def replayed(view: View, y: npt.NDArray[Any] | None, l2: float, numbers: LinearNumbers) -> dict[str, FloatArray]:
    """Return coordinates with the others' inner products, under ""; and under a party's name of that party alone.

    A label holder has totals of all rows after every epoch. Another party has them where a message is about all rows,
    as SVRG's snapshots are; else what signals tell of batches is completed, unless the run is too long for that. There
    is nothing where the rule is no first-order one, or where several label holders share the rows: each sees its own.
    """
    options = view.options
    in_turn = getattr(options, "order", "") == "sequential"  # the label holder has stepped before, by other signals
    if options is None or options.name not in _REPLAYED or (len(view.names) > 2 and in_turn) or len(view.owned) > 1:
        return {}
    found: dict[str, FloatArray] = {}
    totals = in_whole(view.of(TOTAL, "evaluation"), numbers.rows)
    count = len(view.of(OWN, "scores", "snapshot"))
    replay = FirstOrderReplay(view, y, l2, sums=not totals and count * view.rows <= _MOST_KEPT).run()
    A, outputs = replay.at_evaluations[: len(totals)], replay.a.shape[1]
    if len(A) < len(totals) or any(one.shape[1] != outputs for one in totals):
        return {}
    if not totals and replay.at_sums and outputs == 1:
        sums = {rows.tobytes(): (a, intercept) for rows, a, intercept in replay.at_sums if len(rows) == view.rows}
        pieces = scores_from_signals(view)
        for rows, z in pieces:
            if rows.tobytes() in sums:
                a, intercept = sums[rows.tobytes()]
                column = np.zeros((view.rows, 1))
                column[rows, 0] = z - intercept
                totals.append(column)
                A.append(a)
        width = sum(view.widths[name] for name in view.names if name != view.me)
        if not totals and not in_turn and len(pieces) == len(replay.at_sums):
            each = [(rows, a[:, 0], float(intercept[0])) for rows, a, intercept in replay.at_sums]
            whole = completed(len(replay.a), each, pieces, width)
            if whole is not None:
                found[""] = whole
    if len(totals) * outputs > 1:
        found[""] = nystrom(np.column_stack(A), np.column_stack(totals))
    for name, columns in numbers.by_sender.items():
        if len(columns) == len(A) * outputs:
            found[name] = nystrom(np.column_stack(A), np.column_stack(columns))
    return found


def nystrom(A: FloatArray, Z: FloatArray) -> FloatArray:
    """Return Y with Y Y^T = K, from Z = K A, as far as A reaches."""
    U, s, V = np.linalg.svd(A, full_matrices=False)
    keep = s > 1e-7 * s[0]
    KU = Z @ V[keep].T / s[keep]
    middle = U[:, keep].T @ KU
    w, P = np.linalg.eigh((middle + middle.T) / 2)
    good = w > 1e-6 * w[-1]
    found: FloatArray = KU @ (P[:, good] / np.sqrt(w[good]))
    return found
