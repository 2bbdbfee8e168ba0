"""Jobs between sites under the virtual clock: the estimator's bits, what all agree on, and who falls silent."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import colonnade as cn
from colonnade.errors import DataError, LabelError, LimitNotMet, OptionError, ProtocolError, RunFailed
from colonnade.jobs.policy import KINDS, kind_of
from colonnade.jobs.words import leaks_of
from colonnade.leaks import SITE_ALONE, SITE_GRADIENTS
from colonnade.runtimes.endpoint import Endpoint
from colonnade.site_jobs import survey
from colonnade.site_jobs.agreed import Introduction, is_farewell, records_of, told
from colonnade.site_jobs.exact_numbers import from_words, in_words
from colonnade.site_jobs.programs import answer, ask
from colonnade.site_jobs.seat import Voucher
from colonnade.site_jobs.site_desk import SiteDesk
from site_federation import (
    CLINICS,
    HEAD,
    MODEL,
    RUN,
    SHORT,
    digest_of,
    job_of,
    programs,
    seat_of,
    table_of,
    write_clinic,
    write_clinics,
)
from test_kept import Shelf as Kept


@pytest.fixture
def folder(tmp_path):
    write_clinics(tmp_path)
    return tmp_path


def run(job, folder, on=None, **more):
    found = {}
    (on or cn.Simulation()).run(programs(job, folder, found, **more), spare=job.sites)
    return found


def estimator_of(job, folder, learned):
    """The same model by the estimator, on columns that are prepared in the same way."""
    sites = []
    for name in job.sites:
        table = table_of(folder / f"{name}.csv")
        sites.append(cn.Site(name, learned.apply(table), table.label.astype(str)))
    return job.estimator().fit(*sites)


def test_a_job_is_the_estimator_to_the_bit(folder):
    job = job_of()
    found = run(job, folder)
    model = estimator_of(job, folder, found["hub"].learned)
    for name in job.parties:
        assert found[name].result.parameters.tobytes() == model.parameters_.tobytes()
    assert {one.agreed.training for one in found.values()} == {found["hub"].agreed.training}


def test_the_preparation_is_that_of_the_joined_rows(folder):
    """Means, deviations and categories of one table with all rows, to the last bits of a sum."""
    learned = run(job_of(), folder)["hub"].learned
    tables = [table_of(folder / f"{name}.csv") for name in CLINICS]
    for name in ("age", "bmi"):
        column = next(one for one in learned.columns if one.name == name)
        x = np.concatenate([table.columns[name].values for table in tables])
        impute, standardise = column.steps
        assert impute.fill == pytest.approx(np.nanmean(x), rel=1e-14)
        filled = np.where(np.isnan(x), impute.fill, x)
        assert standardise.mean == pytest.approx(filled.mean(), rel=1e-14)
        assert standardise.deviation == pytest.approx(filled.std(), rel=1e-13)
    assert learned.names == ("age", "bmi", "ward=north", "ward=south")


class Died(Exception):
    pass


class Mortal:
    """A net whose party dies at a virtual second: whatever it does after that, it can't."""

    def __init__(self, net, at):
        self._net, self._at = net, at

    def __getattr__(self, name):
        return getattr(self._net, name)

    async def send(self, to, tag, value):
        self._look()
        await self._net.send(to, tag, value)

    async def recv(self, frm, tag, *, patient=False):
        found = await self._net.recv(frm, tag, patient=patient)
        self._look()
        return found

    def _look(self):
        if self._net.elapsed() >= self._at:
            raise Died


def dying(name, at, back):
    """The program of a site that dies at one second, and is started anew at another one."""

    async def site(net, job, seat, digest):
        if net.me == name:
            try:
                return await answer(Mortal(net, at), job, seat, digest)
            except Died:
                while net.elapsed() < back:
                    await net.recv_within(job.server, "never", 0.5)
        return await answer(net, job, seat, digest)

    return site


LONG = "[algorithm]\nrounds = 60\nbatch = 20\nevaluate_every = 10\nseed = 5\n"


def test_a_site_that_dies_is_left_out_and_taken_in_again(folder):
    job, told = job_of(algorithm=LONG), []
    _, seconds = timed(job, folder)
    found = run(job, folder, site=dying("clinic-b", 0.4 * seconds, 12 * seconds), told=told)
    assert len({found[name].result.parameters.tobytes() for name in job.parties}) == 1
    assert found["clinic-b"].result.skipped == ()
    words = " ".join(told)
    assert "clinic-b does not answer; the run goes on without it until it does" in words


def timed(job, folder):
    found = {}
    outcomes = cn.Simulation().run(programs(job, folder, found), spare=job.sites)
    return found, outcomes["hub"].seconds


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_lost_messages_do_not_end_a_run(folder, seed):
    """Two of a hundred messages are lost, whatever they are: sites are left out, and the run ends at all of them."""
    job, told = job_of(algorithm=LONG, run=RUN.replace("60", "600")), []
    found = run(job, folder, on=cn.Simulation(faults=cn.Faults(lost=0.02), seed=seed), told=told)
    assert len({found[name].result.parameters.tobytes() for name in job.parties}) == 1
    assert any("does not answer" in words for words in told)
    assert found["hub"].result.skipped == ()


# -- what leaves a site ------------------------------------------------------------------------------------------------


def test_the_hub_sees_uniform_numbers_and_every_message_is_declared(folder, monkeypatch):
    seen, letters = [], []
    start = Endpoint.__init__

    def with_a_door(endpoint, me, *rest):
        start(endpoint, me, *rest)
        endpoint.door = SimpleNamespace(
            open_for=lambda to, step, value, *_, control: None if control else letters.append((me, to, step, value))
        )

    monkeypatch.setattr(Endpoint, "__init__", with_a_door)
    job = job_of(algorithm=LONG)
    run(job, folder)
    leaks = leaks_of(job)
    for me, to, step, value in letters:
        kind = kind_of(step)
        assert kind in KINDS
        declared = any(kind in leak.kinds and me in leak.of and (not leak.name or to in leak.to) for leak in leaks)
        assert declared, (me, to, kind)
        if kind == "masked sum":
            seen.append(value[1])
    found = np.concatenate(seen)
    assert len(found) > 3000
    counts = np.bincount((found >> np.uint64(60)).astype(int), minlength=16)
    assert np.abs(counts / len(found) - 1 / 16).max() < 6 * np.sqrt(1 / 16 / len(found))


def test_a_pair_of_sites_is_disclosed_and_three_are_not():
    shown = job_of(run="").disclosed()
    assert SITE_GRADIENTS in shown
    assert SITE_ALONE not in shown  # three of three by default
    assert SITE_ALONE in job_of(run=RUN).disclosed()
    assert SITE_ALONE in job_of(run="", head='protection = "plain"\n' + HEAD).disclosed()
    asks = HEAD.replace("[sites.hub]", "[sites.clinic-d]").replace("rows = false\n", "")
    assert job_of(head=asks, run="").minimum_sites == 3
    assert SITE_ALONE not in job_of(head=asks, run="").disclosed()
    few = SHORT + 'kind = "FedAvg"\nfraction = 0.75\n'  # three of four are chosen, of whom one may fall silent
    assert SITE_ALONE in job_of(head=asks, run="", algorithm=few).disclosed()
    assert SITE_ALONE not in job_of(head=asks, run="", algorithm=few.replace("0.75", "1.0")).disclosed()


def test_a_hub_that_puts_its_own_key_in_a_sites_place_is_refused(folder):
    """With certificates, a site believes a key only if its owner's certificate vouches for it."""
    job = job_of()
    seat = seat_of(job, "clinic-a", folder)
    seat._voucher = Voucher(believe=lambda name, certificate: lambda data, signature: False)
    keys = tuple((name, b"k" * 32, b"", b"") for name in job.sites)
    with pytest.raises(ProtocolError, match="the key of site 'clinic-a' is not vouched for by its certificate"):
        seat.hear_who(keys, digest_of(job))
    seat._voucher = Voucher()
    with pytest.raises(ProtocolError, match="the server tells other keys"):
        seat.hear_who(keys, digest_of(job))


# -- what can't be agreed on -------------------------------------------------------------------------------------------


def test_sites_that_differ_are_named_with_what_to_do(folder):
    job = job_of()
    write_clinic(folder / "clinic-b.csv", 60, 1, names=("age", "weight", "ward", "outcome"))
    with pytest.raises(DataError, match="column 'bmi' is there at site 'clinic-a' and not at site 'clinic-b'"):
        run(job, folder)
    write_clinic(folder / "clinic-b.csv", 60, 1, ward=("1", "2"))
    with pytest.raises(DataError, match="column 'ward' holds text at site 'clinic-a' and numbers at site 'clinic-b'"):
        run(job, folder)
    write_clinic(folder / "clinic-b.csv", 60, 1)
    text = (folder / "clinic-b.csv").read_text()
    (folder / "clinic-b.csv").write_text(text.replace(",ill", ",sick"))
    with pytest.raises(LabelError, match=r"site 'clinic-b' has the classes \[\"sick\", \"well\"\], 'clinic-a' has"):
        run(job, folder)
    named = job_of(model=MODEL + 'classes = ["ill", "well"]\n')
    with pytest.raises(LabelError, match="site 'clinic-b' has labels 'sick' that are not among classes of the job"):
        seat_of(named, "clinic-b", folder)


def test_named_classes_let_a_site_lack_one(folder):
    text = (folder / "clinic-b.csv").read_text()
    (folder / "clinic-b.csv").write_text(text.replace(",ill", ",well"))
    found = run(job_of(model=MODEL + 'classes = ["ill", "well"]\n'), folder)
    assert found["clinic-b"].agreed.classes == ("ill", "well")


def test_few_rows_and_few_values_are_refused_by_the_site(folder):
    write_clinic(folder / "clinic-b.csv", 4, 1)
    with pytest.raises(DataError, match="site 'clinic-b' has 4 rows to train on, and its policy answers about 5 or"):
        seat_of(job_of(), "clinic-b", folder)
    write_clinic(folder / "clinic-b.csv", 40, 1)
    rows = [line.split(",") for line in (folder / "clinic-b.csv").read_text().splitlines()]
    few = [[a, b if at < 4 else "", *rest] for at, (a, b, *rest) in enumerate(rows)]
    (folder / "clinic-b.csv").write_text("\n".join(map(",".join, few)) + "\n")
    with pytest.raises(DataError, match=r"column 'age' of .* has 3 values, and this site answers about 5 or more"):
        run(job_of(), folder)


def test_few_rows_are_not_held_out(folder):
    write_clinic(folder / "clinic-b.csv", 30, 1)
    with pytest.raises(DataError, match="site 'clinic-b' holds 3 rows out, and its policy answers about 5 or more"):
        seat_of(job_of(more="[validation]\npart = 0.1\n"), "clinic-b", folder)
    assert seat_of(job_of(more="[validation]\npart = 0.2\n"), "clinic-b", folder).counts == (24, 6)


def test_the_share_of_a_class_with_a_limit_is_a_batch_of_its_own(folder):
    job = job_of(model=MODEL + 'classes = ["ill", "well"]\ncost_limit = { ill = 0.4, well = 0.9 }\n')
    checked, found = [], run(job, folder)
    seat = seat_of(job, "clinic-a", folder)
    seat._check = lambda columns, batch: checked.append((columns, batch))
    keys = [(name, b"k" * 32, b"", b"") for name in job.sites]
    keys[0] = ("clinic-a", seat.introduction(digest_of(job))[2][0], b"", b"")
    seat.hear_who(tuple(keys), digest_of(job))
    seat.hear_agreed(found["hub"].agreed.as_value())
    ill, rows = int((seat.training_rows.label == "ill").sum()), seat.counts[0]
    assert checked == [(4, round(20 * min(ill, rows - ill) / rows))]
    assert checked[0][1] < 20


def test_who_has_which_of_the_named_classes_is_not_told(folder):
    text = (folder / "clinic-b.csv").read_text()
    (folder / "clinic-b.csv").write_text(text.replace(",ill", ",well"))
    job = job_of(model=MODEL + 'classes = ["well", "ill", "dead"]\n')
    for name in CLINICS:
        assert seat_of(job, name, folder).introduction(digest_of(job))[1] == ("dead", "ill", "well")


def test_rare_categories_stay_at_home(folder):
    text = (folder / "clinic-b.csv").read_text().splitlines()
    text[1] = text[1].replace("north", "Mr Smith").replace("south", "Mr Smith")
    (folder / "clinic-b.csv").write_text("\n".join(text) + "\n")
    found = run(job_of(), folder)
    assert found["hub"].learned.names == ("age", "bmi", "ward=north", "ward=south", "ward=(other)")
    assert "Smith" not in found["hub"].agreed.preparation


@pytest.mark.parametrize("protection", ["masked", "plain"])
@pytest.mark.parametrize("kind", ["FedAvg", "MiniBatchSGD", "ParallelRestartedSGD"])
def test_the_other_algorithms_are_the_estimators_too(folder, kind, protection):
    job = job_of(head=f'protection = "{protection}"\n' + HEAD, algorithm=SHORT.replace("]\n", f']\nkind = "{kind}"\n'))
    found = run(job, folder)
    model = estimator_of(job, folder, found["hub"].learned)
    assert found["clinic-a"].result.parameters.tobytes() == model.parameters_.tobytes()


@pytest.mark.parametrize(
    "problem",
    [
        "cost_limit = 0.6\n",
        "cost_limit = { ill = 0.7, well = 0.7 }\n",
        'objective = "cost() + 0.1 * cost(\'ill\')"\nconstraints = ["squared_norm() <= 5"]\n',
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_limits_and_objectives_are_the_estimators_too(folder, problem):
    job = job_of(model=MODEL + problem)
    found = run(job, folder)
    try:
        model = estimator_of(job, folder, found["hub"].learned)
    except LimitNotMet:
        assert not found["hub"].result.met
        return
    assert found["clinic-a"].result.parameters.tobytes() == model.parameters_.tobytes()


def test_who_asks_may_have_rows_itself(folder):
    head = HEAD[: HEAD.index("[sites.hub]")].replace(
        "[sites.clinic-a]", '[sites.clinic-a]\nasks = true\naddress = "h:1"'
    )
    job = job_of(head=head)
    assert (job.server, job.minimum_sites, job.sites) == ("clinic-a", 2, CLINICS)
    found = run(job, folder)
    assert set(found) == set(CLINICS)
    model = estimator_of(job, folder, found["clinic-a"].learned)
    assert {one.result.parameters.tobytes() for one in found.values()} == {model.parameters_.tobytes()}


def test_a_broken_run_goes_on_to_the_same_bits(folder):
    job, shelf = job_of(algorithm=LONG), Kept()
    whole, seconds = timed(job, folder)
    crash = cn.Simulation(faults=cn.Faults(crashes={"hub": 0.5 * seconds}), deadline=5)
    with pytest.raises(RunFailed):
        run(job, folder, on=crash, keeper=shelf)
    assert 5 < max(shelf.versions()) < 60
    again = run(job, folder, keeper=shelf)
    assert again["hub"].result.parameters.tobytes() == whole["hub"].result.parameters.tobytes()


# -- job files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"head": HEAD.replace("asks = true\n", "")}, "exactly one party asks the others, and nobody asks"),
        ({"head": HEAD.replace("[sites.clinic-b]", "[sites.clinic-b]\nasks = true")}, "'clinic-b' and 'hub' ask"),
        ({"head": HEAD.replace("[sites.clinic-b]", "[sites.clinic-b]\nrows = false")}, "only who asks may be without"),
        ({"head": HEAD.replace('address = "127.0.0.1:7443"\n', "")}, "'hub', which asks, has no address either"),
        ({"head": HEAD.replace("[sites.clinic-b]\n[sites.clinic-c]\n", "")}, "two sites with rows or more, got 1"),
        ({"head": 'protection = "sealed"\n' + HEAD}, "key protection: 'sealed' is for linear models over columns"),
        ({"run": "[run]\nminimum_sites = 1\n"}, "must be between 2 and the 3 sites, got 1"),
        ({"run": "[run]\nminimum_sites = 4\n"}, "must be between 2 and the 3 sites, got 4"),
        ({"model": "[model]\nhidden = -1\n"}, "key model.hidden: must be >= 0"),
        ({"model": '[model]\nkind = "network"\nhidden = 3\n'}, "key model.hidden: says what layers there are"),
        ({"model": "[model]\nl2 = 0.1\ncost_limit = 0.5\n"}, "key model.l2: is a part of cost"),
        ({"model": '[model]\nobjective = "open(1)"\n'}, "key model.objective: knows cost"),
        ({"model": "[model]\nobjective = \"__import__('os').system('x')\"\n"}, "key model.objective: knows cost"),
        ({"model": '[model]\nconstraints = ["cost()"]\n'}, "must be a limit such as"),
        ({"model": "[model]\nclasses = [1]\n"}, "key model.classes: must be"),
        ({"model": "[model]\nclasses = [0, 1]\ncost_limit = { ill = 1.0 }\n"}, "names the class 'ill'"),
        ({"more": '[prepare]\nage = ["impute"]\n'}, "key prepare.age: a median is no sum over the rows of all sites"),
        ({"more": "[prepare]\nage = [{ clip = { quantiles = [0.1, 0.9] } }]\n"}, "quantiles are no sum over the rows"),
        ({"more": '[prepare]\nage = ["scale"]\n'}, "scale learns the largest value of a single row"),
        ({"algorithm": '[algorithm]\nkind = "FedSGD"\n'}, "key algorithm.kind: must be one of"),
        ({"algorithm": "[algorithm]\nthreshold = 2\n"}, "is minimum_sites under .run. in a job"),
        ({"algorithm": "[algorithm]\nepochs = 2\n"}, "SSCA has no such option; it has"),
        ({"algorithm": "[algorithm]\nrounds = 0\n"}, "key algorithm.rounds: must be"),
        ({"algorithm": '[algorithm]\nkind = "FedAvg"\nfraction = 0.1\n'}, "fraction chooses 1 of 3 sites"),
        (
            {"model": "[model]\ncost_limit = 0.5\n", "algorithm": '[algorithm]\nkind = "FedAvg"\n'},
            "needs algorithm=SSCA",
        ),
    ],
)
def test_a_job_that_can_not_be_is_one_sentence(changes, sentence):
    with pytest.raises(OptionError, match=sentence) as raised:
        job_of(**changes)
    assert "\n" not in str(raised.value)


# -- a server that does not follow the program -------------------------------------------------------------------------


def question(what, asked, **changes):
    column = {"name": "age", "text": False, "steps": [], "hot": None, "named": True} | changes
    return json.dumps([[column, what, asked]])


@pytest.mark.parametrize(
    "text",
    [
        question("levels", [50.0]),  # how many are exactly fifty
        question("mean", None, steps=[{"step": "clip", "low": 100.0, "high": 101.0}]),  # who is above a hundred
        question("spread", 3.0),  # before the gaps are filled
        question("mean", None, name="ward"),
        question("mean", None, steps=[{"step": "log1p"}]),
        question("levels", ["Mr Smith"], name="ward", text=True, hot={"step": "one-hot", "most": 1, "least": 9}),
    ],
)
def test_a_site_answers_what_the_job_learns_and_nothing_else(folder, text):
    job = job_of()
    seat = seat_of(job, "clinic-a", folder)
    seat.introduction(digest_of(job))
    with pytest.raises((ProtocolError, DataError), match=r"job.toml does not learn|can't be read"):
        survey.answer(seat.training_rows, text, 5, seat._chains)


def test_a_rare_category_that_the_server_asks_for_is_not_counted(folder):
    text = (folder / "clinic-a.csv").read_text().splitlines()
    text[1] = text[1].replace("north", "Mr Smith").replace("south", "Mr Smith")
    (folder / "clinic-a.csv").write_text("\n".join(text) + "\n")
    job = job_of()
    seat = seat_of(job, "clinic-a", folder)
    seat.introduction(digest_of(job))
    hot = {"step": "one-hot", "most": 50, "least": 1}
    asked = question("levels", ["Mr Smith", "north"], name="ward", text=True, hot=hot)
    smith, north, others, missing = survey.answer(seat.training_rows, asked, 5, seat._chains)
    assert (smith, missing) == (0, 0)
    assert north > 5
    assert others > 5
    few = question("levels", ["north", "south"], name="ward", text=True, hot=hot)
    assert survey.answer(seat.training_rows, few, 5, seat._chains)[2] == 5  # one, or up to five


def test_a_question_in_other_words_is_not_answered(folder):
    """Two answers about the same column would tell by their difference how many rows have a rare category."""
    text = (folder / "clinic-a.csv").read_text().splitlines()
    text[1] = text[1].replace("north", "Mr Smith").replace("south", "Mr Smith")
    (folder / "clinic-a.csv").write_text("\n".join(text) + "\n")
    job = job_of()
    seat = seat_of(job, "clinic-a", folder)
    keys = [(name, b"k" * 32, b"", b"") for name in job.sites]
    keys[0] = ("clinic-a", seat.introduction(digest_of(job))[2][0], b"", b"")
    hot = {"step": "one-hot", "most": 50, "least": 1}
    asked = [
        question("levels", levels, name="ward", text=True, hot=hot) for levels in (["north"], ["Mr Smith", "north"])
    ]
    seat.hear_who(tuple(keys), digest_of(job))
    seat.answer("task", 1, ("survey", 0, asked[0]))
    seat.answer("task", 2, ("survey", 0, asked[0]))  # as where too few answered
    for _ in range(2):
        with pytest.raises(ProtocolError, match="about column 'ward' again, with something else in the question"):
            seat.answer("task", 3, ("survey", 1, asked[1]))
        seat.hear_who(tuple(keys), digest_of(job))  # which begins the sums anew


def test_what_a_step_has_learned_is_told_once(folder):
    """With a mean of its choice for each question, a server could count the rows below any number."""
    job = job_of(more='[prepare]\nage = [{ impute = "mean" }, "standardise", { clip = [-1, 1] }, "standardise"]\n')
    seat = seat_of(job, "clinic-a", folder)
    seat.introduction(digest_of(job))
    impute = {"step": "impute", "how": "mean", "indicator": False, "fill": 50.0}
    told = {}
    for mean, refused in ((30.0, False), (31.0, True)):
        known = {"step": "standardise", "mean": mean, "deviation": 1e-6}
        asked = question("mean", None, steps=[impute, known, {"step": "clip", "low": -1.0, "high": 1.0}])
        if not refused:
            survey.answer(seat.training_rows, asked, 5, seat._chains, told)
            continue
        with pytest.raises(ProtocolError, match="about column 'age' again"):
            survey.answer(seat.training_rows, asked, 5, seat._chains, told)


def test_categories_that_nobody_counted_are_not_agreed_on(folder):
    job = job_of()
    agreed = run(job, folder)["hub"].agreed
    seat = seat_of(job, "clinic-a", folder)
    keys = [(name, b"k" * 32, b"", b"") for name in job.sites]
    keys[0] = ("clinic-a", seat.introduction(digest_of(job))[2][0], b"", b"")
    seat.hear_who(tuple(keys), digest_of(job))
    hot = {"step": "one-hot", "most": 50, "least": 1}
    seat.answer("task", 1, ("survey", 0, question("levels", ["north", "south"], name="ward", text=True, hot=hot)))
    smith = replace(agreed, preparation=agreed.preparation.replace('"north"', '"Mr Smith"'))
    with pytest.raises(ProtocolError, match="categories of column 'ward' that it did not ask about"):
        seat.hear_agreed(smith.as_value())


@pytest.mark.parametrize(
    "message",
    [
        None, (), ("who", 0), ("who", 0, ((1, b"", b"", b""),)), ("agreed", 0, "x"), ("refused", 0, 3), ("wait", 0, 1),
        ("done", 0, (1,)), ("end", 0, np.zeros(3)), ("task", 1, ("survey", 0)), ("task", 1, ("survey", 0, 7)),
        ("task", "1", ("count",)), (["task"], 1, ("count",)), ("import os", 1, None),
        (np.zeros(3), 1, ("count",)), (np.zeros(0), 0, ()), ("task", 1, (np.zeros(3), 1, np.zeros(3), np.zeros(3))),
        ("task", 1, ("evaluate", 1 << 40, np.zeros(3), np.zeros(3))),  # a place in the history for each before it
    ],
)  # fmt: skip
def test_a_site_obeys_no_malformed_word(message):
    with pytest.raises(ProtocolError):
        told(message)


@pytest.mark.parametrize(
    "value",
    [
        None, (), ((), ("a",), (b"", b"", b"")), ((("age", "numbers"),), ("a", "b"), (b"", b"", b"")),
        ((("age", "numbers", ()),), ("a", 1), (b"", b"", b"")), ((("age", "numbers", (1,)),), ("a",), (b"", b"", b"")),
        ((("age", "numbers", ()),) * 2, ("a", "b"), (b"", b"", b"")),
        ((("age", "numbers", ()),), ("a", "b"), (b"", "")),
        ((("age", "text", tuple(map(str, range(1001)))),), ("a", "b"), (b"", b"", b"")),
        ((("age", "numbers", ()),), ("b", "a"), (b"", b"", b"")),
        ((("age", "numbers", ()),), ("a", "a"), (b"", b"", b"")),
        ((("age", "date \x1b[2J", ()),), ("a", "b"), (b"", b"", b"")),
        ((("age", "numbers\n", ()),), ("a", "b"), (b"", b"", b"")), np.zeros(3), (np.zeros(3), np.zeros(3), ()),
    ],
)  # fmt: skip
def test_a_hub_believes_no_malformed_introduction(value):
    with pytest.raises(ProtocolError, match="site 'x' must introduce itself"):
        Introduction.from_value(value, "x")


@pytest.mark.parametrize(
    "records",
    [
        None, (("warning", "x"),), (("also", 1 << 40, ()),), (("record", -1, 1, 1, 0.5, 0.5),), (3,), ((),),
        (("record", 0, 1, 1, "\x1b[2J", 0.5),), (("record", 0, 1, 1, np.zeros(3), 0.5),), (("resumed", 3),),
        (("also", 0, (("x", 1),)),), (("also", 0, (("norm", "x"),)),),
    ],
)  # fmt: skip
def test_a_site_believes_no_malformed_record_of_the_training(records):
    with pytest.raises(ProtocolError, match="no record of the training"):
        records_of(records)


def test_a_servers_words_stay_on_their_line():
    assert told(("refused", 0, "no\x1b[2J\nparty"))[2] == "no?[2J?party"


def test_nonsense_of_a_site_that_comes_again_is_refused_without_ending_the_run(folder):
    job, sent = job_of(), []

    async def send(name, step, value):
        sent.append((name, value[0]))

    desk = SiteDesk(SimpleNamespace(me="hub", deadline=60.0, send=send), job, None, b"", lambda text: None)
    good = seat_of(job, "clinic-b", folder).introduction(digest_of(job))
    desk.introduced = {name: Introduction.from_value(good, name) for name in job.sites}
    for value in (np.zeros(3), (np.zeros(3),), (good[0], np.zeros(3), good[2])):
        assert not asyncio.run(desk._welcome("clinic-b", value))
        assert not is_farewell(value)
    assert sent == [("clinic-b", "refused")] * 3
    assert asyncio.run(desk._welcome("clinic-b", good))


def test_a_preparation_that_is_not_the_jobs_is_refused(folder):
    job = job_of()
    found = run(job, folder)
    seat = seat_of(job, "clinic-a", folder)
    agreed = found["hub"].agreed
    for old, new in (('"age"', '"bmi"'), ('"indicator": false', '"indicator": true'), ("impute", "log1p")):
        changed = replace(agreed, preparation=agreed.preparation.replace(old, new))
        with pytest.raises((ProtocolError, DataError), match=r"not the one of the job|can't|no preparation"):
            seat.hear_agreed(changed.as_value())
    # Labels are looked up among the classes, so these stand in their order.
    with pytest.raises(ProtocolError, match="the server tells no agreement that this site can read"):
        seat.hear_agreed(replace(agreed, classes=agreed.classes[::-1]).as_value())


@pytest.mark.parametrize("again", [(np.arange(3), np.arange(3), ()), ((), ("a",)), None])
def test_a_site_that_comes_again_as_something_else_is_refused_and_the_run_goes_on(folder, again):
    job, told = job_of(), []
    word = seat_of(job, "clinic-a", folder).introduction(digest_of(job))

    async def hub(net):
        one = SimpleNamespace(sites=("clinic-a",), algorithm=job.algorithm, patience=job.patience)
        desk = SiteDesk(net, one, None, b"", told.append)
        await desk.everybody()
        await net.recv("clinic-a", "has said it")
        return tuple(await desk.take_in())

    async def site(net):
        await net.send("hub", "introduction", word)
        await net.send("hub", "introduction", again)
        await net.send("hub", "has said it", None)
        found = [await net.recv("hub", "instruction") for _ in range(2)]
        return found[-1][0]

    outcomes = cn.Simulation().run({"hub": (hub, ()), "clinic-a": (site, ())})
    assert (outcomes["hub"].value, outcomes["clinic-a"].value) == ((), "refused")
    words = "clinic-a is not taken in again: site 'clinic-a' must introduce itself by columns and classes"
    assert told[0].startswith(words)


def test_words_of_numbers_add_up_exactly():
    rng = np.random.default_rng(0)
    values = [*rng.standard_normal(50) * 10.0 ** rng.integers(-20, 30, 50), 0.0, -1.5, 2.0**119]
    assert all(from_words(in_words(value, "it")) == pytest.approx(value, rel=1e-15, abs=1e-36) for value in values)
    total = sum(in_words(value, "it") for value in (1e22, 1.0, -1e22))
    assert from_words(total) == 1.0  # where floats would say 0
    with pytest.raises(DataError, match="column 'x' adds up to 1e\\+40, which is too large for a sum over sites"):
        in_words(1e40, "column 'x'")


def test_networks_of_the_sites_own(folder):
    torch = pytest.importorskip("torch")
    job = job_of(model='[model]\nkind = "network"\n')
    found, make = {}, lambda features, classes: torch.nn.Linear(features, classes)
    seats = {name: seat_of(job, name, folder, network=make) for name in job.sites}

    def program_of(name):
        async def program(net):
            if name == "hub":
                found[name] = await ask(net, job, None, digest_of(job), network=make)
            else:
                found[name] = await answer(net, job, seats[name], digest_of(job), make)

        return program

    cn.Simulation().run({name: (program_of(name), ()) for name in job.parties}, spare=job.sites)
    assert len({one.result.parameters.tobytes() for one in found.values()}) == 1
    assert found["clinic-a"].plan.model[0] == "own"
