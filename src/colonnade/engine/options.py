"""How a model is trained: the options that all iterative algorithms share, and the step sizes of the papers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite, sqrt
from numbers import Real
from typing import Any, ClassVar

from colonnade.errors import OptionError, at_least, one_of, whole_number
from colonnade.leaks import Leak, Setting
from colonnade.objective.losses import Loss

SCHEDULES = ("adaptive", "constant", "sqrt", "sqrt-parties")
# What "adaptive" multiplies the step with when an evaluation brought nothing, and while none has brought anything yet.
SHRINK, SEARCH = 0.7, 0.25


@dataclass(frozen=True, kw_only=True)
class Training:
    """Options of every algorithm that works in rounds.

    step: eta0, or "auto": the inverse of a bound on the curvature, from one number per party.
    schedule: "adaptive" keeps eta0 (SVRG and SAGA lengthen it a little) until an evaluation brings less than `tol`;
    then it shrinks it and goes on from the best parameters. The paper's are "constant", "sqrt" (eta0 / sqrt(r + 1) in
    round r) and "sqrt-parties" (eta0 / sqrt((r + 1) K)).
    batch: rows per round, at most; None is 64, or all where there are fewer (of encrypted signals: what the parties
    agree on, see `exposure`). epochs: passes over the rows, at most.
    tol, patience: stop when `patience` evaluations in a row improve the objective (with validation data: the loss
    there) by less than `tol` times its value; tol=None never stops early.
    goal: stop at the first evaluation with an objective this low. metric_goal: or with a metric this high (with
    validation data: the one there). seconds: stop at the first evaluation after so long, by the clock of the runtime
    (virtual under `Simulation`).
    evaluate_every: rounds between evaluations; None is once per epoch. seed: of the order of rows.
    """

    step: float | str = "auto"
    schedule: str = "adaptive"
    batch: int | None = None
    epochs: int = 50
    tol: float | None = 1e-5
    patience: int = 5
    goal: float | None = None
    metric_goal: float | None = None
    seconds: float | None = None
    evaluate_every: int | None = None
    seed: int = 0

    name: ClassVar[str] = ""
    # The family of models that it makes, where it is not told: see `families`.
    family: ClassVar[str] = "linear"
    # Whether a label holder tells the others signals in the clear, from which its own part of a score can be read.
    tells_signals: ClassVar[bool] = True
    # The part of the objective that five evaluations must still bring for an end by `epochs` to be said; None: a per
    # cent of the whole way.
    worthwhile: ClassVar[float | None] = None

    def __post_init__(self) -> None:
        if isinstance(self.step, str):
            if self.step != "auto":
                raise OptionError(f"step must be a number > 0 or 'auto', got {self.step!r}")
        else:
            at_least("step", self.step, 0, strict=True, finite=True)
        one_of("schedule", self.schedule, SCHEDULES)
        for option, low in (("epochs", 1), ("patience", 1), ("seed", 0)):
            whole_number(option, getattr(self, option), low)
        if self.batch is not None:
            whole_number("batch", self.batch, 1)
        if self.tol is not None:
            at_least("tol", self.tol, 0)
        for option, value in (("goal", self.goal), ("metric_goal", self.metric_goal)):
            if value is not None and not (isinstance(value, Real) and isfinite(value)):
                raise OptionError(f"{option} must be a finite number, got {value!r}")
        if self.seconds is not None:
            at_least("seconds", self.seconds, 0, strict=True)
        if self.evaluate_every is not None:
            whole_number("evaluate_every", self.evaluate_every, 1)

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
        """The same of a run that is not ended before its first step: the start is judged too."""
        return outputs + self.numbers_between(outputs, parties, holders, batches)

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

    def _passes(self, setting: Setting, passes: int, more: int = 0) -> int | None:
        """Numbers about a row in so many passes per epoch, with the evaluations after them and the one at the start."""
        looks = self._looks(setting)
        if looks is None or setting.outputs is None:
            return None
        return (1 + more + self.epochs * (passes + looks)) * setting.outputs

    # -- what it does -------------------------------------------------------------------------------------------

    async def train(self, session: Any) -> None:
        """All rounds at one party, until its session says that it is over; every algorithm has its own."""
        raise TypeError(f"{type(self).__name__} must say how it trains")

    async def prepare(self, session: Any) -> None:
        """What the parties must agree on before they agree on a step size."""

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
        """A form that the wire can carry; `algorithms.from_value` is its inverse."""
        return (self.name, tuple(asdict(self).items()))
