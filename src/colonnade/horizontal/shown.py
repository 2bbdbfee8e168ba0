"""What a job over rows shows to whom: sums over all sites, and where those tell one site's part.

The server sees every sum that is unmasked, and sites see the parameters of each round, from which the sum of the round
follows. Whoever has a part of a sum of its own takes it off: with two parts in all, what is left is the other's.
"""

from __future__ import annotations

from colonnade.leaks import (
    OF_COLUMNS,
    OF_LABELS,
    OF_PEOPLE,
    SITE_ALONE,
    SITE_COSTS,
    SITE_COUNTS,
    SITE_GRADIENTS,
    SITE_MEANS,
    SITE_NAMES,
    Leak,
    Setting,
    nothing,
)

INTRODUCTION, INSTRUCTION = "introduction", "instruction"
_MASKED = ("mask keys", "key shares", "masked sum", "signed survivors", "unmasking shares")
_CLEAR = ("sum",)
KINDS = (INTRODUCTION, INSTRUCTION, *_MASKED, *_CLEAR)


def parts_seen(setting: Setting) -> dict[str, int]:
    """Return of how many other sites the smallest sum is that each party may come to know; a sum without masks is one.

    The server sees sums, and sites see what follows from them.
    """
    sites, clear = setting.holders, setting.sum == "plain"
    found = {name: max(1, setting.fewest - 1) for name in sites}
    at_server = setting.fewest - 1 if setting.server in sites else setting.fewest
    return {**found, setting.server: 1 if clear else max(1, at_server)}


def rows_leaks(setting: Setting) -> tuple[Leak, ...]:
    """Declare all that training over rows shows; using the model shows nothing, as everybody has it whole."""
    sites, everybody, server = setting.holders, setting.parties, (setting.server,)
    sums = _CLEAR if setting.sum == "plain" else _MASKED
    told = (*sums, INSTRUCTION)
    together = "added up over all sites that answer"
    alone = tuple(name for name, parts in parts_seen(setting).items() if parts == 1)
    found = [
        Leak(
            SITE_NAMES, OF_COLUMNS, sites, everybody, (INTRODUCTION, INSTRUCTION),
            "{who} will learn the names of your columns, your classes, and which categories as many of your rows have "
            "as your policy says (min_rows); the other sites hear what all have",
        ),
        Leak(
            SITE_COUNTS, OF_PEOPLE, sites, everybody, told,
            "{who} will learn how many rows there are in all, of each category and of limited classes, " + together,
        ),
        Leak(
            SITE_MEANS, OF_COLUMNS, sites, everybody, told,
            "{who} will learn means and deviations of your columns, " + together,
        ),
        Leak(
            SITE_GRADIENTS, OF_COLUMNS, sites, everybody, told,
            "{who} will see in every round the gradient of your rows, or how far your own steps went, " + together
            + " (sites: as far as it follows from the parameters)",
        ),
        Leak(
            SITE_COSTS, OF_LABELS, sites, everybody, told,
            "{who} will learn how well the model fits your rows, " + together,
        ),
    ]  # fmt: skip
    if alone:
        why = (
            "as sums are in the clear"
            if setting.sum == "plain"
            else "where so few answer, or are chosen, as the job allows (minimum_sites, fraction), as it has the only "
            "other part of the sum"
        )
        words = f"{{who}} could work out your own part of these sums, {why}"
        found.append(Leak(SITE_ALONE, OF_COLUMNS, sites, alone, told, words))
    # Letters between sites pass the server sealed, and what it asks for says nothing about anybody.
    others = tuple(name for name in server if name not in sites)
    return (*found, nothing(setting, *KINDS, of=others)) if others else tuple(found)
