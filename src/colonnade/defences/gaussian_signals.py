"""Label differential privacy by the Gaussian mechanism: signals are cut off, and noise is added before anybody steps.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: "Deep learning with differential privacy", CCS 2016,
algorithm 1, for what another label changes: the signal of its own row. A signal is cut to a length, so that another
label moves it by twice that at most (of the logistic loss by 1, of softmax by the root of 2), and normal noise is added
whose deviation is a multiple of it. The label holder steps with what it tells, and so do its verdicts not depend on
labels: every message follows from the noisy signals. The order of rows is public, so nothing is gained by sampling, and
a row's releases are counted one by one; the accountant is a library's (`accountant`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.defences.accountant import GAUSSIAN, Release, most_times
from colonnade.defences.base import FloatArray, Guard, SignalDefence
from colonnade.defences.drawing import SecretNormals
from colonnade.errors import OptionError, PrivacySpent, at_least
from colonnade.leaks import OF_LABELS, Setting
from colonnade.objective import losses

_MOVES = {"logistic": 1.0, "softmax": math.sqrt(2.0)}  # what another label moves a signal by, at most


@dataclass(frozen=True, kw_only=True)
class GaussianSignals(SignalDefence):
    """Noise on signals with a bound on what all of them together tell of a label.

    Parameters
    ----------
    noise : float
        The deviation of the noise, in parts of what another label moves a signal by, above 0.
    epsilon : float
        What all signals about a row may add up to; training ends before it is exceeded.
    delta : float
        The delta that goes with it.
    clip : float
        The length that a signal is cut to, above 0.
    """

    noise: float
    epsilon: float
    delta: float = 1e-6
    clip: float = 1.0

    name: ClassVar[str] = "gaussian-signals"
    paper: ClassVar[str] = "Abadi et al. 2016"
    protects: ClassVar[str] = OF_LABELS
    families: ClassVar[tuple[str, ...]] = ("linear", "torch")
    algorithms: ClassVar[tuple[str, ...]] = ("FedSGD", "VFB2")
    private: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for option in ("noise", "epsilon", "delta", "clip"):
            at_least(option, getattr(self, option), 0, strict=True, finite=True)
        if self.delta >= 1:
            raise OptionError(f"delta must be below 1, got {self.delta!r}")

    def check(self, model: str, family: str, algorithm: Any, setting: Setting) -> None:
        """Refuse what would tell of labels beside the signals, and a budget that is spent before the first step."""
        super().check(model, family, algorithm, setting)
        # Where a loss's curvature has no bound, the length of steps follows from labels, and everybody is told it.
        if setting.weighted or not math.isfinite(losses.loss(setting.loss).curvature_bound):
            what = "weights of rows" if setting.weighted else f"the loss {setting.loss!r}"
            raise OptionError(
                f"the defence {self.name!r} bounds what labels change, and {what} may tell more; leave it out"
            )
        if len(setting.holders) > 1:
            raise OptionError(
                f"the defence {self.name!r} needs exactly one label holder, got {', '.join(map(repr, setting.holders))}"
            )
        if algorithm.schedule == "adaptive":
            raise OptionError(
                f"the defence {self.name!r} hides how well a step did, by which schedule='adaptive' goes; give the "
                f"algorithm schedule='sqrt' or 'constant'"
            )
        for option in ("goal", "metric_goal"):
            if getattr(algorithm, option) is not None:
                raise OptionError(f"the defence {self.name!r} hides when a goal is reached; leave {option} out")
        if not self.times:
            raise OptionError(
                f"epsilon {self.epsilon:g} is spent before the first step: one signal with noise {self.noise:g} takes "
                f"more for delta {self.delta:g}; give more noise, or a larger epsilon"
            )

    @property
    def release(self) -> Release:
        """One signal of a row."""
        return Release(GAUSSIAN, float(self.noise))

    @property
    def times(self) -> int:
        """How many signals of a row may be told."""
        return most_times(self.release, self.epsilon, self.delta)

    def moves(self, loss: str) -> float:
        """Return by how much another label moves a signal at most."""
        return min(2.0 * self.clip, _MOVES.get(loss, math.inf))

    def guard(self, secret: bytes, outputs: int) -> Guard:
        """Return signals as they are: `SignalNoise` has been on them before anybody steps."""
        return lambda signal, y: signal


class SignalNoise:
    """The noise of one run, and how many signals of each row were told; a part of what checkpoints keep."""

    def __init__(self, defence: GaussianSignals, secret: bytes, loss: str, rows: int) -> None:
        self.defence, self._normals = defence, SecretNormals(secret)
        self._deviation = defence.noise * defence.moves(loss)
        self.counts = np.zeros(rows, dtype=np.int64)
        self._before = 0  # the largest count at the last look

    @property
    def told(self) -> int:
        """How many signals of a row were told, at most."""
        return int(self.counts.max(initial=0))

    def needs(self, rows: npt.NDArray[np.int64]) -> int:
        """Return by how much the largest count rises with signals of these rows; refuse what is more than allowed."""
        found = max(0, int(self.counts[rows].max(initial=-1)) + 1 - self.told)
        if self.told + found > self.defence.times:
            raise PrivacySpent(
                f"another signal would tell of labels more than epsilon {self.defence.epsilon:g} for delta "
                f"{self.defence.delta:g}, which {self.told} signals of a row have spent; train no further, or agree on "
                f"a larger epsilon"
            )
        return found

    def __call__(self, signal: FloatArray, rows: npt.NDArray[np.int64]) -> FloatArray:
        """Cut signals off and add noise; count them."""
        self.counts[rows] += 1
        flat = signal.reshape(len(rows), -1)
        lengths = np.linalg.norm(flat, axis=1, keepdims=True)
        cut = flat * np.minimum(1.0, self.defence.clip / np.maximum(lengths, 1e-300))
        found: FloatArray = (cut + self._deviation * self._normals.draw(flat.shape)).reshape(signal.shape)
        return found

    def over(self) -> bool:
        """Whether as many signals as were told since the last look would be too many."""
        since, self._before = self.told - self._before, self.told
        return self.told + max(since, 1) > self.defence.times

    def freeze(self) -> Any:
        """Return what was told; see `engine.kept.Frozen`."""
        return (self.counts, self._before)

    def thaw(self, state: Any) -> None:
        """Take back what `freeze` gave; rows count as often as they were told of since, if that is more."""
        counts, self._before = state
        self.counts = np.maximum(self.counts, counts)
