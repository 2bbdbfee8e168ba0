"""What a site does when the server asks: it computes its part of a sum, and answers under masks.

There is no I/O here: a carrier, which is a `Net` (`horizontal.program`) or Flower (`colonnade.flower`), hands over the
messages. Both bring the same instructions and take back the same answers, so a run is the same on either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from colonnade.algorithms.fedavg import LocalSteps
from colonnade.algorithms.ssca import SSCA
from colonnade.blocks.whole import WholeModel, costs
from colonnade.crypto.masks import KeyPair
from colonnade.crypto.ring import Ring
from colonnade.errors import OptionError, ProtocolError
from colonnade.horizontal.answering import Answering, Own, digest_of_told
from colonnade.horizontal.messages import is_job, method_from_value, model_from_value
from colonnade.horizontal.own_functions import checked
from colonnade.horizontal.row_keys import check_enough
from colonnade.objective.expressions import RowFunction
from colonnade.runtimes.wire import expect_array

Array = npt.NDArray[Any]

_CHUNK = 1 << 13  # rows that are evaluated at a time


def rows_to_value(X: Any) -> Any:
    """Return rows as the wire carries them."""
    return (X.data, X.indices, X.indptr, X.shape) if hasattr(X, "indptr") else X


def rows_from_value(value: Any) -> Any:
    """Return rows from the wire as an array or a CSR matrix."""
    if not isinstance(value, tuple):
        return value
    import scipy.sparse as sp

    return sp.csr_matrix(value[:3], shape=value[3])


def share_of(batch: int, rows: int, of: int) -> int:
    """Return how many rows of a class or group, which has so many of all, are in a batch."""
    return min(rows, max(1, round(batch * rows / of)))


@dataclass(frozen=True)
class SiteRows:
    """Rows of a site: their numbers, their classes by number, and the number of each row's key (-1 for none)."""

    X: Any
    y: Array
    groups: Array

    @classmethod
    def from_value(cls, value: Any) -> SiteRows:
        """Read rows as the estimator packed them."""
        X, y, groups = value
        return cls(rows_from_value(X), y, groups)

    def __len__(self) -> int:
        return len(self.y)


@dataclass
class SiteWork(Answering):
    """One site in one run."""

    number: int  # its place among all sites, from 0
    names: tuple[str, ...]  # of all sites
    model: WholeModel
    method: SSCA | LocalSteps
    measures: tuple[tuple[int, int], ...]  # means over rows: (number of the key, number of the function), -1 for all
    l2: float
    threshold: int  # 0 is a sum without masks
    train: SiteRows
    validation: SiteRows | None = None
    own: Own = field(default_factory=Own)
    told: bytes = b""  # a digest of all that the server tells every site of the run
    channel: KeyPair = field(default_factory=KeyPair)  # for letters to other sites
    _latest: int = -1

    @classmethod
    def of(
        cls, job: Any, name: str, train: SiteRows, validation: SiteRows | None, own: Own, also: tuple[Any, ...] = ()
    ) -> SiteWork:
        """Set a site up from what the server tells it and what is its own.

        The server's `job` (`ServerJob.as_site_job`) is checked before any of it is used; `also` is what else the server
        tells all sites.
        """
        if not is_job(job):
            raise ProtocolError("this site can't read the server's job; use one version of colonnade everywhere")
        number, names, model, method, measures, l2, threshold = job
        if names[number] != name:
            raise ProtocolError(f"the server takes site {name!r} for {names[number]!r}; have it ask who is who again")
        made = model_from_value(model, own.network, f"site {name!r}"), method_from_value(method)
        features, classes = train.X.shape[1], int(train.y.max()) + 1
        if model[1] != features or model[3] < classes:
            raise ProtocolError(
                f"the server's model is of {model[1]} columns and {model[3]} classes, site {name!r} has {features} "
                f"columns and at least {classes} classes"
            )
        keys = 1 + max(key for key, _ in measures)
        if keys and int(train.groups.max()) >= keys:
            raise ProtocolError(f"the server counts {keys} classes or groups, site {name!r} has rows of more")
        named = [f"the class or group of number {key}" for key in range(keys)]
        check_enough(name, train.groups, tuple({key for key, _ in measures}), named, own.min_rows)
        needed = 1 + max(function for _, function in measures)
        if needed > len(own.functions):
            raise OptionError(
                f"the problem has {needed} functions of rows, and site {name!r} was given {len(own.functions)}; give "
                f"it functions=, those of the others, in the order in which the problem names them"
            )
        told = digest_of_told((*job[1:], *also))
        return cls(number, names, *made, measures, float(l2), threshold, train, validation, own, told)

    @property
    def name(self) -> str:
        """The site's own name."""
        return self.names[self.number]

    @property
    def sites(self) -> int:
        """How many sites there are."""
        return len(self.names)

    def _parts(self, kind: str, *content: Any) -> tuple[int, ...]:
        return self.method.chosen(self.sites, int(content[0])) if kind == "step" else ()

    def _encoded(self, kind: str, *content: Any) -> Any:
        name = self.name
        if kind == "count":
            return Ring(self.sites, 0).encode(self.counts(), name)
        w = expect_array(content[1], (self.model.size,), np.float64, "server", kind)
        totals = expect_array(content[2], (len(self.measures) + 2,), np.float64, "server", kind)
        if not np.isfinite(w).all():
            raise ProtocolError(
                f"the server asks site {name!r} about parameters that are not finite: training has diverged, or the "
                f"server does not follow the program; use a smaller step, or stronger l2"
            )
        if not (np.isfinite(totals).all() and (totals >= 0).all() and totals[-2] > 0):
            raise ProtocolError(
                f"the server tells site {name!r} counts of rows that no rows have; use one version of colonnade "
                f"everywhere"
            )
        found = self.step(int(content[0]), w, totals) if kind == "step" else self.evaluate(w, totals)
        return Ring(self.sites).encode(found, name)

    # -- tasks --------------------------------------------------------------------------------------------------

    def counts(self) -> Array:
        """Return how many rows there are of each measure, in all, and to validate with."""
        found = [float(len(rows)) for rows in self._rows_of(self.train)]
        return np.array([*found, float(len(self.train)), float(len(self.validation or ()))])

    def _rows_of(self, part: SiteRows) -> list[Array]:
        """Return the rows that each measure is a mean over."""
        every = np.arange(len(part))
        return [every if key < 0 else np.nonzero(part.groups == key)[0] for key, _ in self.measures]

    def _function(self, number: int) -> RowFunction | None:
        return None if number < 0 else checked(self.own.functions[number])

    def step(self, t: int, w: Array, totals: Array) -> Array:
        """Line 4 of the paper's algorithms: return (weight, weight x value, weight x gradient) of each measure.

        The weight is N_i / N; with the mean over the batch this makes the paper's N_i / (B N). A site that is missing
        in a round is missing in the sum of weights too.
        """
        rng = np.random.default_rng([self.method.seed, self.number, t])
        if self.method.own_steps:
            return self._own_steps(cast("LocalSteps", self.method), t, w, totals, rng)
        parts, sizes, drawn = [], self.method.batch_for(len(self.train)), dict[int, Array]()
        for (key, function), rows, total in zip(self.measures, self._rows_of(self.train), totals, strict=False):
            if not len(rows):
                parts.append(np.zeros(2 + len(w)))
                continue
            if key not in drawn:  # measures of the same rows have the same batch
                # Every group has its share of it, so that no cost moves with how many rows of a group were drawn.
                drawn[key] = rng.choice(rows, share_of(sizes, len(rows), len(self.train)), replace=False)
            X, y = self.train.X[drawn[key]], self.train.y[drawn[key]]
            value, gradient = self.model.value_and_gradient(w, X, y, self._function(function))
            parts.append(len(rows) / total * np.concatenate([[1.0, value], gradient]))
        return np.concatenate(parts)

    def _own_steps(self, method: LocalSteps, t: int, w: Array, totals: Array, rng: Any) -> Array:
        if self.number not in method.chosen(self.sites, t):
            return np.zeros(2 + len(w))
        cost, moved = method.local(self.model, w, (self.train.X, self.train.y), t, self.l2, rng)
        weight = len(self.train) / totals[-2] if method.weighted else 1 / self.sites
        return weight * np.concatenate([[1.0, cost], moved])

    def evaluate(self, w: Array, totals: Array) -> Array:
        """Return (weight, value) of each measure, and (weight, cost, right) of all rows and of the validation rows."""
        found: list[float] = []
        each, right, *own = self._costs(w, self.train, self.own.functions)
        for (_, function), rows, total in zip(self.measures, self._rows_of(self.train), totals, strict=False):
            values = each if function < 0 else own[function]
            found += [len(rows) / total, float(values[rows].sum()) / total]
        found += [len(each) / totals[-2], float(each.sum()) / totals[-2], float(right.sum()) / totals[-2]]
        if self.validation is not None and totals[-1]:
            each, right = self._costs(w, self.validation)
            found += [len(each) / totals[-1], float(each.sum()) / totals[-1], float(right.sum()) / totals[-1]]
        else:
            found += [0.0, 0.0, 0.0]
        return np.array(found)

    def _costs(self, w: Array, part: SiteRows, functions: tuple[RowFunction, ...] = ()) -> tuple[Array, ...]:
        """Return of each row its cost, whether it is right, and what the problem's functions make of it."""
        each, right = np.empty(len(part)), np.empty(len(part), dtype=bool)
        own = [np.empty(len(part)) for _ in functions]
        for at in range(0, len(part), _CHUNK):
            piece = slice(at, at + _CHUNK)
            scores = self.model.scores(w, part.X[piece])
            each[piece] = costs(scores, part.y[piece])
            right[piece] = scores.argmax(axis=1) == part.y[piece]
            for values, function in zip(own, functions, strict=True):
                values[piece] = checked(function)(scores, part.y[piece])[0]
        return each, right, *own

    def effort(self, content: Any) -> float:
        """Return how many numbers a task touches, for the virtual clock."""
        if content[0] == "count":
            return 0.0
        rows = len(self.train) if content[0] == "evaluate" else self.method.batch_for(len(self.train))
        return float(rows * self.model.size * (1 if content[0] == "evaluate" else 3))
