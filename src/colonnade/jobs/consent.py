"""A party's consent to how a job is protected: asked for before anything is sent, and given by name in its policy."""

from __future__ import annotations

from colonnade.errors import PolicyRefused
from colonnade.families import family
from colonnade.families.protection import HIDES_NOTHING, MASKED, PLAIN, PROTECTIONS, SEALED
from colonnade.jobs.job import Job
from colonnade.jobs.policy import Policy
from colonnade.jobs.words import leaks_of
from colonnade.leaks import (
    ALL_DIRECTIONS,
    BIN_COUNTS,
    CELL_COUNTS,
    CELLS,
    CONTRIBUTION,
    CONTRIBUTIONS,
    CUT_POINTS,
    DIRECTIONS,
    DISTANCES,
    EMBEDDINGS,
    GRADIENTS,
    HELD_OUT,
    OF_COLUMNS,
    OF_LABELS,
    RANGES,
    SCORES,
    SHARED,
    SIGNALS,
    SINGLE,
    SITE_ALONE,
    SITE_GRADIENTS,
    listed,
)

# What says most about labels, or about columns, comes first.
_TELLING = (
    SIGNALS, GRADIENTS, SHARED, EMBEDDINGS, SINGLE, CELLS, DIRECTIONS, ALL_DIRECTIONS, DISTANCES, CONTRIBUTION,
    CONTRIBUTIONS, SCORES, RANGES, CUT_POINTS, BIN_COUNTS, CELL_COUNTS, SITE_ALONE, SITE_GRADIENTS,
)  # fmt: skip


def words_of(job: Job) -> str:
    """Return a job's protection, and what it is; between two parties, that masks hide nothing."""
    kind = family(job.family)
    bare = job.protection == MASKED and len(job.parties) == 2 and not kind.counted(job.sum)
    note = f"; {HIDES_NOTHING}" if bare else ""
    if job.protection == SEALED and HELD_OUT in job.disclosed():
        note = f"; after it {job.holders[0]} sees scores of held-out people, for a metric"
    if job.binning is not None:
        note += "; before it each party learns how many good and bad people are in bins of its own columns"
    words = kind.protection_words(job.protection, job.algorithm, job.holders[0])
    return f"{job.protection}: {words}{note}"


def check_consent(policy: Policy, me: str, job: Job) -> None:
    """Refuse a job with a protection that this party has not agreed to by name."""
    word = job.protection
    if word in policy.protection:
        return
    agreed = " and ".join(map(repr, policy.protection))
    line = ", ".join(f'"{one}"' for one in PROTECTIONS if one == word or one in policy.protection)
    other = "" if word == SEALED or SEALED in family(job.family).lacks else 'set protection = "sealed" in the job, or, '
    other += "" if word == SEALED else "if they may see that, "
    raise PolicyRefused(
        f"the job asks for protection {word!r}, which shows {shown(job, me)}, and the policy of {me!r} agrees to "
        f"{agreed} alone; {other}add protection = [{line}] under [policy] in its file"
    )


def check_required(policy: Policy, me: str, job: Job) -> None:
    """Refuse a job without the protection and the defences that this party requires, whatever else it agrees to."""
    has = {one.name for one in job.defences}
    has |= {one for one in PROTECTIONS if _STRENGTH[one] <= _STRENGTH[job.protection]}
    for word in policy.require:
        if word in has:
            continue
        line = f'set protection = "{word}" in the job' if word in PROTECTIONS else f"add [defence.{word}] to the job"
        raise PolicyRefused(
            f"the policy of {me!r} requires {word!r}, and the job has protection {job.protection!r}"
            f"{_with(sorted(has - {*PROTECTIONS}))}; {line}, or take {word!r} out of require under [policy]"
        )


_STRENGTH = {PLAIN: 0, MASKED: 1, SEALED: 2}  # what is required is had with any better one, too


def _with(defences: list[str]) -> str:
    return f" and the defences {', '.join(map(repr, defences))}" if defences else " and no defences"


def check_accepted(policy: Policy, me: str, job: Job) -> None:
    """Refuse a job that discloses something about this party which its file does not accept by name, if it has a list.

    The list is asked beside the protection, and never instead of it: it only narrows what that would allow.
    """
    if policy.accept is None:
        return
    mine = disclosed_of(job, me)
    lacking = [name for name in mine if name not in policy.accept]
    if not lacking:
        return
    others = " and ".join(sorted({to for leak in leaks_of(job) if leak.name in lacking for to in leak.to} - {me}))
    line = ", ".join(f'"{name}"' for name in (*policy.accept, *lacking))
    raise PolicyRefused(
        f"the job discloses {_quoted(lacking)} of {me!r}, which its file does not accept; if {others} may know that, "
        f"write accept = [{line}] under [policy]"
    )


def disclosed_of(job: Job, me: str) -> tuple[str, ...]:
    """Return what a job discloses about one party to others, in the words of the job's own list."""
    return listed(leak for leak in leaks_of(job) if leak.name and me in leak.of and set(leak.to) - {me})


def _quoted(names: list[str]) -> str:
    *first, last = (f'"{name}"' for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def hides_all(job: Job) -> bool:
    """Return whether training shows nobody anything but its own coefficients."""
    return job.protection == SEALED and not any(leak.name in _TELLING for leak in leaks_of(job))


def shown(job: Job, me: str) -> str:
    """Return in few words what training would show of this party: what says most about its labels and its columns."""
    mine = [leak for leak in leaks_of(job) if me in leak.of and set(leak.to) - {me} and leak.name in _TELLING]
    found = []
    for about in (OF_LABELS, OF_COLUMNS):
        names = {leak.name for leak in mine if leak.about == about}
        found += [name for name in _TELLING if name in names][:1]
    if not found and job.protection == SEALED:
        return "nobody anything but its own coefficients"
    if not found:
        return "its partners none of its labels or columns, but more than sealed training would"
    return "its partners " + " and ".join(f'"{name}"' for name in found)
