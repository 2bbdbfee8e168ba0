"""Runs under one virtual clock, measured against the optimum.

AFSGD-VP ran in a cloud with a 25 Gbit network, VFB² on one large machine. What decides a speed-up is how the work on a
batch compares with a message about it. On a credit set with 90 columns, an eighth of a batch is a microsecond for our
kernels, far less than a message, and then nothing that happens in the workers would matter. In the papers' systems it
did. So the clock's speed is set for each data set: the work on one batch at one of the regular parties (of eight, where
their number varies) takes as long as 20 messages. Twins always run under the same clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from colonnade.algorithms import VFB2
from colonnade.data.party import Party
from colonnade.errors import RingOverflow
from colonnade.estimators.linear import LogisticRegression, RidgeRegression, SoftmaxRegression
from colonnade.estimators.linear_model import LinearModel
from colonnade.runtimes.net import Runtime
from colonnade.runtimes.simulation import Simulation
from reproductions.datasets import DataSet
from reproductions.optimum import Optimum, minimise, unit_step
from reproductions.report import Curve, work_off

LAMBDA = 1e-4  # both papers, everywhere
LATENCY, BANDWIDTH = 2e-5, 3e9  # seconds per message, bytes per second
WORK_IN_MESSAGES, AMONG = 20.0, 8
# One batch at a time is asked for, as in the papers: where messages cost little, more would only make signals older.
UNDER_WAY = 1

REGULAR = "none"
SLOWER = "40 % slower"  # VFB²: 30 to 50 %
THIRD = "a third"
UPDATES_AT_A_THIRD = "updates a third"  # AFSGD-VP: its listener is another thread and answers as fast as ever
# Nobody's updates take any time: with one batch under way nothing is stale then, and a round is as long as ever.
UPDATES_AT_ONCE = "updates at once"
SPEEDS: dict[str, float | Mapping[str, float]] = {
    REGULAR: 1.0,
    SLOWER: 1 / 1.4,
    THIRD: 1 / 3,
    UPDATES_AT_A_THIRD: {"forward": 1.0, "backward": 1 / 3},
    UPDATES_AT_ONCE: {"forward": 1.0, "backward": 1e9},
}
_MODELS: dict[str, type[LinearModel]] = {
    model.loss: model for model in (LogisticRegression, SoftmaxRegression, RidgeRegression)
}
_PATIENCE_WITH_NOISE = 4
# No wait is ever too long here: what a straggler costs is the question.
_PATIENCE = 1e9


def clock(data: DataSet, parties: int, straggler: str, among: int = AMONG) -> Simulation:
    """The clock for runs on this data set; the last of the parties is the straggler, if there is one.

    among: the number of parties at which work on a batch takes as long as it should.
    """
    first = 1 if straggler == UPDATES_AT_ONCE else parties
    return Simulation(
        latency=LATENCY,
        bandwidth=BANDWIDTH,
        speeds={f"party{number}": SPEEDS[straggler] for number in range(first, parties + 1)},
        seconds_per_nonzero=WORK_IN_MESSAGES * LATENCY / (data.nonzeros * data.batch / among),
        deadline=_PATIENCE,
    )


def clock_said(whose: str = f"one of {AMONG} regular parties") -> str:
    """The sentence that belongs above every table of times."""
    work = WORK_IN_MESSAGES * LATENCY
    return (
        f"Virtual clock: a message takes {LATENCY * 1e6:.0f} µs, and {BANDWIDTH / 1e9:g} GB/s; a contribution to a "
        f"batch and the update on it take {whose} {work * 1e6:.0f} µs each, on average: the "
        f"seconds per number are chosen for that, for each data set, and are the same for both twins. "
        f"Asynchronous runs have {UNDER_WAY} batch under way (max_staleness={UNDER_WAY})."
    )


@dataclass(frozen=True)
class Run:
    """One training run."""

    data: str
    estimator: str
    asynchronous: bool
    parties: int
    active: int
    goals: tuple[float, ...] = field(compare=False)  # sub-optimalities to be reached, the finest first
    straggler: str = REGULAR
    penalty: str = "l2"
    step: float = 1.0  # in units of 1 / curvature
    draw: int = 0  # of the batches, on the same rows and parties
    threads: int = 1  # of each party's updates, with as many batches under way

    @property
    def twin(self) -> Run:
        """The same run, asynchronous instead of synchronous or the other way round."""
        return replace(self, asynchronous=not self.asynchronous)


class Stage:
    """A data set with its optima, ready for runs.

    The papers' models have no intercept, but for ridge regression; standardised targets need none there either. That
    has twice our square loss: half the penalty's weight, and twice the objective, make it the same problem.
    """

    def __init__(
        self,
        data: DataSet,
        algorithm: type[VFB2],
        *,
        seed: int,
        epochs: int,
        penalties: Sequence[str] = ("l2",),
        among: int = AMONG,
    ) -> None:
        self.data, self.algorithm, self.seed, self.epochs, self.among = data, algorithm, seed, epochs, among
        self.trial = data.trial(seed)
        self._parties: dict[tuple[int, int], list[Party]] = {}
        self.factor = 2.0 if data.loss == "square" else 1.0
        self.l2 = LAMBDA / self.factor
        X, y = self.trial.X, self.trial.y
        self.optima: dict[str, Optimum] = {
            name: minimise(X, y, data.loss, l2=self.l2, penalty_name=name, intercept=False) for name in penalties
        }
        self.unit = unit_step(X, self.optima["l2"], data.batch, l2=self.l2)

    def measure(self, run: Run, longer: int = 1, seconds: float | None = None) -> Curve:
        """Train, and keep the curve; its loss is the sub-optimality. A run that leaves the ring's range has none."""
        try:
            return self.curve(run, self.train(run, longer, seconds=seconds))
        except RingOverflow:
            return Curve()

    def train(self, run: Run, longer: int = 1, on: Runtime | None = None, seconds: float | None = None) -> LinearModel:
        """Train under the virtual clock, or where else it is to be, until the goal or for so many epochs or seconds.

        A run with a goal that has come no lower in four epochs goes about in its noise, and ends.
        """
        algorithm = self.algorithm(
            run.estimator,
            asynchronous=run.asynchronous,
            max_staleness=max(UNDER_WAY, run.threads),
            threads=run.threads,
            step=run.step * self.unit,
            schedule="constant",
            batch=self.data.batch,
            epochs=self.epochs * longer,
            tol=0.0 if run.goals else None,
            patience=_PATIENCE_WITH_NOISE,
            seconds=seconds,
            goal=self.optima[run.penalty].value + min(run.goals) / self.factor if run.goals else None,
            seed=self.seed + run.draw,
        )
        model = _MODELS[self.data.loss](
            l2=self.l2,
            penalty=run.penalty,
            fit_intercept=False,
            algorithm=algorithm,
            sum="plain",  # masks change no bit and no virtual second: along one tree the messages are the same
            verbose=0,
        )
        on = on or clock(self.data, run.parties, run.straggler, self.among)
        return model.fit(*self._cut(run.parties, run.active), on=on)

    def curve(self, run: Run, model: LinearModel) -> Curve:
        """The curve of a run that has ended; its loss is the sub-optimality."""
        curve, lowest = Curve.of(model.history_), self.optima[run.penalty].value
        return replace(curve, loss=[self.factor * (value - lowest) for value in curve.loss])

    def _cut(self, parties: int, active: int) -> list[Party]:
        if (parties, active) not in self._parties:
            self._parties[parties, active] = self.trial.parties(parties, active, self.seed)
        return self._parties[parties, active]


def open_stages(
    sets: Mapping[str, DataSet],
    algorithm: type[VFB2],
    *,
    seed: int,
    epochs: int,
    title: str,
    penalties: Sequence[str] = ("l2",),
    among: Mapping[str, int] | None = None,
) -> dict[str, Stage]:
    """A stage for every set; the optima take a while."""

    def opened(name: str) -> Stage:
        parties = (among or {}).get(name, AMONG)
        return Stage(sets[name], algorithm, seed=seed, epochs=epochs, penalties=penalties, among=parties)

    return work_off(list(sets), opened, f"{title}: optima")
