"""Bins, weights of evidence and information values equal those of one table, and of optbinning."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest

import colonnade as cn
from colonnade.binning.cells import cells_of_categories, cells_of_numbers
from colonnade.binning.chi_merge import chi_merged
from colonnade.binning.joining import joined_cells
from colonnade.binning.monotone import best_monotone
from colonnade.binning.options import BinningOptions
from colonnade.binning.selection import inflation, selected
from colonnade.conventions.preparing import table_of
from colonnade.errors import ColonnadeWarning, DataError, LabelError, NotFittedError, OptionError
from colonnade.tables.woe import Woe, information_values, weights_of_evidence

EXACT = {"rel": 1e-12, "abs": 1e-12}


def people(rows=1500, seed=0):
    """One table: two columns of the bank, one with gaps, and three of the shop, the last one categories."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 5))
    X[:, 3] = np.round(X[:, 3])
    X[:, 4] = rng.choice([0, 1, 2, 3, 7], rows, p=[0.4, 0.3, 0.2, 0.095, 0.005])
    X[rng.random(rows) < 0.1, 1] = np.nan
    X[rng.random(rows) < 0.2, 2] = np.nan
    z = X[:, 0] - np.nan_to_num(X[:, 1]) + 0.8 * np.nan_to_num(X[:, 2], nan=1.0) + 0.4 * X[:, 3] + 0.4 * X[:, 4] - 1.5
    return X, (z + rng.logistic(size=rows) > 0).astype(int)


def parties(X, y):
    return cn.Party("bank", X[:, :2], y), cn.Party("shop", X[:, 2:4]), cn.Party("mill", X[:, 4:], categories=[0])


# -- one table, slowly -------------------------------------------------------------------------------------------------


def slow_table(x, y, step):
    """Count by going through all rows, and weigh by the formula as books have it."""
    counts = {}
    for value, label in zip(x.tolist(), y.tolist(), strict=True):
        if math.isnan(value):
            name = step.missing_bin
        elif step.codes:
            name = dict(zip(step.categories, step.codes, strict=True)).get(value, step.other_bin)
        else:
            name = sum(value >= edge for edge in step.edges)
        counts.setdefault(name, [0, 0])[label] += 1
    good, bad = (sum(each[k] for each in counts.values()) for k in (0, 1))
    woe = {name: math.log((g / good) / (b / bad)) for name, (g, b) in counts.items()}
    iv = sum((g / good - b / bad) * woe[name] for name, (g, b) in counts.items())
    return counts, woe, iv


@pytest.mark.parametrize("method", ["monotone", "chi-merge", "quantile"])
def test_tables_equal_those_of_one_table_with_the_same_edges(method):
    X, y = people()
    bins = cn.Binning(method=method).fit(*parties(X, y))
    places = {("bank", "x0"): 0, ("bank", "x1"): 1, ("shop", "x0"): 2, ("shop", "x1"): 3, ("mill", "x0"): 4}
    for (party, column), at in places.items():
        table = bins.tables_[party][column]
        counts, woe, iv = slow_table(X[:, at], y, table.step)
        assert [(one.goods, one.bads) for one in table] == [tuple(counts[k]) for k in range(len(table))]
        assert [one.woe for one in table] == pytest.approx([woe[k] for k in range(len(table))], **EXACT)
        assert table.iv == bins.iv_[party][column] == pytest.approx(iv, **EXACT)
        assert min(min(each) for each in counts.values()) >= 10
    assert "missing" in bins.tables_["shop"]["x0"][-1].name  # a bin of its own
    assert "x0: information value" in str(bins.tables_["shop"]["x0"])
    weighed = bins.transform(*parties(X, y))
    step = bins.tables_["shop"]["x0"].step
    _, woe, _ = slow_table(X[:, 2], y, step)
    expected = [woe[int(k)] for k in step.bins_of_numbers(X[:, 2])]
    assert weighed[1].X[:, 0] == pytest.approx(expected, **EXACT)
    assert weighed[0].y is not None
    assert weighed[1].columns == ("x0", "x1")


def test_bins_count_people_whatever_they_weigh_and_say_so():
    X, y = people()
    plain = cn.Binning().fit(*parties(X, y))
    bank, *others = parties(X, y)
    heavy = cn.Party("bank", bank.X, y, sample_weight=np.random.default_rng(1).gamma(1.0, size=len(y)))
    with pytest.warns(ColonnadeWarning, match="bins count people, and the weights of 'bank' have no part in them"):
        bins = cn.Binning().fit(heavy, *others)
    assert bins.iv_ == plain.iv_
    assert [list(one) for one in bins.tables_["shop"].values()] == [list(one) for one in plain.tables_["shop"].values()]
    assert bins.transform(heavy)[0].sample_weight is not None  # the model that comes next takes them


def test_rows_without_a_label_are_not_counted():
    X, y = people(900)
    known = np.arange(900) % 5 != 0
    half = cn.Binning().fit(cn.Party("bank", X[:, :2], np.where(known, y, np.nan)), cn.Party("shop", X[:, 2:4]))
    for column, at in (("x0", 2), ("x1", 3)):
        table = half.tables_["shop"][column]
        counts, _, iv = slow_table(X[known, at], y[known], table.step)
        assert [(one.goods, one.bads) for one in table] == [tuple(counts[k]) for k in range(len(table))]
        assert table.iv == pytest.approx(iv, **EXACT)


# -- optbinning 1.0.0 --------------------------------------------------------------------------------------------------

EDGES = [25.0, 30.0, 34.0, 37.5, 40.0, 42.5, 45.0, 47.0, 49.0, 51.0, 53.5, 56.0, 59.0, 62.0, 66.0, 72.0]


def known_elsewhere():
    """The data on which optbinning was run: one column with gaps, and one of categories."""
    rng = np.random.default_rng(7)
    x = np.round(rng.normal(50, 15, 1200), 1)
    x[rng.random(1200) < 0.08] = np.nan
    c = rng.integers(0, 4, 1200)
    z = 0.04 * (np.nan_to_num(x, nan=40) - 50) + 0.5 * (c == 2) - 0.7
    return x, c.astype(float), (z + rng.logistic(size=1200) > 0).astype(int)


def counted(x, y, edges):
    cell = np.where(np.isnan(x), len(edges) + 1, np.searchsorted(edges, x, side="right"))
    return tuple(np.bincount(cell, each, len(edges) + 2).astype(np.int64) for each in (1 - y, y))


def test_weights_and_values_are_those_of_optbinning_for_the_same_edges():
    x, _, y = known_elsewhere()
    goods, bads = counted(x, y, [35.0, 48.5, 60.0, 70.0])
    assert (goods.tolist(), bads.tolist()) == ([150, 269, 189, 91, 33, 64], [30, 93, 128, 79, 52, 22])
    expected = [
        0.9312536045508673, 0.38392757856535, -0.28846755674320784, -0.5367726538334046, -1.1329204649981803,
        0.38965632211812284,
    ]  # fmt: skip
    assert weights_of_evidence(goods, bads) == pytest.approx(expected, **EXACT)
    assert information_values(goods, bads).sum() == pytest.approx(0.3231648685187658, **EXACT)


@pytest.mark.parametrize(
    ("most", "edges", "iv"),
    [(4, [40.0, 53.5, 66.0], 0.3455205403768684), (6, [40.0, 47.0, 53.5, 66.0, 72.0], 0.3588609975245345)],
)
def test_monotone_bins_are_the_optimal_ones_of_optbinning(most, edges, iv):
    """Its constraint solver, with the same cells, at least 5 % of all people and 10 of each class in a bin."""
    x, _, y = known_elsewhere()
    plan = joined_cells(*counted(x, y, EDGES), BinningOptions(bins=most), ordered=True, missing=True)
    assert [EDGES[at] for at in np.flatnonzero(np.diff(plan.bins[:-1]))] == edges
    assert plan.iv == pytest.approx(iv, **EXACT)


# -- methods, slowly ---------------------------------------------------------------------------------------------------


def value_of(starts, goods, bads, totals):
    ends = [*starts[1:], len(goods)]
    found = [(sum(goods[a:b]), sum(bads[a:b])) for a, b in zip(starts, ends, strict=True)]
    with_all = [(g / totals[0] - b / totals[1]) * math.log((g / totals[0]) / (b / totals[1])) for g, b in found]
    return found, sum(with_all)


def slow_monotone(goods, bads, totals, most, least, fewest):
    """Try all ways to cut."""
    best = (-math.inf, [0])
    for count in range(most):
        for cuts in itertools.combinations(range(1, len(goods)), count):
            ends = [0, *cuts, len(goods)]
            found = [(sum(goods[a:b]), sum(bads[a:b])) for a, b in itertools.pairwise(ends)]
            if any(min(one) < least or sum(one) < fewest for one in found):
                continue
            rates = [b / (g + b) for g, b in found]
            if rates != sorted(rates) and rates != sorted(rates, reverse=True):
                continue
            value = value_of([0, *cuts], goods, bads, totals)[1]
            if value > best[0] + 1e-12:
                best = (value, [0, *cuts])
    return best


@pytest.mark.parametrize("seed", range(12))
def test_monotone_bins_are_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    cells, most = int(rng.integers(1, 10)), int(rng.integers(2, 6))
    goods, bads = rng.integers(0, 60, cells), rng.integers(0, 40, cells)
    totals = (int(goods.sum()) + 15, int(bads.sum()) + 12)
    least, fewest = int(rng.integers(1, 20)), int(rng.integers(0, 40))
    value, expected = slow_monotone(goods.tolist(), bads.tolist(), totals, most, least, fewest)
    starts = best_monotone(goods, bads, totals, most, least, fewest)
    if value == -math.inf:
        assert starts == [0]
    else:
        found, reached = value_of(starts, goods.tolist(), bads.tolist(), totals)
        assert reached == pytest.approx(value, **EXACT)
        assert starts[0] == 0
        assert len(starts) <= most
        assert all(min(one) >= least and sum(one) >= fewest for one in found)
        assert len(starts) <= len(expected)


def slow_chi_merge(goods, bads, most, least, fewest, needed):
    groups = [([at], g, b) for at, (g, b) in enumerate(zip(goods, bads, strict=True))]

    def statistic(one, other):
        (_, a, b), (_, c, d) = one, other
        n = a + b + c + d
        below = (a + b) * (c + d) * (a + c) * (b + d)
        return n * (a * d - b * c) ** 2 / below if below else 0.0

    while len(groups) > 1:
        all_of_them = [statistic(*pair) for pair in itertools.pairwise(groups)]
        at = all_of_them.index(min(all_of_them))
        if all_of_them[at] >= needed and len(groups) <= most:
            few = [k for k, (_, g, b) in enumerate(groups) if min(g, b) < least or g + b < fewest]
            if not few:
                break
            left = all_of_them[few[0] - 1] if few[0] else math.inf
            right = all_of_them[few[0]] if few[0] < len(all_of_them) else math.inf
            at = few[0] - 1 if left <= right else few[0]
        (a, g, b), (c, h, i) = groups[at : at + 2]
        groups[at : at + 2] = [(a + c, g + h, b + i)]
    return [group[0][0] for group in groups]


@pytest.mark.parametrize("seed", range(8))
def test_chi_merge_equals_the_slow_one(seed):
    rng = np.random.default_rng(seed)
    rates = np.sort(rng.random(20))
    goods = rng.integers(20, 60, 20)
    bads = (goods * rates).astype(np.int64)
    found = chi_merged(goods, bads, 6, 10, 50, 0.05)
    assert found == slow_chi_merge(goods.tolist(), bads.tolist(), 6, 10, 50, 3.841458820694124)


@pytest.mark.parametrize("method", ["monotone", "chi-merge", "quantile"])
@pytest.mark.parametrize("seed", range(20))
def test_no_bin_has_too_few_whatever_the_counts_are(method, seed):
    rng = np.random.default_rng(seed)
    cells = int(rng.integers(1, 30))
    goods, bads = rng.integers(0, 30, cells), rng.poisson(rng.choice([0.3, 4.0, 20.0]), cells)
    ordered, missing = bool(seed % 2), bool(seed % 3) and cells > 1
    plan = joined_cells(goods, bads, BinningOptions(method, smallest=0.0), ordered=ordered, missing=missing)
    if plan is None:
        return
    assert min(plan.goods.min(), plan.bads.min()) >= 10
    assert (plan.goods.sum(), plan.bads.sum()) == (goods.sum(), bads.sum())
    assert np.bincount(plan.bins, bads).tolist() == plan.bads.tolist()
    assert len(plan.goods) >= 2


def test_small_bins_are_joined_and_the_column_stays():
    """Missing values with few bad people belong to the bin with most people, and a last cell to the one before it."""
    goods, bads = np.array([40, 90, 30, 50]), np.array([20, 30, 15, 3])
    plan = joined_cells(goods, bads, BinningOptions("quantile"), ordered=True, missing=True)
    assert plan.bins.tolist() == [0, 1, 2, 1]
    assert (plan.goods.tolist(), plan.bads.tolist()) == ([40, 140, 30], [20, 33, 15])
    plan = joined_cells(goods, bads, BinningOptions("quantile"), ordered=True, missing=False)
    assert plan.bins.tolist() == [0, 1, 2, 2]
    alone = joined_cells(goods, np.array([20, 30, 15, 10]), BinningOptions("quantile"), ordered=True, missing=True)
    assert alone.bins.tolist() == [0, 1, 2, 3]
    assert joined_cells(goods, np.array([9, 0, 1, 3]), BinningOptions(), ordered=True, missing=False) is None


# -- cells -------------------------------------------------------------------------------------------------------------


def test_cells_of_numbers_are_of_about_one_size_and_none_is_small():
    rng = np.random.default_rng(0)
    x = np.round(rng.lognormal(size=1000), 1)
    x[:30] = np.nan
    column = cells_of_numbers("x", x, BinningOptions(fine=20))
    counts = np.bincount(column.codes)
    assert counts[-1] == 30
    assert column.missing == column.cells - 1
    assert column.alone
    assert counts.min() >= 10
    assert len(counts) == column.cells <= 21
    again = np.where(np.isnan(x), column.missing, np.searchsorted(column.edges, x, side="right"))
    assert np.array_equal(again, column.codes)


def test_few_missing_values_are_with_most_people():
    x = np.repeat([1.0, 2.0, 3.0], [20, 50, 30])
    x[:5] = np.nan
    column = cells_of_numbers("x", x, BinningOptions())
    assert (column.cells, column.missing, column.alone) == (3, 1, False)
    assert np.bincount(column.codes).tolist() == [15, 55, 30]


@pytest.mark.parametrize("rare", [3, 12])
def test_rare_categories_are_one_cell(rare):
    codes = np.repeat([0, 1, 2, 3, -1], [40, 30, 11, rare, 4])
    column = cells_of_categories("city", ["a", "b", "c", "d"], codes, BinningOptions())
    # Three of "d" are too few even together, so that "c" joins them.
    assert column.categories == (("a", "b", "c", "d") if rare == 12 else ("a", "b"))
    counts = np.bincount(column.codes)
    assert counts.min() >= 10
    assert counts.sum() == len(codes)
    assert column.missing == 0  # four missing ones are with most people
    assert not column.ordered


@pytest.mark.parametrize("x", [np.full(50, np.nan), np.ones(50), np.r_[np.nan, np.ones(49)], np.arange(5.0)])
def test_columns_without_bins(x):
    column = cells_of_numbers("x", x, BinningOptions())
    assert column.cells == 1
    assert column.codes.tolist() == [0] * len(x)


def test_values_in_no_bin_are_no_evidence_and_counted():
    X, y = people()
    bins = cn.Binning().fit(*parties(X, y))
    new = X.copy()
    new[:7, 4] = 99
    new[:5, 0] = np.nan
    bank, shop, mill = parties(new, y)
    with pytest.warns(cn.errors.ColonnadeWarning, match="in no bin"):
        weighed = bins.transform(bank, shop, mill)
    assert weighed[0].X[:5, 0].tolist() == [0.0] * 5
    assert bins.unseen_["bank"] == {"x0": 5}
    assert bins.preparations_["mill"].unseen(table_of(mill)) == {"x0": (7, ["99.0"])}
    # Categories that training did not list belong to the rare ones, where there were any.
    step = bins.tables_["mill"]["x0"].step
    assert step.other_bin < 0 or weighed[2].X[0, 0] == step.weights[step.other_bin]


def test_a_step_says_what_its_bins_are():
    step = Woe((1.5, 3.0), (), (), (20, 30, 40), (10, 15, 30), 1)
    assert step.bin_names() == ["below 1.5", "1.5 to below 3, missing", "3 and more"]
    step = Woe((), ("a", "b"), (0, 1), (20, 30), (10, 15), -1, 0)
    assert step.bin_names() == ["a, all others", "b"]
    assert step.bins_of_texts(["b", "z", "a"]).tolist() == [1, 0, 0, -1]
    assert step.weigh(np.array([0, -1]))[1] == 0.0


def test_texts_dates_and_steps_of_a_frame():
    """Texts are categories, dates are days; a column with other steps is prepared by them and has no bins."""
    rng = np.random.default_rng(0)
    rows = 800
    city = rng.choice(["Bonn", "Kiel", "Ulm"], rows)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, rows), unit="D")
    frame = pd.DataFrame(
        {"city": city, "since": days, "spend": rng.lognormal(size=rows), "age": rng.normal(40, 9, rows)}
    )
    z = (city == "Ulm") + 0.003 * (days - days.min()).days - 1.5
    y = (z + rng.logistic(size=rows) > 0).astype(int)
    bank = cn.Party("bank", rng.standard_normal((rows, 2)), y)
    shop = cn.Party("shop", frame, prepare={"age": ["standardise"], "spend": ["log1p", "woe"]})
    bins = cn.Binning().fit(bank, shop)
    assert set(bins.tables_["shop"]) == {"city", "since", "spend"}
    assert "Ulm" in [one.name for one in bins.tables_["shop"]["city"]]
    since, at = bins.tables_["shop"]["since"], (days - pd.Timestamp("1970-01-01")).days
    for one, bin_of in zip(since, range(len(since)), strict=True):  # bins of dates are written as dates
        inside = np.searchsorted(since.step.edges, at, side="right") == bin_of
        low, _, high = one.name.removesuffix(" and more").rpartition("below ")
        low, high = (low.removesuffix(" to "), high) if "below" in one.name else (high, "")
        told = (days >= pd.Timestamp(low or "1970-01-01")) & (days < pd.Timestamp(high or "2100-01-01"))
        assert np.array_equal(told, inside), one.name
    weighed = bins.transform(bank, shop)[1]
    assert weighed.columns == ("city", "since", "spend", "age")
    assert weighed.X[:, 3] == pytest.approx(((frame.age - frame.age.mean()) / frame.age.std(ddof=0)).to_numpy())
    model = cn.LogisticRegression(verbose=0).fit(*bins.prepare(bank, shop))
    assert "below 2024-" in str(cn.Binning().fit(bank, cn.Party("shop", frame[["since"]])).tables_["shop"]["since"])
    assert list(model.coef_["shop"].index) == ["city", "since", "spend", "age"]
    new = cn.Party("shop", frame.head(50))
    assert model.decision_function(bank.take(np.arange(50)), new).shape == (50,)


# -- selection ---------------------------------------------------------------------------------------------------------


def test_columns_that_go_together_are_left_out_across_parties():
    X, y = people(2000)
    copy = X[:, :1] + 0.1 * np.random.default_rng(1).standard_normal((2000, 1))
    bank, shop = cn.Party("bank", X[:, :2], y), cn.Party("shop", np.hstack([copy, X[:, 3:4]]))
    plain = cn.Binning().fit(bank, shop)
    weighed = np.hstack([party.X for party in plain.transform(bank, shop)])
    together = np.corrcoef(weighed.T)
    assert together[0, 2] > 0.8
    found = cn.Binning(max_correlation=0.7).fit(bank, shop)
    better = plain.iv_["bank"]["x0"] > plain.iv_["shop"]["x0"]
    assert found.selected_["shop" if better else "bank"] == ("x1",)
    assert len(found.selected_["bank" if better else "shop"]) == 2
    factors = np.diag(np.linalg.inv(together))
    assert inflation(together) == pytest.approx(factors, rel=1e-9)
    by_factor = cn.Binning(max_vif=2.0).fit(bank, shop)
    assert [len(names) for names in by_factor.selected_.values()].count(1) == 1
    assert max(factors) > 2.0


def test_selection_by_correlation_then_inflation():
    matrix = np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.1], [0.1, 0.1, 1.0]])
    iv = np.array([0.2, 0.3, 0.1])
    assert selected(matrix, iv, BinningOptions(max_correlation=0.8)).tolist() == [1, 2]
    assert selected(matrix, iv, BinningOptions(max_correlation=0.95)).tolist() == [0, 1, 2]
    assert selected(matrix, iv, BinningOptions(max_vif=3.0)).tolist() == [1, 2]
    assert inflation(np.ones((2, 2))).tolist() == [np.inf, np.inf]


def test_columns_with_little_information_are_left_out():
    X, y = people()
    rng = np.random.default_rng(5)
    noise = cn.Party("shop", np.column_stack([X[:, 2], rng.standard_normal(len(X))]))
    bank = cn.Party("bank", X[:, :2], y)
    bins = cn.Binning(min_iv=0.1).fit(bank, noise)
    assert bins.selected_["shop"] == ("x0",)
    assert "x1" not in bins.tables_["shop"]  # its owner was told nothing about it
    assert bins.iv_["shop"]["x1"] < 0.1
    assert "no bins" in str(cn.Binning(least=200).fit(bank, cn.Party("shop", np.ones((len(X), 1)))))


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "magic"}, "method must be one of"),
        ({"bins": 1}, "bins must be >= 2"),
        ({"fine": 1000}, "fine must be at most 256"),
        ({"least": 0}, "least must be >= 1"),
        ({"smallest": 0.7}, "smallest must be a share"),
        ({"significance": 1.0}, "significance must be above 0"),
        ({"min_iv": math.nan}, "min_iv must be a finite number"),
        ({"max_correlation": 0.0}, "max_correlation must be above 0"),
        ({"max_vif": 1.0}, "max_vif must be above 1"),
    ],
)
def test_options_that_make_no_bins(options, words):
    X, y = people(100)
    with pytest.raises(OptionError, match=words):
        cn.Binning(**options).fit(*parties(X, y))


def test_what_is_refused_before_anything_is_sent():
    X, y = people(300)
    bank, shop, mill = parties(X, y)
    with pytest.raises(NotFittedError, match="not fitted"):
        cn.Binning().transform(bank)
    with pytest.raises(LabelError, match="one party with labels"):
        cn.Binning().fit(bank, cn.Party("shop", X[:, 2:], y))
    with pytest.raises(DataError, match="two bins need 400 of each; lower least"):
        cn.Binning(least=200).fit(bank, shop)
    with pytest.raises(LabelError, match="classes"):
        cn.Binning().fit(cn.Party("bank", X, np.arange(300) % 3), shop)
    bins = cn.Binning().fit(bank, shop)
    with pytest.raises(DataError, match="'mill' too"):
        bins.transform(bank, mill)
    with pytest.raises(DataError, match=r"'age' .*missing"):
        cn.Binning().fit(cn.Party("bank", X[:, :2], y, columns=["age", "debts"]), shop).transform(bank)
    assert cn.Binning(bins=4).get_params()["bins"] == 4
    assert repr(cn.Binning(bins=4)) == "Binning(bins=4)"
