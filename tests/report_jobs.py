"""Jobs for tests of reports: trained under the virtual clock, with every party's version in its own folder."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from functools import partial

import numpy as np

import colonnade as cn
from colonnade.alignment.protocol import align
from colonnade.inspection.recorded import Recorder
from colonnade.jobs.init import init
from colonnade.jobs.job_file import read_job
from colonnade.jobs.party_file import read_party
from colonnade.jobs.tree_part import grows_trees, own_part
from colonnade.objective import metrics
from colonnade.objective.losses import loss
from colonnade.progress import History
from colonnade.service.keeping import keep_version
from colonnade.service.table_source import TableSource
from colonnade.service.training import take_part
from colonnade.tables import data
from test_job import complete

PEOPLE, ODD = 260, "<script>"
RNG = np.random.default_rng(4)
TABLE = {name: RNG.standard_normal(PEOPLE) * scale + 3 for name, scale in
         (("age", 12.0), (ODD, 1.0), ("spend", 80.0), ("visits", 4.0))}  # fmt: skip
Z = (TABLE["age"] - 3) / 12 + (TABLE["spend"] - 3) / 60 + 0.5 * (TABLE[ODD] - 3)
LABELS = {
    "logistic": np.where(Z + RNG.logistic(size=PEOPLE) > 0, "repaid", "lost"),
    "softmax": np.array(["low", "middle", "high"])[np.digitize(Z + 0.3 * RNG.standard_normal(PEOPLE), [-0.7, 0.7])],
    "ridge": (10 + Z + 0.5 * RNG.standard_normal(PEOPLE)).round(3),
    "poisson": RNG.poisson(np.exp(0.4 * Z)),
}
LABELS["svm"] = LABELS["kernel"] = LABELS["trees"] = LABELS["logistic"]


def write_tables(folder, kind):
    """The bank has labels and two columns, the shop two others; not everybody is at both."""
    parts = {"bank": (["age", ODD], range(240)), "shop": (["spend", "visits"], range(20, PEOPLE))}
    for name, (columns, people) in parts.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *columns, *(["label"] if name == "bank" else [])])
            for one in np.random.default_rng(1).permutation(np.array(people)):
                cells = [f"{TABLE[column][one]:.5f}" for column in columns]
                writer.writerow([f"{one:04}", *cells, *([LABELS[kind][one]] if name == "bank" else [])])


def trained(tmp_path, kind="logistic", protection=None, part=0.25, more=lambda text: text):
    """A federation whose job has ended: its folder, the job, and each party's file."""
    folder = tmp_path / "loans"
    init(folder, ("bank", "shop"), model=kind, protection=protection)
    text = (folder / "job.toml").read_text()
    text = re.sub(r"(\[validation\]\npart = )[\d.]+", rf"\g<1>{part}", text)
    text = re.sub(r"# \[validation\](.*)\n# part = [\d.]+", rf"[validation]\1\npart = {part}", text) if part else text
    (folder / "job.toml").write_text(complete(more(text)))
    write_tables(folder, kind)
    job = read_job(folder / "job.toml")
    parties = {name: read_party(folder / f"{name}.toml", job) for name in job.parties}
    parties = {
        name: replace(party, policy=replace(party.policy, max_directions=1000.0)) for name, party in parties.items()
    }
    run(job, parties)
    return folder, job, parties


def run(job, parties, tell=lambda _: None):
    """Train, and put what every party has of it on its shelf, with what it has recorded."""
    recorders = {name: Recorder(job, party) for name, party in parties.items()}
    histories = {name: History(metrics.metric_name(loss(job.loss)), 1, 0) for name in parties}
    trees, done = grows_trees(job), {}
    sources = {name: TableSource(data.load(party.data), party.prepare, trees=trees) for name, party in parties.items()}

    def program_of(name):
        async def program(net):
            own = lambda prepared: own_part(job, parties[name], prepared.columns, prepared.categories)  # noqa: E731
            check = partial(parties[name].policy.check_part, name)
            net = recorders[name].around(net)
            done[name] = await take_part(net, job, sources[name], align, check, own=own)

        return program

    def observe(name, seconds, value):
        histories[name].observe(name, seconds, value)

    cn.Simulation().run({name: (program_of(name), ()) for name in parties}, observe)
    for name, party in parties.items():
        whole = replace(done[name], judged=histories[name].held_out.get(name))
        keep_version(job, party, sources[name], whole, histories[name].records, recorders[name], tell)
