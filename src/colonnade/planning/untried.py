"""What training takes that a plan does not try: sealed training, and open training of a job that is sealed.

Sealed training has no short trial: nobody sees how far it has come, and it can't be stopped early. Open training of a
sealed job would show what its parties have not agreed to. Both are worked out from the numbers of rows and columns and
from the lines, which is less sure than a trial is: a plan says "not tried" beside them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from colonnade.algorithms import BlockNewton, SealedNewton
from colonnade.errors import InputError
from colonnade.families.linear import LinearFamily
from colonnade.families.protection import MASKED, SEALED
from colonnade.jobs.job import Job
from colonnade.planning.figures import Forecast
from colonnade.planning.forecast import Span
from colonnade.planning.trials import LineSpeed

NO_LINE = LineSpeed(0.0, math.inf)


@dataclass(frozen=True)
class SealedCosts:
    """What sealed training costs; all of these are to be measured again when its code changes."""

    rounds: int = 12  # where the job does not say how many
    trips: int = 6  # there and back, in a round
    seconds_to_start: float = 1.0  # keys, and kernels that are compiled
    seconds_per_cell: float = 2e-6  # of each number in a table, once
    seconds_per_row: float = 2e-5  # of each row and score, in a round
    bytes_per_cell: float = 24.0  # that a party sends of each number in its table, once
    bytes_per_row: float = 200.0  # that a party sends of each row and score, in a round
    bytes_per_product: float = 12.0  # that a party sends of each product of its own columns with all, in a round


@dataclass(frozen=True)
class OpenCosts:
    """What block Newton costs, from runs of 500 to 50,000 rows, 20 to 60 columns, and two to five parties."""

    rounds: int = 10
    trips: int = 3  # there and back, in a round
    seconds_to_start: float = 0.1
    seconds_per_product: float = 1e-9  # of each row and each two columns of the widest party, in a round
    bytes_per_row: float = 4.1  # that a party sends of each row and score, in a round
    bytes_per_signal: float = 2.9  # that the label holder sends to each other party, the same


SEALED_COSTS, OPEN_COSTS = SealedCosts(), OpenCosts()


def forecast_sealed(
    rows: int,
    columns_by_party: Mapping[str, int],
    *,
    outputs: int = 1,
    rounds: int | None = None,
    line: LineSpeed = NO_LINE,
) -> tuple[float, dict[str, float]]:
    """Return (seconds, {party: bytes that it sends}) of sealed training; `line` is the slowest between two parties."""
    cost, every = SEALED_COSTS, sum(columns_by_party.values())
    times = (cost.rounds if rounds is None else rounds) * outputs
    sent = {
        name: rows * (cost.bytes_per_cell * own + cost.bytes_per_row * times)
        + cost.bytes_per_product * own * every * times
        for name, own in columns_by_party.items()
    }
    work = cost.seconds_to_start + rows * (cost.seconds_per_cell * every + cost.seconds_per_row * times)
    return work + times * cost.trips * line.latency + max(sent.values()) / line.bandwidth, sent


def forecast_open(
    rows: int,
    columns_by_party: Mapping[str, int],
    holder: str,
    *,
    outputs: int = 1,
    line: LineSpeed = NO_LINE,
) -> tuple[float, dict[str, float]]:
    """Return (seconds, {party: bytes that it sends}) of block Newton; `holder` is the first label holder."""
    cost, others = OPEN_COSTS, len(columns_by_party) - 1
    of_all = rows * outputs * cost.rounds
    sent = {
        name: of_all * (cost.bytes_per_signal * others if name == holder else cost.bytes_per_row)
        for name in columns_by_party
    }
    work = cost.seconds_to_start + cost.seconds_per_product * of_all * max(columns_by_party.values()) ** 2
    return work + cost.rounds * cost.trips * line.latency + max(sent.values()) / line.bandwidth, sent


def untried(job: Job, rows: int, columns: Mapping[str, int], outputs: int, line: LineSpeed) -> list[Forecast]:
    """Return what is shown beside the trials of a job: sealed training, and for a sealed job open training too."""
    found = []
    own = job.algorithm if isinstance(job.algorithm, SealedNewton) else SealedNewton(seed=job.algorithm.seed)
    if job.protection == SEALED or _sealable(job, own):
        asked = None if own.rounds is None else own.rounds + (own.polish or 0)
        taken = forecast_sealed(rows, columns, outputs=outputs, rounds=asked, line=line)
        times = SEALED_COSTS.rounds if asked is None else asked
        found.append(_forecast(own.name, SEALED, times, *taken, own=job.protection == SEALED))
    if job.protection == SEALED:
        taken = forecast_open(rows, columns, job.holders[0], outputs=outputs, line=line)
        found.append(_forecast(BlockNewton.name, MASKED, OPEN_COSTS.rounds, *taken, own=False))
    return found


def _sealable(job: Job, algorithm: SealedNewton) -> bool:
    """Return whether the job's model could be trained on shares."""
    if job.family != LinearFamily.name:
        return False
    sealed = replace(job, family=algorithm.family, algorithm=algorithm, sum="pairwise")
    try:
        sealed.training(1).check(job.loss, job.parties)
    except InputError:
        return False
    return True


def _forecast(
    name: str, protection: str, rounds: int, seconds: float, sent: Mapping[str, float], *, own: bool
) -> Forecast:
    def sure(number: float) -> Span:
        return Span(number, number, number)

    return Forecast(name, own, sure(float(rounds)), sure(seconds), math.nan, 0, sent, protection)
