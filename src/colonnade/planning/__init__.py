"""What a run would take, from short trials over the real lines, and what these show."""

from __future__ import annotations

from colonnade.leaks import COLUMNS, OF_COLUMNS, Leak, Setting, nothing, objective


def plan_leaks(setting: Setting) -> tuple[Leak, ...]:
    """Declare what a plan shows beside its trials, which are runs: how far from the optimum they were.

    Of sealed training, and of trees, there is no trial. What it takes is worked out from how many columns each party
    has, which such training shows as well.
    """
    words = "{who} will learn how many columns you have"
    told = Leak(COLUMNS, OF_COLUMNS, setting.parties, setting.parties, ("plan",), words)
    if setting.sealed or setting.model == "trees":
        return (told,)
    # A party without labels tells beside that what its policy allows, and how many bytes it sent.
    return (told, objective(setting, ("plan",)), nothing(setting, "plan", of=setting.unlabelled))
