"""Models over rows, which every site has whole: sites hold the same columns about different people.

They are trained by programs of their own, a server's and a site's (`horizontal.program`, in jobs `site_jobs`), as there
is no score to sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy.typing as npt

from colonnade.engine.options import Training
from colonnade.errors import OptionError
from colonnade.families.base import Arrays, Description, Family
from colonnade.families.scoring import Scorer
from colonnade.horizontal.shown import rows_leaks
from colonnade.leaks import Leak, Setting

_WORDS = {
    "masked": "the server sees the answers of all sites as one sum, and every site ends with the whole model",
    "plain": "the server sees every site's own sums, and every site ends with the whole model",
}


@dataclass(frozen=True)
class RowsOptions:
    """What a job says of a model over rows."""

    hidden: int = 128
    l2: float | None = None
    intercept: bool = True
    cost_limit: Any = None  # a number, or {class: number}
    objective: str = ""  # in the words of `colonnade.cost` and `squared_norm`; "" is the usual one
    constraints: tuple[str, ...] = ()
    network: bool = False  # whether every site makes a torch module of its own


class RowsFamily(Family):
    """Models that are whole at every site; a state is a tuple of one array, which has all parameters."""

    name: ClassVar[str] = "rows"
    called: ClassVar[str] = "horizontal"
    options: ClassVar[type[Any]] = RowsOptions
    adds_up: ClassVar[bool] = False
    over_rows: ClassVar[bool] = True
    lacks: ClassVar[Mapping[str, str]] = {
        "sealed": "is for linear models over columns; a model over rows has 'masked', in which the server sees the "
        "answers of all sites as one sum, or 'plain'"
    }

    async def train(self, *_: Any) -> Any:
        """Refuse to train between parties, as such a model needs a server that asks."""
        raise OptionError("a horizontal model is trained by a server and sites; use SSCAClassifier")

    def scorer(self, *_: Any) -> Scorer:
        """Refuse to take part in a sum, as a site scores rows by itself."""
        raise OptionError("a horizontal model is whole at every site, and scores rows by itself; use its predict")

    def leaks(self, setting: Setting, algorithm: Training) -> tuple[Leak, ...]:
        """Return what a job over rows shows."""
        return rows_leaks(setting)

    def protection_words(self, protection: str, algorithm: Training, leader: str) -> str:
        """Say what a protection is for models over rows."""
        return _WORDS[protection]

    def to_arrays(self, state: Any) -> Arrays:
        """Return the one array of all parameters."""
        return {"parameters": state[0]}

    def from_arrays(self, arrays: Arrays) -> Any:
        """Return the state with this array."""
        return (arrays["parameters"],)

    def estimator(self, loss: str) -> str:
        """Return the one class of models over rows."""
        return "SSCAClassifier"

    def estimator_options(self, options: Any, loss: str) -> dict[str, Any]:
        """Return what the model is; the problem that it solves is not kept."""
        return {"hidden": options.hidden, "fit_intercept": options.intercept}

    def describe(
        self,
        party: str,
        public: Mapping[str, Any],
        state: Any,
        columns: tuple[str, ...],
        classes: npt.NDArray[Any],
    ) -> Description:
        """Say how large the model is; the parameters of single cells mean nothing to people."""
        sites, names = ", ".join(public.get("sites", ())), ", ".join(map(str, classes.tolist()))
        title = f"the whole model of {sites}: {len(state[0]):,} parameters over {len(columns)} columns, classes {names}"
        return Description(title)
