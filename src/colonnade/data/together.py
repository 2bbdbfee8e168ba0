"""What only shows when parties stand side by side: whether their names, their rows and their ids fit together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from colonnade.data.ids import same
from colonnade.data.party import Party
from colonnade.errors import DataError


def check_names(parties: Sequence[Party]) -> None:
    """Refuse anything but one or more parties with different names."""
    if not parties:
        raise DataError("no party was given; give at least one Party")
    for party in parties:
        if not isinstance(party, Party):
            raise DataError(
                f"expected a Party, got {type(party).__name__}; wrap the columns in Party(name, X, y), one for each "
                f"organisation; Party(..., prepare=...) does what a pipeline would"
            )
    names = [party.name for party in parties]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"the name {twice[0]!r} is used by {names.count(twice[0])} parties; every party needs its own")


def check_together(parties: Sequence[Party]) -> None:
    """Check what only shows when parties stand side by side: their names, how many rows they have, and their ids."""
    check_names(parties)
    first = parties[0]
    for party in parties[1:]:
        if party.rows != first.rows:
            raise DataError(
                f"party {party.name!r} has {party.rows} rows, party {first.name!r} has {first.rows}; all parties need "
                f"the same rows in the same order; align_parties finds them where parties have ids"
            )
    with_ids = [party for party in parties if party.ids is not None]
    for party in with_ids[1:]:
        differ = np.nonzero(~same(np.asarray(with_ids[0].ids), np.asarray(party.ids)))[0]
        if len(differ):
            raise DataError(
                f"ids of {with_ids[0].name!r} and {party.name!r} are not aligned: {len(differ)} rows differ, the first "
                f"is row {differ[0]}; bring them into the same order of ids, as align_parties does"
            )
