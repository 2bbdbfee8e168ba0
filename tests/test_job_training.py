"""One job at each party, under the virtual clock: aligned, prepared, trained as an estimator on the common rows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import colonnade as cn
from colonnade.alignment.protocol import align
from colonnade.errors import ColonnadeWarning, DataError, LabelError, OptionError, PolicyRefused, RunFailed
from colonnade.jobs.job_file import JOB, job_of
from colonnade.jobs.model_file import digest_of
from colonnade.jobs.policy import Policy
from colonnade.service.agreeing import share_out
from colonnade.service.training import Keepers, take_part
from colonnade.settings import toml
from test_exposure import opened_gradients  # noqa: F401 (a fixture)
from test_job import GOOD, complete
from test_kept import Shelf

RNG = np.random.default_rng(0)
PEOPLE = 300
X = RNG.standard_normal((PEOPLE, 6))
Y = np.where(X[:, 0] + X[:, 4] + 0.3 * RNG.standard_normal(PEOPLE) > 0, "yes", "no")
THIRD = complete(GOOD.replace("[parties.shop]", "[parties.clinic]\n[parties.shop]\naddress = '127.0.0.1:7444'"))


class Plain:
    """Columns as they are."""

    categories = ()

    def __init__(self, X):
        self.X, self.columns, self.sources = X, tuple(f"c{j}" for j in range(X.shape[1])), X.shape[1]

    def matrix(self, rows):
        return self.X[rows]


class Source:
    def __init__(self, X, ids=None, labels=None, weights=None, added=None):
        self.X, self.ids, self.labels, self.weights, self.rows = X, ids, labels, weights, len(X)
        self.added = added

    def prepare(self, rows):
        assert len(rows) < self.rows or self.ids is None  # training rows only
        return Plain(self.X)


def job_for(text, **changes):
    return replace(job_of(toml.parse(complete(text).encode(), JOB, "job.toml")), **changes)


def sources(order):
    """Each party has some of the people, in an order of its own."""
    labels = np.array(Y, dtype=object)
    blocks = {"bank": [0, 1], "clinic": [2, 3], "shop": [4, 5]}
    return {
        name: Source(
            X[np.ix_(order[name], block)],
            [f"p{k}" for k in order[name]],
            labels[order[name]] if name == "bank" else None,
        )
        for name, block in blocks.items()
    }


ORDER = {name: np.random.default_rng(k).permutation(PEOPLE)[:250] for k, name in enumerate(("bank", "clinic", "shop"))}


def run(job, given, on=None, keepers=None, policy=None):
    results = {}

    def program_of(name):
        async def program(net):
            check = partial((policy or Policy()).check_part, name)
            results[name] = await take_part(net, job, given[name], align, check, (keepers or {}).get(name))

        return program

    outcomes = (on or cn.Simulation()).run({name: (program_of(name), ()) for name in job.parties})
    return results, outcomes


def test_a_job_is_the_estimator_on_the_common_rows():
    job = job_for(THIRD, validation=0.2, sum="pairwise")
    results, _ = run(job, sources(ORDER))
    common = set(ORDER["bank"]) & set(ORDER["clinic"]) & set(ORDER["shop"])
    trained = results["bank"]
    assert trained.rows + trained.held_out == len(common)
    assert trained.held_out == round(0.2 * len(common))
    assert trained.classes.tolist() == ["no", "yes"]
    assert results["shop"].classes.size == 0  # who has no labels learns no classes
    # the same people, in the order of their ids' hashes, straight through the estimator
    parties = [cn.Party(n, s.X, s.labels, ids=s.ids) for n, s in sources(ORDER).items()]
    aligned = cn.align_parties(*parties, verbose=0)
    train, held_out = share_out(np.arange(aligned[0].rows), 0.2, job.algorithm.seed)
    model = cn.LogisticRegression(l2=0.01, algorithm=job.algorithm, sum="pairwise", verbose=0)
    model.fit(*[p.take(train) for p in aligned], validation=[p.take(held_out) for p in aligned])
    for name, result in results.items():
        assert result.state[0].tobytes() == model._states[name][0].tobytes(), name


def test_encrypted_signals_in_small_batches():
    """With one label holder no gradient is opened, so they are nobody's business."""
    results, _ = run(job_for(THIRD, sum="encrypted", algorithm=cn.FedSGD(batch=50, epochs=1)), sources(ORDER))
    assert set(results) == {"bank", "clinic", "shop"}


@pytest.mark.usefixtures("opened_gradients")
def test_encrypted_signals_in_small_batches_end_a_job_before_they_are_sent():
    """Everybody refuses, with the same sentence, and nothing of a batch has left anybody."""
    job = job_for(THIRD, sum="encrypted", algorithm=cn.FedSGD(batch=50))
    sentence = (
        r"batches of \d+ rows of party 'bank' would let party 'shop' .* its 2 columns.* at least 110 rows: set batch"
    )
    with pytest.raises((OptionError, RunFailed), match=sentence) as said:
        run(job, sources(ORDER))
    for outcome in said.value.outcomes.values():
        assert not {"encryption key", "encrypted signal", "scores"} & set(outcome.traffic.by_step)
    few = {name: order[:150] for name, order in ORDER.items()}  # some seventy in common
    with pytest.raises((OptionError, RunFailed), match=r"the \d+ rows of party 'bank' are too few, so give more rows"):
        run(job_for(THIRD, sum="encrypted", algorithm=cn.FedSGD()), sources(few))


def test_rows_that_are_aligned_already():
    text = THIRD + '\n[alignment]\nkind = "none"\n'
    given = {name: Source(X[:, cut], None, np.array(Y, dtype=object) if name == "bank" else None)
             for name, cut in (("bank", slice(0, 2)), ("clinic", slice(2, 4)), ("shop", slice(4, 6)))}  # fmt: skip
    results, _ = run(job_for(text), given)
    assert results["bank"].rows == PEOPLE
    given["shop"] = Source(X[:250, 4:], None)
    with pytest.raises((DataError, RunFailed), match="has 300 rows and party 'shop' has 250"):
        run(job_for(text), given)


def test_label_holders_agree_on_classes():
    text = GOOD.replace("[parties.shop]", "[parties.shop]\nlabels = true")
    order = {name: ORDER[name] for name in ("bank", "shop")}
    given = sources(ORDER)
    del given["clinic"]
    labels = np.array(Y, dtype=object)[order["shop"]]
    labels[::2] = None
    given["shop"].labels = labels
    results, _ = run(job_for(text), given)
    assert results["shop"].classes.tolist() == ["no", "yes"]
    given["shop"].labels = np.arange(250.0)
    with pytest.raises((LabelError, RunFailed), match="labels are text and another's are numbers"):
        run(job_for(text), given)
    given["shop"].labels = None
    with pytest.raises((LabelError, RunFailed), match="the job says that party 'shop' holds labels"):
        run(job_for(text), given)


def test_who_has_no_labels_by_the_job_brings_none():
    given = sources(ORDER)
    given["shop"].labels = given["bank"].labels
    with pytest.raises((LabelError, RunFailed), match="party 'shop' names a label column, and the job says"):
        run(job_for(THIRD), given)


def test_the_policy_looks_at_prepared_columns():
    with pytest.raises((PolicyRefused, RunFailed), match="takes part with 2 columns, its policy asks for 3"):
        run(job_for(THIRD), sources(ORDER), policy=Policy(min_features=3))


class ByDigest:
    """A shelf for every digest of what is trained on, as files have it."""

    def __init__(self):
        self.of = {}

    def __call__(self, digest):
        return self.of.setdefault(digest, Shelf())


def shelves(names):
    return {name: Keepers(Shelf(), ByDigest()) for name in names}


def test_a_state_belongs_to_the_columns_and_labels_it_was_trained_on():
    job = job_for(THIRD)
    whole, took = run(job, sources(ORDER), on=cn.Simulation(latency=0.01), keepers=shelves(job.parties))
    kept = shelves(job.parties)
    crash = cn.Simulation(latency=0.01, faults=cn.Faults(crashes={"clinic": 0.8 * took["bank"].seconds}))
    with pytest.raises(RunFailed):
        run(job, sources(ORDER), on=crash, keepers=kept)
    given = sources(ORDER)
    given["shop"].X = given["shop"].X[:, ::-1]  # the same people, other columns
    again, _ = run(job, given, keepers=kept)
    fresh, _ = run(job, given, keepers=shelves(job.parties))
    for name, result in again.items():
        assert result.state[0].tobytes() == fresh[name].state[0].tobytes()
    assert again["bank"].state[0].tobytes() != whole["bank"].state[0].tobytes()
    (bank,), shop = kept["bank"].state.of.values(), list(kept["shop"].state.of.values())[-1]
    assert bank.versions() == shop.versions()  # nobody keeps one of the run that no one can go on with


@pytest.mark.parametrize(
    ("algorithm", "sentence"),
    [
        (cn.AFSGD(epochs=2, tol=None), "parties 'clinic', 'shop' hold no labels: AFSGD never updates their blocks"),
        (cn.FedBCD(order="sequential", epochs=2, tol=None), "order='sequential' sums the same rows again"),
    ],
)
def test_a_job_warns_of_what_an_estimator_warns_of(algorithm, sentence):
    with pytest.warns(ColonnadeWarning, match=sentence):
        run(job_for(THIRD, algorithm=algorithm), sources(ORDER))


def test_a_kernel_job_warns_of_shared_directions():
    algorithm = cn.FDSKL(directions="shared", epochs=2, tol=None, block=8)
    text = THIRD.replace('kind = "logistic"\nl2 = 0.01', 'kind = "kernel"\nfeatures = 16')
    text = text[: text.index("[algorithm]")]
    with pytest.warns(ColonnadeWarning, match="directions='shared': every party can work out"):
        run(job_for(text, algorithm=algorithm), sources(ORDER))


def test_digests_of_what_is_trained_on():
    X = np.arange(6.0).reshape(2, 3)
    csr = (np.ones(2), np.zeros(2, np.uint32), np.arange(3), (2, 3))
    values = [X, X.T, X.astype(np.float32), X.reshape(3, 2), csr, (X, None), (X, (None,)), None, 1, 1.0, "1", True]
    assert len({digest_of(value) for value in values}) == len(values)
    assert digest_of((X, None)) == digest_of((X.copy(order="F"), None))


def test_a_job_goes_on_with_the_rows_and_the_state_it_had():
    job = job_for(THIRD)
    slow = cn.Simulation(latency=0.01)
    whole, took = run(job, sources(ORDER), on=slow, keepers=shelves(job.parties))
    kept = shelves(job.parties)
    crash = cn.Simulation(latency=0.01, faults=cn.Faults(crashes={"clinic": 0.8 * took["bank"].seconds}))
    with pytest.raises(RunFailed):
        run(job, sources(ORDER), on=crash, keepers=kept)
    (state,) = kept["bank"].state.of.values()
    assert state.versions()
    again, outcomes = run(job, sources(ORDER), keepers=kept)
    assert not any(step.startswith("align") for step in outcomes["bank"].traffic.by_step)
    for name, result in again.items():
        assert result.state[0].tobytes() == whole[name].state[0].tobytes()
