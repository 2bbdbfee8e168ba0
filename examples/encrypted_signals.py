"""Encrypted signals: the same model, without sending the partner every label.

    python examples/encrypted_signals.py

The signal that a label holder sends back in ordinary training is dL/dz, and for the logistic loss its sign *is* the
label: the shop reads every label off what it receives. Here the signals are then encrypted (ring-LWE, under a key of
the label holder's own), the shop's gradients and coefficients are in shares until the end, and the coefficients come
out the same. docs/security.md says what is left.
"""

from __future__ import annotations

import numpy as np

import colonnade as cn


def main() -> None:
    """Train in the clear and under encryption, and compare what the shop gets to see."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(600, 9))
    y = (X @ rng.normal(size=9) + rng.normal(size=600) > 0).astype(int)
    bank, shop = cn.Party("bank", X[:, :5], y), cn.Party("shop", X[:, 5:])

    side, score = np.where(y == 1, 1, -1), 0.0  # as in the first round
    signal = -side / (1 + np.exp(side * score))  # what a label holder sends about each person
    print(f"labels that the signs of signals show: {((signal < 0) == (y == 1)).mean():.0%}")

    algorithm = cn.FedBCD(local_steps=5, epochs=5, batch=100)
    models = {}
    for kind in ("plain", "encrypted"):
        models[kind] = cn.LogisticRegression(sum=kind, algorithm=algorithm, verbose=0).fit(bank, shop)
        steps = models[kind].traffic_["bank"].by_step
        sent = {step: size for step, (_, size) in steps.items() if "signal" in step}
        print(f"{kind}: {models[kind].score(bank, shop):.1%} right; the bank has sent {sent}")
    coefs = [models[kind].coef_ for kind in ("plain", "encrypted")]
    apart = max(np.abs(coefs[0][name] - coefs[1][name]).max() for name in ("bank", "shop"))
    print(f"the coefficients of the two models differ by {apart:.0e} at most")


if __name__ == "__main__":
    main()
