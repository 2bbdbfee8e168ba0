"""A masked sum with all its members and its server in one place, for tests."""

from __future__ import annotations

import numpy as np

from colonnade.crypto.masks import KeyPair
from colonnade.sums.dropout import Collector, Member, SumTerms, default_threshold


def names_of(members):
    return tuple(f"site{k}" for k in range(members))


class Sum:
    """All members and the server, stage by stage; whoever is in `silent[stage]` does not answer that stage."""

    def __init__(self, members=10, threshold=None, size=6, silent=((),) * 5, serial=1, identities=None):
        self.threshold = threshold or default_threshold(members)
        terms, names = SumTerms(names_of(members), serial, self.threshold), names_of(members)
        roster = identities and {name: one.key for name, one in zip(names, identities, strict=True)}
        who = identities or [None] * members
        self.members = {k: Member(k, terms, KeyPair(), who[k], roster) for k in range(members)}
        self.values = np.random.default_rng(members).integers(0, 2**64, size=(members, size), dtype=np.uint64)
        self.server, self.silent, self.here = Collector(self.threshold), silent, list(range(members))
        self.seen = {}

    def answers(self, stage, action):
        self.here = [k for k in self.here if k not in self.silent[stage]]
        found = {k: action(self.members[k]) for k in self.here}
        self.seen[stage] = found
        return found if self.server.enough(found) else None

    def masked(self):
        """Stages 0 to 2, whole: what the server has before it asks who is left."""
        told = self.server.keys(self.answers(0, lambda m: m.public))
        letters = self.server.letters(self.answers(1, lambda m: m.share(told)))
        self.answers(2, lambda m: m.mask(letters[m.number], self.values[m.number]))

    def run(self):
        keys = self.answers(0, lambda m: m.public)
        if keys is None:
            return None
        told = self.server.keys(keys)
        shares = self.answers(1, lambda m: m.share(told))
        if shares is None:
            return None
        letters = self.server.letters(shares)
        masked = self.answers(2, lambda m: m.mask(letters[m.number], self.values[m.number]))
        if masked is None:
            return None
        survivors = self.server.values(masked)
        signed = self.answers(3, lambda m: m.sign(survivors))
        if signed is None:
            return None
        opened = self.answers(4, lambda m: m.unmask(signed))
        return None if opened is None else (self.server.total(opened), survivors)


def mutations(value, hostile):
    """The value with each of its parts, and itself, replaced by each of the hostile ones."""
    yield from hostile
    if isinstance(value, tuple):
        for place, part in enumerate(value):
            for changed in mutations(part, hostile):
                yield (*value[:place], changed, *value[place + 1 :])
