"""Linear models: one score per row, the sum of all parties' x theta; and FDML's mean of one model per party."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.algorithms import ALGORITHMS, FDML, VFB2, Algorithm, BlockNewton, FedSGD
from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.column_values import with_ones
from colonnade.blocks.columns import Columns, Needed
from colonnade.blocks.linear import LinearBlock
from colonnade.blocks.newton import LIMIT
from colonnade.blocks.prediction import MIXTURES, PredictionBlock
from colonnade.data.matrix import is_stored
from colonnade.defences.base import LabelDefence
from colonnade.engine.allowance import Limit
from colonnade.engine.exchange import Agreement, Part
from colonnade.engine.exposure import ENCRYPTED, check_penalty, in_shares
from colonnade.engine.kept import Keeper
from colonnade.engine.options import Training
from colonnade.engine.session import Session
from colonnade.engine.shared_session import SharedSession
from colonnade.errors import LabelError, OptionError
from colonnade.families.base import WEIGHTED, Arrays, Description, Family
from colonnade.families.refit import refitted
from colonnade.families.scoring import SummedScorer
from colonnade.families.training import DefendedPart, ScoringJob, TrainingJob, TrainingPart, minimised
from colonnade.objective import losses, penalties
from colonnade.objective.glm_losses import NAMED, tweedie_name
from colonnade.objective.offset import with_offsets
from colonnade.objective.weighted import Weighted, weighed
from colonnade.runtimes.net import Net
from colonnade.settings.settings import Key, Settings
from colonnade.streams.streamed_columns import opened

# The most multiplications that one party's matrices may take to make once: about a minute of one core.
_MOST_WORK = 2e11
_NAMES = ("theta", "intercept", "share")  # what a party's file calls the parts of a state
# The kind in a job, the loss and the class of every linear model; a job may give other numbers.
_MODELS = (
    ("logistic", "logistic", "LogisticRegression"),
    ("softmax", "softmax", "SoftmaxRegression"),
    ("svm", "smooth_hinge", "LinearSVC"),
    ("ridge", "square", "RidgeRegression"),
    ("poisson", "poisson", "PoissonRegression"),
    ("gamma", "gamma", "GammaRegression"),
    ("tweedie", "tweedie 1.5", "TweedieRegression"),
    ("negative-binomial", "negative_binomial 1.0", "NegativeBinomialRegression"),
    ("quantile", "smooth_quantile 0.5 1.0", "QuantileRegression"),
)


@dataclass(frozen=True)
class LinearOptions:
    """What a linear model is: the penalty of its coefficients, its weights, whether there is an intercept.

    And whether rows count unequally, which everybody has to know before the label holder brings weights; and whether
    the penalty is on the intercept too, as in the papers, whose models have a column of ones instead.
    """

    penalty: str = "l2"
    l2: float = 1e-4
    intercept: bool = True
    weighted: bool = False
    penalised: bool = False
    l1: float = 0.0

    def penalises(self) -> penalties.Penalty:
        """Return the penalty of coefficients."""
        return penalties.penalty(self.penalty, self.l2, self.l1)


class LinearFamily(Family):
    """Linear models, whose scores are sums of all parties' contributions.

    A state is (coefficients by column and score, intercept), where the intercept is None at all parties but its owner.
    """

    name: ClassVar[str] = "linear"
    blurs: ClassVar[bool] = True
    called: ClassVar[str] = "linear"
    reads_stored: ClassVar[bool] = True
    kinds: ClassVar[Mapping[str, str]] = {kind: loss for kind, loss, _ in _MODELS}
    keys: ClassVar[tuple[Key, ...]] = (
        Key("l2", float, default=LinearOptions.l2, least=0),
        Key("l1", float, default=LinearOptions.l1, least=0),
        Key("penalty", str, default=LinearOptions.penalty, allowed=tuple(penalties.PENALTIES)),
        Key("intercept", bool, default=LinearOptions.intercept),
        WEIGHTED,
        Key("penalise_intercept", bool, default=LinearOptions.penalised),
        Key("power", float, default=1.5, least=0, most=2),
        Key("alpha", float, default=1.0, above=0),
        Key("level", float, default=0.5, above=0, most=1),
        Key("smoothing", float, above=0),
    )
    options: ClassVar[type[Any]] = LinearOptions
    algorithms: ClassVar[tuple[type[Training], ...]] = tuple(ALGORITHMS.values())
    encryptable: ClassVar[bool] = True
    plannable: ClassVar[bool] = True
    weighs: ClassVar[bool] = True
    minds_scales: ClassVar[bool] = True
    takes_offsets: ClassVar[bool] = True
    validates: ClassVar[bool] = True
    lacks: ClassVar[Mapping[str, str]] = {}

    # -- jobs ---------------------------------------------------------------------------------------------------

    def default_algorithm(self, *, encrypted: bool) -> type[Training]:
        """Return block Newton, which takes any number of columns, or FedSGD, whose signals can be encrypted."""
        return FedSGD if encrypted else BlockNewton

    def loss_of(self, model: Settings) -> str:
        """Return the loss of a kind, with the parameters that the job gives."""
        kind, word = model["kind"], _word(self.kinds[model["kind"]])
        needed = NAMED[word][0] if word in NAMED else ()
        for of, other in self.kinds.items():
            for key in NAMED[_word(other)][0] if _word(other) in NAMED else ():
                if key in model.given and key not in needed:
                    raise model.error(key, f"has no meaning for kind {kind!r}, only for {of!r}; remove it")
        if kind == "quantile" and model["smoothing"] is None:
            words = "a quantile needs it, in units of the labels: a twentieth of the labels' spread is a good one"
            raise model.error("smoothing", words)
        if kind == "tweedie":
            return self._checked(model, "power", lambda: tweedie_name(model["power"]))
        found = " ".join((word, *(repr(float(model[key])) for key in needed)))
        return self._checked(model, needed[0] if needed else "kind", lambda: losses.loss(found).name)

    @staticmethod
    def _checked(model: Settings, key: str, name: Callable[[], str]) -> str:
        try:
            return name()
        except OptionError as error:
            raise model.error(key, str(error)) from None

    def check_job(self, model: str, job: TrainingJob, parties: tuple[str, ...]) -> None:
        """Refuse options of block Newton that have no meaning for an elastic net."""
        algorithm = job.algorithm
        if not isinstance(algorithm, BlockNewton) or job.options.penalises().name != "elasticnet":
            return
        for option, usual in (("order", "parallel"), ("grow_from", None)):
            if getattr(algorithm, option) != usual:
                raise OptionError(
                    f"BlockNewton with l1 takes no {option}, got {getattr(algorithm, option)!r}; remove it"
                )

    def check_holders(self, model: str, loss: str, holders: tuple[str, ...], options: Any) -> None:
        """Refuse a penalty on no intercept."""
        if options.penalised and not options.intercept:
            raise OptionError("penalise_intercept has no effect on a model without an intercept; leave out one of them")

    def trained_by(self, algorithm: Training) -> str:
        """Return the algorithm's own family: FDML makes a mean of models out of these options."""
        return algorithm.family

    def read_options(self, model: Settings) -> LinearOptions:
        """Return the penalty, its weights, whether there is an intercept, and whether rows have weights."""
        keys = ("penalty", "l2", "intercept", "weighted", "penalise_intercept", "l1")
        found = LinearOptions(*(model[key] for key in keys))
        try:
            found.penalises()
        except OptionError as error:
            raise model.error("l1", str(error)) from None
        return found

    def setting(self, options: Any) -> dict[str, Any]:
        """Say that contributions are linear, from which it follows what they show, and whether rows have weights."""
        return {"model": LinearFamily.name, "weighted": options.weighted}

    def leaders_columns(self, options: Any) -> int:
        """Return 1 where there is an intercept, which belongs to the first label holder."""
        return int(options.intercept)

    def start_of(self, state: Any) -> Any:
        """Return the coefficients, score by score, and the intercept where this party owns it.

        One array per score: lengths of arrays are cut where a run is rehearsed, and the number of scores is not.
        """
        theta, intercept = state[:2]
        return tuple(np.ascontiguousarray(theta.T)), None if intercept is None else tuple(intercept.tolist())

    # -- training and use ---------------------------------------------------------------------------------------

    async def train(
        self, net: Net, job: TrainingJob, part: TrainingPart, keeper: Keeper | None, budget: Limit | None
    ) -> Any:
        """Train on those columns that have a number in some row; the coefficients of the others are zero."""
        job.algorithm.check_sum(job.sum)  # checked again where a signal would leave in the clear
        check_penalty(job.sum, job.holders, job.options.penalises().name)
        ones = job.options.penalised and net.me == job.holders[0]  # an intercept that is a coefficient like others
        if ones and is_stored(part.X):
            raise OptionError(
                f"party {net.me!r} keeps its columns on the disk, and an intercept with a penalty is a column beside "
                f"them in memory; set penalise_intercept = false, or raise memory under [data]"
            )
        whole = opened(with_ones(part.X) if ones else part.X)
        needed = self._needed(whole)
        block, loss = self._block(needed.of(whole), job, net.me), _with_offsets(self._loss(job), part.y)
        if block.intercept is not None and part.y is not None and not any(one.private for one in job.defences):
            known = part.y if part.weights is None else weighed(part.y, part.weights)
            block.intercept[:] = loss.start(known[part.labelled])
        if part.own is not None:  # parameters to start with
            if len(part.own[0]) != job.outputs:
                raise OptionError(f"training starts from {len(part.own[0])} scores of a row, here are {job.outputs}")
            theta, intercept = np.stack(part.own[0], axis=1), part.own[1]
            if ones:
                theta = np.vstack([theta, np.zeros(job.outputs) if intercept is None else intercept])
            block.weights.V[:] = needed.cut(theta)
            if intercept is not None and block.intercept is not None:
                block.intercept[:] = intercept
        train = Part(None, whole.shape[0], part.y, part.labelled, part.weights)
        held_out = None
        if part.validation is not None:
            X, y, labelled = part.validation
            other = needed.of(opened(with_ones(X) if ones else X))
            held_out = Part(other, other.shape[0], y, labelled, part.held_out_weights)
        agreed = Agreement(loss, job.holders, job.sum, job.topology, part.own is not None, job.defences)
        kind = SharedSession if in_shares(job.sum, job.holders) else Session
        session = await kind.open(net, agreed, block, job.algorithm, train, held_out, keeper, budget)
        await job.algorithm.train(session)
        state = session.finish()
        truth = part.truth if isinstance(part, DefendedPart) else None
        for one in job.defences:
            if isinstance(one, LabelDefence) and one.refits(self.name):
                state = await refitted(session, state, truth, one.kept(job.outputs))
        theta, intercept, *rest = state
        theta = needed.spread(theta)
        if ones:
            theta, intercept = theta[:-1], theta[-1]
        return (theta, intercept, *rest)

    def on_path(self, job: TrainingJob) -> float | None:
        """Return l2, but for penalties with several optima and coefficients in shares, which start at zero."""
        return None if job.options.penalty != "l2" or job.sum == ENCRYPTED else float(job.options.l2)

    def _needed(self, whole: Columns) -> Needed:
        return Needed(whole, every=False)

    def _loss(self, job: TrainingJob) -> losses.Loss:
        return minimised(job)

    def _block(self, columns: Columns, job: TrainingJob, me: str) -> LinearBlock:
        """Return this party's block; the first label holder's has the intercept, unless a column of ones is that."""
        apart = job.options.intercept and not job.options.penalised
        return LinearBlock(columns, job.outputs, job.options.penalises(), apart and me == job.holders[0])

    def scorer(self, me: str, job: ScoringJob, state: Any, own: Any) -> LinearScorer:
        """Return a part that adds x theta to the scores."""
        return LinearScorer(state, LinearBlock)

    # -- what is kept -------------------------------------------------------------------------------------------

    def to_arrays(self, state: Any) -> Arrays:
        """Return the coefficients, and the intercept where this party owns it."""
        return {key: part for key, part in zip(_NAMES, state, strict=False) if part is not None}

    def from_arrays(self, arrays: Arrays) -> Any:
        """Return the state of these arrays; only FDML's has a share."""
        share = (float(arrays["share"]),) if "share" in arrays else ()
        return (arrays["theta"], arrays.get("intercept"), *share)

    def estimator(self, loss: str) -> str:
        """Return the class of this loss, as each has a class of its own."""
        return next(name for _, of, name in _MODELS if _word(of) == _word(loss))

    def estimator_options(self, options: Any, loss: str) -> dict[str, Any]:
        """Return the options of `LinearModel` that these stand for."""
        found = {"l2": options.l2, "l1": options.l1, "penalty": options.penalty, "fit_intercept": options.intercept}
        found["penalise_intercept"] = options.penalised
        return {**found, **asdict(losses.loss(loss))}

    def numbers(self, public: Mapping[str, Any], state: Any) -> int:
        """Return the number of scores: a party sends one number about a person for each."""
        return int(state[0].shape[1])

    # -- words --------------------------------------------------------------------------------------------------

    def describe(
        self,
        party: str,
        public: Mapping[str, Any],
        state: Any,
        columns: tuple[str, ...],
        classes: npt.NDArray[Any],
    ) -> Description:
        """List every coefficient by the name of its column, and the intercept where the party owns it."""
        theta, intercept = state[:2]
        names = [str(one) for one in classes.tolist()] if theta.shape[1] > 1 else ["coefficient"]
        names = names if len(names) == theta.shape[1] else [str(number) for number in range(theta.shape[1])]
        rows = [(column, *(f"{value:+.4f}" for value in row)) for column, row in zip(columns, theta, strict=True)]
        if intercept is not None:
            rows.append(("(intercept)", *(f"{value:+.4f}" for value in intercept)))
        return Description(f"{party}'s coefficients", ("column", *names), rows, numbers=True)


class AveragedFamily(LinearFamily):
    """FDML's models: every party has a whole one, and the weighted mean of their predictions is the prediction."""

    name: ClassVar[str] = "averaged"
    takes_offsets: ClassVar[bool] = False
    kinds: ClassVar[Mapping[str, str]] = {}
    algorithms: ClassVar[tuple[type[Training], ...]] = (FDML,)

    def check_holders(self, model: str, loss: str, holders: tuple[str, ...], options: Any) -> None:
        """Refuse losses without probabilities, which FDML averages, and more than one label holder."""
        super().check_holders(model, loss, holders, options)
        if options.penalises().name == "elasticnet":
            raise OptionError("FDML takes no l1, as it averages whole models; use BlockNewton, FedBCD or VFB2")
        if options.penalised:
            raise OptionError(
                "FDML has an intercept at every party, none of which is penalised; leave it out, or use VFB2"
            )
        if loss not in MIXTURES:
            raise OptionError(
                f"FDML averages the probabilities of classes, and {model} has none; use LogisticRegression or "
                f"SoftmaxRegression (in a job logistic or softmax), or train it with VFB2"
            )
        if len(holders) > 1:
            raise LabelError(
                f"FDML needs exactly one label holder, got {', '.join(map(repr, holders))}; give y to one Party only, "
                f"or use VFB2, which takes any number"
            )

    def _needed(self, whole: Columns) -> Needed:
        """Keep all columns, as a party's weight is its share of them."""
        return Needed(whole, every=True)

    def _loss(self, job: TrainingJob) -> losses.Loss:
        return Weighted(MIXTURES[job.loss]) if job.options.weighted else MIXTURES[job.loss]

    def _block(self, columns: Columns, job: TrainingJob, me: str) -> LinearBlock:
        """Return this party's whole model, with an intercept of its own if there is to be one."""
        return PredictionBlock(columns, job.outputs, job.options.penalises(), job.options.intercept)

    def scorer(self, me: str, job: ScoringJob, state: Any, own: Any) -> LinearScorer:
        """Return a part that adds its weighted prediction to the combined one."""
        return LinearScorer(state, PredictionBlock)

    def decode(self, loss: str, totals: Any) -> Any:
        """Return the log odds of the combined probability, or for softmax the logarithms of all probabilities."""
        return MIXTURES[loss].log_odds(totals)


def _word(loss: str) -> str:
    """Return the first word of a loss's name, behind which its parameters stand."""
    return loss.split(" ", maxsplit=1)[0]


def _with_offsets(loss: losses.Loss, y: Any) -> losses.Loss:
    """Return the loss for these labels; weights are of the loss at scores that have their offsets."""
    return Weighted(with_offsets(loss.of, y)) if isinstance(loss, Weighted) else with_offsets(loss, y)


class LinearScorer(SummedScorer):
    """A party's side of a prediction: x theta, or with a `PredictionBlock` the prediction of its own model."""

    def __init__(self, state: tuple[Any, ...], kind: type[LinearBlock] = LinearBlock) -> None:
        self._state, self._kind = state, kind
        self.outputs = int(state[0].shape[1])

    def of(self, columns: Columns, rows: Rows) -> FloatArray:
        """Return what this party adds to the scores, one row per person."""
        block = self._kind(columns, self.outputs, penalties.L2(0.0), intercept=False)
        block.restore(self._state)
        return block.scores(rows, columns).reshape(-1, self.outputs)


def choose(rows: int, columns: Sequence[int], outputs: int, *, encrypted: bool = False) -> tuple[Algorithm, str]:
    """Return the algorithm that algorithm="auto" stands for, with its default options, and the reason in a few words.

    It takes few rounds where matrices are cheap, and cheap rounds where they are not.

    Parameters
    ----------
    rows
        How many rows the training data has.
    columns
        How many columns each party has.
    outputs
        How many scores a row has.
    encrypted
        Whether signals are to be encrypted.
    """
    if encrypted:
        return FedSGD(), "its signals can be encrypted"
    widest = max(columns)
    work = 0.5 * rows * outputs * float(widest) ** 2
    if widest > LIMIT:
        return VFB2("saga", asynchronous=False), f"a party has {widest:,} columns, more than {LIMIT:,}"
    if work > _MOST_WORK:
        why = f"matrices of {widest:,} columns over {rows:,} rows would take too long"
        return VFB2("saga", asynchronous=False), why
    return BlockNewton(), f"no party has more than {LIMIT:,} columns, so tens of rounds will do"
