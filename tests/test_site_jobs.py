"""Jobs between sites under the virtual clock: the estimator's bits, what all agree on, and who falls silent."""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from site_federation import CLINICS, job_of, programs, table_of, write_clinics


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
