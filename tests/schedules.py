"""Random schedules of faults under the virtual clock, and what is a right end of a run under one.

`python tests/schedules.py 10000` tries so many and prints what came of them, as `make schedules` does; `python
tests/schedules.py --seed 17` tries the one of that seed and shows how it ended. `--first` is the first seed of many.

A schedule has latencies and bandwidths for every line, slow parties, and lost, delayed and duplicated messages; parties
crash or stall. A run under it ends right in one of two ways, and all else is wrong:

- With a model: the right one, as `schedule_cases` says for each algorithm.
- With an error, where something was lost, or somebody crashed or stalled. Then every party that lives ends with one,
  unless it was done before, within the deadline after the last thing that happened anywhere. The error names a party
  that the schedule has disturbed: it crashed or stalled, or a message from or to it was lost; or it waits for a lost
  message or a stalled party, perhaps through others, and the error says that this may be. And it names a step for
  which somebody was waiting for that party, or had said so when asked. Where the run keeps checkpoints it is started
  again, perhaps with other faults and with a party that has not kept its last state, and in the end it gives the right
  model all the same.

No run hangs: not in virtual time, and not on the wall's clock.
"""

from __future__ import annotations

import argparse
import faulthandler
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import colonnade as cn
from colonnade.errors import PartySilent, RunFailed
from colonnade.jobs.checkpoints import Checkpoints
from colonnade.runtimes.frames import DATA
from schedule_cases import CASES, bits, distance, fit, in_common, still
from schedule_draws import DEADLINE, Plan, draw
from schedule_world import Disturbed, Hang, Wait, World
from test_kept import Shelf

GUARD = 120.0  # real seconds of one schedule, a thousand times what it takes


class Wrong(AssertionError):
    """A run ended in neither of the two ways."""


def carry_out(seed: int, say: Callable[[Any], None] = lambda _: None) -> tuple[str, float]:
    """Run the schedule of a seed: how it ended, and how far from the optimum, where that is what is looked at.

    "model", "error", or "resumed": broken off, and a model after another start.
    """
    plan, rng = draw(seed), np.random.default_rng([seed, 0x7EA2])
    say(plan)
    with tempfile.TemporaryDirectory() as folder, guarded():
        keepers = _keepers(plan, Path(folder))
        for number, clock in enumerate(plan.clocks):
            on = Disturbed(clock, keepers)
            try:
                model = fit(plan.case, plan.cast, on, sum=plan.sum, topology=plan.topology)
            except RunFailed as error:
                say(f"start {number + 1}: {error}")
                check_error(plan if number == 0 else replace(plan, stalled=frozenset()), clock, on.world, error)
                _tear(keepers, rng)
                continue
            say(f"start {number + 1}: a model")
            return "resumed" if number else "model", check_model(plan, on, model)
    if plan.kept:
        raise Wrong("the last start has no faults, and yet it failed")
    return "error", 0.0


def _keepers(plan: Plan, folder: Path) -> Any:
    if not plan.kept:
        return None
    if plan.kept == "memory":
        return {name: Shelf() for name in plan.cast.names}
    return {name: Checkpoints(folder / name, b"a job") for name in plan.cast.names}


def _tear(keepers: Any, rng: np.random.Generator) -> None:
    """Sometimes a party has not even kept what it was about to keep when the run broke off."""
    if keepers and rng.random() < 0.4:
        keeper = keepers[str(rng.choice(sorted(keepers)))]
        if versions := keeper.versions():
            keeper.forget(max(versions) - 1)


def check_model(plan: Plan, on: Disturbed, model: Any) -> float:
    """The right model, in the sense of its case; returns how far from the optimum it is, where that is the sense."""
    case, cast = plan.case, plan.cast
    far = distance(case, cast, model) if case.right == "optimum" else 0.0
    if case.right == "bits" and bits(model) != bits(still(case, cast).model):
        raise Wrong("the model is another one than on a perfect line")
    if not far <= case.tolerance:
        raise Wrong(f"the objective is {far:.3g} of the whole way above the optimum, allowed is {case.tolerance:g}")
    if case.right == "answered" and not np.array_equal(on.answered(), model.parameters_):
        raise Wrong("the model is not that of the sites that answered")
    if case.right == "common" and not in_common(cast, model):
        raise Wrong("the rows are not those that all parties have")
    return far


def check_error(plan: Plan, clock: cn.Simulation, world: World, error: RunFailed) -> None:
    """An error that names whom and what the schedule has disturbed, everywhere and in time."""
    disturbed = {*plan.stalled, *world.crashed, *(name for frm, to, _ in world.lost for name in (frm, to))}
    if not disturbed:
        raise Wrong(f"nothing was lost and nobody crashed, and yet: {error}")
    for finder, found, waits in world.broken:
        if found.party not in disturbed | held_up(waits, world.lost, plan.stalled, str(found)):
            raise Wrong(f"{finder} finds that {found}, but only {sorted(disturbed)} were disturbed")
        if (found.party, found.step) not in {(whom, step) for _, whom, step in waits}:
            raise Wrong(f"{finder} finds that {found}, and nobody was waiting for that: {sorted(waits)}")
    named = {(found.party, found.step) for _, found, _ in world.broken}
    for name, step, raised in world.own:
        # A server of sites that hold rows goes on without some of them, and gives up where too few are left.
        if not isinstance(raised, PartySilent) or raised.party not in disturbed:
            raise Wrong(f"{name} ends with {raised!r}, but only {sorted(disturbed)} were disturbed")
        if (raised.party, raised.step) not in world.given_up:
            raise Wrong(f"{name} ends with {raised!r}, and nobody was waiting for that")
        named |= {(name, step), (raised.party, raised.step)}
    slowest = max(clock.latency.values()) if isinstance(clock.latency, dict) else clock.latency
    for name, outcome in error.outcomes.items():
        if name in world.crashed or outcome.error is None:
            continue  # it was done, with its result, before the other one fell silent
        if not isinstance(outcome.error, RunFailed) or (outcome.error.party, outcome.error.step) not in named:
            raise Wrong(f"{name} ended with {outcome.error!r}, which nobody found")
        if name not in plan.stalled and outcome.seconds > world.last + DEADLINE + 2 * slowest:
            raise Wrong(f"{name} ended {outcome.seconds - world.last:.3g} s after the last that happened")


def held_up(waits: set[Wait], lost: list[tuple[str, str, int]], stalled: frozenset[str], sentence: str) -> set[str]:
    """Those who wait, themselves or through others, for a lost message or a stalled party, if the error says it may be.

    Where all live and wait in a circle, nobody can know whose message it was that did not come.
    """
    if "it may be busy, or a message was lost" not in sentence:
        return set()
    links = {(frm, to) for frm, to, kind in lost if kind == DATA}
    found = {who for who, whom, _ in waits if (whom, who) in links or whom in stalled}
    while more := {who for who, whom, _ in waits if whom in found} - found:
        found |= more
    return found


@contextmanager
def guarded() -> Iterator[None]:
    """Whatever hangs on the wall's clock ends with an error, or, where Python itself hangs, with all stacks."""

    def ring(*_: Any) -> None:
        raise Hang(f"{GUARD:g} real seconds are over")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, GUARD)
    faulthandler.dump_traceback_later(2 * GUARD, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def attempt(seed: int) -> tuple[str, str, float, str]:
    """(case, how it ended, how far from the optimum, what was wrong)."""
    name = CASES[seed % len(CASES)].name
    try:
        return name, *carry_out(seed), ""
    except Hang as hang:
        return name, "hang", 0.0, f"seed {seed}: {hang}"
    except Exception as error:
        return name, "wrong", 0.0, f"seed {seed}: {type(error).__name__}: {error}"


ENDS = ("model", "resumed", "error", "hang", "wrong")


def table(found: Counter[tuple[str, str]], farthest: dict[str, float]) -> str:
    """What came of all schedules, by algorithm."""
    names = [case.name for case in CASES]
    lines = [f"{'':28}{'runs':>8}" + "".join(f"{end:>9}" for end in ENDS) + "  farthest from the optimum"]
    for name in [*names, "all"]:
        counts = [sum(found[one, end] for one in (names if name == "all" else [name])) for end in ENDS]
        far = f"  {farthest[name]:.1e}" if farthest.get(name) else ""
        lines.append(f"{name:28}{sum(counts):8}" + "".join(f"{count:9}" for count in counts) + far)
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    if options.seed is not None:
        print(carry_out(options.seed, print))
        return 0
    found: Counter[tuple[str, str]] = Counter()
    farthest: dict[str, float] = {}
    wrong = 0
    seeds = range(options.first, options.first + options.count)
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        for done, (name, end, far, text) in enumerate(pool.map(attempt, seeds, chunksize=25), 1):
            found[name, end] += 1
            farthest[name] = max(far, farthest.get(name, 0.0))
            if text:
                wrong += 1
                print(text, flush=True)
            if done % 1000 == 0:
                print(f"{done} schedules", file=sys.stderr, flush=True)
    print(table(found, farthest))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
