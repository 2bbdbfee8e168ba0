"""What each party gets to see where bins are found: no count below `least` of anybody's labels leaves their holder.

The whole transcript of a run is read, on unlucky data too. And what would let a small count out is noticed.
"""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from colonnade.binning import KINDS, binning_leaks, joining, program
from colonnade.binning.cells import cells_of_numbers
from colonnade.binning.counting import bits_of, class_columns, hear_shapes
from colonnade.binning.joining import JoinedCells
from colonnade.binning.options import BinningOptions
from colonnade.crypto.lattice_products import (
    ProductLayout,
    ProductSums,
    low_masks,
    new_secret_key,
    private_keystream,
    read_public_key,
    sums_modulo,
)
from colonnade.errors import ProtocolError, RunFailed
from colonnade.leaks import NOTHING, Setting
from test_leaks import Record

LEAST = 10
CIPHERTEXTS = {"encryption key", "encrypted labels", "sealed columns", "sealed products"}


def unlucky(kind, rows=700):
    """Rare levels, a tiny class, labels that follow from a column, and cells with few people of one class."""
    rng = np.random.default_rng(len(kind))
    x = rng.standard_normal(rows)
    levels = rng.choice(30, rows, p=np.r_[[0.6], np.full(29, 0.4 / 29)]).astype(float)
    gaps = np.where(rng.random(rows) < 0.02, np.nan, rng.standard_normal(rows))
    y = (x + rng.logistic(size=rows) > 0.5).astype(int)
    if kind == "tiny class":
        y = np.zeros(rows, int)
        y[rng.choice(rows, 2 * LEAST, replace=False)] = 1
    elif kind == "separated":
        y = (x > 0.7).astype(int)
    elif kind == "one level is bad":
        y = ((levels == 3) | (rng.random(rows) < 0.05)).astype(int)
    shop = cn.Party("shop", np.column_stack([x, levels, gaps]), columns=["x", "level", "gaps"], categories=["level"])
    return cn.Party("bank", rng.standard_normal((rows, 2)), y), shop


UNLUCKY = ["usual", "tiny class", "separated", "one level is bad"]


def small_counts(record, holder="bank", least=LEAST):
    """All counts below `least` in what left the label holder; anything else than ciphertexts has to be known here."""
    found = []
    for me, _, kind, value in record.letters:
        if me != holder or kind in CIPHERTEXTS or value is None:
            continue
        if kind == "bins of columns":
            for column in value:
                if column is not None:
                    cells, goods, bads = column
                    assert cells.max() < len(goods)
                    found += [int(count) for count in (*goods, *bads) if count < least]
        elif kind not in ("pace", "block size", "columns that stay"):
            raise AssertionError(f"nobody has said what a message {kind!r} holds")
    return found


@pytest.mark.parametrize("kind", UNLUCKY)
@pytest.mark.parametrize("method", ["monotone", "chi-merge", "quantile"])
def test_no_small_count_leaves_the_label_holder(kind, method, monkeypatch):
    record = Record(monkeypatch)
    bank, shop = unlucky(kind)
    bins = cn.Binning(method=method, smallest=0.0, max_correlation=0.9).fit(bank, shop)
    assert small_counts(record) == []
    assert {kind for *_, kind, _ in record.letters} <= {*KINDS, *CIPHERTEXTS, "pace", "block size", "product shares"}
    # What the owner was told is what it has: and nothing but that.
    for table in bins.tables_["shop"].values():
        assert min(*table.step.goods, *table.step.bads) >= LEAST
    # Nor do unions of a column's bins leave fewer than that.
    told = [column for *_, kind, value in record.letters if kind == "bins of columns" for column in value if column]
    for _, goods, bads in told:
        for counts in (goods, bads):
            sums = {int(sum(counts[list(some)])) for some in _unions(len(counts))}
            assert min(sums) >= LEAST


def _unions(bins):
    return [[at for at in range(bins) if some >> at & 1] for some in range(1, 1 << bins)]


def leaves_small_ones_alone(goods, bads, options, *, ordered, missing):
    """A careless label holder: every cell is a bin."""
    return JoinedCells(np.arange(len(goods)), goods, bads)


def joins_too_late(monkeypatch):
    monkeypatch.setattr(joining, "_enough_in_each", lambda goods, bads, least: list(range(len(goods))))


def counts_goods_only(monkeypatch):
    right = joining.joined_cells

    def wrong(goods, bads, options, **how):
        found = right(goods, goods, options, **how)
        return None if found is None else JoinedCells(
            found.bins, found.goods, np.bincount(found.bins, bads).astype(np.int64)
        )  # fmt: skip

    monkeypatch.setattr(program, "joined_cells", wrong)


MUTATIONS = {
    "every cell is a bin": lambda m: m.setattr(program, "joined_cells", leaves_small_ones_alone),
    "bad people are not counted": counts_goods_only,
}


@pytest.mark.parametrize("name", list(MUTATIONS))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_careless_label_holder_is_noticed(name, monkeypatch):
    """By this test, which reads the transcript, and by the owner, who refuses such counts."""
    record = Record(monkeypatch)
    MUTATIONS[name](monkeypatch)
    bank, shop = unlucky("one level is bad")
    with pytest.raises((ProtocolError, RunFailed), match="at least 10 people of each class"):
        cn.Binning(smallest=0.0).fit(bank, shop)
    assert small_counts(record)


def test_without_its_last_check_a_method_alone_would_not_do(monkeypatch):
    """What a method leaves too small is caught behind it: the column is told nothing about."""
    joins_too_late(monkeypatch)
    bank, shop = unlucky("one level is bad")
    bins = cn.Binning(method="quantile").fit(bank, shop)
    assert "level" not in bins.tables_["shop"]


def test_every_message_is_declared(monkeypatch):
    record = Record(monkeypatch)
    bank, shop = unlucky("usual")
    mill = cn.Party("mill", shop.X[:, [2, 0]])
    cn.Binning(max_vif=5.0).fit(bank, shop, mill)
    setting = Setting(("bank", "mill", "shop"), ("bank",))
    leaks = binning_leaks(setting, LEAST, correlates=True)
    assert not record.unaccounted(setting, leaks)
    for kind in {kind for *_, kind, value in record.letters if kind not in NOTHING and value is not None}:
        lying = [leak for leak in leaks if kind not in leak.kinds]
        assert {found for *_, found in record.unaccounted(setting, lying)} >= {kind}


def test_an_owner_sees_ciphertexts_and_what_it_is_told(monkeypatch):
    """With labels of other people in the same bins it is told the same, to the last number."""
    told = []
    for seed in (0, 1):
        record = Record(monkeypatch)
        rng = np.random.default_rng(seed)
        x = np.repeat([0.0, 1.0, 2.0], 100)
        y = np.concatenate([rng.permutation(np.r_[np.ones(k, int), np.zeros(100 - k, int)]) for k in (20, 40, 60)])
        cn.Binning().fit(cn.Party("bank", rng.standard_normal((300, 1)), y), cn.Party("shop", x[:, None]))
        seen = [(kind, value) for me, _, kind, value in record.letters if me == "bank" and kind not in CIPHERTEXTS]
        told.append([(kind, [each.tolist() for each in value[0]]) for kind, value in seen if value is not None])
    assert told[0] == told[1] == [("bins of columns", [[0, 1, 2], [80, 60, 40], [20, 40, 60]])]


# -- parties that do not follow the program ----------------------------------------------------------------------------


def test_whatever_is_encrypted_a_sum_tells_no_more_bits_than_a_count_has():
    """Powers of two in place of labels tell a cell of as many people as a count has bits, and of no others."""
    rows, bits = 300, bits_of(300)
    assert bits == 9
    key, layout = new_secret_key(), ProductLayout.of(rows, 2, (4,))
    codes = np.random.default_rng(0).integers(0, 4, rows)
    chosen = np.zeros((rows, 2))
    chosen[:40, 0] = 2.0 ** np.arange(40)  # forty people at once
    sums = ProductSums(layout, read_public_key(key.public), 4, 1)
    part = (codes[:, None] == np.arange(4)).astype(float)
    sums.add(layout.encrypt(key, chosen), rows, lambda first, last: part[:, first:last])
    answer, masks = sums.answer(private_keystream())
    opened = layout.open(key, answer, 4)
    found = sums_modulo(opened, low_masks(masks, bits), bits)[:, 0]
    exact = np.array([sum(1 << at for at in range(40) if codes[at] == cell) for cell in range(4)])
    assert found.tolist() == (exact % 2**bits).tolist()
    read = [int(np.flatnonzero(found >> at & 1)[0]) for at in range(bits)]
    assert read == codes[:bits].tolist()  # nine people's cells, and nobody else's
    assert low_masks(masks, bits).max() < 2 ** (bits + 2)


def told_by(holder, monkeypatch, change):
    """Run with a label holder that tells other bins than it found."""
    right = program.joined_cells

    def wrong(*args, **how):
        found = right(*args, **how)
        return None if found is None else JoinedCells(*change(*found))

    monkeypatch.setattr(program, "joined_cells", wrong)
    bank, shop = unlucky("usual")
    return cn.Binning().fit(bank, shop)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda bins, goods, bads: (bins[::-1].copy(), goods, bads), "bins in order"),
        (lambda bins, goods, bads: (bins + 1, goods, bads), "bins in order"),
        (lambda bins, goods, bads: (bins, np.append(goods, 20), np.append(bads, 20)), "bins in order"),
        (lambda bins, goods, bads: (bins, goods * 100, bads), "no more than all"),
        (lambda bins, goods, bads: (bins, goods.astype(float), bads), "bins of columns"),
        (lambda bins, goods, bads: (bins[:-1], goods, bads), "bins of columns"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bins_that_cannot_be_are_refused(change, words, monkeypatch):
    with pytest.raises((ProtocolError, RunFailed), match=words):
        told_by("bank", monkeypatch, change)


@pytest.mark.parametrize(
    "told", [None, ((1, True),), ((0, True, False),), ((300, True, False),), ((2, 1, False),), ((1, True, True),)]
)
def test_cells_that_cannot_be_are_refused(told):
    async def bank(net):
        await hear_shapes(net, "shop")

    async def shop(net):
        await net.send("bank", "cells of columns", told)

    with pytest.raises(ProtocolError, match="cells"):
        cn.Simulation().run({"bank": (bank, ()), "shop": (shop, ())})


def test_counts_of_another_table_are_noticed(monkeypatch):
    right = program.answer_counts

    async def wrong(net, holder, public, shapes, codes):
        await right(net, holder, public, shapes, [np.where(np.arange(len(one)) < 5, -1, one) for one in codes])

    monkeypatch.setattr(program, "answer_counts", wrong)
    bank, shop = unlucky("usual")
    with pytest.raises((ProtocolError, RunFailed), match="do not add up to all people"):
        cn.Binning().fit(bank, shop)


# -- what can be solved for --------------------------------------------------------------------------------------------


def solved_labels(columns, y, bins):
    """Labels that follow from all that the shop was told: rows on which all solutions agree, by linear algebra.

    Each bin says how many bad people it holds. A row's label is determined if its unit vector is a combination of the
    bins' indicators; the combination then gives the label itself.
    """
    indicators, sums = [], []
    for name, x in columns.items():
        if name in bins.tables_["shop"]:
            step = bins.tables_["shop"][name].step
            at = step.bins_of_numbers(x)
            indicators += [(at == one).astype(float) for one in range(step.bins)]
            sums += list(step.bads)
    A = np.array(indicators)
    _, values, directions = np.linalg.svd(A, full_matrices=False)
    kept = directions[values > 1e-9]
    known = np.flatnonzero((kept**2).sum(axis=0) > 1 - 1e-9)
    guess = np.linalg.lstsq(A, np.array(sums, float), rcond=None)[0]
    assert np.array_equal(np.rint(guess[known]), y[known])
    return known


def test_columns_as_they_come_determine_nobodys_label():
    rng = np.random.default_rng(3)
    rows = 600
    X = rng.standard_normal((rows, 12))
    y = (X[:, :3].sum(axis=1) + rng.logistic(size=rows) > 0).astype(int)
    bins = cn.Binning(bins=8).fit(cn.Party("bank", X[:, :1], y), cn.Party("shop", X[:, 1:]))
    columns = {f"x{at}": X[:, at + 1] for at in range(11)}
    assert len(solved_labels(columns, y, bins)) == 0


def test_columns_that_differ_by_one_person_tell_that_label():
    """Why the number of bins that a partner is told is limited: each pair of columns made for it tells one label."""
    rng = np.random.default_rng(4)
    rows, attacked = 400, 5
    x = np.repeat([0.0, 1.0], rows // 2)
    columns = {"x0": x}
    for k in range(attacked):
        moved = x.copy()
        moved[k] = 1.0
        columns[f"x{k + 1}"] = moved
    y = ((x + rng.logistic(size=rows)) > 0.5).astype(int)
    shop = cn.Party("shop", np.column_stack(list(columns.values())))
    bins = cn.Binning().fit(cn.Party("bank", rng.standard_normal((rows, 1)), y), shop)
    known = solved_labels(columns, y, bins)
    assert known.tolist() == list(range(attacked))
    assert len(known) < sum(table.step.bins for table in bins.tables_["shop"].values())


def determined(goods_and_bads, codes, y, known):
    """How many people's cells a label holder works out that knows the cells of some: those of a class in one cell."""
    found = 0
    for label, counts in enumerate(goods_and_bads):
        of_class = known & (y == label)
        left = counts - np.bincount(codes[of_class], minlength=len(counts))
        if np.count_nonzero(left) == 1:
            found += int(left.max())
    return found


def test_what_a_label_holder_finds_that_knows_the_cells_of_some_people(monkeypatch):
    """Nobody's, unless it knows all but one of a class already, or nearly."""
    seen, right = {}, program.joined_cells

    def look(goods, bads, options, **how):
        seen[len(seen)] = (goods, bads)
        return right(goods, bads, options, **how)

    monkeypatch.setattr(program, "joined_cells", look)
    rng = np.random.default_rng(2)
    x, rows = rng.standard_normal(1000), 1000
    y = (x + 2 * rng.logistic(size=rows) > 2).astype(int)
    cn.Binning().fit(cn.Party("bank", np.ones((rows, 1)), y), cn.Party("shop", x[:, None]))
    counts = seen[1]
    assert (counts[0].sum(), counts[1].sum()) == ((y == 0).sum(), (y == 1).sum())
    codes = cells_of_numbers("x", x, BinningOptions()).codes
    for unknown, expected in ((1, 2), (10, 0), (200, 0)):
        known = np.ones(rows, bool)
        for label in (0, 1):
            of_class = np.flatnonzero(y == label)
            known[rng.choice(of_class, min(unknown, len(of_class)), replace=False)] = False
        assert determined(counts, codes, y, known) == expected


def test_labels_are_columns_of_ones_and_zeros():
    found = class_columns([True, False, True], [True, True, False])
    assert found.tolist() == [[0, 1], [1, 0], [0, 0]]
    assert BinningOptions(least=3).least == 3
