"""A model in use: scores by id equal those of the estimator, unknown people are said, and peers are not believed."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest
import scipy.sparse as sp

import colonnade as cn
from colonnade.algorithms.scorers import KernelScorer, LinearScorer
from colonnade.blocks.phases import Layout
from colonnade.cli.main import main
from colonnade.errors import DataError, ProtocolError
from colonnade.federation import scoring, serving
from colonnade.federation.scoring import Asker, Directory, Terms, serve
from colonnade.ids import canonical

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
    if not isinstance(model, cn.KernelClassifier):
        return LinearScorer(model._states[name], model._combines)
    return KernelScorer(name, model.kernel, Layout(model.holders_, model.features, model._block), model._states[name])


def score(model, parties, ids, asked, on=None):
    """What the asker hears about people."""
    terms = Terms("bank", "pairwise", "tree")

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
    terms, here = Terms("bank", "pairwise", "tree"), np.ones(1, bool)

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
            Terms("bank", "plain", "tree"),
            LinearScorer((np.zeros((2, 1)), None), "scores"),
            lambda ids: (np.zeros((len(ids), 2)), np.ones(len(ids), bool)),
        )

    with pytest.raises(ProtocolError, match=f"^party 'bank' {sentence}$"):
        cn.Simulation().run({"bank": (ask, ()), "shop": (answer, ())})


# -- the file of scores ------------------------------------------------------------------------------------------------

SCORES = serving.Scores(
    ["007", 'a "b", c', "Zoë"],
    np.array([True, False, True]),
    {"prediction": np.array(["good", "bad", "it's"]), 'p("x")': np.array([0.25, 0.5, 1 / 3])},
)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_scores_are_written(tmp_path, ending):
    path = tmp_path / f"it's.{ending}"
    serving.write(SCORES, path)
    with duckdb.connect() as database:
        found = database.sql(f"SELECT * FROM '{tmp_path}/*.{ending}'" if ending == "parquet" else
                             f"SELECT * FROM read_csv('{tmp_path}/*.csv', types={{'id': 'VARCHAR'}})")  # fmt: skip
        assert found.columns == ["id", "known", "prediction", 'p("x")']
        assert found.fetchall() == [
            ("007", True, "good", 0.25), ('a "b", c', False, None, None), ("Zoë", True, "it's", 1 / 3)
        ]  # fmt: skip


@pytest.mark.parametrize("column", [np.arange(3), np.arange(3) / 7, np.array([True, False, True])])
def test_predictions_of_every_kind_are_written(tmp_path, column):
    serving.write(serving.Scores(["1", "2", "3"], np.array([True, True, False]), {"prediction": column}),
                  tmp_path / "scores.parquet")  # fmt: skip
    with duckdb.connect() as database:
        found = database.sql(f"SELECT prediction FROM '{tmp_path}/scores.parquet'").fetchall()
    assert [one for (one,) in found] == [*column[:2].tolist(), None]


def test_classes_that_differ_in_case_only_keep_their_names(tmp_path):
    chances = {"p(A)": np.ones(1), "p(a)": np.zeros(1)}
    scores = serving.Scores(["1"], np.array([True]), {"prediction": np.array(["A"]), **chances})
    serving.write(scores, tmp_path / "scores.csv")
    assert (tmp_path / "scores.csv").read_text() == "id,known,prediction,p(A),p(a)\n1,true,A,1.0,0.0\n"


def test_nobody_to_score(tmp_path):
    empty = serving.Scores([], np.zeros(0, bool), {"prediction": np.zeros(0, "<U4"), "p(a)": np.zeros(0)})
    serving.write(empty, tmp_path / "scores.csv")
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
