"""All features' cells in the two layouts that growing needs, with sparse features that exclude each other bundled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.boosting.row_cells import CellsElsewhere, blank_rows
from colonnade.errors import DataError
from colonnade.kernels import cells as kernels

Array = npt.NDArray[Any]
_BUNDLES = 100  # that a feature is tried with, the latest first; as LightGBM has it
_NONE = -1


class CellTable:
    """The cells of all features of all parties: by column, to divide rows, and by row, to add up histograms.

    Every cell of every feature has a number of its own, `offsets[f] + cell`; a row of `by_row` has the numbers of its
    cells, one for each slot. A feature has a slot to itself, or shares it with others whose rows outside of one cell,
    their default, never meet (LightGBM's exclusive feature bundling): the default's sum is what the others leave over.
    Features of a single cell have no slot, as no split can come of them.

    Parameters
    ----------
    cells
        Cell numbers (features, rows), uint8 and C-contiguous. It is kept, not copied, and `replace` writes to it.
    counts
        How many cells each feature has, 1 to 256.
    missing
        Whether a feature's last cell stands for missing values.
    categorical
        Whether a feature's cells have no order.
    fixed
        Whether a feature stays as it is, so that it may be bundled; without this all do. Only others can be replaced.
    elsewhere
        Who holds the cells by row and adds up histograms in place of this table; None is that it does so itself.

    Attributes
    ----------
    offsets
        Number of each feature's first cell, and at the end how many cells there are (features + 1).
    slots
        How many numbers a row has, one for each slot.
    by_row
        The numbers of each row's cells (rows, slots), uint16, or uint32 where there are more than 65,535 cells; of no
        rows, where they are elsewhere.
    bundled
        The features that share a slot.
    defaults
        The number of each bundled feature's default cell, -1 for the other features.
    """

    def __init__(
        self,
        cells: Array,
        counts: Any,
        missing: Any,
        categorical: Any,
        fixed: Any = None,
        elsewhere: CellsElsewhere | None = None,
    ) -> None:
        if cells.dtype != np.uint8 or cells.ndim != 2 or not cells.flags.c_contiguous:
            raise DataError(
                f"cells must be a C-contiguous uint8 array of (features, rows), got {cells.dtype} of shape "
                f"{cells.shape}; use what Bins.cells returns"
            )
        self.by_column = cells
        self.features, self.rows = int(cells.shape[0]), int(cells.shape[1])
        self.counts = self._per_feature("counts", counts, np.int64)
        self.missing = self._per_feature("missing", missing, np.bool_)
        self.categorical = self._per_feature("categorical", categorical, np.bool_)
        self.fixed = self._per_feature("fixed", np.ones(self.features) if fixed is None else fixed, np.bool_)
        if ((self.counts < 1) | (self.counts > 256)).any():
            raise DataError(f"a feature has 1 to 256 cells, got counts of {self.counts.min()} to {self.counts.max()}")
        self.offsets = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)
        self.cells = int(self.offsets[-1])
        found = np.zeros((self.features, 256), dtype=np.int64)
        kernels.count_cells(cells, found)
        beyond = np.arange(256) >= self.counts[:, None]
        if (found * beyond).any():
            feature = int(np.flatnonzero((found * beyond).any(axis=1))[0])
            raise DataError(f"feature {feature} has {self.counts[feature]} cells, and a row has a cell beyond them")
        self.defaults = np.full(self.features, _NONE, dtype=np.int64)
        self.places = np.full(self.features, _NONE, dtype=np.int64)
        slots = self._bundles(found)
        for place, members in enumerate(slots):
            self.places[[feature for feature, _ in members]] = place
            if len(members) > 1:
                for feature, default in members:
                    self.defaults[feature] = self.offsets[feature] + default
        self.bundled = np.flatnonzero(self.defaults >= 0)
        # Where all features of a bundle are in their default cells, a row is added to a cell that nobody reads.
        self.slots, self.elsewhere = len(slots), elsewhere
        self.by_row = blank_rows(self.rows if elsewhere is None else 0, self.slots, self.cells)
        if elsewhere is None:
            self._lay_out(np.flatnonzero(self.places >= 0))
        else:
            elsewhere.lay_out(cells, self.places, self.offsets, self.defaults, self.slots)

    def replace(self, feature: int, codes: Any) -> None:
        """Give one feature other cells, in both layouts; how many there are stays what it was."""
        codes = np.asarray(codes, dtype=np.uint8)
        if self.fixed[feature]:
            raise DataError(f"feature {feature} was said to be fixed when the table was made; say which are not")
        if codes.shape != (self.rows,) or (len(codes) and int(codes.max()) >= self.counts[feature]):
            raise DataError(
                f"feature {feature} needs {self.rows} cells below {self.counts[feature]}, got shape {codes.shape} with "
                f"cells up to {int(codes.max(initial=0))}"
            )
        self.by_column[feature] = codes
        if self.places[feature] >= 0 and self.elsewhere is not None:
            self.elsewhere.replace(feature, codes)
        elif self.places[feature] >= 0:
            self._lay_out(np.array([feature]))

    def _lay_out(self, features: Array) -> None:
        kernels.lay_out(self.by_column, features, self.places, self.offsets, self.defaults, self.by_row)

    def _per_feature(self, name: str, values: Any, kind: Any) -> Array:
        found = np.ascontiguousarray(values, dtype=kind)
        if found.shape != (self.features,):
            raise DataError(f"{name} must have one value for each of {self.features} features, got {found.shape}")
        return found

    def _bundles(self, found: Array) -> list[list[tuple[int, int]]]:
        """The (feature, default cell) of each slot.

        A default is the feature's most frequent cell. Of one-hot columns that is often the wrong one, as a category of
        most rows excludes its siblings only by its ones: so features of two cells are tried with the lower one, too.
        """
        usable = np.flatnonzero(self.counts > 1)
        often = found.argmax(axis=1)
        lower = np.where(self.counts == 2, 0, often)
        one, other = (self._greedy(usable, found, defaults) for defaults in (often, lower))
        return one if len(one) <= len(other) else other

    def _greedy(self, usable: Array, found: Array, defaults: Array) -> list[list[tuple[int, int]]]:
        """Each feature, the fullest first, to the first bundle that it has no row in common with."""
        outside = self.rows - found[np.arange(self.features), defaults]
        alone = [[(int(f), int(defaults[f]))] for f in usable if not self.fixed[f]]
        bundles: list[tuple[list[tuple[int, int]], int, Array]] = []
        for f in sorted((int(f) for f in usable if self.fixed[f]), key=lambda f: (-outside[f], f)):
            column, default = self.by_column[f], int(defaults[f])
            for k in range(len(bundles) - 1, max(-1, len(bundles) - 1 - _BUNDLES), -1):
                members, full, taken = bundles[k]
                if full + outside[f] <= self.rows and not kernels.overlap(column, default, taken):
                    members.append((f, default))
                    kernels.take(column, default, taken)
                    bundles[k] = members, full + int(outside[f]), taken
                    break
            else:
                taken = np.zeros(self.rows, dtype=np.uint8)
                kernels.take(column, default, taken)
                bundles.append(([(f, default)], int(outside[f]), taken))
        return sorted([*alone, *(members for members, _, _ in bundles)])
