"""A version of a model in use: a party's part of it, put together with those of the others if they are of one training.

The id of the training is among the terms that the handshake compares, so that parts of different trainings never score
anybody: each side hears which version the other has, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from colonnade.defences.rounded_scores import blur_of
from colonnade.errors import JobMismatch, VersionMismatch
from colonnade.families import family
from colonnade.families.scoring import Scorer, blurred
from colonnade.families.training import ScoringJob
from colonnade.jobs import model_file, people
from colonnade.jobs.budget import Budget, Used
from colonnade.jobs.job import Job
from colonnade.jobs.model_file import ModelPart
from colonnade.jobs.party_file import PartyFile
from colonnade.service.attend import attend
from colonnade.service.new_values import new_values
from colonnade.service.table_source import sources
from colonnade.tables.table import Table
from colonnade.versions.drift import FEWEST, check_drift, drift_of, notes
from colonnade.versions.drift_file import write_drift
from colonnade.versions.identity import id_in, short
from colonnade.versions.profile import read_profiles
from colonnade.versions.shelf import UNNAMED, Shelf

_TERM = "training"  # what the terms of scoring call the id
_APART = "the parts of the model are of different trainings"

Program = Callable[..., Coroutine[Any, Any, Any]]


def loaded(party: PartyFile, version: str | None) -> tuple[ModelPart, frozenset[str] | None]:
    """Return this party's part of a version, by default of the promoted one, and about whom it asks and answers."""
    part = model_file.load(party.folder, party.name, version)
    if version is not None:
        Shelf(party.folder, party.name).free(version)
    return part, people.served(party, part.folder)


def use(
    job: Job, party: PartyFile, part: ModelPart, asker: str, program: Program, read: Callable[[], tuple[Any, ...]]
) -> Any:
    """Put a part to use with those of the others, which have to be of the same training; return what it came to."""
    agreed = {**job.agreed, "purpose": "scoring", "asker": asker, _TERM: part.training}
    try:
        return attend(job, party, program, read, agreed=agreed, **_paid(party, part)).value
    except JobMismatch as error:
        if error.key != _TERM:
            raise
        raise VersionMismatch(mixed(part.training, party.name, error.peer, error.there)) from None


def judge(party: PartyFile, part: ModelPart, table: Table, tell: Callable[[str], None], *, keep: bool = True) -> None:
    """Say what in these rows does not fit the training, and refuse them where the party's policy does.

    Values that training never saw are told of any row; else a few rows are not judged, which differ from the training
    by chance. How far the rows have moved is kept beside the version, unless they are those of a single request.
    """
    for sentence in new_values(part.prepared, table) if table.rows else []:
        tell(f"note: {sentence}")
    profiles = read_profiles(part.folder) if table.rows >= FEWEST else None
    if profiles is None:
        return
    found = drift_of(profiles, table, part.prepared)
    if keep:
        write_drift(part.folder, found, table.rows)
    for line in notes(found, levels=False):  # those are said above, with what becomes of them
        tell(f"note: {line}")
    check_drift(party.name, found, party.policy.max_drift, party.policy.max_missing)


def mixed(mine: str, me: str, peer: str, told: str) -> str:
    """Return the sentence about parts of different trainings; `told` is the peer's id as its terms have it, in JSON."""
    theirs, promote = id_in(told), "colonnade model promote job.toml --as"
    if not (mine and theirs):
        old, new = (me, peer) if not mine else (peer, me)
        return (
            f"{_APART}: that of {new!r} is of version {short(mine or theirs)}, that of {old!r} has no id, as it is "
            f"from before trainings had one; train again, or go back to the old one: {promote} {new} {UNNAMED}"
        )
    return (
        f"{_APART}: {me!r} uses version {short(mine)}, {peer!r} uses version {short(theirs)}; use one at all parties: "
        f"{promote} {peer} {short(mine)} there, or {promote} {me} {short(theirs)} here"
    )


def scorer_of(part: ModelPart, party: PartyFile, job: Job) -> Scorer:
    """Return a party's part of the model as scoring takes it, blurred as the party's policy and the job say."""
    public, kind = part.public, family(part.public["family"])
    how = (public["sum"], public["options"].get("topology", "star"))  # trees add nothing up
    asked = ScoringJob(kind.name, tuple(public["holders"]), *how, kind.scoring_facts(public))
    blur = party.policy.blur.and_also(blur_of(job.defences))
    return blurred(kind.scorer(part.party, asked, part.state, party.network), blur)


def _paid(party: PartyFile, part: ModelPart) -> dict[str, Any]:
    """Return the party's budget, and what the model takes of it where its training was not counted here."""
    made = part.public["family"]
    numbers = family(made).numbers(part.public, part.state)
    used = Used(model_file.digest(made, part.state), numbers, sources(part.prepared))
    return {
        "budget": Budget(party.name, party.policy.max_directions, party.policy.max_epsilon, party.policy.delta),
        "model": used,
    }
