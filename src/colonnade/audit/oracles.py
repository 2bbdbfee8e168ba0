"""Whom a party's services confirm to somebody who guesses ids: cases of attacks that ask, and what answers them.

A party plays both sides with its own ids, by the limits of its own policy. The alignment is the one of a real run, and
scores are answered by the rule of the gate before them (`jobs.people.Gate`, which this room does not know; a test holds
the two together). No partner is asked, and nothing is counted against anybody's budget.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.alignment.protocol import align
from colonnade.attacks.case import ALIGNED, SCORED, Case
from colonnade.audit.measures import Truth
from colonnade.data.ids import canonical
from colonnade.errors import PolicyRefused, TooFewInCommon
from colonnade.runtimes.simulation import Simulation
from colonnade.views.view import View

Bits = npt.NDArray[np.bool_]

_MOST = 500  # customers that are among the guesses; as many guesses are nobody
_AT_ONCE = 100  # ids of a question about scores: of larger ones, a refusal costs an attacker more
_OTHERS = 5_000  # of the party's own ids beside those that are guessed, in an alignment that is played


@dataclass(frozen=True)
class Limits:
    """How much a party's services answer, by its policy.

    Attributes
    ----------
    served
        About whom it answers, as `jobs.people.served` says; None is everybody.
    at_least
        The fewest people of a question about scores: `min_prediction`.
    a_day
        The most people about whom one asker is answered in a day: `Policy.people_per_day`.
    partner_ids
        The most ids that a partner may bring to an alignment: `Policy.partner_ids`.
    days
        How many days a partner goes on asking for scores.
    runs
        How many trainings, each with an alignment, the party takes part in.
    """

    served: frozenset[str] | None
    at_least: int = 1
    a_day: int = 10_000
    partner_ids: int = 10_000
    days: int = 1
    runs: int = 1


def oracle_cases(
    limits: Limits, me: str, ids: Any, common: Collection[str], askers: Sequence[str], seed: int = 0
) -> Iterator[tuple[Case, Truth]]:
    """Return what each partner could find out about a party by guessing ids, and the truth.

    Parameters
    ----------
    limits
        What the party's services answer.
    me, ids
        The party, and the ids in its table.
    common
        Whom all parties have in common, by the last training: each of them knows who these are.
    askers
        The partners that ask for scores or take part in alignments.
    seed
        Of the guesses.
    """
    own = [str(one) for one in canonical(np.asarray(ids), f"party {me!r}").tolist()]
    found = guesses(own, common, seed)
    if found is None:
        return
    for asker in askers:
        size = max(_AT_ONCE, limits.at_least)
        yield oracle_case(asker, me, SCORED, found, scoring(limits, own), size, seed)
        yield oracle_case(asker, me, ALIGNED, found, aligning(limits, asker, me, own, found), limits.partner_ids, seed)


@dataclass(frozen=True)
class Guesses:
    """A list of ids in which half are customers of whom the attacker does not know that they are.

    Attributes
    ----------
    ids
        The ids, in an order that says nothing.
    customers
        Which of them are the target's customers.
    """

    ids: tuple[str, ...]
    customers: npt.NDArray[np.bool_]


def guesses(customers: Collection[str], common: Collection[str], seed: int = 0, most: int = _MOST) -> Guesses | None:
    """Return guesses about a party: customers that are not common to all parties, and ids that nobody has.

    Whom the parties have in common each of them knows. None where there is nobody else.
    """
    rng, known = np.random.default_rng([seed, 0x1D5]), set(common)
    hidden = sorted(set(customers) - known)
    if not hidden:
        return None
    some = [hidden[at] for at in rng.permutation(len(hidden))[:most].tolist()]
    nobody: list[str] = []
    taken = {*customers, *known}
    while len(nobody) < len(some):
        made = _alike(some[len(nobody)], rng)
        if made not in taken:
            nobody.append(made)
            taken.add(made)
    order = rng.permutation(2 * len(some))
    both, inside = [*some, *nobody], np.arange(2 * len(some)) < len(some)
    return Guesses(tuple(both[at] for at in order.tolist()), inside[order])


def _alike(one: str, rng: np.random.Generator) -> str:
    """Return an id that looks like another one, with another number behind it."""
    return f"{one.rstrip('0123456789')}{int(rng.integers(10**12)):012}"


def oracle_case(
    attacker: str,
    target: str,
    question: str,
    ids: Guesses,
    ask: Callable[[list[str]], Any],
    at_once: int,
    seed: int = 0,
) -> tuple[Case, Truth]:
    """Return the case of an attacker that asks one service of a party about ids, and who of them are customers.

    Parameters
    ----------
    attacker, target
        Who asks, and whose customers are looked for.
    question
        SCORED or ALIGNED, by the service that is asked.
    ids
        What the attacker guesses.
    ask
        Returns for each of some ids whether the service confirms it; None where it refuses to answer.
    at_once
        About how many ids it can be asked at once.
    seed
        Of the order in which ids are tried.
    """
    public = {"ids": ids.ids, "at once": at_once}
    view = View(attacker, (attacker, target), rows=len(ids.ids))
    case = Case(view, target, "", public=public, ask=ask, seed=seed)
    return case, Truth(np.zeros((len(ids.ids), 0)), (), answers={question: ids.customers})


def scoring(limits: Limits, own: Collection[str]) -> Callable[[list[str]], Bits | None]:
    """Return what asks for scores, day after day, until the party does not answer any more."""
    answers = set(own) if limits.served is None else limits.served & set(own)
    at = [0, 0]  # which day it is, and about how many people was answered on it

    def ask(some: list[str]) -> Bits | None:
        if len(some) < limits.at_least:
            return None
        if at[1] and len(some) > limits.a_day - at[1] and at[0] + 1 < limits.days:
            at[:] = at[0] + 1, 0
        if len(some) > limits.a_day - at[1]:
            return None
        at[1] += len(some)
        return np.array([one in answers for one in some], dtype=bool)

    return ask


def aligning(
    limits: Limits, asker: str, me: str, own: Sequence[str], found: Guesses
) -> Callable[[list[str]], Bits | None]:
    """Return what brings ids to an alignment with the party, in as many runs as there are."""
    asked, left = set(found.ids), [limits.runs]
    present = [one for one in own if one in asked]
    rest = [one for one in own if one not in asked][:_OTHERS]
    table = np.array([*present, *rest], dtype=object)

    def ask(some: list[str]) -> Bits | None:
        if not left[0]:
            return None
        left[0] -= 1

        async def guess(net: Any) -> Any:
            return await align(net, np.array(some, dtype=object), leader=asker)

        async def answer(net: Any) -> Any:
            return await align(net, table, leader=asker, max_partner_ids=limits.partner_ids)

        bits = np.zeros(len(some), dtype=bool)
        try:
            bits[Simulation().run({asker: (guess, ()), me: (answer, ())})[asker].value] = True
        except TooFewInCommon:
            return bits
        except PolicyRefused:
            return None
        return bits

    return ask
