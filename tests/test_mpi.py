"""The MPI runtime beyond the contracts of all: how ranks start, what they take from each other, how they all end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from colonnade.errors import OptionError, PartyFailed, RunFailed
from colonnade.remote import mpi, mpi_net
from colonnade.remote.mpi import Mpi
from colonnade.runtimes.simulation import Simulation
from colonnade.runtimes.wire import encode
from contracts import mpi_programs, programs
from contracts.programs import SECRET

pytest.importorskip("mpi4py", reason="MPI is not installed: pip install 'colonnade[mpi]'")
ALLOWED = mpi._OPEN_MPI | mpi._AS_ROOT
PATIENCE = 300.0  # seconds: never decides unless something hangs


def ranks(number, what):
    """How an MPI job of tests/mpi_rank.py ends: its code, and all that its ranks say."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), *(path for path in sys.path if path)])
    start = [mpi._find_mpiexec(), "-n", str(number)] if number else []
    done = subprocess.run(
        [*start, sys.executable, str(here / "mpi_rank.py"), what],
        env={**os.environ, **ALLOWED, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


# -- one rank, one party -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("what", "runs"), [("takes part", 1), ("runs twice", 2), ("lingers", 1)])
def test_every_rank_is_a_party_and_all_leave_together(what, runs):
    code, said, complaints = ranks(3, what)
    assert (code, complaints) == (0, "")
    expected = Simulation().run(dict.fromkeys("abc", (programs.all_to_all, (2,))))
    lines = [f"{name}: {outcome.value}, {outcome.traffic.messages} messages" for name, outcome in expected.items()]
    assert sorted(said.splitlines()) == sorted(lines * runs)


@pytest.mark.parametrize("what", ["fails", "has no data"])
def test_a_rank_that_fails_tells_the_others(what):
    code, said, complaints = ranks(3, what)
    assert (code != 0, said) == (True, "")
    assert complaints.count(f"DataError: {SECRET}") == 1
    assert complaints.count("PartyFailed: party 'b' failed with DataError at step 'joining'") == 2


def test_ranks_with_different_jobs_do_not_run():
    code, said, complaints = ranks(3, "has another job")
    assert (code != 0, said) == (True, "")
    assert "has another job or other parties than" in complaints
    assert "give every rank the same files" in complaints


def test_a_rank_that_fails_by_itself_leaves_nobody_waiting():
    """Before the run, where no line tells the others."""
    code, said, complaints = ranks(3, "has no file")
    assert (code != 0, said) == (True, "")
    assert f"DataError: {SECRET}" in complaints


def test_a_silent_rank_is_named_and_the_job_ended():
    code, said, complaints = ranks(3, "sleeps")
    assert (code != 0, said) == (True, "")
    assert "PartySilent: party 'b' was silent" in complaints
    assert "The MPI job is ended for all parties: party 'b' did not end within 6 s after" in complaints


def test_another_number_of_ranks_than_parties_is_refused():
    code, _, complaints = ranks(2, "takes part")
    assert code != 0
    sentence = "OptionError: 3 parties need 3 ranks, got 2; start mpirun -n 3 colonnade run job.toml --mpi"
    assert sentence in complaints


def test_a_process_without_mpirun_is_refused():
    code, _, complaints = ranks(0, "takes part")
    assert code != 0
    assert "OptionError: this process is alone: it was not started by mpirun" in complaints
    assert "start mpirun -n 3 colonnade run job.toml --mpi" in complaints


# -- what ranks take from each other -----------------------------------------------------------------------------------


def test_long_messages_cross_and_keep_their_order():
    """Too long for MPI to send at once: they go while both sides ask, and short ones behind them wait."""
    script = []
    for i in range(6):
        for sender, receiver in (("a", "b"), ("b", "a")):
            script.append((sender, receiver, "step", np.full(700_000 if i % 2 else 3, float(i))))
    sends = [each for each in script if each[0] == "a"] + [each for each in script if each[0] == "b"]
    parties = {"a": (programs.follow, (tuple(sends),)), "b": (programs.follow, (tuple(sends[6:] + sends[:6]),))}
    outcomes = Mpi().run(parties)
    for name in "ab":
        assert [array[0] for array in outcomes[name].value] == list(range(6))


@pytest.mark.parametrize("body", [b"", b"\x07" + bytes(9) + encode(None), b"\xff" * 40])
def test_a_malformed_frame_names_its_sender(body):
    with pytest.raises(PartyFailed, match="party 'a' sent a malformed message at step 'result'") as caught:
        Mpi().run({"a": (mpi_programs.send_raw, ("b", body)), "b": (programs.start_then_wait, ("a",))})
    assert caught.value.outcomes["a"].error.party == "a"


def test_a_message_that_is_too_long_is_not_taken(capfd):
    parties = {"a": (mpi_programs.send_raw, ("b", bytes(2000))), "b": (mpi_programs.take_little, ("a", 1000))}
    with pytest.raises(PartyFailed, match="2000 bytes, at most 1000 are allowed"):
        Mpi().run(parties)
    assert "The MPI job is ended for all parties: party 'a' sent a message of 2000 bytes" in capfd.readouterr().err


# -- the starter -------------------------------------------------------------------------------------------------------


def test_a_killed_rank_ends_the_run_at_once(capfd):
    """It is mpiexec that sees it, and ends all others."""
    began = time.monotonic()
    with pytest.raises(RunFailed):
        Mpi(deadline=10 * PATIENCE).run({"a": (programs.wait_for, ("b", "never")), "b": (programs.killed_at_once, ())})
    assert time.monotonic() - began < PATIENCE
    capfd.readouterr()


def test_an_mpiexec_that_ends_is_not_waited_for():
    with pytest.raises(PartyFailed, match="party 'a' died at step 'start': mpiexec ended with code 1"):
        Mpi(mpiexec=("false",)).run(dict.fromkeys("ab", (programs.return_now, ())))


def test_an_mpiexec_that_is_not_there_is_named(monkeypatch, tmp_path):
    with pytest.raises(OptionError, match="mpiexec can't be started as 'no-such-command'"):
        Mpi(mpiexec=("no-such-command",)).run({"a": (programs.return_now, ())})
    monkeypatch.setattr(mpi.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OptionError, match="Mpi needs mpiexec, which is not on the path"):
        Mpi().run({"a": (programs.return_now, ())})


def test_without_mpi4py_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(OptionError, match=r"MPI needs mpi4py and an MPI library .*; install colonnade\[mpi\]"):
        mpi_net.world()
