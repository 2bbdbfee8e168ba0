"""What a party allows to leave the building, whatever the job says: checked before a run, and at the door.

The door is `runtimes.endpoint`: nothing leaves except through it. It asks here first, and then writes to the ledger.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade.algorithms.boosted import KINDS as TREE_KINDS
from colonnade.algorithms.sealed_newton import KINDS as SEALED_KINDS
from colonnade.binning import KINDS as BINNING_KINDS
from colonnade.binning.options import LEAST
from colonnade.binning.program import TOLD
from colonnade.data.site import MIN_ROWS
from colonnade.defences.scores import Blur
from colonnade.errors import PolicyRefused
from colonnade.families.protection import PLAIN, SEALED
from colonnade.horizontal.shown import KINDS as SITE_KINDS
from colonnade.jobs.budget import OF_COLUMNS, Budget
from colonnade.jobs.label_counts import LabelCounts
from colonnade.leaks import CHANGES
from colonnade.ledger.ledger import Ledger
from colonnade.runtimes.frames import BYTES_PER_ROW, MAX_MESSAGE
from colonnade.runtimes.wire import Value

# Every kind of message that a program of ours sends; docs/security.md says what each one holds.
KINDS = (
    "public key", "labelled rows", "curvature", "step size", "columns", "all columns", "scores", "snapshot", "total",
    "signal", "evaluation", "objective", "verdict", "prediction", "kept versions", "masks", "alignment", "classes",
    "rows", "scoring", "phases", "kernel scale", "gamma", "encryption key", "encrypted signal", "blinded gradient",
    "opened gradient", "embeddings", "embeddings to evaluate", "embeddings to predict", "representations",
    "representations to evaluate", "mean representation", "labels", "second moments", "room", "directions",
    "curvatures", "products", "trial", "search", "move", "block size", "sealed columns", "sealed products",
    "product shares", "pace", "lag", "launch", "inverse block", "null score", "ping", "load", "plan", "budget",
    "ledger head", "ledger receipt", "training id", "choice", "signing key", "signature", "passed on",
    "sealed sizes", "size of the target", "size of the weights", "held-out scores", "column scales", "starting share",
    "weights of rows", "encrypted share", "blinded product", "masked share", *SEALED_KINDS, *TREE_KINDS,
    *BINNING_KINDS, *SITE_KINDS,
)  # fmt: skip
# Messages about the rows of a batch, one number or more for each: a small batch says more about each of its rows.
_OF_A_BATCH = (
    "scores", "signal", "snapshot", "encrypted signal", "embeddings", "representations", "directions", "curvatures",
    "sealed columns",
)  # fmt: skip
# Ranges of a column that the label holder of boosted trees may learn, where training is sealed and no number is given.
RANGES = 8
# About whom a party answers when a trained model is asked for scores: see `people`.
SERVED = ("trained", "listed", "all")
# Whether a party may keep what it sees of a run, which is more than a model needs: see docs/adr/0049.
NEVER, ALLOWED = RECORDED = ("never", "allowed")
# Defaults that depend on how many people there are: people of a partner in an alignment, and people asked about a day.
_TIMES_OWN_IDS, _FEWEST_IDS = 10, 10_000
_TIMES_PEOPLE, _FEWEST_PEOPLE = 2, 10_000
_ON_ITS_WAY = re.compile(r".* from \d+ (passed on|signed)(?: in (?:trial|fit) \d+)?")
_NUMBERED = re.compile(r"(.*?)(?: for \d+)?( masks)?(?: in (?:trial|fit) \d+)?")


def kind_of(step: str) -> str:
    """Return the kind of a message from the name of its step: "scores for 2" are scores, and all masks are masks.

    Behind a colon a step of sealed training says what it is about, which changes nothing about what it shows. What a
    party passes on is not its own, whatever it is: "signal from 0 passed on" is something passed on (`sums.telling`).
    """
    if way := _ON_ITS_WAY.fullmatch(step):
        return "passed on" if way[1] == "passed on" else "signature"
    step, _, _ = step.partition(":")
    match = _NUMBERED.fullmatch(step)
    if match is None or step.startswith("align"):
        return "alignment" if step.startswith("align") else step
    return "masks" if match[2] else match[1]


@dataclass(frozen=True)
class Policy:
    """The rules of one party; the defaults suit a party that knows nothing of the others.

    Parameters
    ----------
    kinds : messages that may leave.
    protection : how training may be protected: words of `families.protection`. See `consent`.
    require : what a job must have: a protection or a better one, or a defence by its name.
    accept : the disclosures about this party that it accepts, by their names in `leaks`; None: those that come with a
        protection that it has agreed to.
    max_advantage : the largest advantage that an audit may find about this party, in a run and beforehand; None: any.
    record : whether this party may write down what it sees of a run: "never", or "allowed".
    plain : whether scores may be added up without masks; "plain" among the words of `protection` says it too.
    min_features : the fewest columns with which this party takes part.
    min_batch : the fewest rows of a batch.
    min_rows : the fewest rows that this party, a site with rows, answers about.
    max_rounds : the most exchanges in a run.
    max_message_mb : the most megabytes of one message that this party sends and takes; None: 256 MB, or 1 kB for each
        row of its own table where that is more.
    peers : parties that may be sent anything; empty means those of the job.
    max_directions : how many numbers about each person may leave in all runs together, as a share of the party's own
        columns. With as many numbers as there are columns, and a few known people, a partner solves for all columns.
    max_ranges : the most ranges of one of its columns that the label holder of boosted trees may learn; None: 8 where
        training is sealed, and all cells where this party has agreed to "plain".
    max_questions : the most sums over cells of its columns that this party answers in a run of boosted trees.
    min_noise : the least noise on these sums, in units of what one person counts at most.
    min_cell : the fewest training rows in a cell of one of its columns.
    min_count : the fewest good and the fewest bad people in a bin that this party, holding labels, tells a partner of.
    max_label_counts : how many bins with such counts one partner is told in all runs together, as a share of the people
        that are counted; see `label_counts`.
    max_binnings : how often one label holder may have this party's columns counted.
    sequential : whether three or more parties may move one after another, which shows a label holder what each changed.
    max_partner_ids : the most ids that a partner may bring to an alignment; None: by the number of this party's own.
    tell_repeats : whether partners may learn how many rows each person in common has in this party's data.
    serve_people : about whom this party asks and answers with a trained model: the people of the "trained"
        intersection, those "listed" in `serve_list`, or "all".
    serve_list : a file with one id per line.
    max_epsilon : what noisy answers about this party's labels may tell in all runs together; None: any number.
    delta : the delta that goes with it.
    min_prediction : the fewest people of one question.
    max_people_per_day : the most people about whom one asker is answered in a day; None: by the number of those served.
    max_drift : the largest stability index of a column, against the training, with which people are scored.
    max_missing : the largest share of missing values in a column, where training had fewer, with which they are.
    round_scores : to how many decimals this party rounds its own part of every score of a prediction; None: it does
        not.
    noise_scores : the standard deviation of the noise that it adds to its part before.
    """

    kinds: tuple[str, ...] = KINDS
    protection: tuple[str, ...] = (SEALED,)
    require: tuple[str, ...] = ()
    accept: tuple[str, ...] | None = None
    max_advantage: float | None = None
    record: str = NEVER
    plain: bool = False
    min_features: int = 2
    min_batch: int = 8
    min_rows: int = MIN_ROWS
    max_rounds: int = 1_000_000
    max_message_mb: int | None = None
    peers: tuple[str, ...] = ()
    max_directions: float = 0.5
    max_ranges: int | None = None
    max_questions: int = 256
    min_noise: float = 5.0
    min_cell: int = 10
    min_count: int = LEAST
    max_label_counts: float = 0.1
    max_binnings: int = 16
    sequential: bool = False
    max_partner_ids: int | None = None
    tell_repeats: bool = False
    serve_people: str = "trained"
    serve_list: Path | None = None
    max_epsilon: float | None = None
    delta: float = 1e-6
    min_prediction: int = 1
    max_people_per_day: int | None = None
    max_drift: float | None = None
    max_missing: float | None = None
    round_scores: int | None = None
    noise_scores: float = 0.0

    @property
    def blur(self) -> Blur:
        """What this party does to its own part of every score of a prediction."""
        return Blur(self.round_scores, self.noise_scores)

    def partner_ids(self, own: int) -> int:
        """Return how many ids a partner may bring to an alignment, where this party brings `own`."""
        return self.max_partner_ids or max(_TIMES_OWN_IDS * own, _FEWEST_IDS)

    def message_bytes(self, rows: int) -> int:
        """Return the most bytes of one message, where this party's own table has so many rows."""
        if self.max_message_mb is not None:
            return self.max_message_mb * 1_000_000
        return max(MAX_MESSAGE, BYTES_PER_ROW * rows)

    def people_per_day(self, answered: int | None) -> int:
        """Return how many people an asker is answered about in a day, where `answered` are served (None: everybody)."""
        return self.max_people_per_day or max(_TIMES_PEOPLE * (answered or 0), _FEWEST_PEOPLE)

    def ranges_at_most(self, protection: str) -> int | None:
        """Return how many ranges of a column may be learnt in training that is protected so; None is any number."""
        return RANGES if self.max_ranges is None and protection == SEALED else self.max_ranges

    def check_company(self, me: str, parties: Sequence[str], sum_name: str | None) -> None:
        """Refuse, before the run, partners or a sum that this party does not allow; None where nothing is added up."""
        if strangers := [name for name in parties if name != me and self.peers and name not in self.peers]:
            raise PolicyRefused(
                f"the policy of {me!r} allows the peers {', '.join(map(repr, self.peers))}, the job has "
                f"{strangers[0]!r} too; add it to peers, or leave the job"
            )
        if sum_name == "plain" and not (self.plain or PLAIN in self.protection):
            raise PolicyRefused(
                f"the job adds up scores with sum 'plain', which shows each party's own to the next one, and the "
                f"policy of {me!r} does not allow it; use 'pairwise', or add \"plain\" to protection in [policy]"
            )

    def check_shown(self, me: str, algorithm: str, disclosed: Sequence[str]) -> None:
        """Refuse, before the run, what masks do not hide, unless this party has said that it may be seen."""
        if CHANGES in disclosed and not self.sequential:
            raise PolicyRefused(
                f"the job trains with {algorithm} in sequential order, which shows label holders what each party "
                f"changed, whatever the masks, and the policy of {me!r} does not allow it; use order = 'parallel', or "
                f"set sequential = true in [policy]"
            )

    def check_repeats(self, me: str) -> None:
        """Refuse, before the run, to tell how many rows each person in common has, unless it may be told."""
        if not self.tell_repeats:
            raise PolicyRefused(
                f"the job keeps several rows of a person at {me!r} (duplicates = 'expand'), which shows the others how "
                f"many each person in common has, and the policy of {me!r} does not allow it; set tell_repeats = true "
                f"in [policy], or leave duplicates out of the job"
            )

    def check_rounds(self, me: str, rounds: int) -> None:
        """Refuse, before training, a run that would not even get through one epoch."""
        if rounds > self.max_rounds:
            raise PolicyRefused(
                f"an epoch of this job has {rounds} rounds, the policy of {me!r} ends a run after {self.max_rounds}; "
                f"raise max_rounds, or the job's batch"
            )

    def check_part(self, me: str, features: int, batch: int) -> None:
        """Refuse, before training, what the door would refuse during it."""
        if features < self.min_features:
            raise PolicyRefused(
                f"{me!r} takes part with {features} {'column' if features == 1 else 'columns'}, its policy asks for "
                f"{self.min_features} at least; its scores would give its columns away: add columns, or lower "
                f"min_features"
            )
        if batch < self.min_batch:
            raise PolicyRefused(
                f"batches have {batch} rows, the policy of {me!r} asks for {self.min_batch} at least; raise the job's "
                f"batch, or lower min_batch"
            )

    def allow(self, me: str, to: str, step: str, value: Value, rounds: int) -> None:
        """Refuse one message if a rule is against it."""
        kind = kind_of(step)
        if kind not in self.kinds:
            raise PolicyRefused(
                f"the policy of {me!r} does not let messages of the kind {kind!r} out; allow it in kinds"
            )
        if self.peers and to not in self.peers:
            raise PolicyRefused(f"the policy of {me!r} does not let anything out to {to!r}; add it to peers")
        if rounds > self.max_rounds:
            raise PolicyRefused(f"the policy of {me!r} ends a run after {self.max_rounds} rounds; raise max_rounds")
        if kind in _OF_A_BATCH:
            rows = _rows(value)
            if rows is not None and 0 < rows < self.min_batch:
                raise PolicyRefused(
                    f"a message of the kind {kind!r} is about {rows} rows, the policy of {me!r} asks for "
                    f"{self.min_batch} at least; raise the job's batch, or lower min_batch"
                )
        if kind == TOLD and (least := _least_count(value)) < self.min_count:
            raise PolicyRefused(
                f"a bin with {least} people of a class would be told to {to!r}, the policy of {me!r} asks for "
                f"{self.min_count} at least; raise least under [binning] in the job, or lower min_count"
            )

    def check_bins(self, me: str, least: int) -> None:
        """Refuse, before the run, bins with fewer people than this party, holding labels, tells of."""
        if least < self.min_count:
            raise PolicyRefused(
                f"the job has bins of {least} people of a class, the policy of {me!r} asks for {self.min_count} at "
                f"least; raise least under [binning] in the job, or lower min_count"
            )


def _least_count(value: Any) -> int:
    """Return the smallest count of people in the bins of all columns."""
    counts = [each.min() for column in value if column is not None for each in column[1:]]
    return int(min(counts, default=1 << 62))


def _rows(value: Any) -> int | None:
    return int(value.shape[0]) if hasattr(value, "shape") and value.ndim else None


class PolicyDoor:
    """Policy, budgets and ledger of a party, as its `Net` asks them before anything leaves."""

    def __init__(
        self,
        me: str,
        policy: Policy,
        ledger: Ledger | None,
        budget: Budget | None = None,
        counts: LabelCounts | None = None,
    ) -> None:
        self._me, self._policy, self._ledger, self._budget, self._counts = me, policy, ledger, budget, counts

    def open_for(self, to: str, step: str, value: Value, size: int, rounds: int, *, control: bool) -> None:
        """Let a message out, or raise. Control frames hold only names of parties and steps, and are always let out."""
        if not control:
            self._policy.allow(self._me, to, step, value, rounds)
            if self._budget is not None and kind_of(step) in OF_COLUMNS:
                self._budget.passes(to, value)
            if self._counts is not None:
                self._counts.passes(to, kind_of(step), value)
        if self._ledger is not None:
            self._ledger.note(to, step, value, size)
