"""What the others could find out about this party, from the recording of a run.

A party has its own view of a run and nobody else's, and the truth about itself alone. What all others saw of it left
it, so their view follows from its own (`views.mirror`), and the attacks are carried out on that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from colonnade.attacks.case import Case, FloatArray
from colonnade.audit.auditing import Audit, audited
from colonnade.audit.findings import MAX_ADVANTAGE, AuditFinding
from colonnade.audit.kept_audit import RECORDED, KeptAudit
from colonnade.audit.measures import Truth
from colonnade.audit.of_model import dense, truth_of
from colonnade.audit.registry import ATTACKS
from colonnade.data.party import Party
from colonnade.errors import ColonnadeError, DataError, OptionError
from colonnade.families import family
from colonnade.inspection.guessed_ids import service_cases
from colonnade.inspection.recorded import RecordedRun, ids_digest, recorded_run
from colonnade.jobs import model_file
from colonnade.jobs.allowed import audit_terms, job_digest
from colonnade.jobs.budget import OF_COLUMNS
from colonnade.jobs.job import Job
from colonnade.jobs.model_file import ModelPart
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.policy import kind_of
from colonnade.objective import losses
from colonnade.runtimes.net import TOTAL
from colonnade.streams.loading import load
from colonnade.tables.table import Table
from colonnade.versions.shelf import Shelf
from colonnade.versions.version import Version
from colonnade.views.kept import told_of_each
from colonnade.views.mirror import OTHERS, mirrored
from colonnade.views.view import View

Left = tuple[float, float | None, int]  # numbers about each person; those that the budget counted; columns
_LINEAR = ("linear", "sealed", "averaged")
Broken = tuple[tuple[str, str], ...]  # (attack, what went wrong)
_BREAKS = (ColonnadeError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError)
Say = Callable[[str, int, int], None]  # what is done, how many steps are done, and of how many

OF_RECORDING = (
    "what the partners' own columns and models tell is not known here: where the floor is chance alone, the advantage "
    "is an upper bound"
)
OF_ALL = "attacks on all of the run"  # of which a part is missing: what was told there, no attack has looked at
OF_MANY = "of three or more parties, this is what all others together could find out, or one that has the rest as well"


def audit_version(
    job: Job,
    party: PartyFile,
    version: Version,
    *,
    slow: bool = False,
    services: bool = False,
    say: Say = lambda *_: None,
    named: bool = False,
) -> KeptAudit | None:
    """Audit the recording of a version; None where there is none that speaks for this job under the present rules.

    services: whether ids are guessed, too, as partners might in alignments and questions about scores.
    named: whether it is this version that somebody asks about, which may have been trained under other rules; the audit
    is then one of those rules.
    """
    say("reading the recording", 0, 1)
    run = recorded_run(party, version)
    if run is None or (run.terms != audit_terms(job, party) and not named):
        return None
    if run.job != job_digest(job):
        raise OptionError(
            f"version {version.name} is of another job than {job.name!r} as it is now, and its recording says nothing "
            f"about this one; give the job file of that time, or leave out --version"
        )
    part = model_file.load(party.folder, party.name, version.training)
    table = _table(party, part, run)
    me, truth = _truth(job, party, part, table.take(run.trained_on))
    view = mirrored(run.view)
    view.rows, view.widths = len(run.trained_on), {party.name: me.X.shape[1]}
    case = Case(
        view, party.name, job.loss, run.outputs, _penalty(part.public["options"]), width=me.X.shape[1],
        score=_score_of_others(run.view) if party.name in job.holders else None,
        public=public_of(job, run.outputs, party.name), **told_of(truth, part.public["family"], part.state),
    )  # fmt: skip
    notes = [OF_RECORDING, *([OF_MANY] if len(job.parties) > 2 else [])]
    told = numbers_told(run.view, run.people)
    cases = [(case, truth), *(service_cases(job, party, table, version) if services else ())]
    found, broken = attacked(cases, party, slow=slow, say=say)
    made = (found, (*broken, *((OF_ALL, note) for note in run.notes)))
    left = (told, run.charged, run.sources)
    return replace(kept_of(job, party, made, (RECORDED, version.training), left, notes), terms=run.terms)


def audit_kept(job: Job, party: PartyFile, version: Version, tell: Callable[[str], None]) -> Version:
    """Audit a run that has just ended, write down what was found, and hold the version back if that is too much.

    Whatever goes wrong in the audit holds it back as well: nobody knows then what the others could find out.
    """
    try:
        found = audit_version(job, party, version)
        if found is None:
            raise DataError("there is no recording of the run")
        found.write(version.folder)
        why = found.trouble
    except ColonnadeError as error:
        why = f"it could not be audited: {error}"
    if why:
        tell(f"version {version.name} is kept, and held back: {why}")
    else:
        tell("the run was audited, and no more was found than the policy allows; `colonnade audit` shows it")
    return version.holding(why)


def settled(party: PartyFile, version: Version, found: KeptAudit) -> Version:
    """Hold a version back, or let go of it, as a new audit of it says and the policy has it by now."""
    why = found.trouble if party.policy.max_advantage is not None else ""
    return version if why == version.held else version.holding(why)


def version_to_audit(party: PartyFile, given: str | None) -> Version | None:
    """Return the version that is meant: by its id, or the one in use, or the newest where all are held back."""
    shelf = Shelf(party.folder, party.name)
    if given is not None:
        return shelf.find(given)
    known = shelf.versions()
    if not known or all(one.held for one in known):
        return known[-1] if known else None
    return shelf.promoted()


# -- what the attackers have, and the truth --------------------------------------------------------------------------


def _table(party: PartyFile, part: ModelPart, run: RecordedRun) -> Table:
    """Return the table of the training, or refuse another one."""
    table = load(party.data, texts=part.prepared.texts, home=party.folder)
    if ids_digest(table) != run.ids:
        raise DataError(
            f"{table.where} holds other people, or in another order, than when the run was recorded; give the file of "
            f"the training as source under [data]"
        )
    return table


def _truth(job: Job, party: PartyFile, part: ModelPart, some: Table) -> tuple[Party, Truth]:
    """Return this party with the rows that were trained on, in their order, and what nobody should find out."""
    me = Party(party.name, part.prepared.apply(some), some.label, columns=part.columns)
    return me, truth_of(me, dense(me), part.classes, losses.loss(job.loss))


def _score_of_others(view: View) -> FloatArray | None:
    """Return the others' part of the model's scores, as a label holder has seen it: the floor of guesses at its labels.

    It is that of the last evaluation. Where only some rows are this party's, the others' part of the rest is unknown.
    """
    found = [one for one in view.of(TOTAL, "evaluation") if one.rows is not None]
    if not found or (view.owned and set(view.owned) != {view.me}):
        return None
    score = np.zeros((view.rows, np.asarray(found[-1].value).reshape(len(found[-1].rows), -1).shape[1]))
    for one in found:  # later ones take the place of earlier ones, a portion of the rows at a time
        score[one.rows] = np.asarray(one.value, dtype=np.float64).reshape(len(one.rows), -1)
    return score[:, 0] if score.shape[1] == 1 else score


def told_of(truth: Truth, family_name: str, state: Any) -> dict[str, Any]:
    """Return what some attackers are taken to know of the target: how its columns are distributed, its coefficients."""
    theta = theta_of(family_name, truth.columns.shape[1], state)
    return {"marginals": np.sort(truth.columns, axis=0), "coefficients": None if theta is None else theta.T}


def theta_of(family_name: str, width: int, state: Any) -> FloatArray | None:
    """Return a party's coefficients, a column for each score; None where its model has none."""
    if family_name not in _LINEAR:
        return None
    theta: FloatArray = np.asarray(state[0], dtype=np.float64).reshape(width, -1)
    return theta


def public_of(job: Job, outputs: int, me: str = "") -> dict[str, Any]:
    """Return what everybody knows of a job; `me` is the target of all others together, where these are one attacker."""
    kind = losses.loss(job.loss).kind
    classes = outputs if kind == "classes" else 2 if kind == "binary" else 0
    holders = dict.fromkeys(name if name == me else OTHERS for name in job.holders) if me else job.holders
    return {"family": job.family, "holders": tuple(holders), "classes": classes}


def _penalty(options: Mapping[str, Any]) -> float:
    return float(options.get("l2") or 0.0)


# -- attacks ---------------------------------------------------------------------------------------------------------


def numbers_told(view: View, people: int) -> float:
    """Return how many numbers about each person left, as the view has it."""
    return told_of_each(view, people, lambda step: kind_of(step) in OF_COLUMNS)


def attacked(cases: list[tuple[Case, Truth]], party: PartyFile, *, slow: bool, say: Say) -> tuple[Audit, Broken]:
    """Carry out all attacks, one after the other, so that somebody can be told which; and return those that broke.

    One that breaks, whatever its reason, takes no other one along, and an audit with one does not pass.
    """
    limit = party.policy.max_advantage
    threshold = MAX_ADVANTAGE if limit is None else limit
    chosen = [one for one in ATTACKS if slow or not one.slow]
    findings: list[AuditFinding] = []
    untried: list[tuple[str, str, str]] = []
    broken: list[tuple[str, str]] = []
    for number, attack in enumerate(chosen):
        say(attack.name, number, len(chosen))
        try:
            one = audited(cases, attacks=[attack], threshold=threshold, slow=slow)
        except _BREAKS as error:
            broken.append((attack.name, str(error)))
            continue
        findings += one.findings
        untried += one.untried
    findings.sort(key=lambda one: -one.advantage)
    return Audit(tuple(findings), threshold, tuple(untried)), tuple(broken)


def kept_of(
    job: Job,
    party: PartyFile,
    made: tuple[Audit, Broken],
    of: tuple[str, str],
    left: Left,
    notes: Iterable[str],
) -> KeptAudit:
    """Return an audit with all that is to be remembered of it.

    left: numbers about each person that left, how many of them the budget counted, and of how many columns.
    """
    (found, broken), (told, charged, columns) = made, left
    bound = family(job.family).adds_up
    # Counted again, and not asked of the budget that was to see to it.
    most = math.floor(party.policy.max_directions * columns + 1e-9) if bound else 0
    allowed = float(max(1, most)) if bound else None
    untried = tuple((by, name) for by, _, name in found.untried)
    date = datetime.now(UTC).isoformat(timespec="microseconds")
    return KeptAudit(
        party.name, job.name, *of, date, audit_terms(job, party), found.findings, found.threshold, untried,
        told, allowed, charged if bound else None, tuple(notes), broken,
    )  # fmt: skip
