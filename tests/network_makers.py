"""Networks that parties' processes import by name."""

from __future__ import annotations

import torch
from torch import nn


class Gate(nn.Module):
    """A layer that torch does not have."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * self.scale


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Dropout(0.2), nn.Linear(5, 1))


def gated() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), Gate(5), nn.Linear(5, 1))


def wrong() -> int:
    return 3


def raises() -> nn.Module:
    raise RuntimeError("no layers today")


def embedding() -> nn.Module:
    """Four columns as eight numbers."""
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8))
