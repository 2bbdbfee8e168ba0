"""A model in use: scores by id equal those of the estimator, unknown people are said, and peers are not believed."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest
import scipy.sparse as sp

import colonnade as cn
from colonnade.cli.main import main
from colonnade.data.ids import canonical
from colonnade.errors import DataError, PartyFailed, PolicyRefused, ProtocolError
from colonnade.families import family
from colonnade.families.linear import LinearScorer
from colonnade.jobs import people, score_file
from colonnade.service import scoring
from colonnade.service.scoring import Asker, Directory, ScoringTerms, serve

RNG = np.random.default_rng(0)
N = 60
X = RNG.standard_normal((N, 9))
NAMES = ("bank", "clinic", "shop")


def lookup_of(part, ids):
    directory = Directory(canonical(ids, "test"))

    def lookup(asked):
        rows, known = directory.find(asked)
        return part.X[rows] if len(rows) else None, known

    return lookup


def scorer_of(model, name):
    kernel = isinstance(model, cn.KernelClassifier)
    facts = {"kernel": model.kernel, "features": model.features, "block": model._block} if kernel else {}
    return family(model._family).scorer(name, model._scoring_job(**facts), model._states[name], None)


def score(model, parties, ids, asked, on=None):
    """What the asker hears about people."""
    terms = ScoringTerms("bank", "pairwise", "tree")

    async def ask(net):
        asker = await Asker.open(net, terms, scorer_of(model, "bank"))
        found = await asker.scores(asked, *lookup_of(parties[0], ids["bank"])(asked))
        await asker.close()
        return found

    programs = {"bank": (ask, ())}
    for party in parties[1:]:

        async def answer(net, party=party):
            return await serve(net, terms, scorer_of(model, party.name), lookup_of(party, ids[party.name]))

        programs[party.name] = (answer, ())
    return (on or cn.Simulation()).run(programs)


@pytest.mark.parametrize("labels", [X[:, 0] > 0, np.digitize(X[:, 4], [-0.5, 0.5])])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("algorithm", [cn.FedSGD(epochs=2, tol=None), cn.FDML(epochs=2, tol=None)])
def test_scores_by_id_are_those_of_the_model(labels, kind, algorithm, monkeypatch):
    monkeypatch.setattr(LinearScorer, "most", 7)
    parties = cn.split(kind(X), labels, into={"bank": range(3), "clinic": range(3, 6), "shop": range(6, 9)})
    made = cn.LogisticRegression if labels.dtype == bool else cn.SoftmaxRegression
    model = made(algorithm=algorithm, verbose=0)
    model.fit(*parties)
    order = {name: np.random.default_rng(k).permutation(N) for k, name in enumerate(NAMES)}
    ids = {name: [f"p{row:03}" for row in order[name]] for name in NAMES}
    shuffled = [party.take(order[party.name]) for party in parties]
    asked = [f"p{row:03}" for row in (5, 3, 44, 17, 0, 59, 21, 8, 9, 10)]
    outcomes = score(model, shuffled, ids, asked)
    totals, known = outcomes["bank"].value
    rows = [int(one[1:]) for one in asked]
    direct = sum(scorer_of(model, p.name).of(scoring.columns_of(p.X), np.array(rows)) for p in parties)
    np.testing.assert_allclose(totals, direct[:, 0] if direct.shape[1] == 1 else direct, atol=1e-9)
    assert known.all()
    assert outcomes["shop"].value == len(asked)


@pytest.mark.parametrize(("kernel", "active"), [(False, 1), (True, 1), (True, 2)])
def test_people_that_somebody_does_not_know(kernel, active):
    into = {"bank": range(3), "clinic": range(3, 6), "shop": range(6, 9)}
    parties = cn.split(X, X[:, 0] > 0, into=into, active=active)
    model = cn.LogisticRegression(algorithm=cn.FedSGD(epochs=1, tol=None), verbose=0)
    if kernel:
        model = cn.KernelClassifier(features=30, algorithm=cn.FDSKL(block=8, epochs=4, tol=None), verbose=0)
    model.fit(*parties)
    ids = {name: list(range(N)) for name in NAMES}
    ids["shop"][3], ids["clinic"][5] = 1003, 1005
    totals, known = score(model, parties, ids, ["2", "3", "4", "5"])["bank"].value
    assert known.tolist() == [True, False, True, False]
    whole = model.decision_function(*[party.take([2, 4]) for party in parties])
    np.testing.assert_allclose(totals[known], whole, atol=1e-9)


@pytest.mark.parametrize("kernel", [False, True])
def test_values_that_cannot_be_scored_are_refused_and_the_line_stays_up(kernel):
    parties = cn.split(X, X[:, 0] > 0, into={"bank": range(4), "shop": range(4, 9)})
    model = cn.LogisticRegression(algorithm=cn.FedSGD(epochs=1, tol=None), verbose=0)
    if kernel:
        model = cn.KernelClassifier(features=30, algorithm=cn.FDSKL(block=8, epochs=4, tol=None), verbose=0)
    model.fit(*parties)
    terms, here = ScoringTerms("bank", "pairwise", "tree"), np.ones(1, bool)

    async def ask(net):
        asker = await Asker.open(net, terms, scorer_of(model, "bank"))
        with pytest.raises(DataError, match=r"far outside of what the model was trained on|it has no phase"):
            await asker.scores(["3"], np.full((1, 4), 1e200), here)
        found, _ = await asker.scores(["3"], X[3:4, :4], here)
        await asker.close()
        return found

    async def answer(net):
        return await serve(net, terms, scorer_of(model, "shop"), lookup_of(parties[1], list(range(N))))

    outcomes = cn.Simulation().run({"bank": (ask, ()), "shop": (answer, ())})
    np.testing.assert_allclose(outcomes["bank"].value, model.decision_function(*[p.take([3]) for p in parties]))
    assert outcomes["shop"].value == 1


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (("ask", 1, 2), "must ask about ids at step 'scoring'"),
        (("ask", np.zeros(3, np.uint8), np.array([2, 1])), "sent no ids at step 'scoring'"),
        (("ask", np.zeros(3, np.uint8), np.array([2, 9])), "sent no ids at step 'scoring'"),
        (("ask", np.full(2, 255, np.uint8), np.array([2])), "sent ids that are not UTF-8 at step 'scoring'"),
        (
            ("ask", np.zeros(0, np.uint8), np.zeros(LinearScorer.most + 1, np.int64)),
            f"asked about {LinearScorer.most + 1} people at once, at most {LinearScorer.most} are allowed",
        ),
        ("what?", "must ask about ids at step 'scoring'"),
    ],
)
def test_a_malformed_question_is_refused(message, sentence):
    async def ask(net):
        await net.send("shop", "scoring", message)
        await net.recv("shop", "scoring")

    async def answer(net):
        await serve(
            net,
            ScoringTerms("bank", "plain", "tree"),
            LinearScorer((np.zeros((2, 1)), None)),
            lambda ids: (np.zeros((len(ids), 2)), np.ones(len(ids), bool)),
        )

    with pytest.raises(ProtocolError, match=f"^party 'bank' {sentence}$"):
        cn.Simulation().run({"bank": (ask, ()), "shop": (answer, ())})


# -- the file of scores ------------------------------------------------------------------------------------------------

SCORES = score_file.Scores(
    ["007", 'a "b", c', "Zoë"],
    np.array([True, False, True]),
    {"prediction": np.array(["good", "bad", "it's"]), 'p("x")': np.array([0.25, 0.5, 1 / 3])},
)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_scores_are_written(tmp_path, ending):
    path = tmp_path / f"it's.{ending}"
    score_file.write(SCORES, path)
    with duckdb.connect() as database:
        found = database.sql(f"SELECT * FROM '{tmp_path}/*.{ending}'" if ending == "parquet" else
                             f"SELECT * FROM read_csv('{tmp_path}/*.csv', types={{'id': 'VARCHAR'}})")  # fmt: skip
        assert found.columns == ["id", "known", "prediction", 'p("x")']
        assert found.fetchall() == [
            ("007", True, "good", 0.25), ('a "b", c', False, None, None), ("Zoë", True, "it's", 1 / 3)
        ]  # fmt: skip


@pytest.mark.parametrize("column", [np.arange(3), np.arange(3) / 7, np.array([True, False, True])])
def test_predictions_of_every_kind_are_written(tmp_path, column):
    score_file.write(score_file.Scores(["1", "2", "3"], np.array([True, True, False]), {"prediction": column}),
                  tmp_path / "scores.parquet")  # fmt: skip
    with duckdb.connect() as database:
        found = database.sql(f"SELECT prediction FROM '{tmp_path}/scores.parquet'").fetchall()
    assert [one for (one,) in found] == [*column[:2].tolist(), None]


def test_classes_that_differ_in_case_only_keep_their_names(tmp_path):
    chances = {"p(A)": np.ones(1), "p(a)": np.zeros(1)}
    scores = score_file.Scores(["1"], np.array([True]), {"prediction": np.array(["A"]), **chances})
    score_file.write(scores, tmp_path / "scores.csv")
    assert (tmp_path / "scores.csv").read_text() == "id,known,prediction,p(A),p(a)\n1,true,A,1.0,0.0\n"


def test_nobody_to_score(tmp_path):
    empty = score_file.Scores([], np.zeros(0, bool), {"prediction": np.zeros(0, "<U4"), "p(a)": np.zeros(0)})
    score_file.write(empty, tmp_path / "scores.csv")
    assert (tmp_path / "scores.csv").read_text().strip() == "id,known,prediction,p(a)"


def test_a_place_for_the_scores_is_looked_at_before_any_work(tmp_path, capsys):
    (tmp_path / "folder.csv").mkdir()
    for name, sentence in (
        ("scores.xlsx", "must end in .csv or .parquet, got 'scores.xlsx'"),
        ("folder.csv", "it is a folder"),
        ("nowhere/scores.csv", "is not there; make it"),
    ):
        assert main(["predict", str(tmp_path / "job.toml"), "--as", "bank", "--out", str(tmp_path / name)]) == 1
        assert sentence in capsys.readouterr().err


# -- who may be found out ----------------------------------------------------------------------------------------------

INTO = {"bank": range(3), "clinic": range(3, 6), "shop": range(6, 9)}


def trained(kernel=False, names=NAMES):
    parties = cn.split(X, X[:, 0] > 0, into={name: INTO[name] for name in names})
    model = cn.LogisticRegression(algorithm=cn.FedSGD(epochs=1, tol=None), verbose=0)
    if kernel:
        model = cn.KernelClassifier(features=30, algorithm=cn.FDSKL(block=8, epochs=4, tol=None), verbose=0)
    model.fit(*parties)
    return model, {party.name: party for party in parties}


class Ear:
    """A `Net` that notes what its party hears."""

    def __init__(self, net):
        self._net, self.heard = net, []

    def __getattr__(self, name):
        return getattr(self._net, name)

    async def recv(self, frm, tag, **options):
        value = await self._net.recv(frm, tag, **options)
        self.heard.append((frm, tag, value))
        return value


class Knows:
    """A scorer that remembers the totals which its party came to know, also those that are not for it."""

    def __init__(self, scorer):
        self._scorer, self.totals = scorer, []

    def __getattr__(self, name):
        return getattr(self._scorer, name)

    async def scores(self, *args):
        self.totals.append(await self._scorer.scores(*args))
        return self.totals[-1]


def curious(model, parties, served, questions, gates=None, rounds=None):
    """(scores or error, what was heard, totals) of each question that a bank asks which takes everybody for its own."""
    terms = ScoringTerms("bank", "pairwise", "tree")

    async def wonder(net):
        ear, scorer, found = Ear(net), Knows(scorer_of(model, "bank")), []
        asker = await Asker.open(ear, terms, scorer)
        for question in questions:
            ear.heard.clear()
            try:
                value = await asker.scores(question, np.zeros((len(question), 3)), np.ones(len(question), dtype=bool))
            except PolicyRefused as error:
                value = str(error)
            found.append((value, list(ear.heard), scorer.totals[-1]))
        await asker.close()
        return found

    programs = {"bank": (wonder, ())}
    for name in list(parties)[1:]:

        async def answer(net, name=name):
            directory = Directory(canonical([f"{row:05}" for row in range(N)], "test"), served[name])

            def lookup(asked):
                rows, known = directory.find(asked)
                return parties[name].X[rows] if len(rows) else None, known

            gate = (gates or {}).get(name, lambda _: None)
            return await serve(net, terms, scorer_of(model, name), lookup, gate, rounds)

        programs[name] = (answer, ())
    results = []

    def kept(program):
        async def keep(net):
            results.append((net.me, await program(net)))

        return keep

    cn.Simulation().run({name: (kept(program), ()) for name, (program, _) in programs.items()})
    return dict(results)


@pytest.mark.parametrize("kernel", [False, True])
def test_20_000_guesses_find_nobody_but_the_people_of_the_training(kernel):
    """The shop has 60 customers, 20 of them in the training."""
    model, parties = trained(kernel, ("bank", "shop"))
    common = frozenset(f"{row:05}" for row in range(20))
    guesses = [f"{number:05}" for number in range(20_000)]
    found = curious(model, parties, {"shop": common}, [guesses])
    (_, known), *_ = found["bank"][0]
    assert {guess for guess, one in zip(guesses, known.tolist(), strict=True) if one} == common
    everybody = curious(model, parties, {"shop": None}, [guesses])["bank"][0][0][1]  # as it would be otherwise
    assert everybody.sum() == N


@pytest.mark.parametrize("kernel", [False, True])
def test_a_customer_who_is_not_served_looks_as_one_who_is_not_there(kernel):
    model, parties = trained(kernel, ("bank", "shop"))
    common = frozenset(f"{row:05}" for row in range(20))
    customers, strangers = ([f"{row:05}" for row in range(a, a + 40)] for a in (20, 20_000))
    (one, heard, _), (other, also, _) = curious(model, parties, {"shop": common}, [customers, strangers])["bank"]
    assert [(frm, tag, value.shape, value.dtype) for frm, tag, value in heard] == [
        (frm, tag, value.shape, value.dtype) for frm, tag, value in also
    ]
    bits = [[value.tolist() for _, tag, value in messages if tag == "scoring"] for messages in (heard, also)]
    assert bits == [[[0] * 5], [[0] * 5]]
    for (totals, known), (others, none) in [(one, other)]:
        assert not known.any()
        assert not none.any()
        np.testing.assert_array_equal(totals, others)
    # a person is found, or not, in the same way: there is nothing of the others to be found
    assert set(Directory(canonical(customers, "test"), common)._rows) == set()


@pytest.mark.parametrize("kernel", [False, True])
def test_of_people_that_one_party_does_not_answer_about_the_others_parts_stay_hidden(kernel):
    """With three parties the masks hide each one's part; a part of 0 instead of the shop's would show the clinic's."""
    model, parties = trained(kernel)
    served = {"clinic": None, "shop": frozenset(f"{row:05}" for row in range(20))}
    people_, others = ([f"{row:05}" for row in range(a, a + 10)] for a in (0, 30))
    found = curious(model, parties, served, [people_, others, people_, others])["bank"]
    totals = [total for *_, total in found]
    np.testing.assert_array_equal(totals[0], totals[2])
    assert (totals[1] != totals[3]).all()  # noise of 36 bits behind the point, and of 30 angles with a kernel
    if not kernel:
        clinic = scorer_of(model, "clinic").of(scoring.columns_of(parties["clinic"].X), np.arange(30, 40))[:, 0]
        own = scorer_of(model, "bank").of(scoring.columns_of(np.zeros((10, 3))), np.arange(10))[:, 0]
        assert (np.abs(totals[1] - own - clinic) > 1e-6).all()
    assert [value[1].all() for value, *_ in found] == [True, False, True, False]
    assert not found[1][0][0].any()  # and nothing of it is handed on


def test_partners_hear_nothing_of_people_who_are_not_known_here():
    model, parties = trained(names=("bank", "shop"))
    terms, asked = ScoringTerms("bank", "pairwise", "tree"), []

    async def ask(net):
        asker = await Asker.open(net, terms, scorer_of(model, "bank"))
        here = np.array([True, False, True, False])
        some = await asker.scores(["1", "2", "3", "4"], X[[1, 3], :3], here)
        none = await asker.scores(["2", "4"], None, np.zeros(2, dtype=bool))
        await asker.close()
        return (*some, *none)

    async def answer(net):
        def lookup(ids):
            asked.append(ids)
            return lookup_of(parties["shop"], list(range(N)))(ids)

        return await serve(net, terms, scorer_of(model, "shop"), lookup)

    totals, known, zeros, nobody = cn.Simulation().run({"bank": (ask, ()), "shop": (answer, ())})["bank"].value
    assert asked == [["1", "3"]]
    assert known.tolist() == [True, False, True, False]
    np.testing.assert_allclose(totals[known], model.decision_function(*[p.take([1, 3]) for p in parties.values()]))
    assert (totals[~known].any(), zeros.tolist(), nobody.any()) == (False, [0.0, 0.0], False)


def test_questions_are_of_nearly_one_size():
    assert [part.stop - part.start for part in scoring._pieces(16_385, 16_384)] == [8_192, 8_193]
    assert [part.stop - part.start for part in scoring._pieces(7, 7)] == [7]
    assert list(scoring._pieces(0, 7)) == []
    for count in range(1, 200):
        sizes = [part.stop - part.start for part in scoring._pieces(count, 7)]
        assert (sum(sizes), max(sizes) <= 7, max(sizes) - min(sizes) <= 1) == (count, True, True)


class Days:
    """A clock that a test turns."""

    def __init__(self):
        self.day = "2024-05-01"

    def __call__(self):
        return self.day


def test_a_budget_for_each_asker_and_day_outlives_a_restart(tmp_path):
    clock, said = Days(), []

    def started(asker="bank", most=100):  # a party that was just started
        return people.Gate(tmp_path / "asked.json", asker, 1, most, said.append, clock)

    assert [started()(60), started()(40)] == [None, None]
    assert started()(1) == ("day", 100, 0)
    assert said == ["refused bank a question about 1 people, by max_people_per_day = 100, 0 are left today"]
    assert started("clinic")(100) is None  # another asker has its own
    assert started(most=110)(20) == ("day", 110, 10)
    assert started(most=110)(10) is None  # what was refused did not count
    assert (tmp_path / "asked.json").stat().st_mode & 0o777 == 0o600
    clock.day = "2024-05-02"
    assert started()(100) is None
    assert started()(1) == ("day", 100, 0)
    for damaged in ("", "{}", "[]", '{"format": 1, "day": "2024-05-02", "asked": {"bank": -1.5}}'):
        (tmp_path / "asked.json").write_text(damaged)
        with pytest.raises(DataError, match=r"'asked.json' in .* can't be read, it was changed or cut off; remove it"):
            started()(1)  # a budget that can't be read is none


def test_an_asker_hears_why_it_is_not_answered_and_may_ask_again(tmp_path):
    model, parties = trained()
    served, questions = {"clinic": None, "shop": None}, [[f"{row:05}" for row in range(n)] for n in (12, 1, 9, 8)]
    whole = [value for value, *_ in curious(model, parties, served, questions)["bank"]]
    gate = people.Gate(tmp_path / "asked.json", "bank", 2, 20, today=Days())
    results = curious(model, parties, served, questions, {"shop": gate})
    answered = [value for value, *_ in results["bank"]]
    np.testing.assert_array_equal(answered[0][0], whole[0][0])
    assert answered[1:3] == [
        "party 'shop' answers about 2 people at a time at least, 1 were asked about; ask about more at once, or ask it "
        "to lower min_prediction in its [policy]",
        "party 'shop' answers 'bank' about 20 people a day at most, 8 are left today (UTC) and 9 were asked about; ask "
        "tomorrow, or ask it to raise max_people_per_day in its [policy]",
    ]
    np.testing.assert_array_equal(answered[3][0], whole[3][0])  # the line is still up
    for row in (1, 2):  # the clinic took part, and what it added is hidden by the noise of the shop
        assert (results["bank"][row][2] != whole[row][0]).all()
    assert (results["clinic"], results["shop"]) == (30, 20)  # people that each of them answered about


def test_a_run_of_scoring_ends_after_so_many_rounds():
    model, parties = trained(names=("bank", "shop"))
    assert len(curious(model, parties, {"shop": None}, [["00001"]] * 2, rounds=3)["bank"]) == 2
    with pytest.raises(PartyFailed, match="party 'shop' failed with RunFailed"):
        curious(model, parties, {"shop": None}, [["00001"]] * 4, rounds=3)


@pytest.mark.parametrize("answer", [("day", 1), ("never", 1, 1), ("day", "1", 1), ()])
def test_a_refusal_that_is_none_is_refused(answer):
    async def ask(net):
        asker = await Asker.open(net, ScoringTerms("bank", "plain", "tree"), LinearScorer((np.zeros((2, 1)), None)))
        await asker.scores(["1"], np.zeros((1, 2)), np.ones(1, dtype=bool))

    async def lie(net):
        await net.recv("bank", "scoring")
        await net.send("bank", "scoring", answer)

    with pytest.raises(ProtocolError, match="party 'shop' must answer about 1 people at step 'scoring'"):
        cn.Simulation().run({"bank": (ask, ()), "shop": (lie, ())})
