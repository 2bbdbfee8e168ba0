"""What parties are checked for before any work starts, and what users are warned of, whichever door they take."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.class_weights import class_weights, weighed_rows
from colonnade.data.matrix import is_stored
from colonnade.data.party import Party, missing_values
from colonnade.data.row_weights import Floats, trouble_of_all
from colonnade.engine.exchange import shared_out
from colonnade.engine.exposure import ENCRYPTED, check_batches, in_shares, usual_batch
from colonnade.engine.options import Training
from colonnade.errors import ColonnadeWarning, DataError, LabelError, OptionError, SingleFeatureWarning
from colonnade.families import family
from colonnade.families.base import Family
from colonnade.families.training import TrainingJob
from colonnade.leaks import Leak

Array = npt.NDArray[Any]
_SCALE_RATIO = 1000.0


def label_holders(parties: tuple[Party, ...]) -> tuple[str, ...]:
    """Return the names of the parties with labels; at least one is needed."""
    holders = tuple(party.name for party in parties if party.active)
    if not holders:
        raise LabelError("no party holds labels; give y to at least one Party")
    return holders


def all_labels(parties: tuple[Party, ...]) -> Array:
    """Return every row's label; refuse holders that disagree, and rows without a label."""
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


def all_weights(parties: tuple[Party, ...]) -> Floats | None:
    """Return how much every row counts, from the label holder whose signals it is in; None where all count alike."""
    known = [party for party in parties if party.active]
    if all(party.sample_weight is None for party in known):
        return None
    weights = np.ones(known[0].rows)
    for party, rows in zip(known, shared_out(np.stack([np.asarray(one.labelled) for one in known])), strict=True):
        if party.sample_weight is not None:
            weights[rows] = party.sample_weight[rows]
    return weights


def with_class_weights(
    given: Any, parties: tuple[Party, ...], held_out: Sequence[Party] | None, classes: Array
) -> tuple[tuple[Party, ...], list[Party] | None]:
    """Return the parties and those of held-out rows, whose rows count by their class as well; None changes nothing."""
    apart = None if held_out is None else list(held_out)
    if given is None:
        return parties, apart
    if not len(classes):
        raise OptionError(f"class_weight is for classifiers, got {given!r}; give sample_weight instead")
    found = class_weights(given, all_labels(parties), all_weights(parties), classes)
    weighed = tuple(weighed_rows(party, classes, found) for party in parties)
    return weighed, None if apart is None else [weighed_rows(party, classes, found) for party in apart]


def weighted(parties: Sequence[Party], held_out: Sequence[Party] | None = None) -> bool:
    """Return whether some party brings weights of rows."""
    return any(party.sample_weight is not None for party in (*parties, *(held_out or ())))


def check_weights(kind: Family, parties: Iterable[Party]) -> None:
    """Refuse weights of rows where training does not take them, and weights of rows of which none counts."""
    for party in parties:
        if party.sample_weight is None:
            continue
        kind.check_weighs(party.name)
        if (trouble := trouble_of_all(party.sample_weight)) is not None:  # others of its rows may have counted
            raise DataError(f"party {party.name!r}: sample_weight {trouble}")


def check_offsets(job: TrainingJob, parties: Sequence[Party], held_out: Sequence[Party] | None = None) -> None:
    """Refuse offsets and exposures where training does not take them, and held-out rows that lack them."""
    for at, party in enumerate(parties):
        apart = None if held_out is None else held_out[at]
        for one in (party,) if apart is None else (party, apart):
            if one.added is None:
                continue
            if one.name not in job.holders:
                raise DataError(
                    f"party {one.name!r} gives rows an offset or an exposure and holds no labels; give them to the "
                    f"party with the labels"
                )
            family(job.family).check_offsets(one.name, job.loss, job.holders, exposure=one.exposure is not None)
        if apart is not None and (apart.added is None) != (party.added is None):
            lacks, has = ("validation", "training") if apart.added is None else ("training", "validation")
            raise DataError(
                f"party {party.name!r} gives the rows of {has} an offset or an exposure, and those of {lacks} none; "
                f"give them to both"
            )


def check_values(kind: Family, parties: Iterable[Party]) -> None:
    """Refuse missing values, and codes of categories, where this family's models do not take them.

    Every way on which columns of a `Party` come into training or into use passes here.
    """
    for party in parties:
        if party.missing and not kind.takes_missing:
            raise DataError(
                f"{missing_values(party)}; impute or drop them first, or train boosted trees, which take them"
            )
        if party.categories and not kind.takes_categories:
            named = ", ".join(repr(party.columns[j]) for j in party.categories[:5])
            raise DataError(
                f"party {party.name!r} names the columns {named} as categories, which only boosted trees take; encode "
                f"them first (for example one-hot), or train boosted trees"
            )


def check_exposure(
    parties: Sequence[Party],
    shares: Mapping[str, int],
    algorithm: Training,
    outputs: int,
    *,
    intercept: bool,
) -> None:
    """Refuse encrypted signals in batches from which one of these parties could work out the labels.

    `shares` says how many rows each label holder has; nobody's labels are looked at here.
    """
    holders = tuple(shares)
    if in_shares(ENCRYPTED, holders):
        return
    sizes = {p.name: _used_columns(p.X) + (intercept and holders[0] == p.name) for p in parties}
    rows = sum(shares.values())
    batch = usual_batch(sizes, holders, outputs, rows) if algorithm.batch is None else algorithm.batch_for(rows)
    check_batches(sizes, shares, batch, outputs)


def owned_rows(parties: Sequence[Party], holders: tuple[str, ...]) -> dict[str, int]:
    """Return how many rows each label holder computes the signals of."""
    held = np.stack([np.asarray(party.labelled) for party in parties if party.name in holders])
    return {name: len(rows) for name, rows in zip(holders, shared_out(held), strict=True)}


def _used_columns(X: Any) -> int:
    """Count the columns with a number in some row: about the others nothing is ever worked out."""
    return len(np.unique(X.indices[X.data != 0])) if hasattr(X, "indptr") else int(X.shape[1])


# -- warnings -------------------------------------------------------------------------------------------------------


def tell(words: str, category: type[ColonnadeWarning] = ColonnadeWarning) -> None:
    """Warn with the line outside of this package that called it: Python shows the same words once for every line."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("colonnade."):
        level, frame = level + 1, frame.f_back
    warnings.warn(words, category, stacklevel=level)


def check_stored(kind: Family, parties: Sequence[Party]) -> None:
    """Refuse columns on the disk where training has all of them in memory."""
    for party in parties:
        if is_stored(party.X) and not kind.reads_stored:
            raise OptionError(stored_words(kind, party.name))


def stored_words(kind: Family, name: str) -> str:
    """Say that a party's columns do not fit into the memory that it allows for them, and what to do."""
    how = "sealed training" if kind.sealed else f"training a {kind.called} model"
    return (
        f"the prepared columns of party {name!r} are more than memory under [data] allows, and {how} has all of them "
        f"in memory; raise memory, or train what reads them from the disk: a linear model with protection 'masked' or "
        f"'plain', a kernel model or trees"
    )


def warn_before(job: TrainingJob, parties: Sequence[Party], names: tuple[str, ...], rows: int | None = None) -> None:
    """Give all warnings that come before a run.

    `parties` are those whose data is at hand, `names` are those of all that take part, `rows` is the number of rows.
    """
    kind = family(job.family)
    if kind.minds_single:
        warn_single_features(parties, len(names))
    if kind.minds_scales:
        warn_scales(parties)
    for party in parties:
        if is_stored(party.X) and not (job.algorithm.second_order or kind.reads_once):
            tell(
                f"party {party.name!r} keeps its columns on the disk, and {job.algorithm.name} reads rows in random "
                f"order, one at a time, which takes far longer than from memory; raise memory under [data], or take "
                f"BlockNewton, which reads all rows in order"
            )
    if len(names) > 1:
        for words in kind.warnings(job.setting(names, rows), job.algorithm):
            tell(words)


def warn_after(history: list[dict[str, Any]], algorithm: Training) -> None:
    """Warn of a run that diverged, or that ended before it had converged."""
    history = [record for record in history if "loss" in record]
    if not history:  # nobody was told how it went
        return
    warn_diverged(history, algorithm.schedule == "adaptive")
    if algorithm.tol is not None:
        warn_unfinished(history, algorithm.epochs, algorithm.worthwhile)


def warn_single_features(parties: Sequence[Party], of: int) -> None:
    """Warn a party with one column, before it sends anything, of what that shows; `of` parties take part."""
    for party in parties if of > 1 else ():
        if party.features == 1:
            tell(
                f"party {party.name!r} has a single column: FedBCD's Theorem 2, which keeps partners from solving for "
                f"its data, needs at least two; whoever sees its contributions sees this column up to a factor",
                SingleFeatureWarning,
            )


def warn_scales(parties: Sequence[Any]) -> None:
    """Warn each party of columns of its own with very different sizes, as these slow down every first-order method."""
    for party in parties:
        sizes = _column_sizes(party.X)
        known = np.nonzero(sizes)[0]
        if not len(known):
            continue
        small, large = known[sizes[known].argmin()], known[sizes[known].argmax()]
        if sizes[large] > _SCALE_RATIO * sizes[small]:
            tell(
                f"party {party.name!r}: column {party.columns[large]!r} (about {sizes[large]:.2g}) is far larger than "
                f"{party.columns[small]!r} (about {sizes[small]:.2g}); standardise the columns, or training will crawl",
            )


def _column_sizes(X: Any) -> Array:
    """Return the root mean square of each column's non-zeros: a rare category is not a small column."""
    if hasattr(X, "indptr"):
        squares = np.bincount(X.indices, np.square(X.data, dtype=np.float64), minlength=X.shape[1])
        counts = np.bincount(X.indices, minlength=X.shape[1])
    else:
        squares, counts = np.zeros(X.shape[1]), np.zeros(X.shape[1])
        for at in range(0, len(X), 4096):  # in chunks: no second copy of X
            chunk = X[at : at + 4096]
            squares += np.square(chunk, dtype=np.float64).sum(axis=0)
            counts += np.count_nonzero(chunk, axis=0)
    sizes: Array = np.sqrt(squares / np.maximum(counts, 1))
    return sizes


def warn_shown(leaks: Iterable[Leak]) -> None:
    """Warn of what these leaks show, where not everybody expects it."""
    for warning in dict.fromkeys(leak.warning for leak in leaks if leak.warning):
        tell(warning)


def warn_budget(used: float, most: float) -> None:
    """Warn of a run that ended because a party's policy lets no more numbers out, and say what would help."""
    tell(
        f"training ended after {used:.3g} of {most:.0f} numbers about each person, since a party's policy lets no more "
        f"out; the model is the best one by then. For a better one raise max_directions in [policy] of the party with "
        f"the least, if its partners may work out more combinations of its columns",
    )


def warn_unfinished(history: list[dict[str, Any]], epochs: int, worthwhile: float | None = None) -> None:
    """Warn of training that ran out of epochs while the objective was still falling.

    That is the case if it fell in the last five evaluations by a per cent of its whole way, or by that part of its
    value which is `worthwhile`.
    """
    found = [record["loss"] for record in history]
    if history[-1]["epoch"] < epochs or len(found) < 7:
        return
    before, now = min(found[:-5]), min(found)
    if before - now > (0.01 * (found[0] - now) if worthwhile is None else worthwhile * abs(now)):
        tell(
            f"training stopped after {epochs} epochs while the objective still fell ({before:.4g} to {now:.4g} in the "
            f"last five evaluations); standardise the columns (each party can do it alone), or give more epochs",
        )


def warn_diverged(history: list[dict[str, Any]], best_kept: bool) -> None:
    """Warn of training that ended above where it began, which nobody should have to find in the history."""
    first, *later = (record["loss"] for record in history)
    last = first if not later else min(later) if best_kept else later[-1]
    if not last <= first:
        remedy = (
            "standardise the columns, or give more epochs"
            if best_kept
            else "use a shorter step, fewer local steps, a proximal term, or step='auto' with schedule='adaptive'"
        )
        tell(
            f"training diverged: the objective began at {first:.4g} and ended at {last:.4g}; {remedy}",
        )
