"""What a party's own services would tell somebody who guesses ids, by its policy: the cases of an audit.

The party plays both sides with its own ids: the alignment and the gate in front of scores are those of a real run. No
partner is asked, and nothing is counted against anybody's budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.alignment.protocol import align
from colonnade.attacks.case import ALIGNED, SCORED, Case
from colonnade.audit.measures import Truth
from colonnade.audit.oracles import Guesses, guesses, oracle_case
from colonnade.data.ids import canonical
from colonnade.errors import PolicyRefused, TooFewInCommon
from colonnade.jobs.people import DAY, Gate
from colonnade.jobs.policy import Policy
from colonnade.runtimes.simulation import Simulation
from colonnade.service.scoring import Directory

Array = npt.NDArray[Any]
Bits = npt.NDArray[np.bool_]

_AT_ONCE = 100  # ids of a question about scores: of larger ones, a refusal costs an attacker more
_OTHERS = 5_000  # of the party's own ids beside those that are guessed, in an alignment that is played


def oracle_cases(
    policy: Policy,
    me: str,
    ids: Any,
    trained: frozenset[str],
    served: frozenset[str] | None,
    askers: Sequence[str],
    *,
    days: int = 1,
    runs: int = 1,
    seed: int = 0,
) -> Iterator[tuple[Case, Truth]]:
    """Return what each partner could find out by guessing ids, and the truth.

    Parameters
    ----------
    policy
        The party's own.
    me, ids
        The party, and the ids in its table.
    trained
        Whom all parties have in common, by the last training.
    served
        About whom it answers, as `jobs.people.served` says; None is everybody.
    askers
        The partners that ask for scores or take part in alignments.
    days
        How many days a partner goes on asking for scores.
    runs
        How many trainings, each with an alignment, it takes part in.
    seed
        Of the guesses.
    """
    own = [str(one) for one in canonical(np.asarray(ids), f"party {me!r}").tolist()]
    found = guesses(own, trained, seed)
    if found is None:
        return
    for asker in askers:
        size = max(_AT_ONCE, policy.min_prediction)
        yield oracle_case(asker, me, SCORED, found, scoring(policy, asker, own, served, days), size, seed)
        least = policy.partner_ids(len(own))
        yield oracle_case(asker, me, ALIGNED, found, aligning(policy, asker, me, own, found, runs), least, seed)


def scoring(
    policy: Policy, asker: str, own: list[str], served: frozenset[str] | None, days: int = 1
) -> Callable[[list[str]], Bits | None]:
    """Return what asks for scores, day after day, until this party's gate does not answer any more."""
    directory, most = Directory(np.array(own, dtype=object), served), policy.people_per_day(_count(served))
    at = [0, 0]  # which day it is, and how many were answered about on it

    def ask(some: list[str]) -> Bits | None:
        while True:
            with TemporaryDirectory() as folder:  # the real count of the day is not touched
                gate = Gate(Path(folder) / "asked.json", asker, policy.min_prediction, most - at[1], today=lambda: "")
                refusal = gate(len(some))
            if refusal is None:
                at[1] += len(some)
                return directory.find(some)[1]
            if refusal[0] != DAY or not at[1] or at[0] + 1 == days:
                return None
            at[:] = at[0] + 1, 0

    return ask


def _count(served: frozenset[str] | None) -> int | None:
    return None if served is None else len(served)


def aligning(
    policy: Policy, asker: str, me: str, own: list[str], found: Guesses, runs: int = 1
) -> Callable[[list[str]], Bits | None]:
    """Return what brings ids to an alignment with this party, in as many runs as there are."""
    asked, left = set(found.ids), [runs]
    present = [one for one in own if one in asked]
    rest = [one for one in own if one not in asked][:_OTHERS]

    def ask(some: list[str]) -> Bits | None:
        if not left[0]:
            return None
        left[0] -= 1

        async def guess(net: Any) -> Any:
            return await align(net, np.array(some, dtype=object), leader=asker)

        async def answer(net: Any) -> Any:
            most = policy.partner_ids(len(own))
            return await align(net, np.array([*present, *rest], dtype=object), leader=asker, max_partner_ids=most)

        bits = np.zeros(len(some), dtype=bool)
        try:
            bits[Simulation().run({asker: (guess, ()), me: (answer, ())})[asker].value] = True
        except TooFewInCommon:
            return bits
        except PolicyRefused:
            return None
        return bits

    return ask
