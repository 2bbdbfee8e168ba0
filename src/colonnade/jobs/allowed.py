"""All that a party's own file may refuse of a job before anybody is dialled."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from colonnade.audit.kept_audit import KeptAudit, read_audit
from colonnade.errors import PolicyRefused
from colonnade.jobs.consent import check_accepted, check_consent, check_required
from colonnade.jobs.job import Job
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.tree_part import check_limits
from colonnade.remote.terms import RunTerms
from colonnade.versions.shelf import Shelf

_OF_ONE_RUN = ("start", "purpose", "seconds")  # terms that change from run to run, and nothing about what is shown
# Rules of a party that decide how much others get to see, so that an audit under others says nothing of these.
_RULES = (
    "max_directions",
    "max_ranges",
    "max_questions",
    "min_noise",
    "min_cell",
    "plain",
    "round_scores",
    "noise_scores",
)


def check_allowed(job: Job, party: PartyFile) -> None:
    """Refuse a job that shows more of a party's columns or labels than its policy allows."""
    check_required(party.policy, party.name, job)
    check_consent(party.policy, party.name, job)
    check_accepted(party.policy, party.name, job)
    party.policy.check_shown(party.name, job.algorithm.name, job.disclosed())
    check_limits(job, party)
    if job.binning is not None and party.name in job.holders:
        party.policy.check_bins(party.name, job.binning.least)
    check_audited(job, party)


def check_audited(job: Job, party: PartyFile) -> None:
    """Refuse a job of which no audit says that others find out no more than the policy allows, if it limits that."""
    most = party.policy.max_advantage
    if most is None:
        return
    found, make = latest_audit(job, party), f"colonnade audit job.toml --as {party.name}"
    if found is None:
        raise PolicyRefused(
            f"the policy of {party.name!r} allows max_advantage = {most:g}, and there is no audit of this job under "
            f"its present rules; make one, which sends nothing: {make}"
        )
    if found.overdrawn or found.broken or found.worst > most:
        worst = max(found.findings, key=lambda one: one.advantage, default=None)
        what = (
            found.left
            if found.overdrawn
            else f"it could not carry out {found.failed}"
            if worst is None or worst.advantage <= most
            else f"{worst.attack!r} by {worst.attacker} had an advantage of {worst.advantage:.3f}, "
            f"closed by {worst.closed_by}"
        )
        raise PolicyRefused(
            f"the policy of {party.name!r} allows max_advantage = {most:g}, and the audit of this job of "
            f"{found.date[:16]} found more ({what}); change the job at all parties, or raise max_advantage in [policy]"
        )


def latest_audit(job: Job, party: PartyFile) -> KeptAudit | None:
    """Return the latest audit of this job under the party's present rules, of a rehearsal or of an earlier run."""
    shelf, terms = Shelf(party.folder, party.name), audit_terms(job, party)
    folders = [party.folder, *(version.folder for version in shelf.versions())]
    found = [one for folder in dict.fromkeys(folders) if (one := read_audit(folder)) is not None]
    return max((one for one in found if one.terms == terms), key=lambda one: one.date, default=None)


def audit_terms(job: Job, party: PartyFile) -> str:
    """Return a digest of all that decides what a run shows of a party: the job, and its own rules and preparation."""
    agreed = {key: value for key, value in job.agreed.items() if key not in _OF_ONE_RUN}
    prepared: Any = None if party.prepare is None else party.prepare.plain()
    rules = {key: getattr(party.policy, key) for key in _RULES}
    own = json.dumps([party.name, rules, prepared], sort_keys=True, default=str)
    return hashlib.sha256(RunTerms.of(job.parties, agreed).digest + own.encode()).hexdigest()
