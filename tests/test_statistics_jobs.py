"""Statistics of a job: what the file says, what it discloses, and what each organisation finds in its folder."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import colonnade as cn
from colonnade.cli.main import main
from colonnade.errors import ColonnadeWarning, OptionError
from colonnade.jobs import model_file
from colonnade.jobs.job_file import JOB, job_of, read_job
from colonnade.jobs.party_file import read_party
from colonnade.leaks import CORRELATIONS, COVARIANCES, CURVATURES, MEAN, SCORES, SIGNALS
from colonnade.ledger.verify import verify
from colonnade.remote.signatures import checker
from colonnade.settings import toml
from colonnade.tables import data
from test_federation import federation, run_all, shelved
from test_job import ENCRYPTED, GOOD, complete
from test_job_training import PEOPLE, RNG, THIRD, Source, X, Y, job_for, run

ASKED = "\n[run]\nstatistics = true\n"


def told(text, *what):
    """The same job with more in its list."""
    return text.replace(
        '"objective and metric"]', ", ".join(f'"{one}"' for one in (*what, "objective and metric")) + "]"
    )


def job(text):
    return job_of(toml.parse(text.encode(), JOB, "job.toml"))


def test_what_is_disclosed():
    assert not job(GOOD).statistics
    assert job(told(GOOD, CORRELATIONS, COVARIANCES) + ASKED).statistics
    with pytest.raises(OptionError, match=r'FedBCD on this job discloses "correlations of rotated columns, .*", "corr'):
        job(GOOD + ASKED)
    with pytest.raises(OptionError, match="this job does not disclose 'correlations of rotated columns"):
        job(told(GOOD, CORRELATIONS))
    sealed = job(told(ENCRYPTED, CURVATURES, CORRELATIONS, COVARIANCES) + '\n[sum]\nkind = "encrypted"\n' + ASKED)

    def more(asked):
        return {*asked.disclosed()} - {*replace(asked, statistics=False).disclosed()}

    assert more(sealed) == {CURVATURES, CORRELATIONS, COVARIANCES}
    assert more(replace(sealed, loss="square")) == {CORRELATIONS, COVARIANCES}  # where all curvatures are 1
    # two label holders hear the mean of each other's labels
    assert more(replace(sealed, holders=sealed.parties)) == {CURVATURES, CORRELATIONS, COVARIANCES, MEAN}
    # signals say how large scores are, and more, and every label
    open_ = replace(sealed, sum="pairwise", holders=sealed.parties)
    assert {SIGNALS, SCORES} <= {*open_.disclosed()}
    assert more(open_) == {CORRELATIONS, COVARIANCES}


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"logistic"', '"softmax"', "key run.statistics: models of the kinds logistic, .* softmax has none"),
        ('"logistic"', '"svm"', "key run.statistics: .* svm has none"),
        ('"FedBCD"\nlocal_steps = 3', '"FDML"', "key run.statistics: .* FDML has none"),
        ("l2 = 0.01", 'penalty = "nonconvex"', "key run.statistics: they need penalty 'l2' without l1, .* 'nonconvex'"),
        ("[run]", "[sum]\nkey_bits = 3072\n[run]", "key sum.key_bits: keys have one length since .*; remove it"),
        ("statistics = true", "statistics = 1", "key run.statistics: must be true or false"),
    ],
)
def test_wrong_jobs(old, new, sentence):
    text = told(GOOD, CORRELATIONS, COVARIANCES) + ASKED
    assert old in text
    with pytest.raises(OptionError, match=sentence):
        job(text.replace(old, new))


def test_too_many_columns_leave_a_model_without_statistics():
    """Everybody is told, and nobody loses what was trained."""
    text = THIRD + '\n[alignment]\nkind = "none"\n' + ASKED
    wide = RNG.standard_normal((PEOPLE, PEOPLE))
    blocks = {"bank": X[:, :2], "clinic": X[:, 2:4], "shop": wide}
    labels = np.array(Y, dtype=object)
    given = {name: Source(block, None, labels if name == "bank" else None) for name, block in blocks.items()}
    with pytest.warns(ColonnadeWarning, match="the model is trained and has no statistics: the parties have 305 col"):
        results, _ = run(job_for(text), given)
    assert {name: result.statistics for name, result in results.items()} == dict.fromkeys(blocks)
    assert results["shop"].state[0].shape == (PEOPLE, 1)


def test_between_organisations(tmp_path, capsys):
    """From one command each to a file each; the numbers are the estimator's on the same rows."""
    names = ("bank", "clinic", "shop")
    folder = federation(tmp_path, names, 'kind = "BlockNewton"')
    text = (folder / "job.toml").read_text().replace("part = 0.2 ", "part = 0.0 ")
    text = text.replace("statistics = false", "statistics = true")
    (folder / "job.toml").write_text(complete(text))
    said = run_all(folder, names)
    assert "the statistics of its coefficients are" in said["clinic"]
    # the parts of the model, and the common rows, in one place
    reading = read_job(folder / "job.toml")
    parts = {name: model_file.load(folder / f"{name}-files", name) for name in names}
    tables = {name: data.load(read_party(folder / f"{name}.toml", reading).data) for name in names}
    ids = sorted(set.intersection(*(set(map(str, table.ids.tolist())) for table in tables.values())))
    parties = []
    together = tmp_path / "together"
    together.mkdir()
    for name, table in tables.items():
        shutil.copy(shelved(folder, name) / f"{name}.colonnade.npz", together)
        where = {str(one): row for row, one in enumerate(table.ids.tolist())}
        taken = table.take(np.array([where[one] for one in ids]))
        learned = parts[name].prepared
        parties.append(cn.Party(name, learned.apply(taken), taken.label, columns=parts[name].columns))
    model = cn.load(together)
    model.verbose = 0
    expected = model.statistics(*parties)
    for name in names:
        with (shelved(folder, name) / "statistics.csv").open() as file:
            rows = list(csv.DictReader(file))
        own = [row for row in rows if row["name"] != "intercept"]
        assert [row["name"] for row in own] == list(parts[name].columns)
        for column in ("coefficient", "standard_error", "z", "p", "low", "high"):
            values = [float(row[column]) for row in own]
            np.testing.assert_allclose(values, getattr(expected.coefficients[name], column), rtol=1e-6)
        assert len(rows) - len(own) == (name == "bank")  # the intercept is the label holder's
        assert (shelved(folder, name) / "statistics.json").exists() == (name == "bank")
    summary = json.loads((shelved(folder, "bank") / "statistics.json").read_text())
    assert summary["deviance"] == pytest.approx(expected.deviance)
    assert (summary["df"], summary["auc"]) == (expected.df, pytest.approx(expected.auc))
    # the ledger has it all, and says what left
    capsys.readouterr()
    for name in names:
        assert main(["ledger", "verify", str(folder / "job.toml"), "--as", name]) == 0
    shop = read_party(folder / "shop.toml", reading)
    sent = {kind for _, kind in verify(shop.ledger, checker(shop.certificates.certificate)).by_kind}
    assert {"block size", "sealed products", "product shares", "pace"} <= sent
    assert "sealed columns" not in sent  # the last of the order encrypts nothing
