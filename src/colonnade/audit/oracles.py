"""Whom a party's services confirm to somebody who guesses ids: cases of attacks that ask, and what they may ask.

This room knows no services. Whoever has one gives a function that asks it, `service.oracles` for those of a party.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.attacks.case import Case
from colonnade.audit.measures import Truth
from colonnade.views.view import View

_MOST = 500  # customers that are among the guesses; as many guesses are nobody


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
