"""One process per party: what happens to the processes, however a run ends."""

from __future__ import annotations

import functools
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from colonnade.errors import OptionError, PartyFailed, PartySilent, RunFailed
from colonnade.runtimes import launch, processes
from colonnade.runtimes.processes import Processes
from contracts import programs

PATIENCE = 120.0  # seconds: never decides unless something hangs


def lives(pid: int) -> bool:
    """Whether a process still runs; one that has ended but was not yet waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return not os.path.isdir("/proc/self")  # gone in between, or no such directory on this system


def all_gone(pids, within: float = PATIENCE) -> bool:
    until = time.monotonic() + within
    while any(map(lives, pids)):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


class Pids:
    """An observer that collects what the programs report: their process ids."""

    def __init__(self) -> None:
        self.of = {}

    def __call__(self, party, seconds, pid):
        self.of.setdefault(party, pid)


def watched_failure(parties, **options):
    """The error of a run, after which no process of it lives."""
    pids = Pids()
    with pytest.raises(RunFailed) as caught:
        Processes(**options).run(parties, pids)
    assert set(pids.of) == set(parties)
    assert not any(map(lives, pids.of.values()))  # no waiting: the starter has seen each of them end
    return caught.value


# -- a process that dies, or stands still ------------------------------------------------------------------------------


def test_a_killed_party_is_named_by_all_at_once():
    began = time.monotonic()
    error = watched_failure(
        {
            "a": (programs.pid_then_wait, ("b", True)),
            "b": (programs.pid_then_signal, (int(signal.SIGKILL), "a")),
            "c": (programs.pid_then_wait, ("b", False)),
        },
        deadline=120.0,
    )
    assert time.monotonic() - began < 60.0
    assert type(error) is PartyFailed
    assert error.party == "b"
    for name in ("a", "c"):
        told = error.outcomes[name].error
        assert type(told) is PartyFailed
        # Either may hear of the death before it has begun to wait: "b" dies as soon as "a" has spoken.
        assert (told.party, told.step) in [("b", "result"), ("b", "start")]
        assert f"party 'b' died at step {told.step!r}" in str(told)
    own = error.outcomes["b"].error
    assert type(own) is PartyFailed
    assert "its process ended with code -9" in str(own)


def test_a_party_killed_before_anybody_listens_is_named():
    with pytest.raises(PartyFailed) as caught:
        Processes(deadline=120.0).run(
            {"a": (programs.killed_at_once, ()), "b": (programs.late_wait, ("a", "anything"))}
        )
    assert caught.value.party == "a"
    assert caught.value.outcomes["b"].error.party == "a"


def test_a_stopped_party_is_silent_and_does_not_survive():
    error = watched_failure(
        {
            "a": (programs.pid_then_wait, ("b", True)),
            "b": (programs.pid_then_signal, (int(signal.SIGSTOP), "a")),
            "c": (programs.pid_then_wait, ("a", False)),
        },
        deadline=5.0,  # "a" has a fifth of it to say to "c" that it is alive
    )
    assert type(error) is PartySilent
    assert (error.party, error.step) == ("b", "result")
    for name in ("a", "c"):
        told = error.outcomes[name].error
        assert type(told) is PartySilent
        assert (told.party, told.step) == ("b", "result")
    assert "was killed" in str(error.outcomes["b"].error)


def test_a_party_that_does_not_take_its_data_is_named(monkeypatch):
    def launch_and_stop(*given):
        launched = launch.launch(*given)
        for pid in launched._pids:
            os.kill(pid, signal.SIGSTOP)
        return launched

    monkeypatch.setattr(processes, "launch", launch_and_stop)
    monkeypatch.setattr(processes, "START_LIMIT", 1.0)
    much = np.zeros(1 << 22)
    with pytest.raises(
        PartySilent, match="'a' was silent for 1 s at step 'start': it does not take its data"
    ) as caught:
        Processes().run({"a": (programs.return_now, (much,)), "b": (programs.return_now, (much,))})
    assert caught.value.party == "a"


def test_slow_starts_are_not_silence(tmp_path, monkeypatch):
    """A party whose imports take longer than the deadline is waited for: its silence begins when all are there."""
    module = tmp_path / "slow_to_import.py"
    module.write_text("async def program(net, to):\n    await net.send(to, 'result', 'worth it')\n")
    monkeypatch.syspath_prepend(tmp_path)
    program = importlib.import_module("slow_to_import").program
    module.write_text("import time\ntime.sleep(5.5)\n" + module.read_text())
    outcomes = Processes(deadline=5.0).run({"a": (program, ("b",)), "b": (programs.wait_for, ("a", "result"))})
    assert outcomes["b"].value == "worth it"


# -- programs that can't be started ------------------------------------------------------------------------------------


async def of_main(net):
    pass


of_main.__module__ = "__main__"


def nested():
    async def inside(net):
        pass

    return inside


@pytest.mark.parametrize(
    "program",
    [
        of_main,
        lambda net: programs.return_now(net),
        nested(),
        functools.partial(programs.wait_for, frm="a"),
        programs.Programs().bound,
    ],
    ids=["main", "lambda", "nested", "partial", "bound"],
)
def test_a_program_that_no_process_can_import_is_refused(program):
    with pytest.raises(OptionError, match=r"that a new process can import, got .* of .*; move it to"):
        Processes().run({"a": (programs.return_now, ()), "b": (program, ())})


def test_a_static_method_can_be_imported():
    assert Processes().run({"a": (programs.Programs.static, ())})["a"].value == "static"


def test_a_module_that_fails_on_import_is_named(tmp_path, monkeypatch):
    module = tmp_path / "once_importable.py"
    module.write_text("async def program(net):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    program = importlib.import_module("once_importable").program
    module.write_text("raise RuntimeError('no such luck')\n")
    with pytest.raises(PartyFailed) as caught:
        Processes(deadline=120.0).run({"a": (program, ()), "b": (programs.wait_for, ("a", "result"))})
    assert caught.value.party == "a"
    assert "RuntimeError: no such luck" in str(caught.value)
    told = caught.value.outcomes["b"].error
    assert type(told) is PartyFailed
    assert told.party == "a"
    assert "luck" not in str(told)


# -- nothing is left behind --------------------------------------------------------------------------------------------


def open_files() -> set[tuple[int, int, int]]:
    """Each with what it is: what earlier tests have left may close in between, and nothing new may come."""
    found = set()
    for fd in map(int, os.listdir("/dev/fd")):
        with suppress(OSError):  # the listing's own
            known = os.fstat(fd)
            found.add((fd, known.st_dev, known.st_ino))
    return found


def test_no_file_descriptor_is_left_open(monkeypatch):
    parties = dict.fromkeys("abc", (programs.return_now, ()))
    Processes().run(parties)  # whatever is opened only once
    before = open_files()
    Processes().run(parties)
    assert open_files() <= before
    with pytest.raises(PartyFailed):
        Processes().run({**parties, "c": (programs.killed_at_once, ())})
    assert open_files() <= before
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(FileNotFoundError):
        Processes().run(parties)
    assert open_files() <= before


def test_an_observer_that_raises_ends_all_parties():
    pids = Pids()

    def observer(party, seconds, pid):
        pids(party, seconds, pid)
        if len(pids.of) == 2:
            raise ArithmeticError("can't draw this")

    with pytest.raises(ArithmeticError):
        Processes().run(dict.fromkeys("ab", (programs.pid_then_sleep, ())), observer)
    assert not any(map(lives, pids.of.values()))


STARTER = """
import sys
from colonnade.runtimes.processes import Processes
from contracts import programs
kind, = sys.argv[1:]
parties = {
    "sleep": {"a": (programs.pid_then_sleep, ()), "b": (programs.pid_then_patience, ("a",))},
    "report": {"a": (programs.report_on_signal, ()), "b": (programs.pid_then_patience, ("a",))},
}[kind]
Processes(deadline=600.0).run(parties, lambda party, seconds, value: print(party, value, flush=True))
"""


@contextmanager
def starter(kind):
    """A process that starts two parties which would run for an hour; gives it and the ids of the two."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER, kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    )
    alarm = threading.Timer(2 * PATIENCE, process.kill)  # a hang fails the test instead of holding it up
    alarm.start()
    try:
        pids = {}
        while len(pids) < 2:
            party, value = process.stdout.readline().split()
            if value.isdigit():
                pids[party] = int(value)
        assert all(map(lives, pids.values()))
        yield process, pids
    finally:
        alarm.cancel()
        process.kill()
        for pid in pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


def test_ctrl_c_ends_all_parties():
    with starter("sleep") as (process, pids):
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGINT
        assert said.rstrip().endswith("KeyboardInterrupt")
        assert "colonnade.runtimes.child" not in said  # not one word from the parties
        assert not any(map(lives, pids.values()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_party_outlives_a_killed_starter(number):
    with starter("sleep") as (process, pids):
        process.send_signal(number)
        process.wait(PATIENCE)
        assert all_gone(pids.values())


def test_no_stopped_party_outlives_a_killed_starter():
    """It can't see the end of its line; the process that has forked it does."""
    with starter("sleep") as (process, pids):
        os.kill(pids["a"], signal.SIGSTOP)
        process.kill()
        process.wait(PATIENCE)
        assert all_gone(pids.values())


def test_no_party_outlives_a_starter_that_died_with_unread_reports():
    """The line is then reset, not just closed."""
    with starter("report") as (process, pids):
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.2)
        os.kill(pids["a"], signal.SIGUSR1)
        time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
        assert all_gone(pids.values())
