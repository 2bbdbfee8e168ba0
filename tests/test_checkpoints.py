"""States on disk: whole or not at all, of one job, and the ones before stay whatever happens."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import CheckpointError
from colonnade.jobs.checkpoints import Checkpoints

JOB = b"a job"


def state(k, size=1000):
    return (True, (0.5, float("inf"), None, False, k), (np.full((size, 1), float(k)), 1.0, None), ())


def value(kept, version):
    return kept.load(version)[2][0][0, 0]


def test_what_was_saved_is_there_again(tmp_path):
    kept = Checkpoints(tmp_path / "kept", JOB)
    assert kept.versions() == ()
    for version in range(1, 7):
        kept.save(version, state(version))
    assert kept.versions() == (4, 5, 6)
    assert [value(Checkpoints(tmp_path / "kept", JOB), version) for version in (4, 5, 6)] == [4.0, 5.0, 6.0]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (tmp_path / "kept").iterdir())
    kept.clear()
    assert kept.versions() == ()
    with pytest.raises(CheckpointError, match="version 6 in 'kept' is not there any more; start again"):
        kept.load(6)


def test_later_versions_of_an_earlier_run_do_not_crowd_out_new_ones(tmp_path):
    kept = Checkpoints(tmp_path, JOB)
    for version in (8, 9, 10):
        kept.save(version, state(version))
    for version in range(1, 5):
        kept.save(version, state(version))
    assert kept.versions() == (2, 3, 4, 8, 9, 10)
    kept.forget(3)
    assert kept.versions() == (2, 3)
    kept.forget(0)
    assert kept.versions() == ()


def test_a_file_is_read_again_where_it_looks_different(tmp_path):
    kept = Checkpoints(tmp_path, JOB)
    kept.save(1, state(1, size=300_000))  # more than a piece
    assert kept.versions() == (1,)
    assert value(kept, 1) == 1.0
    path = tmp_path / "1.kept"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, (1.0, 1.0))
    assert kept.versions() == ()


def test_a_folder_that_is_none_is_said(tmp_path):
    (tmp_path / "kept").touch()
    with pytest.raises(CheckpointError, match="the folder 'kept' for what is kept can't be read: Not a directory"):
        Checkpoints(tmp_path / "kept", JOB).versions()


def test_another_jobs_states_are_no_versions(tmp_path):
    Checkpoints(tmp_path, JOB).save(1, state(1))
    assert Checkpoints(tmp_path, b"another job").versions() == ()


@settings(deadline=None, max_examples=40)
@given(st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_a_damaged_file_is_no_version(tmp_path_factory, where, change):
    folder = tmp_path_factory.mktemp("kept")
    kept = Checkpoints(folder, JOB)
    for version in (1, 2):
        kept.save(version, state(version, 5))
    path = folder / "2.kept"
    content = bytearray(path.read_bytes())
    content[int(where * len(content))] ^= change
    path.write_bytes(content)
    assert kept.versions() == (1,)
    path.write_bytes(content[: int(where * len(content))])
    assert kept.versions() == (1,)


def test_a_full_disk_loses_nothing_of_the_versions_before(tmp_path):
    """A limit on the size of files stands in for the disk: writes fail half way, as there."""
    kept = Checkpoints(tmp_path / "kept", JOB)
    kept.save(1, state(1))
    before = (tmp_path / "kept" / "1.kept").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(
            CheckpointError, match=f"version 2 can't be kept in 'kept': {os.strerror(errno.EFBIG)}; the"
        ):
            kept.save(2, state(2, 100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert kept.versions() == (1,)
    assert (tmp_path / "kept" / "1.kept").read_bytes() == before
    assert sorted(os.listdir(tmp_path / "kept")) == ["1.kept"]
    kept.save(2, state(2))
    assert kept.versions() == (1, 2)


WRITER = """
import sys
from pathlib import Path
import numpy as np
from colonnade.jobs.checkpoints import Checkpoints
kept = Checkpoints(Path(sys.argv[1]), b"a job")
for version in range(1, 100000):
    kept.save(version, (np.full(200_000, float(version)),))
"""


def test_kill_in_the_middle_of_saving_leaves_whole_versions(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    for pause in (0.0, 0.013, 0.029):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], env=environment)
        kept = Checkpoints(tmp_path, JOB)
        until = time.monotonic() + 300
        while len(kept.versions()) < 2 and time.monotonic() < until and writer.poll() is None:
            time.sleep(0.01)
        time.sleep(pause)
        writer.kill()
        writer.wait()
        versions = kept.versions()
        assert len(versions) >= 2
        for version in versions:
            (content,) = kept.load(version)
            assert (content == float(version)).all()
        kept.clear()
