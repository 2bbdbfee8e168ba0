"""What all models of networks have in common: a torch module at every party, trained by FedSGD or FedBCD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from colonnade.algorithms.fedbcd import FedBCD, FedSGD
from colonnade.blocks.column_values import columns_to_value
from colonnade.data import labels
from colonnade.data.party import Party
from colonnade.data.together import check_together
from colonnade.defences.base import Defence
from colonnade.defences.registry import checked
from colonnade.engine.torch_session import check_width
from colonnade.errors import (
    DataError,
    LabelError,
    OptionError,
    at_least,
    whole_number,
)
from colonnade.estimators.torch_files import read_parties, restore_networks, save_networks
from colonnade.estimators.torch_initial import network_start
from colonnade.estimators.torch_kept import KeptNetworks
from colonnade.families import family
from colonnade.families.checks import all_labels, check_values, label_holders, weighted, with_class_weights
from colonnade.families.torch_networks import SplitFamily, SplitOptions, TorchFamily, TorchOptions
from colonnade.families.training import ScoringPart, TrainingJob
from colonnade.networks.torch_checks import check_networks, check_step, check_widths
from colonnade.networks.torch_modules import forget, module_of, need_torch
from colonnade.networks.torch_network import NetworkBlock
from colonnade.objective import losses
from colonnade.runtimes.net import Runtime, check_runtime

Array = npt.NDArray[Any]
Model = TypeVar("Model", bound="NetworkModel")


class NetworkModel(KeptNetworks):
    """A network at every party, whose outputs add up to the scores; the base of the classes with networks.

    It needs the extra `torch`. Training begins with the parameters of the modules given, which stay as they are; what a
    function makes begins from the algorithm's seed.

    Parameters
    ----------
    networks : dict
        {party: network}. A network is a `torch.nn.Module`, a function without arguments that makes one, or the
        function's name as "module:name" or "file.py:name". A module of torch's own layers in `nn.Sequential` runs
        everywhere; any other module runs under `Simulation` only, and everywhere if its maker is given or named.
    top : network, optional
        A network at the one label holder, which makes the scores from all parties' outputs side by side (split
        learning). The label holder then sees these outputs in the clear.
    shape : dict, optional
        {party: shape of a row} for networks that take images, such as {"bank": (1, 28, 14)}.
    optimizer : {"sgd", "momentum", "adam"} or dict
        How a network moves along its gradient: one for all parties, or {party: its own}, where a party that is not
        named has "sgd". Step sizes are the algorithm's.
    l2 : float
        Weight decay: l2 / 2 times the squared length of all parameters is added to the objective.
    algorithm : FedSGD or FedBCD, optional
        How the model is trained; None is `FedSGD()`. With a top network, step="auto" needs optimizer="adam".
    evaluate_rows : int, optional
        How many of the training rows evaluations look at; None is all of them.
    class_weight : {None, "balanced"} or dict
        How much rows of each class count in the training of a classifier, beside the `sample_weight` of a `Party`:
        "balanced" lets all classes weigh the same, and {class: weight} names what they weigh, as in scikit-learn.
    protection : {"auto", "masked", "plain"}
        How training is protected. "masked" is under the masks of `sum`, which hide nothing between two parties; "plain"
        is with sums in the clear, and "auto" is what `sum` says. "sealed" is for linear models, and
        refused here; with a top network "masked" is refused too.
    sum : {"auto", "pairwise", "neighbours", "two-trees", "plain"}
        How contributions are added up. "auto" is "pairwise" (masks), or "plain" with two parties, between whom no mask
        hides anything.
    topology : {"tree", "star", "ring"} or str
        Along which tree the sums travel; the model is the same with each of them. A text such as "c>b b>a a>bank" is a
        tree of one's own, see `sums.written_trees`.
    defences : list of Defence
        What parties do to what leaves them, so that less follows: see docs/defences.md. Empty is nothing.
    verbose : int
        1 shows a live line if a run takes longer than half a second; 0 is silent.

    Attributes
    ----------
    modules_ : dict
        {party: its trained network}, and the top network under "top". They are new modules each time.
    loss_ : str
        The name of the loss that was minimised.
    parties_, holders_, classes_, columns_, history_, traffic_, times_, rounds_, sum_, protection_
        Who took part and how training went; `Estimator` describes each of them.
    """

    kind: ClassVar[str]

    def __init__(
        self,
        networks: Mapping[str, Any],
        *,
        top: Any = None,
        shape: Mapping[str, Sequence[int]] | None = None,
        optimizer: str | Mapping[str, str] = "sgd",
        l2: float = 0.0,
        algorithm: FedSGD | FedBCD | None = None,
        evaluate_rows: int | None = None,
        class_weight: str | Mapping[Any, float] | None = None,
        protection: str = "auto",
        sum: str = "auto",  # noqa: A002
        topology: str = "tree",
        verbose: int = 1,
        defences: Sequence[Defence] = (),
    ) -> None:
        self.networks = networks
        self.top = top
        self.shape = shape
        self.optimizer = optimizer
        self.l2 = l2
        self.algorithm = algorithm
        self.evaluate_rows = evaluate_rows
        self.class_weight = class_weight
        self.protection = protection
        self.sum = sum
        self.topology = topology
        self.verbose = verbose
        self.defences = defences

    def _minimised(self) -> losses.Loss:
        if not hasattr(self, "loss_"):
            self._check_fitted()
        return losses.loss(self.loss_)

    # -- training -----------------------------------------------------------------------------------------------

    def fit(
        self: Model,
        *parties: Party,
        on: Runtime | None = None,
        validation: list[Party] | None = None,
        initial: NetworkModel | Mapping[str, Any] | None = None,
    ) -> Model:
        """Train on these parties.

        If a network returns NaN, the run ends with an error that names the party and the round, and the model has the
        parameters of the last evaluation.

        Parameters
        ----------
        *parties : Party
            The same rows in the same order at each of them, and labels at one at least (with a top network, at exactly
            one); `align_parties` finds such rows.
        on : Runtime, optional
            Where the parties run: `Simulation(...)`, `Processes(...)`, or a runtime of `colonnade.remote`. None is
            `Simulation()`: all of them in this process, under a virtual clock.
        validation : list of Party, optional
            The same parties with other rows, for early stopping and for the history. The model that does best on them
            is kept.
        initial : NetworkModel or dict, optional
            Where training starts, in place of the parameters that the networks have: a fitted model of the same class
            with the same parties, or {party: its module or state_dict()}, with those of a top network under "top". A
            party that is not named starts with its network as it is.

        Returns
        -------
        NetworkModel
            The model itself.
        """
        need_torch()
        check_runtime(on)
        check_together(parties)
        parties, validation = self._prepare(parties, validation)
        check_values(family(self._family_of(with_top=self.top is not None)), parties)  # networks are tried out first
        algorithm = self._check_options(parties)
        sum_name = self._summed(self._family_of(with_top=self.top is not None), len(parties))
        holders, names = label_holders(parties), tuple(party.name for party in parties)
        if self.top is not None and len(holders) > 1:
            raise LabelError(
                f"a top network needs exactly one label holder, got {', '.join(map(repr, holders))}; give y to "
                f"one Party only"
            )
        with self._references(names, holders[0], algorithm.seed, on) as (networks, top):
            widths = {party.name: self._width(party, networks[party.name], algorithm.seed) for party in parties}
            loss, classes = self._loss(parties, widths, top, holders[0], algorithm.seed)
            held_out = self._check_validation(parties, validation)
            parties, held_out = with_class_weights(self.class_weight, parties, held_out, classes)
            job = self._job(loss, classes, widths, holders, sum_name, algorithm)
            job = replace(job, options=replace(job.options, weighted=weighted(parties, held_out)))
            self._check(job, parties)
            own, first = network_start(initial, self, job, parties, classes, networks, top)
            if first is not None:
                own = {name: (made, first if name == holders[0] else None) for name, made in own.items()}
            self._begin(job, parties, classes, widths, networks, top)
            self._train(job, parties, classes, held_out, on, own)
        return self

    def _job(
        self,
        loss: losses.Loss,
        classes: Array,
        widths: dict[str, int],
        holders: tuple[str, ...],
        sum_name: str,
        algorithm: FedSGD | FedBCD,
    ) -> TrainingJob:
        """Return what all parties agree on; with a top network that includes the width of each party's output."""
        options: Any = TorchOptions(float(self.l2), self.evaluate_rows)
        if self.top is not None:
            options = SplitOptions(float(self.l2), self.evaluate_rows, tuple(widths.items()))
        name, outputs = self._family_of(with_top=self.top is not None), loss.outputs(len(classes))
        how = (sum_name, self.topology, algorithm, checked(self.defences))
        return TrainingJob(name, options, loss.name, outputs, holders, *how)

    def _family_of(self, *, with_top: bool) -> str:
        return SplitFamily.name if with_top else TorchFamily.name

    def _loss(
        self, parties: tuple[Party, ...], widths: dict[str, int], top: Any, holder: str, seed: int
    ) -> tuple[losses.Loss, Array]:
        """Return the loss that fits the width of the scores, and the classes."""
        found = all_labels(parties)
        if top is None:
            first = check_widths(widths)
            width, whose = widths[first], first
        else:
            module, whose = module_of(top[0], top[1], holder, seed), holder
            side_by_side = np.zeros((2, sum(widths.values())), dtype=np.float32)
            width = NetworkBlock(module, side_by_side, party=f"{holder} (top)").outputs
        loss = self._choose_loss(width, found)
        classes = labels.class_labels(found, loss)
        check_width(whose, width, loss.outputs(len(classes)), self._wanted(classes))
        return loss, classes

    def _choose_loss(self, width: int, found: Array) -> losses.Loss:
        raise TypeError("a network model must know its losses")

    def _wanted(self, classes: Array) -> str:
        return "this model"

    def _check_options(self, parties: tuple[Party, ...]) -> FedSGD | FedBCD:
        check_networks(self.networks, self.shape, self.optimizer, parties)
        at_least("l2", self.l2, 0, finite=True)
        if self.evaluate_rows is not None:
            whole_number("evaluate_rows", self.evaluate_rows, 1)
        self._check_sums()
        algorithm = FedSGD() if self.algorithm is None else self.algorithm
        if not isinstance(algorithm, TorchFamily.algorithms):
            raise OptionError(f"algorithm must be FedSGD(...) or FedBCD(...) for networks, got {algorithm!r}")
        if self.top is not None:
            check_step(algorithm.step, self.optimizer, parties, "with a top network")
        algorithm.batch_for(parties[0].rows)
        return algorithm

    # -- use ----------------------------------------------------------------------------------------------------

    def decision_function(self, *parties: Party, on: Runtime | None = None) -> Array:
        """Return the scores of these rows at the first label holder: the sum of all outputs, or what the top network
        gives.

        Parameters
        ----------
        *parties : Party
            All parties of the model with the same columns as in training, in any order; labels are not looked at.
        on : Runtime, optional
            Where the parties run, as in `fit`.

        Returns
        -------
        numpy array
            One score per row, or one column per class where the networks give one number for each.
        """
        ordered = self._check_rows(parties, on)
        leader = self.holders_[0]
        given: dict[str, Any] = {}
        tops: list[Any] = []
        try:
            for party in ordered:
                given[party.name] = self._for_use(party.name)
            if self._has_top:
                tops.append((*self._again(None, self._split(leader)[1]), "sgd"))
            facts = {"widths": tuple(self._widths.items())} if self._has_top else {"outputs": self._widths[leader]}
            parts = {}
            for party in ordered:
                how, state, *rest = given[party.name]
                own: Any = (how, None, *rest)
                if self._has_top:
                    own, state = (given[party.name], tops[0] if party.name == leader else None), None
                parts[party.name] = ScoringPart(columns_to_value(party.X), state, own)
            return self._score(self._scoring_job(**facts), parts, on)
        finally:
            for how, *_ in (*given.values(), *tops):
                forget(how)

    # -- keep ---------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write one safetensors file per party, with its parameters and a description of its own network.

        Layers of one's own are not in the files; `load` takes them again.

        Parameters
        ----------
        folder : str or Path
            Where the files go; it is made if need be. Give each organisation its own file, and delete the rest.
        """
        self._check_fitted()
        save_networks(self, folder)

    @classmethod
    def load(cls: type[Model], folder: str | Path, networks: Mapping[str, Any] | None = None, top: Any = None) -> Model:
        """Return the model that `save` wrote.

        Parameters
        ----------
        folder : str or Path
            A folder with the files of all parties of one model.
        networks : dict, optional
            {party: network} of those networks that have layers of their own, which no file can hold, or that a function
            makes, which no file may call. Their parameters are in the files.
        top : network, optional
            The top network, where the same holds for it.

        Returns
        -------
        NetworkModel
            A model of this class; called as `NetworkModel.load`, of whichever class was saved.
        """
        need_torch()
        for models in ("torch_networks", "transfer"):  # so that all kinds are known here
            import_module(f"colonnade.estimators.{models}")
        public, files = read_parties(folder)
        kind = NETWORK_MODELS.get(public["model"])
        if kind is None or not issubclass(kind, cls):
            raise DataError(f"the folder holds a {public['model']}, load it as that")
        model = kind(networks or {})
        model.top = top
        restore_networks(model, public, files)
        return model


NETWORK_MODELS: dict[str, type[NetworkModel]] = {}  # by their names; a file of a model adds its own
