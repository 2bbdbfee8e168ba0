"""Options of algorithms whose parties need not wait for each other: their checks, and how much a run of them shows.

`algorithms.vfb2.VFB2` says what each of them means.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from colonnade.blocks.rules import RULES
from colonnade.engine.options import Training
from colonnade.engine.sampling import most_draws
from colonnade.errors import OptionError, one_of, whole_number
from colonnade.leaks import Setting
from colonnade.objective.losses import Loss

# How batches follow each other; what happens if a party is slow; what SAGA remembers at first.
FLOWS, BEHIND, TABLES = ("bounded", "paper"), ("thin", "drop", "wait"), ("zeros", "start")
MOST_THREADS = 256  # of one party
# What a variance-reduced step grows by after an epoch that went well.
_GROWTH = 1.05


@dataclass(frozen=True)
class Asynchronous(Training):
    """What VFB² and its relatives are told, and what follows from it before a run begins."""

    estimator: str = "saga"
    asynchronous: bool = True
    max_staleness: int = 2
    threads: int = 1
    flow: str = field(default="bounded", kw_only=True)
    behind: str = field(default="thin", kw_only=True)
    snapshot_every: int = field(default=2, kw_only=True)
    table: str = field(default="zeros", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("estimator", self.estimator, RULES)
        if not isinstance(self.asynchronous, bool):
            raise OptionError(f"asynchronous must be True or False, got {self.asynchronous!r}")
        whole_number("max_staleness", self.max_staleness, 0)
        whole_number("threads", self.threads, 1)
        if self.asynchronous and self.max_staleness == 0:
            raise OptionError("max_staleness must be >= 1 with asynchronous=True, got 0; use asynchronous=False")
        if self.threads > MOST_THREADS:
            raise OptionError(f"threads must be at most {MOST_THREADS}, got {self.threads}; lower it")
        if self.threads > 1 and not self.asynchronous:
            raise OptionError(
                f"threads must be 1 with asynchronous=False, got {self.threads}; updates wait in line there"
            )
        one_of("flow", self.flow, FLOWS)
        one_of("behind", self.behind, BEHIND)
        one_of("table", self.table, TABLES)
        whole_number("snapshot_every", self.snapshot_every, 1)
        if self.table != "zeros" and self.estimator != "saga":
            raise OptionError(f"table must be 'zeros' with estimator={self.estimator!r}; only SAGA keeps a table")
        if self.snapshot_every != Asynchronous.snapshot_every and self.estimator != "svrg":
            raise OptionError(
                f"snapshot_every is SVRG's, got {self.snapshot_every} with estimator={self.estimator!r}; leave it out"
            )
        if self.flow == "paper":
            self._check_printed()

    def _check_printed(self) -> None:
        """Refuse what the printed algorithms have not."""
        if not self.asynchronous:
            raise OptionError("flow='paper' needs asynchronous=True, got False; the synchronous twin has one flow")
        if self.rounds is not None:
            raise OptionError(f"flow='paper' counts no rounds, got rounds={self.rounds}; use epochs, seconds or a goal")
        for option, default in (("behind", Asynchronous.behind), ("max_staleness", Asynchronous.max_staleness)):
            if getattr(self, option) != default:
                raise OptionError(
                    f"flow='paper' lets signals wait without bound, got {option}={getattr(self, option)!r}; leave it "
                    f"out, or use flow='bounded'"
                )
        if self.schedule == "adaptive":
            raise OptionError(
                "flow='paper' can't go back to better parameters while others go on, got schedule='adaptive'; use "
                "'constant' or 'sqrt'"
            )

    def boldness(self, loss: Loss) -> float:
        """Stale steps must be shorter: several of them add up before the first is seen."""
        most = min(loss.boldness, 2.0)
        return most / (1.0 + (self.max_staleness - 1) / 3.0) if self.asynchronous else most

    @property
    def growth(self) -> float:
        """Without noise that only a short step would still, the longest step that goes well is the best one.

        Not for stale SAGA steps: one that is too long leaves its memory full of signals from far away.
        """
        return 1.0 if self.estimator == "sgd" or (self.estimator == "saga" and self.asynchronous) else _GROWTH

    # -- what a run shows: how many numbers about a row leave a party -------------------------------------------

    def numbers_per_row(self, setting: Setting) -> int | None:
        """A contribution to each batch, to each evaluation and to each snapshot of SVRG or SAGA."""
        # Free launches are evaluated at the end of every stage, too.
        stages = 0 if self.flow == "bounded" else max(1, self._snapshots)
        return self._passes(setting, self._snapshots * self._askers(setting) + stages)

    @property
    def _snapshots(self) -> int:
        if self.estimator != "svrg":
            return int(self.table == "start")
        first = int(self.flow == "paper")
        return (self.most_epochs - first) // self.snapshot_every + first

    def _times(self, setting: Setting) -> int | None:
        """See `Training._times`; of free launches, those of every label holder that may choose a row."""
        if self.flow == "bounded":
            return super()._times(setting)
        passes = self.most_epochs
        if self._askers(setting) == 1:  # they share the rows
            passes = -(-passes // len(setting.holders)) + 1
        if self.sampling == "uniform":
            if setting.rows is None:
                return None
            passes = most_draws(passes, setting.rows)
        return max(passes * len(setting.holders), self.most_epochs)

    def _looks(self, setting: Setting) -> int | None:
        """See `Training._looks`; every label holder's own launches count towards the next evaluation."""
        looks = super()._looks(setting)
        return looks if looks is None or self.evaluate_every is None else looks * self._askers(setting)

    def _askers(self, setting: Setting) -> int:
        """How many label holders ask for the scores of one row."""
        return 1

    def numbers_between(self, outputs: int, parties: int, holders: int, batches: int) -> float:
        """See `Training.numbers_between`; a snapshot takes the scores of all rows besides."""
        if self.flow == "paper":
            return 0.0  # what all of it needs was there at the start: nobody knows how far others are
        snapshot = outputs if self._snapshots else 0
        return super().numbers_between(outputs, parties, holders, batches) + snapshot

    def least_numbers(self, outputs: int, parties: int, holders: int, batches: int) -> float:
        """See `Training.least_numbers`; free launches can't be called back, so a party must be able to afford all."""
        if self.flow == "bounded":
            return super().least_numbers(outputs, parties, holders, batches)
        return float(self.numbers_per_row(self._as_setting(outputs, parties, holders, batches)) or 0)

    def _as_setting(self, outputs: int, parties: int, holders: int, batches: int) -> Setting:
        names = tuple(map(str, range(parties)))
        return Setting(names, names[:holders], outputs=outputs, rows=batches * self.batch_for(1 << 60))
