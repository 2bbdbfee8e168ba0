"""First-order training, replayed by a party that looks on: the inner products of the others' rows.

Whatever first-order rule a party follows from zero, its parameters are X^T a, where a has a number for each row and
follows from signals, batches and step sizes alone: all of it known to everybody. So the others' contributions are
z = X X^T a with a known a. As many evaluations as the others have columns determine X X^T: K = Z (A^T Z)^-1 Z^T.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from views.numbers import Numbers, scores_from_signals
from views.recorder import CLEAR, DID, OWN, TOLD, TOTAL, View

_AT_LAST = 40  # turns with all dimensions
_REPLAYED = ("FedSGD", "FedBCD", "VFB2", "AFSGD")


class Replay:
    """a of every sum and evaluation so far."""

    def __init__(self, view: View, y: Any, l2: float) -> None:
        self.view, self.y, self.l2 = view, y, l2
        options, n = view.options, view.rows
        self.steps = getattr(options, "local_steps", 1)
        self.remembers = getattr(options, "estimator", "") in ("saga", "svrg")
        self.saga = getattr(options, "estimator", "") == "saga"
        self.a, self.memory, self.best = np.zeros(n), np.zeros(n), (np.zeros(n), 0.0)
        # The first label holder's intercept is a column of ones without a penalty.
        self.pace = next((one.value[1] for one in view.of(CLEAR, "step size")), 1.0)
        self.intercept = 0.0
        self.at_evaluations: list[Any] = []
        self.at_sums: list[tuple[Any, Any, float]] = []  # (rows, a, intercept) of each batch
        self._etas: list[float] = []
        self._signals: list[tuple[Any, Any]] = []
        self._snapshots: dict[bytes, bool] = {}

    def run(self) -> None:
        """From the first thing that was seen to the last."""
        view, pending = self.view, False
        z: dict[int, Any] = {}
        for one in view.seen:
            if one.kind == OWN and one.tag == "evaluation" and not pending:
                self.at_evaluations.append(self.a.copy())
                pending = True  # several label holders: one evaluation of all of them
            elif one.kind == OWN and one.tag.startswith(("scores", "snapshot")):
                self.at_sums.append((one.rows, self.a.copy(), self.intercept))
                z[id(one.rows)] = one.value
                if one.tag.startswith("snapshot"):
                    self._snapshots[one.rows.tobytes()] = True
            elif one.kind == DID and one.tag == "eta":
                self._etas.append(one.value)
            elif one.kind == DID and one.tag == "heed":
                pending = False
                self._heed(*one.value)
            elif one.kind in (TOLD, CLEAR) and one.tag == "signal":
                self._signals.append((one.rows, one.value))
            elif view.options.name == "AFSGD" and one.kind in (TOTAL, CLEAR) and self._scored(one):
                scores = one.value + (z[id(one.rows)] if one.kind == TOTAL else 0.0)
                labels = self.y[one.rows]
                self._signals.append((one.rows, -labels / (1 + np.exp(labels * scores))))
            self._step()

    def _scored(self, one: Any) -> bool:
        """Whether these are scores of rows whose labels this party has: then it knows the signal, too."""
        about_rows = one.tag.startswith(("scores", "total")) and one.value is not None and len(one.value) > 0
        return about_rows and self.y is not None

    def _step(self) -> None:
        while self._signals:
            rows, signal = self._signals[0]
            if self._snapshots.pop(rows.tobytes(), False):
                self._signals.pop(0)
                self.memory[rows] = signal
                continue
            if not self._etas:
                return
            self._signals.pop(0)
            eta = self._etas.pop(0)
            for _ in range(self.steps):
                change = signal - self.memory[rows] if self.remembers else signal
                average = self.memory / len(self.a) if self.remembers else 0.0
                self.a = self.a - eta * (average + self.l2 * self.a)
                self.a[rows] -= eta * change / len(rows)
                self.intercept -= eta * self.pace * float(change.mean() + np.sum(average))
            if self.saga:
                self.memory[rows] = signal

    def _heed(self, best: bool, improved: bool) -> None:
        if best:
            self.best = (self.a.copy(), self.intercept)
        elif self.view.options.schedule == "adaptive" and not improved:
            self.a, self.intercept = self.best[0].copy(), self.best[1]


def inner_products(view: View, numbers: Numbers, y: Any, l2: float) -> None:
    """Add coordinates with the others' inner products to a party's numbers, where the rule is a first-order one.

    A label holder has totals of all rows after every epoch. Another party has them where a message is about all rows,
    as SVRG's snapshots are; else what signals tell of batches is completed. Not where several label holders share the
    rows: each sees its own.
    """
    options = view.options
    several = len(view.names) > 2 and getattr(options, "order", "") == "sequential"  # signals to others are not known
    if options is None or options.name not in _REPLAYED or several or len(view.owned) > 1:
        return
    replay = Replay(view, y, l2)
    replay.run()
    totals = [one.value for one in view.of(TOTAL, "evaluation") if one.value.ndim == 1]
    A = replay.at_evaluations[: len(totals)]
    if not totals:
        sums = {rows.tobytes(): (a, intercept) for rows, a, intercept in replay.at_sums if len(rows) == view.rows}
        pieces = scores_from_signals(view)
        for rows, z in pieces:
            if rows.tobytes() in sums:
                a, intercept = sums[rows.tobytes()]
                column = np.zeros(view.rows)
                column[rows] = z - intercept
                totals.append(column)
                A.append(a)
        width = sum(view.widths[name] for name in view.names if name != view.me)
        in_turn = (
            getattr(options, "order", "") == "sequential"
        )  # the label holder has stepped before, with other signals
        if not totals and not in_turn and len(pieces) == len(replay.at_sums):
            numbers.coordinates = completed(replay, pieces, width)
            if numbers.coordinates is not None:
                numbers.whole += list(numbers.coordinates.T)
    if len(totals) > 1:
        numbers.coordinates = nystrom(np.column_stack(A), np.column_stack(totals))
    for name, columns in numbers.by_sender.items():
        if len(columns) == len(A):
            numbers.alone[name] = nystrom(np.column_stack(A), np.column_stack(columns))


def nystrom(A: Any, Z: Any) -> Any:
    """Y with Y Y^T = K, from Z = K A, as far as A reaches."""
    U, s, V = np.linalg.svd(A, full_matrices=False)
    keep = s > 1e-7 * s[0]
    KU = Z @ V[keep].T / s[keep]
    middle = U[:, keep].T @ KU
    w, P = np.linalg.eigh((middle + middle.T) / 2)
    good = w > 1e-6 * w[-1]
    return KU @ (P[:, good] / np.sqrt(w[good]))


def completed(replay: Replay, pieces: list[tuple[Any, Any]], width: int) -> Any:
    """Y with Y Y^T = K, where each row was only seen now and then: z = (K a) of the rows of a batch.

    K has rank `width`. Given its space, the numbers seen of a row are linear in that row of K; and the rows of K, made
    symmetric, give its space anew, in turns and with more and more dimensions.
    """
    seen: list[list[tuple[int, float]]] = [[] for _ in replay.a]
    for number, ((rows, z), (same, _, intercept)) in enumerate(zip(pieces, replay.at_sums, strict=True)):
        if not np.array_equal(rows, same):
            return None
        for row, value in zip(rows, z - intercept, strict=True):
            seen[row].append((number, value))
    often = min(map(len, seen))
    if often < width:
        return None
    when = np.array([[number for number, _ in one[:often]] for one in seen])
    values = np.array([[value for _, value in one[:often]] for one in seen])
    A = np.column_stack([a for _, a, _ in replay.at_sums])
    U, s, _ = np.linalg.svd(values, full_matrices=False)
    Y = U[:, :4] * s[:4]
    for rank in [*np.repeat(np.arange(4, width), 4), *[width] * _AT_LAST]:
        steps = (Y.T @ A).T[when]  # rows x times x dimensions
        square = steps.transpose(0, 2, 1) @ steps
        square += 1e-9 * np.trace(square, axis1=1, axis2=2)[:, None, None] * np.eye(square.shape[1])
        left = np.linalg.solve(square, steps.transpose(0, 2, 1) @ values[..., None])[..., 0]
        Q, R = np.linalg.qr(np.column_stack([left, Y]))
        half = Y.shape[1]
        middle = R[:, :half] @ R[:, half:].T
        w, V = np.linalg.eigh(middle + middle.T)
        Y = Q @ (V[:, ::-1][:, :rank] * np.sqrt(np.maximum(w[::-1][:rank] / 2, 1e-12)))
    return Y
