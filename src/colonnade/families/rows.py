"""Models over rows, which every site has whole: sites hold the same columns about different people.

They are trained by programs of their own, a server's and a site's (`horizontal.program`), as there is no score to sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from colonnade.errors import OptionError
from colonnade.families.base import Arrays, Family
from colonnade.families.scoring import Scorer


class RowsFamily(Family):
    """Models that are whole at every site; a state is a tuple of one array, which has all parameters."""

    name: ClassVar[str] = "rows"
    called: ClassVar[str] = "horizontal"
    options: ClassVar[type[Any]] = tuple
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

    def to_arrays(self, state: Any) -> Arrays:
        """Return the one array of all parameters."""
        return {"parameters": state[0]}

    def from_arrays(self, arrays: Arrays) -> Any:
        """Return the state with this array."""
        return (arrays["parameters"],)
