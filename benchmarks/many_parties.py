"""What a party sends as the parties become more: bytes by step, CPU seconds and the virtual clock, from 8 to 64."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from itertools import product

import numpy as np

import colonnade as cn
from colonnade.runtimes.net import Observer, Outcome, Program, Traffic
from colonnade.runtimes.simulation import Simulation
from colonnade.runtimes.wire import Value

Rows = list[tuple[str, str, str]]
ROWS, COLUMNS = 5000, 2  # of every party
COUNTS = (8, 16, 32, 64)
GATEWAY = 1.25e7  # bytes per second, out of and into a party: all its lines share it
SHOWN = 5  # steps of a table's line


class Counted:
    """A simulation that keeps what left every party, and the virtual seconds, of the last run."""

    def __init__(self) -> None:
        self._inner = Simulation(gateway=GATEWAY)
        self.traffic: dict[str, Traffic] = {}
        self.seconds = 0.0

    def run(
        self,
        programs: Mapping[str, tuple[Program, tuple[Value, ...]]],
        observer: Observer | None = None,
        spare: Collection[str] = (),
    ) -> dict[str, Outcome]:
        """See `Runtime.run`."""
        outcomes = self._inner.run(programs, observer, spare)
        self.traffic = {name: outcome.traffic for name, outcome in outcomes.items()}
        self.seconds = max(outcome.seconds for outcome in outcomes.values())
        return outcomes


def parties_of(count: int, rows: int) -> list[cn.Party]:
    """So many parties with two columns each; the first has the labels."""
    rng = np.random.default_rng(count)
    X = rng.standard_normal((rows, COLUMNS * count))
    z = X @ rng.standard_normal(COLUMNS * count) / np.sqrt(COLUMNS * count)
    return cn.split(X, (z + rng.logistic(size=rows) > 0).astype(int), into=count)


def most_and_mean(traffic: dict[str, Traffic]) -> tuple[int, float]:
    """(the most bytes that a party sent, the mean)."""
    sent = [each.bytes for each in traffic.values()]
    return max(sent), float(np.mean(sent))


def by_step(traffic: dict[str, Traffic]) -> Iterator[tuple[str, int, float]]:
    """(step, the most bytes of a party, the mean over all), the largest first."""
    steps = {step for each in traffic.values() for step in each.by_step}
    found = []
    for step in steps:
        sizes = [each.by_step.get(step, (0, 0))[1] for each in traffic.values()]
        found.append((step, max(sizes), float(np.mean(sizes))))
    yield from sorted(found, key=lambda one: -one[1])


def many_parties(quick: bool) -> Rows:
    """Bytes that a party sends, CPU seconds and the virtual clock, as the parties become more (5,000 rows each)."""
    counts, rows = ((4, 9), 200) if quick else (COUNTS, ROWS)
    newton, sgd = cn.BlockNewton(epochs=4, tol=None), cn.FedSGD(epochs=4, batch=rows, step=0.5, tol=None)
    cn.LogisticRegression(algorithm=newton, verbose=0).fit(*parties_of(3, rows))  # compiles
    found: Rows = []
    for algorithm, masks in product((newton, sgd), ("pairwise", "neighbours")):
        first = None
        for count in counts:
            on, parties = Counted(), parties_of(count, rows)
            began = time.process_time()
            cn.LogisticRegression(algorithm=algorithm, sum=masks, verbose=0).fit(*parties, on=on)
            seconds = time.process_time() - began
            most, mean = most_and_mean(on.traffic)
            first = first or (most, mean)
            found.append(
                (
                    f"{algorithm.name}, {masks}, {count} parties",
                    f"{most:,} bytes at most, {mean:,.0f} in the mean",
                    f"{most / first[0]:.2f} and {mean / first[1]:.2f} times; CPU {seconds / count * 1e3:.1f} ms each, "
                    f"virtual {on.seconds:.3f} s",
                )
            )
            parts = [f"{step} {most:,} / {mean:,.0f}" for step, most, mean in by_step(on.traffic)]
            found.append(("  most / mean by step", "; ".join(parts[:SHOWN]), "; ".join(parts[SHOWN:])))
    return found


if __name__ == "__main__":
    for line in many_parties(quick=False):
        print(" | ".join(line))
