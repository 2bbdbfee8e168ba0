"""`[validation] folds` and `[search]` in a job: how often it holds rows out, and which options are tried.

Each option has the name that it has in [model] or in [algorithm].

[validation]
folds = 5
[search]
l2 = [1.0, 0.1, 0.01]
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from colonnade.engine.exposure import ENCRYPTED
from colonnade.engine.options import Training
from colonnade.errors import OptionError, TomlError
from colonnade.families.base import Family
from colonnade.families.linear import LinearFamily
from colonnade.objective import losses
from colonnade.objective.scorers import check_scoring
from colonnade.settings.settings import Section, Settings, check

DEFAULT_FOLDS, MOST_FOLDS = 5, 100
_MOST = 1000  # candidates of a search


def fold_count(settings: Settings, made: Family, loss: str, sum_name: str) -> int:
    """Return how many folds a job has, 0 for none; refuse folds that do not go with the rest of the job.

    made: the family of the trained model. loss, sum_name: names of the loss and of the sum.
    """
    table, searches = settings["validation"], bool(settings["search"].given)
    folds: int = table["folds"] or (DEFAULT_FOLDS if searches else 0)
    if not folds:
        if table["scoring"] is not None:
            raise table.error("scoring", "scores folds, and the job has none; add folds = 5, or remove it")
        return 0
    where, key = (table, "folds") if table["folds"] else (settings, "search")
    if table["part"]:
        raise table.error("part", "holds rows out once, and folds hold each of them out; keep one of the two")
    if not isinstance(made, LinearFamily) or sum_name == ENCRYPTED:
        what = f"a {made.called} model" if sum_name != ENCRYPTED else "encrypted signals"
        words = f"jobs cross-validate linear models, sealed or in the open, and this one has {what}"
        raise where.error(key, f"{words}; hold rows out with part instead")
    try:
        check_scoring(table["scoring"], losses.loss(loss))
    except OptionError as error:
        raise table.error("scoring", str(error)) from None
    return folds


# What a job may search for. Other options change what training shows, how much of it or the loss itself, and a job says
# these once for all of its fits.
_SEARCHED = frozenset({"l2", "l1", "penalty", "intercept", "step", "proximal", "tol"})


Candidates = tuple[tuple[Mapping[str, Any], ...], tuple[tuple[Any, Training], ...]]


def candidates_of(
    settings: Settings, section: Section, read: Callable[[Settings], Any], algorithm: Training
) -> Candidates:
    """Return the options of every candidate, and what each of them is; both empty where a job searches for nothing.

    Parameters
    ----------
    settings
        The whole job.
    section
        The keys that `[model]` of this kind of model has.
    read
        Returns the options of the model's family for such a table.
    algorithm
        The algorithm with the options that `[algorithm]` gives it.
    """
    table, model = settings["search"], settings["model"]
    names = [name for name in table if name in table.given]
    if not names:
        return (), ()
    known = ({*section.keys} | {one.name for one in fields(algorithm)}) & _SEARCHED
    if settings["run"]["statistics"]:
        known -= {"l1", "penalty"}  # whose models have none
    for name in names:
        if name not in known:
            raise table.error(name, f"can't be searched for; this job may search for {', '.join(sorted(known))}")
    grid = tuple(
        dict(zip(names, values, strict=True)) for values in itertools.product(*(table[name] for name in names))
    )
    if len(grid) > _MOST:
        raise settings.error("search", f"makes {len(grid):,} candidates, at most {_MOST:,} are tried; leave some out")
    given = {name: model[name] for name in model.given}
    found = []
    for params in grid:
        of_model = {name: value for name, value in params.items() if name in section.keys}
        of_algorithm = {name: value for name, value in params.items() if name not in section.keys}
        name = next(iter(of_model or of_algorithm))
        try:
            options = read(check({**given, **of_model}, section))
            name = next(iter(of_algorithm), name)
            found.append((options, replace(algorithm, **of_algorithm)))
        except TomlError as error:
            wrong = next((one for one in of_model if f"key {one}" in str(error)), name)
            raise table.error(wrong, str(error).partition(": ")[2]) from None
        except (OptionError, TypeError) as error:
            wrong = next((one for one in of_algorithm if str(error).startswith(one)), name)
            raise table.error(wrong, str(error)) from None
    return grid, tuple(found)
