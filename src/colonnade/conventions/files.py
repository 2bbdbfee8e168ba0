"""Models as files: one for each party, which holds nothing of any other, and back to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import colonnade
from colonnade import private_files
from colonnade.errors import DataError
from colonnade.families import family, store
from colonnade.objective.calibration import Calibration
from colonnade.objective.decisions import Threshold
from colonnade.tables.learned import PREPARATION, LearnedPreparation

Model = TypeVar("Model", bound="FileMixin")


class FileMixin:
    """Adds `save` and `load` to an estimator."""

    def _public(self: Any) -> dict[str, Any]:
        """Return what this kind of model adds to that part of the files which is the same at all parties."""
        return {}

    def _take_public(self: Any, public: dict[str, Any]) -> None:
        """Take back, from a file that was read, what `_public` put into it."""

    def _identity(self: Any) -> dict[str, str]:
        """Return the id of the training, as every party's file has it; models that were loaded may have none."""
        return {"training": self.training_} if self.training_ else {}

    def _about(self: Any, party: str) -> dict[str, Any]:
        """Return when the model was trained and, in the file of the first label holder, how well it did in the end."""
        last = self.history_[-1] if self.history_ and party == self.holders_[0] else {}
        kept = ("loss", "metric", "metric_name", "validation_loss", "validation_metric")
        return {"date": self._date, "metrics": {key: last[key] for key in kept if key in last}}

    def save(self: Any, folder: str | Path) -> None:
        """Write one file per party, which holds nothing of any other party.

        The options `algorithm`, `class_weight`, `defences` and `verbose` are not kept, nor are `history_`, `traffic_`
        and `times_`.

        Parameters
        ----------
        folder : str or Path
            Where the files go; it is made if need be. Give each organisation its own file, and delete the rest.
        """
        self._check_fitted()
        path = Path(folder)
        private_files.make_folder(path)
        public = {
            "model": type(self).__name__,
            "options": {k: v for k, v in self.get_params(deep=False).items() if k not in self._unsaved},
            "parties": self.parties_,
            "holders": self.holders_,
            "sum": self.sum_,
            "family": self._family,
            **self._identity(),
            **self._public(),
        }
        for name in self.parties_:
            arrays = family(self._family).to_arrays(self._states[name])
            arrays["columns"] = np.array(self.columns_[name])
            if name in self.holders_:
                arrays["classes"] = self.classes_
            if name == self.holders_[0] and self.calibration_ is not None:
                arrays |= self.calibration_.to_arrays()
            if name == self.holders_[0] and self._threshold is not None:
                arrays |= self._threshold.to_arrays()
            if self._date:
                arrays["about"] = np.array(store.as_text(self._about(name)))
            if name in self.preparations_:
                arrays |= self.preparations_[name].to_arrays()
            if name in self._framed:
                arrays["framed"] = np.array(True)
            store.write_party(path, name, public, arrays)

    @classmethod
    def load(cls: type[Model], folder: str | Path) -> Model:
        """Return the model that `save` wrote.

        Parameters
        ----------
        folder : str or Path
            A folder with the files of all parties of one model.

        Returns
        -------
        Estimator
            A model of this class; called as `Estimator.load`, of whichever class was saved.
        """
        public, arrays = store.read_parties(folder)
        kind = getattr(colonnade, public["model"], None) if public["model"] in colonnade.__all__ else None
        if not isinstance(kind, type) or not issubclass(kind, cls):
            raise DataError(f"the folder holds a {public['model']}, load it as that")
        made = family(public["family"])
        if made.takes_own:
            raise DataError(
                "the folder holds the networks of a job, and only the parties' own files say how they are made; use "
                "`colonnade predict`"
            )
        model: Any = kind(**public["options"])
        model.parties_, model.holders_ = tuple(public["parties"]), tuple(public["holders"])
        model.sum_, model.history_, model.traffic_, model.rounds_ = public["sum"], [], {}, 0
        model.times_, model.training_ = {}, public.get("training", "")
        model._family = made.name
        model._states = {name: made.from_arrays(part) for name, part in arrays.items()}
        model.columns_ = {name: tuple(part["columns"].tolist()) for name, part in arrays.items()}
        model.classes_ = arrays[model.holders_[0]]["classes"]
        model.calibration_ = Calibration.from_arrays(arrays[model.holders_[0]])
        model._threshold = Threshold.from_arrays(arrays[model.holders_[0]])
        model._framed = frozenset(name for name, part in arrays.items() if "framed" in part)
        if "job" not in public:  # whose parties prepare their own files, and bring numbers here
            kept = {name: part for name, part in arrays.items() if PREPARATION in part}
            model.preparations_ = {name: LearnedPreparation.from_arrays(part) for name, part in kept.items()}
        model._take_public(public)
        found: Model = model
        return found
