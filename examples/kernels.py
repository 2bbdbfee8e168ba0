"""Kernels: where no straight line separates the classes, and neither party sees the shape alone.

    python examples/kernels.py

The classes are two rings around the origin, and each party holds one of the two coordinates, beside a column of noise.
A straight line over both coordinates does no better than a coin. FDSKL (Gu et al. 2020) learns over random features of
a kernel that takes in all columns together: each party draws its own part of every random direction, and what the
parties exchange are angles.
"""

from __future__ import annotations

import numpy as np

import colonnade as cn


def main() -> None:
    """A linear model beside a kernel, trained on 600 people and tried on 400 others."""
    rng = np.random.default_rng(0)
    inner = rng.random(1000) < 0.5
    angle, radius = rng.uniform(0, 2 * np.pi, 1000), np.where(inner, 1.0, 2.0) + rng.normal(0, 0.25, 1000)
    X = np.column_stack([radius * np.cos(angle), rng.normal(size=1000), radius * np.sin(angle), rng.normal(size=1000)])
    y = np.where(inner, "inner", "outer")
    train, test = np.arange(600), np.arange(600, 1000)

    def parties(rows: np.ndarray) -> tuple[cn.Party, cn.Party]:
        """Both parties, with these rows."""
        return cn.Party("bank", X[rows, :2], y[rows]), cn.Party("shop", X[rows, 2:])

    for name, model in (
        ("a straight line", cn.LogisticRegression(verbose=0)),
        ("an rbf kernel", cn.KernelClassifier(gamma=0.5, features=512, verbose=0)),
    ):
        model.fit(*parties(train))
        print(f"{name}: {model.score(*parties(test)):.1%} of {len(test)} test rows right")


if __name__ == "__main__":
    main()
