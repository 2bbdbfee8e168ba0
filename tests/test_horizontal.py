"""Sites that hold rows: the same model masked or not, on every runtime, whoever falls silent; and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits

import colonnade as cn
from colonnade.algorithms.ssca import PAPER
from colonnade.blocks.whole import Linear
from colonnade.crypto.masks import KeyPair
from colonnade.crypto.ring import Ring
from colonnade.errors import (
    ColonnadeError,
    ColonnadeWarning,
    DataError,
    LabelError,
    LimitNotMet,
    NotFittedError,
    OptionError,
    PartySilent,
    ProtocolError,
    RingOverflow,
)
from colonnade.horizontal import answering, gathering
from colonnade.horizontal import program as horizontal
from colonnade.horizontal.answering import Own
from colonnade.horizontal.bringing import part_of
from colonnade.horizontal.gathering import Heard
from colonnade.horizontal.messages import instruction
from colonnade.horizontal.program import attend
from colonnade.horizontal.row_keys import RowKeys
from colonnade.horizontal.site_work import SiteRows, SiteWork
from colonnade.horizontal.stated_problem import StatedProblem
from colonnade.remote.network import Network
from colonnade.sums.dropout import Member, SumTerms
from horizontal_programs import die_after, one_layer, two_layers

X, Y = load_digits(return_X_y=True)
X = X / 16
SITES = cn.split_rows(X, Y, into=10, seed=1)
SHORT = cn.SSCA(batch=20, rounds=6)
FIVE = tuple(f"s{k}" for k in range(5))


def model(**options):
    return cn.SSCAClassifier(**{"hidden": 8, "algorithm": SHORT, "verbose": 0, **options})


@pytest.fixture(scope="module")
def fitted():
    return model().fit(*SITES)


# -- the same everywhere ----------------------------------------------------------------------------------------------


def test_masks_change_nothing(fitted):
    plain = model(sum="plain").fit(*SITES)
    assert np.array_equal(plain.parameters_, fitted.parameters_)
    assert "masked sum" in fitted.traffic_["site3"].by_step
    assert set(plain.traffic_["site3"].by_step) == {"sum", "goodbye"}


# A site that is late for a round is left out of it: here none shall be, however busy eleven processes are.
@pytest.mark.parametrize("on", [cn.Processes(600.0), Network(600.0)], ids=["processes", "network"])
def test_processes_give_the_same_model(on, fitted):
    again = model().fit(*SITES, on=on)
    assert np.abs(again.parameters_ - fitted.parameters_).max() < 1e-9


def test_it_is_the_papers_algorithm(fitted):
    """Beside a plain loop over the same batches, with all rows in one place."""
    from colonnade.algorithms.ssca import Average, Function, Problem, algorithm_1, start
    from colonnade.blocks.whole import ThreeLayers

    network = ThreeLayers(64, 8, 10, constant=True)
    usual = Problem(Function((1.0,), 1e-5))
    state = start(network.start(0), usual, SHORT)
    for t in range(1, 7):
        cost, gradient = 0.0, np.zeros(network.size)
        for i, site in enumerate(SITES):
            rows = np.random.default_rng([0, i, t]).choice(np.arange(site.rows), 20, replace=False)
            one, slope = network.value_and_gradient(state.parameters, site.X[rows], site.y[rows])
            cost, gradient = cost + site.rows / len(Y) * one, gradient + site.rows / len(Y) * slope
        state = algorithm_1(state, [Average(cost, gradient)], usual, SHORT)
    assert np.abs(state.parameters - fitted.parameters_).max() < 1e-8


def test_history_counts_and_improves(fitted):
    assert [record["epoch"] for record in fitted.history_] == [0, 1, 2, 3, 4, 5, 6]
    assert fitted.history_[-1]["loss"] < fitted.history_[0]["loss"]
    last = fitted.history_[-1]
    assert {"rounds", "time", "metric", "norm", "answered", "bytes", "messages"} <= set(last)
    assert last["norm"] == pytest.approx(fitted.parameters_ @ fitted.parameters_)
    assert last["metric"] == pytest.approx(np.mean([fitted.score(X, Y)]), abs=1e-9)
    assert fitted.rounds_ == 6


def test_validation_rows_are_measured_too():
    train = [site.take(np.arange(100)) for site in SITES]
    rest = [site.take(np.arange(100, site.rows)) for site in SITES]
    one = model().fit(*train, validation=rest[::-1])
    truth = np.concatenate([site.y for site in rest])
    found = np.concatenate([one.predict(site) for site in rest])
    assert one.history_[-1]["validation_metric"] == pytest.approx(np.mean(found == truth), abs=1e-9)
    with pytest.raises(DataError, match="validation needs each of the sites"):
        model().fit(*train, validation=rest[:3])


def test_sparse_and_float32_and_frames():
    dense = model().fit(*SITES)
    for table in (sp.csr_matrix(X), pd.DataFrame(X, columns=[f"p{j}" for j in range(64)])):
        other = model().fit(*cn.split_rows(table, Y, into=10, seed=1))
        assert np.abs(other.parameters_ - dense.parameters_).max() < 1e-8
        assert (other.predict(table) == dense.predict(X)).all()
    single = model().fit(*cn.split_rows(X.astype(np.float32), Y, into=10, seed=1))
    assert np.abs(single.parameters_ - dense.parameters_).max() < 1e-3


def test_a_linear_model_and_text_labels():
    names = np.array([f"digit {y}" for y in Y])
    one = model(hidden=0, algorithm=cn.SSCA(rounds=60)).fit(*cn.split_rows(X, names, into=4, seed=0))
    assert one.score(X, names) > 0.9
    assert one.predict_proba(X).sum(axis=1) == pytest.approx(1)
    assert one.parameters_.size == 65 * 10


def test_one_site_alone_has_no_masks():
    one = model().fit(*cn.split_rows(X, Y, into=1))
    assert "sum" in one.traffic_["site1"].by_step


def test_a_torch_module():
    torch = pytest.importorskip("torch")
    options = {"network": two_layers, "algorithm": cn.SSCA(batch=20, rounds=20)}
    one = model(**options, sum="plain").fit(*SITES)
    assert one.history_[-1]["loss"] < one.history_[0]["loss"]
    module = two_layers(64, 10).double()
    torch.nn.utils.vector_to_parameters(torch.from_numpy(one.parameters_.copy()), module.parameters())
    assert one.decision_function(X) == pytest.approx(module(torch.from_numpy(X)).detach().numpy())
    assert np.array_equal(model(**options).fit(*SITES).parameters_, one.parameters_)
    with pytest.raises(OptionError, match="top level of a module"):
        model(network=lambda features, classes: None).fit(*SITES)
    with pytest.raises(OptionError, match="can't be saved"):
        one.save("nowhere")


def test_a_site_whose_network_is_another_one_says_so():
    pytest.importorskip("torch")
    plan = model(network=two_layers).plan(SHORT, ("a", "b", "c"), 64, 10, StatedProblem.of())
    assert plan.model == ("own", 64, ((8, 64), (8,), (10, 8), (10,)), 10, False)  # no name of any code
    part = SiteRows(X, Y, np.zeros(len(Y), int))
    work = SiteWork.of(plan.as_site_job(1), "b", part, None, Own(two_layers))
    assert work.model.size == 8 * 65 + 10 * 9
    with pytest.raises(
        OptionError, match=r"network of site 'b' has parameters of the shapes \(\(10, 64\), \(10,\)\), the"
    ):
        SiteWork.of(plan.as_site_job(1), "b", part, None, Own(one_layer))
    with pytest.raises(OptionError, match="the model is a torch module, and site 'b' was given none; give it network="):
        SiteWork.of(plan.as_site_job(1), "b", part, None, Own())
    layers = model().plan(SHORT, ("a", "b", "c"), 64, 10, StatedProblem.of())
    with pytest.raises(OptionError, match="the model is told by its layers, and site 'b' was given a network="):
        SiteWork.of(layers.as_site_job(1), "b", part, None, Own(two_layers))


def test_a_torch_module_in_processes():
    """The name of the function goes to each program as its own argument."""
    pytest.importorskip("torch")
    options = {"network": two_layers, "algorithm": cn.SSCA(batch=20, rounds=2)}
    sites = cn.split_rows(X, Y, into=3, seed=1)
    here = model(**options).fit(*sites)
    there = model(**options).fit(*sites, on=cn.Processes(600.0))
    assert np.abs(here.parameters_ - there.parameters_).max() < 1e-9


# -- who is who -------------------------------------------------------------------------------------------------------


def with_rosters(sites, identities=None, **changes):
    """The same sites, each with an identity and a roster of all; `changes` are keys that all rosters have instead."""
    who = identities or {one.name: cn.Identity() for one in sites}
    public = {**{name: one.public for name, one in who.items()}, **changes}
    return [
        cn.Site(s.name, s.X, s.y, identity=who[s.name], roster={**public, s.name: who[s.name].public}) for s in sites
    ]


def test_identities_and_rosters_change_no_bit(fitted):
    assert np.array_equal(model().fit(*with_rosters(SITES)).parameters_, fitted.parameters_)
    there = model().fit(*with_rosters(SITES), on=cn.Processes(600.0))
    assert np.abs(there.parameters_ - fitted.parameters_).max() < 1e-9
    some = [*with_rosters(SITES)[:9], SITES[9]]  # one without an identity: the rosters of the others have another
    with pytest.raises(ProtocolError, match="the keys of site 'site10' come under another identity than this site's"):
        model().fit(*some)


def test_three_of_ten_are_left_out_under_rosters_too():
    on = cn.Simulation(faults=cn.Faults(crashes={"site1": 0.0, "site2": 0.0, "site3": 0.0}), deadline=6.0)
    with pytest.warns(ColonnadeWarning, match="died"):
        signed = model().fit(*with_rosters(SITES), on=on)
    with pytest.warns(ColonnadeWarning, match="died"):
        plain = model(sum="plain").fit(*SITES, on=on)
    assert np.array_equal(signed.parameters_, plain.parameters_)


def test_a_roster_that_is_out_of_date_ends_the_run_with_both_names():
    sites = with_rosters(cn.split_rows(X, Y, into=3, seed=0), site2=cn.Identity().public)
    with pytest.raises(ProtocolError, match="the keys of site 'site2' come under another identity"):
        model().fit(*sites)


def test_a_server_that_hands_on_other_keys_is_refused(monkeypatch):
    """Through the whole run, on the wire: it puts a key of its own in the place of one site's."""
    real, terms = gathering.Collector.keys, []
    monkeypatch.setattr(answering, "SumTerms", lambda *known: terms.append(SumTerms(*known)) or terms[-1])

    def replaced(self, found):
        return real(self, {**found, 1: Member(1, terms[-1], KeyPair()).public})  # all of the terms is known to a server

    monkeypatch.setattr(gathering.Collector, "keys", replaced)
    sites = cn.split_rows(X, Y, into=3, seed=0)
    with pytest.raises(ProtocolError, match="the keys of site 'site2' come under another identity"):
        model().fit(*with_rosters(sites))
    with pytest.raises(ProtocolError, match="other keys for this member than those it sent"):
        model().fit(*sites)  # site 1 believes it, and site 2 sees it: a server would answer in its place


def asked_alone(monkeypatch, rows):
    """A server that asks all sites but the second for nothing: their weights are rows / 1e300. What it opens."""
    real, totals = gathering._masked, []

    def alone(sites, threshold, task, asked):
        if task.kind == "step":
            asked = {k: each if k == 1 else (*each[:3], np.full(3, 1e300)) for k, each in asked.items()}
        total, answered = yield from real(sites, threshold, task, asked)
        totals.append((task.kind, total))
        return total, answered

    monkeypatch.setattr(gathering, "_masked", alone)
    sites = cn.split_rows(X, Y, into=3, seed=0)
    model(algorithm=cn.SSCA(rounds=1, batch=rows)).fit(*sites)
    return sites, next(total for kind, total in totals if kind == "step")


@pytest.mark.filterwarnings("ignore:training diverged")
def test_a_server_that_asks_one_site_alone_is_refused(monkeypatch):
    with pytest.raises(ProtocolError, match=r"the keys of site 'site\d' are not signed by it for sum 3, as this site"):
        asked_alone(monkeypatch, 20)
    monkeypatch.setattr(answering, "digest_of_told", lambda value: b"")  # sites that look not what others are asked
    sites, total = asked_alone(monkeypatch, 20)
    part = part_of(sites[1], np.arange(10), RowKeys())
    plan = model().plan(cn.SSCA(rounds=1, batch=20), ("site1", "site2", "site3"), 64, 10, StatedProblem.of())
    work = SiteWork.of(plan.as_site_job(1), "site2", SiteRows.from_value(part), None, Own())
    alone = work.step(1, work.model.start(0), np.array([len(Y), len(Y), 0.0]))
    assert np.abs(Ring(3).decode(total) - alone).max() < 1e-9  # the total is that one site's gradient


def test_a_server_that_tells_sites_different_survivors_is_refused(monkeypatch):
    real, seven = gathering._masked, range(7)

    def splitting(*args):
        stages = real(*args)
        stage, contents = next(stages)
        while True:
            if stage == "survivors":
                contents = {k: tuple(seven[:4] if k < 3 else seven[3:]) for k in seven}
            stage, contents = stages.send((yield stage, contents))

    monkeypatch.setattr(gathering, "_masked", splitting)
    sites = cn.split_rows(X, Y, into=7, seed=0)
    with pytest.raises(ProtocolError, match=r"did not sign the survivors|who is not; 4 of the 4 who are left must"):
        model(algorithm=cn.SSCA(rounds=1, threshold=4)).fit(*sites)


def test_save_and_load(fitted, tmp_path):
    fitted.set_params(classes=range(10), cost_limit={3: 0.5}).save(tmp_path)
    fitted.set_params(classes=None, cost_limit=None)
    again = cn.load(tmp_path)
    assert isinstance(again, cn.SSCAClassifier)
    assert (again.predict(X) == fitted.predict(X)).all()
    assert again.sites_ == fitted.sites_


# -- the algorithms it is compared with -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm",
    [
        cn.FedAvg(rounds=8, batch=20, fraction=0.4),
        cn.MiniBatchSGD(rounds=30, batch=20, updates=2),
        cn.ParallelRestartedSGD(rounds=30, batch=20, updates=2),
    ],
)
def test_the_others_learn_too(algorithm):
    sites = cn.split_rows(X, Y, into=5, seed=1)
    one = model(algorithm=algorithm).fit(*sites)
    assert one.history_[-1]["loss"] < 0.6 * one.history_[0]["loss"]
    assert np.array_equal(one.parameters_, model(algorithm=algorithm, sum="plain").fit(*sites).parameters_)


def test_one_local_update_is_mini_batch_sgd_by_hand():
    """E = 1: w - eta (gradient over all sites' batches + 2 l2 w), weighted by rows; PR-SGD weighs all sites alike."""
    sites = cn.split_rows(X, Y, into={"a": range(300), "b": range(300, 1797)})
    network = Linear(64, 10, constant=True)
    for kind, weights in ((cn.MiniBatchSGD, (300 / 1797, 1497 / 1797)), (cn.ParallelRestartedSGD, (0.5, 0.5))):
        one = model(hidden=0, l2=0.01, algorithm=kind(rounds=2, batch=30, step=(0.4, 0.5))).fit(*sites)
        w = network.start(0)
        for t in (1, 2):
            moved = np.zeros_like(w)
            for i, site in enumerate(sites):
                rows = np.random.default_rng([0, i, t]).choice(site.rows, 30, replace=False)
                gradient = network.value_and_gradient(w, site.X[rows], site.y[rows])[1]
                moved -= weights[i] * 0.4 / t**0.5 * (gradient + 0.02 * w)
            w = w + moved
        assert np.abs(one.parameters_ - w).max() < 1e-8


def test_fedavg_passes_over_all_rows_and_chooses_sites():
    algorithm = cn.FedAvg(batch=30, epochs=2, fraction=0.3)
    batches = list(algorithm.batches(100, np.random.default_rng(0)))
    assert [len(batch) for batch in batches] == [30, 30, 30, 10] * 2
    assert sorted(np.concatenate(batches[:4])) == list(range(100))
    chosen = [algorithm.chosen(10, t) for t in range(1, 30)]
    assert {len(each) for each in chosen} == {3}
    assert len(set(chosen)) > 10


# -- limits -----------------------------------------------------------------------------------------------------------


def test_a_limit_is_kept_with_a_shorter_model():
    """Masks, which change no bit of it, would take most of the time here."""
    free = model(hidden=16, algorithm=cn.SSCA(rounds=80), sum="plain").fit(*SITES)
    for limit in (0.5, 0.3):
        bound = model(hidden=16, cost_limit=limit, algorithm=cn.SSCA(rounds=80), sum="plain").fit(*SITES)
        assert bound.costs_[None] <= limit + 0.01
        assert bound.slack_[None] < 1e-3
        assert bound.history_[-1]["norm"] < free.history_[-1]["norm"]
        assert bound.history_[-1]["costs"] == (bound.costs_[None],)


def test_a_limit_for_each_class():
    limits = {0: 0.2, 1: 0.4, 8: 0.5}
    one = model(hidden=16, cost_limit=limits, algorithm=cn.SSCA(rounds=80), sum="plain").fit(*SITES)
    for key, limit in limits.items():
        rows = key == Y
        cost = -np.log(one.predict_proba(X[rows])[:, key]).mean()
        assert one.costs_[key] == pytest.approx(cost, abs=1e-6)
        assert cost <= limit + 0.01


def test_a_limit_for_each_group():
    groups = np.where(X.sum(axis=1) > np.median(X.sum(axis=1)), "dark", "light")
    sites = cn.split_rows(X, Y, into=5, seed=0, groups=groups)
    limits = {"dark": 0.5, "light": 0.3}
    one = model(hidden=16, cost_limit=limits, algorithm=cn.SSCA(rounds=80)).fit(*sites)
    assert all(one.costs_[key] <= limit + 0.01 for key, limit in limits.items())


def test_a_limit_that_cannot_be_met_is_said_with_the_cost_reached():
    one = model(cost_limit=1e-4, algorithm=cn.SSCA(rounds=5, penalties=2))
    with pytest.raises(LimitNotMet, match=r"in 10 rounds: the cost is [0-9.]+, the limit 0.0001") as caught:
        one.fit(*SITES)
    assert f"{one.costs_[None]:.4g}" in str(caught.value)
    assert one.penalty_ == 1e7  # c_1 and c_2 were not enough
    assert one.predict(X).shape == Y.shape  # and the model can be used


@pytest.mark.parametrize("grouped", [True, False])
def test_a_site_without_rows_of_the_only_limit_has_no_part_in_it(grouped):
    """One key in the dict, and a site that has no row of it: all its rows would count instead."""
    here, there = np.arange(0, 900), np.nonzero(Y[900:] != 3)[0] + 900
    names = {"groups": np.where(Y == 3, "three", "other")} if grouped else {}
    sites = cn.split_rows(X, Y, into={"a": here, "b": there}, **names)
    key = "three" if grouped else 3
    one = model(hidden=0, cost_limit={key: 0.5}, classes=range(10), algorithm=cn.SSCA(batch=100, rounds=40)).fit(*sites)
    rows = here[Y[here] == 3]
    cost = -np.log(one.predict_proba(X[rows])[:, 3]).mean()
    assert one.costs_[key] == pytest.approx(cost, abs=1e-6)
    assert cost < 0.51


@pytest.mark.filterwarnings("ignore:sites 's2' died")
def test_a_limit_of_rows_that_nobody_left_has_is_not_met():
    """The only site with rows of a class dies: its cost is unknown, and slack stays with the class it belongs to.

    The penalty is so small that a unit of slack costs less than a shorter model gains: the slack is no rounding.
    """
    parts = [cn.Site(f"s{k}", X[rows], Y[rows]) for k, rows in enumerate((Y < 6, Y % 2 == 0, Y > 6, Y < 8, Y != 7))]
    parts[2], rest = cn.Site("s2", X[Y == 9], Y[Y == 9]), [p.take(p.y != 9) for k, p in enumerate(parts) if k != 2]
    sites = [*rest[:2], parts[2], *rest[2:]]
    on = cn.Simulation(faults=cn.Faults(crashes={"s2": 0.006}), deadline=6.0)
    method = cn.SSCA(batch=20, rounds=5, penalties=1, penalty=1.0)
    one = model(cost_limit={9: 5.0, 0: 1e-3}, classes=range(10), algorithm=method)
    with pytest.raises(LimitNotMet, match=r"the cost of class 9 is not known, as no site .*; the cost of class 0 is "):
        one.fit(*sites, on=on)
    assert np.isnan(one.costs_[9])
    assert not one.met_
    assert set(one.slack_) == set(one.multipliers_) == {9, 0}
    assert one.slack_[9] == 0.0 < 1.0 < one.slack_[0]
    assert one.multipliers_ == {9: 0.0, 0: 1.0}  # the second is at its bound, the penalty


def test_a_limit_that_is_kept_up_to_rounding_is_not_said_to_be_missed():
    limits = StatedProblem.of(cost_limit={"a": 1.0, "b": 1.0}, grouped=True)
    sentence = limits.sentence((0.5, 2.0), (5e-16, 0.0), 10, None)
    assert "group 'a'" not in sentence
    assert "the cost of group 'b' is 2, the limit 1;" in sentence
    assert "the cost of group 'a' is 0.5, the limit 1;" in limits.sentence((0.5, 2.0), (0.1, 0.0), 10, None)


def test_an_evaluation_that_nobody_answers_does_not_train_a_model_without_limits_again(monkeypatch):
    real = horizontal.Desk.sum

    async def last_is_lost(self, task):
        heard = await real(self, task)
        return Heard(None, 5) if task.kind == "evaluate" and task.content[0] == 6 else heard

    monkeypatch.setattr(horizontal.Desk, "sum", last_is_lost)
    assert model().fit(*SITES).rounds_ == SHORT.rounds


def test_limits_that_nobody_could_measure_yet_are_tried_with_the_next_penalty(monkeypatch):
    """No evaluation has enough answers but the last: the rounds of the second penalty have the limits as they are."""
    real = horizontal.Desk.sum

    async def only_the_last(self, task):
        heard = await real(self, task)
        return Heard(None, 5) if task.kind == "evaluate" and self._serial < 14 else heard

    monkeypatch.setattr(horizontal.Desk, "sum", only_the_last)
    one = model(cost_limit={0: 9.0, 1: 9.0}, algorithm=cn.SSCA(batch=20, rounds=3, penalties=2)).fit(*SITES)
    assert one.rounds_ == 6
    assert one.met_


def test_a_batch_has_its_share_of_every_group():
    """And its sum is unbiased: over many rounds, the mean over the groups' rows."""
    rng = np.random.default_rng(0)
    table, y, groups = rng.normal(size=(90, 3)), rng.integers(0, 2, 90), np.repeat([0, 1, -1], [60, 10, 20])
    network = Linear(3, 2)
    part = SiteRows(table, y, groups)
    work = SiteWork(0, ("here",), network, cn.SSCA(batch=30), ((0, -1), (1, -1)), 0.0, 0, part)
    assert work.counts().tolist() == [60, 10, 90, 0]
    w, totals = rng.normal(size=6), np.array([120.0, 10.0, 180.0, 0.0])
    sums = np.mean([work.step(t, w, totals) for t in range(1, 4000)], axis=0).reshape(2, -1)
    for m, share in ((0, 0.5), (1, 1.0)):
        cost, gradient = network.value_and_gradient(w, table[groups == m], y[groups == m])
        assert sums[m, 0] == pytest.approx(share)
        assert sums[m, 1] == pytest.approx(share * cost, rel=0.02)
        assert sums[m, 2:] == pytest.approx(share * gradient, abs=0.02)


# -- who falls silent -------------------------------------------------------------------------------------------------


def test_three_of_ten_crash_and_the_rest_go_on():
    crashes = {"site2": 0.012, "site5": 0.02, "site9": 0.03}
    on = cn.Simulation(faults=cn.Faults(crashes=crashes), deadline=6.0)
    with pytest.warns(ColonnadeWarning, match="sites 'site2', 'site5', 'site9' died on the way"):
        one = model(algorithm=cn.SSCA(batch=20, rounds=20)).fit(*SITES, on=on)
    assert one.history_[-1]["answered"] == 7
    assert one.skipped_ == ()
    assert one.history_[-1]["loss"] < one.history_[0]["loss"]


def test_below_the_threshold_rounds_are_skipped_and_said():
    """Two of three sites must stay; the third is so slow that it comes late, then a second one dies."""
    sites = cn.split_rows(X, Y, into=3, seed=0)
    slow = cn.Simulation(speeds={"site2": 1e-6}, deadline=6.0)
    late = "3 are needed; 'site2' fell silent at step 'mask keys'"
    with pytest.raises(PartySilent, match=f"rounds 1 to 5 were skipped: 2 of 3 sites answered in the last, {late}"):
        model(algorithm=cn.SSCA(batch=20, rounds=20)).fit(*sites, on=slow)
    assert model(algorithm=cn.SSCA(batch=20, rounds=3, threshold=2)).fit(*sites, on=slow).skipped_ == ()
    gone = cn.Simulation(faults=cn.Faults(crashes={"site1": 0.0}), deadline=6.0)
    with pytest.raises(PartySilent, match="only 2 of 3 sites answered at the start, 3 are needed; 'site1'") as caught:
        model().fit(*sites, on=gone)
    assert (caught.value.party, caught.value.step) == ("site1", "mask keys")
    gone = cn.Simulation(faults=cn.Faults(crashes={site.name: 0.0 for site in sites}), deadline=6.0)
    with pytest.raises(PartySilent, match="1 is needed; 'site1', 'site2', 'site3' fell silent at step 'sum'"):
        model(sum="plain").fit(*sites, on=gone)


def test_a_few_skipped_rounds_are_a_warning(monkeypatch):
    real = horizontal.Desk.sum

    async def sometimes(self, task):
        heard = await real(self, task)
        return Heard(None, 5) if task.kind == "step" and task.content[0] == 3 and self._serial < 12 else heard

    monkeypatch.setattr(horizontal.Desk, "sum", sometimes)
    with pytest.warns(ColonnadeWarning, match=r"rounds were skipped \(3"):
        one = model().fit(*SITES)
    assert one.skipped_[0] == 3


def test_the_model_without_three_sites_is_that_of_the_seven():
    """A round's sums are exact over those who are left, weights included."""
    on = cn.Simulation(faults=cn.Faults(crashes={"site1": 0.0, "site2": 0.0, "site3": 0.0}), deadline=6.0)
    with pytest.warns(ColonnadeWarning, match="died"):
        masked = model().fit(*SITES, on=on)
    with pytest.warns(ColonnadeWarning, match="died"):
        plain = model(sum="plain").fit(*SITES, on=on)
    assert np.array_equal(masked.parameters_, plain.parameters_)
    assert masked.history_[0]["answered"] == 7
    left = np.concatenate([site.X for site in SITES[3:]]), np.concatenate([site.y for site in SITES[3:]])
    assert masked.history_[-1]["metric"] == pytest.approx(masked.score(*left), abs=1e-9)


def test_a_killed_process_is_left_out():
    runs = []

    class Killing(cn.Processes):
        def run(self, programs, observer=None, spare=()):
            _, args = programs["site4"]
            changed = {**programs, "site4": (die_after, (2, *args))}
            assert programs["site4"][0] is attend
            runs.append(spare)
            return super().run(changed, observer, spare)

    with pytest.warns(ColonnadeWarning, match="'site4' died"):
        one = model().fit(*SITES, on=Killing(deadline=600.0))
    assert one.history_[-1]["answered"] == 9
    assert runs == [one.sites_]


def test_the_server_sees_uniform_numbers(monkeypatch):
    seen = []
    real = gathering._value
    monkeypatch.setattr(gathering, "_value", lambda given, *rest: seen.append(given) or real(given, *rest))
    model().fit(*SITES)
    long = [value for value in seen if value.size > 500]
    assert len(long) == 60
    counts = np.bincount((np.concatenate(long) >> np.uint64(60)).astype(int), minlength=16)
    expected = counts.sum() / 16
    assert ((counts - expected) ** 2 / expected).sum() < 90  # chi-squared with 15 degrees of freedom: p = 1e-12
    seen.clear()
    model(sum="plain").fit(*SITES)
    plain = np.concatenate([value for value in seen if value.size > 500])
    assert np.bincount((plain >> np.uint64(60)).astype(int), minlength=16).max() > 0.4 * plain.size  # small numbers


def test_lost_and_late_messages_do_not_change_the_model(fitted):
    on = cn.Simulation(faults=cn.Faults(delayed=0.3, duplicated=0.2), seed=4)
    assert np.array_equal(model().fit(*SITES, on=on).parameters_, fitted.parameters_)


# -- what is refused --------------------------------------------------------------------------------------------------


class NeverStarted:
    def run(self, programs, observer=None, spare=()):
        raise AssertionError("work started")


def site(name="a", X=X, y=Y, **options):
    return cn.Site(name, X, y, **options)


@pytest.mark.parametrize(
    ("changes", "sites", "error", "sentence"),
    [
        ({}, [], DataError, "no site was given"),
        ({}, [cn.Party("a", X, Y)], DataError, "expected a Site, got Party.*a Party has columns"),
        ({}, [site("server")], DataError, "a site is named 'server'"),
        ({}, [site(), site()], DataError, "the name 'a' is used by 2 sites"),
        ({}, [site(), site("b", X[:, :5])], DataError, "site 'b' has 5 columns, 'a' has 64"),
        (
            {},
            [site(columns=[f"a{j}" for j in range(64)]), site("b", columns=[f"b{j}" for j in range(64)])],
            DataError,
            "column 0 is 'b0' at site 'b' and 'a0' at 'a'",
        ),
        (
            {},
            [site(), site("b", columns=[f"b{j}" for j in range(64)]), site("c", columns=[f"c{j}" for j in range(64)])],
            DataError,
            "column 0 is 'c0' at site 'c' and 'b0' at 'b'",
        ),
        ({"classes": [None, 1]}, [site()], LabelError, "classes must be all text or all numbers, got .None, 1."),
        ({}, [site(), site("b", X[Y < 5], Y[Y < 5])], LabelError, "site 'b' has the classes 0, 1, 2, 3, 4, 'a' has"),
        ({}, [site(), site("b", y=Y.astype(str))], LabelError, "one site's labels are text"),
        ({}, [site(y=np.zeros(len(Y)))], LabelError, "only one class"),
        ({}, [site(y=X[:, 2])], LabelError, "numbers with fractions"),
        ({"classes": [0, 1]}, [site()], LabelError, "labels 2, 3, 4, 5, 6, ... that are not among classes, 0, 1"),
        ({"hidden": -1}, SITES, OptionError, "hidden must be >= 0, got -1"),
        ({"hidden": 2.5}, SITES, OptionError, "hidden must be a whole number"),
        ({"l2": -1.0}, SITES, OptionError, "l2 must be >= 0, got -1.0"),
        ({"sum": "two-trees"}, SITES, OptionError, "sum must be one of 'auto', 'pairwise', 'plain'"),
        ({"sum": "pairwise"}, [site()], OptionError, "needs at least two sites"),
        ({"algorithm": cn.FedSGD()}, SITES, OptionError, "algorithm must be one of SSCA, FedAvg"),
        ({"algorithm": cn.FedAvg(), "cost_limit": 0.5}, SITES, OptionError, "cost_limit needs algorithm=SSCA"),
        ({"algorithm": cn.SSCA(threshold=11)}, SITES, OptionError, "threshold must be between 6 and the 10 sites"),
        ({"algorithm": cn.SSCA(threshold=5)}, SITES, OptionError, "threshold must be between 6 and the 10 sites"),
        ({"cost_limit": 0.0}, SITES, OptionError, "cost_limit must be > 0, got 0.0"),
        ({"cost_limit": "low"}, SITES, OptionError, "cost_limit must be a number > 0, got 'low'"),
        ({"cost_limit": {}}, SITES, OptionError, "cost_limit is an empty dict"),
        ({"cost_limit": {11: 0.5}}, SITES, OptionError, "names the class 11, which no site has; class names are 0, 1"),
        ({"cost_limit": {1: -0.5}}, SITES, OptionError, "cost_limit.1. must be > 0, got -0.5"),
        (
            {"cost_limit": {"x": 0.5}},
            [site(groups=["x"] * len(Y)), site("b")],
            DataError,
            "site 'b' has no groups, others have",
        ),
    ],
)
def test_bad_input_is_one_sentence_before_any_work(changes, sites, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        model(**changes).fit(*sites, on=NeverStarted())
    assert isinstance(caught.value, ColonnadeError)
    assert "\n" not in str(caught.value)


def test_sites_of_some_classes_are_allowed_where_all_are_named():
    parts = [cn.Site(f"s{k}", X[k == Y % 3], Y[k == Y % 3]) for k in range(3)]
    one = model(classes=range(10), algorithm=cn.SSCA(rounds=40)).fit(*parts)
    assert one.score(X, Y) > 0.6
    assert one.classes_.tolist() == list(range(10))


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: cn.Site("a", X[:0], Y[:0]), DataError, "X is empty .0 rows"),
        (lambda: cn.Site("a", X, None), LabelError, "site 'a' has no labels"),
        (lambda: cn.Site("a", X, Y[:5]), LabelError, "5 labels for 1797 rows"),
        (lambda: cn.Site("a", X, np.where(Y == 1, np.nan, Y)), LabelError, "182 of 1797 rows have no label"),
        (lambda: cn.Site("a", X, Y, groups=Y[:4]), DataError, "groups has shape .4,., one name for each"),
        (lambda: cn.Site("a", X, Y, groups=X[:, 0]), DataError, "groups are of type float64"),
        (lambda: cn.Site("a", X * np.nan, Y), DataError, "values that are NaN, the first in row 0"),
        (lambda: cn.split_rows(X, Y, into=0), OptionError, "into must be between 1 and the 1797 rows, got 0"),
        (lambda: cn.split_rows(X, Y, into={"a": [], "b": [1]}), DataError, "site 'a' would have no rows"),
        (lambda: cn.split_rows(X, Y, into=[[1], [5000]]), DataError, "has 1797 rows; take asks for others"),
        (
            lambda: cn.split_rows(X, Y, into=[[0.5], [1.5]]),
            DataError,
            "'site1': rows are whole numbers, got float",
        ),
        (
            lambda: cn.split_rows(X, Y, into={"a": Y > 3}),
            DataError,
            "'a': rows are whole numbers, got bool; np",
        ),
        (lambda: cn.split_rows(X, Y, into=3.0), OptionError, "into must be a number of sites, lists of .*, got 3.0"),
        (lambda: cn.split_rows(X, Y, into="3"), OptionError, "into must be a number of sites, lists of .*, got '3'"),
        (lambda: cn.split_rows(X, Y, into=[]), OptionError, "into has no site"),
        (lambda: cn.split_rows(X, Y, into=3, seed="x"), OptionError, "seed must be a whole number"),
        (lambda: SITES[0].take([]), DataError, "take leaves no row"),
        (lambda: SITES[0].take(5), DataError, "take asks for others .one number is no list"),
    ],
)
def test_sites_that_cannot_be_are_one_sentence(make, error, sentence):
    with pytest.raises(error, match=sentence):
        make()


def test_columns_that_are_far_too_large_are_said():
    big = X.copy()
    big[:, 3] *= 1e6
    sites = cn.split_rows(big, Y, into=3, seed=0)
    with pytest.warns(ColonnadeWarning) as said, pytest.raises(RingOverflow, match="of party 'site1' reaches"):
        model(algorithm=cn.MiniBatchSGD(rounds=9, step=(1e6, 0.0))).fit(*sites)
    assert "party 'site1': column 'x3'" in str(said[0].message)


def test_training_that_diverges_is_said():
    with pytest.warns(ColonnadeWarning, match=r"training diverged: the cost began at 2\.\d+ and ended at"):
        model(algorithm=cn.MiniBatchSGD(rounds=5, batch=20, step=(30.0, 0.0))).fit(*SITES)


def test_use_before_fit_and_of_other_columns(fitted):
    with pytest.raises(NotFittedError):
        model().predict(X)
    with pytest.raises(DataError, match="the table' has 5 columns, 'training' has 64"):
        fitted.predict(X[:, :5])
    with pytest.raises(LabelError, match="score needs the true labels"):
        fitted.score(X)


def test_the_model_has_the_names_that_any_site_brought():
    names = [f"p{j}" for j in range(64)]
    one = model().fit(site("a", X[:900], Y[:900]), site("b", X[900:], Y[900:], columns=names))
    assert one.columns_["model"] == tuple(names)
    with pytest.raises(DataError, match="column 0 is 'p63' at site 'the table' and 'p0' at 'training'"):
        one.predict(pd.DataFrame(X, columns=names[::-1]))


def test_splits():
    sites = cn.split_rows(X, Y, into=3)
    assert [s.rows for s in sites] == [599, 599, 599]
    assert np.array_equal(np.concatenate([s.X for s in sites]), X)
    shuffled = cn.split_rows(X, Y, into=3, seed=1, groups=Y)
    assert not np.array_equal(shuffled[0].X, sites[0].X)
    assert np.array_equal(shuffled[0].groups, shuffled[0].y)
    frame = cn.split_rows(pd.DataFrame({"p": X[:, 3], "q": X[:, 4]}), Y, into={"here": [1, 2], "there": range(9)})
    assert [s.name for s in frame] == ["here", "there"]
    assert frame[1].columns == ("p", "q")
    assert [s.rows for s in cn.split_rows(X, Y, into=np.int64(3))] == [599, 599, 599]
    assert repr(sites[0]) == "Site('site1', 599 x 64 dense float64)"


def test_get_params_and_the_papers_options():
    assert model().get_params()["hidden"] == 8
    assert "SSCAClassifier(hidden=8" in repr(model())
    assert PAPER[100].batch_for(60) == 60
    assert not PAPER[100].correct


@pytest.mark.filterwarnings("ignore:.* rounds were skipped")
def test_a_limit_that_nobody_measured_is_not_met():
    """One site is fast enough for batches, and too slow for all of its rows: evaluations have too few answers."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((9000, 4))
    sites = cn.split_rows(table, (table[:, 0] > 0).astype(int), into=3, seed=0)
    on = cn.Simulation(seconds_per_nonzero=1e-6, speeds={"site3": 0.01})
    algorithm = cn.SSCA(rounds=10, batch=10, wait=2.0, penalties=1)
    with pytest.raises(LimitNotMet, match=r"nobody knows whether the limits are met: .*; raise wait, now 2\.0"):
        model(hidden=4, cost_limit=1.0, algorithm=algorithm).fit(*sites, on=on)
    with pytest.warns(ColonnadeWarning, match="the cost is not known: too few sites answered an evaluation"):
        model(hidden=4, algorithm=algorithm).fit(*sites, on=on)


def test_a_masked_sum_is_never_that_of_one_site():
    sites = cn.split_rows(X, Y, into=3, seed=0)
    with pytest.raises(OptionError, match="fraction chooses 1 of 3 sites in a round, and the sum of one site is its"):
        model(algorithm=cn.FedAvg(fraction=0.3)).fit(*sites)
    model(algorithm=cn.FedAvg(fraction=0.3, rounds=2), sum="plain").fit(*sites)
    with pytest.raises(OptionError, match="threshold is of masked sums, got sum='plain'"):
        model(algorithm=cn.SSCA(threshold=2), sum="plain").fit(*sites)


def test_the_part_of_one_chosen_site_is_not_unmasked_when_the_other_falls_silent(monkeypatch):
    """Two of five are chosen in a round. Where one of them is dead, the sum of all five is the other one's part."""
    algorithm, opened = cn.FedAvg(rounds=12, batch=20, fraction=0.4), []
    real = gathering.Collector.total

    def total(self, answered):
        opened.append(sorted(answered))
        return real(self, answered)

    monkeypatch.setattr(gathering.Collector, "total", total)
    sites = cn.split_rows(X, Y, into=5, seed=0)
    on = cn.Simulation(faults=cn.Faults(crashes={"site2": 0.0}), deadline=6.0)
    with pytest.warns(ColonnadeWarning) as said:
        one = model(algorithm=algorithm).fit(*sites, on=on)
    alone = [t for t in range(1, 13) if 1 in algorithm.chosen(5, t)]
    assert one.skipped_ == tuple(alone)
    assert 3 <= len(alone) <= 9
    assert len(opened) == 1 + 13 + 12 - len(alone)  # counts, evaluations, rounds
    assert any("rounds were skipped" in str(each.message) for each in said)


def test_a_site_refuses_to_unmask_the_part_of_one_chosen_site():
    """Whatever the server says: it would have to be another one than ours."""
    algorithm = cn.FedAvg(fraction=0.4)
    works = [
        SiteWork(
            k, FIVE, Linear(3, 2), algorithm, ((-1, -1),), 0.0, 3, SiteRows(X[:9, :3], Y[:9] % 2, np.zeros(9, int))
        )
        for k in range(5)
    ]
    task = ("step", 1, np.zeros(6), np.array([45.0, 45.0, 0.0]))
    turns, keys = zip(*(work.begin(1, task) for work in works), strict=True)
    told = tuple((k, *pair) for k, pair in enumerate(keys))
    letters = [dict(turn.answer("keys", told)) for turn in turns]
    for k, turn in enumerate(turns):
        turn.answer("letters", tuple((j, letters[j][k]) for j in range(5) if j != k))
    one = algorithm.chosen(5, 1)[0]
    left = tuple(sorted({one, *(k for k in range(5) if k not in algorithm.chosen(5, 1))}))
    assert len(left) == 4
    with pytest.raises(ProtocolError, match="only 1 of the sites that are left have a part"):
        turns[left[0]].answer("survivors", left)
    signed = tuple((k, turn.answer("survivors", tuple(range(5)))) for k, turn in enumerate(turns))
    assert len(turns[left[0]].answer("signatures", signed)) == 5


def test_a_sum_that_was_asked_for_before_is_refused():
    """A second sum of the same number could be fed the first one's letters, and open the other share of each."""
    part = SiteRows(X[:9, :3], Y[:9] % 2, np.zeros(9, int))
    for threshold in (0, 3):
        work = SiteWork(0, FIVE, Linear(3, 2), SHORT, ((-1, -1),), 0.0, threshold, part)
        work.begin(4, ("count",))
        for serial in (4, 3):
            with pytest.raises(ProtocolError, match=f"asks for sum {serial} after sum 4"):
                work.begin(serial, ("count",))
        work.begin(5, ("count",))


ARRAY = np.zeros(3)
FOUR = (b"", b"", b"", b"")


@pytest.mark.parametrize(
    "message",
    [
        None, 7, "end", (), ("end", 0), ("end", 0, None), ("end", "0", ARRAY), ("end", True, ARRAY), (3, 0, ARRAY),
        ("unheard", 1, ()), ("task", 1, ()), ("task", 1, None), ("task", 1, ("count", 1)), ("task", 1, (["x"],)),
        ("task", 1, ("step", 0, ARRAY, ARRAY)), ("task", 1, ("step", "1", ARRAY, ARRAY)),
        ("task", 1, ("step", 1, ARRAY)), ("keys", 1, ((0, b""),)),
        ("task", 1, ("evaluate", 1, ARRAY, None)), ("keys", 1, 5), ("keys", 1, ((0, b"", b""),)),
        ("keys", 1, ((0, *FOUR[1:], ""),)), ("signatures", 1, (0, 1)), ("signatures", 1, ((0, "x"),)),
        ("letters", 1, ((0, 1),)), ("letters", 1, {0: b""}), ("survivors", 1, (0, "1")), ("survivors", 1, 4),
    ],
)  # fmt: skip
def test_a_site_obeys_no_malformed_instruction(message):
    with pytest.raises(ProtocolError, match="the server's instruction is not one that this site knows"):
        instruction(message)


@pytest.mark.parametrize(
    "message",
    [
        ("end", 9, ARRAY), ("task", 1, ("count",)), ("task", 1, ("step", 1, ARRAY, ARRAY)),
        ("task", 1, ("evaluate", 0, ARRAY, ARRAY)), ("keys", 2, ((0, *FOUR), (1, *FOUR))),
        ("letters", 2, ((0, b""),)), ("survivors", 2, (0, 1, 2)), ("signatures", 2, ((0, b""), (4, b""))),
    ],
)  # fmt: skip
def test_the_forms_that_a_server_gives_its_instructions(message):
    stage, serial, content = instruction(message)
    assert (stage, serial) == message[:2]
    assert content is message[2]


def test_a_site_tells_that_it_can_not_obey():
    async def strange(net, sites):
        for site in sites:
            await net.send(site, "instruction", ("task", 1, ("guess",)))
        await net.recv(sites[0], "mask keys")

    plan = model().plan(SHORT, ("site1", "site2"), X.shape[1], 10, StatedProblem.of()).as_value()
    parts = {site.name: part_of(site, np.arange(10), RowKeys()) for site in SITES[:2]}
    programs = {name: (attend, ("server", plan, (part, None, None, None, None, (), 1))) for name, part in parts.items()}
    with pytest.raises(ProtocolError, match="the server's instruction is not one"):
        cn.Simulation().run({"server": (strange, (("site1", "site2"),)), **programs})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({0: 2}, "this site can't read the server's job"),
        ({0: "0"}, "this site can't read the server's job"),
        ({1: ("a", 3)}, "this site can't read the server's job"),
        ({1: ()}, "this site can't read the server's job"),
        ({1: ("b", "a")}, "the server takes site 'a' for 'b'"),
        ({2: ("network", 3)}, "a model is told as sizes of layers or shapes of parameters, got"),
        ({2: ("layers", 64, 2.0, 10, True)}, "a model is told as sizes of layers"),
        ({2: ("layers", 64, 1 << 60, 10, True)}, "a model is told as sizes of layers"),
        ({2: ("layers", 63, 8, 10, True)}, "of 63 columns and 10 classes, site 'a' has 64 columns and at least 10"),
        ({2: ("layers", 64, 8, 9, True)}, "of 64 columns and 9 classes"),
        ({2: ("own", 64, ((8, "x"),), 10, False)}, "a model is told as sizes of layers"),
        ({2: ("own", 64, ((8, 64),), 10, False)}, "the model is a torch module, and site 'a' was given none"),
        ({3: 6}, "an algorithm must be told as"),
        ({3: ("SSCA", (1, 2))}, "an algorithm must be told as"),
        ({3: ("Rounds", ())}, "the algorithm 'Rounds' is none of SSCA, FedAvg"),
        ({3: ("SSCA", (("__class__", 1),))}, "the algorithm SSCA can't have these options .*'__class__'"),
        ({3: ("SSCA", (("rounds", "x"),))}, "the algorithm SSCA can't have these options .rounds must be a whole"),
        ({4: ()}, "this site can't read the server's job"),
        ({4: ((-2, -1),)}, "this site can't read the server's job"),
        ({4: ((0, 0, 0),)}, "this site can't read the server's job"),
        ({4: ((-1, 1 << 40),)}, "functions of rows, and site 'a' was given 0; give it functions="),
        ({5: np.nan}, "this site can't read the server's job"),
        ({6: -1}, "this site can't read the server's job"),
    ],
)
def test_a_job_that_can_not_be_is_one_sentence(changes, sentence):
    job = [0, ("a", "b"), ("layers", 64, 8, 10, True), ("SSCA", ()), ((-1, -1),), 0.0, 2]
    part = SiteRows(X, Y, np.zeros(len(Y), int))
    assert SiteWork.of(tuple(job), "a", part, None, Own()).sites == 2
    for place, value in changes.items():
        job[place] = value
    with pytest.raises((ProtocolError, OptionError), match=sentence):
        SiteWork.of(tuple(job), "a", part, None, Own())
    for strange in (None, (1, 2), tuple(job[:6]), job):
        with pytest.raises(ProtocolError, match="this site can't read the server's job"):
            SiteWork.of(strange, "a", part, None, Own())


def test_a_wait_beyond_the_deadline_is_said_at_once():
    with pytest.raises(
        OptionError, match=r"wait must be at most 0\.16 of the runtime's deadline, 0\.96 s, got 100: the other"
    ):
        model(algorithm=cn.SSCA(rounds=3, wait=100.0)).fit(*SITES, on=cn.Simulation(deadline=6.0))


def test_schedules_may_be_lists_and_numbers_are_finite():
    one = model(algorithm=cn.SSCA(batch=20, rounds=6, rho=[0.2, 0.05], gamma=[0.2, 0.1])).fit(*SITES)
    assert np.array_equal(one.parameters_, model().fit(*SITES).parameters_)
    with pytest.raises(OptionError, match="l2 must be a finite number, got inf"):
        model(l2=np.inf).fit(*SITES)
    for option in ("tau", "penalty", "tolerance", "wait"):
        with pytest.raises(OptionError, match=f"{option} must be a finite number, got inf"):
            cn.SSCA(**{option: np.inf})


def test_labels_to_validate_with_are_classes_too():
    sites = cn.split_rows(X, Y, into=2, seed=0)
    strange = [cn.Site(site.name, site.X, np.where(site.y == 3, 77, site.y)) for site in sites]
    with pytest.raises(LabelError, match="labels 77 that are not among classes"):
        model().fit(*sites, validation=strange)
