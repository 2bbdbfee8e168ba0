"""What the line carries during a whole job, read with TLS off: no feature value, no coefficient, no label, no id."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np

from colonnade.align import align
from colonnade.federation.job import JOB, job_of
from colonnade.federation.toml import parse
from colonnade.federation.training import take_part
from colonnade.runtimes import grpc_streams
from federations import Federation
from test_job import GOOD
from test_job_training import Source

RNG = np.random.default_rng(5)
PEOPLE = 200
X = RNG.standard_normal((PEOPLE, 4))
Y = np.where(X[:, 0] - X[:, 3] > 0, "person-repaid", "person-lost")
IDS = [f"customer-{RNG.integers(10**9):09}" for _ in range(PEOPLE)]


def forms(values):
    """The ways in which numbers could stand on a line; 4 bytes alone may stand anywhere by chance, 8 don't."""
    for kind in ("<f8", ">f8"):
        yield from (np.asarray(value, kind).tobytes() for value in values.ravel())
    for kind in ("<f4", ">f4"):
        yield from (pair.astype(kind).tobytes() for pair in values.reshape(-1, 2))
    yield from (repr(float(value)).encode() for value in values.ravel())


def test_nothing_of_a_partys_own_is_on_the_line(monkeypatch):
    monkeypatch.setenv(grpc_streams.INSECURE, "1")
    job = replace(job_of(parse(GOOD.encode(), JOB, "job.toml")), addresses={"bank": "-", "shop": "-"})
    orders = {name: np.random.default_rng(k).permutation(PEOPLE)[:190] for k, name in enumerate(("bank", "shop"))}
    labels = np.array(Y, dtype=object)
    blocks = {"bank": [0, 1], "shop": [2, 3]}
    sources = {
        name: Source(X[np.ix_(order, blocks[name])], [IDS[k] for k in order], labels[order] if name == "bank" else None)
        for name, order in orders.items()
    }
    results = {}

    async def program(net, _):
        results[net.me] = await take_part(net, job, sources[net.me], align, lambda *_: None)
        return 0

    async def scenario():
        with Federation("bank", "shop") as federation:
            line = federation.relay("shop", keep=True)
            work = dict.fromkeys(("bank", "shop"), (program, 0))
            assert await federation.all(work, credentials=None) == {"bank": 0, "shop": 0}
            return bytes(line.seen)

    seen = asyncio.run(scenario())
    assert len(seen) > 20_000
    assert b"align blinded" in seen  # the eyes do see
    assert b"signal" in seen
    own = [s.X for s in sources.values()] + [result.state[0] for result in results.values()]
    for values in own:
        assert not [form for form in forms(values) if form in seen]
    assert not [one for one in IDS if one.encode() in seen]
    # Classes are told among label holders only, and the bank is the only one.
    assert b"person-repaid" not in seen
