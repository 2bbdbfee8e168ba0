"""What a notebook shows: the same figures as a terminal, and nothing of anybody's that is read as HTML."""

from __future__ import annotations

import io
import re
from html import unescape

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from rich.table import Table

import colonnade as cn
from colonnade.audit.auditing import Audit
from colonnade.audit.findings import AuditFinding
from colonnade.audit.table import as_table
from colonnade.inference.statistics import Statistics
from colonnade.notebooks.cells import curve, of_rich, table
from colonnade.notebooks.records import ByParty, Course
from colonnade.planning.figures import Forecast, Plan
from colonnade.planning.forecast import Span
from colonnade.planning.trials import LineSpeed

RNG = np.random.default_rng(5)
X = RNG.standard_normal((200, 4))
Y = (X @ [1.0, -2.0, 0.5, 1.5] + RNG.standard_normal(200) > 0).astype(int)
ODD = "<b>&x"


def parties():
    return [cn.Party("bank", X[:, :2], Y, columns=[ODD, "b"]), cn.Party("shop", X[:, 2:])]


@pytest.fixture(scope="module")
def fitted():
    return cn.LogisticRegression(l2=0.1, protection="plain", verbose=0).fit(*parties())


def texts(shown):
    return [unescape(one) for one in re.findall(r">([^<>]+)<", shown)]


def test_a_party_shows_counts_and_names_and_no_value():
    shown = parties()[0]._repr_html_()
    assert "<b>" not in shown
    assert f"2: {ODD}, b" in texts(shown)
    assert {"party bank", "200", "200 of 200 rows"} <= set(texts(shown))
    for value in X[:5].ravel():
        assert f"{value:.3f}" not in shown


def test_a_site_shows_the_same():
    assert {"site site1", "67"} <= set(texts(cn.split_rows(X, Y, into=3)[0]._repr_html_()))


def test_a_model_shows_its_options_before_and_its_training_after(fitted):
    before = cn.LogisticRegression(l2=0.1)._repr_html_()
    assert "not fitted" in before
    shown = texts(fitted._repr_html_())
    assert repr(fitted) in shown
    sent = fitted.traffic_["shop"]
    assert {"bank (labels)", "shop", f"{sent.messages:,}", f"{sent.bytes:,}"} <= set(shown)
    assert any(f"loss {fitted.history_[-1]['loss']:.6g}" in one and "protection plain" in one for one in shown)


def test_a_model_that_was_loaded_shows_what_it_knows(fitted, tmp_path):
    fitted.save(tmp_path / "kept")
    shown = texts(cn.load(tmp_path / "kept")._repr_html_())
    assert {"bank (labels)", "shop", "2"} <= set(shown)


def test_a_sealed_model_shows_no_curve():
    shown = cn.LogisticRegression(l2=0.1, protection="sealed", verbose=0).fit(*parties())._repr_html_()
    assert "protection sealed" in shown
    assert "<svg" not in shown


def test_histories_and_traffic_stay_a_list_and_a_dict(fitted):
    assert isinstance(fitted.history_, list)
    assert isinstance(fitted.traffic_, dict)
    shown = texts(fitted.history_._repr_html_())
    assert {"epoch", "loss", "auc", f"{fitted.history_[-1]['bytes']:,}"} <= set(shown)
    steps = texts(fitted.traffic_["bank"]._repr_html_())
    assert set(fitted.traffic_["bank"].by_step) <= set(steps)
    assert f"{fitted.traffic_['shop'].bytes:,}" in texts(fitted.traffic_._repr_html_())


def test_long_histories_are_shortened():
    course = Course({"epoch": k, "loss": 1.0 / (k + 1), "metric": 0.5, "metric_name": "auc"} for k in range(100))
    shown = course._repr_html_()
    assert shown.count("<tr>") < 20
    assert {"0", "99", "…"} <= set(texts(shown))
    assert texts(Course()._repr_html_()) == ["no evaluation"]
    assert texts(ByParty()._repr_html_()) == ["party", "messages", "bytes", "rounds"]


def test_statistics_show_the_table_of_the_terminal(fitted):
    found = fitted.statistics(*parties())
    assert isinstance(found, Statistics)
    shown = texts(found._repr_html_())
    assert ODD in shown
    for row in found.coefficients["bank"]:
        assert f"{row.coefficient:.4g}" in shown


def test_units_in_brackets_are_names_and_no_colours():
    """`rich` takes "[mg]" for the name of a style, and ends at a "[/kg]" that closes nothing."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((200, 2))
    frame = pd.DataFrame(X, columns=["dose [mg]", "costs [/month]"])
    bank = cn.Party("bank", frame, X[:, 0] + rng.logistic(size=200) > 0)
    model = cn.LogisticRegression(verbose=0, protection="plain").fit(bank)
    found = model.statistics(bank)
    for shown in (str(found), " ".join(texts(found._repr_html_()))):
        assert "dose [mg]" in shown
        assert "costs [/month]" in shown
    one = AuditFinding("guess", "a paper", "shop", "bank", "columns", "nothing", "AUC", 0.9, 0.5, "by chance",
                       "costs [/month]", (1, 1), "plain")  # fmt: skip
    console = Console(file=io.StringIO(), width=200)
    console.print(as_table(Audit((one,), 0.1)))
    assert "costs [/month]" in console.file.getvalue()


def test_audits_and_searches_show_what_they_print(fitted):
    audit = fitted.audit(*parties(), attacks=["signs of signals"])
    assert "signs of signals" in audit._repr_html_()
    search = cn.search(cn.LogisticRegression(verbose=0), {"l2": [0.1, 1.0]}, *parties(), cv=2)
    assert search._repr_html_() == f"<pre>{repr(search).replace(chr(39), '&#x27;')}</pre>"


def test_plans_show_their_table():
    span = Span(5.0, 5.0, 5.0)
    one = Forecast("BlockNewton", True, span, span, 0.0, 100, {"bank": 2e6, "shop": 1e6})
    plan = Plan(100, {"shop": LineSpeed(0.01, 1e6)}, 1.0, (one,))
    assert {"BlockNewton (the job's)", "3.0 MB", "5.0 s"} <= set(texts(plan._repr_html_()))


def test_tables_of_rich_become_tables_with_markup_read_and_text_escaped():
    rich = Table(title="[bold]all[/bold]")
    rich.add_column("what")
    rich.add_column("how many", justify="right")
    rich.add_row("[red]a & b[/red]", "3")
    shown = of_rich(rich)
    assert texts(shown) == ["all", "what", "how many", "a & b", "3"]
    assert shown.count("text-align:right") == 2


def test_cells_are_escaped():
    assert texts(table((ODD,), [(ODD,)], title=ODD, foot=ODD)) == [ODD] * 4
    assert "<b>" not in table((ODD,), [(ODD,)], title=ODD, foot=ODD)


def test_a_curve_goes_from_its_first_to_its_last_value():
    shown = curve([3.0, float("nan"), 2.0, 1.0], "loss")
    assert "from 3 to 1" in shown
    assert curve([1.0], "loss") == curve([float("nan")] * 5, "loss") == ""
    assert len(curve(np.linspace(1, 0, 10_000).tolist(), "loss")) < 4000
