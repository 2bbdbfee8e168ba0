"""One sum at the server, stage by stage: whom to ask for what, and what the answers add up to. There is no I/O here."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.crypto.ring import Ring
from colonnade.errors import ProtocolError
from colonnade.runtimes.wire import expect_array
from colonnade.sums.dropout import FEWEST, Announced, Collector

Array = npt.NDArray[Any]
Asked = tuple[str, dict[int, Any]]  # a stage, and what each site is told
Answers = dict[int, Any]  # the answers of those sites that answered in time

# Stages of a masked sum, and the step under which a site's answer to each is sent. Without masks there is one step.
STAGES = {
    "task": "mask keys",
    "keys": "key shares",
    "letters": "masked sum",
    "survivors": "signed survivors",
    "signatures": "unmasking shares",
}
PLAIN = "sum"


def step_of(stage: str, threshold: int) -> str:
    """Return the step under which a site answers."""
    return STAGES[stage] if threshold else PLAIN


@dataclass(frozen=True)
class Task:
    """A sum that the server asks for."""

    kind: str  # "count", "step" or "evaluate"
    content: tuple[Any, ...]  # what every site is told
    length: int  # how many numbers come back
    fraction_bits: int = 36
    parts: tuple[int, ...] = ()  # the sites that are chosen, while the part of all others is 0; empty where all are


@dataclass(frozen=True)
class Heard:
    """What the server hears at the end of a sum."""

    total: Array | None  # None where too few sites answered
    answered: int
    silent: tuple[str, ...] = ()  # who said nothing in the last step of the sum
    step: str = ""  # that step


class _TooFewError(Exception):
    """A stage of a masked sum has too few answers, so there is no total."""

    def __init__(self, answered: int) -> None:
        super().__init__()
        self.answered = answered


def gather(sites: tuple[str, ...], threshold: int, task: Task, fewest: int = 1) -> Generator[Asked, Answers, Heard]:
    """Yield what to ask, be sent the answers, and return the sum.

    threshold 0 is a sum without masks, of `fewest` sites at least.
    """
    asked = dict.fromkeys(range(len(sites)), (task.kind, *task.content))
    stages = _masked(sites, threshold, task, asked) if threshold else _plain(sites, task, asked, fewest)
    stage, told = next(stages)
    while True:
        answers = yield stage, told
        try:
            stage, told = stages.send(answers)
        except StopIteration as end:
            total, answered = end.value
            break
        except _TooFewError as few:
            total, answered = None, few.answered
            break
    ring = Ring(len(sites), task.fraction_bits)
    silent = tuple(sites[number] for number in told if number not in answers)
    return Heard(None if total is None else ring.decode(total), answered, silent, step_of(stage, threshold))


def _plain(
    sites: tuple[str, ...], task: Task, asked: Answers, fewest: int
) -> Generator[Asked, Answers, tuple[Any, int]]:
    found = yield "task", asked
    values = [_value(found[number], task, sites[number]) for number in sorted(found)]
    return (np.sum(values, axis=0, dtype=np.uint64) if len(values) >= fewest else None), len(values)


def _masked(
    sites: tuple[str, ...], threshold: int, task: Task, asked: Answers
) -> Generator[Asked, Answers, tuple[Any, int]]:
    """Go through the stages of a masked sum with a `Collector`."""
    collector = Collector(threshold)
    keys = yield "task", asked
    _enough(collector, keys)
    told = collector.keys({number: _announced(each, sites[number]) for number, each in keys.items()})
    shares = yield "keys", dict.fromkeys(keys, tuple((number, *announced) for number, announced in told.items()))
    _enough(collector, shares)
    letters = collector.letters({number: _letters(each, sites[number]) for number, each in shares.items()})
    found = yield "letters", {number: tuple(each.items()) for number, each in letters.items()}
    _enough(collector, found)
    survivors = tuple(collector.values({n: _value(each, task, sites[n]) for n, each in found.items()}))
    if task.parts and len({*task.parts} & {*survivors}) < FEWEST:
        raise _TooFewError(len(survivors))  # the total would be one site's part, which nobody may unmask
    signed = yield "survivors", dict.fromkeys(survivors, survivors)
    _enough(collector, signed)
    signatures = tuple((number, _signature(each, sites[number])) for number, each in signed.items())
    opened = yield "signatures", dict.fromkeys(signed, signatures)
    _enough(collector, opened)
    return collector.total({n: _letters(each, sites[n]) for n, each in opened.items()}), len(survivors)


def _enough(collector: Collector, answers: Answers) -> None:
    if not collector.enough(answers):
        raise _TooFewError(len(answers))


def _value(given: Any, task: Task, site: str) -> Array:
    return expect_array(given, (task.length,), np.uint64, site, STAGES["letters"])


def _announced(given: Any, site: str) -> Announced:
    if not isinstance(given, tuple) or [type(key) for key in given] != [bytes] * 4:
        raise ProtocolError(f"party {site!r} must send three keys and a signature at step {STAGES['task']!r}")
    return given


def _signature(given: Any, site: str) -> bytes:
    if not isinstance(given, bytes):
        raise ProtocolError(f"party {site!r} must send a signature at step {STAGES['survivors']!r}")
    return given


def _letters(given: Any, site: str) -> dict[int, bytes]:
    fits = isinstance(given, tuple) and all(
        isinstance(each, tuple) and [type(part) for part in each] == [int, bytes] for each in given
    )
    if not fits:
        raise ProtocolError(f"party {site!r} must send numbers of sites and bytes at step {STAGES['keys']!r} and after")
    return dict(given)
