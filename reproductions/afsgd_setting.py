"""The setting of AFSGD-VP's experiments: which data sets, how many parties, and one of them slower.

Gu et al., "Privacy-Preserving Asynchronous Vertical Federated Learning Algorithms for Multiparty Collaborative
Learning", TNNLS 2021, Section V: all parties hold labels, and the synthetic straggler computes at a third of the speed.
Its listener is another thread, which answers as fast as ever. Four workers on the credit and regression sets, sixteen
on url, eight on the others.
"""

from __future__ import annotations

from collections.abc import Iterable

from reproductions.stage import UPDATES_AT_A_THIRD, Run, clock_said
from reproductions.twins import epochs_said, goals

PARTIES = {
    "UCICreditCard": 4,
    "GiveMeSomeCredit": 4,
    "rcv1.binary": 8,
    "url": 16,
    "news20": 8,
    "rcv1.multiclass": 8,
    "E2006-tfidf": 4,
    "YearPredictionMSD": 4,
    "casp": 4,  # real, and not in the paper
}


def runs_on(sets: Iterable[str], estimators: tuple[str, ...], *, quick: bool) -> list[Run]:
    """The asynchronous one of every pair of twins."""
    return [
        Run(name, kind, True, PARTIES[name], PARTIES[name], goals(kind, quick=quick), UPDATES_AT_A_THIRD)
        for name in sets
        for kind in estimators
    ]


def settings_said(epochs: int) -> list[str]:
    """What all runs have in common."""
    return [
        f"All parties hold labels; the updates of one take three times as long, its listener answers at full speed. "
        f"lambda 1e-4, no intercept, {epochs_said(epochs)}.",
        clock_said("a regular party"),
        "Steps are in units of 1 / curvature, from a ladder of factors of two, and half-way between around the best. "
        "Real targets are standardised.",
    ]
