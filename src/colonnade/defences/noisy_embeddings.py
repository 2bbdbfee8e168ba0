"""Outputs of networks that are cut to a length and have normal noise of a multiple of it.

Titcombe, Hall, Papadopoulos, Romanini: "Practical defences against model inversion attacks for split neural networks",
2021, section 3, add noise to what leaves a network, in training and in use. As a network could outgrow noise of a
fixed size by larger outputs, rows are cut to the length C first, as in the Gaussian mechanism (Dwork and Roth 2014,
appendix A): one row of outputs changes by 2 C at most, whatever the inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from colonnade.defences.outputs import OutputDefence
from colonnade.errors import at_least
from colonnade.networks.torch_veils import noised


@dataclass(frozen=True, kw_only=True)
class NoisyEmbeddings(OutputDefence):
    """Each row of a network's outputs is cut to a length and gets normal noise before it leaves, in use as in training.

    Parameters
    ----------
    clip : float
        C, the length that no row of outputs exceeds.
    noise : float
        The standard deviation of the noise on each output, in units of C.
    """

    clip: float = 1.0
    noise: float = 0.5

    name: ClassVar[str] = "noisy-embeddings"
    paper: ClassVar[str] = "Titcombe et al. 2021"
    veils: ClassVar[bool] = True

    def __post_init__(self) -> None:
        at_least("clip", self.clip, 0, strict=True, finite=True)
        at_least("noise", self.noise, 0, strict=True, finite=True)

    def around(self, module: Any, width: int) -> Any:
        """Return the module with the two numbers beside it, which are kept with it."""
        return noised(module, float(self.clip), float(self.noise))
