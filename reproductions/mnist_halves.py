"""MNIST's pictures of two digits, cut into a left and a right half, and the FedBCD paper's network for a half."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from colonnade.data.party import Party
from colonnade.networks.torch_modules import need_torch
from reproductions.datasets import Array, read_npz

SIDE = 28
HALVES = {"left": (1, SIDE, SIDE // 2), "right": (1, SIDE, SIDE // 2)}
_MEAN, _DEVIATION = 33.3, 78.6  # of MNIST's pixels

Pictures: TypeAlias = tuple[Array, Array]  # with their labels


def tower(channels: int, units: int, width: int, seed: int) -> Any:
    """The paper's CNN for pictures so many pixels wide; pooling after each convolution, parameters as Glorot's."""
    torch = need_torch()
    nn, c = torch.nn, channels
    flat = c * (SIDE // 4) * (width // 4)
    torch.manual_seed(seed)
    made = nn.Sequential(
        nn.Conv2d(1, c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(c, c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(flat, units), nn.ReLU(), nn.Linear(units, 1),
    )  # fmt: skip
    for layer in made:
        if hasattr(layer, "weight"):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return made


def pictures(data: Path, digits: tuple[int, int], rows: tuple[int, int], seed: int) -> tuple[Pictures, Pictures]:
    """(pictures, labels) of two digits, so many to train with and to test with, at most."""
    stored = read_npz(data, "mnist", ("X", "y", "X_test", "y_test"))
    parts = []
    for X, y, count in (("X", "y", rows[0]), ("X_test", "y_test", rows[1])):
        chosen = np.nonzero(np.isin(stored[y], digits))[0]
        chosen = np.random.default_rng([seed, 0x3157]).permutation(chosen)[:count]
        table = (stored[X][chosen].reshape(len(chosen), SIDE, SIDE).astype(np.float32) - _MEAN) / _DEVIATION
        parts.append((table, stored[y][chosen]))
    return parts[0], parts[1]


def halves(part: Pictures) -> list[Party]:
    """A left and a right half; the left one has the labels."""
    X, y = part
    left, right = (X[:, :, at : at + SIDE // 2].reshape(len(X), -1) for at in (0, SIDE // 2))
    return [Party("left", left, y), Party("right", right)]


def whole(part: Pictures) -> list[Party]:
    """All in one place."""
    return [Party("all", part[0].reshape(len(part[0]), -1), part[1])]
