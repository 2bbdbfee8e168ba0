"""Linear models that are trained on shares; they are scored, kept and described as other linear models are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from colonnade.algorithms.sealed_newton import SealedNewton
from colonnade.blocks.column_values import columns_from_value
from colonnade.blocks.columns import Columns
from colonnade.defences.output_noise import OutputNoise
from colonnade.engine.allowance import Limit
from colonnade.engine.kept import Keeper, with_secret
from colonnade.engine.options import Training
from colonnade.errors import DataError, LabelError, OptionError
from colonnade.families.held_out import check_held_out, held_out_leaks, judge
from colonnade.families.linear import LinearFamily
from colonnade.families.training import TrainingJob, TrainingPart
from colonnade.leaks import Leak, Setting
from colonnade.runtimes.net import Net
from colonnade.sealed.labels import LabelPart, of_mean_one
from colonnade.sealed.losses import SEALED_LOSSES
from colonnade.sealed.members import MOST_COLUMNS
from colonnade.sealed.party import SealedParty
from colonnade.sealed.schedule import MODEST

Floats = npt.NDArray[np.float64]

LEAST_ROWS = 16
_RARE = 0.05  # a label that fewer rows have is rare
_LARGEST = 1e150  # squares of what is larger are no numbers any more


class SealedFamily(LinearFamily):
    """Linear models of which each party learns its own coefficients, and nothing else."""

    name: ClassVar[str] = "sealed"
    kinds: ClassVar[Mapping[str, str]] = {}
    algorithms: ClassVar[tuple[type[Training], ...]] = (SealedNewton,)
    encryptable: ClassVar[bool] = False
    plannable: ClassVar[bool] = False
    sealed: ClassVar[bool] = True
    reads_stored: ClassVar[bool] = False
    minds_scales: ClassVar[bool] = False
    takes_offsets: ClassVar[bool] = False

    def check_holders(self, model: str, loss: str, holders: tuple[str, ...], options: Any) -> None:
        """Refuse what can't be trained on shares."""
        if len(holders) != 1:
            raise LabelError(
                f"sealed training needs exactly one label holder, got {', '.join(map(repr, holders))}; give y to one "
                f"Party only, or use protection 'masked'"
            )
        if options.penalised:
            raise OptionError(
                "sealed training does not penalise the intercept; leave penalise_intercept out, or use protection "
                "'masked'"
            )
        if options.penalises().name != "l2":
            given = f"l1 = {options.l1:g}" if options.l1 else repr(options.penalty)
            raise OptionError(f"sealed training has the penalty 'l2' only, got {given}; use protection 'masked'")
        if loss not in SEALED_LOSSES:
            raise OptionError(
                f"sealed training has no {loss.split(' ', maxsplit=1)[0].replace('_', ' ')} loss; it has "
                f"{', '.join(map(repr, SEALED_LOSSES))}: use one of these, or protection 'masked'"
            )

    def check_job(self, model: str, job: TrainingJob, parties: tuple[str, ...]) -> None:
        """Refuse noise on coefficients without a penalty on each of them."""
        for one in job.defences:
            if isinstance(one, OutputNoise):
                one.check_penalty(job.options.l2, intercept=job.options.intercept)

    def on_path(self, job: TrainingJob) -> float | None:
        """Return None: coefficients in shares start at zero."""
        return None

    def keeps_best(self, job: TrainingJob, held_out: int) -> bool:
        """Return whether the model is that of the best evaluation; held-out rows come after training here."""
        return job.algorithm.schedule == "adaptive"

    def leaks(self, setting: Setting, algorithm: Training) -> tuple[Leak, ...]:
        """Return what the algorithm shows, and the scores of held-out rows where a metric on them was asked for."""
        return (*super().leaks(setting, algorithm), *held_out_leaks(setting))

    async def train(
        self, net: Net, job: TrainingJob, part: TrainingPart, keeper: Keeper | None, budget: Limit | None
    ) -> Any:
        """Train on shares, on those columns that have a number in some row; then judge the model on held-out rows."""
        check_held_out(net.me, job, part, budget)
        algorithm, loss = cast(SealedNewton, job.algorithm), SEALED_LOSSES[job.loss]
        whole = columns_from_value(part.X)
        needed = self._needed(whole)
        order = np.random.default_rng([algorithm.seed, 0x5EA1]).permutation(whole.shape[0])
        X = _dense(needed.of(whole), order)
        noise = next((one for one in job.defences if isinstance(one, OutputNoise)), None)
        blur = None
        if noise is not None:
            X = noise.shortened(X, len(net.names))
            deviation = noise.noise * noise.moves(len(X), job.options.l2)
            secret, told = net.secret(f"defence {noise.name}"), keeper is not None and bool(keeper.versions())
            if keeper is not None:  # who goes on after a break adds the same noise: the mean of others would say more
                keeper = kept = with_secret(keeper, secret)
                secret = kept.secret
            blur = (deviation, secret)
            if budget is not None and net.me in job.holders and not told:
                budget.release(noise.release)
        self._check_sizes(net.me, X)
        first = job.holders[0]
        penalty, labels, intercept = np.full(X.shape[1], job.options.l2), None, job.options.intercept
        leads = net.me == first
        if intercept and not leads:
            _warn_of_columns_far_off(net, X, loss.most_off)
        if leads:
            y = _targets(self._labels(net.me, part)[order], job.outputs)
            if intercept:
                X, penalty = np.c_[X, np.ones(len(X))], np.r_[penalty, 0.0]
            if loss.name == "logistic" and algorithm.rounds is None and len(y) > MODEST:
                _warn_of_rare_labels(net, y)
            weights = None if part.weights is None else part.weights[order]
            labels = LabelPart(loss, y, weights, intercept=intercept)
            if weights is not None and labels.uneven > loss.most_uneven:
                raise DataError(
                    f"sealed training with the loss {loss.name!r} takes weights of at most {2**loss.most_uneven} times "
                    f"their mean, and the largest of party {net.me!r} is {of_mean_one(weights).max():.4g} times; "
                    f"cut the largest ones off"
                )
        holders = algorithm.holders(net.names, first)
        party = SealedParty(
            net, loss, holders, X, penalty, labels, job.outputs, given=algorithm.given, period=algorithm.period,
            weighted=job.options.weighted, keeper=keeper, noise=blur,
        )  # fmt: skip
        await algorithm.train(party)
        found, own = party.coefficients, None
        if leads and intercept:
            found, own = found[:-1], found[-1]
        state = (needed.spread(found), own)
        await judge(net, job, part, state, budget)
        return state

    def _check_sizes(self, me: str, X: Floats) -> None:
        if X.shape[1] > MOST_COLUMNS:
            raise DataError(
                f"party {me!r} has {X.shape[1]} columns, and sealed training takes at most {MOST_COLUMNS} of each; "
                f"choose the columns that matter, or use protection 'masked'"
            )
        if len(X) < LEAST_ROWS:
            raise DataError(f"sealed training needs at least {LEAST_ROWS} rows, party {me!r} has {len(X)}")
        _check_size(f"columns of party {me!r}", X)

    def _labels(self, me: str, part: TrainingPart) -> Floats:
        missing = 0 if part.labelled is None else int((~part.labelled).sum())
        if missing:
            raise LabelError(
                f"sealed training needs a label for every row, and party {me!r} lacks {missing}; leave these rows out "
                f"at every party"
            )
        y = np.asarray(part.y, np.float64)
        _check_size(f"labels of party {me!r}", y)
        return y


def _dense(columns: Columns, order: npt.NDArray[np.int64]) -> Floats:
    """Return columns as an array, with rows in this order."""
    return np.ascontiguousarray(columns.project(order, np.eye(columns.shape[1])))


def _check_size(whose: str, values: Floats) -> None:
    largest = float(np.abs(values).max(initial=0.0))
    if largest > _LARGEST:
        raise DataError(
            f"the {whose} hold {largest:.3g}, and sealed training takes numbers of up to {_LARGEST:g}; use other units"
        )


def _warn_of_columns_far_off(net: Net, X: Floats, most: float) -> None:
    """Tell a party of columns that are nearly constant, as they are hard to tell from the label holder's intercept."""
    mean, spread = np.abs(X.mean(axis=0)), X.std(axis=0)
    far = (mean > most * spread) & (spread > 1e-9 * mean)  # what is constant says nothing anyway
    if far.any():
        words = (
            f"the means of {int(far.sum())} of the columns of {net.me!r} are further from 0 than {most:g} times their "
            f"spread, so that sealed training may stop short of the optimum; subtract the mean of each column"
        )
        net.report(("warning", words))


def _warn_of_rare_labels(net: Net, y: Floats) -> None:
    """Tell the label holder alone that its labels ask for more rounds than the schedule, which is public, can know."""
    share = min(float(np.mean(y > 0)), float(np.mean(y < 0)))
    if share < _RARE:
        words = (
            f"one of the two labels is there in {share:.1%} of the rows only, so first steps of sealed training are "
            f"short; with SealedNewton(rounds=3) or more it comes closer to the optimum"
        )
        net.report(("warning", words))


def _targets(y: Floats, outputs: int) -> Floats:
    """Return labels as a column, or of several classes as one column of zeros and ones for each."""
    return y[:, None] if outputs == 1 else (y[:, None] == np.arange(outputs)).astype(np.float64)
