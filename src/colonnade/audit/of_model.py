"""The audit of a model whose parties are all here: it is trained again, and every party's view is attacked.

Training repeats to the bit from its seed, so the views are those of the run that made the model.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.attacks.case import PROPERTY, Case, FloatArray
from colonnade.audit.auditing import Audit, audited, joined
from colonnade.audit.findings import MAX_ADVANTAGE
from colonnade.audit.measures import Truth
from colonnade.audit.outsiders import OUTSIDER, outsider
from colonnade.audit.own_parts import asked, coefficients, own_parts
from colonnade.data import labels as label_codes
from colonnade.data.party import Party
from colonnade.errors import DataError, OptionError, one_of
from colonnade.objective.losses import Loss
from colonnade.runtimes.net import Observer, Outcome, Program, Runtime
from colonnade.runtimes.wire import Value
from colonnade.views.recording import Recording
from colonnade.views.view import View

_RARE = 0.02  # a property that fewer people have is not looked for unless it is named


def audit_model(
    model: Any,
    parties: tuple[Party, ...],
    *,
    attacks: Sequence[str] | None = None,
    attackers: Sequence[str] | None = None,
    threshold: float = MAX_ADVANTAGE,
    slow: bool = False,
    seed: int = 0,
    others: tuple[Party, ...] | None = None,
    hidden: Mapping[str, Any] | None = None,
) -> Audit:
    """Train a copy of a model again with these parties, write down what each of them sees, and attack every view."""
    from colonnade.audit.registry import ATTACKS

    names = tuple(party.name for party in parties)
    _check_names("attackers", attackers, (*names, OUTSIDER) if others else names)
    known = {one.name: one for one in ATTACKS}
    _check_names("attacks", attacks, tuple(known))
    skipped = [name for name in attacks or () if known[name].slow and not slow]
    if skipped:  # and not passed over, which would look as if there were nothing to find
        raise OptionError(f"attacks names {skipped[0]!r}, which takes minutes; give slow=True with it")
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0.0 <= threshold <= 1.0:
        raise OptionError(f"threshold must be a number between 0 and 1, got {threshold!r}")
    again, on = trained_again(model, parties)
    trained = in_common(parties) if model._family == "transfer" else parties
    cases = cases_of(again, trained, on.views, attackers=attackers, seed=seed, others=others, hidden=hidden)
    chosen = list(ATTACKS) if attacks is None else [known[name] for name in attacks]
    found = audited(cases, attacks=[one for one in chosen if not one.active], threshold=threshold, slow=slow)
    active = [one for one in chosen if one.active and (slow or not one.slow)]
    if not active:
        return found
    cases = active_cases(model, parties, attackers, seed)
    return joined(found, audited(cases, attacks=active, threshold=threshold, slow=slow))


def _check_names(option: str, given: Sequence[str] | None, known: tuple[str, ...]) -> None:
    """Refuse a name that nobody has, one name in place of a list, and a list of none, by which every audit passes."""
    if given is None:
        return
    if isinstance(given, str) or not len(given):
        raise OptionError(f"{option} must be a list of names, or None for all, got {given!r}")
    for name in given:
        one_of(option, name, known)


def active_cases(
    model: Any, parties: tuple[Party, ...], attackers: Sequence[str] | None, seed: int
) -> Iterator[tuple[Case, Truth]]:
    """Train anew for each party without all labels, which takes larger steps than agreed; return what it then has."""
    from colonnade.audit.active import GreedyRun, greedy

    for party in parties:
        if (attackers is None or party.name in attackers) and not (party.y is not None and np.all(party.labelled)):
            with greedy(model, party.name) as (options, on):
                again = _trained(_copy(model, **options), parties, on)
            if isinstance(on, GreedyRun) and not on.enlarged:
                continue  # nothing came back that it could have made larger
            trained = in_common(parties) if model._family == "transfer" else parties
            yield from cases_of(again, trained, on.views, attackers=[party.name], seed=seed)


def trained_again(
    model: Any, parties: tuple[Party, ...], instead: Mapping[str, Program] | None = None
) -> tuple[Any, Recording]:
    """Return a copy of a model that was trained with these parties while somebody looked on, and what was seen.

    instead: programs of parties that do not follow the protocol, for attacks that need such a party.
    """
    on = Recording()
    return _trained(_copy(model), parties, _Instead(on, instead) if instead else on), on


def _copy(model: Any, **options: Any) -> Any:
    """Return an untrained model with the same options but for these."""
    again = type(model)(**(copy.copy(model.get_params(deep=False)) | options))
    if "verbose" in again.get_params(deep=False):
        again.verbose = 0
    return again


def _trained(model: Any, parties: tuple[Party, ...], on: Runtime) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user has heard them at the first training
        return model.fit(*parties, on=on)


class _Instead:
    """A runtime in which some parties run programs of their own."""

    def __init__(self, inner: Recording, programs: Mapping[str, Program]) -> None:
        self._inner, self._own = inner, programs

    def run(
        self,
        programs: Mapping[str, tuple[Program, tuple[Value, ...]]],
        observer: Observer | None = None,
        spare: Collection[str] = (),
    ) -> dict[str, Outcome]:
        """See `Runtime.run`."""
        played = {name: (self._own.get(name, program), args) for name, (program, args) in programs.items()}
        return self._inner.run(played, observer, spare)


def _played(model: Any, parties: tuple[Party, ...], attacker: str, program: Program) -> View:
    """Return what an attacker sees that runs a program of its own."""
    return trained_again(model, parties, {attacker: program})[1].views[attacker]


def in_common(parties: tuple[Party, ...]) -> tuple[Party, ...]:
    """Return the rows that both of two parties have, which transfer learning is trained on, in the source's order."""
    source, target = sorted(parties, key=lambda party: not party.active)
    here, there = ([str(one) for one in np.asarray(party.ids).tolist()] for party in (source, target))
    place = {one: row for row, one in enumerate(there)}
    rows = np.array([(row, place[one]) for row, one in enumerate(here) if one in place], dtype=np.int64)
    taken = {source.name: source.take(rows[:, 0]), target.name: target.take(rows[:, 1])}
    return tuple(taken[party.name] for party in parties)


def cases_of(
    model: Any,
    parties: tuple[Party, ...],
    views: Mapping[str, View],
    *,
    attackers: Sequence[str] | None = None,
    seed: int = 0,
    others: tuple[Party, ...] | None = None,
    hidden: Mapping[str, Any] | None = None,
) -> Iterator[tuple[Case, Truth]]:
    """Return what each party has of each other one, and the truth about that one; and what somebody from outside has.

    others: the parties' rows of people who were not trained on; hidden: a property of each row, at some of the parties.
    """
    loss = model._minimised()
    public = {"family": model._family, "holders": model.holders_, "classes": len(model.classes_), **named(model)}
    apart = {party.name: dense(party) for party in others or ()}
    columns = {party.name: dense(party) for party in parties}
    widths = {name: X.shape[1] for name, X in columns.items()}
    truths = {
        party.name: truth_of(party, columns[party.name], model.classes_, loss, (hidden or {}).get(party.name))
        for party in parties
    }
    marginals = {name: np.sort(X, axis=0) for name, X in columns.items()}
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
                public=public, others=(apart[party.name], apart[other.name]) if others else None,
                play=partial(_played, model, parties, party.name), seed=seed,
                labelled=truths[party.name].labelled, embedding=embeddings[party.name],
                asked=asked(model, party.name, columns, scores), marginals=marginals[other.name],
                coefficients=coefficients(model, other.name),
            ), hidden_from(truths[party.name], truths[other.name])  # fmt: skip
    found = outsider(model, parties, others, seed) if others else None
    if found is not None and (attackers is None or found[0].attacker in attackers):
        yield found


def named(model: Any) -> dict[str, Any]:
    """Return which networks are given by name, and the seed that their first parameters come from; all know both."""
    made = {name: how for name, how in getattr(model, "_how", {}).items() if how is not None and how[0] == "named"}
    if not made:
        return {}
    shapes = model.shape or {}
    seed = 0 if model.algorithm is None else model.algorithm.seed
    return {"networks": {name: (how, shapes.get(name)) for name, how in made.items()}, "seed": seed}


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


def truth_of(party: Party, columns: FloatArray, classes: Any, loss: Loss, hidden: Any = None) -> Truth:
    """Return what others should not find out about a party; `hidden` is a property of each row, by default a column."""
    asked = _property(columns) if hidden is None else np.asarray(hidden, dtype=bool)
    if asked is not None and len(asked) != party.rows:
        raise DataError(f"hidden has {len(asked)} values for party {party.name!r}, give one for each of its rows")
    answers = {} if asked is None else {PROPERTY: asked}
    if party.y is None:
        return Truth(columns, party.columns, answers=answers)
    known = np.asarray(party.labelled)
    y = np.zeros(party.rows, dtype=np.int64 if loss.kind == "classes" else np.float64)
    y[known] = label_codes.encode(np.asarray(party.y)[known], classes, loss)
    return Truth(columns, party.columns, y, len(classes), known, answers=answers)


def _property(columns: FloatArray) -> npt.NDArray[np.bool_] | None:
    """Return the column with two values of which the rarer one is the most frequent; None where there is none."""
    best, most = None, _RARE
    for column in columns.T:
        high = column == column.max(initial=-np.inf)
        part = min(high.mean(), 1.0 - high.mean())
        if part > most and len(np.unique(column[~high])) == 1:
            best, most = high, part
    return best


def _outputs(model: Any, loss: Loss) -> int:
    return loss.outputs(len(model.classes_))
