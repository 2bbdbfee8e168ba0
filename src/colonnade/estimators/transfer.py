"""The estimator of federated transfer learning between two parties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from colonnade.algorithms.fedbcd import FedBCD, FedSGD
from colonnade.algorithms.transfer import ALIGNMENTS, EXCHANGES, PHI, TRANSFER_LOSSES, without_phi
from colonnade.blocks.column_values import columns_to_value
from colonnade.conventions import preparing
from colonnade.conventions.matching import check_columns
from colonnade.data.ids import canonical
from colonnade.data.party import Party
from colonnade.data.together import check_names
from colonnade.defences.base import Defence
from colonnade.defences.registry import checked
from colonnade.errors import DataError, LabelError, OptionError, at_least, one_of, whole_number
from colonnade.estimators.torch_initial import network_start
from colonnade.estimators.torch_model import NETWORK_MODELS, NetworkModel
from colonnade.families import family
from colonnade.families.checks import check_values, label_holders
from colonnade.families.protection import AUTO, MASKED, PLAIN, check_word
from colonnade.families.training import ScoringPart, TrainingJob, rows_of
from colonnade.families.transfer import TransferFamily, TransferOptions
from colonnade.networks.torch_checks import check_step
from colonnade.networks.torch_modules import forget, need_torch
from colonnade.objective import losses
from colonnade.runtimes.net import Runtime, check_runtime

Array = npt.NDArray[Any]
Model = TypeVar("Model", bound="TransferClassifier")


class TransferClassifier(NetworkModel):
    """Transfer learning between two parties that share some of their rows: labels at one, predictions for the other.

    The source has labels of two classes, the target has none, and the target's rows are predicted. Both need ids, by
    which the rows in common are found. The method is that of Liu et al. (2020); `algorithms.transfer` has its
    objective. `score` is the accuracy, for a target `Party` that is given true labels.

    Parameters
    ----------
    networks : dict
        {party: network}, as for `NetworkModel`. Here networks turn rows into representations, whose width is the same
        at both parties.
    gamma : float
        The weight of the alignment, which pulls both parties' representations of the common rows together.
    alignment : {"distance", "product"}
        What is aligned: the squared distance of two representations, or minus their scalar product.
    anchors : int, optional
        How many labelled rows of the source stand behind each step; None is all of them.
    loss : {"auto", "logistic", "taylor"}
        The loss of a score: the logistic one, or the paper's approximation of it by a square. "auto" is "taylor" with
        protection="masked", which needs it, and "logistic" otherwise.
    exchange : {"representations", "signals"}
        What the source sends for a batch: all that the target's gradient depends on, so that the target's local steps
        follow its own network (FedBCD, equation (9)); or the gradient by its representations, which then stays the same
        in all local steps of an exchange. The target can work out the same from both.
    shape : dict, optional
        {party: shape of a row} for networks that take images, such as {"bank": (1, 28, 14)}.
    optimizer : {"sgd", "momentum", "adam"} or dict
        How a network moves along its gradient: one for both parties, or {party: its own}.
    l2 : float
        Weight decay: l2 / 2 times the squared length of all parameters is added to the objective.
    algorithm : FedSGD or FedBCD, optional
        How the model is trained; None is `FedSGD()`. Its step must be a number, unless both parties have
        optimizer="adam".
    evaluate_rows : int, optional
        How many of the common rows evaluations look at; None is all of them.
    protection : {"auto", "masked", "plain"}
        "plain", which is also "auto": both parties get each other's representations of common rows, and the target the
        labels. "masked": each party gets sums over all common rows of its own numbers times the other's, made of
        encrypted ones, and nothing about a single row. Then only the last layers learn, which must be `nn.Linear`, the
        loss is "taylor", and all rows are one batch.
    defences : list of Defence
        What parties do to what leaves them, so that less follows: see docs/defences.md. Empty is nothing.
    verbose : int
        1 shows a live line if a run takes longer than half a second; 0 is silent.

    Attributes
    ----------
    target_ : str
        The party whose rows are predicted.
    modules_ : dict
        {party: its trained network}; they are new modules each time.
    loss_ : str
        The name of the loss that scores are turned into probabilities with, "logistic".
    parties_, holders_, classes_, columns_, history_, traffic_, times_, rounds_, sum_, protection_
        Who took part and how training went; `Estimator` describes each of them.
    """

    kind: ClassVar[str] = "classes"

    def __init__(
        self,
        networks: Mapping[str, Any],
        *,
        gamma: float = 0.05,
        alignment: str = "distance",
        anchors: int | None = None,
        loss: str = "auto",
        exchange: str = "representations",
        shape: Mapping[str, Sequence[int]] | None = None,
        optimizer: str | Mapping[str, str] = "sgd",
        l2: float = 0.0,
        algorithm: FedSGD | FedBCD | None = None,
        evaluate_rows: int | None = None,
        protection: str = "auto",
        verbose: int = 1,
        defences: Sequence[Defence] = (),
    ) -> None:
        super().__init__(
            networks, shape=shape, optimizer=optimizer, l2=l2, algorithm=algorithm, evaluate_rows=evaluate_rows,
            protection=protection, verbose=verbose, defences=defences,
        )  # fmt: skip
        self.gamma = gamma
        self.alignment = alignment
        self.anchors = anchors
        self.loss = loss
        self.exchange = exchange

    # -- training -----------------------------------------------------------------------------------------------

    def fit(
        self: Model,
        *parties: Party,
        on: Runtime | None = None,
        validation: list[Party] | None = None,
        initial: NetworkModel | Mapping[str, Any] | None = None,
    ) -> Model:
        """Train on the rows that both parties have, and on all labelled rows of the source.

        Parameters
        ----------
        *parties : Party
            Two parties with ids: the source with labels, the target without, in any order.
        on : Runtime, optional
            Where the parties run: `Simulation(...)`, `Processes(...)`, or a runtime of `colonnade.remote`. None is
            `Simulation()`: all of them in this process, under a virtual clock.
        validation : list of Party, optional
            The same parties with other rows that both have, in one order and with labels at the source; for early
            stopping and for the history.
        initial : TransferClassifier or dict, optional
            Where training starts, as for `NetworkModel`: a fitted model with the same two parties, or {party: its
            module or state_dict()}.

        Returns
        -------
        TransferClassifier
            The model itself.
        """
        need_torch()
        check_runtime(on)
        check_names(parties)
        parties, validation = self._prepare(parties, validation)
        check_values(family(TransferFamily.name), parties)
        source, target = self._sides(parties)
        here, there = common_rows(source, target)
        common = {source.name: source.take(here), target.name: target.take(there)}
        if not np.asarray(common[source.name].labelled).any():
            raise LabelError(
                f"none of the {len(here)} rows that {source.name!r} and {target.name!r} have in common has a label, "
                f"transfer learning needs some; label rows that both have"
            )
        ordered = tuple(common[party.name] for party in parties)
        algorithm = self._check_options(ordered)
        check_word(self.protection, family(TransferFamily.name))
        check_step(algorithm.step, self.optimizer, parties, "for transfer learning")
        at_least("gamma", self.gamma, 0, finite=True)
        one_of("alignment", self.alignment, ALIGNMENTS)
        one_of("loss", self.loss, (AUTO, *TRANSFER_LOSSES))
        one_of("exchange", self.exchange, EXCHANGES)
        if self.anchors is not None:
            whole_number("anchors", self.anchors, 1)
        loss = losses.loss("logistic")
        labelled = np.asarray(source.labelled)
        classes = family(TransferFamily.name).class_labels(np.asarray(source.y)[labelled], loss)
        held_out = self._check_validation(ordered, validation)
        with self._references(tuple(common), source.name, algorithm.seed, on) as (networks, _):
            widths = {name: self._width(party, networks[name], algorithm.seed) for name, party in common.items()}
            if len(set(widths.values())) > 1:
                raise OptionError(
                    f"the network of party {source.name!r} gives representations of {widths[source.name]} numbers and "
                    f"that of {target.name!r} of {widths[target.name]}; they are compared, so give both the same width"
                )
            options = TransferOptions(
                float(self.l2), self.evaluate_rows, float(self.gamma), self.alignment, self.anchors, self.loss,
                self.exchange,
            )  # fmt: skip
            added = TransferFamily.masks if self.protection == MASKED else PLAIN
            holders = (source.name,)
            how = (added, "tree", algorithm, checked(self.defences))
            job = TrainingJob(TransferFamily.name, options, loss.name, 1, holders, *how)
            job.check(type(self).__name__, tuple(common))
            started, _ = network_start(initial, self, job, parties, classes, networks, None)
            all_rows = rows_of(source.take(labelled), classes, loss)
            own = {name: (made, all_rows[:2] if name == source.name else None) for name, made in started.items()}
            self._begin(job, parties, classes, widths, networks, None)
            self._train(job, ordered, classes, held_out, on, own)
        return self

    def _decided(self) -> Any:
        """Refuse a threshold, as the target decides by itself, and has no labels that one could be chosen by."""
        raise OptionError(
            "transfer learning takes no threshold: the target predicts by itself, and only the source has labels to "
            "choose one by; compare decision_function with a number of your own"
        )

    def _family_of(self, *, with_top: bool) -> str:
        return TransferFamily.name

    def _sides(self, parties: tuple[Party, ...]) -> tuple[Party, Party]:
        """Return (source, target); refuse other than two parties, labels at both or none, and parties without ids."""
        if len(parties) != 2:
            raise DataError(f"transfer learning is between two parties, got {len(parties)}; give a source and a target")
        holders = label_holders(parties)
        if len(holders) > 1:
            raise LabelError(
                f"both parties hold labels, transfer learning carries them from one to the other; give y to the source "
                f"alone, or use NetworkClassifier on the rows in common, got {', '.join(map(repr, holders))}"
            )
        for party in parties:
            if party.ids is None:
                raise DataError(
                    f"party {party.name!r} has no ids, by which the rows in common are found; give them as "
                    f"Party(name, X, ids=...)"
                )
        source, target = sorted(parties, key=lambda party: not party.active)
        return source, target

    # -- use ----------------------------------------------------------------------------------------------------

    @property
    def target_(self) -> str:
        """Return the name of the party whose rows are predicted."""
        return next(name for name in self.parties_ if name not in self.holders_)

    def _split(self, name: str) -> tuple[Any, Any]:
        return without_phi(self._states[name])

    def decision_function(self, *parties: Party, on: Runtime | None = None) -> Array:
        """Return the scores phi of the target's rows, at the target.

        The target has its network and Phi, so the source takes no part in it, and sees nothing of it.

        Parameters
        ----------
        *parties : Party
            The rows to score, at the target alone.
        on : Runtime, optional
            Where both parties run, as in `fit`.

        Returns
        -------
        numpy array
            One score per row; the second class is predicted where it is above 0.
        """
        self._check_fitted()
        check_runtime(on)
        target = self.target_
        if len(parties) != 1 or not isinstance(parties[0], Party) or parties[0].name != target:
            got = [party.name if isinstance(party, Party) else type(party).__name__ for party in parties]
            raise DataError(f"prediction needs the rows of the target {target!r} alone, got {got}")
        (party,), source = preparing.applied(parties, self.preparations_), self.holders_[0]
        check_values(family(TransferFamily.name), (party,))
        check_columns(self.columns_[target], party)
        how, state, *rest = self._for_use(target)
        # A run that broke off left Phi at the source alone, as version 0.2 always did.
        phi = self._split(target)[1] if self._split(target)[1] is not None else self._split(source)[1]
        whole = ((*state[0], PHI), (*state[1], phi), state[2])
        parts = {
            source: ScoringPart(None, None),
            target: ScoringPart(columns_to_value(party.X), whole, (how, None, *rest)),
        }
        try:
            return self._score(self._scoring_job(), parts, on, target)
        finally:
            forget(how)

    def predict_proba(self, *parties: Party, on: Runtime | None = None) -> Array:
        """Return the probability of both classes for the target's rows.

        Parameters
        ----------
        *parties : Party
            The rows to predict, at the target alone.
        on : Runtime, optional
            Where both parties run, as in `fit`.

        Returns
        -------
        numpy array
            One row per row of the target, one column per class in the order of `classes_`.
        """
        return self._minimised().probability(self.decision_function(*parties, on=on))


def common_rows(source: Party, target: Party) -> tuple[Array, Array]:
    """Return where the rows that both parties have are, at the one and at the other, in one order.

    Here both tables lie in one process. Between organisations the alignment finds the common rows, and no party learns
    of the other ones.
    """
    for party in (source, target):
        canonical(np.asarray(party.ids), f"party {party.name!r}")  # refuses ids that repeat
    places = {str(key): row for row, key in enumerate(np.asarray(target.ids).tolist())}
    pairs = [(row, places[str(key)]) for row, key in enumerate(np.asarray(source.ids).tolist()) if str(key) in places]
    if len(pairs) < 2:
        raise DataError(
            f"parties {source.name!r} and {target.name!r} have {len(pairs)} rows in common, transfer learning needs at "
            f"least 2; check that both have ids of the same kind"
        )
    rows = np.array(pairs)
    return rows[:, 0], rows[:, 1]


NETWORK_MODELS[TransferClassifier.__name__] = TransferClassifier
