"""Repeated ids and left joins, against pandas' own joins, and what a partner is told of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import colonnade as cn
from colonnade.alignment.joining import Joining, align_rows
from colonnade.data.ids import pack
from colonnade.data.packed_ids import TEXT, taken
from colonnade.errors import DataError, OptionError, PolicyRefused, ProtocolError, TooFewInCommon, WrongShape
from test_align import Liar, Spy, raw

LOANS = ["ann", "bob", "ann", "cy", "dan", "ann", "dan"]  # one row for each account
PEOPLE = ["eve", "dan", "ann", "bob", "fay"]


def joined(parties, change=None, sent=None, most=2**31, **options):
    """{party: ids} -> {party: its rows}; the first party keeps its rows."""
    how = Joining(keeper=next(iter(parties)), **options)

    async def program(net, ids):
        if change is not None:
            net = Liar(net, *change)
        elif sent is not None:
            net = Spy(net, sent)
        return await align_rows(net, ids, how=how, max_partner_ids=most)

    outcomes = cn.Simulation().run({name: (program, (tuple(ids),)) for name, ids in parties.items()})
    return {name: outcome.value for name, outcome in outcomes.items()}


def test_all_accounts_of_a_customer_stay_and_the_partner_repeats_its_row():
    rows = joined({"bank": LOANS, "shop": PEOPLE}, duplicates="expand")
    pairs = [(LOANS[a], PEOPLE[b]) for a, b in zip(rows["bank"], rows["shop"], strict=True)]
    assert all(one == other for one, other in pairs)
    assert sorted(rows["bank"].tolist()) == [0, 1, 2, 4, 5, 6]  # all but cy's
    ann = [row for row in rows["bank"].tolist() if LOANS[row] == "ann"]
    assert ann == [0, 2, 5]  # one after another, in the keeper's order


def test_the_first_row_of_each_id_at_every_party():
    rows = joined({"bank": LOANS, "shop": [*PEOPLE, "ann", "dan"]}, duplicates="first")
    assert sorted(rows["bank"].tolist()) == [0, 1, 4]
    assert [LOANS[row] for row in rows["bank"]] == [PEOPLE[row] for row in rows["shop"]]


def test_a_left_join_keeps_all_rows_of_the_keeper():
    ids = ["ann", "bob", "cy", "dan", "gus"]
    rows = joined({"bank": ids, "shop": PEOPLE}, join="left")
    assert sorted(rows["bank"].tolist()) == [0, 1, 2, 3, 4]
    assert rows["bank"][3:].tolist() == [2, 4]  # cy and gus, in the keeper's order
    assert rows["shop"][3:].tolist() == [-1, -1]
    assert [ids[row] for row in rows["bank"][:3]] == [PEOPLE[row] for row in rows["shop"][:3]]


some = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=12)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(bank=some, shop=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True), left=st.booleans())
def test_like_pandas_merge(bank, shop, left):
    how = "left" if left else "inner"
    frames = [pd.DataFrame({"id": ids, name: range(len(ids))}) for name, ids in (("bank", bank), ("shop", shop))]
    merged = frames[0].merge(frames[1], on="id", how=how).fillna(-1)
    if not set(bank) & set(shop):
        with pytest.raises(TooFewInCommon):
            joined({"bank": bank, "shop": shop}, duplicates="expand", join=how)
        return
    rows = joined({"bank": bank, "shop": shop}, duplicates="expand", join=how)
    found = sorted(zip(rows["bank"].tolist(), rows["shop"].tolist(), strict=True))
    assert found == sorted(zip(merged["bank"], merged["shop"].astype(int), strict=True))


def test_three_parties_expand_the_rows_of_one():
    rows = joined({"bank": LOANS, "shop": PEOPLE, "tax": ["dan", "ann", "bob"]}, duplicates="expand")
    people = [[ids[row] for row in rows[name]] for name, ids in (("bank", LOANS), ("shop", PEOPLE))]
    assert people[0] == people[1] == [["dan", "ann", "bob"][row] for row in rows["tax"]]
    assert len(people[0]) == 6


# -- what a partner is told --------------------------------------------------------------------------------------------


def test_a_partner_is_told_how_many_rows_common_ids_have_and_of_nobody_else():
    sent = []  # names are so long that no random bytes contain them
    loans, people = ([f"customer called {name}" for name in names] for names in (LOANS, PEOPLE))
    rows = joined({"bank": loans, "shop": people}, sent=sent, duplicates="expand")
    told = [(me, to, value) for me, to, tag, value in sent if tag == "align rows"]
    assert [(me, to) for me, to, _ in told] == [("bank", "shop")] * 2
    assert told[0][2] == (3, 6)
    assert told[1][2].tolist() == [len(list(rows["shop"][rows["shop"] == row])) for row in dict.fromkeys(rows["shop"])]
    everything = b"".join(raw(value) for *_, value in sent)
    assert not any(name.encode() in everything for name in {*loans, *people})


def test_a_left_join_tells_no_more_than_the_sizes_do():
    """Whoever the other rows are about, the messages are the same: how many ids and rows there are."""
    told = []
    for others in (["cy", "gus"], ["hal", "ida"]):
        sent = []
        joined({"bank": ["ann", "bob", *others], "shop": PEOPLE}, sent=sent, join="left")
        told.append([value for _, _, tag, value in sent if tag in ("align rows", "align size")])
    assert told[0] == told[1] == [*told[0][:2], (4, 4)]
    assert told[0][0][0] == 4  # the bank's rows, as every alignment tells


def test_without_options_nothing_more_is_sent_than_in_an_alignment():
    for options in ({}, {"duplicates": "first"}):
        sent = []
        joined({"bank": ["ann", "bob"], "shop": PEOPLE}, sent=sent, **options)
        assert "align rows" not in {tag for _, _, tag, _ in sent}


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parties", "options", "text"),
    [
        ({"bank": LOANS, "shop": PEOPLE}, {}, "party 'bank': 2 ids occur more than once, in 5 rows; bring one row for"),
        (
            {"bank": PEOPLE, "shop": LOANS},
            {"duplicates": "expand"},
            "party 'shop': 2 ids occur more than once, in 5 rows; with duplicates = 'expand' only 'bank' may have",
        ),
        ({"bank": LOANS, "shop": PEOPLE}, {"join": "left"}, "party 'bank': 2 ids occur more than once"),
    ],
)
def test_repeated_ids_are_refused_where_nobody_said_what_to_do(parties, options, text):
    with pytest.raises(DataError) as caught:
        joined(parties, **options)
    assert text in str(caught.value)
    assert "ann" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"duplicates": "last"}, "duplicates must be one of 'refuse', 'first', 'expand', got 'last'"),
        ({"duplicates": None}, "duplicates must be one of"),
        ({"join": "outer"}, "join must be one of 'inner', 'left', got 'outer'"),
    ],
)
def test_options_are_checked(options, text):
    bank, shop = (cn.Party(name, np.zeros((3, 1)), ids=[1, 2, 3]) for name in ("bank", "shop"))
    with pytest.raises(OptionError, match=text):
        cn.align_parties(bank, shop, verbose=0, **options)


def test_a_left_join_is_between_two_parties():
    parties = [cn.Party(name, np.zeros((3, 1)), ids=[1, 2, 3]) for name in "abc"]
    with pytest.raises(OptionError, match="join='left' is between two parties, got 3"):
        cn.align_parties(*parties, join="left", verbose=0)


def lied(change):
    def lie(value):
        return value if type(value) is tuple else change(value)

    return lie


def told(change):
    def lie(value):
        return change(value) if type(value) is tuple else value

    return lie


@pytest.mark.parametrize(
    ("lie", "kind", "text"),
    [
        (told(lambda value: "six"), ProtocolError, "'bank' did not say at step 'align rows' how many rows"),
        (told(lambda value: (3, True)), ProtocolError, "'bank' did not say at step 'align rows'"),
        (told(lambda value: (3, -1)), ProtocolError, "'bank' did not say at step 'align rows'"),
        (told(lambda value: (3, 2**40)), ProtocolError, "'bank' did not say at step 'align rows'"),
        (told(lambda value: (4, 6)), ProtocolError, "'bank' says .* that 4 ids have 6 rows, and 3 are common"),
        (told(lambda value: (3, 2)), ProtocolError, "that 3 ids have 2 rows"),
        (
            told(lambda value: (3, 2000)),
            PolicyRefused,
            "'bank' brings 2,000 rows .* 'shop' takes 1,000 ",
        ),
        (lied(lambda counts: counts[:-1]), WrongShape, "bank sent .*'align rows'"),
        (lied(lambda counts: counts.astype(np.float64)), WrongShape, "bank sent .*'align rows'"),
        (lied(lambda counts: counts * 0), ProtocolError, "'bank' sent .* numbers of rows that are not 6 in all"),
        (lied(lambda counts: counts + 1), ProtocolError, "'bank' sent .* numbers of rows that are not 6 in all"),
        (lied(lambda counts: counts + 2**62), ProtocolError, "'bank' sent .* numbers of rows that are not 6 in all"),
    ],
)
def test_what_no_honest_keeper_tells_is_refused(lie, kind, text):
    with pytest.raises(kind, match=text):
        joined({"bank": LOANS, "shop": PEOPLE}, change=("align rows", lie), most=1000, duplicates="expand")


@pytest.mark.parametrize("people", [3, 6, 2**31])
def test_a_keeper_that_keeps_other_rows_than_it_brings_is_refused(people):
    """The last would be sixteen gigabytes of rows at a party that sets no limit."""
    ids = ["ann", "bob", "cy", "dan", "gus"]
    text = f"'bank' says .* that {people:,} ids have {people:,} rows, and 3 are common of the 5 that it brings"
    with pytest.raises(ProtocolError, match=text):
        joined({"bank": ids, "shop": PEOPLE}, change=("align rows", told(lambda _: (people, people))), join="left")


def test_in_a_left_join_the_keeper_tells_of_all_its_ids():
    change = ("align rows", lambda value: (2, 2))
    with pytest.raises(ProtocolError, match="that 2 ids have 2 rows, and 3 are common"):
        joined({"bank": ["ann", "bob", "dan"], "shop": PEOPLE}, change=change, join="left")
    change = ("align rows", lambda value: (3, 4))
    with pytest.raises(ProtocolError, match="has ids in several rows"):
        joined({"bank": ["ann", "bob", "dan"], "shop": PEOPLE}, change=change, join="left")


# -- parties and their models ------------------------------------------------------------------------------------------


def two_tables(rng, n=400):
    """A bank's loans, of which a customer may have several, and what a shop knows of other customers."""
    customers = np.array([f"c{k:03}" for k in range(n)])
    of = rng.integers(0, n, 2 * n)
    known = rng.permutation(n)[: 3 * n // 4]
    loans, habits = rng.standard_normal((2 * n, 3)), rng.standard_normal((n, 2))
    y = (loans[:, 0] + habits[of, 0] + rng.logistic(size=2 * n) > 0).astype(int)
    return customers, of, known, loans, habits, y


@pytest.mark.parametrize("where", [None, cn.Processes()], ids=["simulation", "processes"])
def test_a_model_of_several_accounts_is_that_of_the_joined_table(where):
    customers, of, known, loans, habits, y = two_tables(np.random.default_rng(0))
    bank = cn.Party("bank", loans, y, ids=customers[of])
    shop = cn.Party("shop", habits[known], ids=customers[known])
    one, other = cn.align_parties(bank, shop, duplicates="expand", on=where, verbose=0)
    assert one.rows == other.rows == np.isin(of, known).sum()
    assert (one.ids == other.ids).all()
    model = cn.LogisticRegression(verbose=0, l2=0.01).fit(one, other)
    kept = np.isin(of, known)
    whole = cn.split(np.hstack([loans, habits[of]])[kept], y[kept], into=[[0, 1, 2], [3, 4]])
    beside = cn.LogisticRegression(verbose=0, l2=0.01).fit(*whole)
    for mine, theirs in zip(model.coef_.values(), beside.coef_.values(), strict=True):
        assert np.allclose(mine, theirs, atol=1e-5)


def test_a_left_join_trains_on_all_rows_of_the_keeper():
    customers, of, known, loans, habits, y = two_tables(np.random.default_rng(1))
    bank = cn.Party("bank", loans, y, ids=customers[of])
    fill = {"default": [{"impute": {"with": "mean", "indicator": True}}, "standardise"]}
    shop = cn.Party("shop", habits[known], ids=customers[known], prepare=fill)
    one, other = cn.align_parties(bank, shop, duplicates="expand", join="left", verbose=0)
    assert one.rows == other.rows == len(of)
    assert other.ids is None
    assert set(one.ids) == set(customers[of])
    model = cn.LogisticRegression(verbose=0).fit(one, other)
    assert model.score(one, other) > 0.6
    assert [len(w) for w in model.coef_.values()] == [3, 4]  # the shop's columns, and where each of them is missing


@pytest.mark.filterwarnings("ignore:protection=")
def test_what_a_partner_does_not_have_is_missing_in_every_kind_of_column():
    bank = cn.Party("bank", np.arange(4.0)[:, None], [0, 1, 0, 1], ids=["a", "b", "c", "d"])
    frame = pd.DataFrame({"x": [1.0, 2.0], "t": ["red", "blue"]})
    rows = {}
    for kind, X in (("dense", np.array([[1.0], [2.0]])), ("sparse", sp.csr_matrix([[1.0], [2.0]])), ("frame", frame)):
        one, other = cn.align_parties(bank, cn.Party("shop", X, ids=["b", "x"]), join="left", verbose=0)
        assert one.ids.tolist() == ["b", "a", "c", "d"]
        rows[kind] = other
    assert rows["dense"].missing
    assert np.array_equal(rows["dense"].X[:, 0], [1, np.nan, np.nan, np.nan], equal_nan=True)
    assert rows["sparse"].X.toarray()[:, 0].tolist() == [1, 0, 0, 0]
    assert rows["frame"].raw.columns["t"].codes.tolist()[1:] == [-1, -1, -1]
    assert np.isnan(rows["frame"].raw.columns["x"].values[1:]).all()
    again = bank.take([1, 0, 2, 3])
    trees = cn.BoostedTreesClassifier(verbose=0, trees=2, bins=2, protection="plain").fit(again, rows["dense"])
    assert len(trees.predict(again, rows["dense"])) == 4


def test_labels_of_a_second_holder_are_missing_where_it_has_no_row():
    bank = cn.Party("bank", np.zeros((3, 1)), [0, 1, 0], ids=["a", "b", "c"])
    shop = cn.Party("shop", np.zeros((2, 1)), [1, 0], ids=["c", "b"], sample_weight=[2.0, 3.0])
    _, other = cn.align_parties(bank, shop, join="left", verbose=0)
    assert sorted(other.labelled.tolist()) == [False, True, True]
    assert not other.labelled[2]
    assert other.sample_weight[2] == 0
    assert shop.labelled.tolist() == [True, True]  # the party that was given stays as it is


def test_the_keeper_is_the_first_party_with_labels():
    twice = cn.Party("shop", np.zeros((2, 1)), [0, 1], ids=["a", "a"])
    bank, shop = cn.align_parties(cn.Party("bank", np.zeros((1, 1)), ids=["a"]), twice, duplicates="expand", verbose=0)
    assert bank.rows == shop.rows == 2
    without = cn.Party("shop", np.zeros((2, 1)), ids=["a", "a"])
    with pytest.raises(DataError, match="only 'bank' may have several rows of an id"):
        cn.align_parties(cn.Party("bank", np.zeros((1, 1)), ids=["a"]), without, duplicates="expand", verbose=0)


@given(st.lists(st.text(max_size=3)), st.data())
def test_rows_of_packed_ids(ids, data):
    rows = data.draw(st.lists(st.integers(0, max(0, len(ids) - 1)), max_size=8)) if ids else []
    found = taken(pack(np.array([x.encode("utf-8", "ignore").decode() for x in ids], TEXT)), np.array(rows, np.int64))
    wanted = [ids[row].encode("utf-8", "ignore") for row in rows]
    assert found[0].tobytes() == b"".join(wanted)
    assert found[1].tolist() == np.cumsum([len(one) for one in wanted]).astype(int).tolist()
