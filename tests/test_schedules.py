"""Random schedules of delays, losses, duplicates, reorderings and crashes under the virtual clock.

Each one ends with the right model, or with a named error at every party that is still alive; none hangs. A few in every
test run, a thousand with `make schedules`.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

import colonnade as cn
from colonnade.align import align_packed
from colonnade.errors import RunFailed
from colonnade.ids import canonical, pack

COUNT = int(os.environ.get("COLONNADE_SCHEDULES", "60"))
RNG = np.random.default_rng(0)
X = RNG.standard_normal((64, 8))
Y = X[:, 0] - X[:, 5] > 0
ALGORITHMS = (
    cn.FedSGD(batch=16, epochs=2, tol=None),
    cn.FedBCD(local_steps=2, order="sequential", batch=16, epochs=1, tol=None),
    cn.VFB2("saga", batch=16, epochs=2, tol=None, asynchronous=False),
    cn.VFB2("svrg", batch=16, epochs=2, tol=None),
    cn.AFSGD("saga", batch=16, epochs=2, tol=None),
    cn.BlockNewton(epochs=4, tol=None),
)


def schedule(seed):
    """A schedule and a job, both drawn from the seed."""
    rng = np.random.default_rng(seed)
    names = [f"party{k + 1}" for k in range(int(rng.integers(2, 5)))]
    crashes = {str(rng.choice(names)): float(rng.uniform(0, 2))} if rng.random() < 0.4 else {}
    faults = cn.Faults(
        lost=float(rng.choice([0.0, 0.0, 0.002, 0.05])),
        delayed=float(rng.choice([0.0, 0.3, 1.0])),
        duplicated=float(rng.choice([0.0, 0.2])),
        delay=float(rng.uniform(0, 3)),
        crashes=crashes,
    )
    clock = cn.Simulation(
        latency=float(rng.uniform(0, 0.05)),
        speeds={names[-1]: float(rng.uniform(0.1, 1.0))},
        seconds_per_nonzero=float(rng.choice([1e-9, 1e-4])),
        faults=faults,
        deadline=20.0,
        seed=seed,
    )
    return names, clock, ALGORITHMS[int(rng.integers(len(ALGORITHMS)))], str(rng.choice(["pairwise", "two-trees"]))


def check_failure(error, clock):
    """Every party that lives names one, and says at which step."""
    crashed = set(clock.faults.crashes)
    for name, outcome in error.outcomes.items():
        if name in crashed or (outcome.error is None and outcome.value is not None):
            continue  # or it was done, with its result, before the other one fell silent
        assert isinstance(outcome.error, RunFailed), (name, outcome)
        assert outcome.error.party in error.outcomes
        assert outcome.error.step
    if not clock.faults.lost and not crashed:
        raise AssertionError(f"nothing was lost and nobody crashed, and yet: {error}")
    if not clock.faults.lost and not clock.faults.delayed:
        # (Questions and answers along a chain of waits must arrive before the deadline for the right one to be named.)
        assert {o.error.party for n, o in error.outcomes.items() if n not in crashed and o.error} <= crashed


@pytest.mark.filterwarnings("ignore:.*hold no labels", "ignore:.*undoes the masks", "ignore:.*sequential")
@pytest.mark.parametrize("part", range(4))
def test_training_under_any_schedule(part):
    ended = {"model": 0, "error": 0}
    for seed in range(part, COUNT, 4):
        names, clock, algorithm, sum_ = schedule(seed)
        parties = cn.split(X, Y, into=dict(zip(names, np.array_split(range(8), len(names)), strict=True)))
        model = cn.LogisticRegression(algorithm=algorithm, sum=sum_, verbose=0)
        try:
            model.fit(*parties, on=clock)
        except RunFailed as error:
            check_failure(error, clock)
            ended["error"] += 1
            continue
        ended["model"] += 1
        assert np.isfinite(np.concatenate(list(model.coef_.values()))).all()
        asynchronous = getattr(algorithm, "asynchronous", False)
        if not asynchronous:  # the order of events changes nothing: the same bits as on a perfect line
            still = cn.LogisticRegression(algorithm=algorithm, sum=sum_, verbose=0).fit(*parties)
            assert all((model.coef_[name] == still.coef_[name]).all() for name in names), seed
    assert ended["model"] > 0 < ended["error"]


def test_alignment_under_any_schedule():
    ended = {"rows": 0, "error": 0}
    for seed in range(COUNT // 3):
        names, clock, _, _ = schedule(10_000 + seed)
        clock = replace(clock, seconds_per_nonzero=1e-9)  # a multiplication is 20,000 numbers
        rng = np.random.default_rng(seed)
        sets = {name: [str(one) for one in rng.permutation(40)[:30]] for name in names}
        common = set.intersection(*map(set, sets.values()))
        programs = {name: (align_packed, (*pack(canonical(ids, name)), 1, names[0])) for name, ids in sets.items()}
        try:
            outcomes = clock.run(programs)
        except RunFailed as error:
            check_failure(error, clock)
            ended["error"] += 1
            continue
        ended["rows"] += 1
        orders = [[sets[name][row] for row in outcomes[name].value] for name in names]
        assert set(orders[0]) == common
        assert all(order == orders[0] for order in orders)
    assert ended["rows"] > 0 < ended["error"]
