"""What cross-validation and search show: all that one fit shows, as many times as there are fits, and a little more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from colonnade.families.held_out import held_out_leaks
from colonnade.leaks import CHOSEN, HELD_OUT, OF_LABELS, Leak, Setting
from colonnade.validation.program import CHOICE


def validation_leaks(setting: Setting, training: Iterable[Leak]) -> tuple[Leak, ...]:
    """Return what all fits of a run show together, where `training` is what one of them shows.

    Fits of other rows, or with other options, show other combinations of columns, so their numbers add up. Every person
    is held out once for each candidate, and the first label holder sees that many scores. The others hear which
    candidate does best, which says a little about the labels.
    """
    if not setting.folds:
        return tuple(training)
    found = [
        replace(leak, numbers=None if leak.numbers is None else leak.numbers * setting.fits)
        for leak in training
        if leak.name != HELD_OUT
    ]
    found += held_out_leaks(setting)
    if setting.candidates > 1:
        words = "{who} will learn which of the job's options do best on held-out people"
        found.append(Leak(CHOSEN, OF_LABELS, setting.holders, setting.parties, (CHOICE,), words))
    return tuple(found)
