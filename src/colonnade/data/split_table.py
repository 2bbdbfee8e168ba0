"""One table, cut into parties by columns: for experiments, in which nobody's columns are apart to begin with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from colonnade.data.matrix import category_places, frame_kind, is_sparse, made_up_names, of_arrow
from colonnade.data.party import Party
from colonnade.errors import OptionError


def split(
    X: Any,
    y: Any,
    into: int | Sequence[Sequence[int]] | Mapping[str, Sequence[int]],
    active: int | Sequence[str] = 1,
    ids: Any = None,
    seed: int | None = None,
    sample_weight: Any = None,
    categories: Iterable[str | int] = (),
    offset: Any = None,
    exposure: Any = None,
) -> list[Party]:
    """Cut one table into parties by columns, for experiments.

    Parameters
    ----------
    X
        The whole table, in any form that `Party` takes.
    y
        One label per row.
    into
        A number of parties, among whom columns are dealt in order (or at random, with a `seed`); a list of column
        numbers for each party; or {name: column numbers}. Parties without a name are called party1, party2, ...
    active
        How many of the first parties hold the labels, or the names of those who do.
    ids
        One identifier per row, which every party gets.
    seed
        Deals columns at random where `into` is a number.
    sample_weight
        How much each row counts in training, which the parties with labels get.
    categories
        Names or numbers of those columns of the whole table whose values are codes of categories, as for `Party`.
    offset, exposure
        What is added to each row's score, and how much each row was at risk, which the first party with labels gets.

    Returns
    -------
    list of Party
        The parties in the order of `into`.
    """
    X = of_arrow(X)
    features = np.shape(X)[1] if not is_sparse(X) else X.shape[1]
    if isinstance(into, Mapping):
        named = {name: list(columns) for name, columns in into.items()}
    elif isinstance(into, int):
        if not 1 <= into <= features:
            raise OptionError(f"into must be between 1 and the {features} columns, got {into}")
        order = np.arange(features) if seed is None else np.random.default_rng(seed).permutation(features)
        named = {f"party{k + 1}": sorted(part.tolist()) for k, part in enumerate(np.array_split(order, into))}
    else:
        named = {f"party{k + 1}": list(columns) for k, columns in enumerate(into)}
    names = list(named)
    holders = names[:active] if isinstance(active, int) else list(active)
    if not holders or (isinstance(active, int) and active > len(names)) or not set(holders) <= set(names):
        raise OptionError(f"active must be 1 to {len(names)} parties or some of {names}, got {active!r}")
    table = X.tocsc() if is_sparse(X) else X
    frame = frame_kind(X)
    whole = tuple(str(c) for c in X.columns) if frame in ("pandas", "polars") else made_up_names(features)
    coded = category_places(categories, whole)
    parties = []
    for name, columns in named.items():
        if frame == "pandas":
            part = table.iloc[:, columns]
        elif frame == "polars":
            part = table[:, columns]
        else:
            part = table[:, columns] if is_sparse(table) else np.asarray(table)[:, columns]
        own = {"y": y, "sample_weight": sample_weight} if name in holders else {}
        own |= {"offset": offset, "exposure": exposure} if name == holders[0] else {}
        codes = [at for at, column in enumerate(columns) if column % features in coded]
        parties.append(Party(name, part, ids=ids, categories=codes, **own))
    return parties
