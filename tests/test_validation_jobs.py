"""Folds and searches in jobs: what is agreed on, found, shown and counted, and how a broken run goes on."""

from __future__ import annotations

import json
from collections import Counter
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV

import colonnade as cn
from colonnade.alignment.protocol import align
from colonnade.cli.training import validation_lines
from colonnade.errors import OptionError, PolicyRefused, RunFailed
from colonnade.families import family
from colonnade.families.linear import LinearOptions
from colonnade.jobs.budget import Budget
from colonnade.jobs.model_file import save_validation
from colonnade.jobs.policy import Policy, PolicyDoor, kind_of
from colonnade.jobs.words import leaks_of, what_others_learn
from colonnade.leaks import CHOSEN, HELD_OUT, NOTHING
from colonnade.service.training import Keepers, take_part
from colonnade.validation.folds import drawn_folds
from colonnade.validation.payments import Payments
from test_job import complete, job
from test_job_training import Plain
from test_kept import Shelf
from test_leaks import Record, job_with, sources
from test_protection_jobs import BARE, with_word

ROWS, WIDTH = 90, 6
RNG = np.random.default_rng(5)
X = RNG.standard_normal((ROWS, WIDTH))
Y = (X @ np.linspace(-1, 1, WIDTH) + RNG.logistic(size=ROWS) > 0).astype(int)
VALUES = (0.3, 0.003, 0.03)
EXACT = cn.BlockNewton(tol=1e-11, epochs=40)
SEALED = cn.SealedNewton()


def searched(algorithm=EXACT, parties=2, values=VALUES, folds=3, **changes):
    """A job that tries values of l2."""
    candidates = tuple((LinearOptions(l2=l2), algorithm) for l2 in values)
    grid = tuple({"l2": l2} for l2 in values)
    some = {"grid": grid, "candidates": candidates} if len(values) > 1 else {}
    scoring = "neg_mean_squared_error" if changes.get("loss") == "square" else "neg_log_loss"
    return replace(job_with(algorithm, parties, **changes), folds=folds, scoring=scoring, **some)


def run(job_, y=Y, *, budgets=None, keepers=None, reports=None, breaks=None, weights=None, class_weight=None):
    found, given = {}, sources(job_.parties, job_.holders, y, X)
    given["bank"].weights, given["bank"].class_weight = weights, class_weight

    def program_of(name):
        async def program(net):
            budget = (budgets or {}).get(name)
            if budget is not None:
                net.door = PolicyDoor(name, Policy(), None, budget)
            if breaks is not None and name == "bank":
                breaks(net)
            kept = None if keepers is None else keepers[name]
            found[name] = await take_part(net, job_, given[name], align, lambda *_: None, kept, budget=budget)

        return program

    def observe(name, _, value):
        if reports is not None:
            reports.append((name, value))

    cn.Simulation().run({name: (program_of(name), ()) for name in job_.parties}, observe)
    return found


# -- what is found ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parties", [2, 3])
def test_a_search_is_grid_search_and_ends_with_the_model_of_a_plain_job(parties):
    job_ = searched(parties=parties)
    found = run(job_)
    folds = drawn_folds(ROWS, 3, job_.algorithm.seed)
    theirs = LogisticRegression(solver="newton-cholesky", tol=1e-12)
    known = GridSearchCV(
        theirs, {"C": [1 / (60 * l2) for l2 in VALUES]}, scoring="neg_log_loss", cv=list(folds), refit=False
    ).fit(X, Y)
    mine = found["bank"].validated
    assert mine.scores.mean(axis=1) == pytest.approx(known.cv_results_["mean_test_score"], abs=1e-6)
    assert {one.validated.best for one in found.values()} == {known.best_index_}
    assert found["shop"].validated.scores is None
    assert found["shop"].validated.z is None
    plain = run(job_with(EXACT, parties, model=LinearOptions(l2=VALUES[known.best_index_])))
    for name, trained in found.items():
        assert np.array_equal(trained.state[0], plain[name].state[0])
        assert trained.rows == ROWS
    fitted = [clone(theirs).set_params(C=1 / (60 * VALUES[mine.best])).fit(X[train], Y[train]) for train, _ in folds]
    for number, (_, apart) in enumerate(folds):
        assert (mine.fold[apart] == number).all()
        assert mine.z[apart] == pytest.approx(fitted[number].decision_function(X[apart]), abs=1e-4)


def test_held_out_people_count_by_their_weights_and_not_by_their_class():
    weights = np.random.default_rng(2).gamma(0.6, size=ROWS)
    options = LinearOptions(l2=0.03, weighted=True)
    job_ = replace(searched(values=(0.03,)), model=options, candidates=())
    mine = run(job_, weights=weights, class_weight={0: 3.0})["bank"].validated
    trained = weights * np.where(Y == 0, 3.0, 1.0)
    for fold, (train, apart) in enumerate(drawn_folds(ROWS, 3, EXACT.seed)):
        one = LogisticRegression(C=1 / (0.03 * trained[train].sum()), solver="newton-cholesky", tol=1e-12)
        chances = one.fit(X[train], Y[train], sample_weight=trained[train]).predict_proba(X[apart])
        assert mine.scores[0, fold] == pytest.approx(-log_loss(Y[apart], chances, sample_weight=weights[apart]), 1e-6)


def test_every_fold_is_prepared_from_what_it_trains_on(monkeypatch):
    """The preparation sees no held-out row, and the model's own is learned from all rows."""
    seen = []

    class Scaled(Plain):
        def __init__(self, table, rows):
            super().__init__(table)
            self.mean = table[rows].mean(axis=0)

        def matrix(self, rows):
            return super().matrix(rows) - self.mean

    def prepare(source, rows):
        seen.append(set(np.asarray(rows).tolist()))
        return Scaled(source.X, rows)

    monkeypatch.setattr("test_leaks.Whole.prepare", prepare)
    found = run(searched(values=(0.03,)))
    folds = drawn_folds(ROWS, 3, EXACT.seed)
    for train, _ in folds:
        assert seen.count(set(train.tolist())) == 2  # once at each of the two parties
    assert seen.count(set(range(ROWS))) == 2
    assert found["shop"].prepared.mean == pytest.approx(X[:, 3:].mean(axis=0))


def test_what_a_party_reads_of_it(tmp_path):
    job_ = searched()
    found = run(job_)
    for name in ("bank", "shop"):
        (tmp_path / name).mkdir()
        save_validation(tmp_path / name, job_, found[name].validated)
    bank, shop = (json.loads((tmp_path / name / "validation.json").read_text()) for name in ("bank", "shop"))
    assert bank["best"] == shop["best"] == found["bank"].validated.best
    assert [one["options"]["l2"] for one in bank["candidates"]] == list(VALUES)
    assert len(bank["candidates"][0]["scores"]) == 3
    assert all(set(one) == {"options"} for one in shop["candidates"])
    told = validation_lines(bank, "bank")
    assert len(told) == 3
    assert told[bank["best"]].endswith("over 3 folds, the best")
    (line,) = validation_lines(shop, "bank")
    assert line == f"l2 = {VALUES[shop['best']]} does best on held-out people, as bank finds"


# -- what is shown and counted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job_", "y"),
    [
        (searched(cn.BlockNewton(epochs=2), 2), Y),
        (searched(cn.BlockNewton(epochs=2), 3), Y),
        (searched(cn.FedBCD(epochs=2), 2, values=(0.1,)), Y),
        (searched(SEALED, 2, loss="square", folds=2, values=(0.1, 0.01)), X[:, 0] + X[:, 5]),
    ],
)
def test_every_message_is_declared(job_, y, monkeypatch):
    record = Record(monkeypatch)
    run(job_, y, keepers={name: Keepers(Shelf(), lambda _: Shelf(), None, lambda *_: Shelf()) for name in job_.parties})
    leaks = leaks_of(job_)
    kinds = {kind for _, _, kind, _ in record.letters}
    assert "held-out scores" in kinds
    assert ("choice" in kinds) == (len(job_.candidates) > 1)
    assert not record.unaccounted(job_.setting(ROWS), leaks)
    for kind in {"held-out scores", "choice"} & kinds - set(NOTHING):
        lying = [leak for leak in leaks if kind not in leak.kinds]
        assert {found for *_, found in record.unaccounted(job_.setting(ROWS), lying)} >= {kind}


def test_what_is_shown_counts_every_fit():
    one, many = job_with(EXACT), searched()
    shown = {leak.name: leak.numbers for leak in leaks_of(one) if leak.left and leak.numbers}
    more = {leak.name: leak.numbers for leak in leaks_of(many) if leak.left and leak.numbers}
    assert all(more[name] == numbers * 10 for name, numbers in shown.items())  # 3 x 3 fits, and the last one
    assert more[HELD_OUT] == 3
    assert {HELD_OUT, CHOSEN} <= set(many.disclosed())
    assert CHOSEN not in searched(values=(0.1,)).disclosed()
    told = " ".join(what_others_learn(searched(SEALED), "shop", 4)["your columns"])
    assert "the score of everybody, held out once for each candidate, at most 3 numbers about each" in told
    assert kind_of("directions in fit 12") == "directions"
    assert kind_of("scores masks in fit 3") == "masks"


def test_sealed_folds_pay_for_each_score_of_a_held_out_person():
    job_ = searched(SEALED, loss="square", folds=2, values=(0.1, 0.01))
    y = X[:, 0] + X[:, 5]
    budgets = {"bank": Budget("bank", 1.0), "shop": Budget("shop", 1.0)}
    run(job_, y, budgets=budgets)
    assert budgets["shop"].charged == 2.0
    assert budgets["bank"].charged == 0.0
    with pytest.raises(
        (PolicyRefused, RunFailed), match="a cross-validation of 2 candidates in 2 folds lets out 2 num"
    ):
        run(job_, y, budgets={"bank": Budget("bank", 0.3), "shop": Budget("shop", 0.3)})


def test_open_folds_share_the_budget_and_refuse_one_that_is_too_small():
    budgets = {"bank": Budget("bank", 40.0), "shop": Budget("shop", 40.0)}
    reports = []
    found = run(searched(cn.BlockNewton()), budgets=budgets, reports=reports)
    assert 10 * 2 < budgets["shop"].charged <= budgets["shop"].allowance == 120
    assert found["shop"].validated.best in range(3)
    assert [value for name, value in reports if name == "shop" and value[0] == "warning"] == [
        ("warning", "the policy of 'shop' lets 11.7 numbers about each person out in each of the 10 fits; a fit ends "
         "there at the latest")
    ]  # fmt: skip
    with pytest.raises((PolicyRefused, RunFailed), match="a cross-validation of 3 candidates in 3 folds lets out"):
        run(searched(cn.BlockNewton()), budgets={"bank": Budget("bank", 2.0), "shop": Budget("shop", 2.0)})


# -- a run that is broken off -----------------------------------------------------------------------------------------


def test_a_search_that_is_broken_off_goes_on_with_the_fits_that_all_have_kept():
    job_ = searched()

    def shelves():
        def of():
            fits = {}
            state = Shelf()
            return Keepers(Shelf(), lambda _: state, None, lambda _, number: fits.setdefault(number, Shelf())), fits

        made = {name: of() for name in job_.parties}
        return {name: one[0] for name, one in made.items()}, {name: one[1] for name, one in made.items()}

    whole = run(job_, keepers=shelves()[0])
    keepers, fits = shelves()

    def breaks(net):
        send, sent = net.send, []

        async def until(to, tag, value):
            sent.append(tag)
            if tag.startswith("signal in fit 6"):
                raise RuntimeError("pulled out")
            await send(to, tag, value)

        net.send = until

    with pytest.raises(RunFailed, match="pulled out"):
        run(job_, keepers=keepers, breaks=breaks)
    done = {number for number, shelf in fits["bank"].items() if shelf.kept}
    assert 0 < len(done) < 9
    fits["shop"][min(done)].kept.clear()  # what one party lacks is done again
    reports = []
    again = run(job_, keepers=keepers, reports=reports)
    assert sum(value[0] == "validation" for name, value in reports if name == "bank") == 9 - len(done) + 1
    assert again["bank"].validated.scores == pytest.approx(whole["bank"].validated.scores, abs=1e-6)
    assert np.array_equal(again["shop"].state[0], whole["shop"].state[0])


def keepers_of(fits):
    """Keepers of all parties on a copy of these shelves, so that several runs may go on from the same place."""

    def keepers(kept):
        state = Shelf()
        return Keepers(Shelf(), lambda _: state, None, lambda _, number: kept.setdefault(number, Shelf()))

    return {name: keepers(deepcopy(kept)) for name, kept in fits.items()}


def broken_off(job_, at, y=Y):
    """The fits that all keep of a run that ends when the bank sends this message, and what each has paid by then."""
    fits = {name: {} for name in job_.parties}

    def keepers(kept):
        return Keepers(Shelf(), lambda _: Shelf(), None, lambda _, number: kept.setdefault(number, Shelf()))

    def breaks(net):
        send = net.send

        async def until(to, tag, value):
            if tag.startswith(at):
                raise RuntimeError("pulled out")
            await send(to, tag, value)

        net.send = until

    paid = {name: Budget(name, 1000.0) for name in job_.parties}
    with pytest.raises(RunFailed, match="pulled out"):
        run(job_, y, keepers={name: keepers(fits[name]) for name in fits}, breaks=breaks, budgets=paid)
    both = [{number for number, shelf in one.items() if shelf.kept} for one in fits.values()]
    return fits, set.intersection(*both), paid


def with_left(name, numbers):
    """A budget of which earlier runs have left so much."""
    budget = Budget(name, 1000.0)
    budget.before = 3000.0 - numbers  # of three columns
    return budget


def test_a_search_that_goes_on_asks_the_budget_for_what_is_still_to_be_sent():
    job_ = searched(cn.BlockNewton())
    fits, done, paid = broken_off(job_, "signal in fit 6")
    assert 3 <= len(done) < 9
    whole, counted = run(job_), [Budget(name, 1000.0) for name in job_.parties]
    run(job_, budgets={one._me: one for one in counted})
    scores = Payments([1.0] * 3, fits["shop"][0], None, None)  # the shop's
    due = scores.due((number, fold) for number in range(3) for fold in range(3) if 1 + 3 * fold + number not in done)
    assert due < 3
    least = family("linear").least_numbers(job_.algorithm, job_.model, (1, 2, 1, 1))
    needs = due + least * (9 - len(done) + 1)
    assert needs < 3 + least * 10  # what it would ask for from the start
    budgets = {"bank": with_left("bank", 1000), "shop": with_left("shop", needs)}
    run(job_, keepers=keepers_of(fits), budgets=budgets)
    with pytest.raises((PolicyRefused, RunFailed), match=rf"in 3 folds, of which {9 - len(done)} fits are left, lets"):
        run(job_, keepers=keepers_of(fits), budgets=budgets | {"shop": with_left("shop", needs - 1)})
    enough = {name: Budget(name, 1000.0) for name in job_.parties}
    again = run(job_, keepers=keepers_of(fits), budgets=enough)
    assert np.allclose(again["bank"].validated.scores, whole["bank"].validated.scores, atol=1e-4)
    twice = paid["shop"].charged + enough["shop"].charged
    each = counted[1].charged / 10  # of a fit, about; three were under way when the run was broken off
    assert counted[1].charged <= twice < counted[1].charged + 4 * each


def test_scores_that_were_never_sent_are_not_paid_for():
    job_, y = searched(SEALED, loss="square", folds=2, values=(0.1, 0.01)), X[:, 0] + X[:, 5]
    fits, done, paid = broken_off(job_, "choice", y)
    assert (done, paid["shop"].charged) == ({1, 2, 3, 4}, 2.0)
    run(job_, y, keepers=keepers_of(fits), budgets={"bank": with_left("bank", 0), "shop": with_left("shop", 0)})
    fits["bank"].clear()  # what it lacks is sent again, and paid again
    again = {name: Budget(name, 1000.0) for name in job_.parties}
    run(job_, y, keepers=keepers_of(fits), budgets=again)
    assert again["shop"].charged == 2.0
    fits, done, paid = broken_off(job_, "sealed difference: step in fit 1", y)
    assert (done, paid["shop"].charged) == (set(), 0.0)
    enough = {name: Budget(name, 0.7) for name in job_.parties}  # two numbers, of three columns
    run(job_, X[:, 0] + X[:, 5], keepers=keepers_of(fits), budgets=enough)
    assert enough["shop"].charged == 2.0


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_sent_more_than_was_paid_for_and_nothing_is_paid_twice(seed):
    """Runs that break off anywhere: of every candidate is paid as often as the unluckiest fold was sent."""
    rng, shelf, sent, kept = np.random.default_rng(seed), Shelf(), Counter(), set()
    places, paid = [(candidate, fold) for candidate in range(3) for fold in range(4)], Counter()
    for _ in range(5):
        charged, covered = [], []
        payments = Payments([1.0, 2.0, 1.0], shelf, charged.append, covered.append)
        pending = [place for place in places if place not in kept]
        due, before = payments.due(pending), sent.copy()
        order = [pending[at] for at in rng.permutation(len(pending))]
        for place in order[: rng.integers(0, len(order) + 1)] if len(kept) < 11 else order:
            payments.send(place)
            sent[place] += 1
            kept |= {place} if rng.random() < 0.6 else set()
        paid["numbers"] += sum(charged)
        most = [max(sent[candidate, fold] for fold in range(4)) for candidate in range(3)]
        assert paid["numbers"] == most[0] + 2 * most[1] + most[2]
        assert sum(charged) <= due
        # What passes the door in this run was charged in it, or is covered.
        now = sent - before
        let_out = sum((1, 2, 1)[candidate] * max(now[candidate, fold] for fold in range(4)) for candidate in range(3))
        assert let_out <= sum(charged) + sum(covered)


# -- the file ---------------------------------------------------------------------------------------------------------

MASKED = with_word("masked")


def test_what_a_job_file_says():
    read = job(complete(MASKED + '[validation]\nfolds = 4\nscoring = "roc_auc"\n[search]\nl2 = [1, 0.1]\n'))
    assert (read.folds, read.scoring, read.tries, read.fits) == (4, "roc_auc", 2, 9)
    assert [dict(one) for one in read.grid] == [{"l2": 1}, {"l2": 0.1}]
    assert [read.candidate(number).model.l2 for number in range(2)] == [1.0, 0.1]
    assert (read.setting().folds, read.setting().candidates) == (4, 2)
    both = job(complete(MASKED + "[search]\nl2 = [1.0]\ntol = [1e-4, 1e-5]\n"))
    assert (both.folds, both.tries) == (5, 2)
    assert both.candidate(1).algorithm == cn.BlockNewton(tol=1e-5)
    assert job(complete(MASKED)).candidate(0).fits == 1
    assert "search" in both.agreed


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[validation]\nfolds = 1\n", r"key validation.folds: must be >= 2"),
        ("[validation]\nfolds = 3\npart = 0.2\n", r"key validation.part: holds rows out once"),
        ('[validation]\nscoring = "roc_auc"\n', r"key validation.scoring: scores folds, and the job has none"),
        ('[validation]\nfolds = 3\nscoring = "auc"\n', r"key validation.scoring: must be one of"),
        ('[validation]\nfolds = 3\nscoring = "r2"\n', r"key validation.scoring: scoring for models with the loss"),
        ("[search]\nl2 = 0.1\n", r"key search.l2: must be an? "),
        ("[search]\nl2 = []\n", r"key search.l2: must be"),
        ("[search]\nl2 = [0.1, -1.0]\n", r"key search.l2: must be >= 0, got -1"),
        (
            "[search]\nmagic = [1]\n",
            r"key search.magic: can't be searched for; this job may search for intercept, l1, l2",
        ),
        ("[search]\nseed = [1, 2]\n", r"key search.seed: can't be searched for"),
        ("[search]\nepochs = [0]\n", r"key search.epochs: can't be searched for"),
        ('[search]\norder = ["parallel", "sequential"]\n', r"key search.order: can't be searched for"),
        ("[run]\nstatistics = true\n[search]\nl1 = [0.05]\n", r"key search.l1: can't be searched for"),
        ('[search]\nkind = ["ridge"]\n', r"key search.kind: can't be searched for"),
        ('[sum]\nkind = "encrypted"\n[validation]\nfolds = 2\n', r"key validation.folds: jobs cross-validate linear"),
    ],
)
def test_what_cant_be_is_one_sentence(text, sentence):
    with pytest.raises(OptionError, match=sentence):
        job(complete(MASKED + text))


def test_kernels_hold_rows_out_once():
    text = with_word("masked", BARE.replace('kind = "logistic"\nl2 = 0.01', 'kind = "kernel"\nfeatures = 64'))
    with pytest.raises(OptionError, match=r"key validation.folds: jobs cross-validate linear models"):
        job(complete(text + "[validation]\nfolds = 2\n"))


def test_sealed_folds_must_be_listed():
    text = complete(with_word("sealed"))
    with pytest.raises(OptionError, match=r"key validation.folds: a metric on held-out rows shows 'bank' their scores"):
        job(text + "[validation]\nfolds = 2\n")
