"""What `colonnade init` writes for boosted trees, every line explained; `init` has the rest."""

from __future__ import annotations

from colonnade.families.protection import PLAIN, SEALED
from colonnade.objective import losses

PROTECTION = """\
# "sealed": partners see neither labels nor which people are in which node of a tree, and the label holder learns few
# ranges of those of their columns that help. "plain": it gets all their columns, cut into cells. Each party's [policy]
# must agree to it.
"""
_MODEL = """\
[model]
kind = {kind}# trees (two classes), trees-softmax, trees-regression, trees-poisson, trees-gamma,
                         # trees-tweedie, trees-quantile
{more}# trees = 100            # rounds, at most; each adds a tree, or one for each class
# learning_rate = 0.1    # what a tree's leaves are multiplied with
# depth = 4              # questions of a tree, one after another, at most
# leaves = 16            # of a tree, at most, grown where they gain most; by default trees grow level by level
# l2 = 1.0               # penalty of leaves
# min_gain = 0.0         # what a split has to gain
# min_child_weight = 1.0   # sum of second derivatives on each side of a split, at least
# rows = 1.0             # the part of the rows that is drawn for each tree
# columns = 1.0          # the same of the columns
# bins = 32              # cells that a column is cut into, at most 256
# patience = 10          # rounds without a lower loss on held-out rows, after which training stops; by default never

"""
_BALANCED = "# balanced = false       # true: all classes weigh the same\n"
_PARAMETERS = {
    "trees-tweedie": "# power = 1.5            # of the variance: above 1, below 2\n",
    "trees-quantile": "# level = 0.5            # which quantile: 0.5 is the median\n",
}
TRAINING = {
    SEALED: """\
[algorithm]
kind = "auto"            # SealedBoosting
# ranges = 8             # of a partner's column that the label holder learns, at most; a party may allow fewer
# noise = 10.0           # on sums over cells of partners' columns, in people: at least 1
# label_epsilon = 1.0    # label differential privacy of where columns are cut, for classes; by default none
seed = 0

""",
    PLAIN: """\
[algorithm]
kind = "auto"            # OpenBoosting
# label_epsilon = 1.0    # label differential privacy of where columns are cut, for classes; by default none
seed = 0

""",
}
VALIDATION = """\
[validation]
part = 0.2               # of the common rows, held out for the history and for patience

"""
WEIGHT = '# weight = "weight"       # how much each row counts'
PREPARE = """\
# Local preparation, learned on the training rows and saved with the model. By default numbers stay as they are, missing
# values too, and texts become codes of categories.
# [prepare]
# income = [{ clip = [0, 250000] }]
# region = ["categories"]   # a number that only stands for something; or ["one-hot"]

# [trees]
# monotone = { income = -1, debts = 1 }   # scores may only fall with one column, and only rise with another
"""
CONSENT = {
    SEALED: """\
protection = ["sealed"]   # how training may be protected: sealed, so that partners of the label holder open few ranges
                          # of their columns; "plain", in the open, is a further word to agree to
""",
    PLAIN: """\
protection = ["sealed", "plain"]   # how training may be protected; "plain" is consent to training in the open: the
                          # label holder gets all columns, cut into cells
""",
}
RULES = """\
{consent}{ranges}max_questions = 256       # sums over cells of its columns that this party answers in a run
min_noise = 5.0           # on these sums, in units of what one person counts at most
min_cell = 10             # training rows in a cell of a column, at least
min_features = 2          # columns that this party takes part with, at least
max_rounds = 1000000      # of a run
"""
RANGES = {
    SEALED: "max_ranges = 8            # of a column that the label holder may learn, in training and in predictions\n",
    PLAIN: "# max_ranges = 8          # of a column that the label holder may learn, however many bins the job has\n",
}


def model_text(kind: str, quoted: str, loss: str) -> str:
    """Return the table of the model."""
    more = _PARAMETERS.get(kind, "")
    more += _BALANCED if losses.loss(loss).kind in ("binary", "classes") else ""
    return _MODEL.format(kind=quoted, more=more)
