"""The scikit-learn face of federated transfer learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from colonnade.algorithms.fedbcd import FedBCD, FedSGD
from colonnade.algorithms.transfer import ALIGNMENTS, PHI
from colonnade.blocks.columns import columns_to_value
from colonnade.blocks.torch_modules import forget, need_torch
from colonnade.data import labels
from colonnade.data.party import Party, check_names
from colonnade.errors import DataError, LabelError, OptionError, at_least, one_of, whole_number
from colonnade.estimators.base import check_columns
from colonnade.estimators.torch_checks import check_step
from colonnade.estimators.torch_networks import NETWORK_MODELS, NetworkModel
from colonnade.families.checks import label_holders
from colonnade.families.torch_networks import TransferFamily, TransferOptions
from colonnade.families.training import ScoringPart, TrainingJob, TrainingPart, rows_of
from colonnade.objective import losses
from colonnade.runtimes.net import Runtime, check_runtime

Array = npt.NDArray[Any]
Model = TypeVar("Model", bound="TransferClassifier")


class TransferClassifier(NetworkModel):
    """Two classes; labels at one party (the source), predictions for the other (the target), some rows in common.

    networks: {party: network}, as for `NetworkClassifier`; here they give representations, of the same width at both.
    gamma: weight of the alignment of the common rows' representations, alignment="distance" (squared) or "product".
    anchors: labelled rows of the source that stand behind a step, None is all. step="auto" has no meaning here, but
    for optimizer="adam".
    """

    kind: ClassVar[str] = "classes"

    def __init__(
        self,
        networks: Mapping[str, Any],
        *,
        gamma: float = 0.05,
        alignment: str = "distance",
        anchors: int | None = None,
        shape: Mapping[str, Sequence[int]] | None = None,
        optimizer: str | Mapping[str, str] = "sgd",
        l2: float = 0.0,
        algorithm: FedSGD | FedBCD | None = None,
        evaluate_rows: int | None = None,
        verbose: int = 1,
    ) -> None:
        super().__init__(
            networks, shape=shape, optimizer=optimizer, l2=l2, algorithm=algorithm, evaluate_rows=evaluate_rows,
            verbose=verbose,
        )  # fmt: skip
        self.gamma = gamma
        self.alignment = alignment
        self.anchors = anchors

    # -- training -----------------------------------------------------------------------------------------------

    def fit(self: Model, *parties: Party, on: Runtime | None = None, validation: list[Party] | None = None) -> Model:
        """Train on a source with labels and a target without, both with ids; the rows in common are found by these.

        validation: the same parties with rows that both have, labels at the source, for the history.
        """
        need_torch()
        check_runtime(on)
        check_names(parties)
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
        check_step(algorithm.step, self.optimizer, parties, "for transfer learning")
        at_least("gamma", self.gamma, 0, finite=True)
        one_of("alignment", self.alignment, ALIGNMENTS)
        if self.anchors is not None:
            whole_number("anchors", self.anchors, 1)
        loss = losses.loss("logistic")
        labelled = np.asarray(source.labelled)
        classes = labels.class_labels(np.asarray(source.y)[labelled], loss)
        held_out = self._check_validation(ordered, validation)
        with self._references(tuple(common), source.name, algorithm.seed, on) as (networks, _):
            widths = {name: self._width(party, networks[name], algorithm.seed) for name, party in common.items()}
            if len(set(widths.values())) > 1:
                raise OptionError(
                    f"the network of party {source.name!r} gives representations of {widths[source.name]} numbers and "
                    f"that of {target.name!r} of {widths[target.name]}; they are compared, so give both the same width"
                )
            options = TransferOptions(
                float(self.l2), self.evaluate_rows, float(self.gamma), self.alignment, self.anchors
            )
            # The sum is for losses and penalties: two parties have nothing to mask.
            holders = (source.name,)
            job = TrainingJob(TransferFamily.name, options, loss.name, 1, holders, "plain", "tree", algorithm)
            job.check(type(self).__name__, tuple(common))
            all_rows = rows_of(source.take(labelled), classes, loss)
            parts = {}
            for party, other in zip(ordered, held_out or repeat(None), strict=False):
                anchors = all_rows[:2] if party.name == source.name else None
                own = (networks[party.name], anchors)
                parts[party.name] = TrainingPart.of(party, classes, loss, other, own)
            self._begin(job, parties, classes, widths, networks, None)
            self._train(job, parties, classes, parts, on)
        return self

    def _family_of(self, *, with_top: bool) -> str:
        return TransferFamily.name

    def _sides(self, parties: tuple[Party, ...]) -> tuple[Party, Party]:
        """(source, target)."""
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
        """The party whose rows are predicted."""
        return next(name for name in self.parties_ if name not in self.holders_)

    def _split(self, name: str) -> tuple[Any, Any]:
        names, arrays, still = self._states[name]
        if PHI not in names:
            return (names, arrays, still), None
        at = names.index(PHI)
        return ((*names[:at], *names[at + 1 :]), (*arrays[:at], *arrays[at + 1 :]), still), arrays[at]

    def decision_function(self, *parties: Party, on: Runtime | None = None) -> Array:
        """phi of the target's rows, at the target. The source takes part with what it has learnt, and no rows."""
        self._check_fitted()
        check_runtime(on)
        target = self.target_
        if len(parties) != 1 or not isinstance(parties[0], Party) or parties[0].name != target:
            got = [party.name if isinstance(party, Party) else type(party).__name__ for party in parties]
            raise DataError(f"prediction needs the rows of the target {target!r} alone, got {got}")
        (party,), source = parties, self.holders_[0]
        check_columns(self.columns_[target], party)
        network = self._for_use(target)
        job = self._scoring_job(target=target, width=self._widths[target], rows=party.rows)
        parts = {
            source: ScoringPart(None, self._split(source)[1]),
            target: ScoringPart(columns_to_value(party.X), None, network),
        }
        try:
            return self._score(job, parts, on, target)
        finally:
            forget(network[0])

    def predict_proba(self, *parties: Party, on: Runtime | None = None) -> Array:
        """Probability of each class, one column per class in the order of `classes_`."""
        return self._minimised().probability(self.decision_function(*parties, on=on))


def common_rows(source: Party, target: Party) -> tuple[Array, Array]:
    """Where the rows that both have are, at the one and at the other, in one order.

    Here both lie in one process. Between organisations the alignment finds them, and no party learns of other rows.
    """
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
