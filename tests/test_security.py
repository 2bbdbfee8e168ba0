"""docs/security.md, carried out: what a curious party can compute from what it sees, and what it can't."""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from colonnade.engine.sampling import Draws
from colonnade.errors import ColonnadeWarning
from colonnade.families.training import train
from colonnade.sums import SUMS
from colonnade.sums.masked import PairwiseSum
from training_programs import linear_job, part_of

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 9))
Y = np.where(X @ RNG.standard_normal(9) + RNG.logistic(size=200) > 0, 1, -1)
ALGORITHM = cn.FedSGD(step=0.5, schedule="constant", batch=20, epochs=8, tol=None)


class Recorder:
    """A party's net that remembers what arrived."""

    def __init__(self, net, seen):
        self._net, self._seen = net, seen

    def __getattr__(self, name):
        return getattr(self._net, name)

    async def recv(self, frm, tag, *, patient=False):
        value = await self._net.recv(frm, tag, patient=patient)
        self._seen.append((frm, tag, value))
        return value


def transcripts(parties, sum_):
    """Train, and return what every party received."""
    seen = {party.name: [] for party in parties}
    holders = tuple(party.name for party in parties if party.active)
    job = linear_job(ALGORITHM, holders, sum_=sum_)

    def program(name):
        async def recorded(net, job, mine):
            return await train(Recorder(net, seen[name]), job, mine)

        return recorded

    encoded = {party.name: part_of(party, (-1, 1)) for party in parties}
    cn.Simulation().run({name: (program(name), (job, mine)) for name, mine in encoded.items()})
    return seen


def batches_of(parties):
    """The public order of rows."""
    draws = Draws(
        "passes", ALGORITHM.seed, ALGORITHM.epochs, {parties[0].name: np.arange(200)}, ALGORITHM.batch_for(200)
    )
    return [rows for epoch in range(1, ALGORITHM.epochs + 1) for _, rows in draws.batches(epoch, whole=False)]


@pytest.mark.parametrize("into", [2, 3])
def test_a_passive_party_reads_the_labels_off_the_signals(into):
    """The papers say that it can't. The sign of s = -y / (1 + exp(y z)) is minus the label."""
    parties = cn.split(X, Y, into=into)
    signals = [value for _, tag, value in transcripts(parties, "pairwise")["party2"] if tag == "signal"]
    guessed = np.zeros(200)
    for rows, signal in zip(batches_of(parties), signals, strict=True):
        guessed[rows] = -np.sign(signal)
    assert (guessed == Y).all()


def explained(observed, columns):
    """R² of each column on what was observed."""
    basis = np.column_stack([observed, np.ones(len(observed))])
    rest = columns - basis @ np.linalg.lstsq(basis, columns, rcond=None)[0]
    return 1 - rest.var(axis=0) / columns.var(axis=0)


def test_two_parties_the_label_holder_learns_the_partners_columns_up_to_a_linear_map():
    """Theorem 2 holds (the columns are not determined), and still every column is a combination of what is seen."""
    parties = cn.split(X, Y, into=2)
    seen = [value for _, tag, value in transcripts(parties, "plain")["party1"] if tag == "evaluation"]
    contributions = np.column_stack([value.view(np.int64) / 2.0**36 for value in seen])
    assert contributions.shape == (200, ALGORITHM.epochs + 1)
    assert (explained(contributions, parties[1].X) > 0.999).all()


def test_three_parties_masks_leave_nothing_of_a_single_partner():
    rng = np.random.default_rng(1)
    columns = rng.standard_normal((1000, 9))
    parties = cn.split(columns, np.where(columns[:, 0] + rng.logistic(size=1000) > 0, 1, -1), into=3)
    everything = transcripts(parties, "pairwise")
    for spy, victim in (("party1", 1), ("party1", 2), ("party2", 0), ("party3", 0)):
        seen = [v.view(np.int64) for _, tag, v in everything[spy] if tag == "evaluation"]
        if seen:
            observed = np.column_stack(seen) / 2.0**63
            # 18 random regressors on 1,000 rows explain about 18 / 1000 of anything, and 0.1 once in 1e12 times
            assert observed.shape == (1000, 18)
            assert (explained(observed, parties[victim].X) < 0.1).all()


def test_sequential_order_shows_a_partys_change_whatever_the_masks(monkeypatch):
    """FedBCD-s sums the same rows again after one party moved: the difference is that party's alone."""
    parties = cn.split(X, Y, into=3)
    algorithm = cn.FedBCD(
        local_steps=2, order="sequential", step=0.5, schedule="constant", batch=200, epochs=1, tol=None
    )
    sums = []

    class Totals(PairwiseSum):
        async def total(self, tag, value, root):
            total = await super().total(tag, value, root)
            if tag == "scores" and total is not None:
                sums.append(total - value)  # what the label holder knows of the others
            return total

    monkeypatch.setitem(SUMS, "pairwise", Totals)
    model = cn.LogisticRegression(algorithm=algorithm, sum="pairwise", verbose=0)
    with pytest.warns(ColonnadeWarning, match="order='sequential' sums the same"):
        model.fit(*parties)
    order = np.random.default_rng([0, 1]).permutation(200)
    np.testing.assert_allclose(sums[1] - sums[0], parties[1].X[order] @ model.coef_["party2"], atol=1e-8)


def test_columns_and_coefficients_never_travel():
    """No message holds a column's or a coefficient's bytes, with any sum."""
    parties = cn.split(X, Y, into=3)
    values = {np.float64(v).tobytes() for party in parties for v in party.X[:50].ravel()}
    for sum_ in ("pairwise", "two-trees", "plain"):
        for received in transcripts(parties, sum_).values():
            for _, _, value in received:
                if isinstance(value, np.ndarray) and value.dtype.itemsize == 8:
                    assert not values & {item.tobytes() for item in value.ravel()}
