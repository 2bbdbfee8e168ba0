"""What a run shows to whom beside the model: a table of names, and the form in which code declares what it shows.

Every algorithm, sum and step declares its leaks beside its own code, as a function of a `Setting`. What a job must
list, what a party is told before anything is sent, what estimators warn of and the table in docs/security.md all come
from these declarations. A message that none of them accounts for fails tests/test_leaks.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# What may be shown, in the order in which a job lists it, with the comment that `colonnade init` writes behind it.
LISTED = {
    (COMMON := "who is in common"): "each party: which of its own people all others have too",
    (SIZES := "how many people each party has"): "everybody, exactly or roughly",
    (REPEATS := "how many rows each person has"): "everybody, of people in common at the first label holder",
    (UNCHANGED := "whether ids are the same as before"): "the party with fewer ids, of the other's, in every run",
    (LABELLED := "which rows are labelled"): "everybody: which of them each label holder has a label for",
    (CLASSES := "which classes there are"): "label holders; the others hear how many",
    (SIGNALS := "signals, which show the labels"): "everybody without labels could work them out",
    (WEIGHTS := "weights of rows, which follow from the signals"): "everybody who gets signals, up to a factor",
    (GRADIENTS := "own gradients, which show the labels of small batches"): "everybody without labels",
    (TOTALS := "scores, to other label holders"): "of people whose label they have too",
    (SCORES := "scores, which follow from the signals"): "everybody who gets signals",
    (MEAN := "mean of the labels"): "everybody, or the other label holders",
    (MAGNITUDE := "how large the target is, as a power of two"): "everybody",
    (UNEVEN := "how uneven weights of rows are, as a power of two"): "everybody",
    (MEAN_WEIGHT := "mean weight of rows"): "the other label holders",
    (CURVATURES := "how large scores are"): "everybody, of every row",
    (CONTRIBUTION := "contributions of the partner, row by row"): "label holders, in every exchange",
    (CONTRIBUTIONS := "contributions of all others together, row by row"): "label holders, in every exchange",
    (SINGLE := "contributions of single parties, as sums are plain"): "whoever is on the way",
    (CHANGES := "what one party changed, as the order is sequential"): "label holders, whatever the masks",
    (DIRECTIONS := "directions of columns, more with every round"): "in the end the columns up to a linear map",
    (ALL_DIRECTIONS := "directions of all others' columns together, more with every round"): "the same of the sum",
    (PRODUCTS := "inner products of rows"): "how alike two people are in others' columns",
    (DISTANCES := "distances between rows, to label holders"): "how far apart two people are in others' columns",
    (SHARED := "columns, as directions are shared"): "label holders could solve for them",
    (EMBEDDINGS := "embeddings, row by row"): "the label holder",
    (REPRESENTATIONS := "representations, row by row"): "the source, and from its answers the target",
    (COLUMNS := "how many columns, and their scale"): "label holders, or everybody",
    (CORRELATIONS := "correlations of rotated columns, to the first label holder"): "between every two parties",
    (CELLS := "cells of all columns, row by row"): "the label holder",
    (RANGES := "ranges of columns that splits use, row by row"): "the label holder, as many as [algorithm] says",
    (CELL_SUMS := "sums over cells of columns, with noise"): "the label holder",
    (CUT_POINTS := "which columns help, and where they are cut"): "each party, of its own columns",
    (CELL_COUNTS := "counts of good and bad people in fine cells of columns"): "the label holder, without edges",
    (BIN_COUNTS := "counts of good and bad people in bins of columns"): "each party, of its own columns",
    (BIN_CORRELATIONS := "correlations of binned columns"): "the label holder; each party hears which of its own stay",
    (COVARIANCES := "correlations of own columns with all others' together"): "each party",
    (ASKED := "who is asked about in predictions"): "everybody; back, who of them is known",
    (PREDICTED := "parts of scores, in predictions alone"): "label holders, of people whom they ask about",
    (HELD_OUT := "scores of held-out people, for a metric"): "the first label holder; nobody else hears the metric",
    (CHOSEN := "which options of a search do best"): "everybody, of those that the job lists",
    (SITE_NAMES := "column names, categories and classes of each site"): "the server; the sites hear what all have",
    (SITE_COUNTS := "how many rows all sites have together"): "server and sites, of categories and limited classes too",
    (SITE_MEANS := "means and deviations of all sites' columns together"): "server and sites",
    (SITE_GRADIENTS := "gradients of all sites' rows together"): "the server; the sites, from each round's parameters",
    (SITE_COSTS := "cost and accuracy over all sites' rows together"): "server and sites",
    (SITE_ALONE := "sums of a single site"): "who has the only other part of a sum, or whoever adds up in the clear",
    (OBJECTIVE := "objective and metric"): "the first label holder; the others hear when to stop",
}
# A name on the left need not be listed beside one on the right, which says all that it says.
_SAYS_MORE = {MEAN: (SIGNALS,), CURVATURES: (SIGNALS, SCORES), UNEVEN: (WEIGHTS,)}
# What version 0.1 asked for; lists from that time lack the rest.
FIRST_NAMES = (COMMON, LABELLED, SIGNALS, GRADIENTS, TOTALS, DISTANCES, CURVATURES, CORRELATIONS, OBJECTIVE)

# Kinds of messages that show nothing about anybody in any run, and why.
NOTHING = {
    "public key": "made for this run",
    "encryption key": "made for this run",
    "masks": "random numbers",
    "signing key": "made for this run",
    "signature": "of what everybody is told",
    "passed on": "what everybody is told, on its way; whoever tells it says what it shows",
    "kept versions": "numbers of epochs",
    "training id": "random numbers, and a digest with them as its key",
    "pace": "how many portions are done",
    "launch": "how many batches a label holder has asked for",
    "ledger head": "how many lines a ledger has, and their hash",
    "ledger receipt": "the same, countersigned",
    "ping": "empty",
    "load": "random bytes",
}

OF_COLUMNS, OF_LABELS, OF_PEOPLE = "your columns", "your labels", "your people"


@dataclass(frozen=True)
class Setting:
    """What is known of a run before it begins, as far as it decides what is shown to whom."""

    parties: tuple[str, ...]
    holders: tuple[str, ...]  # those of them who hold labels
    loss: str = "logistic"
    sum: str = "pairwise"
    topology: str = "tree"
    model: str = "linear"  # or "kernel", "network", "transfer"
    outputs: int | None = 1  # scores of a row; None while nobody has counted the classes
    rows: int | None = None  # of the training data, at most; None where that is not known
    aligned: bool = False  # whether the parties' rows are those of the same people already
    features: int = 0  # of a kernel
    scaled: bool = False  # whether a kernel's gamma comes from everybody's columns
    sealed: bool = False  # whether training is on shares, of which nobody sees anything
    weighted: bool = False  # whether the label holder has weights of rows
    held_out: bool = False  # whether rows are held out to judge the model
    folds: int = 0  # of a cross-validation, in which everybody is held out once; 0 is none
    candidates: int = 1  # that a search has to choose from
    expanded: bool = False  # whether a person may have several rows at the first label holder
    served: bool = False  # whether a party may align its ids under a key that lasts
    server: str = ""  # who asks, in a run over rows, whose label holders are the sites
    fewest: int = 0  # sites that answer at least, in such a run
    defences: tuple[Any, ...] = ()  # what parties do to what leaves them, each a `defences.base.Defence`

    @property
    def pair(self) -> bool:
        """Whether there are two parties, between whom any sum tells the other's part."""
        return len(self.parties) == 2

    @property
    def fits(self) -> int:
        """How many times a model is trained in the run."""
        return self.folds * self.candidates + 1

    @property
    def leader(self) -> str:
        """The first label holder."""
        return self.holders[0]

    @property
    def unlabelled(self) -> tuple[str, ...]:
        """The parties without labels."""
        return tuple(name for name in self.parties if name not in self.holders)

    @property
    def hearers(self) -> tuple[str, ...]:
        """The parties that are sent something about another's labels: all but a label holder that is the only one."""
        return self.parties if len(self.holders) > 1 else self.unlabelled


@dataclass(frozen=True)
class Leak:
    """Something that a run shows."""

    name: str  # as a job lists it; empty for messages that show nothing in this setting
    about: str  # OF_COLUMNS, OF_LABELS or OF_PEOPLE
    of: tuple[str, ...]  # whose they are
    to: tuple[str, ...]  # who could know it then
    kinds: tuple[str, ...]  # the messages that it follows from
    words: str  # a sentence for one of the parties in `of`, whose {places} `jobs.words` fills in
    numbers: int | None = None  # about a row over a whole run, at most; None where nobody can say, or there are none
    left: bool = False  # whether a party's budget counts these numbers (`engine.allowance`)
    warning: str = ""  # what an estimator says about it before it starts


def nothing(setting: Setting, *kinds: str, of: tuple[str, ...] | None = None) -> Leak:
    """Declare messages that show nothing in this setting, though in others they do; `of` limits it to some parties."""
    return Leak("", "", setting.parties if of is None else of, (), kinds, "")


def listed(leaks: Iterable[Leak]) -> tuple[str, ...]:
    """Return the names that a job must list."""
    names = {leak.name for leak in leaks}
    more = {name for name, larger in _SAYS_MORE.items() if names.intersection(larger)}
    return tuple(name for name in LISTED if name in names - more)


# -- what several algorithms show alike ----------------------------------------------------------------------------


def contributions(
    setting: Setting, numbers: int | None, kinds: tuple[str, ...], of: tuple[str, ...] = ()
) -> tuple[Leak, ...]:
    """Declare contributions that are summed at label holders, and for linear models what follows from them.

    They are the contributions of all parties, unless `of` names some.
    """
    of, to, pair = of or setting.parties, setting.holders, setting.pair
    words = (
        "{who} can see, in every exchange, your part of the score of {people}"
        + ("" if pair else " added to {theirs}")
        + "{numbers}; in predictions, of everybody whom they name"
    )
    name = CONTRIBUTION if pair else CONTRIBUTIONS
    found = Leak(name, OF_COLUMNS, of, to, (*kinds, "prediction"), words, numbers, left=True)
    return (found, *(linear(setting, to, numbers, kinds, of, left=True) if setting.model == "linear" else ()))


def linear(
    setting: Setting,
    to: tuple[str, ...],
    numbers: int | None,
    kinds: tuple[str, ...],
    of: tuple[str, ...] = (),
    *,
    left: bool = False,
) -> tuple[Leak, ...]:
    """Declare what follows from the contributions of a linear model in many rounds: n numbers each, of few columns.

    Each round moves the contributions by X Xᵀ s. A party that sees the contributions knows s, or can work it out.
    """
    of, pair = of or setting.parties, setting.pair
    directions = Leak(
        DIRECTIONS if pair else ALL_DIRECTIONS, OF_COLUMNS, of, to, kinds,
        "{who} could work out {directions}" if pair else
        "{who} could work out {combinations} of your columns and {theirs} together for {people}; with the help of "
        "{others}, {directions}",
        numbers, left,
    )  # fmt: skip
    return (directions, products(setting, to, kinds, of), columns(setting, to, kinds, of))


def products(setting: Setting, to: tuple[str, ...], kinds: tuple[str, ...], of: tuple[str, ...] = ()) -> Leak:
    """Declare that it shows how alike rows are."""
    words = "{who} could work out how alike any two people are in your columns (the inner products of rows)"
    return Leak(PRODUCTS, OF_COLUMNS, of or setting.parties, to, kinds, words + _together(setting))


def columns(setting: Setting, to: tuple[str, ...], kinds: tuple[str, ...], of: tuple[str, ...] = ()) -> Leak:
    """Declare that it shows how many columns there are, and how large their numbers are."""
    words = "{who} could work out how many columns you have and how large their numbers are"
    return Leak(COLUMNS, OF_COLUMNS, of or setting.parties, to, kinds, words + _together(setting))


def objective(setting: Setting, kinds: tuple[str, ...]) -> Leak:
    """Declare that it shows how well the model fits, or how much better a step made it."""
    words = (
        "{who} will learn how well the model fits your labels, in totals over all rows, or whether it still improves"
    )
    return Leak(OBJECTIVE, OF_LABELS, setting.holders, setting.parties, kinds, words)


def _together(setting: Setting) -> str:
    return "" if setting.pair else ", with {theirs} added"


def signals(
    setting: Setting, numbers: int | None, kinds: tuple[str, ...] = ("signal",), to: tuple[str, ...] = ()
) -> tuple[Leak, ...]:
    """Declare signals in the clear, which show labels and scores, and so everybody's contributions."""
    to = to or setting.hearers
    shown = Leak(SIGNALS, OF_LABELS, setting.holders, to, kinds, "{who} could work out your label of each of {people}")
    words = "{who} could work out the score of {people} from the signals, and so " + (
        "your part of it" if setting.pair else "your part of it added to {theirs}"
    )
    score = Leak(SCORES, OF_COLUMNS, setting.parties, to, kinds, words, numbers, left=True)
    more = linear(setting, to, numbers, kinds, left=True) if setting.model == "linear" else ()
    return (shown, score, *weights(setting, kinds, to), *more)


def weights(setting: Setting, kinds: tuple[str, ...], to: tuple[str, ...]) -> tuple[Leak, ...]:
    """Declare that signals show weights of rows, where there are any: where all scores are alike, only weights are not.

    Scores are alike before the first step.
    """
    words = "{who} could work out how much each of {people} counts, up to a factor"
    return (Leak(WEIGHTS, OF_LABELS, setting.holders, to, kinds, words),) if setting.weighted else ()


def sequential(setting: Setting, numbers: int | None, kinds: tuple[str, ...]) -> tuple[Leak, ...]:
    """Declare what parties that move one after another show; between two the sum is the other's part anyway."""
    if setting.pair or len(setting.parties) < 2:
        return ()
    return (
        Leak(
            CHANGES, OF_COLUMNS, setting.parties, setting.holders, kinds,
            "{who} could see what you alone changed, whatever the masks, as parties move one after another"
            + ("; and work out {directions}" if setting.model == "linear" else ""),
            numbers, left=True,
            warning="order='sequential' sums the same rows again after each party's steps, so the label holder can "
            "subtract two sums and see what that one party changed, whatever the masks; use order='parallel' where "
            "that matters",
        ),
    )  # fmt: skip
