"""A party's consent to how a job is protected: asked for before anything is sent, and given by name in its policy."""

from __future__ import annotations

from colonnade.errors import PolicyRefused
from colonnade.families import family
from colonnade.families.protection import HIDES_NOTHING, MASKED, PROTECTIONS, SEALED
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
)

# What says most about labels, or about columns, comes first.
_TELLING = (
    SIGNALS, GRADIENTS, SHARED, EMBEDDINGS, SINGLE, CELLS, DIRECTIONS, ALL_DIRECTIONS, DISTANCES, CONTRIBUTION,
    CONTRIBUTIONS, SCORES, RANGES, CUT_POINTS, BIN_COUNTS, CELL_COUNTS,
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
