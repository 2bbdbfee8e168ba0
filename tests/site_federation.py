"""Three clinics with the same columns about different people: their tables, jobs and programs for tests."""

from __future__ import annotations

import csv

import numpy as np

from colonnade.data.identity import Identity
from colonnade.remote.terms import RunTerms
from colonnade.service.agreeing import share_out
from colonnade.settings import toml
from colonnade.settings.settings import check
from colonnade.site_jobs.programs import answer, ask
from colonnade.site_jobs.seat import Seat, Voucher
from colonnade.site_jobs.site_job_file import SITE_JOB, described_sites
from colonnade.tables import data

CLINICS = ("clinic-a", "clinic-b", "clinic-c")
HEAD = """\
version = 1
name = "trial"
disclosed = []
[sites.clinic-a]
[sites.clinic-b]
[sites.clinic-c]
[sites.hub]
address = "127.0.0.1:7443"
asks = true
rows = false
"""
MODEL = "[model]\nhidden = 4\n"
SHORT = "[algorithm]\nrounds = 6\nbatch = 20\nevaluate_every = 3\nseed = 5\n"
RUN = "[run]\nminimum_sites = 2\npatience = 60\n"


def job_of(*, head=HEAD, model=MODEL, algorithm=SHORT, run=RUN, more=""):
    text = head + more + model + algorithm + run
    return described_sites(toml.parse(text.encode(), SITE_JOB, "job.toml"))


def write_clinic(path, rows, seed, ward=("north", "south"), names=("age", "bmi", "ward", "outcome")):
    """Numbers on different scales, some of them missing, a category, and a label that follows from them."""
    rng = np.random.default_rng(seed)
    age, bmi = rng.normal(50 + 3 * seed, 12, rows), rng.normal(27, 4, rows)
    place = rng.choice(ward, rows)
    z = (age - 50) / 12 - (bmi - 27) / 4 + (place == ward[0])
    outcome = np.where(z + rng.logistic(size=rows) > 0, "ill", "well")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *names])
        for row in range(rows):
            known = "" if row % 17 == 3 else f"{age[row]:.4f}"
            writer.writerow([f"{path.stem}-{row}", known, f"{bmi[row]:.4f}", place[row], outcome[row]])


def write_clinics(folder, rows=(90, 70, 80)):
    for seed, (name, count) in enumerate(zip(CLINICS, rows, strict=True)):
        write_clinic(folder / f"{name}.csv", count, seed)


def table_of(path, **more):
    return data.load(check({"source": str(path), "id": "id", "label": "outcome", **more}, data.SECTION))


def seat_of(job, name, folder, identity=None, min_rows=5, network=None):
    table = table_of(folder / f"{name}.csv")
    parts = share_out(np.arange(table.rows), job.validation, job.algorithm.seed)
    return Seat(job, name, table, parts, Voucher(), identity or Identity(), min_rows, network)


def digest_of(job):
    return RunTerms.of(job.parties, job.agreed).digest


def programs(job, folder, found, keeper=None, told=None, server=ask, site=answer):
    """Return {name: (program, its arguments)}, which leave how they ended in `found`."""
    seats = {name: seat_of(job, name, folder) for name in job.sites}
    said = (lambda text: None) if told is None else told.append

    def program_of(name):
        async def program(net):
            if name == job.server:
                found[name] = await server(net, job, seats.get(name), digest_of(job), keeper=keeper, tell=said)
            else:
                found[name] = await site(net, job, seats[name], digest_of(job))

        return program

    return {name: (program_of(name), ()) for name in job.parties}
