"""`colonnade audit`: what the others could find out about this party, from a recorded run or a rehearsal of one.

A party has its own view of a run and nobody else's, and the truth about itself alone. What all others saw of it left
it, so their view follows from its own (`views.mirror`), and the attacks are carried out on that. Without a recording
the job is rehearsed with partners that are made up, each of whose views is then attacked as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from colonnade.attacks.case import Case, FloatArray
from colonnade.attacks.registry import ATTACKS
from colonnade.audit.auditing import Audit, audited
from colonnade.audit.findings import MAX_ADVANTAGE, AuditFinding
from colonnade.audit.kept_audit import RECORDED, REHEARSED, KeptAudit
from colonnade.audit.measures import Truth
from colonnade.audit.of_model import dense, hidden_from, truth_of
from colonnade.data.party import Party
from colonnade.errors import ColonnadeError, DataError
from colonnade.families import family
from colonnade.jobs import model_file
from colonnade.jobs.allowed import audit_terms
from colonnade.jobs.budget import OF_COLUMNS
from colonnade.jobs.job import Job
from colonnade.jobs.model_file import ModelPart
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.policy import kind_of
from colonnade.objective import losses
from colonnade.runtimes.net import TOTAL
from colonnade.tables import data
from colonnade.versions.shelf import Shelf
from colonnade.versions.version import Version
from colonnade.views.kept import told_of_each
from colonnade.views.mirror import OTHERS, mirrored
from colonnade.views.view import View

Say = Callable[[str, int, int], None]  # what is done, how many steps are done, and of how many
_LINEAR = ("linear", "sealed", "averaged")

OF_RECORDING = (
    "what the partners' own columns and models tell is not known here: where the floor is chance alone, the advantage "
    "is an upper bound"
)
OF_MANY = "of three or more parties, this is what all others together could find out, or one that has the rest as well"
OF_REHEARSAL = (
    "this is a rehearsal: the partners' columns{labels} are made up, and a recorded run (record = true under [audit]) "
    "says more"
)


def audit_version(
    job: Job, party: PartyFile, version: Version, *, slow: bool = False, say: Say = lambda *_: None
) -> KeptAudit | None:
    """Audit the recording of a version; None where there is none."""
    from colonnade.service.recorded import recorded_run

    say("reading the recording", 0, 1)
    run = recorded_run(party, version)
    if run is None:
        return None
    part = model_file.load(party.folder, party.name, version.training)
    me, truth = _truth(job, party, part, run)
    view = mirrored(run.view)
    view.rows, view.widths = len(run.trained_on), {party.name: me.X.shape[1]}
    case = Case(
        view, party.name, job.loss, run.outputs, _penalty(part.public["options"]), width=me.X.shape[1],
        score=_score_of_others(run.view) if party.name in job.holders else None,
        public=_public(job, run.outputs, together=True),
    )  # fmt: skip
    notes = [OF_RECORDING, *([OF_MANY] if len(job.parties) > 2 else []), *run.notes]
    told = told_of_each(run.view, run.people, lambda step: kind_of(step) in OF_COLUMNS)
    found = _attacked([(case, truth)], party, slow=slow, say=say)
    return _kept(job, party, found, (RECORDED, version.training), (told, run.charged, part.prepared), notes)


def audit_rehearsal(
    job: Job, party: PartyFile, columns: Mapping[str, int], *, slow: bool = False, say: Say = lambda *_: None
) -> KeptAudit:
    """Rehearse the job with partners that are made up, and audit what they would see of this party."""
    from colonnade.service.stand_ins import check_rehearsable, rehearse_job

    check_rehearsable(job, party.name, columns)
    say("reading the data", 0, 1)
    table = data.load(party.data)
    say("rehearsing the job", 0, 1)
    found = rehearse_job(job, party, table, columns, seed=job.algorithm.seed)
    job = job if (best := found.trained[party.name].validated) is None else job.candidate(best.best)
    cases = list(_rehearsed_cases(job, party, found))
    labels = "" if job.holders == (party.name,) else " and labels"
    notes = [OF_REHEARSAL.format(labels=labels)]
    if found.sources[party.name].rows < table.rows:
        notes.append(f"it is about a sample of {found.sources[party.name].rows:,} of {table.rows:,} rows")
    notes += [f"{name}'s view is followed no further: {one.ended}" for name, one in found.views.items() if one.ended]
    mine = found.trained[party.name]
    told = told_of_each(found.views[party.name], mine.rows + mine.held_out, lambda step: kind_of(step) in OF_COLUMNS)
    findings, learned = _attacked(cases, party, slow=slow, say=say), found.sources[party.name].learned
    return _kept(job, party, findings, (REHEARSED, ""), (told, found.charged, learned), notes)


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


def _truth(job: Job, party: PartyFile, part: ModelPart, run: Any) -> tuple[Party, Truth]:
    """Return this party with the rows that were trained on, in their order, and what nobody should find out."""
    from colonnade.service.run import ids_digest

    table = data.load(party.data, texts=part.prepared.texts)
    if ids_digest(table) != run.ids:
        raise DataError(
            f"{table.where} holds other people, or in another order, than when the run was recorded; give the file of "
            f"the training as source under [data]"
        )
    some = table.take(run.trained_on)
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


def _rehearsed_cases(job: Job, party: PartyFile, found: Any) -> Iterable[tuple[Case, Truth]]:
    """Return what each stand-in has of this party, and of three or more parties what all of them have together."""
    me, loss = party.name, losses.loss(job.loss)
    sides = {name: _side(name, found.sources[name], found.trained[name]) for name in job.parties}
    truths = {name: truth_of(side, dense(side), found.trained[name].classes, loss) for name, side in sides.items()}
    widths = {name: side.X.shape[1] for name, side in sides.items()}
    outputs, l2 = found.trained[me].outputs, float(getattr(job.model, "l2", 0.0) or 0.0)
    for name in job.parties:
        if name == me:
            continue
        view, own = found.views[name], truths[name]
        view.widths = widths
        yield Case(
            view, me, job.loss, outputs, l2, own.columns, own.labels, found.trained[name].state,
            _score(job, own.columns, found.trained[name].state), widths[me], public=_public(job, outputs),
            seed=job.algorithm.seed, labelled=own.labelled,
        ), hidden_from(own, truths[me])  # fmt: skip
    if len(sides) > 2:
        view = mirrored(found.views[me])
        view.rows, view.widths = found.trained[me].rows, {me: widths[me]}
        public = _public(job, outputs, together=True)
        yield Case(view, me, job.loss, outputs, l2, width=widths[me], public=public), truths[me]


def _side(name: str, source: Any, trained: Any) -> Party:
    X = trained.prepared.matrix(source.trained_on)
    y = None if source.labels is None else np.asarray(source.labels)[source.trained_on]
    return Party(name, X, y, columns=trained.prepared.columns)


def _score(job: Job, columns: FloatArray, state: Any) -> FloatArray | None:
    """Return a party's own part of a linear model's scores."""
    if job.family not in _LINEAR:
        return None
    theta = np.asarray(state[0], dtype=np.float64)
    score: FloatArray = columns @ theta.reshape(columns.shape[1], -1)
    return score[:, 0] if score.shape[1] == 1 else score


def _public(job: Job, outputs: int, *, together: bool = False) -> dict[str, Any]:
    kind = losses.loss(job.loss).kind
    classes = outputs if kind == "classes" else 2 if kind == "binary" else 0
    return {"family": job.family, "holders": (OTHERS,) if together else job.holders, "classes": classes}


def _penalty(options: Mapping[str, Any]) -> float:
    return float(options.get("l2") or 0.0)


# -- attacks ---------------------------------------------------------------------------------------------------------


def _attacked(cases: list[tuple[Case, Truth]], party: PartyFile, *, slow: bool, say: Say) -> Audit:
    """Carry out all attacks, one after the other, so that somebody can be told which."""
    limit = party.policy.max_advantage
    threshold = MAX_ADVANTAGE if limit is None else limit
    chosen = [one for one in ATTACKS if slow or not one.slow]
    findings: list[AuditFinding] = []
    untried: list[tuple[str, str, str]] = []
    for number, attack in enumerate(chosen):
        say(attack.name, number, len(chosen))
        one = audited(cases, attacks=[attack], threshold=threshold, slow=slow)
        findings += one.findings
        untried += one.untried
    findings.sort(key=lambda one: -one.advantage)
    return Audit(tuple(findings), threshold, tuple(untried))


def _kept(
    job: Job, party: PartyFile, found: Audit, of: tuple[str, str], left: tuple[Any, Any, Any], notes: Iterable[str]
) -> KeptAudit:
    """Return an audit with all that is to be remembered of it."""
    from colonnade.service.run import sources

    told, charged, learned = left
    bound = family(job.family).adds_up and learned is not None
    # Counted again, and not asked of the budget that was to see to it.
    most = math.floor(party.policy.max_directions * sources(learned) + 1e-9) if bound else 0
    allowed = float(max(1, most)) if bound else None
    untried = tuple((by, name) for by, _, name in found.untried)
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return KeptAudit(
        party.name, job.name, *of, date, audit_terms(job, party), found.findings, found.threshold, untried,
        told, allowed, charged if bound else None, tuple(notes),
    )  # fmt: skip
