"""The walk of docs/two-companies.md with the files that people really have: from init to the report in 15 commands.

The bank exports from an old system: Windows letters, semicolons, decimal commas, German dates, spellings of one word in
several ways, gaps. It asks about new people through its own query.
"""

from __future__ import annotations

import csv
import re

import numpy as np
import pytest

from colonnade.cli.main import main
from commands import start as command
from ports import free_ports
from test_federation import LIMIT, let_out, shelved
from test_job import complete

PEOPLE = 500
MOST = 15  # commands
QUERY = "SELECT * EXCLUDE (einkommen), coalesce(einkommen, 0) / 12 AS monatlich FROM source"


def write_files(folder):
    rng = np.random.default_rng(11)
    age, spend = rng.normal(45, 12, PEOPLE), rng.gamma(2, 50, PEOPLE)
    kinds = rng.choice(["permanent", "temporary", "self-employed"], PEOPLE, p=[0.6, 0.3, 0.1])
    days = rng.integers(0, 3000, PEOPLE)
    z = (age - 45) / 12 - 1.5 * (kinds == "temporary") - (spend - 100) / 70
    label = np.where(z + rng.logistic(size=PEOPLE) > 0, "repaid", "lost")

    def written(row, kind):
        joined = np.datetime64("2015-01-01") + int(days[row])
        day = joined.astype(object).strftime("%d.%m.%Y")
        income = "" if row % 17 == 0 else f"{12 * (2000 + 10 * age[row]):.2f}".replace(".", ",")
        return [f"{row:05}", f"{age[row]:.1f}".replace(".", ","), income, kind, day]

    head = ["id", "alter", "einkommen", "verhältnis", "seit"]
    with (folder / "bank.csv").open("w", newline="", encoding="windows-1252") as file:
        table = csv.writer(file, delimiter=";")
        table.writerow([*head, "label"])
        for row in rng.permutation(PEOPLE)[:460]:
            kind = (
                {0: "permanant", 1: "PERMANENT"}.get(row % 40, kinds[row]) if kinds[row] == "permanent" else kinds[row]
            )
            table.writerow([*written(row, kind), label[row]])
    with (folder / "new.csv").open("w", newline="", encoding="windows-1252") as file:
        table = csv.writer(file, delimiter=";")
        table.writerow(head)
        table.writerows(written(row, "Minijob" if row % 10 == 0 else kinds[row]) for row in range(100))
    (folder / "wrong.csv").write_text("id;alter;einkommen\n00001;x;1\n")
    with (folder / "shop.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "spend", "visits", "seen"])
        for row in rng.permutation(PEOPLE)[:470]:
            table.writerow([f"{row:05}", f"{spend[row]:.2f}", rng.integers(0, 12), f"2026-0{1 + row % 9}-11"])


class Walk:
    """The commands of a walk, counted."""

    def __init__(self, folder):
        self.folder, self.count = folder, 0

    def start(self, *line):
        self.count += 1
        verb, party, *rest = line
        action, verb = ([verb.split()[1]], verb.split()[0]) if " " in verb else ([], verb)
        rest = [str(self.folder / one) if one.endswith(".csv") else one for one in rest]
        return command(verb, *action, str(self.folder / "job.toml"), "--as", party, *rest)

    def run(self, *line):
        process = self.start(*line)
        return self.end(process)

    def end(self, process):
        said = process.communicate(timeout=LIMIT)[0]
        return process.returncode, re.sub(r"[\s│┃]+", " ", said)


def edit(path, *changes):
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def test_from_init_to_the_report_with_messy_files(tmp_path, capsys):
    folder = tmp_path / "loans"
    walk = Walk(folder)
    walk.count += 1
    assert main(["init", str(folder), "--parties", "bank,shop", "--protection", "masked"]) == 0
    write_files(folder)
    ports = free_ports(2)
    edit(folder / "job.toml", *((f"127.0.0.1:{7443 + k}", f"127.0.0.1:{port}") for k, port in enumerate(ports)),
         ("statistics = false", "statistics = true"))  # fmt: skip
    (folder / "job.toml").write_text(complete((folder / "job.toml").read_text()))
    for name in ("bank", "shop"):
        let_out(folder, name, 1000)

    code, said = walk.run("check", "bank")
    assert (code, 'is not UTF-8 text; write encoding = "latin-1" under [data]' in said) == (1, True), said
    written = f'sql = "{QUERY}"\ndecimal = ","\nencoding = "latin-1"'
    edit(folder / "bank.toml", ('# encoding = "windows-1252"', written))
    edit(folder / "bank.toml", ('serve_people = "trained"', 'serve_people = "all"'))
    edit(folder / "shop.toml", ('serve_people = "trained"', 'serve_people = "all"'))
    code, said = walk.run("check", "bank")
    assert "460 rows, 7 columns after preparation" in said, said
    assert "'PERMANENT'" in said
    assert "'permanant'" in said
    assert "WRONG" not in said
    assert code in (0, 3)  # the partner that listens is seen; nobody is up yet

    running = [walk.start("run", name, "--quiet") for name in ("bank", "shop")]
    for process in running:
        code, said = walk.end(process)
        assert code == 0, said
    kept = shelved(folder, "bank")
    joint = list(csv.DictReader((kept / "categories.csv").read_text().splitlines()))
    assert [(one["name"], one["reference"]) for one in joint] == [("verhältnis", "permanent")]
    names = [
        one["name"] for one in csv.DictReader((shelved(folder, "bank") / "statistics.csv").read_text().splitlines())
    ]
    assert names == [
        "alter", "verhältnis=PERMANENT", "verhältnis=permanant", "verhältnis=self-employed", "verhältnis=temporary",
        "seit", "monatlich", "intercept",
    ]  # fmt: skip
    assert walk.run("model list", "bank")[0] == 0
    code, said = walk.run("model show", "shop")
    assert (code, "seen" in said) == (0, True)
    code, said = walk.run("ledger show", "shop")
    assert (code, "what left shop in run 1 (training," in said, "who is in common" in said) == (0, True, True)
    assert walk.run("ledger verify", "shop")[0] == 0

    serving = walk.start("serve", "shop", "--once")
    code, said = walk.run("predict", "bank", "--data", "wrong.csv", "--out", "scores.csv")
    assert (code, "column 'alter' of the result of sql over wrong.csv holds text here" in said) == (1, True), said
    assert serving.poll() is None  # a mistake of the bank's ends nobody else's service
    code, said = walk.run("predict", "bank", "--data", "new.csv", "--out", "scores.csv")
    assert code == 0, said
    assert "verhältnis: 10 of 100 people have 1 value that training never saw ('Minijob')" in said
    assert "taken for 'permanent', the reference" in said
    assert walk.end(serving)[0] == 0
    assert len((folder / "scores.csv").read_text().splitlines()) == 101

    code, said = walk.run("drift", "bank", "--data", "new.csv")
    assert (code, "verhältnis" in said) == (0, True), said
    code, said = walk.run("report", "bank")
    assert code == 0, said
    page = (kept / "report.html").read_text()
    assert "verhältnis=temporary" in page
    assert walk.count <= MOST


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            ("run", "job.toml", "--as", "bank"),
            "bank was stopped here, and nobody else; its partners hear of it and end",
        ),
        (("serve", "job.toml", "--as", "shop"), "shop was stopped here and serves no longer; nobody else was stopped"),
        (("predict", "job.toml", "--as", "bank", "--out", "x.csv"), "bank was stopped here, and nobody else"),
        (("demo",), "all three organisations of the demo were stopped"),
        (("init", "loans", "--parties", "a,b"), "nothing else was stopped"),
    ],
)
def test_an_interrupted_command_says_who_was_stopped(monkeypatch, capsys, line, sentence):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("colonnade.cli.organisation.run_command", stop)
    monkeypatch.setattr("colonnade.cli.demo.run_demo", stop)
    assert main(list(line)) == 130
    assert f"colonnade: interrupted; {sentence}" in capsys.readouterr().err
