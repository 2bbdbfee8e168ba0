"""What is asked of parties before any work starts, whichever door they come through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.party import Party
from colonnade.engine.exposure import ENCRYPTED, check_batches, usual_batch
from colonnade.engine.options import Training
from colonnade.engine.parts import shared_out
from colonnade.errors import LabelError

Array = npt.NDArray[Any]


def label_holders(parties: tuple[Party, ...]) -> tuple[str, ...]:
    """The names of the parties with labels; at least one is needed."""
    holders = tuple(party.name for party in parties if party.active)
    if not holders:
        raise LabelError("no party holds labels; give y to at least one Party")
    return holders


def all_labels(parties: tuple[Party, ...]) -> Array:
    """Every row's label; refuses holders that disagree, and rows without a label."""
    known = [party for party in parties if party.active]
    kinds = {np.asarray(party.y).dtype.kind in "US" for party in known}
    if len(kinds) > 1:
        raise LabelError("one party's labels are text and another's are numbers; use one kind at all label holders")
    labels = np.asarray(known[0].y).copy()
    have = np.asarray(known[0].labelled).copy()
    for party in known[1:]:
        other, mask = np.asarray(party.y), np.asarray(party.labelled)
        both = have & mask
        differ = np.nonzero(labels[both] != other[both])[0]
        if len(differ):
            row = int(np.nonzero(both)[0][differ[0]])
            raise LabelError(
                f"parties {known[0].name!r} and {party.name!r} disagree about {len(differ)} labels, the first in row "
                f"{row}; bring the labels into agreement"
            )
        labels = labels.astype(np.promote_types(labels.dtype, other.dtype))
        labels[mask] = other[mask]
        have |= mask
    if not have.all():
        raise LabelError(
            f"{int((~have).sum())} of {len(have)} rows have no label at any party; drop these rows, or give their "
            f"labels to one party"
        )
    return labels


def check_encrypted(sum_name: str, algorithm: Training, key_bits: Any) -> None:
    """What encrypted signals need, where they are asked for."""
    algorithm.check_sum(sum_name)
    if sum_name == ENCRYPTED:
        from colonnade.crypto.paillier import check_key_bits

        check_key_bits(key_bits)


def check_exposure(
    parties: Sequence[Party],
    shares: Mapping[str, int],
    algorithm: Training,
    outputs: int,
    *,
    intercept: bool,
) -> None:
    """Refuse encrypted signals in batches from which one of these parties could work out the labels.

    shares: how many rows each label holder has; of nobody's labels anything is looked at here.
    """
    holders = tuple(shares)
    sizes = {p.name: _used_columns(p.X) + (intercept and holders[0] == p.name) for p in parties}
    rows = sum(shares.values())
    batch = usual_batch(sizes, holders, outputs, rows) if algorithm.batch is None else algorithm.batch_for(rows)
    check_batches(sizes, shares, batch, outputs)


def owned_rows(parties: Sequence[Party], holders: tuple[str, ...]) -> dict[str, int]:
    """How many rows each label holder computes the signals of."""
    held = np.stack([np.asarray(party.labelled) for party in parties if party.name in holders])
    return {name: len(rows) for name, rows in zip(holders, shared_out(held), strict=True)}


def _used_columns(X: Any) -> int:
    """Those with a number in some row: of the others nothing is ever worked out."""
    return len(np.unique(X.indices[X.data != 0])) if hasattr(X, "indptr") else int(X.shape[1])
