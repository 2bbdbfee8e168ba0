"""Networks: a torch module at each party, and a top network for what lies between their columns (the extra `torch`).

    python examples/networks.py

The outcome depends on the *product* of a column at the bank and one at the shop. Networks whose outputs are added up
cannot learn a product of two parties' columns; a top network at the label holder, which sees both outputs, can. It
costs privacy: the label holder gets each party's embedding in the clear, and Colonnade warns of that.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import nn

import colonnade as cn


def bottom(width: int) -> nn.Sequential:
    """A party's own network, over its three columns."""
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, width))


def main() -> None:
    """Two networks that are added up, then the same with a top network."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 6))
    y = (X[:, 0] * X[:, 3] > 0).astype(int)
    train, test = np.arange(900), np.arange(900, 1200)

    def parties(rows: np.ndarray) -> tuple[cn.Party, cn.Party]:
        """Both parties, with these rows."""
        return cn.Party("bank", X[rows, :3], y[rows]), cn.Party("shop", X[rows, 3:])

    algorithm = cn.FedSGD(epochs=30, tol=None)
    added = cn.NetworkClassifier(
        {"bank": bottom(1), "shop": bottom(1)}, optimizer="adam", algorithm=algorithm, verbose=0
    ).fit(*parties(train))
    print(f"outputs added up: {added.score(*parties(test)):.1%} of {len(test)} test rows right")

    split = cn.NetworkClassifier(
        {"bank": bottom(8), "shop": bottom(8)},
        top=nn.Sequential(nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)),
        optimizer="adam",
        algorithm=algorithm,
        verbose=0,
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        split.fit(*parties(train))
    print(f"with a top network: {split.score(*parties(test)):.1%}")
    print(f"and a warning: {told[0].message}")


if __name__ == "__main__":
    main()
