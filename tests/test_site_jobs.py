"""Jobs between sites under the virtual clock: the estimator's bits, what all agree on, and who falls silent."""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from colonnade.site_jobs.programs import answer
from site_federation import CLINICS, RUN, job_of, programs, table_of, write_clinics


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
