"""Jobs of further generalised linear models: what the files say, exposures of a party's own table, and l1."""

from __future__ import annotations

import re

import numpy as np
import pytest

import colonnade as cn
from colonnade.errors import DataError, OptionError
from colonnade.jobs.job_file import JOB, job_of, read_job
from colonnade.jobs.party_file import read_party
from colonnade.settings import toml
from colonnade.tables import data
from test_job import GOOD, complete
from test_job_training import PEOPLE, THIRD, Source, X, job_for, run
from test_protection_jobs import with_word
from test_row_weights import PARTY

ALIGNED = '\n[alignment]\nkind = "none"\n'


def job(model, more=""):
    text = GOOD.replace('kind = "logistic"', model)
    return job_of(toml.parse(complete(text + more).encode(), JOB, "job.toml"))


@pytest.mark.parametrize(
    ("model", "loss", "estimator", "options"),
    [
        ('kind = "gamma"', "gamma", "GammaRegression", {}),
        ('kind = "tweedie"\npower = 1.7', "tweedie 1.7", "TweedieRegression", {"power": 1.7}),
        ('kind = "tweedie"\npower = 1', "poisson", "PoissonRegression", {}),
        (
            'kind = "negative-binomial"\nalpha = 0.5', "negative_binomial 0.5", "NegativeBinomialRegression",
            {"alpha": 0.5},
        ),
        (
            'kind = "quantile"\nlevel = 0.9\nsmoothing = 0.2', "smooth_quantile 0.9 0.2", "QuantileRegression",
            {"level": 0.9, "smoothing": 0.2},
        ),
        ('kind = "logistic"\nl1 = 0.1', "logistic", "LogisticRegression", {"l1": 0.1}),
    ],
)  # fmt: skip
def test_kinds_are_losses_with_their_parameters(model, loss, estimator, options):
    found = job(model)
    assert found.loss == loss
    from colonnade.families import family

    kind = family(found.family)
    assert kind.estimator(loss) == estimator
    made = getattr(cn, estimator)(**kind.estimator_options(found.model, loss))
    assert made.loss == loss
    assert {key: getattr(made, key) for key in options} == options


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ('kind = "gamma"\npower = 1.5', "key model.power: has no meaning for kind 'gamma', only for 'tweedie'"),
        ('kind = "tweedie"\npower = 0.5', "key model.power: the power of the tweedie loss must be .* got 0.5"),
        ('kind = "quantile"', "key model.smoothing: a quantile needs it, in units of the labels"),
        ('kind = "negative-binomial"\nalpha = 0', "key model.alpha: must be > 0"),
        ('kind = "logistic"\nl1 = -1', "key model.l1: must be >= 0"),
        ('kind = "logistic"\nl1 = 1\npenalty = "nonconvex"', "key model.l1: l1 goes with penalty='elasticnet' or 'l2'"),
    ],
)
def test_wrong_kinds(model, sentence):
    with pytest.raises(OptionError, match=sentence):
        job(model)


def test_sealed_training_says_what_it_has():
    for model, sentence in (('kind = "gamma"', "sealed training has no gamma loss"), ('kind = "ridge"\nl1 = 1', "l1")):
        text = with_word("sealed").replace('kind = "logistic"', model)
        with pytest.raises(OptionError, match=sentence):
            job_of(toml.parse(text.encode(), JOB, "job.toml"))


def test_a_job_with_an_exposure_is_the_estimator():
    rng = np.random.default_rng(2)
    exposure = rng.uniform(0.3, 2.0, PEOPLE)
    counts = rng.poisson(exposure * np.exp(0.3 * X[:, 0] - 0.3 * X[:, 4])).astype(float)
    blocks = {"bank": X[:, :2], "clinic": X[:, 2:4], "shop": X[:, 4:]}
    given = {
        name: Source(
            block, None, counts if name == "bank" else None, added=np.log(exposure) if name == "bank" else None
        )
        for name, block in blocks.items()
    }
    asked = job_for(THIRD.replace('kind = "logistic"', 'kind = "poisson"') + ALIGNED, algorithm=cn.BlockNewton())
    results, _ = run(asked, given)
    parties = [
        cn.Party(name, block, **({"y": counts, "exposure": exposure} if name == "bank" else {}))
        for name, block in blocks.items()
    ]
    model = cn.PoissonRegression(l2=0.01, sum=asked.sum, algorithm=cn.BlockNewton(), verbose=0).fit(*parties)
    for name, result in results.items():
        assert result.state[0].tobytes() == model._states[name][0].tobytes()


# -- a party's own file -----------------------------------------------------------------------------------------------


def own_file(tmp_path, more, kind='kind = "poisson"'):
    (tmp_path / "bank.toml").write_text(PARTY.replace('weight = "w"', more))
    (tmp_path / "job.toml").write_text(complete(GOOD.replace('kind = "logistic"', kind)))
    return read_party(tmp_path / "bank.toml", read_job(tmp_path / "job.toml"))


def test_a_party_file_names_an_exposure(tmp_path):
    party = own_file(tmp_path, 'exposure = "years"')
    assert party.data["exposure"] == "years"
    with pytest.raises((DataError, OptionError), match=r"key data\.exposure: .* models with a log link take"):
        own_file(tmp_path, 'exposure = "years"', 'kind = "logistic"')
    own_file(tmp_path, 'offset = "years"', 'kind = "logistic"')


def settings_of(text, folder):
    path = folder / "some.toml"
    path.write_text(text)
    return toml.read(path, data.SECTION)


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_tables_bring_offsets_and_exposures(tmp_path, ending):
    rng = np.random.default_rng(0)
    columns = {"a": rng.normal(size=6), "y": np.arange(6.0), "years": np.arange(1.0, 7.0), "known": rng.normal(size=6)}
    if ending == "csv":
        rows = zip(*columns.values(), strict=True)
        lines = [",".join(columns), *(",".join(repr(float(one)) for one in row) for row in rows)]
        (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    else:
        arrays = {key: columns[key] for key in ("y", "years", "known")}
        np.savez(tmp_path / "t.npz", X=columns["a"][:, None], columns=np.array(["a"]), **arrays)
    text = f'source = "t.{ending}"\nlabel = "y"\nexposure = "years"\noffset = "known"\n'
    for labels in (True, False):
        table = data.load(settings_of(text, tmp_path), labels=labels)
        np.testing.assert_allclose(table.added, np.log(columns["years"]) + columns["known"])
        np.testing.assert_allclose(table.take([1, 3]).added, table.added[[1, 3]])
        assert list(table.columns) == ["a"]
    for wrong, sentence in (
        (text.replace('"years"', '"y"'), "key exposure: column 'y' is the label already"),
        (text.replace('label = "y"\n', ""), "key offset: the party with the labels says the offset of each row"),
        (text.replace('"years"', '"yaers"'), "no (column|array) 'yaers'"),
    ):
        with pytest.raises((DataError, OptionError), match=sentence):
            data.load(settings_of(wrong, tmp_path))
    columns["years"][2] = 0.0
    if ending == "csv":
        (tmp_path / "t.csv").write_text(re.sub(",3.0,", ",0.0,", "\n".join(lines)) + "\n")
        with pytest.raises(DataError, match=r"key exposure: 'years' of t\.csv must be finite and > 0 in every row"):
            data.load(settings_of(text, tmp_path))
