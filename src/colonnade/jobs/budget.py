"""How many numbers about each person, derived from its columns, a party lets out: a budget that outlives every run.

Scores are linear in the columns. Whoever has seen as many independent numbers of a row as the partner has columns, and
knows a few of its people, can solve for all columns of everybody. No mask and no secret choice helps against that: what
is let out has to stay below it. So every party counts what it lets out per row, over training, resumed training, trials
of a plan and statistics, in all of its runs together, and stops at a share of its own columns: `[policy]
max_directions`.

Algorithms charge before they send (`engine.allowance`). The door compares what really leaves with what was charged,
so that a message that nobody has charged for does not leave either. What was charged is written to the ledger first: a
run that is killed has spent it all the same.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from colonnade.defences.accountant import Release, epsilon_of
from colonnade.errors import PolicyRefused, PrivacySpent
from colonnade.ledger.ledger import Ledger

# Kinds of messages that hold numbers about rows, derived from the sender's columns. A signal is such a number too: the
# score can be read from it, and whoever knows the other parts of the score has the sender's.
OF_COLUMNS = (
    "scores", "snapshot", "evaluation", "directions", "phases", "signal", "total", "embeddings",
    "embeddings to evaluate", "representations", "representations to evaluate", "held-out scores",
)  # fmt: skip
_RECORD = "numbers about each person"  # in the ledger
_MODEL = "model whose training was counted"
_RELEASE = "noisy answers about labels"
_ROUNDING = 1e-9


class Budget:
    """One party's budget, for one run; `share` is the share of its own columns (`max_directions`).

    epsilon and delta are what noisy answers about its labels may add up to (`max_epsilon`); None is not limited.
    """

    def __init__(self, me: str, share: float, epsilon: float | None = None, delta: float = 1e-6) -> None:
        self._me, self._share = me, share
        self._epsilon, self._delta = epsilon, delta
        self._released: list[Release] = []
        self.before = 0.0  # numbers per row that left in earlier runs
        self.columns = self.rows = 0  # until it is opened, nothing may leave
        self.times = 1  # rows of one person that each may let out a number of its own
        self.charged = 0.0  # numbers per person in this run
        self._covered = 0.0  # numbers per row that an earlier run has paid for, and may leave in this one
        self._noted = 0
        self._models: set[str] = set()
        self._ledger: Ledger | None = None
        self._left_by_now: dict[str, int] = {}  # numbers that passed the door, to each party

    def keep_in(self, ledger: Ledger) -> None:
        """Read from the party's ledger what left in earlier runs, and write there what leaves in this one."""
        self._ledger = ledger
        self._look()

    def _look(self) -> None:
        """Read what the other runs have let out: earlier ones, and one that another process carries out just now."""
        if self._ledger is not None:
            self.before = sum(int(record["numbers"]) for record in self._ledger.remembered(_RECORD)) - float(
                self._noted
            )
            self._models |= {str(record["digest"]) for record in self._ledger.remembered(_MODEL)}

    def _turn(self) -> AbstractContextManager[None]:
        """Have the ledger alone, so that two runs do not spend the same numbers."""
        return nullcontext() if self._ledger is None else self._ledger.turn()

    def open(self, columns: int, rows: int, times: int = 1) -> None:
        """Let numbers leave from now on, about so many rows of so many columns, as they are before preparation.

        times: how many of these rows are about one person at most, where another number leaves with each of them.
        """
        self.columns, self.rows, self.times = columns, rows, times

    @property
    def allowance(self) -> int:
        """The numbers per person that may ever leave: at least one, since nothing can be trained with fewer."""
        return allowance(self._share, self.columns) if self.columns else 0

    @property
    def left(self) -> float:
        """The numbers per row that may still leave."""
        return max(0.0, self.allowance - self.before - self.charged) / self.times

    def check(self, least: float, what: str) -> None:
        """Refuse, before the first message, what could not even begin."""
        if least > self.left + _ROUNDING:
            found = math.ceil(least * self.times - _ROUNDING)
            raise PolicyRefused(f"{what} lets out {found} numbers about each person at least: {self._rule()}")

    def charge(self, numbers: float) -> None:
        """Let so many numbers per row out, or refuse."""
        with self._turn():
            self._look()
            if numbers > self.left + _ROUNDING:
                found = math.ceil(self.before + self.charged + numbers * self.times - _ROUNDING)
                raise PolicyRefused(
                    f"{found} numbers about each person would have left in this run and those before: {self._rule()}"
                )
            self.charged += numbers * self.times
            due = math.ceil(self.charged - _ROUNDING)
            if due > self._noted:
                if self._ledger is not None:
                    self._ledger.remember(_RECORD, {"numbers": due - self._noted, "columns": self.columns})
                self._noted = due

    def release(self, release: Release) -> None:
        """Count something noisy about every label, with all that earlier runs told; refuse what the policy forbids.

        It is in the ledger before it is told: a run that is killed has told it all the same.
        """
        with self._turn():
            if self._ledger is not None:
                self._released = [_release_of(one) for one in self._ledger.remembered(_RELEASE)]
            if self._epsilon is not None:
                spent = epsilon_of([*self._released, release], self._delta)
                if spent > self._epsilon:
                    before = epsilon_of(self._released, self._delta)
                    raise PrivacySpent(
                        f"noisy answers about the labels of {self._me!r} have told epsilon {before:.4g} in all runs "
                        f"together, the next would make it {spent:.4g}, and its policy allows {self._epsilon:g} for "
                        f"delta {self._delta:g}; raise max_epsilon in [policy] if your partners may find out more"
                    )
            self._released.append(release)
            if self._ledger is not None:
                self._ledger.remember(_RELEASE, asdict(release))

    def cover(self, numbers: float) -> None:
        """Let numbers per row out that an earlier run of the same job has paid for and not sent."""
        self._covered += numbers

    def passes(self, to: str, value: Any) -> None:
        """Check, at the door, that nobody is sent more than was charged."""
        self._left_by_now[to] = self._left_by_now.get(to, 0) + _numbers(value)
        if self._left_by_now[to] > (self.charged / self.times + self._covered + _ROUNDING) * self.rows + 1:
            raise PolicyRefused(
                f"a message of {self._me!r} holds numbers about rows that its budget was not charged for; nothing of "
                f"this kind leaves uncounted"
            )

    def paid(self, digest: str) -> None:
        """Note that this model's training was charged: its scores are combinations of numbers that left in it."""
        if digest not in self._models:
            self._models.add(digest)
            if self._ledger is not None:
                self._ledger.remember(_MODEL, {"digest": digest})

    def use(self, model: Used) -> None:
        """Put a finished model to use; one whose training stands in no ledger of this party pays the first time."""
        with self._turn():
            self._look()
            if model.digest not in self._models:
                self.open(model.columns, 1)
                self.charge(model.numbers)
                self.paid(model.digest)

    def part(self, share: float) -> BudgetShare:
        """Return a share of what is left, for one of several trainings that go on side by side."""
        return BudgetShare(self, share * self.left)

    def all_but(self, numbers: float) -> BudgetShare:
        """Return what is left after so many numbers are set aside."""
        return BudgetShare(self, self.left - numbers)

    def _rule(self) -> str:
        earlier = f" and {self.before:g} have left in earlier runs" if self.before else ""
        rows = f", and a person has up to {self.times} rows, each with numbers of its own" if self.times > 1 else ""
        return (
            f"the policy of {self._me!r} allows {self.allowance} (max_directions = {self._share:g} of its "
            f"{self.columns} columns){earlier}{rows}; raise max_directions in [policy] if your partner may work out "
            f"more combinations of your columns"
        )


@dataclass(frozen=True)
class Used:
    """A finished model, as a budget knows it: numbers about each person that its scores are, and whose columns."""

    digest: str
    numbers: int
    columns: int


class BudgetShare:
    """A share of a party's budget, for one of several trainings: what it spends is spent of the whole."""

    def __init__(self, whole: Budget, most: float) -> None:
        self._whole, self._most = whole, most

    @property
    def left(self) -> float:
        """The numbers per row that may still leave of this share."""
        return max(0.0, min(self._most, self._whole.left))

    def check(self, least: float, what: str) -> None:
        """Refuse what could not even begin; what is set aside for others counts as needed."""
        self._whole.check(least + self._whole.left - self.left, what)

    def release(self, release: Release) -> None:
        """Count something noisy about every label, of which all trainings share one limit."""
        self._whole.release(release)

    def charge(self, numbers: float) -> None:
        """Let so many numbers per row out, of the share and of the whole, or refuse."""
        self._whole.charge(numbers)
        self._most -= numbers


def allowance(share: float, columns: int) -> int:
    """Return how many numbers about each person a party with so many columns lets out at this share of them."""
    return max(1, math.floor(share * columns + _ROUNDING))


def _release_of(record: Any) -> Release:
    return Release(str(record["kind"]), float(record["size"]), int(record["classes"]), int(record["count"]))


def _numbers(value: Any) -> int:
    if isinstance(value, tuple):
        return sum(map(_numbers, value))
    return int(value.size) if hasattr(value, "size") else 0
