"""Who is a customer, asked of the services that answer about ids: alignment before a training, and scores after it.

Whoever may bring any ids finds out which of them the others have: Meadows, "A more efficient cryptographic matchmaking
protocol", IEEE S&P 1986, has the protocol; that guessed inputs pass any private set intersection is known since then.
De Cristofaro, Tsudik: "Practical private set intersection protocols with linear complexity", FC 2010, section 2, name
it and ask for limits on inputs, which is what a policy sets here. The attacker draws ids from a list in which
some are the target's customers, whom it does not know to be common, and asks until it is refused.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from colonnade.attacks.case import CUSTOMERS, PEOPLE, Attack, Case, Guess


class Confirmed(Attack):
    """Ids that a service confirms; of those that it says nothing of, nothing is known. The base of both."""

    paper: ClassVar[str] = "De Cristofaro, Tsudik 2010"
    about: ClassVar[str] = PEOPLE
    question: ClassVar[str] = CUSTOMERS
    needs: ClassVar[str] = "a list of ids"

    service: ClassVar[str]  # in `public`, the name of the one that `ask` asks

    def guess(self, case: Case) -> Guess | None:
        """Ask about as many ids as the service takes at once, until it refuses."""
        ids = list(case.public.get("ids", ()))
        if case.ask is None or not ids or case.public.get("service") != self.service:
            return None
        found, at_once = np.zeros(len(ids)), max(1, int(case.public.get("at once", len(ids))))
        order = case.rng("guessed ids").permutation(len(ids))
        answered = False
        for at in range(0, len(ids), at_once):
            some = order[at : at + at_once]
            known = case.ask([ids[place] for place in some])
            if known is None:
                break
            found[some], answered = np.where(known, 1.0, -1.0), True  # whom it denies is no customer
        return Guess(np.arange(len(ids)), people=found) if answered else None


class ScoringOracle(Confirmed):
    """Ids that `colonnade predict` or `serve` would answer about."""

    name: ClassVar[str] = "guessed ids in scoring"
    closed_by: ClassVar[str] = '[policy] serve_people = "trained"'
    service: ClassVar[str] = "scoring"


class AlignmentOracle(Confirmed):
    """Ids that an alignment would find in common."""

    name: ClassVar[str] = "guessed ids in alignment"
    closed_by: ClassVar[str] = "[policy] max_partner_ids"
    service: ClassVar[str] = "alignment"
