"""Several label holders: two banks know the outcomes of different customers, a shop knows none.

    python examples/several_label_holders.py

Each bank has labels only for the people whom it lent money, and all three have columns about everybody. One model is
trained on all labels together. With three parties, contributions are summed under masks: nobody sees another's alone.
"""

from __future__ import annotations

import numpy as np

import colonnade as cn


def main() -> None:
    """Train with one bank's labels, then with both, and compare on people whom neither has lent to yet."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(900, 18))
    repaid = np.where(X @ rng.normal(size=18) + 2 * rng.normal(size=900) > 0, "repaid", "lost")
    lent_by_north, lent_by_south, new = np.arange(120), np.arange(120, 400), np.arange(400, 900)

    def parties(rows: np.ndarray, *holders: str) -> list[cn.Party]:
        """The three parties with these rows; a bank that is named brings the labels that it has."""
        labels = {}
        for name, lent in (("north", lent_by_north), ("south", lent_by_south)):
            known = np.full(900, None, dtype=object)  # None: this bank does not know
            known[lent] = repaid[lent]
            labels[name] = known[rows] if name in holders else None
        return [
            cn.Party("north", X[rows, :5], labels["north"]),
            cn.Party("south", X[rows, 5:10], labels["south"]),
            cn.Party("shop", X[rows, 10:]),
        ]

    future = parties(new)
    for rows, holders in ((lent_by_north, ["north"]), (np.arange(400), ["north", "south"])):
        model = cn.LogisticRegression(l2=1e-2, verbose=0).fit(*parties(rows, *holders))
        right = (model.predict(*future) == repaid[new]).mean()
        print(f"labels of {' and '.join(model.holders_)}, {len(rows)} people: {right:.1%} of the new ones right")
    print("contributions were summed under masks; each party has sent:")
    for name, left in model.traffic_.items():
        print(f"  {name}: {left.bytes:,} bytes in {left.messages} messages")


if __name__ == "__main__":
    main()
