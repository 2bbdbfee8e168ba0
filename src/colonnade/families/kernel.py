"""Kernel models: f(x) is a sum over random features, which label holders own and all parties' columns make together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from colonnade.algorithms.fdskl import FDSKL
from colonnade.blocks import Block, FloatArray, Rows
from colonnade.blocks.coefficients import KernelBlock
from colonnade.blocks.columns import Columns
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.blocks.phases import Directions, Kernel, Layout, shared_secret, to_features
from colonnade.crypto.ring import noise
from colonnade.engine.allowance import Limit
from colonnade.engine.exchange import Agreement, Part
from colonnade.engine.kept import Keeper
from colonnade.engine.kernel_session import Exchange, KernelSession
from colonnade.engine.options import Training
from colonnade.errors import OptionError, ProtocolError
from colonnade.families.base import WEIGHTED, Arrays, Description, Family
from colonnade.families.scoring import Known
from colonnade.families.training import ScoringJob, TrainingJob, TrainingPart, minimised
from colonnade.runtimes.net import Net
from colonnade.settings.settings import Key, Settings
from colonnade.streams.streamed_columns import opened
from colonnade.sums import SecureSum, open_sum

_MOMENTS = 1 << 14  # rows whose moments are added up at a time
_SECRETS = ("secret", "phase_secret")  # what a party's file calls those of its directions and phases


@dataclass(frozen=True)
class KernelOptions:
    """What a kernel model is, as all parties agree on it.

    Attributes
    ----------
    kernel
        "rbf" or "laplace".
    gamma
        A number, or "scale", which is 1 / (columns * variance) of all parties together.
    features
        How many random features there are, shared out among the label holders.
    alpha
        The weight of |f|^2 / 2 in the objective.
    weighted
        Whether rows count unequally.
    """

    kernel: str = "rbf"
    gamma: float | str = "scale"
    features: int = 4096
    alpha: float = 1e-5
    weighted: bool = False


def _gamma(value: float | str) -> str | None:
    fits = value == "scale" or (not isinstance(value, str) and value > 0)
    return None if fits else f'must be > 0, or "scale", got {value!r}'


class KernelFamily(Family):
    """Models over random features of a kernel.

    A state is (coefficients or None, secret of the directions, secret of the phases, gamma): only a party that owns
    features has coefficients.
    """

    name: ClassVar[str] = "kernel"
    called: ClassVar[str] = "kernel"
    reads_stored: ClassVar[bool] = True
    kinds: ClassVar[Mapping[str, str]] = {"kernel": "logistic", "kernel-svm": "smooth_hinge", "kernel-ridge": "square"}
    keys: ClassVar[tuple[Key, ...]] = (
        Key("kernel", str, default=KernelOptions.kernel, allowed=Kernel.NAMES),
        Key("gamma", (float, str), default=KernelOptions.gamma, check=_gamma),
        Key("features", int, default=KernelOptions.features, least=1, most=1_000_000),
        Key("alpha", float, default=KernelOptions.alpha, least=0),
        WEIGHTED,
    )
    weighs: ClassVar[bool] = True
    options: ClassVar[type[Any]] = KernelOptions
    lacks: ClassVar[Mapping[str, str]] = {
        "sealed": "is for linear models; a kernel model has 'masked', in which label holders see all others' parts of "
        "a random feature as one sum, or 'plain'"
    }
    validates: ClassVar[bool] = True
    algorithms: ClassVar[tuple[type[Training], ...]] = (FDSKL,)

    # -- jobs ---------------------------------------------------------------------------------------------------

    def read_options(self, model: Settings) -> KernelOptions:
        """Return the kernel, its gamma, how many features there are, and the weight of the penalty."""
        return KernelOptions(model["kernel"], model["gamma"], model["features"], model["alpha"], model["weighted"])

    def check_holders(self, model: str, loss: str, holders: tuple[str, ...], options: Any) -> None:
        """Refuse fewer features than label holders, each of whom owns at least one."""
        if options.features < len(holders):
            raise OptionError(
                f"features must be at least one per label holder, got {options.features} for {len(holders)}"
            )

    def setting(self, options: Any) -> dict[str, Any]:
        """Say how many features there are, and whether gamma comes from everybody's columns."""
        scaled = options.gamma == "scale"
        return {"model": self.name, "features": options.features, "scaled": scaled, "weighted": options.weighted}

    def least_numbers(self, algorithm: Training, options: Any, sizes: tuple[int, int, int, int]) -> float:
        """Return the number of features: a party sends one number about each row for every feature."""
        return float(options.features)

    # -- training and use ---------------------------------------------------------------------------------------

    async def train(
        self, net: Net, job: TrainingJob, part: TrainingPart, keeper: Keeper | None, budget: Limit | None
    ) -> Any:
        """Agree on gamma if it is "scale", then train by doubly stochastic gradients (FDSKL)."""
        method, options = cast("FDSKL", job.algorithm), job.options
        columns = opened(part.X)
        parts = [columns] if part.validation is None else [columns, opened(part.validation[0])]
        secure = await open_sum(job.sum, net, job.topology)
        leader, gamma = job.holders[0], options.gamma
        width = await agree_on_gamma(net, secure, leader, columns) if gamma == "scale" else float(gamma)
        layout = Layout(job.holders, options.features, min(method.block, options.features))
        own = net.secret(f"directions {method.seed}")
        secret = own if method.directions == "private" else shared_secret(method.seed, net.me)
        directions = Directions(secret, own, Kernel(options.kernel, width), columns.shape[1])
        exchange = Exchange(net, secure, layout, directions, parts, method.cache_mb * 1_000_000)
        block = KernelBlock(columns.shape[0], layout, net.me, options.alpha)
        if part.own is not None:  # coefficients to start with, and the features that they are of
            values, *secrets = part.own
            exchange.thaw((tuple(map(layout.blocks, layout.owners)), None, *secrets))
            block.values[:, 0] = np.frombuffer(values)[: block.width]
        train, held_out = Part(None, columns.shape[0], part.y, part.labelled, part.weights), None
        if part.validation is not None:
            held_out = Part(None, parts[1].shape[0], *part.validation[1:], part.held_out_weights)
        agreed = Agreement(minimised(job), job.holders, job.sum, job.topology)
        # A kernel session never asks its block for contributions: those need an exchange.
        asked = cast("Block", block)
        session = KernelSession(
            net, agreed, asked, method, train, held_out, secure, keeper, budget=budget, exchange=exchange
        )
        await session.agree()
        await method.train(session)
        (values,) = session.finish()
        # The secrets are taken from the directions: a run that was resumed has those that were kept, not those above.
        return (values if block.width else None, directions.secret, directions.phase_secret, width)

    def scorer(self, me: str, job: ScoringJob, state: Any, own: Any) -> KernelScorer:
        """Return a part that sends phases to every owner of features, and adds its share of f if it is one itself."""
        facts = job.facts
        layout = Layout(job.holders, facts["features"], min(facts["block"], facts["features"]))
        return KernelScorer(me, facts["kernel"], layout, state)

    # -- what is kept -------------------------------------------------------------------------------------------

    def to_arrays(self, state: Any) -> Arrays:
        """Return gamma, the secrets as bytes, and the coefficients where there are any."""
        values, *secrets, gamma = state
        arrays = {key: np.frombuffer(secret, np.uint8) for key, secret in zip(_SECRETS, secrets, strict=True)}
        return {**arrays, "gamma": np.array(gamma), **({} if values is None else {"coefficients": values})}

    def from_arrays(self, arrays: Arrays) -> Any:
        """Return the state of these arrays; a party that owns no features has no coefficients."""
        return (arrays.get("coefficients"), *(arrays[key].tobytes() for key in _SECRETS), float(arrays["gamma"]))

    def facts(self, job: TrainingJob) -> dict[str, Any]:
        """Return how many features a block had, as directions are drawn block by block."""
        return {"block": min(cast("FDSKL", job.algorithm).block, job.options.features)}

    def scoring_facts(self, public: Mapping[str, Any]) -> dict[str, Any]:
        """Return the kernel, the features and the block, by which the directions are drawn again."""
        options = public["options"]
        return {"kernel": options["kernel"], "features": options["features"], "block": public["block"]}

    def estimator(self, loss: str) -> str:
        """Return the regressor for real numbers, and the classifier for everything else."""
        return "KernelRegressor" if loss == "square" else "KernelClassifier"

    def estimator_options(self, options: Any, loss: str) -> dict[str, Any]:
        """Return the options of `KernelModel` that these stand for."""
        kernel = {"kernel": options.kernel, "gamma": options.gamma}
        return {**kernel, "loss": loss, "features": options.features, "alpha": options.alpha}

    def numbers(self, public: Mapping[str, Any], state: Any) -> int:
        """Return the number of features: a party sends one number about a person for each."""
        return int(public["options"]["features"])

    # -- words --------------------------------------------------------------------------------------------------

    def describe(
        self,
        party: str,
        public: Mapping[str, Any],
        state: Any,
        columns: tuple[str, ...],
        classes: npt.NDArray[Any],
    ) -> Description:
        """Describe the kernel, and say how many features the party owns."""
        values, *_, gamma = state
        made = public["options"]
        own = f"{len(values):,} of {made['features']:,} features" if values is not None else "no features"
        of = f"over {len(columns)} columns of its own and those of the others"
        return Description(f"{made['kernel']} kernel, gamma {gamma:.4g}; {party} owns {own}, {of}")


class KernelScorer:
    """A party's side of a prediction: phases to every owner of features, and a share of f where it is one itself."""

    most = 1 << 11  # rows at a time, each of which is as many numbers as there are features
    outputs = 1
    spreads = True

    def __init__(self, me: str, kernel: str, layout: Layout, state: tuple[Any, ...]) -> None:
        self._me, self._layout = me, layout
        self._values, secret, phase_secret, gamma = state
        self._secrets, self._kernel = (secret, phase_secret), Kernel(kernel, gamma)
        self._directions: Directions | None = None  # made as soon as the number of columns is known

    def ready(self, secure: SecureSum, columns: Columns | None, rows: Rows, known: Known) -> tuple[Any, ...]:
        """Return phases for each owner, with noise for people not known here; refuse projections without a phase."""
        found = []
        for index, owner in enumerate(self._layout.owners):
            mine = np.zeros((len(known), self._layout.of(owner)), dtype=np.uint32)
            mine[~known] = noise((int((~known).sum()), mine.shape[1]), np.uint32)
            if columns is not None:
                if self._directions is None:
                    self._directions = Directions(*self._secrets, self._kernel, columns.shape[1])
                for number in range(self._layout.blocks(owner)):
                    span = self._layout.span(owner, number)
                    width = span.stop - span.start
                    mine[known, span] = self._directions.project(columns, rows, (index, number), width)
            found.append(mine)
        return tuple(found)

    async def scores(self, secure: SecureSum, ready: tuple[Any, ...], to: str) -> FloatArray | None:
        """Run Algorithms 3 and 2 of FDSKL at each owner of features, and sum the owners' shares of f."""
        own = np.zeros(len(ready[0]))
        for owner, mine in zip(self._layout.owners, ready, strict=True):
            total = await secure.total_phases("phases", mine, owner)
            if total is not None:
                own = DenseColumns(to_features(total)).forward(np.arange(len(own)), self._values)[:, 0]
        if len(self._layout.owners) == 1:  # nobody else has a part of f
            return own if self._me == to else None
        return await secure.total("prediction", own, to)


async def agree_on_gamma(net: Net, secure: SecureSum, leader: str, columns: Columns) -> float:
    """Agree on gamma="scale", 1 / (columns * variance of all numbers) as in scikit-learn; only the sums are told."""
    total = await secure.total_wide("kernel scale", moments(columns), leader)
    if total is None:
        told = await net.recv(leader, "gamma")
        if type(told) is not float or not told > 0:
            raise ProtocolError(f"party {leader!r} must tell gamma as a number > 0 at step 'gamma'")
        return told
    width, first, second = (float(value) for value in total)
    variance = second - first * first / width
    gamma = 1.0 / max(variance, 1e-12)  # the sums are means over rows: width * variance of a number
    for name in net.names:
        if name != net.me:
            await net.send(name, "gamma", gamma)
    return gamma


def moments(columns: Columns) -> FloatArray:
    """Return (columns, sum of a row's numbers, sum of their squares), the latter two as means over the rows."""
    n, d = columns.shape
    ones, sums = np.ones((d, 1)), 0.0
    for at in range(0, n, _MOMENTS):
        sums += float(columns.forward(np.arange(at, min(at + _MOMENTS, n)), ones).sum())
    return np.array([float(d), sums / n, columns.mean_square()])
