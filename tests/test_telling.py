"""What one party tells all others: down a tree among many, signed, so that nobody on the way can change it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import colonnade as cn
from colonnade.data.identity import Identity
from colonnade.errors import PartySilent, PolicyRefused, ProtocolError
from colonnade.jobs.policy import KINDS, Policy, kind_of
from colonnade.leaks import NOTHING
from colonnade.runtimes.net import CLEAR, TOLD
from colonnade.sums.telling import DIRECTLY, Telling, passed_on, signed
from colonnade.sums.trees import topology
from colonnade.views.recording import Recording

MANY, ROWS = 11, 240
RNG = np.random.default_rng(0)
X = RNG.standard_normal((ROWS, 2 * MANY))
Y = np.where(X.sum(axis=1) + RNG.logistic(size=ROWS) > 0, 1, 0)
PARTIES = cn.split(X, Y, into=MANY)
NAMES = tuple(party.name for party in PARTIES)
TREE = topology("tree", NAMES, NAMES[0])
RELAY = TREE.children(NAMES[0])[0]
BELOW = TREE.children(RELAY)
SGD = cn.FedSGD(batch=64, epochs=2, tol=None)


@dataclass
class Around:
    """A simulation in which one party's net is another one, and which keeps what left every party."""

    party: str = ""
    net: Any = None
    inner: Any = field(default_factory=cn.Simulation)
    traffic: Any = None

    def run(self, programs, observer=None, spare=()):
        if self.net is not None:
            program, args = programs[self.party]

            async def strange(net, *args):
                return await program(self.net(net), *args)

            programs = {**programs, self.party: (strange, args)}
        outcomes = self.inner.run(programs, observer, spare)
        self.traffic = {name: outcome.traffic for name, outcome in outcomes.items()}
        return outcomes


def fitted(on=None, parties=PARTIES, **options):
    return cn.LogisticRegression(verbose=0, **{"algorithm": SGD, **options}).fit(*parties, on=on or Around())


def bits(model):
    return np.concatenate([np.ravel(own) for own in model.coef_.values()]).tobytes()


# -- the same model, fewer bytes ---------------------------------------------------------------------------------------

ALGORITHMS = {
    "block Newton": cn.BlockNewton(epochs=3),
    "block Newton, in turn": cn.BlockNewton(epochs=2, order="sequential"),
    "FedSGD": SGD,
    "FedBCD": cn.FedBCD(epochs=2, batch=64, local_steps=3),
    "FedBCD, in turn": cn.FedBCD(epochs=1, batch=64, local_steps=3, order="sequential"),
    "FedBCD, the holder first": cn.FedBCD(epochs=2, batch=64, local_steps=3, order="sequential-once"),
    "VFB2 in step": cn.VFB2("saga", epochs=2, batch=64, asynchronous=False),
    "VFB2": cn.VFB2("svrg", epochs=2, batch=64),
    "FDML": cn.FDML(epochs=2, batch=64),
    "AFSGD": cn.AFSGD(epochs=2, batch=64),
}


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.filterwarnings("ignore")
def test_the_model_has_the_same_bits_whichever_way_it_is_told(name):
    star, tree, ring = (bits(fitted(algorithm=ALGORITHMS[name], topology=t)) for t in ("star", "tree", "ring"))
    assert star == tree == ring


@pytest.mark.parametrize("order", ["parallel", "sequential"])
@pytest.mark.filterwarnings("ignore")
def test_curvatures_of_rows_are_told_too(order):
    algorithm = cn.FedBCD(epochs=1, batch=120, local_steps=2, order=order, signal="curvature", step=0.01)
    star, tree = (
        cn.PoissonRegression(verbose=0, algorithm=algorithm, topology=t).fit(*PARTIES, on=Around())
        for t in ("star", "tree")
    )
    assert bits(star) == bits(tree)


@pytest.mark.parametrize("algorithm", [SGD, cn.BlockNewton(epochs=2)], ids=["FedSGD", "block Newton"])
@pytest.mark.filterwarnings("ignore")
def test_several_label_holders_tell_down_a_tree_each(algorithm):
    labels = {NAMES[0]: np.arange(ROWS) % 3 > 0, NAMES[7]: np.arange(ROWS) % 3 == 0}
    parties = []
    for at, name in enumerate(NAMES):
        y = None if name not in labels else np.where(labels[name], Y, np.nan)
        parties.append(cn.Party(name, X[:, 2 * at : 2 * at + 2], y))
    star, tree = (fitted(parties=parties, algorithm=algorithm, topology=t) for t in ("star", "tree"))
    assert bits(star) == bits(tree)


def test_statistics_and_validations_hear_it_too():
    found, scores = [], []
    for kind in ("star", "tree"):
        model = fitted(algorithm=cn.BlockNewton(), topology=kind)
        statistics = model.statistics(*PARTIES)
        found.append([statistics.aic, *(statistics.coefficients[name].standard_error for name in NAMES)])
        scores.append(cn.cross_validate(model, *PARTIES, cv=3, on=Around())["test_score"])
    for one, other in zip(*found, strict=True):  # columns are rotated at random before they are multiplied
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert np.array_equal(*scores)


def test_nobody_tells_more_than_its_children():
    for count in (16, 33):
        data = np.tile(X, 4)[:, : 2 * count]
        on = Around()
        fitted(on, cn.split(data, Y, into=count))
        tree = topology("tree", tuple(on.traffic), next(iter(on.traffic)))
        rounds = on.traffic[tree.root].by_step["signal"][0] // len(tree.children(tree.root))
        for name, sent in on.traffic.items():
            told = sum(count for step, (count, _) in sent.by_step.items() if step in ("signal", passed_on("signal", 0)))
            assert told == rounds * len(tree.children(name))


@pytest.mark.parametrize("algorithm", [cn.BlockNewton(epochs=2, tol=None), cn.FedSGD(batch=5000, epochs=2, tol=None)])
def test_sixty_four_parties_send_at_most_twice_what_eight_send(algorithm):
    rng, sent = np.random.default_rng(1), {}
    data = rng.standard_normal((5000, 128))
    labels = (data.sum(axis=1) > 0).astype(int)
    for count in (8, 64):
        on = Around()
        fitted(on, cn.split(data[:, : 2 * count], labels, into=count), algorithm=algorithm)
        sizes = [one.bytes for one in on.traffic.values()]
        sent[count] = np.array([max(sizes), np.mean(sizes)])
    assert (sent[64] <= 2 * sent[8]).all()


def test_few_parties_and_stars_tell_each_by_itself():
    for parties, kind in ((cn.split(X, Y, into=DIRECTLY), "tree"), (PARTIES, "star")):
        on = Around()
        fitted(on, parties, topology=kind)
        steps = {step for each in on.traffic.values() for step in each.by_step}
        assert not [step for step in steps if kind_of(step) in ("passed on", "signature", "signing key")]


# -- who passes on could change it -------------------------------------------------------------------------------------


class Tampering:
    """A party's net that does something to what it passes on."""

    def __init__(self, net):
        self._net, self.kept = net, []

    def __getattr__(self, name):
        return getattr(self._net, name)

    async def send(self, to, tag, value):
        if tag == passed_on("signal", 0):
            self.kept.append(value)
            value = self.changed(value)
        await self._net.send(to, tag, value)


class OneNumber(Tampering):
    """Changes the last bit of one number, once, towards one of its children, in the fifth batch."""

    def changed(self, value):
        if len(self.kept) != 9:
            return value
        value = value.copy()
        value[3] = np.nextafter(value[3], np.inf)
        return value


class Earlier(Tampering):
    """Passes the signal of an earlier batch on, which the label holder did sign at the time."""

    def changed(self, value):
        return self.kept[0] if len(self.kept) > 4 and len(value) == len(self.kept[0]) else value


class EarlierSigned(Earlier):
    """Passes the earlier one on with its own signature."""

    def __init__(self, net):
        super().__init__(net)
        self.signatures = []

    async def send(self, to, tag, value):
        if tag == signed("signal", 0):
            self.signatures.append(value)
            value = self.signatures[0] if len(self.signatures) > 4 else value
        await super().send(to, tag, value)


class OwnSignature(OneNumber):
    """Signs what it has changed with a key of its own."""

    async def send(self, to, tag, value):
        if tag == signed("signal", 0) and len(self.kept) >= 9:
            telling = Telling(self._net, "tree")
            telling._told[NAMES[0], "signal"] = 4
            value = Identity(bytes(32)).sign(telling._statement(NAMES[0], "signal", self.kept[-1]))
        await super().send(to, tag, value)


class NoSignature(Tampering):
    """Sends anything in place of a signature."""

    def changed(self, value):
        return value

    async def send(self, to, tag, value):
        await super().send(to, tag, ("signed", 1) if tag == signed("signal", 0) else value)


class Other(Tampering):
    """Passes a verdict on that lets the others end before the leader does."""

    def changed(self, value):
        return value

    async def send(self, to, tag, value):
        await super().send(to, tag, (True, True, True) if tag == passed_on("verdict", 0) else value)


@pytest.mark.parametrize("kind", [OneNumber, Earlier, EarlierSigned, OwnSignature, NoSignature, Other])
def test_who_changes_what_it_passes_on_is_named_and_no_model_comes_of_it(kind):
    with pytest.raises(ProtocolError, match=f"what party {RELAY!r} passed on .* is not what party {NAMES[0]!r} signed"):
        fitted(Around(RELAY, kind))


class Silent(Tampering):
    """Keeps what it should pass on."""

    async def send(self, to, tag, value):
        if tag != passed_on("verdict", 0):
            await self._net.send(to, tag, value)


def test_who_holds_something_back_ends_the_run():
    with pytest.raises(PartySilent, match=f"party {RELAY!r} was silent"):
        fitted(Around(RELAY, Silent, cn.Simulation(deadline=5.0)))


class StrangeKey(Tampering):
    """A label holder's net that sends one party a key of the wrong size."""

    async def send(self, to, tag, value):
        await self._net.send(to, tag, value[:5] if tag == "signing key" and to == BELOW[0] else value)


class OtherKey(Tampering):
    """A label holder's net that sends one party another key than it signs with."""

    async def send(self, to, tag, value):
        await self._net.send(to, tag, bytes(32) if tag == "signing key" and to == BELOW[0] else value)


def test_keys_are_checked():
    with pytest.raises(ProtocolError, match="must tell a public key of 32 bytes at step 'signing key'"):
        fitted(Around(NAMES[0], StrangeKey))
    with pytest.raises(ProtocolError, match="is not what party"):
        fitted(Around(NAMES[0], OtherKey))


# -- who sees it, and who lets it out ----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [SGD, cn.BlockNewton(epochs=2)], ids=["FedSGD", "block Newton"])
def test_a_view_has_what_was_told_from_whom_it_was_told(algorithm):
    views = {}
    for kind in ("star", "tree", "ring"):
        recording = Recording()
        fitted(recording, algorithm=algorithm, topology=kind)
        views[kind] = recording.views
    for kind in ("tree", "ring"):
        for name in NAMES:
            for which in (CLEAR, TOLD):
                there, here = ([*views[k][name].of(which, "signal", "verdict")] for k in ("star", kind))
                assert [(one.tag, *((one.party,) if which == CLEAR else ())) for one in there] == [
                    (one.tag, *((one.party,) if which == CLEAR else ())) for one in here
                ]
                for one, other in zip(there, here, strict=True):
                    assert np.array_equal(one.rows, other.rows) if one.rows is not None else other.rows is None
                    assert np.array_equal(one.value, other.value)
            strange = [one.tag for one in views[kind][name].seen if "passed on" in one.tag or "signed" in one.tag]
            assert not strange
        assert views[kind][NAMES[0]].of(TOLD, "signal")


def test_an_active_attacker_hears_its_own_signals_larger_and_passes_on_the_true_ones():
    from colonnade.audit.active import GreedyNet

    nets = []

    def greedy(net):
        nets.append(GreedyNet(net))
        return nets[-1]

    honest, other = fitted(), fitted(Around(RELAY, greedy))
    assert nets[0].enlarged
    assert bits(honest) != bits(other)


def test_what_is_passed_on_is_let_out_as_that():
    assert kind_of(passed_on("signal", 0)) == kind_of(passed_on("signal in fit 3", 12)) == "passed on"
    assert kind_of(passed_on("signal", 0) + " in fit 3") == "passed on"
    assert kind_of(signed("labelled rows", 3)) == kind_of(signed("signal", 0) + " in trial 2") == "signature"
    assert {"passed on", "signature", "signing key"} <= {*KINDS} & {*NOTHING}
    one = np.zeros(1)
    Policy().allow("shop", "clinic", passed_on("signal", 0), one, 1)  # whose batches are too small says its own door
    with pytest.raises(PolicyRefused, match="about 1 rows"):
        Policy().allow("bank", "shop", "signal", one, 1)
    closed = Policy(kinds=tuple(kind for kind in KINDS if kind != "passed on"))
    with pytest.raises(PolicyRefused, match="'passed on' out; allow it in kinds"):
        closed.allow("shop", "clinic", passed_on("signal", 0), one, 1)
