"""What all parties agree on about bins: how they are made, and how few people a bin may hold."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Any

from colonnade.errors import OptionError, at_least, one_of, whole_number

MONOTONE, CHI_MERGE, QUANTILE = "monotone", "chi-merge", "quantile"
METHODS = (MONOTONE, CHI_MERGE, QUANTILE)
LEAST = 10  # people of each class in a bin, unless told otherwise
MOST_CELLS = 256  # of a column


@dataclass(frozen=True)
class BinningOptions:
    """How bins are made; `estimators.binning.Binning` describes each of them."""

    method: str = MONOTONE
    bins: int = 8
    fine: int = 32
    least: int = LEAST
    smallest: float = 0.05
    significance: float = 0.05
    min_iv: float = 0.0
    max_correlation: float | None = None
    max_vif: float | None = None

    @property
    def correlates(self) -> bool:
        """Whether columns are left out by how they go together with others."""
        return self.max_correlation is not None or self.max_vif is not None

    @property
    def cells(self) -> int:
        """How many cells a column is cut into, at most, before they are joined to bins."""
        return self.bins if self.method == QUANTILE else max(self.fine, self.bins)

    def check(self) -> None:
        """Refuse what no bins can be made with."""
        one_of("method", self.method, METHODS)
        for name, low, high in (("bins", 2, MOST_CELLS), ("fine", 2, MOST_CELLS), ("least", 1, 10**9)):
            whole_number(name, getattr(self, name), low)
            if getattr(self, name) > high:
                raise OptionError(f"{name} must be at most {high}, got {getattr(self, name)}")
        if not 0.0 <= _number("smallest", self.smallest) <= 0.5:
            raise OptionError(f"smallest must be a share of the rows from 0 to 0.5, got {self.smallest}")
        if not 0.0 < _number("significance", self.significance) < 1.0:
            raise OptionError(f"significance must be above 0 and below 1, got {self.significance}")
        at_least("min_iv", _number("min_iv", self.min_iv), 0.0)
        if self.max_correlation is not None and not 0.0 < _number("max_correlation", self.max_correlation) <= 1.0:
            raise OptionError(f"max_correlation must be above 0 and at most 1, got {self.max_correlation}")
        if self.max_vif is not None and not _number("max_vif", self.max_vif) > 1.0:
            raise OptionError(f"max_vif must be above 1, got {self.max_vif}")

    def as_value(self) -> Any:
        """Return a form that the wire can carry; `BinningOptions(*value)` undoes this."""
        return astuple(self)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise OptionError(f"{name} must be a finite number, got {value!r}")
    return float(value)


def unweighed(holder: str) -> str:
    """Return what a label holder with weights of rows is told about bins; docs/adr/0043 says why it is so."""
    return (
        f"bins count people, and the weights of {holder!r} have no part in them: in counts, weights of evidence and "
        f"information values everybody counts once; the model that is trained on them takes the weights"
    )
