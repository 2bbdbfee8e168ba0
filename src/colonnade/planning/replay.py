"""`colonnade replay`: a job under the virtual clock, with this party's own table and stand-ins, seen from above.

Nothing is sent to anybody. Who works and waits when follows from rows, columns, lines and speeds, hardly from what the
partners' numbers are, so made-up ones show where a run's time would go, and what a slow or lost partner would do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from colonnade.errors import ColonnadeError
from colonnade.jobs.job import Job
from colonnade.jobs.party_file import PartyFile
from colonnade.planning.stand_ins import check_rehearsable, rehearse_job
from colonnade.runtimes.simulation import Simulation
from colonnade.streams.loading import load
from colonnade.timelines.timeline import Timeline


def replay_job(job: Job, party: PartyFile, columns: Mapping[str, int], on: Simulation) -> Timeline:
    """Rehearse a job and return its timeline, that of a run which fails too.

    Parameters
    ----------
    job, party
        The job, and this organisation's own file.
    columns
        How many columns each partner has; as many as this party where it is not said.
    on
        The lines, speeds and faults.
    """
    check_rehearsable(job, party.name, columns)
    seen = Timeline()
    table = load(party.data, home=party.folder)
    try:
        rehearse_job(job, party, table, columns, job.algorithm.seed, on=replace(on, onlooker=seen))
    except ColonnadeError as error:
        if not seen.parties:
            raise
        seen.error = str(error)
    return seen
