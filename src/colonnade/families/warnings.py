"""What a user is told beside errors: before a run what it shows and what will make it crawl, after it how it ended."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.party import Party
from colonnade.engine.options import Training
from colonnade.errors import ColonnadeWarning, SingleFeatureWarning
from colonnade.families import family
from colonnade.families.training_job import TrainingJob
from colonnade.leaks import Leak

Array = npt.NDArray[Any]
_SCALE_RATIO = 1000.0


def warn_before(job: TrainingJob, parties: Sequence[Party], names: tuple[str, ...], rows: int | None = None) -> None:
    """All that is said before a run; parties: those in this hand, names: all that take part, rows: of the data."""
    kind = family(job.family)
    warn_single_features(parties, len(names))
    if kind.minds_scales:
        warn_scales(parties)
    if len(names) > 1:
        for words in kind.warnings(job.setting(names, rows), job.algorithm):
            warnings.warn(words, ColonnadeWarning, stacklevel=3)


def warn_after(history: list[dict[str, Any]], algorithm: Training) -> None:
    """What was not learnt."""
    warn_diverged(history, algorithm.schedule == "adaptive")
    if algorithm.tol is not None:
        warn_unfinished(history, algorithm.epochs, algorithm.worthwhile)


def warn_single_features(parties: Sequence[Party], of: int) -> None:
    """A party with one column is told what that shows, before it sends anything; of: how many take part."""
    for party in parties if of > 1 else ():
        if party.features == 1:
            warnings.warn(
                f"party {party.name!r} has a single column: FedBCD's Theorem 2, which keeps partners from solving for "
                f"its data, needs at least two; whoever sees its contributions sees this column up to a factor",
                SingleFeatureWarning,
                stacklevel=3,
            )


def warn_scales(parties: Sequence[Any]) -> None:
    """Columns of very different size make every first-order method crawl; each party is told about its own."""
    for party in parties:
        sizes = _column_sizes(party.X)
        known = np.nonzero(sizes)[0]
        if not len(known):
            continue
        small, large = known[sizes[known].argmin()], known[sizes[known].argmax()]
        if sizes[large] > _SCALE_RATIO * sizes[small]:
            warnings.warn(
                f"party {party.name!r}: column {party.columns[large]!r} (about {sizes[large]:.2g}) is far larger than "
                f"{party.columns[small]!r} (about {sizes[small]:.2g}); standardise the columns, or training will crawl",
                ColonnadeWarning,
                stacklevel=3,
            )


def _column_sizes(X: Any) -> Array:
    """Root mean square of each column's non-zeros: a rare category is not a small column."""
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
    """What an algorithm declares that it shows, and that not everybody expects of it."""
    for warning in dict.fromkeys(leak.warning for leak in leaks if leak.warning):
        warnings.warn(warning, ColonnadeWarning, stacklevel=3)


def warn_budget(used: float, most: float) -> None:
    """A run that ended since a party's policy lets no more numbers out is said, with the remedy."""
    warnings.warn(
        f"training ended after {used:.3g} of {most:.0f} numbers about each person, since a party's policy lets no more "
        f"out; the model is the best one by then. For a better one raise max_directions in [policy] of the party with "
        f"the least, if its partners may work out more combinations of its columns",
        ColonnadeWarning,
        stacklevel=3,
    )


def warn_unfinished(history: list[dict[str, Any]], epochs: int, worthwhile: float | None = None) -> None:
    """Training that ran out of epochs while the objective still fell is said.

    That is, by a per cent of its whole way in five evaluations, or by the part of it that is `worthwhile`.
    """
    found = [record["loss"] for record in history]
    if history[-1]["epoch"] < epochs or len(found) < 7:
        return
    before, now = min(found[:-5]), min(found)
    if before - now > (0.01 * (found[0] - now) if worthwhile is None else worthwhile * abs(now)):
        warnings.warn(
            f"training stopped after {epochs} epochs while the objective still fell ({before:.4g} to {now:.4g} in the "
            f"last five evaluations); standardise the columns (each party can do it alone), or give more epochs",
            ColonnadeWarning,
            stacklevel=4,
        )


def warn_diverged(history: list[dict[str, Any]], best_kept: bool) -> None:
    """Training that ended above where it began is said, not left to be found in the history."""
    first, *later = (record["loss"] for record in history)
    last = first if not later else min(later) if best_kept else later[-1]
    if not last <= first:
        remedy = (
            "standardise the columns, or give more epochs"
            if best_kept
            else "use a shorter step, fewer local steps, a proximal term, or step='auto' with schedule='adaptive'"
        )
        warnings.warn(
            f"training diverged: the objective began at {first:.4g} and ended at {last:.4g}; {remedy}",
            ColonnadeWarning,
            stacklevel=4,
        )
