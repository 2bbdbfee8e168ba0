"""All that a party's own file may refuse of a job before anybody is dialled."""

from __future__ import annotations

from colonnade.jobs.consent import check_accepted, check_consent, check_required
from colonnade.jobs.job import Job
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.tree_part import check_limits


def check_allowed(job: Job, party: PartyFile) -> None:
    """Refuse a job that shows more of a party's columns or labels than its policy allows."""
    check_required(party.policy, party.name, job)
    check_consent(party.policy, party.name, job)
    check_accepted(party.policy, party.name, job)
    party.policy.check_shown(party.name, job.algorithm.name, job.disclosed())
    check_limits(job, party)
    if job.binning is not None and party.name in job.holders:
        party.policy.check_bins(party.name, job.binning.least)
