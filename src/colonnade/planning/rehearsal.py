"""What others could find out about a party in a run that has not been made: a rehearsal of it, audited.

Every stand-in's view is attacked with all that it has, and of three or more parties what all of them saw together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from colonnade.attacks.case import Case, FloatArray
from colonnade.audit.kept_audit import REHEARSED, KeptAudit
from colonnade.audit.measures import Truth
from colonnade.audit.of_model import dense, hidden_from, truth_of
from colonnade.audit.own_parts import told_part
from colonnade.data.party import Party
from colonnade.defences.rounded_scores import blur_of
from colonnade.inspection.auditing import OF_ALL, Say, attacked, kept_of, numbers_told, public_of, theta_of, told_of
from colonnade.inspection.guessed_ids import service_cases
from colonnade.jobs.job import Job
from colonnade.jobs.party_file import PartyFile
from colonnade.objective import losses
from colonnade.planning.stand_ins import Rehearsed, check_rehearsable, rehearse_job
from colonnade.streams.loading import load
from colonnade.views.mirror import mirrored

OF_REHEARSAL = (
    "this is a rehearsal: the partners' columns{labels} are made up, and a recorded run (record = true under [audit]) "
    "says more"
)


def audit_rehearsal(
    job: Job,
    party: PartyFile,
    columns: Mapping[str, int],
    *,
    slow: bool = False,
    services: bool = False,
    say: Say = lambda *_: None,
) -> KeptAudit:
    """Rehearse the job with partners that are made up, and audit what they would see of this party.

    services: whether ids are guessed, too; half of this party's people are then taken for common.
    """
    check_rehearsable(job, party.name, columns)
    say("reading the data", 0, 1)
    table = load(party.data, home=party.folder)
    say("rehearsing the job", 0, 1)
    found = rehearse_job(job, party, table, columns, seed=job.algorithm.seed)
    job = job if (best := found.trained[party.name].validated) is None else job.candidate(best.best)
    cases = [*_rehearsed_cases(job, party, found), *(service_cases(job, party, table, None) if services else ())]
    labels = "" if job.holders == (party.name,) else " and labels"
    notes = [OF_REHEARSAL.format(labels=labels)]
    if found.sources[party.name].rows < table.rows:
        notes.append(f"it is about a sample of {found.sources[party.name].rows:,} of {table.rows:,} rows")
    missing = [
        (OF_ALL, f"{name}'s view is followed no further: {one.ended or one.lost}")
        for name, one in found.views.items()
        if one.ended or one.lost
    ]
    mine = found.trained[party.name]
    left = (numbers_told(found.views[party.name], mine.rows + mine.held_out), found.charged, mine.prepared.sources)
    audit, broken = attacked(cases, party, slow=slow, say=say)
    return kept_of(job, party, (audit, (*broken, *missing)), (REHEARSED, ""), left, notes)


def _rehearsed_cases(job: Job, party: PartyFile, found: Rehearsed) -> Iterator[tuple[Case, Truth]]:
    """Return what each stand-in has of this party, and of three or more parties what all of them have together."""
    me, loss = party.name, losses.loss(job.loss)
    sides = {name: _side(name, found.sources[name], found.trained[name]) for name in job.parties}
    truths = {name: truth_of(side, dense(side), found.trained[name].classes, loss) for name, side in sides.items()}
    widths = {name: side.X.shape[1] for name, side in sides.items()}
    scores = {name: _score(job.family, truths[name].columns, found.trained[name].state) for name in job.parties}
    outputs, l2 = found.trained[me].outputs, float(getattr(job.model, "l2", 0.0) or 0.0)
    for name in job.parties:
        if name == me:
            continue
        view, own = found.views[name], truths[name]
        view.widths = widths
        score = scores[name]
        yield Case(
            view, me, job.loss, outputs, l2, own.columns, own.labels, found.trained[name].state,
            score, widths[me], public=public_of(job, outputs), seed=job.algorithm.seed, labelled=own.labelled,
            embedding=None if score is None else score.reshape(len(score), -1),
            asked=_asked(job, party, name, own, scores), **told_of(truths[me], job.family, found.trained[me].state),
        ), hidden_from(own, truths[me])  # fmt: skip
    if len(sides) > 2:
        seen = mirrored(found.views[me])
        seen.rows, seen.widths = found.trained[me].rows, {me: widths[me]}
        public = public_of(job, outputs, me)
        more = told_of(truths[me], job.family, found.trained[me].state)
        yield Case(seen, me, job.loss, outputs, l2, width=widths[me], public=public, **more), truths[me]


def _side(name: str, source: Any, trained: Any) -> Party:
    X = trained.prepared.matrix(source.trained_on)
    y = None if source.labels is None else np.asarray(source.labels)[source.trained_on]
    return Party(name, X, y, columns=trained.prepared.columns)


def _score(family: str, columns: FloatArray, state: Any) -> FloatArray | None:
    """Return a party's own part of a linear model's scores."""
    theta = theta_of(family, columns.shape[1], state)
    if theta is None:
        return None
    score: FloatArray = columns @ theta
    return score[:, 0] if score.shape[1] == 1 else score


def _asked(job: Job, party: PartyFile, name: str, own: Truth, scores: Mapping[str, FloatArray | None]) -> Any:
    """Return what a label holder has that asks for the scores of the training rows; None for who may not ask.

    The others' parts are as coarse as all have agreed, and this party's own as its policy says besides.
    """
    agreed = blur_of(job.defences)
    blurs = {one: agreed for one in job.parties if one != name}
    blurs[party.name] = party.policy.blur.and_also(agreed)
    parts = [told_part(score, blurs.get(one)) for one, score in scores.items() if score is not None]
    return (own.columns, np.sum(parts, axis=0)) if name in job.holders and len(parts) == len(scores) else None
