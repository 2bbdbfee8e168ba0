"""What a run would take, from short trials over the real lines, and what these show."""

from __future__ import annotations

from colonnade.leaks import Leak, Setting, nothing, objective


def plan_leaks(setting: Setting) -> tuple[Leak, ...]:
    """Declare what a plan shows beside its trials, which are runs: how far from the optimum they were."""
    # A party without labels tells what its policy allows, and how many bytes it sent.
    return (objective(setting, ("plan",)), nothing(setting, "plan", of=setting.unlabelled))
