"""The SGD-based algorithms that the SSCA paper compares itself with: sites take steps of their own, a server averages.

`FedAvg`: McMahan, Moore, Ramage, Hampson, Aguera y Arcas: "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017, Algorithm 1. `MiniBatchSGD`: Yang, Liu, Quek, Poor: "Scheduling Policies for
Federated Learning in Wireless Networks", 2019, with E local updates on mini-batches. `ParallelRestartedSGD`: Yu, Yang,
Zhu: "Parallel Restarted SGD with Faster Convergence and Less Communication", AAAI 2019, Algorithm 1.

All three minimise cost + l2 |w|^2. A step of round t has the length a / t^alpha.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.blocks.whole import WholeModel
from colonnade.engine.rounds import Rounds
from colonnade.errors import OptionError, whole_number
from colonnade.objective.schedules import check_schedule

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class LocalSteps(Rounds):
    """Steps of a site's own between two averages.

    Parameters
    ----------
    step : tuple of two floats
        (a, alpha): a step of round t has the length a / t^alpha.
    **rounds
        The keyword parameters of `engine.rounds.Rounds`.
    """

    step: tuple[float, float] = (0.5, 0.0)

    own_steps: ClassVar[bool] = True
    weighted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_schedule("step", self.step)

    def chosen(self, sites: int, t: int) -> tuple[int, ...]:
        """The sites that have a part in round t; every site can tell by itself, from the public seed."""
        return tuple(range(sites))

    def batches(self, rows: int, rng: np.random.Generator) -> Iterator[Array]:
        """The rows of each of a site's own steps in a round."""
        raise TypeError("an algorithm must know its batches")

    def local(
        self, model: WholeModel, w: Array, rows: tuple[Any, Array], t: int, l2: float, rng: Any
    ) -> tuple[float, Array]:
        """A site's own steps from the common parameters: (mean cost over its batches, how far it came)."""
        X, y = rows
        eta, here, seen = self.step[0] / t ** self.step[1], w, []
        for batch in self.batches(len(y), rng):
            cost, gradient = model.value_and_gradient(here, X[batch], y[batch])
            here = here - eta * (gradient + 2 * l2 * here)
            seen.append(cost)
        return float(np.mean(seen)), here - w


@dataclass(frozen=True, kw_only=True)
class FedAvg(LocalSteps):
    """Every chosen site passes over its own rows, and the server averages where they came to.

    Parameters
    ----------
    epochs : int
        E, the passes over a site's own rows in a round.
    fraction : float
        C, the part of the sites that is chosen for a round.
    step : tuple of two floats
        (a, alpha): a step of round t has the length a / t^alpha.
    **rounds
        The keyword parameters of `engine.rounds.Rounds`.
    """

    epochs: int = 1
    fraction: float = 1.0

    name: ClassVar[str] = "FedAvg"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("epochs", self.epochs, 1)
        known = isinstance(self.fraction, (int, float)) and not isinstance(self.fraction, bool)
        if not known or not 0 < self.fraction <= 1:
            raise OptionError(f"fraction must be a number > 0 and <= 1, got {self.fraction!r}")

    def chosen(self, sites: int, t: int) -> tuple[int, ...]:
        """max(C K, 1) sites, drawn anew in every round."""
        order = np.random.default_rng([self.seed, 0xC405E, t]).permutation(sites)
        return tuple(sorted(order[: max(round(self.fraction * sites), 1)].tolist()))

    def batches(self, rows: int, rng: np.random.Generator) -> Iterator[Array]:
        """ClientUpdate: all rows once per epoch, in batches of B."""
        size = self.batch_for(rows)
        for _ in range(self.epochs):
            order = rng.permutation(rows)
            yield from (order[at : at + size] for at in range(0, rows, size))


@dataclass(frozen=True, kw_only=True)
class MiniBatchSGD(LocalSteps):
    """Every site takes a few steps, each on a mini-batch, and the server averages with the weights N_i / N.

    Parameters
    ----------
    updates : int
        E, the steps of a site's own in a round.
    step : tuple of two floats
        (a, alpha): a step of round t has the length a / t^alpha.
    **rounds
        The keyword parameters of `engine.rounds.Rounds`.
    """

    updates: int = 1

    name: ClassVar[str] = "MiniBatchSGD"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("updates", self.updates, 1)

    def batches(self, rows: int, rng: np.random.Generator) -> Iterator[Array]:
        """E mini-batches, each drawn without replacement."""
        return (rng.choice(rows, self.batch_for(rows), replace=False) for _ in range(self.updates))


@dataclass(frozen=True, kw_only=True)
class ParallelRestartedSGD(MiniBatchSGD):
    """Every worker takes a few steps, and weighs the same in the average whatever it holds.

    Parameters
    ----------
    updates : int
        I, the steps of a worker's own between two averages.
    step : tuple of two floats
        (a, alpha): a step of round t has the length a / t^alpha.
    **rounds
        The keyword parameters of `engine.rounds.Rounds`.
    """

    name: ClassVar[str] = "ParallelRestartedSGD"
    weighted: ClassVar[bool] = False
