"""Where training starts: at zero, or at the coefficients of an earlier version, on which all parties have to agree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from colonnade.engine.exposure import ENCRYPTED
from colonnade.errors import DataError, JobMismatch, OptionError, VersionMismatch
from colonnade.families import family
from colonnade.families.protection import SEALED
from colonnade.jobs import model_file
from colonnade.jobs.job import Job
from colonnade.jobs.model_file import ModelPart
from colonnade.jobs.party_file import PartyFile
from colonnade.versions.identity import id_in, short
from colonnade.versions.shelf import Shelf

TERM = "start"  # what the terms of a run call the version


@dataclass(frozen=True)
class Start:
    """A party's part of the version that training starts from."""

    part: ModelPart

    @classmethod
    def of(cls, job: Job, party: PartyFile, version: str) -> Start:
        """Find the version, and refuse one that this job can't go on from, before anybody is dialled."""
        Shelf(party.folder, party.name).free(version)
        part = model_file.load(party.folder, party.name, version)
        if not part.training:
            raise OptionError(
                "the model has no id, as it was trained before trainings had one, and so nobody can tell whether all "
                "parties would start from the same; train anew"
            )
        if job.protection == SEALED:
            raise OptionError("sealed training ends at the optimum wherever it starts; leave out --from")
        if job.sum == ENCRYPTED:
            raise OptionError("with sum 'encrypted' shares of coefficients start at zero; leave out --from")
        public = part.public
        known = (public["family"], public["model"], tuple(public["parties"]), tuple(public["holders"]))
        wanted = (job.family, family(job.family).estimator(job.loss), job.parties, job.holders)
        for what, old, new in zip(("family", "kind", "parties", "label holders"), known, wanted, strict=True):
            if old != new:
                raise OptionError(f"version {short(part.training)} has another {what} than the job: {old}, not {new}")
        family(job.family).start_of(part.state)
        return cls(part)

    def own(self, columns: tuple[str, ...]) -> Any:
        """Return the coefficients to start with, if the columns are the same once they are prepared."""
        if columns != self.part.columns:
            before = self.part.columns
            other = next((one for one in (*columns, *before) if (one in columns) != (one in before)), "their order")
            raise DataError(
                f"training can start from version {short(self.part.training)} with the same columns in the same order "
                f"alone, and {other!r} differs; leave out --from, at all parties"
            )
        return family(self.part.public["family"]).start_of(self.part.state)


def starting(job: Job, party: PartyFile, version: str | None) -> tuple[Start | None, Job]:
    """Return where training starts, None for zero, and the job with the version among what the handshake compares."""
    if version is None:
        return None, job
    found = Start.of(job, party, version)
    return found, replace(job, agreed={**job.agreed, TERM: found.part.training})


@contextmanager
def same_start(me: str, job: Job) -> Iterator[None]:
    """Say it in plain words where parties would start from different versions, as their handshake finds out."""
    try:
        yield
    except JobMismatch as error:
        if error.key != TERM:
            raise
        sides = [
            f"{name!r} starts from {f'version {short(one)}' if one else 'zero'}"
            for name, one in ((me, str(job.agreed.get(TERM, ""))), (error.peer, id_in(error.there)))
        ]
        raise VersionMismatch(
            f"{sides[0]}, {sides[1]}; give the same version with --from at all parties, or leave it out at all"
        ) from None
