"""Where the processes of the parties come from: one nursery, or an interpreter for each."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from colonnade.errors import PartyFailed, PartySilent
from colonnade.runtimes import launch
from colonnade.runtimes.processes import Processes
from contracts import fork_programs, programs
from test_processes import PATIENCE, all_gone, lives, watched_failure

forks = pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="no fork here")


@pytest.fixture
def new_interpreters(monkeypatch):
    """As on a system that can't fork."""
    monkeypatch.delattr(os, "fork", raising=False)


def second_import(tmp_path, monkeypatch, name, before):
    """A program whose module imports well here and does something else wherever it is imported again."""
    module = tmp_path / f"{name}.py"
    source = "import os\nasync def program(net):\n    return os.getppid()\n"
    module.write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    program = importlib.import_module(name).program
    module.write_text(before + source)
    return program


# -- one nursery -------------------------------------------------------------------------------------------------------


@forks
def test_all_parties_are_children_of_one_process_in_sessions_of_their_own():
    outcomes = Processes().run(dict.fromkeys("abc", (fork_programs.family, ())))
    pids, parents, sessions = zip(*(outcome.value for outcome in outcomes.values()), strict=True)
    assert len(set(pids)) == 3
    assert len(set(parents)) == 1
    assert parents[0] != os.getpid()
    assert sessions == pids
    assert not any(map(lives, (*pids, *parents)))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="nowhere to look")
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_party_holds_its_own_lines_and_no_others(count):
    """One to the starter, one to each other party, and the two ends with which its event loop wakes itself."""
    outcomes = Processes().run(dict.fromkeys("abcde"[:count], (fork_programs.open_sockets, ())))
    assert [outcome.value for outcome in outcomes.values()] == [1 + (count - 1) + 2] * count


def test_no_two_parties_draw_the_same():
    outcomes = Processes().run(dict.fromkeys("abcd", (fork_programs.secrets, ())))
    for drawn in zip(*(outcome.value for outcome in outcomes.values()), strict=True):
        assert len(set(drawn)) == 4


def test_large_arguments_arrive_as_ordinary_arrays():
    large, small = np.arange(100_000.0), np.arange(10.0)
    arguments = {"a": (large, (small,)), "b": (large[::2].reshape(2, -1).T, (large.astype(">i4"),))}
    outcomes = Processes().run({name: (fork_programs.array_facts, args) for name, args in arguments.items()})
    for name, (one, (other,)) in arguments.items():
        assert outcomes[name].value == tuple((True, True, True, float(each.sum())) for each in (one, other))


@forks
def test_a_run_survives_the_death_of_the_reaper():
    outcomes = Processes().run(
        {"a": (fork_programs.kill_the_parent, ("b", os.getpid())), "b": (fork_programs.await_done, ("a",))}
    )
    assert all_gone([outcome.value for outcome in outcomes.values()])


@forks
def test_a_killed_party_is_named_without_a_reaper_too():
    with pytest.raises(PartyFailed, match="party 'b' died: its process ended before its program did"):
        Processes().run(
            {"a": (fork_programs.kill_the_parent, ("b", os.getpid())), "b": (fork_programs.killed_after_done, ("a",))}
        )


# -- a nursery that does not come far ----------------------------------------------------------------------------------


@forks
def test_a_module_that_ends_the_nursery_is_named(tmp_path, monkeypatch):
    program = second_import(tmp_path, monkeypatch, "deadly", "import os\nos._exit(3)\n")
    with pytest.raises(PartyFailed, match="'b' died at step 'start'") as caught:
        Processes().run({"a": (programs.return_now, ()), "b": (program, ())})
    assert str(caught.value).endswith("the process that loads 'deadly' ended with code 3")
    assert set(caught.value.outcomes) == {"a", "b"}
    assert (caught.value.party, caught.value.step) == ("b", "start")


def test_a_module_that_leaves_on_import_is_named(tmp_path, monkeypatch):
    program = second_import(tmp_path, monkeypatch, "leaving", "raise SystemExit(7)\n")
    with pytest.raises(PartyFailed, match="party 'b' died: its process ended with code 7") as caught:
        Processes().run({"a": (programs.return_now, ()), "b": (program, ())})
    assert caught.value.party == "b"


@forks
def test_a_module_that_takes_too_long_is_named(tmp_path, monkeypatch):
    note = tmp_path / "pid"
    source = f"import os, pathlib, time\npathlib.Path({str(note)!r}).write_text(str(os.getpid()))\ntime.sleep(3600)\n"
    program = second_import(tmp_path, monkeypatch, "endless", source)
    monkeypatch.setattr(launch, "START_LIMIT", 10.0)
    with pytest.raises(PartySilent, match="'b' was silent for 10 s at step 'start': 'endless' was still") as caught:
        Processes().run({"a": (programs.return_now, ()), "b": (program, ())})
    assert (caught.value.party, caught.value.step) == ("b", "start")
    assert not lives(int(note.read_text()))


SLOW_STARTER = """
import sys
sys.path.insert(0, sys.argv[1])
from colonnade.runtimes.processes import Processes
import patience
Processes().run({"a": (patience.program, ())})
"""


@forks
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_nursery_outlives_its_starter(tmp_path, number):
    """Not even one that is still importing, once it is done with that."""
    note = tmp_path / "pid"
    (tmp_path / "patience.py").write_text(
        f"import os, pathlib, time\nnote = pathlib.Path({str(note)!r})\n"
        "if note.exists():\n    note.write_text(str(os.getpid()))\n    time.sleep(1.0)\nelse:\n    note.touch()\n"
        "async def program(net):\n    time.sleep(3600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_STARTER, str(tmp_path)], env=environment, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + PATIENCE
    while not (note.exists() and note.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    assert all_gone([int(note.read_text())])
    assert number == signal.SIGKILL or said.rstrip().endswith("KeyboardInterrupt")


# -- an interpreter for each -------------------------------------------------------------------------------------------


@forks
def test_where_a_module_starts_threads_nothing_is_forked(tmp_path, monkeypatch):
    source = "import threading, time\nthreading.Thread(target=time.sleep, args=(3600,), daemon=True).start()\n"
    program = second_import(tmp_path, monkeypatch, "threaded", source)
    outcomes = Processes().run({"a": (program, ()), "b": (program, ())})
    assert [outcome.value for outcome in outcomes.values()] == [os.getpid()] * 2


@pytest.mark.usefixtures("new_interpreters")
def test_without_fork_every_party_is_the_starters_own_child():
    outcomes = Processes().run(dict.fromkeys("abc", (fork_programs.family, ())))
    for outcome in outcomes.values():
        pid, parent, session = outcome.value
        assert parent == os.getpid()
        assert session == pid


@pytest.mark.usefixtures("new_interpreters")
def test_without_fork_a_killed_party_is_named():
    error = watched_failure(
        {"a": (programs.pid_then_wait, ("b", True)), "b": (programs.pid_then_signal, (int(signal.SIGKILL), "a"))},
        deadline=120.0,
    )
    assert "its process ended with code -9" in str(error.outcomes["b"].error)
    assert error.outcomes["a"].error.party == "b"


@pytest.mark.usefixtures("new_interpreters")
def test_without_fork_a_stopped_party_does_not_survive():
    error = watched_failure(
        {"a": (programs.pid_then_wait, ("b", True)), "b": (programs.pid_then_signal, (int(signal.SIGSTOP), "a"))},
        deadline=3.0,
    )
    assert type(error) is PartySilent
    assert "was killed" in str(error.outcomes["b"].error)
