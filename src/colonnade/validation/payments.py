"""What a party has paid for the held-out scores of each candidate: nobody is sent more often than was paid for.

One payment is about everybody once, as all folds together are. It is made when the first score leaves that no earlier
payment is for, and it outlives a run that is broken off: one that goes on pays for people whose scores may have left
before and leave again, and for nobody else. So a partner who breaks runs off gets no other numbers for nothing, and
who was unlucky with a line pays nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from colonnade.engine.kept import Keeper

Place = tuple[int, int]  # a candidate, and a fold


class Payments:
    """Payments of one party, in all runs of one job on the same rows."""

    def __init__(
        self,
        numbers: Sequence[float],
        keeper: Keeper | None,
        charge: Callable[[float], None],
        cover: Callable[[float], None],
    ) -> None:
        """Take what was paid and sent before from the keeper.

        Parameters
        ----------
        numbers
            Numbers about a person that one score is, of each candidate.
        keeper
            Where payments are kept; None keeps nothing.
        charge, cover
            Counts numbers that leave from now on, or lets some out that an earlier run has paid for.
        """
        self._numbers, self._keeper, self._charge, self._cover = numbers, keeper, charge, cover
        self._paid, self._sent, self._version = dict[int, int](), dict[Place, int](), 0
        self._let_out: set[int] = set()  # in this run
        if keeper is not None and (versions := keeper.versions()):
            self._version = max(versions)
            paid, sent = keeper.load(self._version)
            self._paid, self._sent = dict(paid), {(candidate, fold): count for candidate, fold, count in sent}

    def due(self, pending: Iterable[Place]) -> float:
        """Return the numbers that have to be paid for these fits to be scored."""
        needs: dict[int, int] = {}
        for place in pending:
            needs[place[0]] = max(needs.get(place[0], 0), self._sent.get(place, 0) + 1)
        return sum(self._numbers[one] * max(0, count - self._paid.get(one, 0)) for one, count in needs.items())

    def send(self, place: Place) -> None:
        """Pay for the scores of one fit, which leave next, unless that was done already."""
        candidate, count = place[0], self._sent.get(place, 0) + 1
        if count > self._paid.get(candidate, 0):
            self._charge(self._numbers[candidate])  # first, so that nothing is taken for paid that was not
            self._paid[candidate] = count
        elif candidate not in self._let_out:
            self._cover(self._numbers[candidate])
        self._let_out.add(candidate)
        self._sent[place] = count
        if self._keeper is not None:
            self._version += 1
            sent = tuple((*one, times) for one, times in sorted(self._sent.items()))
            self._keeper.save(self._version, (tuple(sorted(self._paid.items())), sent))
