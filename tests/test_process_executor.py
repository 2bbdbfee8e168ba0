"""Workers as processes of this machine: they answer as columns in memory, and may die."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from colonnade.blocks.row_blocks import BLOCK
from colonnade.errors import RunFailed
from colonnade.workers.process_executor import ProcessExecutor
from colonnade.workers.sharded_columns import ShardedColumns
from colonnade.workers.shared_memory import Room

X = np.random.default_rng(0).standard_normal((6 * BLOCK + 5, 7)).astype(np.float32)
SOME = np.sort(np.random.default_rng(1).choice(len(X), len(X) // 2, replace=False))
SIGNAL = np.random.default_rng(2).standard_normal((len(SOME), 1))


@pytest.fixture
def two() -> Iterator[ProcessExecutor]:
    found = ProcessExecutor(2, deadline=60.0)
    yield found
    found.close()


def sums(columns: ShardedColumns) -> tuple[bytes, bytes]:
    G = np.zeros((7, 1))
    columns.backward(SOME, SIGNAL, 0.5, G)
    return G.tobytes(), columns.forward(SOME, np.ones((7, 1))).tobytes()


def test_answers_have_the_same_bits_with_one_two_and_three_processes(two: ProcessExecutor) -> None:
    found = [sums(ShardedColumns.place(two, X))]
    for workers in (1, 3):
        executor = ProcessExecutor(workers, deadline=60.0)
        try:
            found.append(sums(ShardedColumns.place(executor, X)))
        finally:
            executor.close()
    assert found[0] == found[1] == found[2]
    G = np.zeros((7, 1))
    G[:, 0] = 0.5 * (X[SOME].astype(np.float64).T @ SIGNAL[:, 0])
    np.testing.assert_allclose(np.frombuffer(found[0][0]), G[:, 0], rtol=1e-9)


def test_a_worker_that_is_killed_is_replaced_and_the_bits_stay(two: ProcessExecutor) -> None:
    columns = ShardedColumns.place(two, X)
    before = sums(columns)
    for worker in (0, 1):
        two.process(worker).kill()
        two.process(worker).wait()
        assert sums(columns) == before
    assert two.deaths == 2


def test_a_worker_that_says_nothing_is_replaced() -> None:
    executor = ProcessExecutor(1, deadline=20.0)
    try:
        columns = ShardedColumns.place(executor, X)
        before = sums(columns)
        executor._lines[0]._socket.settimeout(0.5)  # the test need not wait for the whole deadline
        os.kill(executor.process(0).pid, signal.SIGSTOP)
        assert sums(columns) == before
        assert executor.deaths == 1
    finally:
        executor.close()


def test_a_worker_that_dies_again_and_again_ends_the_run(two: ProcessExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = ShardedColumns.place(two, X)
    heard = two._heard

    def killed(worker: int) -> object:
        two.process(worker).kill()
        two.process(worker).wait()
        return heard(worker)

    monkeypatch.setattr(two, "_heard", killed)
    with pytest.raises(RunFailed, match="worker 1 of 2 can't be started again: it died 3 times"):
        sums(columns)


def test_an_error_at_a_worker_ends_the_run_with_its_words(two: ProcessExecutor) -> None:
    with pytest.raises(RunFailed, match="worker 1 of 2 failed: KeyError: 'no table'"):
        two.ask("forward", [("no table", None, np.ones((7, 1)))] * 2)


def test_an_error_at_one_worker_leaves_no_answer_of_another_to_be_taken_for_a_later_one(two: ProcessExecutor) -> None:
    columns = ShardedColumns.place(two, X)
    before = sums(columns)
    with pytest.raises(RunFailed, match="worker 1 of 2 failed"):
        two.ask("forward", [("no table", None, np.ones((7, 1))), (columns._table, None, np.ones((7, 1)))])
    assert sums(columns) == before


def test_a_worker_is_told_no_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BANK_PASSPHRASE", "hush")
    executor = ProcessExecutor(1)
    try:
        told = Path(f"/proc/{executor.process(0).pid}/environ")
        if not told.exists():
            pytest.skip("this system does not show what a process was told")
        ShardedColumns.place(executor, X)
        assert b"hush" not in told.read_bytes()
        assert b"COLONNADE_THREADS" in told.read_bytes()
    finally:
        executor.close()


def test_no_process_is_left_over() -> None:
    executor = ProcessExecutor(2)
    processes = [executor.process(worker) for worker in (0, 1)]
    executor.close()
    assert all(process.returncode is not None for process in processes)


def test_a_room_has_no_name() -> None:
    room = Room(100)
    other = Room.handed(os.dup(room.fd))
    room.array(0, "int64", (3,))[...] = 5
    assert other.array(0, "int64", (3,)).tolist() == [5, 5, 5]
    room.forget()
    other.forget()
