"""Statistics: what each party can learn from what it sees, and what no honest party sends."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import colonnade as cn
from colonnade.blocks.information import Joint, random_rotation
from colonnade.crypto.lattice_products import new_secret_key
from colonnade.errors import ColonnadeError
from colonnade.families.training import rows_of
from colonnade.inference import correlations
from colonnade.inference.program import SEALED, infer_linear
from colonnade.objective.losses import loss as loss_named
from test_encrypted import Lying, other_key
from test_security import Recorder
from test_statistics import COLUMNS, LABELS, PRODUCTS, SHARES, N, X, fitted, parties_of

KEY = "encryption key"


def transcripts(model, parties, wrap=Recorder, sealing=SEALED):
    """Run statistics, and return what every party received."""
    seen = {party.name: [] for party in parties}
    job = (model.loss, ("l2", model.l2), model.holders_, model.sum_, "tree", sealing, N, False)

    def program(name):
        async def recorded(net, job, mine):
            return await infer_linear(wrap(net, seen[name]), job, mine)

        return recorded

    programs = {}
    for party in parties:
        columns, y, labelled = rows_of(party, model.classes_, loss_named(model.loss))
        programs[party.name] = (program(party.name), (job, (columns, model._states[party.name], y, labelled, None)))
    cn.Simulation().run(programs)
    return seen


def test_no_message_holds_a_row_in_the_clear_but_for_its_curvature():
    """Nothing but scores (masked sums), curvatures and ciphertexts is as long as there are rows."""
    parties = parties_of(cn.LogisticRegression, into=3)
    seen = transcripts(fitted(cn.LogisticRegression, parties), parties)
    steps, long = set(), set()
    for name, received in seen.items():
        for frm, step, value in received:
            steps.add(step)
            if isinstance(value, np.ndarray | bytes) and len(value) >= N:
                long.add((step, name, frm))
    others = [("party2", "party1"), ("party3", "party1"), ("party3", "party2")]
    assert {one for one in long if one[0] == COLUMNS} == {(COLUMNS, *pair) for pair in others}
    assert {one[0] for one in long} == {COLUMNS, "curvatures", "evaluation", PRODUCTS, KEY}
    assert steps == {"encryption key", "labelled rows", "public key", "evaluation", "curvatures", "block size", COLUMNS,
                     "pace", PRODUCTS, SHARES, "inverse block"}  # fmt: skip
    # shares go to the first label holder, and nobody else has two of them
    assert {name for name, received in seen.items() for _, step, _ in received if step == SHARES} == {"party1"}


def correlations_of(model, parties, monkeypatch):
    """What the first label holder works out."""
    kept, original = [], correlations.Correlations._gather

    async def gather(self, mine):
        matrix = await original(self, mine)
        kept.append(matrix)
        return matrix

    monkeypatch.setattr(correlations.Correlations, "_gather", gather)
    transcripts(model, parties)
    monkeypatch.undo()
    return next(matrix for matrix in kept if matrix is not None)


def test_the_first_label_holder_learns_correlations_and_not_in_which_columns(monkeypatch):
    """For columns X_k and X_k M it gets the same up to a rotation: the canonical correlations are all there is."""
    y, rng = LABELS[cn.RidgeRegression], np.random.default_rng(7)
    mixed = X[:, 4:] @ rng.standard_normal((6, 6))
    spectra, blocks = [], []
    for columns in (X[:, 4:], mixed, mixed):
        parties = [cn.Party("bank", X[:, :4], y), cn.Party("shop", columns)]
        model = fitted(cn.RidgeRegression, parties, l2=0.0)
        matrix = correlations_of(model, parties, monkeypatch)
        assert matrix.shape == (11, 11)
        np.testing.assert_array_equal(matrix[:5, :5], np.eye(5))
        np.testing.assert_array_equal(matrix[5:, 5:], np.eye(6))
        blocks.append(matrix[5:, :5])
        spectra.append(np.linalg.svd(blocks[-1], compute_uv=False))
    np.testing.assert_allclose(spectra[0], spectra[1], atol=1e-8)
    # and they are what the textbook calls canonical correlations, of these columns and no others
    A, B = (np.linalg.qr(part)[0] for part in (np.column_stack([X[:, :4], np.ones(N)]), X[:, 4:]))
    np.testing.assert_allclose(spectra[0], np.linalg.svd(B.T @ A, compute_uv=False), atol=1e-8)
    assert np.abs(blocks[1] - blocks[2]).max() > 0.01  # the same columns twice: turned anew every time


def test_shares_alone_are_uniform():
    """What the key's holder opens, and what the other kept, each by itself: any number is as likely."""
    parties = parties_of(cn.LogisticRegression, into=3)
    model = fitted(cn.LogisticRegression, parties)
    numbers = {"opened": [], "masks": []}
    for _ in range(8):
        for frm, step, value in transcripts(model, parties)["party1"]:
            if step == SHARES and frm in ("party2", "party3"):
                kind = "opened" if frm == "party2" else "masks"  # of the pair of these two: the second of its shares
                numbers[kind] += [int.from_bytes(one.tobytes(), "little") / 2**96 for one in value[1].reshape(-1, 3)]
    for kind, values in numbers.items():
        assert len(values) == 72, kind
        assert stats.kstest(values, "uniform").pvalue > 1e-9
    both = np.array(numbers["opened"]) - np.array(numbers["masks"])
    assert (np.minimum(np.abs(both), 1 - np.abs(both)) < 1e-3).all()  # together they are small numbers


def test_rotations_are_uniform():
    for width in (1, 2, 7):
        turned = random_rotation(width)
        np.testing.assert_allclose(turned.T @ turned, np.eye(width), atol=1e-12)
    first = np.array([random_rotation(3)[0, 0] for _ in range(2000)])
    assert stats.kstest(first, "uniform", args=(-1, 2)).pvalue > 1e-9  # Archimedes: a coordinate on a sphere
    assert random_rotation(0).shape == (0, 0)


LIES = {
    "half a key": (KEY, lambda value: value[:99], "'party1' sent at step 'encryption key' what can't be: a public key"),
    "size": ("block size", lambda value: -1, "must tell a number of columns at step 'block size'"),
    "curvatures": ("curvatures", lambda value: -value, "'party1' must tell finite numbers >= 0 at step 'curvatures'"),
    "pace": ("pace", lambda value: value + 1, "is at another portion of the rows at step 'pace'"),
    "columns under another key": (COLUMNS, other_key, "do not belong together"),
    "columns of the wrong shape": (
        COLUMNS,
        lambda value: value[1:],
        "'party1' must send .* bytes at step 'sealed columns'",
    ),
    "products that are none": (PRODUCTS, lambda value: bytes(len(value)), "do not belong together"),
    "products of a wrong size": (PRODUCTS, lambda value: value[1:], "'party2' must send .* at step 'sealed products'"),
    "too few shares": (SHARES, lambda value: value[:0], "'party2' must tell 1 shares at step 'product shares'"),
    "other shares": (SHARES, lambda value: tuple(one[::-1].copy() for one in value), "do not belong together"),
    "no block": ("inverse block", lambda value: value[:2], "'party1' must tell two blocks and two numbers"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_no_honest_party_sends(lie):
    step, how, sentence = LIES[lie]
    liar = type("Liar", (Lying,), {"step": step, "lie": staticmethod(how)})
    parties = parties_of(cn.LogisticRegression, into=2)
    model = fitted(cn.LogisticRegression, parties)
    with pytest.raises(ColonnadeError, match=sentence):
        transcripts(model, parties, liar)


def test_every_partys_key_is_looked_at():
    """Not only the first label holder's: of three parties the second has one too, and the third multiplies under it."""
    parties = parties_of(cn.LogisticRegression, into=3)
    model = fitted(cn.LogisticRegression, parties)

    class Second(Recorder):
        async def send(self, to, tag, value):
            lie = tag == KEY and self.me == "party2"
            await self._net.send(to, tag, value[:-1] if lie else value)

    with pytest.raises(ColonnadeError, match="party 'party2' sent at step 'encryption key' what can't be"):
        transcripts(model, parties, Second)


def test_nothing_leaves_unsealed():
    parties = parties_of(cn.LogisticRegression, into=2)
    model = fitted(cn.LogisticRegression, parties)
    with pytest.raises(ColonnadeError, match="correlations leave a party under 'encrypted' only, got 'plain'"):
        transcripts(model, parties, sealing="plain")


def test_keys_are_made_anew(monkeypatch):
    made = []
    monkeypatch.setattr(correlations, "new_secret_key", lambda: made.append(new_secret_key()) or made[-1])
    parties = parties_of(cn.LogisticRegression, into=3)
    model = fitted(cn.LogisticRegression, parties)
    for _ in range(2):
        model.statistics(*parties)
    assert len({key.public for key in made}) == len(made) == 4  # all but the last party, twice


def test_a_matrix_that_no_columns_have():
    assert Joint.of(np.array([[1.0, 2.0], [2.0, 1.0]])) is None
    assert Joint.of(np.array([[1.0, math.nan], [math.nan, 1.0]])) is None
    free = Joint.of(np.ones((2, 2)))
    assert free.free.shape == (2, 1)
    np.testing.assert_allclose(free.inverse, np.full((2, 2), 0.25))
