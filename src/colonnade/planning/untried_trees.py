"""What boosted trees take, which a plan does not try: it follows from rows, columns, cells and the model's options.

Bytes are those of the protocol (`algorithms.boosted`) where every column has as many cells as it may. Seconds are less
sure: the constants are from runs of 3,000 to 100,000 rows and 16 to 34 columns, two parties on one core, and are to be
measured again whenever kernels change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from colonnade.algorithms.boosted import OpenBoosting, SealedBoosting
from colonnade.boosting.options import TreePart
from colonnade.boosting.partner import PER_HINT, SAMPLE
from colonnade.boosting.questions import questions_next, steps_of
from colonnade.crypto.hinted_parameters import PackedSums
from colonnade.families.trees import least_rows
from colonnade.jobs.job import Job
from colonnade.jobs.policy import Policy
from colonnade.planning.trials import LineSpeed


@dataclass(frozen=True)
class TreeCosts:
    """Seconds of boosted trees, of all parties together; rows are those of training."""

    per_value: float = 9e-8  # of each row and column, to cut it into cells
    per_tree: float = 1e-3
    per_level: float = 1.2e-8  # of each row and level of a tree
    per_cell_of_level: float = 1e-10  # of each row, column and level of a tree
    per_hint_cell: float = 1.4e-4  # of each cell of a partner
    per_hint_value: float = 1.3e-7  # of each row and column of a partner
    per_question: float = 1e-3  # to each partner
    per_question_row: float = 4e-8
    per_question_value: float = 3e-9  # of each row and column of a partner
    trips_to_start: float = 4.0  # there and back
    trips: float = 2.0  # the same, where partners are asked: the sums, and the cuts that are opened


TREE_COSTS = TreeCosts()


@dataclass(frozen=True)
class TreeTakes:
    """What a run with one of the two algorithms takes after preparation."""

    rounds: int  # exchanges
    seconds: float
    sent: Mapping[str, float]  # bytes by party


def forecast_trees(
    job: Job, algorithm: OpenBoosting, rows: int, columns: Mapping[str, int], outputs: int, line: LineSpeed
) -> TreeTakes:
    """Return what trees take on so many training rows; `columns` are those of each party."""
    cost, leader, options = TREE_COSTS, job.holders[0], job.model
    partners = {name: count for name, count in columns.items() if name != leader}
    trees, people = min(options.trees, algorithm.epochs), rows / (1.0 - job.validation)
    width = sum(columns.values())
    work = cost.per_value * rows * width
    growing = cost.per_tree + options.depth * rows * (cost.per_level + cost.per_cell_of_level * width)
    work += trees * outputs * growing
    if not isinstance(algorithm, SealedBoosting):
        sent = {name: people * partners.get(name, 0) for name in columns}
        return TreeTakes(1, work + cost.trips_to_start * line.latency + max(sent.values()) / line.bandwidth, sent)
    rounds = sum(len(steps_of(tree, output, outputs)) for tree in range(trees) for output in range(outputs))
    asked, hints = _questions_and_hints(trees, outputs)
    some = min(rows, SAMPLE)
    layout = PackedSums(some, algorithm.noise, algorithm.noise)
    least = least_rows(algorithm, TreePart(least_rows=Policy.min_cell), leads=False)
    cells = max(1, min(options.bins, rows // least))
    sent = {leader: float(asked * layout.query_bytes() * len(partners))}
    for name, count in partners.items():
        work += hints * (cost.per_hint_cell * count * cells + cost.per_hint_value * some * count)
        work += asked * (cost.per_question + some * (cost.per_question_row + cost.per_question_value * count))
        told = asked * layout.answer_bytes(count * cells) + hints * layout.hint_bytes(count * cells)
        opened = count * (min(algorithm.ranges, cells) - 1)
        sent[name] = told + opened * people / 8
    waits = (cost.trips_to_start + cost.trips * rounds) * line.latency
    return TreeTakes(rounds, work + waits + sum(sent.values()) / line.bandwidth, sent)


def _questions_and_hints(trees: int, outputs: int) -> tuple[int, int]:
    """Return how many sums each partner is asked for, and how many hints they are read with."""
    asked, hints, left = 0, 1, PER_HINT
    for tree in range(trees):
        count = questions_next(tree, tree + 1, outputs)
        if count > left:
            hints, left = hints + 1, PER_HINT
        asked, left = asked + count, left - count
    return asked, hints


def both_ways(job: Job) -> list[tuple[Any, bool]]:
    """Return (algorithm, whether it is the job's own), the job's own first."""
    own: Any = job.algorithm
    shared = {"seed": own.seed, "epochs": own.epochs}
    other = OpenBoosting(**shared) if isinstance(own, SealedBoosting) else SealedBoosting(**shared)
    return [(own, True), (other, False)]
