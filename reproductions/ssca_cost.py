"""SSCA, Figure 1: training cost over rounds."""

from __future__ import annotations

from pathlib import Path

from reproductions.ssca_curves import curves

NAME = "ssca-cost"


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Tune, measure, print, and write tables and the plot to `out`."""
    curves(data, out=out, seed=seed, quick=quick, name=NAME, shown="cost")
