"""Networks: a torch module at every party, whose outputs are summed or meet in a top network.

`own` of a `TrainingPart` says how the party's module is made: (how, parameters, shape of a row, optimiser), where
`networks.torch_modules` explains the first two. With a top network it is a pair of that and of the top network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from colonnade.algorithms.fedbcd import FedBCD, FedSGD
from colonnade.algorithms.split import HolderBlock, SplitSession, Top, parted, side_by_side, split_leaks
from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.column_values import value_of
from colonnade.blocks.columns import Columns
from colonnade.defences.keyed_noise import FINE, keyed_normals
from colonnade.defences.outputs import on_outputs
from colonnade.engine.allowance import Limit
from colonnade.engine.exchange import Agreement
from colonnade.engine.kept import Keeper
from colonnade.engine.options import Training
from colonnade.engine.torch_session import NetworkSession, check_width, make_block, parts_of, watch_over
from colonnade.errors import LabelError, OptionError
from colonnade.families.base import WEIGHTED, Arrays, Description, Family
from colonnade.families.scoring import Known, Scorer, SummedScorer
from colonnade.families.training import ScoringJob, ScoringPart, TrainingJob, TrainingPart, minimised
from colonnade.leaks import Leak, Setting
from colonnade.networks.torch_modules import drawn, fresh_stream, module_of
from colonnade.networks.torch_network import NetworkBlock
from colonnade.networks.torch_veils import spread_of
from colonnade.objective import losses
from colonnade.runtimes.net import Net
from colonnade.settings.settings import Key, Section, Settings
from colonnade.sums import SecureSum, open_sum

_PARAMETER = "network/"  # comes before the names of a module's parameters in a party's file
_CHUNK = 2048  # rows whose embeddings are collected at a time


@dataclass(frozen=True)
class TorchOptions:
    """What all parties know of a network model: weight decay, and how many rows evaluations look at (None: all).

    And whether rows count unequally, by weights of the label holder's.
    """

    l2: float = 0.0
    evaluate_rows: int | None = None
    weighted: bool = False


class TorchFamily(Family):
    """Networks whose outputs add up to the scores.

    A state is (names of parameters, their values, the names of those that do not learn).
    """

    name: ClassVar[str] = "torch"
    blurs: ClassVar[bool] = True
    called: ClassVar[str] = "network"
    kinds: ClassVar[Mapping[str, str]] = {
        "network": "logistic",
        "network-softmax": "softmax",
        "network-ridge": "square",
    }
    keys: ClassVar[tuple[Key, ...]] = (
        Key("l2", float, default=1e-4, least=0),
        WEIGHTED,
        Key("top", Section(others=Key("party", int, least=1))),
    )
    options: ClassVar[type[Any]] = TorchOptions
    algorithms: ClassVar[tuple[type[Training], ...]] = (FedSGD, FedBCD)
    takes_own: ClassVar[bool] = True
    weighs: ClassVar[bool] = True
    lacks: ClassVar[Mapping[str, str]] = {
        "sealed": "is for linear models; networks have 'masked', in which label holders see the outputs of all others' "
        "networks as one sum, or 'plain'"
    }

    # -- jobs ---------------------------------------------------------------------------------------------------

    def read_options(self, model: Settings) -> Any:
        """Return the weight decay, whether rows have weights, and what a top network takes of each party's."""
        if model["top"] is None:
            return TorchOptions(model["l2"], weighted=model["weighted"])
        return SplitOptions(model["l2"], widths=tuple(sorted(model["top"].items())), weighted=model["weighted"])

    def with_options(self, options: Any) -> str:
        """Return the family of models with a top network where there is one."""
        return SplitFamily.name if isinstance(options, SplitOptions) else self.name

    def setting(self, options: Any) -> dict[str, Any]:
        """Say that contributions are not linear, so that nothing follows about what they show."""
        return {"model": self.called, "weighted": options.weighted}

    def try_own(self, party: str, own: Any, columns: int, seed: int, job: Any) -> str:
        """Make the party's network, try it on two rows of zeros, and describe its size and its output."""
        how, state, shape, optimiser = own
        module = module_of(how, state, party, seed)
        block = NetworkBlock(module, np.zeros((2, columns)), party=party, shape=shape)
        self.check_outputs(party, block.outputs, job)
        size = sum(int(parameter.numel()) for parameter in block.module.parameters())
        return f"{size:,} parameters, {block.outputs} numbers per row, {optimiser}"

    def check_outputs(self, party: str, outputs: int, job: Any) -> None:
        """Refuse a network that gives other numbers than the job needs, as far as is known without all classes."""
        if (needed := scores_known(job.loss)) is not None:
            check_width(party, outputs, needed, job.loss)

    # -- training and use ---------------------------------------------------------------------------------------

    async def train(
        self, net: Net, job: TrainingJob, part: TrainingPart, keeper: Keeper | None, budget: Limit | None
    ) -> Any:
        """Train by FedSGD or FedBCD, over networks whose outputs add up to the scores."""
        own = on_outputs(job.defences, net.me, job.holders)
        block = make_block(net, part.own, part.X, job.options.l2, job.algorithm.seed, defences=own)
        check_width(net.me, block.outputs, job.outputs, job.loss)
        train, held_out = parts_of(block, part.y, part.labelled, part.validation, (part.weights, part.held_out_weights))
        agreed = Agreement(minimised(job), job.holders, job.sum, job.topology, defences=job.defences)
        secure = await open_sum(job.sum, net, job.topology)
        looked_at = job.options.evaluate_rows
        session = NetworkSession(
            net, agreed, block, job.algorithm, train, held_out, secure, keeper, budget=budget, evaluate_rows=looked_at
        )
        await session.agree()
        return await watch_over(net, session, job.algorithm)

    def scorer(self, me: str, job: ScoringJob, state: Any, own: Any) -> Scorer:
        """Return a part that adds h(x), the output of its network, to the scores."""
        return NetworkScorer(me, own, state, job.facts["outputs"])

    # -- what is kept -------------------------------------------------------------------------------------------

    def to_arrays(self, state: Any) -> Arrays:
        """Return the parameters under their names, the order of these, and which do not learn."""
        names, values, still = state
        arrays = {_PARAMETER + key: part for key, part in zip(names, values, strict=True)}
        return {**arrays, "order": np.array(names), "still": np.array(still, dtype=str)}

    def from_arrays(self, arrays: Arrays) -> Any:
        """Return the state of these arrays, with the parameters in their order."""
        names = tuple(arrays["order"].tolist())
        return (names, tuple(arrays[_PARAMETER + name] for name in names), tuple(arrays["still"].tolist()))

    def facts(self, job: TrainingJob) -> dict[str, Any]:
        """Return how many scores a row has, which no array says."""
        return {"outputs": job.outputs}

    def scoring_facts(self, public: Mapping[str, Any]) -> dict[str, Any]:
        """Return how many scores a row has, as the file says."""
        return {"outputs": public["outputs"]}

    def estimator(self, loss: str) -> str:
        """Return the regressor for real numbers, and the classifier for everything else."""
        return "NetworkRegressor" if loss == "square" else "NetworkClassifier"

    def estimator_options(self, options: Any, loss: str) -> dict[str, Any]:
        """Return the weight decay; the networks themselves stay with their owners."""
        return {"l2": options.l2}

    def numbers(self, public: Mapping[str, Any], state: Any) -> int:
        """Return the number of scores: a party sends one number about a person for each."""
        return int(public["outputs"])

    # -- words --------------------------------------------------------------------------------------------------

    def describe(
        self,
        party: str,
        public: Mapping[str, Any],
        state: Any,
        columns: tuple[str, ...],
        classes: npt.NDArray[Any],
    ) -> Description:
        """List every parameter of the party's network with its shape."""
        names, arrays, _ = state
        shapes = [" x ".join(map(str, array.shape)) or "1" for array in arrays]
        title = f"{party}'s network, over {len(columns)} columns"
        return Description(title, ("parameter", "shape"), list(zip(names, shapes, strict=True)))


class NetworkScorer(SummedScorer):
    """A party's side of a prediction: h(x), the output of its network."""

    def __init__(self, party: str, own: Any, state: tuple[Any, ...], outputs: int) -> None:
        how, _, self._shape, _ = own
        self._party, self._module, self.outputs = party, module_of(how, state, party, 0), outputs

    def of(self, columns: Columns, rows: Rows) -> FloatArray:
        """Return what this party adds to the scores, one row per person."""
        block = NetworkBlock(self._module, value_of(columns), party=self._party, shape=self._shape)
        if self.secret is not None:
            block.normals = partial(keyed_normals, self.secret, step=FINE * spread_of(self._module))
        return block.scores(rows).reshape(-1, block.outputs)


# -- with a top network ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SplitOptions:
    """What `TorchOptions` says, and how many numbers each party's network gives, by the party's name."""

    l2: float = 0.0
    evaluate_rows: int | None = None
    widths: tuple[tuple[str, int], ...] = ()
    weighted: bool = False


class SplitFamily(TorchFamily):
    """Split learning: all parties' outputs meet side by side in a top network at the one label holder.

    `own` of a `TrainingPart` is (network, top), where only the label holder has a top network.
    """

    name: ClassVar[str] = "split"
    blurs: ClassVar[bool] = False  # embeddings are no sum
    one_holder: ClassVar[bool] = True
    called: ClassVar[str] = "network with a top network"
    session: ClassVar[type[SplitSession]] = SplitSession  # an attack has one of its own
    kinds: ClassVar[Mapping[str, str]] = {}
    keys: ClassVar[tuple[Key, ...]] = ()
    options: ClassVar[type[Any]] = SplitOptions
    lacks: ClassVar[Mapping[str, str]] = {
        "sealed": "is for linear models; with a top network there is 'plain' alone, as the label holder gets every "
        "party's embeddings as they are",
        "masked": "needs sums, and with a top network the label holder gets every party's embeddings as they are; give "
        "'plain', or leave the top network out",
    }

    def setting(self, options: Any) -> dict[str, Any]:
        """Say that scores are no sum of contributions."""
        return {"model": self.name, "weighted": options.weighted}

    def check_job(self, model: str, job: TrainingJob, parties: tuple[str, ...]) -> None:
        """Refuse widths of other parties than take part."""
        if {name for name, _ in job.options.widths} != set(parties):
            raise OptionError(
                f"top must say how many numbers the top network takes of each party's network, as in {{ "
                f"{', '.join(f'{name} = 4' for name in parties)} }}"
            )

    def check_holders(self, model: str, loss: str, holders: tuple[str, ...], options: Any) -> None:
        """Refuse labels at several parties, as there is one top network."""
        if len(holders) != 1:
            raise LabelError(f"{model} with a top network has one label holder, got {len(holders)}")

    def try_own(self, party: str, own: Any, columns: int, seed: int, job: Any) -> str:
        """Try the party's own network, and the top network where it has one."""
        network, top = own
        found = super().try_own(party, network, columns, seed, job)
        if top is None:
            return found
        _check_top(party, top, dict(job.model.widths), scores_known(job.loss), job.loss)
        size = sum(int(one.numel()) for one in module_of(top[0], top[1], party, seed).parameters())
        return f"{found}; {size:,} parameters of the top network"

    def check_outputs(self, party: str, outputs: int, job: Any) -> None:
        """Refuse a network that gives other numbers than the top network takes of it."""
        _check_embedding(party, outputs, dict(job.model.widths)[party])

    def facts(self, job: TrainingJob) -> dict[str, Any]:
        """Return how many scores a row has, and what the top network takes of each party's network."""
        return {"outputs": job.outputs, "widths": [list(one) for one in job.options.widths]}

    def scoring_facts(self, public: Mapping[str, Any]) -> dict[str, Any]:
        """Return the same, as the file says."""
        return {"outputs": public["outputs"], "widths": tuple((str(name), int(w)) for name, w in public["widths"])}

    def numbers(self, public: Mapping[str, Any], state: Any) -> int:
        """Return how wide the widest embedding is, as training counts for everybody."""
        return max(int(width) for _, width in public["widths"])

    def leaks(self, setting: Setting, algorithm: Training) -> tuple[Leak, ...]:
        """Return what split learning shows: embeddings, in the clear."""
        return split_leaks(setting, cast("FedSGD | FedBCD", algorithm))

    async def train(
        self, net: Net, job: TrainingJob, part: TrainingPart, keeper: Keeper | None, budget: Limit | None
    ) -> Any:
        """Train by FedSGD or FedBCD, with embeddings side by side in place of a sum."""
        method, options = job.algorithm, job.options
        network, top = part.own
        places, holding = dict(options.widths), net.me == job.holders[0]
        kind, own = HolderBlock if holding else NetworkBlock, on_outputs(job.defences, net.me, job.holders)
        block = make_block(net, network, part.X, options.l2, method.seed, kind, own)
        _check_embedding(net.me, block.outputs, places[net.me])
        if holding:
            _check_top(net.me, top, places, job.outputs, job.loss)
            cast("HolderBlock", block).top = _top_of(net, top, places, options.l2, method.seed)
        train, held_out = parts_of(block, part.y, part.labelled, part.validation, (part.weights, part.held_out_weights))
        agreed = Agreement(minimised(job), job.holders, job.sum, job.topology, defences=job.defences)
        secure = await open_sum(job.sum, net, job.topology)
        looked_at = options.evaluate_rows
        session = self.session(
            net, agreed, block, method, train, held_out, secure, keeper, budget=budget, evaluate_rows=looked_at,
            widths=places,
        )  # fmt: skip
        await session.agree()
        return await watch_over(net, session, method)

    def scorer(self, me: str, job: ScoringJob, state: Any, own: Any) -> Scorer:
        """Return a part that sends its embeddings to the label holder, whose top network makes scores of them."""
        network, top = own
        return SplitScorer(me, network, top, state, job)

    async def score(self, net: Net, job: ScoringJob, part: ScoringPart) -> Any:
        """Score new rows: the label holder returns what the top network makes of them, the others return None."""
        network, top = part.own
        holder, places = job.holders[0], dict(job.facts["widths"])
        block = make_block(net, network, part.X, 0.0, 0)
        block.normals = partial(keyed_normals, net.secret("noise of embeddings"), step=FINE * spread_of(block.module))
        made = _top_of(net, top, places, 0.0, 0) if net.me == holder else None
        pieces = []
        for at in range(0, block.rows, _CHUNK):
            embedded = block.scores(np.arange(at, min(at + _CHUNK, block.rows))).reshape(-1, block.outputs)
            found = await side_by_side(net, "embeddings to predict", embedded, holder, places)
            if found is not None and made is not None:
                pieces.append(made.forward(found))
        return np.concatenate(pieces) if pieces else None


class SplitScorer:
    """A party's side of a prediction: its embeddings, in the clear, and at the label holder what the top makes of them.

    Of people whom a party does not know it sends zeros.
    """

    most = _CHUNK
    spreads = False

    def __init__(self, me: str, network: Any, top: Any, state: tuple[Any, ...], job: ScoringJob) -> None:
        self._me, self._holder, self._widths = me, job.holders[0], dict(job.facts["widths"])
        self.outputs = int(job.facts["outputs"])
        own, above = parted(state)
        self._network = NetworkScorer(me, network, own, self._widths[me])
        self._top: Top | None = None
        if me == self._holder:
            how, _, optimiser = top
            self._top = Top(module_of(how, above, me, 0), self._widths, optimiser, 0.0, fresh_stream(0))

    def ready(self, secure: SecureSum, columns: Columns | None, rows: Rows, known: Known) -> FloatArray:
        """Return this party's embeddings."""
        found = np.zeros((len(known), self._widths[self._me]))
        if columns is not None:
            self._network.secret = self._network.secret or secure.net.secret("noise of embeddings")
            found[known] = self._network.of(columns, rows)
        return found

    async def scores(self, secure: SecureSum, ready: FloatArray, to: str) -> FloatArray | None:
        """Return the scores at the label holder, and None elsewhere."""
        found = await side_by_side(secure.net, "embeddings to predict", ready, self._holder, self._widths)
        return None if found is None or self._top is None else self._top.forward(found)


def scores_known(loss: str) -> int | None:
    """Return how many scores a row has; None where that is as many as there are classes."""
    return None if losses.loss(loss).kind == "classes" else 1


def _check_embedding(party: str, width: int, taken: int) -> None:
    if width != taken:
        raise OptionError(
            f"the network of party {party!r} gives {width} numbers per row, and the top network takes {taken} of it; "
            f"change its last layer, or top under [model] at all parties"
        )


def _check_top(party: str, top: Any, widths: dict[str, int], outputs: int | None, loss: str) -> None:
    """Refuse a top network that does not take all embeddings side by side, or gives other numbers than scores."""
    rows, whose = np.zeros((2, sum(widths.values()))), f"{party} (top)"
    width = NetworkBlock(module_of(top[0], top[1], party, 0), rows, party=whose).outputs
    if outputs is not None:
        check_width(whose, width, outputs, loss)


def _top_of(net: Net, top: Any, widths: dict[str, int], l2: float, seed: int) -> Top:
    how, state, optimiser = top
    module = module_of(how, state, net.me, drawn(seed, net.me, "top"))
    return Top(module, widths, optimiser, l2, fresh_stream(drawn(seed, net.me, "top's training")))
