"""Profiles of columns, and how far others have moved away from them: against a slow twin, and in words."""

from __future__ import annotations

import csv
import json
import math
import re
from datetime import date, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest

from colonnade.cli.drift import score_drift, scores_in
from colonnade.data.raw_columns import Numbers, Texts
from colonnade.errors import DataError, PolicyRefused
from colonnade.service.in_use import judge
from colonnade.settings.settings import check
from colonnade.tables.dates import written_day
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.preparation import SECTION, fit
from colonnade.tables.table import Table
from colonnade.versions.drift import check_drift, drift_of, notes, stability_index
from colonnade.versions.profile import profile_of, profiles_of, read_profiles, write_profiles

RNG = np.random.default_rng(5)
AGE, INCOME = RNG.integers(18, 90, 500).astype(float), RNG.lognormal(10, 0.5, 500)


def texts(values):
    names = sorted({one for one in values if one is not None})
    codes = np.array([-1 if one is None else names.index(one) for one in values], dtype=np.int32)
    return Texts(codes, np.array(names, dtype=object))


def table(**columns):
    return Table("new.csv", {name: one if isinstance(one, Texts) else Numbers(one) for name, one in columns.items()})


CITY = texts(RNG.choice(["Oslo", "Paris", "Rome"], 500, p=[0.6, 0.3, 0.1]).tolist())
TRAINED = profiles_of(table(age=AGE, income=INCOME, city=CITY))


def by_loops(before, after):
    """The index of two lists of numbers (NaN: missing) or texts (None), one row after another."""
    if any(isinstance(one, str) for one in before):
        ranges = [lambda x, level=level: x == level for level in sorted({one for one in before if one is not None})]
        ranges.append(lambda x: x is not None and x not in before)
        ranges.append(lambda x: x is None)
    else:
        known = sorted(one for one in before if not math.isnan(one))
        ends = sorted({known[math.ceil(part * len(known) / 10) - 1] for part in range(1, 10)})
        pairs = list(zip([-math.inf, *ends], [*ends, math.inf], strict=True))
        ranges = [lambda x, a=a, b=b: a < x <= b for a, b in pairs]
        ranges.append(lambda x: math.isnan(x))
    total = 0.0
    for inside in ranges:
        p, q = (max(sum(map(inside, side)) / len(side), 1e-4) for side in (before, after))
        total += (q - p) * math.log(q / p)
    return total


def with_gaps(values, every):
    return np.where(np.arange(len(values)) % every, values, np.nan)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (AGE, AGE + 5),
        (INCOME, INCOME[:77] * 1.3),
        (with_gaps(AGE, 7), with_gaps(AGE, 3)),
        ((AGE > 60).astype(float), (AGE > 40).astype(float)),
        (np.zeros(40), np.ones(40)),
        (np.full(40, np.nan), AGE),
    ],
)
def test_the_index_of_numbers_is_that_of_loops(before, after):
    profile = profile_of(Numbers(before))
    found = stability_index(profile.all_counts, profile.like(Numbers(after)))
    if np.isnan(before).all():
        assert found > 5  # nothing is known of the training but that all was missing
    else:
        assert found == pytest.approx(by_loops(before.tolist(), after.tolist()), rel=1e-12, abs=1e-15)
    assert stability_index(profile.all_counts, profile.like(Numbers(before))) == 0.0
    assert stability_index([2, 0], [0, 2]) == pytest.approx(stability_index([0, 2], [2, 0]))


def test_the_index_of_texts_is_that_of_loops():
    before = RNG.choice(["a", "b", "c"], 200).tolist() + [None] * 9
    after = RNG.choice(["b", "c", "d"], 100).tolist() + [None] * 30
    profile = profile_of(texts(before))
    found = stability_index(profile.all_counts, profile.like(texts(after)))
    assert found == pytest.approx(by_loops(before, after), rel=1e-12)


def test_profiles_are_kept_for_their_owner_and_read_again(tmp_path):
    write_profiles(tmp_path, TRAINED)
    assert read_profiles(tmp_path) == TRAINED
    assert (tmp_path / "profile.json").stat().st_mode & 0o777 == 0o600
    assert read_profiles(tmp_path / "elsewhere") is None
    whole = json.loads((tmp_path / "profile.json").read_text())
    for change in ({"format": 9}, {"columns": {"age": {**whole["columns"]["age"], "rows": 3}}}, {"columns": [1]}):
        (tmp_path / "profile.json").write_text(json.dumps({**whole, **change}))
        with pytest.raises(
            DataError, match=r"'profile.json' in 'versions/.*' can't be read, it was changed or cut off"
        ):
            read_profiles(tmp_path)
    long = profile_of(texts([f"{number:04}" for number in range(1500)]))
    assert (len(long.levels), long.counts[-1], long.whole) == (1000, 500, False)


def test_what_does_not_fit_is_said_in_one_line_each():
    assert notes(drift_of(TRAINED, table(age=AGE, income=INCOME, city=CITY))) == []
    odd = texts(["Bern", "Oslo", "Genf", "Oslo", None] * 20)
    said = notes(drift_of(TRAINED, table(age=np.full(100, np.nan), income=INCOME[:100] * 1000, city=odd)))
    times = float(f"{np.median(INCOME[:100] * 1000) / np.median(INCOME):.3g}")
    assert said == [
        "age: 100 % missing, training 0 %",
        f"income: {times:,.6g} times the training median",
        "city: 20 % missing, training 0 %",
        "city: 40 of 100 rows have levels that training had not: 'Bern', 'Genf'",
    ]
    said = notes(drift_of(TRAINED, table(age=AGE + 100, income=INCOME / 1000, city=CITY)))
    assert said[0].startswith(f"age: median {np.median(AGE) + 100:.6g}, training between ")
    assert said[1] == "income: 1/1,000 of the training median"
    assert notes(drift_of(TRAINED, table(age=np.full(50, 33.0), income=INCOME, city=CITY))) == ["age: always 33"]
    # a column of the other kind, which whoever prepares it refuses, is none of its values
    assert drift_of(TRAINED, table(age=CITY))[0].missing_now == 1.0


def test_a_policy_refuses_what_has_moved_too_far(tmp_path):
    moved = drift_of(TRAINED, table(age=AGE + 20, income=with_gaps(INCOME, 4), city=CITY))
    check_drift("bank", moved, None, None)
    check_drift("bank", moved, 10.0, 0.5)
    with pytest.raises(PolicyRefused, match=r"column 'age' has drifted .* index of .* 'bank' allows max_drift = 0.25"):
        check_drift("bank", moved, 0.25, None)
    with pytest.raises(PolicyRefused, match=r"'income' is missing in 25.0% of the rows, in training in 0.0%, and the"):
        check_drift("bank", moved, None, 0.2)
    write_profiles(tmp_path, TRAINED)
    party = SimpleNamespace(name="bank", policy=SimpleNamespace(max_drift=0.25, max_missing=None))
    part, said = SimpleNamespace(folder=tmp_path, prepared=LearnedPreparation()), []
    new = table(age=AGE * 9, income=INCOME, city=CITY)
    with pytest.raises(PolicyRefused, match="'age' has drifted"):
        judge(party, part, new, said.append)
    assert said[0].startswith("note: age: median ")
    judge(party, part, new.take(np.arange(29)), said.append)  # too few to say anything
    assert len(said) == 1


# -- dates -------------------------------------------------------------------------------------------------------------

FIRST = date(2015, 1, 1)


def dates(days, every=0):
    """German dates, of which every so many'th is missing."""
    written = [(FIRST + timedelta(int(one))).strftime("%d.%m.%Y") for one in days]
    return [None if every and number % every == 0 else one for number, one in enumerate(written)]


def learned_of(values, parts=("days",)):
    steps = check({"joined": [{"date": {"format": "%d.%m.%Y", "parts": list(parts)}}]}, SECTION)
    return fit(table(joined=texts(values)), steps)


def as_numbers(values, of):
    """What dates become, one after another, without the product's help."""
    return [math.nan if one is None else float(of(datetime.strptime(one, "%d.%m.%Y").date())) for one in values]


DAYS = RNG.integers(0, 2000, 400)
BEGIN = date(1970, 1, 1)
TAKES = {"days": lambda day: (day - BEGIN).days, "month": lambda day: day.month, "year": lambda day: day.year}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (dates(DAYS), dates(DAYS[:150])),
        (dates(DAYS), dates(RNG.integers(500, 2600, 200))),
        (dates(DAYS, 9), dates(DAYS[100:300] + 40, 4)),
        (dates(DAYS), dates(np.full(60, 3000))),
    ],
)
def test_dates_are_compared_as_the_numbers_that_they_become(before, after):
    learned = learned_of(before, ("days", "month", "year"))
    profiles = profiles_of(table(joined=texts(before)), learned)
    assert set(profiles) == {"joined", "joined.month", "joined.year"}
    found = drift_of(profiles, table(joined=texts(after)), learned)
    for one, (part, of) in zip(found, TAKES.items(), strict=True):
        twin = by_loops(as_numbers(before, of), as_numbers(after, of))
        assert one.index == pytest.approx(twin, rel=1e-12, abs=1e-15), part
        assert one.missing_now == sum(each is None for each in after) / len(after)
        assert one.new_levels == ()


def test_a_limit_of_drift_is_of_use_for_dates(tmp_path):
    learned, months = learned_of(dates(DAYS)), DAYS[:200] + 20
    write_profiles(tmp_path, profiles_of(table(joined=texts(dates(DAYS))), learned))
    assert read_profiles(tmp_path)["joined"].days
    party = SimpleNamespace(name="bank", policy=SimpleNamespace(max_drift=0.25, max_missing=None))
    part, said = SimpleNamespace(folder=tmp_path, prepared=learned), []
    judge(party, part, table(joined=texts(dates(months))), said.append)  # days that training had not, and nothing new
    assert said == []
    with pytest.raises(PolicyRefused, match="column 'joined' has drifted from the training"):
        judge(party, part, table(joined=texts(dates(DAYS[:200] + 4000))), said.append)
    (line,) = said
    day = r"0\d-\d\d"
    assert re.fullmatch(rf"note: joined: median 20\d\d-\d\d-\d\d, training between 2015-{day} and 2020-{day}", line)


def test_what_is_no_date_is_missing_and_a_column_that_is_not_there_is_left_out():
    learned = learned_of(dates(DAYS))
    profiles = profiles_of(table(joined=texts(dates(DAYS))), learned)
    (one,) = drift_of(profiles, table(joined=texts(["soon", *dates(DAYS[:3])] * 20)), learned)
    assert (one.missing_now, one.misfits[0]) == (0.25, "25 % missing, training 0 %")
    assert drift_of(profiles, table(age=AGE), learned) == []
    assert drift_of(profiles, table(joined=np.full(40, np.nan)), learned)[0].missing_now == 1.0
    assert [written_day(day) for day in (0.4, -1e9, 1e9)] == ["1970-01-01", "0001-01-01", "9999-12-31"]


def write_scores(path, values, names=("p(bad)", "p(good)")):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "known", "prediction", *names])
        for number, value in enumerate(values):
            known = number % 5 > 0
            writer.writerow([number, str(known).lower(), *(["x", 1 - value, value] if known else ["", "", ""])])


def test_scores_of_two_predictions_are_compared(tmp_path):
    before, now = RNG.random(200), RNG.random(100) ** 2
    write_scores(tmp_path / "old.csv", before)
    write_scores(tmp_path / "new.csv", now)
    old, new = ([v for number, v in enumerate(side.tolist()) if number % 5] for side in (before, now))
    index, *counts = score_drift(tmp_path / "old.csv", tmp_path / "new.csv")
    assert index == pytest.approx(by_loops(old, new), rel=1e-9)
    assert counts == [160, 80]
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    for name, sentence in (
        ("other.csv", "has no columns 'known' and 'prediction'"),
        ("nowhere.csv", "there is no file"),
    ):
        with pytest.raises(DataError, match=sentence):
            scores_in(tmp_path / name)
