"""What the other parties could work out about one of them, in plain words: shown before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from colonnade.binning import binning_leaks
from colonnade.defences.base import as_defended
from colonnade.engine.allowance import budget_leaks
from colonnade.families import family
from colonnade.inference import statistics_leaks
from colonnade.jobs.job import Job
from colonnade.leaks import LISTED, NOTHING, OF_COLUMNS, OF_LABELS, OF_PEOPLE, Leak, Setting, listed
from colonnade.planning import plan_leaks
from colonnade.service.scoring import scoring_leaks
from colonnade.service.training import start_leaks
from colonnade.sums import SUMS
from colonnade.validation.shown import validation_leaks


def leaks_of(job: Job, setting: Setting | None = None) -> tuple[Leak, ...]:
    """Return all that a job shows to whom, from the first message to the use of the model, as its parts declare it.

    setting: the job's own, with what else is known of it.
    """
    setting, kind, bins = setting or job.setting(), family(job.family), job.binning
    if kind.over_rows:
        return kind.leaks(setting, job.algorithm)
    return (
        *start_leaks(setting),
        *(budget_leaks(setting) if kind.adds_up else ()),
        *validation_leaks(setting, as_defended(kind.leaks(setting, job.algorithm), setting)),
        *(SUMS[job.sum].leaks(setting) if kind.adds_up else ()),
        *(statistics_leaks(setting) if job.statistics else ()),
        *(() if bins is None else binning_leaks(setting, bins.least, correlates=bins.correlates)),
        *scoring_leaks(setting),
        *plan_leaks(setting),
    )


def what_others_learn(
    job: Job,
    me: str,
    columns: int | None = None,
    *,
    rows: int | None = None,
    directions_at_most: int | None = None,
) -> dict[str, list[str]]:
    """Return sentences for the eyes of one party, under "your columns", "your labels" and "your people".

    columns: of this party, once they are prepared. rows: of its table. directions_at_most: numbers about a row that its
    own rules let out.
    """
    found: dict[str, list[str]] = {OF_COLUMNS: [], OF_LABELS: [], OF_PEOPLE: []}
    people = f"the {rows:,} people" if job.aligned and rows is not None else "the people in common"
    order = list(LISTED)
    for leak in sorted(_merged(leaks_of(job, job.setting(rows)), me), key=lambda leak: order.index(leak.name)):
        others = [name for name in job.parties if name != me and name not in leak.to] if len(leak.to) == 1 else []
        most = leak.numbers
        if leak.left and directions_at_most is not None:
            most = directions_at_most if most is None else min(most, directions_at_most)
        found[leak.about].append(
            leak.words.format(
                who=_and(leak.to),
                others=_and(others) if others else "the others",
                theirs=f"{_and(others)}'s" if others else "the others'",
                people=people,
                numbers="" if most is None else f", at most {most:,} {_plural('number', most)} about each",
                count="some" if most is None else f"{most:,}",
                directions=_directions(most, columns, people),
                combinations="combinations" if most is None else f"up to {most:,} {_plural('combination', most)}",
            )
        )
    return {about: _without_beginnings(sentences) for about, sentences in found.items()}


def what_each_learns(job: Job) -> dict[str, str]:
    """Return {party: what it will learn of whom}, in the words of the job's own list, a line for each other party."""
    found, leaks = {}, [leak for leak in leaks_of(job) if leak.name]
    for me in job.parties:
        told = {
            other: listed(leak for leak in leaks if other in leak.of and me in leak.to)
            for other in job.parties
            if other != me
        }
        found[me] = "\n".join(f"of {other}: {'; '.join(names)}" for other, names in told.items() if names) or "nothing"
    return found


def what_kinds_show(job: Job) -> dict[str, str]:
    """Return {kind of message: what it shows in this job}, as the parts of the job declare it."""
    found: dict[str, list[str]] = {}
    for leak in leaks_of(job):
        for kind in leak.kinds:
            told = found.setdefault(kind, [])
            if leak.name and leak.name not in told:
                told.append(leak.name)
    said = {kind: "; ".join(told) or "nothing: masked, encrypted, or known to all" for kind, told in found.items()}
    reasons = {kind: f"nothing: {why}" for kind, why in NOTHING.items()}
    return {"goodbye": "nothing: the line ends", **reasons, **said}


def lines(learnt: dict[str, list[str]], *, sealed: bool = False) -> list[str]:
    """Return the same sentences, each on a line of its own, under a heading; `sealed`: that training shows nothing."""
    found = ["what the others could work out about you, beside the model:"]
    found += ["  training: nothing; nobody learns anything from it but its own coefficients"] if sealed else []
    for about, sentences in learnt.items():
        found += [f"  {about}: {sentence}" for sentence in sentences] or [f"  {about}: nothing"]
    return found


def _merged(leaks: Iterable[Leak], me: str) -> list[Leak]:
    """Return the leaks about this party, each sentence once, with everybody who could know it."""
    found: dict[tuple[object, ...], Leak] = {}
    for leak in leaks:
        to = tuple(name for name in leak.to if name != me)
        if not leak.name or me not in leak.of or not to:
            continue
        key = (leak.name, leak.about, leak.words, leak.numbers, leak.left)
        before = found[key].to if key in found else ()
        together = (*before, *(name for name in to if name not in before))
        found[key] = Leak(leak.name, leak.about, leak.of, together, (), leak.words, leak.numbers, leak.left)
    return list(found.values())


def _without_beginnings(sentences: list[str]) -> list[str]:
    """Leave out a sentence of which another one is a continuation."""
    return [one for one in sentences if not any(other != one and other.startswith(f"{one},") for other in sentences)]


def _directions(most: int | None, columns: int | None, people: str) -> str:
    """Say how many combinations of how many columns could be worked out, and what all of them would be."""
    if columns is None:
        up_to = "as many" if most is None else f"up to {most:,}"
        return f"{up_to} independent combinations of your columns for {people} (all would be the columns themselves)"
    if columns == 1:
        return f"your only column for {people}, up to a factor"
    all_of_them = f"all {columns:,} would do to rebuild your columns from a few people whom they know"
    count = columns if most is None else min(most, columns)
    if count < columns:
        some = f"up to {count:,} independent {_plural('combination', count)} of your {columns:,} columns"
        return f"{some} for {people} ({all_of_them})"
    return (
        f"all {columns:,} independent combinations of your {columns:,} columns for {people}, and rebuild the columns "
        f"themselves from a few people whom they know"
    )


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _and(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
