"""Boosted trees over two companies' columns, and what the one without labels has opened of its own.

    python examples/boosted_trees.py

A bank knows who repaid a loan, and a shop knows how people pay. What decides lies between their columns, in steps and
products that no line follows. The bank grows the trees; the shop adds up numbers that it can't read, and opens a few
cuts of its columns, at most eight ranges of each. docs/trees.md explains it.
"""

from __future__ import annotations

import numpy as np

import colonnade as cn


def main() -> None:
    """Train a straight line, trees of the bank alone, and trees of both; then see what the shop has opened."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(6000, 8))
    X[:, 7] = rng.integers(0, 8, 6000)  # a region, whose number means nothing
    late = (X[:, 4] > 0.4) & (X[:, 1] < 0.6)
    odds = 2.5 * late + np.where(np.isin(X[:, 7], (1, 4, 6)), 1.5, -1.0) + np.abs(X[:, 0]) - 1.5
    y = (odds + 0.3 * rng.logistic(size=6000) > 0).astype(int)
    X[rng.random((6000, 8)) < 0.03] = np.nan
    names = ("age", "income", "debts", "years", "reminders", "returns", "visits", "region")
    bank = cn.Party("bank", X[:, :4], y, columns=names[:4])
    shop = cn.Party("shop", X[:, 4:], columns=names[4:], categories=["region"])
    train, test = np.arange(4000), np.arange(4000, 6000)

    known = [cn.Party(one.name, np.nan_to_num(one.X), one.y) for one in (bank, shop)]
    line = cn.LogisticRegression(verbose=0).fit(*(one.take(train) for one in known))
    score = line.score(*(one.take(test) for one in known))
    print(f"a straight line through both companies' columns: {score:.1%} right")
    alone = cn.BoostedTreesClassifier(verbose=0).fit(bank.take(train))
    print(f"trees on the bank's own columns: {alone.score(bank.take(test)):.1%} right")
    both = cn.BoostedTreesClassifier(verbose=0).fit(bank.take(train), shop.take(train))
    print(f"trees on both companies' columns: {both.score(bank.take(test), shop.take(test)):.1%} right")

    gain = both.importance(by_party=True).normalised().gain
    print(f"of what splits gained, bank: {gain[0]:.0%}, shop: {gain[1]:.0%}")
    opened = ", ".join(f"{column} in {count}" for column, count in both.ranges_["shop"].items())
    print(f"the bank has learned the ranges of the shop's columns: {opened}")
    print("\n".join(both.draw(0).splitlines()[:4]))


if __name__ == "__main__":
    main()
