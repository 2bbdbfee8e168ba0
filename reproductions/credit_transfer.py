"""Credit-FTL of FedBCD's Table II: two networks on ucicreditcard, whose last layers learn on encrypted sums.

Each party is a process, but in the short form. Rounds are exchanges, of which each is followed by the test AUC.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from colonnade.algorithms import FedBCD
from colonnade.data.party import Party
from colonnade.errors import ColonnadeError
from colonnade.estimators.transfer import TransferClassifier
from colonnade.networks.torch_modules import need_torch
from colonnade.runtimes.net import Runtime
from reproductions.datasets import Array, Trial
from reproductions.fedbcd_encrypted import BANDWIDTH, DEMOGRAPHIC, LATENCY, PAPER
from reproductions.report import Curve, Table, rounds_text, rounds_to

STEPS, TARGETS = (1, 5, 10), (0.70, 0.75, 0.755)
L2, GAMMA = 1e-4, 0.05
FRESH = "representations"


@dataclass(frozen=True)
class Setting:
    """One training run; `rounds` is how many exchanges it has."""

    Q: int
    eta0: float
    rounds: int
    mu: float = 0.0
    exchange: str = FRESH

    def options(self, seed: int, **more: Any) -> FedBCD:
        """The algorithm; FedSGD is FedBCD-p with Q = 1."""
        given = {"step": self.eta0, "schedule": "sqrt", "tol": None, "seed": seed, "proximal": self.mu}
        return FedBCD(local_steps=self.Q, **{**given, **more})


def network(inputs: int, hidden: int, outputs: int, seed: int) -> Any:
    """A hidden layer, and a linear one behind it where there are outputs."""
    torch = need_torch()
    torch.manual_seed(seed)
    nn = torch.nn
    layers = [nn.Linear(inputs, hidden), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(hidden, outputs)) if outputs else nn.Sequential(*layers)


@dataclass(frozen=True)
class Encrypted:
    """A run under encryption: its curve, and seconds of both processors, bytes and messages of a round."""

    curve: Curve
    computing: float
    per_round: tuple[float, float]

    def until(self, rounds: float) -> tuple[float, float]:
        """(seconds of both processors, seconds on the line) of so many rounds."""
        sent, messages = self.per_round
        return rounds * self.computing, rounds * (messages * LATENCY + sent / BANDWIDTH)


class Credit:
    """The labels are with the demographic columns; the payments party has none, and its people are scored."""

    def __init__(self, trial: Trial, hidden: int, width: int, seed: int, on: Runtime | None = None) -> None:
        self.seed, self.on = seed, on
        self.train, self.test = self._parties(trial.X, trial.y), self._parties(trial.X_test, trial.y_test)
        self.networks = {
            party.name: network(party.features, hidden, width, seed + k) for k, party in enumerate(self.train)
        }

    @staticmethod
    def _parties(X: Array, y: Array) -> list[Party]:
        ids, payments = np.arange(len(y)), [j for j in range(X.shape[1]) if j not in DEMOGRAPHIC]
        return [Party("bank", X[:, DEMOGRAPHIC], y, ids=ids), Party("payments", X[:, payments], ids=ids)]

    def trained(self, setting: Setting) -> Encrypted | None:
        """One run; None where it diverges."""
        algorithm = setting.options(self.seed, epochs=setting.rounds)
        model = TransferClassifier(
            self.networks, gamma=GAMMA, l2=L2, algorithm=algorithm, protection="masked", verbose=0
        )
        try:
            model.fit(*self.train, validation=self.test, on=self.on)
        except ColonnadeError:
            return None
        traffic = model.traffic_.values()
        sent = sum(one.bytes for one in traffic) / model.rounds_
        # Of a round: numbers, blinded sums, opened sums, twice; and portions that wait for the one before them.
        portions = sum(one.by_step.get("pace", (0, 0))[0] for one in traffic) / model.rounds_
        seconds = sum(times.computing + times.communicating for times in model.times_.values())
        return Encrypted(Curve.of(model.history_), seconds / model.rounds_, (sent, 6 + 2 * portions))


def credit_table(name: str, title: str, found: Mapping[Setting, Encrypted | None], etas: Mapping[int, float]) -> Table:
    """Rounds and seconds to each target beside the paper's, of the runs with these eta0."""
    rows = []
    runs = {s.Q: found[s] for s in found if etas[s.Q] == s.eta0}
    for k, target in enumerate(TARGETS):
        for Q, one in runs.items():
            paper, comparable = PAPER[Q][k], k < 2
            told = [f"{target:g}", "FedSGD" if Q == 1 else "FedBCD-p", str(Q), f"{etas[Q]:g}"]
            if one is None:
                rows.append((*told, "diverges", "-", "-", "-", str(paper[0]), "-"))
                continue
            rounds, seconds = rounds_to(one.curve, target), ("-", "-", "-")
            if math.isfinite(rounds):
                computation, line = one.until(rounds)
                seconds = (f"{computation:.2f}", f"{line:.2f}", f"{computation + line:.2f}")
            of_paper = (str(paper[0]), f"{paper[1]:.1f} + {paper[2]:.1f}") if comparable else ("-", "-")
            rows.append((*told, rounds_text(rounds, one.curve.rounds[-1]), *seconds, *of_paper))
    header = ("AUC", "algorithm", "Q", "eta0", "R", "comp., s", "comm., s", "total, s", "paper R", "paper, min")
    known = {Q: one for Q, one in runs.items() if one is not None}
    words = [
        "A round: "
        + "; ".join(
            f"Q = {Q}: {one.computing:.2f} s of both processors, {one.per_round[0] / 1e6:.1f} MB, "
            f"{one.per_round[1]:.0f} messages one after another"
            for Q, one in known.items()
        )
        + "."
    ]
    return Table(name, title, header, rows, words)


def rank_of(one: Encrypted | None) -> tuple[float, ...]:
    """Fewest rounds to the highest target that is reached at all, then to the others, then the highest AUC."""
    if one is None:
        return (math.inf,) * (len(TARGETS) + 1)
    return (*(rounds_to(one.curve, target) for target in reversed(TARGETS)), -float(np.nanmax(one.curve.metric)))
