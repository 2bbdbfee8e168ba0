"""What a site does when the server asks: its part of a sum, under masks. No I/O; a carrier hands it messages.

A carrier is a `Net` (`algorithms.horizontal`) or Flower (`colonnade.flower`). Both bring the same instructions and take
back the same answers, so a run is the same on either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.algorithms.fedavg import FedAvg, LocalSteps, MiniBatchSGD, ParallelRestartedSGD
from colonnade.algorithms.ssca import SSCA
from colonnade.blocks.whole import Linear, ThreeLayers, WholeModel, costs
from colonnade.errors import ProtocolError
from colonnade.runtimes.wire import expect_array
from colonnade.sums.dropout import FEWEST, Member
from colonnade.sums.masks import KeyPair
from colonnade.sums.ring import Ring

Array = npt.NDArray[Any]

METHODS: dict[str, type[SSCA | LocalSteps]] = {
    kind.name: kind for kind in (SSCA, FedAvg, MiniBatchSGD, ParallelRestartedSGD)
}
_CHUNK = 1 << 13  # rows that are evaluated at a time


def method_from_value(value: Any) -> SSCA | LocalSteps:
    """The inverse of `Rounds.as_value`."""
    name, options = value
    kind: Any = METHODS[name]
    method: SSCA | LocalSteps = kind(**dict(options))
    return method


def model_from_value(value: Any) -> WholeModel:
    """The model that ("network", features, hidden, classes, constant) and the like describe."""
    kind, features, what, classes, constant = value
    if kind == "torch":
        from colonnade.blocks.torch_module import from_name

        return from_name(what, features, classes)
    return ThreeLayers(features, what, classes, constant) if what else Linear(features, classes, constant)


def rows_to_value(X: Any) -> Any:
    """Rows as the wire carries them."""
    return (X.data, X.indices, X.indptr, X.shape) if hasattr(X, "indptr") else X


def rows_from_value(value: Any) -> Any:
    """The inverse: an array or a CSR matrix."""
    if not isinstance(value, tuple):
        return value
    import scipy.sparse as sp

    return sp.csr_matrix(value[:3], shape=value[3])


@dataclass(frozen=True)
class Part:
    """Rows of a site: numbers, classes by number, and of each row the number of its group (-1 is none)."""

    X: Any
    y: Array
    groups: Array

    @classmethod
    def from_value(cls, value: Any) -> Part:
        """Rows as the estimator packed them."""
        X, y, groups = value
        return cls(rows_from_value(X), y, groups)

    def __len__(self) -> int:
        return len(self.y)


@dataclass
class Turn:
    """A site's part in one masked sum that is under way. parts: the sites whose part is not 0; none given: all."""

    member: Member
    value: Array
    parts: tuple[int, ...] = ()

    def answer(self, stage: str, content: Any) -> Any:
        """What this site answers to a stage after the first: all of it may be seen by the server."""
        if stage == "keys":
            return tuple(self.member.share({number: (key, channel) for number, key, channel in content}).items())
        if stage == "letters":
            return self.member.mask(dict(content), self.value)
        if stage == "survivors":
            if self.parts and len({*self.parts} & {*content}) < FEWEST:
                raise ProtocolError(
                    f"the server asks to unmask a sum in which only {len({*self.parts} & {*content})} of the sites "
                    f"that are left have a part; that would be its own"
                )
            return tuple(self.member.unmask(list(content)).items())
        raise ProtocolError(f"the server asks for stage {stage!r}, which no server of ours does")


def instruction(message: Any) -> tuple[str, int, Any]:
    """(stage, number of the sum, content), if that is what a server's message is: a site believes no form of it."""
    if isinstance(message, tuple) and len(message) == 3:
        stage, serial, content = message
        form = _FORMS.get(stage) if isinstance(stage, str) else None
        if form is not None and type(serial) is int and form(content):
            return stage, serial, content
    raise ProtocolError("the server's instruction is none that a server of ours gives; have all use one version")


def _each(*kinds: type) -> Callable[[Any], bool]:
    return lambda content: (
        isinstance(content, tuple) and all(isinstance(one, tuple) and tuple(map(type, one)) == kinds for one in content)
    )


def _is_task(content: Any) -> bool:
    if not isinstance(content, tuple) or not content:
        return False
    kind, *rest = content
    arrays = len(rest) == 3 and type(rest[0]) is int and all(isinstance(one, np.ndarray) for one in rest[1:])
    return not rest if kind == "count" else kind in ("step", "evaluate") and arrays and rest[0] >= (kind == "step")


# What the content of each stage must be; arrays are looked at more closely where their length is known.
_FORMS: dict[str, Callable[[Any], bool]] = {
    "task": _is_task,
    "keys": _each(int, bytes, bytes),
    "letters": _each(int, bytes),
    "survivors": lambda content: isinstance(content, tuple) and all(type(one) is int for one in content),
    "end": lambda content: isinstance(content, np.ndarray),
}


def going_on(turn: Turn | None, stage: str, serial: int, content: Any) -> Any:
    """The answer to a later stage of the sum that this site has begun."""
    if turn is None or turn.member.serial != serial:
        raise ProtocolError(f"the server asks for stage {stage!r} of sum {serial}, which this site has not begun")
    return turn.answer(stage, content)


@dataclass
class SiteWork:
    """One site in one run. `number`: its place among the sites, from 0."""

    number: int
    name: str
    sites: int
    model: WholeModel
    method: SSCA | LocalSteps
    functions: int  # how many costs there are: 1, or as many as groups with a limit
    l2: float
    threshold: int  # 0 is a sum without masks
    train: Part
    validation: Part | None = None
    channel: KeyPair = field(default_factory=KeyPair)
    _latest: int = -1

    @classmethod
    def of(cls, job: Any, train: Part, validation: Part | None) -> SiteWork:
        """From what the server says of it (`Plan.as_site_job`)."""
        try:
            number, name, sites, model, method, functions, l2, threshold = job
            made = model_from_value(model), method_from_value(method)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ProtocolError(f"this site can't read the server's job ({error}); have all use one version") from error
        return cls(number, name, sites, *made, functions, l2, threshold, train, validation)

    def begin(self, serial: int, content: Any) -> tuple[Turn | None, Any]:
        """The first stage of a sum: this site's part of it is computed, and its answer is the part or its keys."""
        if serial <= self._latest:
            # Letters of a sum name its number: those of an earlier one would be read as this one's.
            raise ProtocolError(f"the server asks for sum {serial} after sum {self._latest}; each has its own number")
        self._latest = serial
        value = self._encoded(*content)
        if not self.threshold:
            return None, value
        member = Member(self.number, serial, self.threshold, self.channel)
        return Turn(member, value, self._parts(*content)), member.public

    def _parts(self, kind: str, *content: Any) -> tuple[int, ...]:
        if kind != "step" or not isinstance(self.method, LocalSteps):
            return ()
        return self.method.chosen(self.sites, int(content[0]))

    def _encoded(self, kind: str, *content: Any) -> Any:
        name = self.name
        if kind == "count":
            return Ring(self.sites, 0).encode(self.counts(), name)
        w = expect_array(content[1], (self.model.size,), np.float64, "server", kind)
        totals = expect_array(content[2], (self.functions + 2,), np.float64, "server", kind)
        found = self.step(int(content[0]), w, totals) if kind == "step" else self.evaluate(w, totals)
        return Ring(self.sites).encode(found, name)

    # -- tasks --------------------------------------------------------------------------------------------------

    def counts(self) -> Array:
        """Rows of each function, rows in all, rows to validate with."""
        of = self._functions_of(self.train)
        found = [float(len(rows)) for rows in of]
        return np.array([*found, float(len(self.train)), float(len(self.validation or ()))])

    def _functions_of(self, part: Part) -> list[Array]:
        """Rows that each cost is a mean over."""
        return [np.nonzero(part.groups == m)[0] for m in range(self.functions)]

    def step(self, t: int, w: Array, totals: Array) -> Array:
        """Line 4 of the paper's algorithms: of each function (weight, weight x cost, weight x gradient).

        The weight is N_i / N; with the mean over the batch this makes the paper's N_i / (B N). Whoever is missing in a
        round is missing in the sum of weights too.
        """
        rng = np.random.default_rng([self.method.seed, self.number, t])
        if isinstance(self.method, LocalSteps):
            return self._own_steps(self.method, t, w, totals, rng)
        parts, sizes = [], self.method.batch_for(len(self.train))
        for rows, total in zip(self._functions_of(self.train), totals, strict=False):
            if not len(rows):
                parts.append(np.zeros(2 + len(w)))
                continue
            # The batch has of every group its share, so that no group's cost moves with how many of it were drawn.
            share = min(len(rows), max(1, round(sizes * len(rows) / len(self.train))))
            batch = rng.choice(rows, share, replace=False)
            cost, gradient = self.model.value_and_gradient(w, self.train.X[batch], self.train.y[batch])
            parts.append(len(rows) / total * np.concatenate([[1.0, cost], gradient]))
        return np.concatenate(parts)

    def _own_steps(self, method: LocalSteps, t: int, w: Array, totals: Array, rng: Any) -> Array:
        if self.number not in method.chosen(self.sites, t):
            return np.zeros(2 + len(w))
        cost, moved = method.local(self.model, w, (self.train.X, self.train.y), t, self.l2, rng)
        weight = len(self.train) / totals[-2] if method.weighted else 1 / self.sites
        return weight * np.concatenate([[1.0, cost], moved])

    def evaluate(self, w: Array, totals: Array) -> Array:
        """(weight, cost) of each function and (weight, cost, right) of all rows and of those to validate with."""
        found: list[float] = []
        each, right = self._costs(w, self.train)
        for rows, total in zip(self._functions_of(self.train), totals, strict=False):
            found += [len(rows) / total, float(each[rows].sum()) / total]
        found += [len(each) / totals[-2], float(each.sum()) / totals[-2], float(right.sum()) / totals[-2]]
        if self.validation is not None and totals[-1]:
            each, right = self._costs(w, self.validation)
            found += [len(each) / totals[-1], float(each.sum()) / totals[-1], float(right.sum()) / totals[-1]]
        else:
            found += [0.0, 0.0, 0.0]
        return np.array(found)

    def _costs(self, w: Array, part: Part) -> tuple[Array, Array]:
        each, right = np.empty(len(part)), np.empty(len(part), dtype=bool)
        for at in range(0, len(part), _CHUNK):
            piece = slice(at, at + _CHUNK)
            scores = self.model.scores(w, part.X[piece])
            each[piece] = costs(scores, part.y[piece])
            right[piece] = scores.argmax(axis=1) == part.y[piece]
        return each, right

    def effort(self, content: Any) -> float:
        """Numbers that a task touches, for the virtual clock."""
        if content[0] == "count":
            return 0.0
        rows = len(self.train) if content[0] == "evaluate" else self.method.batch_for(len(self.train))
        return float(rows * self.model.size * (1 if content[0] == "evaluate" else 3))
