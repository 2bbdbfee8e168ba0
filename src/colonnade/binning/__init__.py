"""Bins of every party's columns, learnt from labels that their owners do not see, and what that shows."""

from __future__ import annotations

from colonnade.leaks import (
    BIN_CORRELATIONS,
    BIN_COUNTS,
    CELL_COUNTS,
    COLUMNS,
    OF_COLUMNS,
    OF_LABELS,
    Leak,
    Setting,
    nothing,
)

KINDS = (
    "cells of columns", "encrypted labels", "blinded counts", "mask of counts", "bins of columns", "own correlations",
    "columns that stay",
)  # fmt: skip


def binning_leaks(setting: Setting, least: int, *, correlates: bool) -> tuple[Leak, ...]:
    """Declare what finding bins shows: counts over fine cells to the label holder, and over bins to their owners."""
    everybody, leader, others = setting.parties, (setting.leader,), setting.unlabelled
    found = [
        Leak(
            CELL_COUNTS, OF_COLUMNS, others, leader, ("cells of columns", "mask of counts"),
            "{who} will learn how many columns you have and how many of their good and bad people are in each fine "
            "cell of them, without names or edges",
        ),
        Leak(
            BIN_COUNTS, OF_LABELS, leader, others, ("bins of columns",),
            "{who} will learn how many good and bad people are in each bin of their own columns, of either kind at "
            f"least {least:,}, and which columns tell something about your labels",
        ),
        nothing(setting, "encrypted labels", "blinded counts"),  # ciphertexts, and uniform numbers
    ]  # fmt: skip
    if correlates:
        together = "{who} will learn how your binned columns go together with each other and with everybody's"
        stay = "{who} will learn which of their own columns go together with yours or others' too much"
        found += [
            Leak(
                COLUMNS, OF_COLUMNS, everybody, everybody, ("block size",), "{who} will learn how many columns you have"
            ),
            Leak(BIN_CORRELATIONS, OF_COLUMNS, everybody, leader, ("product shares", "own correlations"), together),
            Leak(BIN_CORRELATIONS, OF_COLUMNS, leader, others, ("columns that stay",), stay),
            nothing(setting, "sealed columns", "sealed products"),
        ]
    return tuple(found)
