"""`[binning]` and `[scorecard]` of a job: how columns become weights of evidence, and a model points.

[binning]
method = "monotone"      # or "chi-merge", "quantile"
bins = 8                 # of a column, at most
least = 10               # good and bad people in a bin, each; nobody hears of fewer
min_iv = 0.02            # columns with a smaller information value are left out
[scorecard]
base = 600               # points of somebody with these odds
odds = 50                # good people for a bad one
pdo = 20                 # points that double the odds
"""

from __future__ import annotations

from typing import TypeVar

from colonnade.binning.options import METHODS, BinningOptions
from colonnade.binning.points import PointScale
from colonnade.errors import OptionError
from colonnade.families.base import Family
from colonnade.families.linear import LinearFamily
from colonnade.families.sealed import SealedFamily
from colonnade.objective import losses
from colonnade.settings.settings import Key, Section, Settings

Options = TypeVar("Options", BinningOptions, PointScale)
BINNING = Section(
    Key("method", str, default=BinningOptions.method, allowed=METHODS),
    Key("bins", int, default=BinningOptions.bins),
    Key("fine", int, default=BinningOptions.fine),
    Key("least", int, default=BinningOptions.least),
    Key("smallest", float, default=BinningOptions.smallest),
    Key("significance", float, default=BinningOptions.significance),
    Key("min_iv", float, default=BinningOptions.min_iv),
    Key("max_correlation", float),
    Key("max_vif", float),
)
SCORECARD = Section(
    Key("base", float, default=PointScale.base),
    Key("odds", float, default=PointScale.odds),
    Key("pdo", float, default=PointScale.pdo),
    Key("rounded", bool, default=PointScale.rounded),
)


def bins_and_points(
    settings: Settings, loss: str, made: Family, holders: tuple[str, ...]
) -> tuple[BinningOptions | None, PointScale | None]:
    """Return what a job says of bins and points, or refuse what no model of its kind has."""
    bins, points = settings["binning"], settings["scorecard"]
    if bins is not None:
        if losses.loss(loss).kind != "binary" or made.takes_categories or made.predicts_alone:
            words = "bins are for models of two classes that take numbers, as logistic; remove this table"
            raise settings.error("binning", words)
        if len(holders) > 1:
            names = " and ".join(map(repr, holders))
            raise settings.error(
                "binning", f"bins need one party with labels, and {names} hold some; remove this table"
            )
    if points is not None and (bins is None or loss != "logistic" or made.name not in _HAVE_POINTS):
        words = "points need a logistic model of bins; add [binning], or remove this table"
        raise settings.error("scorecard", words)
    return (
        None if bins is None else _checked(BinningOptions(**bins.plain()), bins),
        None if points is None else _checked(PointScale(**points.plain()), points),
    )


_HAVE_POINTS = (LinearFamily.name, SealedFamily.name)


def _checked(options: Options, given: Settings) -> Options:
    try:
        options.check()
    except OptionError as error:
        key, _, words = str(error).partition(" ")
        raise given.error(key, words) from None
    return options
