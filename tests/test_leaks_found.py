"""Attacks by honest parties on what they are sent: whatever is found has a name in the job's list."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import colonnade as cn
from colonnade.errors import ColonnadeWarning
from colonnade.leaks import (
    ALL_DIRECTIONS,
    CHANGES,
    COLUMNS,
    CONTRIBUTION,
    CONTRIBUTIONS,
    DIRECTIONS,
    PRODUCTS,
    SCORES,
    SIGNALS,
)
from test_leaks import COLUMNS_OF_ALL, NAMES, ROWS, SHORT, Record, X, Y, job_with, run

STEP, EPOCHS = 2.0, 60
SIGNED = np.where(Y == 1, 1.0, -1.0)
# A batch is all rows: then every exchange is about the same ones, in an order that all parties know.
FULL = {"step": STEP, "schedule": "constant", "batch": ROWS, "epochs": EPOCHS, "tol": None}
ATTACKED = {
    "FedSGD": cn.FedSGD(**FULL),
    "FedBCD": cn.FedBCD(**FULL, local_steps=2),
    "VFB2": cn.VFB2("sgd", asynchronous=False, **FULL),
    "BlockNewton": cn.BlockNewton(epochs=12, tol=None),
}


def orders(epochs):
    """The public order of rows in each epoch."""
    return [np.random.default_rng([0, epoch]).permutation(ROWS) for epoch in range(1, epochs + 1)]


def others_part(record, root, *kinds):
    """What a label holder has of the others' contributions to all rows: its totals minus its own part."""
    found = [(total - own).reshape(ROWS, -1) for at, kind, total, own in record.totals if at == root and kind in kinds]
    return np.concatenate(found, axis=1)


def rank(seen):
    values = np.linalg.svd(seen, compute_uv=False)
    return int((values > 1e-7 * values[0]).sum())


def columns_of(names, all_names):
    cuts = dict(zip(all_names, np.array_split(np.arange(COLUMNS_OF_ALL), len(all_names)), strict=True))
    return X[:, np.concatenate([cuts[name] for name in names])]


def found_by(job_, record):
    """The names of all that attacks find: by the bank, which holds the labels, and by the shop, which does not."""
    names, found = job_.parties, set()
    pair, newton = len(names) == 2, isinstance(job_.algorithm, cn.BlockNewton)
    seen = others_part(record, "bank", "directions" if newton else "evaluation")
    columns = columns_of(names[1:], names)
    if np.abs(seen).max() > 0:
        found.add(CONTRIBUTION if pair else CONTRIBUTIONS)
    rest = seen - columns @ np.linalg.lstsq(columns, seen, rcond=None)[0]
    if rank(seen) > 1 and np.abs(rest).max() < 1e-3 * np.abs(seen).max():
        found.add(DIRECTIONS if pair else ALL_DIRECTIONS)
    if rank(seen) == columns.shape[1]:
        found.add(COLUMNS)
    if isinstance(job_.algorithm, cn.FedSGD) and inner_products_error(job_, record, columns) < 1e-2:
        found.add(PRODUCTS)
    heard = [value for _, to, kind, value in record.letters if to == "shop" and kind == "signal"]
    signals = [value[0] * value[1].astype(float) if newton else value for value in heard]
    places = [np.arange(ROWS)] * len(signals) if newton else orders(len(signals))
    if all((-np.sign(signal) == SIGNED[rows])[signal != 0].all() for rows, signal in zip(places, signals, strict=True)):
        found.add(SIGNALS)
    scores = [total for at, kind, total, _ in record.totals if at == "bank" and kind == "scores"]
    guessed = [SIGNED[rows] * np.log(1 / np.abs(s) - 1) for rows, s in zip(places, signals, strict=True)]
    if scores and all(np.abs(z - guess).max() < 1e-6 for z, guess in zip(scores, guessed, strict=True)):
        found.add(SCORES)
    return found


def inner_products_error(job_, record, columns):
    """How far the label holder's guess of the others' inner products of rows is from the truth, as a part of its size.

    A step of FedSGD moves contributions by K s, K the inner products, and s is what the label holder sent itself: as
    many of these as there are columns determine K.
    """
    parts = others_part(record, "bank", "evaluation")
    scores = [total for at, kind, total, _ in record.totals if at == "bank" and kind == "scores"]
    own = np.zeros((ROWS, len(scores)))
    for turn, (rows, z) in enumerate(zip(orders(len(scores)), scores, strict=True)):
        own[rows, turn] = -SIGNED[rows] / (1 + np.exp(SIGNED[rows] * z))
    moved = -(parts[:, 1:] - (1 - STEP * job_.model.l2) * parts[:, :-1]) * ROWS / STEP
    guess, truth = moved @ np.linalg.pinv(own.T @ moved, rcond=1e-9) @ moved.T, columns @ columns.T
    return np.abs(guess - truth).max() / np.abs(truth).max()


EXPECTED = {
    ("FedSGD", 2): {CONTRIBUTION, DIRECTIONS, COLUMNS, PRODUCTS, SIGNALS, SCORES},
    ("FedSGD", 3): {CONTRIBUTIONS, ALL_DIRECTIONS, COLUMNS, PRODUCTS, SIGNALS, SCORES},
    ("FedBCD", 2): {CONTRIBUTION, DIRECTIONS, COLUMNS, SIGNALS, SCORES},
    ("VFB2", 3): {CONTRIBUTIONS, ALL_DIRECTIONS, COLUMNS, SIGNALS, SCORES},
    ("BlockNewton", 2): {CONTRIBUTION, DIRECTIONS, SIGNALS},
    ("BlockNewton", 3): {CONTRIBUTIONS, ALL_DIRECTIONS, SIGNALS},
}


@pytest.mark.parametrize(("name", "parties"), EXPECTED)
def test_what_is_found_is_listed(name, parties, monkeypatch):
    job_ = job_with(ATTACKED[name], parties)
    record = Record(monkeypatch)
    run(job_)
    found = found_by(job_, record)
    assert found >= EXPECTED[name, parties]  # else the attack proves nothing
    assert found <= set(job_.disclosed())
    # A declaration that leaves one of them out is found to lie.
    kind, honest = type(job_.algorithm), type(job_.algorithm).leaks
    for left_out in found - {COLUMNS}:  # which a party's budget tells, and declares, as well

        def lying(self, setting, left_out=left_out):
            return tuple(leak for leak in honest(self, setting) if leak.name != left_out)

        with monkeypatch.context() as patch:
            patch.setattr(kind, "leaks", lying)
            assert not found <= set(job_.disclosed()), left_out


def test_no_more_directions_than_numbers_that_leave(monkeypatch):
    """The bound of the words: what a label holder sees has no more dimensions than numbers about a row have left."""
    for epochs in (1, 2, 3):
        algorithm = cn.FedSGD(**{**FULL, "epochs": epochs})
        job_ = job_with(algorithm)
        with monkeypatch.context() as patch:
            record = Record(patch)
            run(job_)
        seen = [
            (total - own)[:, None] for at, _, total, own in record.totals if at == "bank" and total.shape == (ROWS,)
        ]
        most = algorithm.numbers_per_row(job_.setting())
        assert len(seen) == most == 1 + 2 * epochs
        assert rank(np.concatenate(seen, axis=1)) <= most


@pytest.mark.parametrize(
    "algorithm", [cn.FedBCD(**FULL, order="sequential"), cn.BlockNewton(**SHORT, order="sequential")]
)
def test_what_one_party_changed_is_listed(algorithm, monkeypatch):
    """Of three parties, whatever the masks: what the clinic alone contributed, in the clear at the bank."""
    job_ = job_with(replace(algorithm, epochs=2), 3)
    record = Record(monkeypatch)
    with pytest.warns(ColonnadeWarning, match=re.escape("order='sequential' sums the same rows again")):
        run(job_)
    clinic = columns_of(["clinic"], NAMES[3])
    if isinstance(algorithm, cn.BlockNewton):
        changed = others_part(record, "bank", "directions")[:, :1]  # the clinic's turn
        rows = np.arange(ROWS)
    else:
        first, second = [total - own for at, kind, total, own in record.totals if at == "bank" and kind == "scores"][:2]
        rows, changed = orders(1)[0], (second - first)[:, None]
    assert np.abs(changed).max() > 0.01
    rest = changed - clinic[rows] @ np.linalg.lstsq(clinic[rows], changed, rcond=None)[0]
    assert np.abs(rest).max() < 1e-4 * np.abs(changed).max()
    assert CHANGES in job_.disclosed()
