"""What all algorithms on split columns share: their options, what they say of themselves, the papers' step sizes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import isfinite, sqrt
from numbers import Real
from typing import Any, ClassVar

from colonnade.engine.exposure import ENCRYPTED
from colonnade.engine.sampling import SAMPLING, most_draws
from colonnade.errors import OptionError, at_least, one_of, whole_number
from colonnade.leaks import Leak, Setting
from colonnade.objective.losses import Loss

SCHEDULES = ("adaptive", "constant", "sqrt", "sqrt-parties")
# What "adaptive" multiplies the step with when an evaluation brought nothing, and while none has brought anything yet.
SHRINK, SEARCH = 0.7, 0.25


@dataclass(frozen=True, kw_only=True)
class Training:
    """Options of every algorithm that trains on split columns, and what each of them says of itself.

    Parameters
    ----------
    step : float or "auto"
        The step size eta0. "auto" is the inverse of a bound on the curvature, to which each party adds one number.
    schedule : {"adaptive", "constant", "sqrt", "sqrt-parties"}
        "adaptive" keeps eta0 (SVRG and SAGA lengthen it a little) until an evaluation brings less than `tol`; then it
        shortens the step and goes on from the best parameters. The papers' schedules are "constant", "sqrt", which is
        eta0 / sqrt(r + 1) in round r, and "sqrt-parties", which is eta0 / sqrt((r + 1) K) with K parties.
    batch : int, optional
        Rows per round, at most. None is 64, or all rows where there are fewer; with encrypted signals it is what the
        parties agree on (see `engine.exposure`).
    sampling : {"passes", "uniform"}
        "passes" takes every row once in an epoch, in a new order each time. "uniform" draws every batch from all rows,
        whatever was drawn before, as the papers analyse it; an epoch then has as many batches as a pass. Some rows are
        drawn more often than others, and more numbers about them leave the parties (see `engine.sampling`).
    epochs : int
        Passes over the rows, at most.
    rounds : int, optional
        Exchanges, at most; training ends before a batch that needs more of them. None leaves it to `epochs`.
    tol : float, optional
        Training stops when `patience` evaluations in a row have improved the objective (with validation data: the loss
        there) by less than `tol` times its value. None never stops early.
    patience : int
        Evaluations without an improvement that are put up with; see `tol`.
    goal : float, optional
        Training stops at the first evaluation with an objective as low as this.
    metric_goal : float, optional
        Training stops at the first evaluation with a metric as high as this (with validation data: the metric there).
    seconds : float, optional
        Training stops at the first evaluation after so long, by the clock of the runtime, which is virtual under
        `Simulation`.
    evaluate_every : int, optional
        Rounds between evaluations; None is once per epoch.
    seed : int
        The seed of the order of rows.
    """

    step: float | str = "auto"
    schedule: str = "adaptive"
    batch: int | None = None
    sampling: str = "passes"
    epochs: int = 50
    rounds: int | None = None
    tol: float | None = 1e-5
    patience: int = 5
    goal: float | None = None
    metric_goal: float | None = None
    seconds: float | None = None
    evaluate_every: int | None = None
    seed: int = 0

    name: ClassVar[str] = ""
    # Words that `step` may be in place of a number.
    named_steps: ClassVar[tuple[str, ...]] = ("auto",)
    # The family of models that it makes, where it is not told: see `families`.
    family: ClassVar[str] = "linear"
    # Whether it trains sealed, see `families.protection`.
    seals: ClassVar[bool] = False
    # Whether an epoch is one round, about all rows.
    second_order: ClassVar[bool] = False
    # Whether a label holder tells the others signals in the clear, from which its own part of a score can be read.
    tells_signals: ClassVar[bool] = True
    # Whether blocks of parties without labels move.
    moves_unlabelled: ClassVar[bool] = True
    # Training that runs out of epochs is reported as unfinished if the last five evaluations still improved the
    # objective by this part of it; None is one per cent of the whole way.
    worthwhile: ClassVar[float | None] = None

    def __post_init__(self) -> None:
        if isinstance(self.step, str):
            if self.step not in self.named_steps:
                words = " or ".join(map(repr, self.named_steps))
                raise OptionError(f"step must be a number > 0 or {words}, got {self.step!r}")
        else:
            at_least("step", self.step, 0, strict=True, finite=True)
        one_of("schedule", self.schedule, SCHEDULES)
        one_of("sampling", self.sampling, SAMPLING)
        for option, low in (("epochs", 1), ("patience", 1), ("seed", 0)):
            whole_number(option, getattr(self, option), low)
        for option in ("batch", "rounds", "evaluate_every"):
            if getattr(self, option) is not None:
                whole_number(option, getattr(self, option), 1)
        if self.tol is not None:
            at_least("tol", self.tol, 0)
        for option, value in (("goal", self.goal), ("metric_goal", self.metric_goal)):
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, Real):
                raise OptionError(f"{option} must be a finite number, got {value!r} ({type(value).__name__})")
            if not isfinite(value):
                raise OptionError(f"{option} must be a finite number, got {value!r}")
        if self.seconds is not None:
            at_least("seconds", self.seconds, 0, strict=True)

    def batch_for(self, rows: int) -> int:
        """Rows per batch where there are so many; a batch can't have more rows than there are."""
        if self.batch is None:
            return min(64, rows)
        if self.batch > rows:
            raise OptionError(f"batch must be at most the {rows} rows, got {self.batch}; lower it")
        return self.batch

    def smallest_batch(self, rows: int, holders: int) -> int:
        """Rows of the smallest batch, where the holders share the rows equally: pieces of nearly one size."""
        share = max(1, rows // holders)
        return share // -(-share // min(share, self.batch_for(rows)))

    def numbers_between(self, outputs: int, parties: int, holders: int, batches: int) -> float:
        """Numbers about each row that a party lets out from one evaluation to the next, and in it, at most.

        outputs: scores of a row. batches: of an epoch. By default: its scores in a pass or in a part of one, and again
        to be judged.
        """
        part = 1.0 if self.evaluate_every is None else min(1.0, self.evaluate_every / batches)
        return outputs * (part + 1.0)

    def least_numbers(self, outputs: int, parties: int, holders: int, batches: int) -> float:
        """Numbers about each row that a run needs to get past its first step: the start is judged too."""
        return outputs + self.numbers_between(outputs, parties, holders, batches)

    def exchanges(self, parties: int) -> int:
        """Exchanges about one batch between so many parties."""
        return 1

    def numbers_of_a_batch(self, outputs: int, parties: int) -> int:
        """Different numbers about a row that leave a party whenever a batch has it."""
        return outputs * self.exchanges(parties)

    # -- what it says of itself ---------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        """The name and the options that matter most, for a table that compares algorithms."""
        return self.name

    @property
    def encryptable(self) -> bool:
        """Whether its signals may be encrypted: it needs no signal of a single row, and keeps none."""
        return False

    @property
    def remembers(self) -> bool:
        """Whether it keeps a signal of every row, so that its progress depends on how many rows there are."""
        return False

    def rehearsed(self) -> Training:
        """Return the same in small, for a rehearsal."""
        return replace(self, epochs=1, batch=None)

    def alike(self, other: Training) -> bool:
        """Whether the other is the same algorithm, be it with other options."""
        return type(self) is type(other)

    def check_sum(self, name: str) -> None:
        """Refuse a secure sum that this algorithm can't work with."""
        if name == ENCRYPTED and not self.encryptable:
            raise OptionError(
                f"sum='encrypted' encrypts the signals, and {self.name} needs them row by row at every party; use "
                f"FedSGD or FedBCD, or another sum"
            )

    def check(self, setting: Setting) -> None:
        """Refuse a run that these options can't train in."""
        self.check_sum(setting.sum)
        needed = self.exchanges(len(setting.parties))
        if self.rounds is not None and self.rounds < needed:
            raise OptionError(
                f"rounds must be at least the {needed} exchanges that {self.label} needs for one batch between "
                f"{len(setting.parties)} parties, got {self.rounds}: it would train nothing"
            )

    def warnings(self, setting: Setting) -> tuple[str, ...]:
        """What a user should be told before training starts, beside what the leaks warn of."""
        return ()

    # -- what it shows ------------------------------------------------------------------------------------------

    def leaks(self, setting: Setting) -> tuple[Leak, ...]:
        """All that this algorithm's messages show to whom, see `colonnade.leaks`; every algorithm says it itself."""
        raise TypeError(f"{type(self).__name__} must declare what it shows")

    def numbers_per_row(self, setting: Setting) -> int | None:
        """Different numbers about one row that leave a party over a whole run, at most; None where nobody can say."""
        raise TypeError(f"{type(self).__name__} must declare how many numbers leave a party")

    def _looks(self, setting: Setting) -> int | None:
        """Evaluations of an epoch, at most."""
        if self.evaluate_every is None:
            return 1
        if setting.rows is None:
            return None
        # Every label holder's last batch may be smaller than the others.
        batches = -(-setting.rows // self.batch_for(setting.rows)) + len(setting.holders) - 1
        return -(-batches // self.evaluate_every) + 1

    @property
    def most_epochs(self) -> int:
        """Epochs that are begun, at most: each has an exchange at least."""
        return self.epochs if self.rounds is None else min(self.epochs, self.rounds)

    def _times(self, setting: Setting) -> int | None:
        """Batches of a run that a row is in, at most; None where nobody can say."""
        if self.sampling == "passes":
            return self.most_epochs
        return None if setting.rows is None else most_draws(self.most_epochs, setting.rows)

    def _signalled(self, setting: Setting, more: int = 0) -> int | None:
        """Numbers of a row's signals over a run, at most, in its batches and so many times more."""
        times = self._times(setting)
        return None if times is None or setting.outputs is None else (times + more) * setting.outputs

    def _passes(self, setting: Setting, more: int = 0) -> int | None:
        """Numbers about a row in all batches that it is in, in all evaluations, and so many times more."""
        looks, times = self._looks(setting), self._times(setting)
        if looks is None or times is None or setting.outputs is None:
            return None
        in_batches = times * self.numbers_of_a_batch(setting.outputs, len(setting.parties))
        return in_batches + (1 + more + self.most_epochs * looks) * setting.outputs

    # -- what it does -------------------------------------------------------------------------------------------

    async def train(self, session: Any) -> None:
        """All rounds at one party, until its session says that it is over; every algorithm has its own."""
        raise TypeError(f"{type(self).__name__} must say how it trains")

    async def prepare(self, session: Any) -> None:
        """What the parties must agree on before they agree on a step size."""

    async def own_step(self, session: Any) -> float | None:
        """eta0, where this algorithm has a rule of its own for it; None leaves it to the session."""
        return None

    def boldness(self, loss: Loss) -> float:
        """How much longer than 1 / curvature the first "auto" step is."""
        return loss.boldness

    @property
    def growth(self) -> float:
        """What "adaptive" multiplies the step with when an evaluation brought something."""
        return 1.0

    def eta(self, eta0: float, r: int, parties: int) -> float:
        """The step size of round r, counted from 0 (FedBCD, Section VII-A and the experiment with more parties)."""
        if self.schedule in ("adaptive", "constant"):
            return eta0
        return eta0 / sqrt((r + 1) * (parties if self.schedule == "sqrt-parties" else 1))

    def as_value(self) -> Any:
        """Name and options in a form that the wire can carry; `algorithms.from_value` is the inverse."""
        return (self.name, tuple(asdict(self).items()))


@dataclass(frozen=True, kw_only=True)
class WholeRounds(Training):
    """Options of an algorithm whose rounds are about all rows, and of which no step size or early end is asked.

    Options of `Training` that would have no effect are refused, and of rows nothing leaves a party that its budget of
    numbers counts.
    """

    step: float | str = 1.0
    schedule: str = "constant"
    epochs: int = 1
    tol: float | None = None
    patience: int = 1

    # What has no effect, with the only value that is taken; and the end of the sentence that refuses another.
    fixed: ClassVar[dict[str, Any]] = {
        "step": 1.0, "schedule": "constant", "batch": None, "sampling": "passes", "rounds": None, "tol": None,
        "goal": None, "metric_goal": None, "seconds": None, "evaluate_every": None, "patience": 1,
    }  # fmt: skip
    instead: ClassVar[str] = "; leave it out"

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, only in self.fixed.items():
            if getattr(self, option) != only:
                raise OptionError(f"{self.name} takes no {option}, got {getattr(self, option)!r}{self.instead}")

    def batch_for(self, rows: int) -> int:
        """All rows: every round is about all of them."""
        return rows

    def numbers_between(self, outputs: int, parties: int, holders: int, batches: int) -> float:
        """None that the budget counts."""
        return 0.0

    def least_numbers(self, outputs: int, parties: int, holders: int, batches: int) -> float:
        """None that the budget counts."""
        return 0.0

    def numbers_per_row(self, setting: Setting) -> int | None:
        """None that the budget counts."""
        return 0
