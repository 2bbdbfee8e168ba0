"""A trained model in use: one label holder asks about people by their ids, the others serve, the scores are summed.

    asker -> all     the ids it asks about, in the clear: whom it scores, its partners get to know
    all -> asker     for each of them a bit, whether this party answers about the person; or why it answers about none
    all              contributions, summed at the asker as in training; noise for people that are not answered about

A score counts only where every party answers about the person; of all others the asker learns no total. A person whom a
party does not know and one about whom it does not answer (see `people`) are the same to it from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.blocks.column_values import columns_to_value
from colonnade.blocks.columns import Columns
from colonnade.data.ids import pack, unpack
from colonnade.errors import PolicyRefused, ProtocolError, RunFailed
from colonnade.families.scoring import Scorer
from colonnade.jobs.people import DAY, FEW, Refusal
from colonnade.leaks import ASKED, OF_COLUMNS, OF_PEOPLE, PREDICTED, Leak, Setting
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array
from colonnade.streams.streamed_columns import opened
from colonnade.sums import SecureSum, open_sum
from colonnade.workers.engine import Engine

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
_DONE, _ASK = "done", "ask"


def scoring_leaks(setting: Setting) -> tuple[Leak, ...]:
    """Declare what a model in use shows, beside contributions to the scores of those who are asked about."""
    words = "{who} will learn whom you ask about, when you ask for predictions"
    known = (
        "{who}, asking for predictions, will learn of everybody whom they name whether you serve them, by default the "
        "people in common alone"
    )
    part = "{who}, asking for predictions, will see your part of the score of everybody whom they name"
    # What is trained in the open declares it with its exchanges, and trees the ranges that their predictions tell.
    added = () if not setting.sealed or setting.model == "trees" else (
        Leak(
            PREDICTED, OF_COLUMNS, setting.parties, setting.holders, ("prediction",),
            part + ("" if setting.pair else ", added to {theirs}"),
        ),
    )  # fmt: skip
    return (
        *added,
        Leak(ASKED, OF_PEOPLE, setting.holders, setting.parties, ("scoring",), words),
        Leak(ASKED, OF_PEOPLE, setting.parties, setting.holders, ("scoring",), known),
    )


class Directory:
    """Where each person is in a table; whoever is not in `only` is as unknown as whoever is not in the table.

    Of a person with several rows it is the first one.
    """

    def __init__(self, ids: Array, only: Set[str] | None = None) -> None:
        self._rows: dict[str, int] = {}
        for row, one in enumerate(ids.tolist()):
            if only is None or str(one) in only:
                self._rows.setdefault(str(one), row)

    def find(self, ids: list[str]) -> tuple[Rows, npt.NDArray[np.bool_]]:
        """Return (rows, known): the rows of those who are known."""
        found = np.array([self._rows.get(one, -1) for one in ids], dtype=np.int64)
        return found[found >= 0], found >= 0


@dataclass(frozen=True)
class ScoringTerms:
    """Who asks, and how scores are summed."""

    asker: str
    sum: str
    topology: str


Lookup = Callable[[list[str]], tuple[Any, npt.NDArray[np.bool_]]]  # ids -> (rows of those known or None, known)
Ask = Callable[[int], Refusal | None]  # how many people are asked about -> why they are not answered about


Hold = Callable[[Any], AbstractContextManager[Columns]]  # rows -> columns, for as long as they are asked about


def columns_of(X: Any) -> Columns:
    """Return an array or a CSR matrix in the form that the blocks take."""
    return opened(columns_to_value(X))


@contextmanager
def here(X: Any) -> Iterator[Columns]:
    """Hold rows in this process."""
    yield columns_of(X)


def held_by(engine: Engine | None, scorer: Scorer) -> Hold:
    """Say where rows are scored: with an engine's workers, where a score costs much more than handing a row over."""
    if engine is None or not scorer.spreads:
        return here
    engine.start()  # which may take longer than partners wait for an answer
    return engine.lent


async def serve(
    net: Net,
    terms: ScoringTerms,
    scorer: Scorer,
    lookup: Lookup,
    ask: Ask = lambda _: None,
    rounds: int | None = None,
    hold: Hold = here,
) -> int:
    """Answer until the asker is done, or for so many rounds; returns how many people were asked about."""
    secure, count = await open_sum(terms.sum, net, terms.topology), 0
    while True:
        if rounds is not None and net.traffic.rounds >= rounds:
            raise RunFailed(f"the policy of {net.me!r} ends a run after {rounds} rounds", net.me, "scoring")
        asked = await net.recv(terms.asker, "scoring", patient=True)
        if asked == (_DONE,):
            return count
        net.traffic.round()
        ids = _ids(asked, terms.asker, scorer.most)
        refusal = await net.in_thread(ask, len(ids))
        if refusal is None:
            X, known = await net.in_thread(lookup, ids)
            count += len(ids)
        else:  # the sum takes place all the same, as others take part in it, and nobody learns anything from it
            X, known = None, np.zeros(len(ids), dtype=bool)
        ready = _ready(secure, scorer, X, known, hold)
        await net.send(terms.asker, "scoring", np.packbits(known) if refusal is None else refusal)
        await scorer.scores(secure, ready, terms.asker)
        net.report(("served", count))


def _ids(asked: Any, asker: str, most: int) -> list[str]:
    shape = type(asked) is tuple and len(asked) == 3 and asked[0] == _ASK
    if not shape or not all(isinstance(part, np.ndarray) for part in asked[1:]):
        raise ProtocolError(f"party {asker!r} must ask about ids at step 'scoring'")
    if asked[2].size > most:
        raise ProtocolError(f"party {asker!r} asked about {asked[2].size} people at once, at most {most} are allowed")
    return unpack(asked[1], asked[2], asker, "scoring", most)


def _ready(secure: SecureSum, scorer: Scorer, X: Any, known: npt.NDArray[np.bool_], hold: Hold) -> Any:
    rows = np.arange(int(known.sum()))
    if X is None:
        return scorer.ready(secure, None, rows, known)
    with hold(X) as columns:
        return scorer.ready(secure, columns, rows, known)


class Asker:
    """The label holder's side of scoring."""

    def __init__(self, net: Net, terms: ScoringTerms, secure: SecureSum, scorer: Scorer, hold: Hold = here) -> None:
        self._net, self._terms, self._secure, self._scorer, self._hold = net, terms, secure, scorer, hold

    @classmethod
    async def open(cls, net: Net, terms: ScoringTerms, scorer: Scorer, hold: Hold = here) -> Asker:
        """Agree on keys with the others, and return the asker."""
        return cls(net, terms, await open_sum(terms.sum, net, terms.topology), scorer, hold)

    async def scores(self, ids: list[str], X: Any, here: npt.NDArray[np.bool_]) -> tuple[Array, npt.NDArray[np.bool_]]:
        """Return (scores, known) of people by id. X: the rows of those who are known here.

        The others are told of nobody else: without this party's part there is no score.
        """
        outputs = self._scorer.outputs
        totals, known = np.zeros((len(ids), outputs) if outputs > 1 else len(ids)), np.zeros(len(ids), dtype=bool)
        places = np.flatnonzero(here)
        for part in _pieces(len(places), self._scorer.most):
            all_known = np.ones(part.stop - part.start, dtype=bool)
            # What can't be scored is refused here, before anybody is asked: the line stays up.
            ready = _ready(self._secure, self._scorer, X[part], all_known, self._hold)
            some = places[part]
            total, everywhere = await self._some([ids[place] for place in some], ready)
            totals[some[everywhere]], known[some] = total[everywhere], everywhere
        return totals, known

    async def _some(self, ids: list[str], ready: Any) -> tuple[Array, npt.NDArray[np.bool_]]:
        net, others = self._net, [name for name in self._net.names if name != self._net.me]
        texts = np.empty(len(ids), dtype=object)
        texts[:] = ids
        for name in others:
            await net.send(name, "scoring", (_ASK, *pack(texts)))
        known, refused = np.ones(len(ids), dtype=bool), ""
        for name in others:
            answer = await net.recv(name, "scoring")
            if type(answer) is tuple:
                refused = refused or _sentence(answer, name, net.me, len(ids))
            else:
                bits = expect_array(answer, ((len(ids) + 7) // 8,), np.uint8, name, "scoring")
                known &= np.unpackbits(bits, count=len(ids)).astype(bool)
        total = np.asarray(await self._scorer.scores(self._secure, ready, net.me))
        if refused:  # only now: all parties are done with this question, and the next one may come
            raise PolicyRefused(refused)
        return total, known

    async def close(self) -> None:
        """Tell the others that there are no more questions."""
        for name in self._net.names:
            if name != self._net.me:
                await self._net.send(name, "scoring", (_DONE,))


def _pieces(count: int, most: int) -> Iterator[slice]:
    """Cut into pieces of nearly one size: a last piece of a single person is a question that a policy may refuse."""
    number = -(-count // most)
    yield from (slice(a * count // number, (a + 1) * count // number) for a in range(number))


def _sentence(answer: tuple[Any, ...], name: str, me: str, people: int) -> str:
    """Return why a party does not answer, from what it told."""
    if [*map(type, answer)] != [str, int, int] or answer[0] not in (FEW, DAY):
        raise ProtocolError(f"party {name!r} must answer about {people} people at step 'scoring'")
    why, limit, left = answer
    if why == FEW:
        return (
            f"party {name!r} answers about {limit:,} people at a time at least, {people:,} were asked about; ask about "
            f"more at once, or ask it to lower min_prediction in its [policy]"
        )
    return (
        f"party {name!r} answers {me!r} about {limit:,} people a day at most, {left:,} are left today (UTC) and "
        f"{people:,} were asked about; ask tomorrow, or ask it to raise max_people_per_day in its [policy]"
    )
