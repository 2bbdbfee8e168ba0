"""An audit: every attack, by every attacker on every target, as far as whoever asks has the data to judge it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from colonnade.attacks.case import COLUMNS, LABELS, PEOPLE, Attack, Case, Known
from colonnade.audit.findings import MAX_ADVANTAGE, AuditFinding, judged
from colonnade.audit.measures import Truth
from colonnade.audit.registry import ATTACKS
from colonnade.errors import needed
from colonnade.notebooks.cells import TableCell

_KNOWN = {COLUMNS: "rows", LABELS: "labels", PEOPLE: "people"}


@dataclass(frozen=True)
class Audit(TableCell):
    """What all attacks found.

    Attributes
    ----------
    findings
        One for each attack that had something to go by, worst first.
    threshold
        The advantage from which on a finding counts as open.
    untried
        (attacker, target, attack) where there was nothing to go by, which is what protection is for.
    """

    findings: tuple[AuditFinding, ...]
    threshold: float = MAX_ADVANTAGE
    untried: tuple[tuple[str, str, str], ...] = field(default=(), repr=False)

    @property
    def worst(self) -> float:
        """The largest advantage of all."""
        return max((one.advantage for one in self.findings), default=0.0)

    @property
    def passed(self) -> bool:
        """Whether no attack found more than the threshold allows."""
        return self.worst <= self.threshold

    def of(self, target: str) -> tuple[AuditFinding, ...]:
        """Return what was found about one party."""
        return tuple(one for one in self.findings if one.target == target)

    def to_frame(self) -> Any:
        """Return the findings as a pandas frame, a row each."""
        pd = needed("pandas", "to_frame()")

        facts = (
            "attack",
            "paper",
            "attacker",
            "target",
            "about",
            "had",
            "measure",
            "what",
            "score",
            "floor",
            "floor_from",
        )
        rows = [{name: getattr(one, name) for name in facts} for one in self.findings]
        frame = pd.DataFrame(rows, columns=list(facts))
        frame["advantage"] = [one.advantage for one in self.findings]
        frame["verdict"] = [one.verdict(self.threshold) for one in self.findings]
        return frame

    def __rich__(self) -> Any:
        from colonnade.audit.table import as_table, summary

        shown = as_table(self)
        shown.caption = summary(self)
        return shown

    def __str__(self) -> str:
        from colonnade.audit.table import as_text

        return as_text(self)


def audited(
    cases: Iterable[tuple[Case, Truth]],
    *,
    attacks: Sequence[Attack] | None = None,
    threshold: float = MAX_ADVANTAGE,
    slow: bool = False,
) -> Audit:
    """Carry out attacks on each case, with as many known rows as each of them takes.

    Parameters
    ----------
    cases
        What each attacker has of each target, and the truth about the target.
    attacks
        Those to carry out; None is all.
    threshold
        The advantage from which on a finding is open.
    slow
        Whether those that take long are carried out, too.
    """
    findings, untried = [], []
    chosen = [one for one in (ATTACKS if attacks is None else attacks) if slow or not one.slow]
    for case, truth in cases:
        for attack in chosen:
            asked = truth.to(attack.question)
            if not _has(asked, attack.about):
                continue
            found = [
                one
                for count in attack.known_rows
                if (one := _with_known(attack, case, asked, count, threshold)) is not None
            ]
            findings += found
            if not found:
                untried.append((case.attacker, case.target, attack.name))
    findings.sort(key=lambda one: -one.advantage)
    return Audit(tuple(findings), threshold, tuple(untried))


def joined(first: Audit, second: Audit) -> Audit:
    """Return both audits as one."""
    findings = sorted((*first.findings, *second.findings), key=lambda one: -one.advantage)
    return Audit(tuple(findings), first.threshold, (*first.untried, *second.untried))


def _has(truth: Truth, about: str) -> bool:
    """Return whether the target has what an attack is about."""
    if about == COLUMNS:
        return bool(truth.columns.shape[1])
    return (truth.labels if about == LABELS else truth.people) is not None


def _with_known(attack: Attack, case: Case, truth: Truth, count: int, threshold: float) -> AuditFinding | None:
    """Judge an attack that knows so many rows of the target's, which the attacker draws."""
    had = attack.needs
    if count:
        of = np.arange(case.rows) if truth.labels is None or attack.about != LABELS else _labelled(truth)
        rows = np.sort(case.rng(f"known rows {count}").choice(of, size=min(count, len(of) // 2), replace=False))
        labels = None if truth.labels is None or attack.about != LABELS else truth.labels[rows]
        columns = truth.columns[rows] if attack.about == COLUMNS else None
        people = truth.people[rows] if attack.about == PEOPLE and truth.people is not None else None
        case = replace(case, known=Known(rows, labels, columns, people))
        what = f"{len(rows)} known {_KNOWN[attack.about]}"
        had = f"{had}, {what}" if had else what
    return judged(attack, case, truth, had, threshold)


def _labelled(truth: Truth) -> Any:
    return np.nonzero(truth.labelled)[0] if truth.labelled is not None else np.arange(len(truth.columns))
