"""Linear models that are trained on shares; they are scored, kept and described as other linear models are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from colonnade.algorithms.sealed_newton import SealedNewton
from colonnade.engine.allowance import Limit
from colonnade.engine.kept import Keeper
from colonnade.engine.options import Training
from colonnade.families.linear import LinearFamily
from colonnade.families.training import TrainingJob, TrainingPart
from colonnade.runtimes.net import Net


class SealedFamily(LinearFamily):
    """Linear models of which each party learns its own coefficients, and nothing else."""

    name: ClassVar[str] = "sealed"
    kinds: ClassVar[Mapping[str, str]] = {}
    algorithms: ClassVar[tuple[type[Training], ...]] = (SealedNewton,)
    encryptable: ClassVar[bool] = False
    plannable: ClassVar[bool] = False

    async def train(
        self, net: Net, job: TrainingJob, part: TrainingPart, keeper: Keeper | None, budget: Limit | None
    ) -> Any:
        """Train on shares."""
        raise NotImplementedError
