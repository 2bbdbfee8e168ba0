"""All that a party's own file may refuse of a job before anybody is dialled."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from colonnade.audit.kept_audit import RECORDED, KeptAudit, read_audit
from colonnade.data.ids import EXPAND
from colonnade.defences.gaussian_signals import GaussianSignals
from colonnade.errors import PolicyRefused
from colonnade.jobs.consent import check_accepted, check_consent, check_required
from colonnade.jobs.job import Job
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.policy import Policy
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
    if job.duplicates == EXPAND and party.name == job.holders[0]:
        party.policy.check_repeats(party.name)
    if job.binning is not None and party.name in job.holders:
        party.policy.check_bins(party.name, job.binning.least)
    check_breaks(party.policy, party.name, job)
    check_audited(job, party)


def check_breaks(policy: Policy, me: str, job: Job) -> None:
    """Refuse noisy signals whose number only the run itself limits: a partner could break it off again and again.

    A run goes on from its last checkpoint, and counts from there. What has left is in the ledger, by which the policy
    counts.
    """
    counted = [one for one in job.defences if isinstance(one, GaussianSignals)]
    if counted and me in job.holders and policy.max_epsilon is None:
        raise PolicyRefused(
            f"the job's defence {counted[0].name!r} limits what one run tells of the labels of {me!r}, and a "
            f"partner could break the run off and let it go on, again and again; set max_epsilon = "
            f"{counted[0].epsilon:g}, or more, under [policy], which counts what has left"
        )


def check_audited(job: Job, party: PartyFile) -> None:
    """Refuse a job of which no audit says that others find out no more than the policy allows, if it limits that."""
    most = party.policy.max_advantage
    if most is None:
        return
    found, make = audits_of(job, party), f"colonnade audit job.toml --as {party.name}"
    if not found:
        raise PolicyRefused(
            f"the policy of {party.name!r} allows max_advantage = {most:g}, and there is no audit of this job under "
            f"its present rules; make one, which sends nothing: {make}"
        )
    for one in found:
        if what := _too_much(one, most):
            raise PolicyRefused(
                f"the policy of {party.name!r} allows max_advantage = {most:g}, and the audit of this job of "
                f"{one.date[:16]} found more ({what}); change the job at all parties, or raise max_advantage in "
                f"[policy]"
            )


def _too_much(found: KeptAudit, most: float) -> str:
    """Say in a clause what is more than a policy allows; empty if nothing is."""
    if found.overdrawn:
        return found.left
    if found.worst > most:
        worst = max(found.findings, key=lambda one: one.advantage)
        return (
            f"{worst.attack!r} by {worst.attacker} had an advantage of {worst.advantage:.3f}, "
            f"closed by {worst.closed_by}"
        )
    return f"it could not carry out {found.failed}" if found.broken else ""


def audits_of(job: Job, party: PartyFile) -> list[KeptAudit]:
    """Return the audits that decide on this job under the party's present rules: the latest, and that of a real run.

    A rehearsal goes by partners that were made up, so a later one does not undo what was found in the latest run that
    was recorded. An audit of a run that broke says nothing of it but what it found.
    """
    shelf, terms = Shelf(party.folder, party.name), audit_terms(job, party)
    folders = [party.folder, *(version.folder for version in shelf.versions())]
    audits = [one for folder in dict.fromkeys(folders) if (one := read_audit(folder)) is not None]
    mine = sorted((one for one in audits if one.terms == terms), key=lambda one: one.date, reverse=True)
    most = party.policy.max_advantage
    real = [one for one in mine if one.of == RECORDED and (not one.broken or (most is not None and one.worst > most))]
    return mine[:1] + [one for one in real[:1] if one is not mine[0]]


def audit_terms(job: Job, party: PartyFile) -> str:
    """Return a digest of all that decides what a run shows of a party: the job, and its own rules and preparation."""
    prepared: Any = None if party.prepare is None else party.prepare.plain()
    rules = {key: getattr(party.policy, key) for key in _RULES}
    own = json.dumps([party.name, rules, prepared], sort_keys=True, default=str)
    return hashlib.sha256(_digest(job) + own.encode()).hexdigest()


def job_digest(job: Job) -> str:
    """Return a digest of what all parties have agreed on, whenever it is run."""
    return _digest(job).hex()


def _digest(job: Job) -> bytes:
    return RunTerms.of(job.parties, {key: value for key, value in job.agreed.items() if key not in _OF_ONE_RUN}).digest
