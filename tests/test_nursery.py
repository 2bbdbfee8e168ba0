"""Where the processes of the parties come from: one nursery for all runs of a process, or an interpreter for each."""

from __future__ import annotations

import importlib
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from types import ModuleType

import numpy as np
import pytest

from colonnade.errors import OptionError, PartyFailed, PartySilent
from colonnade.runtimes import launch, learnable, nursery, warm
from colonnade.runtimes.processes import Processes
from contracts import fork_programs, programs
from test_processes import PATIENCE, all_gone, lives, watched_failure

forks = pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="no fork here")
proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="nowhere to look")


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


@proc
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_party_holds_its_own_lines_and_no_others(count):
    """One to the starter, one to each other party, and the two ends with which its event loop wakes itself."""
    outcomes = Processes().run(dict.fromkeys("abcde"[:count], (fork_programs.open_sockets, ())))
    assert [outcome.value for outcome in outcomes.values()] == [1 + (count - 1) + 2] * count


@proc
def test_a_party_holds_no_pipe_of_the_nursery(tmp_path, monkeypatch):
    """Nor does the process of its run, once that has told what it had to load."""
    (tmp_path / "pipes.py").write_text(
        "import os, stat, time\n"
        "def pipes(pid):\n"
        "    found = []\n"
        "    for fd in map(int, os.listdir(f'/proc/{pid}/fd')):\n"
        "        try:\n"
        "            found += [fd] * (fd > 2 and stat.S_ISFIFO(os.stat(f'/proc/{pid}/fd/{fd}').st_mode))\n"
        "        except OSError:\n"
        "            continue\n"
        "    return tuple(found)\n"
        "async def program(net):\n"
        "    until = time.monotonic() + 10.0\n"
        "    while pipes(os.getppid()) and time.monotonic() < until:\n"
        "        time.sleep(0.01)\n"
        "    return (pipes(os.getpid()), pipes(os.getppid()))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    program = importlib.import_module("pipes").program
    for _ in range(2):
        assert Processes().run({"a": (program, ())})["a"].value == ((), ())


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


def test_more_lines_than_one_message_can_carry():
    """Twelve parties have 144 ends of lines, and get them in several messages."""
    names = tuple(f"p{number}" for number in range(12))
    outcomes = Processes().run(dict.fromkeys(names, (programs.all_to_all, (1,))))
    assert [outcome.traffic.messages for outcome in outcomes.values()] == [22] * 12


def test_more_lines_than_a_process_may_have_are_refused():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        with pytest.raises(OptionError, match="20 parties need more open files than this process may have"):
            Processes().run({f"p{number}": (programs.return_now, ()) for number in range(20)})
        assert Processes().run({"a": (programs.return_now, ())})["a"].value == "early"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@forks
def test_a_run_survives_the_death_of_the_parties_parent():
    outcomes = Processes().run(
        {"a": (fork_programs.kill_the_parent, ("b", os.getpid())), "b": (fork_programs.await_done, ("a",))}
    )
    assert all_gone([outcome.value for outcome in outcomes.values()])


@forks
def test_a_killed_party_is_named_without_its_parent_too():
    with pytest.raises(PartyFailed, match="party 'b' died: its process ended before its program did"):
        Processes().run(
            {"a": (fork_programs.kill_the_parent, ("b", os.getpid())), "b": (fork_programs.killed_after_done, ("a",))}
        )


# -- one nursery for all runs ------------------------------------------------------------------------------------------


def ancestry():
    """(process of the party, of the run, of the nursery) in a run of one party."""
    return Processes().run({"a": (fork_programs.ancestry, ())})["a"].value


@proc
def test_runs_share_a_nursery_and_nothing_else():
    one, other = ancestry(), ancestry()
    assert one[2] == other[2] == warm._warm.process.pid
    assert fork_programs.parent_of(one[2]) == os.getpid()
    assert len({*one, *other}) == 5
    assert not any(map(lives, (*one[:2], *other[:2])))


@forks
def test_a_run_finds_nothing_of_an_earlier_one():
    """Not what it did to modules, and not the random numbers that it would have drawn next."""
    for _ in range(2):
        found, _ = Processes().run({"a": (fork_programs.leave_a_mark, ())})["a"].value
        assert found is None
    drawn = [Processes().run({"a": (fork_programs.secrets, ())})["a"].value for _ in range(3)]
    for values in zip(*drawn, strict=True):
        assert len(set(values)) == 3


@proc
def test_a_nursery_never_holds_a_name_or_a_number_of_a_run(tmp_path):
    """Its memory after a run, byte for byte: neither the parties' data, nor their names, nor their results."""
    data = np.arange(1000) + 0.123456789
    names = ("bank" + "-of-marks", "shop" + "-of-marks")
    outcomes = Processes().run({name: (fork_programs.take_part, (data, other)) for name, other in (names, names[::-1])})
    assert outcomes[names[0]].value == 2 * data.sum()
    found = memory_of(warm._warm.process.pid)
    assert b"colonnade.runtimes" in found  # it was its memory
    for secret in (*(name.encode() for name in names), data[500:502].tobytes(), np.float64(2 * data.sum()).tobytes()):
        assert secret not in found


def memory_of(pid):
    """All that it may write to; skips where the system does not let a parent look."""
    parts = []
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in maps:
                area, rights, *_ = line.split()
                if rights.startswith("rw"):
                    start, end = (int(bound, 16) for bound in area.split("-"))
                    memory.seek(start)
                    with suppress(OSError):
                        parts.append(memory.read(end - start))
    except PermissionError:
        pytest.skip("no look at the memory of another process here")
    return b"".join(parts)


@forks
def test_a_run_has_the_surroundings_of_its_moment(tmp_path, monkeypatch, capfd):
    def here():
        return Processes().run({"a": (fork_programs.surroundings, ())})["a"].value

    before = here()
    assert before == ("", os.getcwd(), next(path for path in sys.path if path))
    assert capfd.readouterr().out == "a word on standard output\n"
    monkeypatch.setenv("COLONNADE_TEST", "changed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "first")
    assert here() == ("changed", str(tmp_path), str(tmp_path / "first"))
    assert capfd.readouterr().out == "a word on standard output\n"
    monkeypatch.undo()
    assert here() == before


@proc
def test_what_a_library_reads_only_once_needs_another_nursery(monkeypatch):
    """A variable may decide how a library is loaded; the name of the test does not, and changes all the time."""
    first = ancestry()[2]
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "another")
    assert ancestry()[2] == first
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    second = ancestry()[2]
    assert second != first
    assert all_gone([first])
    monkeypatch.delenv("NUMBA_CPU_NAME")
    assert ancestry()[2] not in (first, second)


@forks
def test_a_module_that_changes_between_two_runs_is_read_again(tmp_path, monkeypatch):
    module = tmp_path / "growing.py"
    monkeypatch.syspath_prepend(tmp_path)
    for version in ("first", "the second"):
        module.write_text(f"async def program(net):\n    return {version!r}\n")
        program = importlib.import_module("growing").program
        assert Processes().run({"a": (program, ())})["a"].value == version


@proc
def test_what_runs_had_to_load_is_there_for_the_next(tmp_path, monkeypatch):
    """An installed module that a program loads is in the nursery from then on; a user's own never is."""
    (tmp_path / "own.py").write_text("import json.tool\nasync def program(net):\n    return 1\n")
    (tmp_path / "look.py").write_text(
        "import sys\nknown = tuple(name in sys.modules for name in ('own', 'look', 'json.tool'))\n"
        "async def program(net):\n    return known\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own, look = (importlib.import_module(name).program for name in ("own", "look"))
    warm.cool()
    assert Processes().run({"a": (look, ())})["a"].value == (False, True, False)
    Processes().run({"a": (own, ())})
    assert Processes().run({"a": (look, ())})["a"].value == (False, True, True)


LIBRARIES = {
    "stream_numpy": "import numpy.random\nRNG = numpy.random.default_rng()",
    "stream_old": "import numpy.random\nRNG = numpy.random.RandomState()",
    "stream_bits": "import numpy.random\nBITS = numpy.random.PCG64()",
    "stream_python": "import random\nRNG = random.Random()",
    "stream_package/__init__": "",
    "stream_package/part": "import random\n_hidden = random.Random()",
    "stream_package/other": "",
    "stream_user": "import stream_package.part",
    "stream_function": "from stream_caller import call",
    "stream_caller": "from stream_numpy import RNG as _rng\ndef call():\n    return _rng.random()",
    "harmless_system": "import random\nRNG = random.SystemRandom()",
    "harmless_shared": "import random, numpy.random\nP, N = random._inst, numpy.random.mtrand._rand",
    "harmless_late": "import numpy.random\ndef draw():\n    return numpy.random.default_rng().random()",
    "secret_way": "import stream_numpy\ndel stream_numpy",
}


@pytest.fixture
def libraries(tmp_path, monkeypatch):
    """Modules that count as installed, and are in no process yet."""
    for name, source in LIBRARIES.items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(learnable, "_INSTALLED", (str(tmp_path),))
    known = set(sys.modules)
    yield [name.replace("/__init__", "").replace("/", ".") for name in LIBRARIES]
    for name in {*sys.modules} - known:
        if name.startswith(("stream", "harmless", "secret")):
            del sys.modules[name]


def test_a_library_that_draws_while_it_is_imported_is_not_learned(libraries):
    """Nor one that uses it: all runs would draw the same from a stream that was seeded before they began."""
    known = set(sys.modules)
    for name in libraries:
        importlib.import_module(name)
    learned = [name for name in learnable.learnable(known) if name in libraries]
    assert sorted(learned) == ["harmless_late", "harmless_shared", "harmless_system", "secret_way"]


def test_streams_that_every_process_seeds_anew_are_no_hindrance(monkeypatch):
    """That of sympy is one of them, as torch imports it, whose own import takes longer than most runs."""
    with_a_stream = ModuleType("sympy.core.random")
    with_a_stream.rng = random.Random(3)
    assert learnable.holds_a_stream(with_a_stream)
    monkeypatch.setitem(sys.modules, "sympy.core.random", with_a_stream)
    assert not learnable.holds_a_stream(with_a_stream)
    before = [with_a_stream.rng.getstate(), random.getstate(), np.random.get_state()[1].tolist()]
    learnable.seed_anew()
    after = [with_a_stream.rng.getstate(), random.getstate(), np.random.get_state()[1].tolist()]
    assert all(one != other for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize(("name", "drawn"), [("secret_way", True), ("harmless_late", False)])
def test_a_nursery_that_has_learned_a_stream_after_all_makes_room(libraries, name, drawn):
    here, there = socket.socketpair()
    with here, there:
        process = nursery._NurseryProcess(there)
        listen, learned = os.pipe()
        os.write(learned, f"{name}\n".encode())
        os.close(learned)
        process._learned.add(listen)
        process._learn()
        assert name in sys.modules
        assert process._drawn is drawn


@forks
def test_what_was_learned_does_not_hide_a_module_that_comes_first_now(tmp_path, monkeypatch):
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "colours.py").write_text(
        "import colorsys\nasync def program(net):\n    return colorsys.__file__\n"
    )
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "colorsys.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "programs")
    program = importlib.import_module("colours").program
    installed = [Processes().run({"a": (program, ())})["a"].value for _ in range(2)]
    assert installed == [importlib.import_module("colorsys").__file__] * 2
    monkeypatch.syspath_prepend(tmp_path / "first")
    assert Processes().run({"a": (program, ())})["a"].value == str(tmp_path / "first" / "colorsys.py")


FEWER_RIGHTS = """
import ctypes
from colonnade.runtimes.warm import _circumstances
before = _circumstances()
assert before == _circumstances()
assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert before != _circumstances()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's own way to give up rights")
def test_a_process_with_fewer_rights_needs_another_nursery():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", FEWER_RIGHTS], env=environment, check=True)


def test_a_process_with_another_root_needs_another_nursery(monkeypatch, tmp_path):
    before, real = warm._circumstances(), os.stat
    monkeypatch.setattr(os, "stat", lambda path, **rest: real(tmp_path if path == "/" else path, **rest))
    assert warm._circumstances() != before


@proc
def test_a_run_survives_the_death_of_the_nursery_and_the_next_gets_another():
    first = ancestry()[2]
    killer = Processes().run({"a": (fork_programs.kill_the_nursery, (os.getpid(),))})["a"].value
    assert all_gone([first, killer])
    second = ancestry()[2]
    os.kill(second, signal.SIGKILL)
    assert ancestry()[2] not in (first, second)


@forks
def test_runs_of_several_threads_at_once():
    found = {}

    def run(number):
        found[number] = Processes().run(dict.fromkeys("ab", (fork_programs.family, ())))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    pids = [outcome.value[0] for outcomes in found.values() for outcome in outcomes.values()]
    assert len(set(pids)) == 8
    assert not any(map(lives, pids))


FORKING_OWNER = """
import os, sys, warnings
from colonnade.runtimes.processes import Processes
from contracts import fork_programs
warnings.simplefilter("error")
def nursery():
    return Processes().run({"a": (fork_programs.ancestry, ())})["a"].value[2]
mine = nursery()
pid = os.fork()
if pid == 0:
    print(nursery(), flush=True)
    sys.exit()
assert os.waitpid(pid, 0)[1] == 0
print(mine, nursery(), flush=True)
sys.stdin.read()
"""


@proc
@pytest.mark.parametrize("number", [None, signal.SIGKILL])
def test_a_nursery_is_its_owners_own_and_ends_with_it(number):
    """A process that its owner forks gets another one; neither is left when they are gone, whichever way."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen([sys.executable, "-c", FORKING_OWNER], env=environment, text=True, **pipes)
    of_the_fork, (mine, again) = int(process.stdout.readline()), map(int, process.stdout.readline().split())
    assert mine == again != of_the_fork
    assert all_gone([of_the_fork])
    assert lives(mine)
    if number is not None:
        process.send_signal(number)
    _, said = process.communicate("", timeout=PATIENCE)
    assert (process.returncode, said) == (-(number or 0), "")
    assert all_gone([mine])


def test_a_nursery_that_nobody_needs_goes(monkeypatch):
    monkeypatch.setattr(nursery, "_IDLE", 0.01)
    here, there = socket.socketpair()
    with here, there:
        nursery._NurseryProcess(there).serve()


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
