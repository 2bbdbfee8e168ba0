"""What training takes that a plan does not try: sealed training, open training of a job that is sealed, and trees.

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
from colonnade.families import family
from colonnade.families.linear import LinearFamily
from colonnade.families.protection import MASKED, PLAIN, SEALED, seals
from colonnade.jobs.job import Job
from colonnade.jobs.tree_part import grows_trees
from colonnade.planning.figures import Forecast
from colonnade.planning.forecast import Span
from colonnade.planning.trials import LineSpeed
from colonnade.planning.untried_trees import both_ways, forecast_trees
from colonnade.progress import human_bytes
from colonnade.sealed.losses import SEALED_LOSSES

NO_LINE = LineSpeed(0.0, math.inf)


@dataclass(frozen=True)
class SealedCosts:
    """What sealed training costs; columns are those of all parties together, and bytes those that one party sends.

    The figures are from runs of 500 to 100,000 rows, 10 to 124 columns, and two parties that share a core; they are to
    be measured again whenever the protocol changes.
    """

    rounds: int = 10  # where nobody says how many
    trips_to_start: float = 8.0  # there and back
    trips: float = 5.0  # the same, in a round
    seconds_to_start: float = 0.2
    seconds_per_column: float = 0.001  # in a round
    seconds_per_square: float = 1e-4  # of each two columns, in a round
    seconds_per_cell: float = 7e-8  # of each row and column, in a round
    bytes_to_start: float = 5.6e5  # of each column
    bytes_per_column: float = 1.7e5  # in a round
    bytes_per_cell: float = 1.4  # of each row and column, in a round


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
    cost, columns = SEALED_COSTS, sum(columns_by_party.values())
    times = (cost.rounds if rounds is None else rounds) * outputs
    each = columns * (cost.bytes_to_start + times * (cost.bytes_per_column + cost.bytes_per_cell * rows))
    work = cost.seconds_to_start + times * columns * (
        cost.seconds_per_column + cost.seconds_per_square * columns + cost.seconds_per_cell * rows
    )
    waits = line.latency * (cost.trips_to_start + cost.trips * times)
    return work + waits + each / line.bandwidth, dict.fromkeys(columns_by_party, each)


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
    if grows_trees(job):
        return _trees(job, rows, columns, outputs, line)
    found = []
    own = job.algorithm if isinstance(job.algorithm, SealedNewton) else SealedNewton(seed=job.algorithm.seed)
    if job.protection == SEALED or _sealable(job, own):
        weighted = getattr(job.model, "weighted", False)
        rounds = len(SEALED_LOSSES[job.loss].schedule(rows, sum(columns.values()), own.given, 0, weighted=weighted))
        taken = forecast_sealed(rows, columns, outputs=outputs, rounds=rounds, line=line)
        found.append(_forecast(own.name, SEALED, rounds, *taken, own=job.protection == SEALED))
    if job.protection == SEALED:
        taken = forecast_open(rows, columns, job.holders[0], outputs=outputs, line=line)
        found.append(_forecast(BlockNewton.name, MASKED, OPEN_COSTS.rounds, *taken, own=False))
    return found


def sealed_costs(job: Job, rows: int, columns: int) -> str:
    """Say what sealed training of a job would take, from what one party knows: its own rows and columns.

    Empty where the job is sealed anyway.
    """
    if job.protection == SEALED:
        return ""
    if SEALED in (lacks := family(job.family).lacks):
        return f"this model has none: {SEALED!r} {lacks[SEALED]}"
    found = untried(job, rows, dict.fromkeys(job.parties, columns), 1, NO_LINE)
    one = next((one for one in found if one.protection == SEALED), None)
    if one is None:
        return "this job has none; `colonnade init --protection sealed` writes one that has"
    sent = human_bytes(max(one.sent.values()))
    return (
        f'the same job with protection = "sealed" would take about {one.rounds.likely:,.0f} rounds and {sent} from '
        f"each party, if the others have as many columns as this one; `colonnade plan` counts theirs"
    )


def _trees(job: Job, rows: int, columns: Mapping[str, int], outputs: int, line: LineSpeed) -> list[Forecast]:
    """Return what trees take, sealed and plain; of them there is no trial at all."""
    found = []
    for algorithm, own in both_ways(job):
        takes = forecast_trees(job, algorithm, rows, columns, outputs, line)
        word = SEALED if seals(algorithm) else PLAIN
        found.append(_forecast(algorithm.name, word, takes.rounds, takes.seconds, takes.sent, own=own))
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
