"""Where training starts: parameters of the user's own, or those of a model that was trained before.

`fit(..., initial=)` takes a fitted model of the same kind; linear models also take {party: coefficients}, models over
rows an array of all parameters, and networks {party: parameters}, see `torch_initial`. Each party is given its own
part, and nothing of the others'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.blocks.whole import WholeModel
from colonnade.conventions.matching import check_columns
from colonnade.data.party import Party
from colonnade.engine.exposure import ENCRYPTED
from colonnade.errors import DataError, LabelError, OptionError
from colonnade.estimators.base import Estimator
from colonnade.families import family
from colonnade.families.linear import AveragedFamily
from colonnade.families.protection import seals
from colonnade.families.rows import RowsFamily
from colonnade.families.training import TrainingJob

Array = npt.NDArray[Any]


def check_goes_on(initial: Estimator, model: Estimator, job: TrainingJob, parties: Sequence[Party], y: Array) -> None:
    """Refuse a model with other parties, columns, labels or of another kind; `y` are the classes, if there are any."""
    initial._check_fitted()
    if type(initial) is not type(model) or initial._family != job.family:
        made = type(initial).__name__ if type(initial) is not type(model) else f"model trained by {initial._family}"
        raise OptionError(
            f"initial is a {made}, which {type(model).__name__} can't go on from; give one of its own kind"
        )
    names = tuple(party.name for party in parties)
    if set(initial.parties_) != set(names) or initial.holders_ != job.holders:
        raise OptionError(
            f"initial has the parties {list(initial.parties_)}, labels at {list(initial.holders_)}; give the same"
        )
    for party in parties:
        check_columns(initial.columns_[party.name], party)
    _check_classes(initial, y)


def kernel_start(
    initial: Any, model: Any, job: TrainingJob, parties: Sequence[Party], classes: Array
) -> dict[str, Any] | None:
    """Return {party: its coefficients as bytes, and the secrets of its features}; None without `initial`."""
    if initial is None:
        return None
    if not isinstance(initial, Estimator):
        raise OptionError(f"initial must be a fitted {type(model).__name__}, got {type(initial).__name__}")
    if not getattr(job.algorithm, "refit", True):
        raise OptionError("initial has all its features, and FDSKL(refit=False) ends there; leave out one of the two")
    check_goes_on(initial, model, job, parties, classes)
    made: Any = initial
    block = family(job.family).facts(job)["block"]
    for name, old, new in (
        ("kernel", made.kernel, job.options.kernel),
        ("features", int(made.features), job.options.features),
        ("gamma", made.gamma_, job.options.gamma),
        ("the algorithm's block", made._block, block),
    ):
        if old != new:
            raise OptionError(f"initial has {name} {old!r}, got {new!r}; go on with the same features")
    return {name: (_bytes_of(values), *secrets) for name, (values, *secrets, _) in made._states.items()}


def whole_start(initial: Any, described: Any, whole: WholeModel, classes: Array) -> Array | None:
    """Return all parameters of a model over rows, which `described` says and `whole` is; None without `initial`."""
    if initial is None:
        return None
    if isinstance(initial, Estimator):
        initial._check_fitted()
        made: Any = initial
        if initial._family != RowsFamily.name or made._model != described:
            raise OptionError(f"initial is a {type(initial).__name__} of another network; give one of the same")
        _check_classes(initial, classes)
        initial = made.parameters_
    return real_numbers(initial, whole.start(0).shape, "parameters", "`parameters_`")


def _check_classes(initial: Estimator, classes: Array) -> None:
    if not np.array_equal(initial.classes_, classes):
        raise LabelError(f"initial tells the classes {initial.classes_.tolist()} apart, these are {classes.tolist()}")


def _bytes_of(values: Array | None) -> bytes:
    return b"" if values is None else np.ascontiguousarray(values, dtype=np.float64).tobytes()


def linear_start(
    initial: Any, model: Estimator, job: TrainingJob, parties: Sequence[Party], classes: Array
) -> dict[str, Any] | None:
    """Return {party: its coefficients, score by score, and its intercept or None}; None without `initial`."""
    if initial is None:
        return None
    if seals(job.algorithm):
        raise OptionError("initial has no effect on sealed training, which ends at the optimum; leave it out")
    if job.sum == ENCRYPTED:
        raise OptionError("initial does not go with sum='encrypted', whose shares start at zero; leave out one of them")
    if isinstance(initial, Estimator):
        check_goes_on(initial, model, job, parties, classes)
        given = {name: initial._states[name][:2] for name in initial.parties_}
    elif isinstance(initial, Mapping):
        given = _by_party(initial, job, parties)
    else:
        kind = type(initial).__name__
        raise OptionError(f"initial must be a fitted model or a dict {{party: coefficients}}, got {kind}")
    _check_frozen(given, job, parties)
    return {name: family(job.family).start_of(state) for name, state in given.items()}


def _by_party(initial: Mapping[str, Any], job: TrainingJob, parties: Sequence[Party]) -> dict[str, Any]:
    """Return {party: (coefficients by column and score, intercept or None)}; who is not named starts at zero."""
    names = [party.name for party in parties]
    for name in initial:
        if name not in names:
            raise OptionError(f"initial names the party {name!r}, which does not take part; the parties are {names}")
    found = {}
    for party in parties:
        value = initial.get(party.name, np.zeros(_shape(party, job)))
        if isinstance(value, tuple) and len(value) != 2:
            raise OptionError(
                f"initial gives party {party.name!r} {len(value)} values; give its coefficients, or "
                f"(coefficients, intercept)"
            )
        coefficients, intercept = value if isinstance(value, tuple) else (value, None)
        theta = real_numbers(coefficients, _shape(party, job), f"the coefficients of party {party.name!r}")
        if intercept is not None:
            if not job.options.intercept or (party.name != job.holders[0] and job.family != AveragedFamily.name):
                owner = f"only {job.holders[0]!r} has" if job.options.intercept else "nobody has"
                raise OptionError(f"initial gives party {party.name!r} an intercept, which {owner}; leave it out")
            shape: tuple[int, ...] = () if job.outputs == 1 else (job.outputs,)
            intercept = real_numbers(
                intercept, shape, f"the intercept of party {party.name!r}", "`intercept_`"
            ).reshape(job.outputs)
        found[party.name] = (theta.reshape(job.outputs, party.features).T, intercept)
    return found


def _shape(party: Party, job: TrainingJob) -> tuple[int, ...]:
    return (party.features,) if job.outputs == 1 else (job.outputs, party.features)


def real_numbers(value: Any, shape: tuple[int, ...], what: str, of: str = "`coef_`") -> npt.NDArray[np.float64]:
    """Return what `initial` gives as an array; refuse other than finite real numbers of this shape.

    `what` says whose numbers they are, and `of` what has the same shape.
    """
    try:
        found = np.asarray(value)
        real = found.dtype.kind in "biuf" or (found.dtype == object and _all_real(found))
        found = found.astype(np.float64) if real else found
    except (TypeError, ValueError, OverflowError):  # rows of different lengths, whole numbers beyond all floats
        real = False
    if not real:
        raise DataError(f"initial: {what} must be real numbers of shape {shape}, got {_shortly(value)}")
    if found.shape != shape:
        raise DataError(f"initial: {what} must have the shape {shape}, as {of} has it, got {found.shape}")
    if not np.isfinite(found).all():
        raise DataError(f"initial: {what} must be finite numbers, got NaN or infinity among them")
    return found


def _all_real(values: Array) -> bool:
    """Whether an array of Python objects holds real numbers alone: numpy has no type for whole ones beyond 64 bits."""
    return all(isinstance(value, Real) for value in values.ravel().tolist())


def _shortly(value: Any) -> str:
    words = repr(value)
    return words if len(words) <= 60 else f"{words[:57]}..."


def _check_frozen(given: Mapping[str, Any], job: TrainingJob, parties: Sequence[Party]) -> None:
    """Refuse coefficients of blocks that never move, which say of themselves that they contribute nothing."""
    for party in parties:
        if not job.algorithm.moves_unlabelled and not party.active and np.any(given[party.name][0]):
            raise OptionError(
                f"initial gives party {party.name!r} coefficients, and {job.algorithm.name} never moves those of a "
                f"party without labels; leave them out, or use VFB2"
            )
