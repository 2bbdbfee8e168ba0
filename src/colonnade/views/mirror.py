"""What others saw of a party, from what that party wrote down itself.

Whoever looks back on a run of its own has its own view and nobody else's. But what its partners saw of *it* left it:
its parts of sums and its signals. Between two parties that is all that the partner saw. Of more, masks hide whose part
is whose, so this is what all others could see together, or one of them that had the rest from elsewhere: an upper
bound for each.
"""

from __future__ import annotations

from dataclasses import replace

from colonnade.runtimes.net import CLEAR, DID, OWN, TOLD, TOTAL
from colonnade.views.view import Observation, View

OTHERS = "all others together"
ENCRYPTED_FOR = "all others"  # for whom a label holder's signals are, where it encrypts them
# Kinds of messages in which a party tells others something about rows, beside signals and parts of sums.
_SEEN_BY_ALL = ("step size", "verdict", "gamma", "move")


def mirrored(view: View) -> View:
    """Return the view that all others together have of this party, as far as this party can know it."""
    names = (OTHERS, view.me)
    owned = {OTHERS if holder != view.me else view.me: rows for holder, rows in view.owned.items()}
    found = View(OTHERS, names, owned=owned, rows=view.rows, options=view.options)
    found.widths = {view.me: view.widths[view.me]} if view.me in view.widths else {}
    for one in view.seen:
        found.seen += _as_seen_by_others(one, view.me)
    return found


# What others saw or did where this party did or saw something. What they put into a sum that this party gets is OWN to
# them: of two parties the other knows its own part, and so do all others of theirs together.
_TURNED = {OWN: TOTAL, TOTAL: OWN, TOLD: CLEAR, CLEAR: TOLD}


def _as_seen_by_others(one: Observation, me: str) -> list[Observation]:
    """Return what others saw where this party did or saw something."""
    if one.kind == DID or (one.kind == CLEAR and one.tag in _SEEN_BY_ALL):
        return [one]
    at_home = one.kind == OWN and one.party == me  # its part of a sum that it gets itself
    hidden = one.kind == TOLD and one.party == ENCRYPTED_FOR  # nobody sees these but as sums
    theirs = one.kind == CLEAR and one.tag != "signal"  # which nobody else need have seen
    if one.kind not in _TURNED or at_home or hidden or theirs:
        return []
    return [replace(one, kind=_TURNED[one.kind], party=me)]
