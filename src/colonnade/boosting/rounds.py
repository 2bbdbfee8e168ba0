"""Scores, derivatives and judgements of a label holder, from round to round of boosting."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.boosting.derivatives import derivatives, refit, start_of
from colonnade.boosting.forest import Forest, ForestBuilder, TreeNodes
from colonnade.boosting.options import TreeOptions
from colonnade.boosting.ranges import Codes
from colonnade.objective import metrics
from colonnade.objective.losses import Loss
from colonnade.runtimes.net import Net

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[Any]
# Rows by which a round is judged, of training and held out, at most: to rank all of them would take longer than a tree.
_JUDGES, _HELD_OUT_JUDGES = 1 << 13, 1 << 16


@dataclass(frozen=True)
class TreeLabels:
    """What a label holder brings beside columns.

    Attributes
    ----------
    loss, outputs
        What is minimised, and how many scores a row has.
    y, weights
        Labels as the loss takes them, and how much each row counts, of the training rows; None where all count alike.
    shown
        Labels by which splits are chosen, where these are not the true ones: with label differential privacy.
    held_out, held_out_weights
        The labels of rows by which training is stopped, and how much each counts; None without such rows.
    """

    loss: Loss
    outputs: int
    y: npt.NDArray[Any]
    weights: Floats | None
    shown: npt.NDArray[Any] | None = None
    held_out: npt.NDArray[Any] | None = None
    held_out_weights: Floats | None = None

    @property
    def rows(self) -> int:
        """How many training rows there are."""
        return len(self.y)


class BoostingRounds:
    """The scores of all rows, and how well they fit, from round to round.

    With label differential privacy there are two scores of a training row: one that follows from randomised labels
    alone, by which splits are chosen, and the model's own, whose leaves come from the true ones.
    """

    def __init__(self, net: Net, labels: TreeLabels, options: TreeOptions) -> None:
        self.net, self.labels, self.options = net, labels, options
        self._judges = _spread(labels.rows, _JUDGES)
        self._held_out_judges = _spread(0 if labels.held_out is None else len(labels.held_out), _HELD_OUT_JUDGES)
        self.records: list[tuple[Any, ...]] = []
        self._lowest, self._since, self.best_trees = math.inf, 0, 0
        self.stopped = False

    def begin(self, base: Floats, cells: Codes, held_out: Codes, earlier: Forest | None) -> None:
        """Give every row its first score."""
        labels, self.outputs = self.labels, len(base)
        self.z = np.tile(base, (labels.rows, 1)) if earlier is None else earlier.scores(cells)
        self.shown: Floats | None = None
        if labels.shown is not None:
            # What partners hear must not depend on true labels, so an earlier model is no start.
            start = start_of(labels.loss, labels.shown, labels.weights, labels.outputs)
            self.shown = np.tile(start, (labels.rows, 1))
        known = labels.held_out is not None
        self.z_held: Floats | None = None
        if known:
            people = held_out.shape[1]
            self.z_held = np.tile(base, (people, 1)) if earlier is None else earlier.scores(held_out)
        self._g, self._h = np.empty_like(self.z), np.empty_like(self.z)

    def slopes(self) -> tuple[Floats, Floats]:
        """Return the derivatives by which splits are chosen, one column for each score."""
        labels = self.labels
        z, y = (self.z, labels.y) if self.shown is None else (self.shown, labels.shown)
        self._derive(z, y)
        return self._g, self._h

    def _derive(self, z: Floats, y: Any) -> None:
        one = self.outputs == 1
        g, h = (self._g[:, 0], self._h[:, 0]) if one else (self._g, self._h)
        derivatives(self.labels.loss, z[:, 0] if one else z, y, self.labels.weights, g, h)

    def revalued(self, nodes: TreeNodes, leaf: Rows, rows: Rows | None, output: int, cells: Codes) -> TreeNodes:
        """Return the tree with the leaves that the model gets, where these are not the usual ones."""
        labels, some = self.labels, slice(None) if rows is None else rows
        if self.shown is not None:
            values = self.options.learning_rate * nodes.value
            self.shown[:, output] += values[leaf] if rows is None else _alone(nodes, values).scores(cells)[:, 0]
            self._derive(self.z, labels.y)
            G = np.bincount(leaf, self._g[some, output], minlength=len(nodes.value))
            H = np.bincount(leaf, self._h[some, output], minlength=len(nodes.value))
            return replace(nodes, value=np.where(nodes.feature < 0, -G / (H + self.options.l2 + 1e-300), 0.0))
        z = self.z[some, output]
        found = refit(labels.loss, z, labels.y[some], _of(labels.weights, some), leaf, len(nodes.value))
        return nodes if found is None else replace(nodes, value=np.where(nodes.feature < 0, found, 0.0))

    def add(
        self,
        nodes: TreeNodes,
        values: Floats,
        leaf: Rows,
        rows: Rows | None,
        output: int,
        cells: Codes,
        held_out: Codes,
    ) -> None:
        """Add a tree to the scores of all rows."""
        self.z[:, output] += values[leaf] if rows is None else _alone(nodes, values).scores(cells)[:, 0]
        if self.z_held is not None:
            self.z_held[:, output] += _alone(nodes, values).scores(held_out)[:, 0]

    def judge(self, done: int, trees: int) -> None:
        """Report how well the model fits, and decide whether training goes on."""
        labels, some = self.labels, self._judges
        record: tuple[float, ...] = self._fit(self.z[some], labels.y[some], _of(labels.weights, some))
        watched = None
        if self.z_held is not None and labels.held_out is not None:
            some = self._held_out_judges
            apart = self._fit(self.z_held[some], labels.held_out[some], _of(labels.held_out_weights, some))
            record, watched = (*record, *apart), apart[0]
        self.net.report(("record", len(self.records), done, self.net.traffic.rounds, *record))
        self.records.append(record)
        self.net.report(("traffic", len(self.records) - 1, self.net.traffic.messages, self.net.traffic.bytes))
        patience = self.options.patience
        if patience is None or watched is None:
            self.best_trees = trees
        elif watched < self._lowest:
            self._lowest, self._since, self.best_trees = watched, 0, trees
        else:
            self._since += 1
            self.stopped = self._since >= patience

    def _fit(self, z: Floats, y: Any, weights: Floats | None) -> tuple[float, float]:
        loss, scores = self.labels.loss, z[:, 0] if self.outputs == 1 else z
        value = float(np.average(loss.values(scores, y), weights=weights))
        return value, metrics.evaluate(loss, scores, y, weights)[1]

    # -- what is kept --------------------------------------------------------------------------------------------------

    def freeze(self, codes: Any) -> tuple[Any, Any, Any]:
        """Return the scores, what else the label holder names, and how it went, as wire values."""
        went = (tuple(self.records), self._lowest, self._since, self.best_trees, self.stopped)
        return ((self.z, self.shown, self.z_held, self.labels.shown), codes, went)

    def thaw(self, scores: Any, went: Any) -> None:
        """Take back what `freeze` gave; labels that were randomised once are not drawn again, which would tell more."""
        self.z = np.array(scores[0])
        self.shown, self.z_held, labels = (None if one is None else np.array(one) for one in scores[1:])
        self.labels = replace(self.labels, shown=labels)
        records, self._lowest, self._since, self.best_trees, self.stopped = went
        for done, record in enumerate(records, 1):  # the history is that of the whole run
            self.net.report(("record", done - 1, done, self.net.traffic.rounds, *record))
        self.records = list(records)


def _alone(nodes: TreeNodes, values: Floats) -> Forest:
    """Return a forest of one tree, with these values."""
    builder = ForestBuilder(np.zeros(1))
    builder.append(replace(nodes, value=values))
    return builder.forest()


def _spread(rows: int, most: int) -> Rows:
    """Return all places, or where there are too many some that are spread evenly."""
    return np.arange(rows) if rows <= most else np.linspace(0, rows - 1, most).astype(np.int64)


def _of(weights: Floats | None, some: Any) -> Floats | None:
    return None if weights is None else weights[some]
