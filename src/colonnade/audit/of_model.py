"""The audit of a model whose parties are all here: it is trained again, and every party's view is attacked.

Training repeats to the bit from its seed, so the views are those of the run that made the model.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from colonnade.attacks.case import Case, FloatArray
from colonnade.audit.auditing import Audit, audited, joined
from colonnade.audit.findings import MAX_ADVANTAGE
from colonnade.audit.measures import Truth
from colonnade.audit.own_parts import own_parts
from colonnade.data import labels as label_codes
from colonnade.data.party import Party
from colonnade.errors import DataError, one_of
from colonnade.objective.losses import Loss
from colonnade.views.recording import Recording
from colonnade.views.view import View


def audit_model(
    model: Any,
    parties: tuple[Party, ...],
    *,
    attacks: Sequence[str] | None = None,
    attackers: Sequence[str] | None = None,
    threshold: float = MAX_ADVANTAGE,
    slow: bool = False,
    seed: int = 0,
) -> Audit:
    """Train a copy of a model again with these parties, write down what each of them sees, and attack every view."""
    from colonnade.attacks.registry import ATTACKS

    names = tuple(party.name for party in parties)
    for name in attackers or ():
        one_of("attackers", name, names)
    known = {one.name: one for one in ATTACKS}
    for name in attacks or ():
        one_of("attacks", name, tuple(known))
    again, on = trained_again(model, parties)
    cases = cases_of(again, parties, on.views, attackers=attackers, seed=seed)
    chosen = list(ATTACKS) if attacks is None else [known[name] for name in attacks]
    found = audited(cases, attacks=[one for one in chosen if not one.active], threshold=threshold, slow=slow)
    active = [one for one in chosen if one.active and (slow or not one.slow)]
    if not active:
        return found
    cases = active_cases(model, parties, attackers, seed)
    return joined(found, audited(cases, attacks=active, threshold=threshold, slow=slow))


def active_cases(
    model: Any, parties: tuple[Party, ...], attackers: Sequence[str] | None, seed: int
) -> Iterator[tuple[Case, Truth]]:
    """Train anew for each party without all labels, which takes larger steps than agreed; return what it then has."""
    from colonnade.audit.active import greedy

    for party in parties:
        if (attackers is None or party.name in attackers) and not (party.y is not None and np.all(party.labelled)):
            with greedy(model, party.name) as (options, on):
                again = _trained(_copy(model, **options), parties, on)
            yield from cases_of(again, parties, on.views, attackers=[party.name], seed=seed)


def trained_again(model: Any, parties: tuple[Party, ...]) -> tuple[Any, Recording]:
    """Return a copy of a model that was trained with these parties while somebody looked on, and what was seen."""
    on = Recording()
    return _trained(_copy(model), parties, on), on


def _copy(model: Any, **options: Any) -> Any:
    """Return an untrained model with the same options but for these."""
    again = type(model)(**(copy.copy(model.get_params(deep=False)) | options))
    if "verbose" in again.get_params(deep=False):
        again.verbose = 0
    return again


def _trained(model: Any, parties: tuple[Party, ...], on: Recording) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user has heard them at the first training
        return model.fit(*parties, on=on)


def cases_of(
    model: Any,
    parties: tuple[Party, ...],
    views: Mapping[str, View],
    *,
    attackers: Sequence[str] | None = None,
    seed: int = 0,
) -> Iterator[tuple[Case, Truth]]:
    """Return what each party has of each other one, and the truth about that one."""
    loss = model._minimised()
    columns = {party.name: dense(party) for party in parties}
    widths = {name: X.shape[1] for name, X in columns.items()}
    truths = {party.name: truth_of(party, columns[party.name], model.classes_, loss) for party in parties}
    scores, embeddings = own_parts(model, columns)
    for party in parties:
        if attackers is not None and party.name not in attackers:
            continue
        view = views[party.name]
        view.widths, view.rows = widths, view.rows or party.rows
        for other in parties:
            if other is party:
                continue
            yield Case(
                view, other.name, loss.name, _outputs(model, loss), float(getattr(model, "l2", 0.0) or 0.0),
                columns[party.name], truths[party.name].labels, model._states.get(party.name),
                scores[party.name], widths[other.name],
                public={"family": model._family, "holders": model.holders_, "classes": len(model.classes_)}, seed=seed,
                labelled=truths[party.name].labelled, embedding=embeddings[party.name],
            ), hidden_from(truths[party.name], truths[other.name])  # fmt: skip


def hidden_from(attacker: Truth, target: Truth) -> Truth:
    """Return the truth about a target without the labels that the attacker has itself, which nobody has to tell it."""
    if attacker.labelled is None or target.labelled is None:
        return target
    left = target.labelled & ~attacker.labelled
    return replace(target, labelled=left) if left.any() else replace(target, labels=None, labelled=None)


def dense(party: Party) -> FloatArray:
    """Return a party's columns as a dense array; attacks solve for columns, of which very wide ones have too many."""
    X = party.X
    if hasattr(X, "toarray"):
        if X.shape[0] * X.shape[1] > 2**28:
            raise DataError(
                f"party {party.name!r} has {X.shape[0]:,} rows and {X.shape[1]:,} columns, too many for an audit in "
                f"memory; audit a sample of its rows or columns"
            )
        X = X.toarray()
    found: FloatArray = np.nan_to_num(np.asarray(X, dtype=np.float64))
    return found


def truth_of(party: Party, columns: FloatArray, classes: Any, loss: Loss) -> Truth:
    """Return what others should not find out about a party."""
    if party.y is None:
        return Truth(columns, party.columns)
    known = np.asarray(party.labelled)
    y = np.zeros(party.rows, dtype=np.int64 if loss.kind == "classes" else np.float64)
    y[known] = label_codes.encode(np.asarray(party.y)[known], classes, loss)
    return Truth(columns, party.columns, y, len(classes), known)


def _outputs(model: Any, loss: Loss) -> int:
    return loss.outputs(len(model.classes_))
