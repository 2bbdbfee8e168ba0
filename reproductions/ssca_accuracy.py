"""SSCA, Figure 2: test accuracy over rounds, of the same runs as in Figure 1."""

from __future__ import annotations

from pathlib import Path

from reproductions.ssca_curves import curves

NAME = "ssca-accuracy"


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Tune, measure, print, and write tables and the plot to `out`."""
    curves(data, out=out, seed=seed, quick=quick, name=NAME, shown="accuracy")
