"""Outputs of networks that hold few bits about their inputs: drawn around a mean, and dear the more they tell.

Zou, Liu, Zhang: "Mutual information regularization for vertical federated learning", 2023 (MID), section 4, after the
variational information bottleneck of Alemi, Fischer, Dillon, Murphy (2017): in place of h a party sends z = m + s e,
with normal e, where m and log s² are linear in h. KL(N(m, s²) || N(0, 1)), averaged over rows, bounds from above how
much z tells about the inputs, and is added to the loss. MID's authors put the bottleneck where the label holder takes
in h; here it is at home, so that what leaves is noisy already.

In use the model goes on drawing: a mean without noise would tell what training did not. Each message draws anew, and
whoever gets many messages about a row can average them, see `keyed_noise` for predictions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from colonnade.defences.outputs import OutputDefence
from colonnade.errors import at_least
from colonnade.networks.torch_veils import bottled, means_and_spreads


@dataclass(frozen=True, kw_only=True)
class Bottleneck(OutputDefence):
    """Outputs are drawn from normal distributions, whose distance from one that says nothing is added to the loss.

    Parameters
    ----------
    weight : float
        lambda, how much a nat of what outputs tell about a row counts beside the mean loss of a row.
    spread : float
        The standard deviation of each output to start with; training changes it.
    """

    weight: float = 0.01
    spread: float = 0.1

    name: ClassVar[str] = "bottleneck"
    paper: ClassVar[str] = "Zou et al. 2023"
    veils: ClassVar[bool] = True
    penalises: ClassVar[bool] = True

    def __post_init__(self) -> None:
        at_least("weight", self.weight, 0, strict=True, finite=True)
        at_least("spread", self.spread, 0, strict=True, finite=True)

    def around(self, module: Any, width: int) -> Any:
        """Return the module with a layer behind it that makes a mean and a log variance of each output."""
        return bottled(module, width, self.spread)

    def penalty(self, x: Any, outputs: Any, z: Any) -> Any:
        """Return weight * KL(N(m, s²) || N(0, 1)), the mean over rows."""
        return self.weight * divergence(outputs)


def divergence(outputs: Any) -> Any:
    """Return KL(N(m, s²) || N(0, 1)) of rows of means and log variances, summed over a row, the mean over rows."""
    mean, spread = means_and_spreads(outputs)
    return 0.5 * (mean.square() + spread.square() - 1.0 - 2.0 * spread.log()).sum(dim=1).mean()
