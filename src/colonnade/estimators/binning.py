"""`Binning`: bins and weights of evidence of every party's columns, learnt from labels that their owners don't see."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.binning.bin_table import BinTable, iv_lines
from colonnade.binning.cells import FineColumn
from colonnade.binning.options import LEAST, MONOTONE, BinningOptions, unweighed
from colonnade.binning.prepared import bins_in, cells_of, with_bins
from colonnade.binning.program import bin_columns, check_classes
from colonnade.conventions.preparing import applied, declared, table_of
from colonnade.data import labels
from colonnade.data.party import Party
from colonnade.data.together import check_names, check_together
from colonnade.errors import DataError, InputError, LabelError, NotFittedError
from colonnade.estimators.base import Estimator
from colonnade.families.checks import label_holders, tell
from colonnade.notebooks.cells import TextCell
from colonnade.objective import losses
from colonnade.runtimes.net import Runtime, Traffic, check_runtime
from colonnade.runtimes.simulation import Simulation
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.preparation import fit


class Binning(TextCell):
    """Supervised bins of every party's columns, and what each bin is worth as weight of evidence (WOE).

    Owners of columns learn how many good and bad people are in each of their own bins, never fewer than `least` of
    either; the party with the labels learns counts over fine cells, without names or edges. docs/binning.md shows an
    example, and docs/security.md says what follows from that. Bad are people of the second class, which models predict.

    Parameters
    ----------
    method : {"monotone", "chi-merge", "quantile"}
        "monotone" takes the bins with the largest information value whose share of bad people only rises or only falls.
        "chi-merge" joins neighbours whose shares do not differ significantly. "quantile" has bins of equal size.
    bins : int
        The most bins of a column; missing values may have one more.
    fine : int
        The most cells that an owner cuts a column into, of which the label holder makes bins.
    least : int
        The fewest good and the fewest bad people in a bin. Smaller ones are joined with others and shown to nobody.
    smallest : float
        The smallest share of all people in a bin; "quantile" and the bin of missing values don't look at it.
    significance : float
        Of the chi-square test of "chi-merge".
    min_iv : float
        Columns with a smaller information value are left out.
    max_correlation : float, optional
        Columns that go together more than this with a column of larger information value, of whichever party, are
        left out.
    max_vif : float, optional
        While a variance inflation factor is above this, the column with the largest is left out.

    Attributes
    ----------
    parties_ : tuple of str
        The names of the parties, in the order in which `fit` got them.
    holder_ : str
        The party with the labels.
    classes_ : numpy array
        The two classes: good, and bad.
    tables_ : dict
        {party: {column: its BinTable}}, of all columns that have bins.
    iv_ : dict
        {party: {column: its information value}}, NaN where a column has no two bins with enough people.
    selected_ : dict
        {party: the columns that stay}.
    preparations_ : dict
        {party: how its columns become weights of evidence}.
    unseen_ : dict
        {party: {column: rows of the last `transform` whose value is in no bin}}.
    traffic_ : dict
        {party: what it sent}.
    """

    parties_: tuple[str, ...]
    holder_: str
    classes_: npt.NDArray[Any]
    tables_: dict[str, dict[str, BinTable]]
    iv_: dict[str, dict[str, float]]
    selected_: dict[str, tuple[str, ...]]
    preparations_: dict[str, LearnedPreparation]
    unseen_: dict[str, dict[str, int]]
    traffic_: dict[str, Traffic]
    get_params, set_params, __repr__ = Estimator.get_params, Estimator.set_params, Estimator.__repr__

    def __init__(
        self,
        *,
        method: str = MONOTONE,
        bins: int = 8,
        fine: int = 32,
        least: int = LEAST,
        smallest: float = 0.05,
        significance: float = 0.05,
        min_iv: float = 0.0,
        max_correlation: float | None = None,
        max_vif: float | None = None,
    ) -> None:
        self.method = method
        self.bins = bins
        self.fine = fine
        self.least = least
        self.smallest = smallest
        self.significance = significance
        self.min_iv = min_iv
        self.max_correlation = max_correlation
        self.max_vif = max_vif

    def fit(self, *parties: Party, on: Runtime | None = None) -> Binning:
        """Find the bins of all columns.

        Parameters
        ----------
        *parties : Party
            The same rows in the same order at each of them, and labels of two classes at one. Values may be missing,
            and texts are categories; rows without a label are not counted. Bins count people, whatever rows weigh. A
            column with steps of its own in the
            party's `prepare` has no bins, unless the last of them is "woe".
        on : Runtime, optional
            Where the parties run, as for models.

        Returns
        -------
        Binning
            The object itself.
        """
        options = BinningOptions(**self.get_params())  # type: ignore[misc]
        options.check()
        check_runtime(on)
        check_together(parties)
        holders = label_holders(parties)
        if len(holders) > 1:
            raise LabelError(f"bins need one party with labels, {' and '.join(map(repr, holders))} have some")
        holder = next(party for party in parties if party.active)
        labelled, y = np.asarray(holder.labelled), np.asarray(holder.y)
        classes = labels.class_labels(y[labelled], losses.loss("logistic"))
        bad = labelled & (y == classes[1])
        if holder.sample_weight is not None:
            tell(unweighed(holder.name))
        check_classes(holder.name, int(labelled.sum() - bad.sum()), int(bad.sum()), options.least)
        learned, cells = dict[str, LearnedPreparation](), dict[str, list[FineColumn]]()
        for party in parties:
            learned[party.name], cells[party.name] = _cut(party, options)
        job, programs = (options.as_value(), holder.name), {}
        for party in parties:
            known = (bad, labelled) if party is holder else (None, None)
            columns = tuple((column.codes, column.shape()) for column in cells[party.name])
            programs[party.name] = (bin_columns, (job, (party.rows, columns, *known)))
        outcomes = (on or Simulation()).run(programs)
        self.parties_, self.holder_, self.classes_ = tuple(party.name for party in parties), holder.name, classes
        self.traffic_ = {name: outcome.traffic for name, outcome in outcomes.items()}
        self._keep(learned, cells, {name: outcome.value for name, outcome in outcomes.items()})
        return self

    def _keep(
        self, learned: dict[str, LearnedPreparation], cells: dict[str, list[FineColumn]], found: dict[str, Any]
    ) -> None:
        values = dict(found[self.holder_][2])
        self.tables_, self.iv_, self.selected_, self.unseen_, self.preparations_ = {}, {}, {}, {}, {}
        for name, columns in cells.items():
            plans, kept, _ = found[name]
            self.tables_[name] = {
                one.name: BinTable(one.name, one.joined(*plan), one.name in learned[name].days)
                for one, plan in zip(columns, plans, strict=True)
                if plan is not None
            }
            self.iv_[name] = dict(zip((one.name for one in columns), values[name].tolist(), strict=True))
            self.selected_[name] = tuple(one.name for one, stays in zip(columns, kept, strict=True) if stays)
            self.preparations_[name] = with_bins(learned[name], columns, found[name])

    # -- use ----------------------------------------------------------------------------------------------------

    def prepare(self, *parties: Party) -> list[Party]:
        """Return the parties with their columns as they are, to be fitted by a model that weighs them by these bins.

        The model keeps the bins: it takes columns as they are in predictions too, and saves the bins with its parts.

        Parameters
        ----------
        *parties : Party
            Some or all of the parties, with the same columns as in `fit`.

        Returns
        -------
        list of Party
            In the order in which they were given, with their labels, ids and weights.
        """
        return [party.to_prepare(self._of(party)) for party in self._known(parties)]

    def transform(self, *parties: Party) -> list[Party]:
        """Return the parties with the weight of evidence in place of each column that was selected.

        A value that is in no bin, as a category that training did not have, is no evidence, 0; `unseen_` counts them.

        Parameters
        ----------
        *parties : Party
            Some or all of the parties, with the same columns as in `fit`; each of them could do it by itself.

        Returns
        -------
        list of Party
            In the order in which they were given, with their labels, ids and weights.
        """
        known = self._known(parties)
        for party in known:
            bins = bins_in(self._of(party), table_of(party))
            few = {name: int((each < 0).sum()) for name, each in bins.items()}
            self.unseen_[party.name] = {name: count for name, count in few.items() if count}
            for name, count in self.unseen_[party.name].items():
                tell(
                    f"party {party.name!r}: {count:,} of {party.rows:,} rows have a value in column {name!r} that is "
                    f"in no bin; they count as no evidence"
                )
        return applied(known, self.preparations_)

    def _known(self, parties: tuple[Party, ...]) -> list[Party]:
        self._check_fitted()
        check_names(parties)
        if strangers := [party.name for party in parties if party.name not in self.parties_]:
            raise DataError(f"bins were learnt for the parties {list(self.parties_)}, got {strangers[0]!r} too")
        return list(parties)

    def _of(self, party: Party) -> LearnedPreparation:
        """Return what a party's columns go through, of which at least one has to stay."""
        found = self.preparations_[party.name]
        if not found.columns:
            raise DataError(
                f"no column of party {party.name!r} has bins that stay; lower min_iv, or leave the party out"
            )
        return found

    def fit_transform(self, *parties: Party, on: Runtime | None = None) -> list[Party]:
        """Find the bins of all columns, and return the parties with weights of evidence.

        Parameters
        ----------
        *parties : Party
            As for `fit`.
        on : Runtime, optional
            Where the parties run, as for models.

        Returns
        -------
        list of Party
            As from `transform`.
        """
        return self.fit(*parties, on=on).transform(*parties)

    def _check_fitted(self) -> None:
        if not hasattr(self, "tables_"):
            raise NotFittedError("this Binning is not fitted; call fit(*parties) first")

    def __str__(self) -> str:
        return iv_lines(self.iv_) if hasattr(self, "iv_") else repr(self)


def _cut(party: Party, options: BinningOptions) -> tuple[LearnedPreparation, list[FineColumn]]:
    """Learn what a party can alone of its columns' preparation, and cut them into cells."""
    table = table_of(party)
    try:
        settings = declared(party, [{"woe": {"categories": True}}])
        learned = fit(table, settings, binned=True)
        return learned, cells_of(learned, table, options)
    except InputError as error:
        raise type(error)(f"party {party.name!r}: {error}") from None
