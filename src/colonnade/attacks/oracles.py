"""Who is a customer, asked of the services that answer about ids: alignment before a training, and scores after it.

De Cristofaro, Tsudik: "Practical private set intersection protocols with linear complexity", FC 2010: whoever fills its
set with guesses learns which of them the other side has, whatever the protocol; hence their authorised variant, and
the limits that a policy sets here. The attacker draws ids from a list in which some are the target's customers, whom it
does not know to be common, and asks until it is refused. The advantage is about the part of these customers that was
confirmed.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from colonnade.attacks.case import ALIGNED, PEOPLE, SCORED, Attack, Case, Guess


class Confirmed(Attack):
    """Ids that a service confirms, before all others. The base of both."""

    paper: ClassVar[str] = "De Cristofaro, Tsudik 2010"
    about: ClassVar[str] = PEOPLE
    needs: ClassVar[str] = "a list of ids"

    def guess(self, case: Case) -> Guess | None:
        """Ask about as many ids as the service takes at once, until it refuses."""
        ids = list(case.public.get("ids", ()))
        if case.ask is None or not ids:
            return None
        found, at_once = np.zeros(len(ids)), max(1, int(case.public.get("at once", len(ids))))
        order = case.rng("guessed ids").permutation(len(ids))
        answered = False
        for at in range(0, len(ids), at_once):
            some = order[at : at + at_once]
            known = case.ask([ids[place] for place in some])
            if known is None:
                break
            found[some], answered = np.where(known, 1.0, 0.0), True
        return Guess(np.arange(len(ids)), people=found) if answered else None


class ScoringOracle(Confirmed):
    """Ids that `colonnade predict` or `serve` would answer about."""

    name: ClassVar[str] = "guessed ids in scoring"
    closed_by: ClassVar[str] = '[policy] serve_people = "trained"'
    question: ClassVar[str] = SCORED


class AlignmentOracle(Confirmed):
    """Ids that an alignment would find in common."""

    name: ClassVar[str] = "guessed ids in alignment"
    closed_by: ClassVar[str] = "[policy] max_partner_ids"
    question: ClassVar[str] = ALIGNED
