"""One training run of FedBCD's tables and figures: what is varied, and the algorithm that comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from colonnade.algorithms import FedBCD, FedSGD


@dataclass(frozen=True)
class Setting:
    """One training run."""

    algorithm: str
    Q: int
    eta0: float
    seed: int
    epochs: int
    proximal: float = 0.0
    parties: int = 2
    goal: float | None = None  # a test AUC at which the run is over
    signal: str = "auto"  # what local steps without labels go by, see `FedBCD`
    decay: str = "exchange"  # what r of the schedule counts

    def options(self, batch: int, evaluate_every: int | None, schedule: str = "sqrt") -> FedSGD | FedBCD:
        """The algorithm of this run."""
        shared: dict[str, Any] = {
            "step": self.eta0, "schedule": schedule, "batch": batch, "epochs": self.epochs, "tol": None,
            "evaluate_every": evaluate_every, "seed": self.seed, "metric_goal": self.goal,
        }  # fmt: skip
        if self.algorithm == "FedSGD":
            return FedSGD(**shared)
        order = {"FedBCD-s": "sequential", "FedBCD-s once": "sequential-once"}.get(self.algorithm, "parallel")
        more: dict[str, Any] = {"proximal": self.proximal, "signal": self.signal, "decay": self.decay}
        return FedBCD(**shared, local_steps=self.Q, order=order, **more)
