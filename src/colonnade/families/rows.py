"""Models over rows, which every site has whole: sites hold the same columns about different people.

They are trained by programs of their own, a server's and a site's (`horizontal.program`), as there is no score to sum.
"""

from __future__ import annotations

from typing import Any, ClassVar

from colonnade.errors import OptionError
from colonnade.families.base import Arrays, Family
from colonnade.families.scoring import Scorer


class RowsFamily(Family):
    """A state is one array of all parameters, the same at every site."""

    name: ClassVar[str] = "rows"
    called: ClassVar[str] = "horizontal"
    options: ClassVar[type[Any]] = tuple

    async def train(self, *_: Any) -> Any:
        """Refused: a server has to ask."""
        raise OptionError("a horizontal model is trained by a server and sites; use SSCAClassifier")

    def scorer(self, *_: Any) -> Scorer:
        """Refused: nothing has to be summed."""
        raise OptionError("a horizontal model is whole at every site, and scores rows by itself; use its predict")

    def to_arrays(self, state: Any) -> Arrays:
        """One array."""
        return {"parameters": state[0]}

    def from_arrays(self, arrays: Arrays) -> Any:
        """The state of it."""
        return (arrays["parameters"],)
