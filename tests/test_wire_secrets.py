"""What the line carries during a whole job, read with TLS off: no feature value, no coefficient, no label, no id."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np

from colonnade.alignment.protocol import align
from colonnade.crypto.ring import Ring
from colonnade.jobs.job_file import JOB, job_of
from colonnade.remote import tls
from colonnade.service.training import take_part
from colonnade.settings.toml import parse
from federations import Federation
from test_job import GOOD
from test_job_training import Source

RNG = np.random.default_rng(5)
PEOPLE = 200
X = RNG.standard_normal((PEOPLE, 4))
Y = np.where(X[:, 0] - X[:, 3] > 0, "person-repaid", "person-lost")
IDS = [f"customer-{RNG.integers(10**9):09}" for _ in range(PEOPLE)]


class Watched(Source):
    """A table that remembers which of its rows, in which order, it was trained on."""

    def prepare(self, rows):
        self.train = rows
        return super().prepare(rows)


def forms(values):
    """The ways in which numbers could stand on a line; 4 bytes alone may stand anywhere by chance, 8 don't."""
    for kind in ("<f8", ">f8"):
        yield from (np.asarray(value, kind).tobytes() for value in values.ravel())
    for kind in ("<f4", ">f4"):
        yield from (pair.astype(kind).tobytes() for pair in values.reshape(-1, 2))
    yield from (repr(float(value)).encode() for value in values.ravel())
    # What sums are made of: a value that entered one without a mask would look like this.
    for kind in ("<i8", ">i8"):
        yield from (np.asarray(value, kind).tobytes() for value in np.rint(values * Ring(2).scale).ravel())


def label_forms(labels):
    """Labels as a party might send them, in an order of its rows: as numbers of every width, in the ring, as bits.

    One label is no evidence, since a single 1.0 or a byte 1 is in any traffic; 48 in a row are, for by chance they fall
    so once in 2^48. Each run of 63 rows has one of the windows. Batches have orders of their own and are not searched:
    their signals show labels anyway, as the job discloses.
    """
    first = labels == labels[0]
    windows = [first[at : at + 48] for at in range(0, len(first) - 47, 16)]
    for yes in (*windows, *(~window for window in windows)):  # whichever class is the first
        for low in (-1.0, 0.0):
            numbers = np.where(yes, 1.0, low)
            yield from (numbers.astype(kind).tobytes() for kind in ("<f8", ">f8", "<f4", ">f4", "<i8", ">i8", "i1"))
            yield Ring(2).encode(numbers, "").tobytes()
        yield from (np.packbits(yes, bitorder=order).tobytes() for order in ("big", "little"))


def test_the_forms_are_found_where_they_are():
    """Every form of a secret is found in a line that holds it: a search that finds nothing would prove nothing."""
    values, labels = X[:4, :2], Y[:120]
    ring = Ring(2).encode(values, "bank")
    for sent in (values, values.astype(">f8"), values.astype("<f4"), ring, ring.astype(">u8")):
        assert any(form in sent.tobytes() for form in forms(values))
    encoded = np.where(labels == "person-repaid", 1.0, -1.0)
    ring = Ring(2).encode(encoded, "bank")
    for sent in (encoded, -encoded, encoded[30:100], encoded > 0, np.packbits(encoded > 0), ring):
        assert any(form in sent.tobytes() for form in label_forms(labels))
    assert not any(form in bytes(10_000) for form in label_forms(labels))


def test_nothing_of_a_partys_own_is_on_the_line(monkeypatch):
    monkeypatch.setenv(tls.INSECURE, "1")
    job = replace(job_of(parse(GOOD.encode(), JOB, "job.toml")), addresses={"bank": "-", "shop": "-"})
    orders = {name: np.random.default_rng(k).permutation(PEOPLE)[:190] for k, name in enumerate(("bank", "shop"))}
    labels = np.array(Y, dtype=object)
    blocks = {"bank": [0, 1], "shop": [2, 3]}
    sources = {
        name: Watched(
            X[np.ix_(order, blocks[name])], [IDS[k] for k in order], labels[order] if name == "bank" else None
        )
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
    assert b"person-lost" not in seen
    bank = sources["bank"]
    for order in (slice(None), bank.train):
        assert not [form for form in label_forms(bank.labels[order]) if form in seen]
