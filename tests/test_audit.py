"""What an audit measures: a guess beside its floor, with the truth known to the audit alone."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import colonnade as cn
from colonnade.attacks.case import COLUMNS, LABELS, Attack, Case, Guess
from colonnade.audit.auditing import audited
from colonnade.audit.findings import ALONE, CHANCE, gained, judged
from colonnade.audit.measures import Truth, auc, correlations
from colonnade.defences import RoundedScores
from colonnade.errors import DataError, OptionError
from colonnade.views.mirror import OTHERS, mirrored
from colonnade.views.recording import Recording
from colonnade.views.view import View

RNG = np.random.default_rng(3)
N = 400
OWN, THEIRS = RNG.standard_normal((N, 3)), RNG.standard_normal((N, 5))
Y = np.where(OWN[:, 0] + THEIRS[:, 0] + RNG.logistic(size=N) > 0, 1.0, -1.0)


def parties(into=2):
    return cn.split(np.column_stack([OWN, THEIRS]), Y, into=into, active=1, seed=0)


def case(**more):
    return Case(View("shop", ("bank", "shop"), rows=N), "bank", "logistic", **more)


class Guessing(Attack):
    """An attack that returns what it is given."""

    name, paper, about, closed_by = "guessing", "nobody 2026", LABELS, "nothing"

    def __init__(self, guess, alone=None, about=LABELS):
        self._guess, self._alone, self.about = guess, alone, about

    def guess(self, case):
        return self._guess

    def alone(self, case):
        return self._alone


def labels_guess(score):
    return Guess(np.arange(N), labels=np.asarray(score, dtype=np.float64))


TRUTH = Truth(THEIRS, tuple("abcde"), Y)


@pytest.mark.parametrize("seed", range(5))
def test_a_guess_by_chance_has_no_advantage(seed):
    found = judged(Guessing(labels_guess(np.random.default_rng(seed).standard_normal(N))), case(), TRUTH, "")
    assert found.advantage < 0.05
    assert found.floor_from == CHANCE
    noise = np.random.default_rng(seed).standard_normal((N, 30))
    columns = Guessing(Guess(np.arange(N), columns=noise), about=COLUMNS)
    assert judged(columns, case(), TRUTH, "").advantage < 0.05


def test_labels_that_are_found_have_all_of_the_advantage_though_own_columns_tell_nearly_all():
    nearly = labels_guess(Y + 0.6 * RNG.standard_normal(N))
    found = judged(Guessing(labels_guess(Y), nearly), case(), TRUTH, "")
    assert found.advantage == 1.0
    assert found.floor > 0.97
    assert found.floor_from == ALONE
    assert found.is_open()


def test_what_the_attacker_has_without_the_run_is_no_advantage():
    nearly = Y + 0.7 * RNG.standard_normal(N)
    same = judged(Guessing(labels_guess(nearly), labels_guess(nearly)), case(), TRUTH, "")
    alike = judged(
        Guessing(labels_guess(nearly + 0.05 * RNG.standard_normal(N)), labels_guess(nearly)), case(), TRUTH, ""
    )
    assert same.advantage == 0.0
    assert alike.advantage < 0.05


def test_the_column_that_is_found_is_named_and_all_are_counted():
    estimates = RNG.standard_normal((N, 4))
    estimates[:, 2] = -7 * THEIRS[:, 3]
    found = judged(Guessing(Guess(np.arange(N), columns=estimates), about=COLUMNS), case(), TRUTH, "")
    assert (found.what, found.measure, found.found) == ("d", "R²", (1, 5))
    assert found.score == pytest.approx(1.0)
    in_order = np.roll(THEIRS, 1, axis=1)  # every estimate is a column, but another one than it is said to be
    matched = Guessing(Guess(np.arange(N), columns=in_order, matched=True), about=COLUMNS)
    assert judged(matched, case(), TRUTH, "").advantage < 0.05


def test_rows_that_the_attacker_was_given_prove_nothing():
    class Copying(Guessing):
        known_rows = (60,)

        def guess(self, case):
            found = np.random.default_rng(0).standard_normal(N)
            found[case.known.rows] = 100 * case.known.labels
            return labels_guess(found)

    found = audited([(case(), TRUTH)], attacks=[Copying(None)]).findings[0]
    assert found.had == "60 known labels"
    assert found.advantage < 0.05


def test_what_is_left_to_find():
    np.testing.assert_allclose(gained(np.array([0.9, 0.4, 1.0]), np.array([0.8, 0.5, 0.9999])), [0.5, 0.0, 0.0])


def test_measures_equal_slow_ones():
    score, high = np.round(RNG.standard_normal(60), 1), RNG.integers(0, 2, 60).astype(bool)
    pairs = [(a > b) + 0.5 * (a == b) for a in score[high] for b in score[~high]]
    assert auc(score, high) == pytest.approx(max(np.mean(pairs), 1 - np.mean(pairs)))
    assert auc(score, np.zeros(60, dtype=bool)) == 0.5
    slow = [[np.corrcoef(a, b)[0, 1] ** 2 for b in OWN.T] for a in THEIRS.T]
    np.testing.assert_allclose(correlations(OWN, THEIRS), slow)
    assert correlations(np.ones((N, 1)), THEIRS).max() == 0.0
    constant = np.full((N, 1), 0.3)  # of which rounding leaves the same number in every row
    assert correlations(constant, 7.0 * constant).max() == 0.0


def test_a_model_in_the_open_shows_labels_and_a_sealed_one_leaves_nothing_to_go_by():
    found = cn.LogisticRegression(verbose=0).fit(*parties()).audit(*parties(), attacks=["signs of signals"])
    signs = next(one for one in found.findings if one.attack == "signs of signals")
    assert (signs.attacker, signs.target, signs.score, signs.advantage) == ("party2", "party1", 1.0, 1.0)
    assert "signs of signals" in str(found)
    assert not found.passed
    frame = found.to_frame()
    assert list(frame["verdict"]) == ['open: protection="sealed"']
    sealed = cn.LogisticRegression(protection="sealed", verbose=0).fit(*parties())
    nothing = sealed.audit(*parties(), attacks=["signs of signals"])
    assert nothing.findings == ()
    assert nothing.passed
    assert ("party2", "party1", "signs of signals") in nothing.untried


def test_an_audit_repeats_and_leaves_the_model_as_it_is():
    model = cn.LogisticRegression(algorithm=cn.FedSGD(epochs=2), verbose=0).fit(*parties())
    before = {name: part.copy() for name, part in model.coef_.items()}
    assert model.audit(*parties()).findings == model.audit(*parties()).findings
    assert all((model.coef_[name] == before[name]).all() for name in before)


def test_unknown_names_are_refused():
    model = cn.LogisticRegression(verbose=0).fit(*parties())
    with pytest.raises(OptionError, match="attacks must be one of"):
        model.audit(*parties(), attacks=["guesswork"])
    with pytest.raises(OptionError, match="attackers must be one of"):
        model.audit(*parties(), attackers=["nobody"])
    with pytest.raises(DataError, match="trained on 400 rows, the parties have 100 here; give those"):
        model.audit(*(party.take(np.arange(100)) for party in parties()))
    for none in ("signs of signals", [], ()):
        with pytest.raises(
            OptionError, match=re.escape(f"attacks must be a list of names, or None for all, got {none!r}")
        ):
            model.audit(*parties(), attacks=none)
    with pytest.raises(OptionError, match="attackers must be a list of names, or None for all, got 'party1'"):
        model.audit(*parties(), attackers="party1")
    for threshold in (-0.1, 1.5, "much", True, float("nan")):
        with pytest.raises(OptionError, match=f"threshold must be a number between 0 and 1, got {threshold!r}"):
            model.audit(*parties(), threshold=threshold)


def test_columns_that_were_prepared_are_audited_as_they_were_trained_on():
    rng = np.random.default_rng(0)
    contract = rng.choice(["permanent", "temporary"], 300)
    here = pd.DataFrame({"age": rng.normal(45, 12, 300), "contract": contract})
    spend = np.where(rng.random(300) < 0.1, np.nan, rng.gamma(2, 50, 300))
    there = pd.DataFrame({"spend": spend, "visits": rng.integers(0, 12, 300)})
    both = cn.Party("bank", here, contract == "permanent", prepare={}), cn.Party("shop", there, prepare={})
    model = cn.LogisticRegression(algorithm=cn.FedSGD(epochs=2), verbose=0).fit(*both)
    found = model.audit(*both, others=both, attacks=["signs of signals", "scores"]).findings
    assert found[0].advantage == 1.0
    assert {one.what for one in found if one.target == "shop"} <= {*model.coef_["shop"].index, ""}


def test_scores_are_audited_as_coarse_as_the_parties_agreed():
    worst = {}
    for noise in (0.0, 30.0):
        coarse = RoundedScores(digits=None, noise=noise)
        model = cn.LogisticRegression(protection="sealed", defences=[coarse], verbose=0).fit(*parties())
        worst[noise] = model.audit(*parties(), attacks=["scores"], attackers=["party1"]).worst
    assert worst[0.0] > 0.1
    assert worst[30.0] < 0.05


@pytest.mark.filterwarnings("ignore::colonnade.errors.SingleFeatureWarning")
def test_one_column_each_is_audited_too():
    x = np.random.default_rng(0).standard_normal((200, 2))
    both = cn.Party("bank", x[:, :1], x.sum(axis=1) > 0), cn.Party("shop", x[:, 1:])
    found = cn.LogisticRegression(verbose=0).fit(*both).audit(*both)
    assert {"span of totals", "inner products of rows"} <= {one.attack for one in found.findings}


def test_on_a_narrow_terminal_each_finding_is_a_sentence(monkeypatch):
    found = cn.LogisticRegression(algorithm=cn.FedSGD(epochs=2), verbose=0).fit(*parties()).audit(*parties())
    monkeypatch.setenv("COLUMNS", "80")
    lines = str(found).splitlines()
    assert max(len(line) for line in lines) <= 80
    assert sum(line[:1].isdigit() and line[1] == "." for line in lines) == len(found.findings)
    assert "signs of signals by party2, on labels of party1: AUC 1.000" in " ".join(str(found).split())
    monkeypatch.setenv("COLUMNS", "150")
    assert "advantage   verdict" in str(found)


@pytest.mark.parametrize("into", [2, 3])
def test_what_others_saw_of_a_party_is_what_left_it(into):
    on = Recording()
    cn.LogisticRegression(algorithm=cn.FedSGD(epochs=2), verbose=0).fit(*parties(into), on=on)
    of_label_holder, of_other = mirrored(on.views["party1"]), mirrored(on.views["party2"])
    assert of_label_holder.me == OTHERS
    told = [one.value for one in on.views["party2"].of("message", "signal")]
    seen = [one.value for one in of_label_holder.of("message", "signal")]
    assert len(told) == len(seen) > 10
    assert all((a == b).all() for a, b in zip(told, seen, strict=True))
    totals = on.views["party1"].of("total less own part", "evaluation")
    parts = of_other.of("total less own part", "evaluation")
    assert len(totals) == len(parts) == 3
    if into == 2:  # masks hide nothing of the only other party
        assert all(np.allclose(a.value, b.value, atol=1e-9) for a, b in zip(totals, parts, strict=True))
