"""The step size of FedBCD's Theorem 1, and who has to tell what for it.

Liu et al., "FedBCD", Theorem 1 holds for Q >= sqrt(S / K) and eta <= 1 / (L + 2 Q^2 sum_k L_k^2 / L), where A3 defines

    L    how fast the gradient of the whole objective changes,
    L_k  how fast, averaged over single rows, party k's part of the gradient changes with all parameters.

For a linear score x theta, a loss whose second derivative is at most c, and a penalty whose second derivative is at
most p, both follow from two numbers of each party: e_k, the largest eigenvalue of X_k^T X_k / n, and m_k, the mean
squared length of its rows. With e and m their sums over the parties,

    L       <= c e + p,          as the largest eigenvalue of a sum of matrices is at most the sum of theirs,
    L_k     <= c E(|x| |x_k|) + p <= c sqrt(m m_k) + p,
    sum L_k^2 <= (c m)^2 + 2 c p m sqrt(K) + K p^2,

so the parties add up two numbers under the masks, as for step="auto", and the label holder tells everybody the step.
A column of ones counts as a column, where there is an intercept. The eigenvalue is found by Lanczos on a sample of
rows, to a few per cent. The theorem's step is short, as that of any worst case: trials find far longer ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt
from typing import ClassVar, cast

import numpy as np

from colonnade.blocks.linear import LinearBlock
from colonnade.engine.options import Training
from colonnade.engine.session import Session
from colonnade.errors import OptionError
from colonnade.leaks import Setting
from colonnade.objective.losses import loss

THEOREM = "theorem"


@dataclass(frozen=True)
class BlockDescent(Training):
    """What FedSGD and FedBCD share: the step of Theorem 1."""

    named_steps: ClassVar[tuple[str, ...]] = ("auto", THEOREM)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step == THEOREM and self.schedule != "constant":
            raise OptionError(
                f"step='theorem' is a constant step, got schedule={self.schedule!r}; set schedule='constant'"
            )

    def check(self, setting: Setting) -> None:
        """Refuse the step of the theorem where nobody knows how fast gradients change."""
        super().check(setting)
        if self.step == THEOREM and setting.model != "linear":
            raise OptionError(
                "step='theorem' needs a bound on how fast gradients change, which linear models have; give a number"
            )
        if self.step == THEOREM and not isfinite(loss(setting.loss).curvature_bound):
            raise OptionError(
                f"step='theorem' needs a loss whose curvature is bounded, and that of {setting.loss!r} is not; use "
                f"step='auto'"
            )

    def steps_between(self, batch: int, parties: int) -> int:
        """Q, the steps that a party takes between two exchanges about batches of so many rows."""
        return 1

    async def own_step(self, session: Session) -> float | None:
        """The step of Theorem 1, where that is asked for."""
        if self.step != THEOREM:
            return None
        return await _agreed(session, self.steps_between(session.batch, len(session.net.names)))


def largest_step(whole: float, squares: float, local_steps: int) -> float:
    """1 / (L + 2 Q^2 sum_k L_k^2 / L), from L, sum_k L_k^2 and Q."""
    return 1.0 / (whole + 2.0 * local_steps**2 * squares / whole)


async def _agreed(session: Session, local_steps: int) -> float:
    """Agree on the largest step that Theorem 1 allows for Q = local_steps."""
    block = cast("LinearBlock", session.block)
    ones = block.intercept_curvature()
    mine = np.array([block.largest_eigenvalue() + ones, block.columns.mean_square() + ones])
    totals = await session.sum.total_wide("curvature", mine, session.leader)
    if totals is None:
        return (await session.hear_step())[0]
    # Rows of weights up to w bend the objective w times as much, at most.
    bound = session.job.loss.curvature_bound * session.uneven.largest
    penalty, parties = block.penalty_curvature(), len(session.net.names)
    eigenvalue, length = float(totals[0]), float(totals[1])
    whole = max(bound * eigenvalue + penalty, 1e-12)
    squares = (bound * length) ** 2 + 2 * bound * penalty * length * sqrt(parties) + parties * penalty**2
    eta = largest_step(whole, squares, local_steps)
    await session.tell("step size", (eta, 1.0))
    return eta
