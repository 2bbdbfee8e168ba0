"""Workers as actors of Ray: on a cluster that an engine starts for itself, and on one that runs already."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from colonnade.blocks.dense_columns import DenseColumns
from colonnade.blocks.row_blocks import BLOCK
from colonnade.errors import OptionError, RunFailed
from colonnade.workers.engine import Engine
from colonnade.workers.ray_executor import RayExecutor
from colonnade.workers.sharded_columns import ShardedColumns
from ports import free_ports

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'colonnade[ray]'")
slow = pytest.mark.skipif(not os.environ.get("COLONNADE_RAY"), reason="make ray runs it")
X = np.random.default_rng(0).standard_normal((6 * BLOCK + 5, 7)).astype(np.float32)
ROWS = np.arange(len(X))
SIGNAL = np.random.default_rng(2).standard_normal((len(X), 1))


def sums(columns) -> tuple[bytes, ...]:
    G, H, W = np.zeros((7, 1)), np.zeros((7, 7)), np.ones((7, 2))
    columns.backward(ROWS, SIGNAL, 0.5, G)
    columns.gram(ROWS, np.square(SIGNAL[:, 0]), H)
    return G.tobytes(), H.tobytes(), columns.forward(ROWS[BLOCK - 3 : 5 * BLOCK], W).tobytes()


@needs_ray
def test_actors_of_a_cluster_of_our_own() -> None:
    """In one test, as Ray takes seconds to start; and in a process of its own, which Ray leaves threads in."""
    assert "all is well" in fresh("import test_ray_executor as t; t.look_at_a_cluster_of_our_own()", BANK_SECRET="hush")


def look_at_a_cluster_of_our_own() -> None:
    """Bits, a killed worker, what it was told, and who can reach it."""
    executor, known = RayExecutor(2, deadline=120.0), sums(DenseColumns(X))
    try:
        assert executor._own is not None
        folder, address = executor._own.folder, executor._own.address
        columns = ShardedColumns.place(executor, X)
        assert sums(columns) == known
        _, process = executor.about(0)
        told = Path(f"/proc/{process}/environ")
        assert os.environ["BANK_SECRET"] == "hush"
        assert not told.exists() or b"hush" not in told.read_bytes()
        os.kill(process, signal.SIGKILL)
        assert sums(columns) == known
        assert executor.deaths == 1
        assert executor.about(0)[1] != process
        assert address.startswith("127.0.0.1:")
        if Path("/proc/net/tcp").exists():
            found = listening(folder)
            assert found
            assert found <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
        assert "RAY_AUTH_TOKEN_PATH" not in os.environ
        with pytest.raises(RunFailed, match=r"worker 1 of 2 failed at 'forward': .*KeyError: 'no table'"):
            executor.ask("forward", [("no table", None, np.ones((7, 1)))] * 2)
        with pytest.raises(OptionError, match=r"this process has joined a Ray cluster already; call ray.shutdown\(\)"):
            RayExecutor(1, deadline=120.0)
    finally:
        executor.close()
    assert not folder.exists()
    print("all is well")


def listening(folder: Path) -> set[str]:
    """The addresses, in the kernel's words, at which processes of the cluster in this folder and we listen."""
    found = set()
    for home in Path("/proc").glob("[0-9]*"):
        try:
            ours = str(folder).encode() in (home / "cmdline").read_bytes() or home.name == str(os.getpid())
            links = {os.readlink(one) for one in (home / "fd").iterdir()} if ours else set()
        except OSError:  # it has ended, or is somebody else's
            continue
        for table in ("tcp", "tcp6"):
            for line in (home / "net" / table).read_text().splitlines()[1:] if links else ():
                words = line.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in links:
                    found.add(words[1].partition(":")[0])
    return found


def fresh(text: str, **variables: str) -> str:
    """What a new interpreter prints: a process joins one kind of cluster in its life."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **variables},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def digests(printed: str) -> list[str]:
    """Among what Ray says of workers that were killed."""
    return re.findall(r"^[0-9a-f]{64}$", printed, re.MULTILINE)


PASSES = """
import sys
from test_ray_executor import X, ShardedColumns, RayExecutor, sums
import hashlib, os, signal
for workers in {workers}:
    executor = RayExecutor(workers, {address!r}, deadline=120.0)
    columns = ShardedColumns.place(executor, X)
    for turn in range(2):
        print(hashlib.sha256(b"".join(sums(columns))).hexdigest())
        if turn == 0:
            os.kill(executor.about(workers - 1)[1], signal.SIGKILL)
    assert executor.deaths == 1
    executor.close()
"""


@needs_ray
@slow
def test_bits_are_the_same_with_one_two_and_three_actors_and_without_any() -> None:
    found = digests(fresh(PASSES.format(workers=(1, 2, 3), address=None)))
    assert found == [hashlib.sha256(b"".join(sums(DenseColumns(X)))).hexdigest()] * 6


STOPPED = """
import os, signal
from test_ray_executor import X, ShardedColumns, RayExecutor, sums
executor = RayExecutor(2, deadline=120.0)
columns = ShardedColumns.place(executor, X)
before = sums(columns)
executor._deadline = 10.0  # from here on everything is compiled
os.kill(executor.about(0)[1], signal.SIGSTOP)
print("the same" if sums(columns) == before and executor.deaths == 1 else "others")
executor.close()
"""


@needs_ray
@slow
def test_an_actor_that_says_nothing_is_replaced() -> None:
    assert "the same" in fresh(STOPPED)


@needs_ray
@slow
def test_a_cluster_that_runs_already(tmp_path) -> None:
    (port,) = free_ports(1)
    token = tmp_path / "token"
    token.write_text("5e" * 32)
    secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
    ray = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]
    path = {"PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
    start = ["start", "--head", f"--port={port}", "--num-cpus=3", "--include-dashboard=false", "--block"]
    start += ["--min-worker-port=0", "--max-worker-port=0"]  # any, and none that the head itself might have
    cluster = subprocess.Popen(
        [*ray, *start, "--disable-usage-stats"], env={**os.environ, **secret, **path}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(port)
        address = f"127.0.0.1:{port}"
        found = digests(fresh(PASSES.format(workers=(2, 3), address=address), **secret))
        assert found == [hashlib.sha256(b"".join(sums(DenseColumns(X)))).hexdigest()] * 4
        many = f"""
from colonnade.workers import ray_executor
ray_executor._START = 5.0
try:
    ray_executor.RayExecutor(9, {address!r})
except Exception as error:
    print(type(error).__name__, error)
"""
        assert "OptionError 9 workers found no place within 5 s on a cluster of 3 cores; lower" in fresh(many, **secret)
        stranger = f"""
from colonnade.workers.ray_executor import RayExecutor
try:
    RayExecutor(1, {address!r})
except Exception as error:
    print(type(error).__name__, error)
"""
        token.write_text("ab" * 32)
        assert "OptionError no Ray cluster answers at" in fresh(stranger, **secret)
    finally:
        os.killpg(cluster.pid, signal.SIGTERM)
        try:
            cluster.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(cluster.pid, signal.SIGKILL)
            cluster.wait()


def wait_for(port: int) -> None:
    until = time.monotonic() + 90
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the cluster does not start")


@needs_ray
@slow
def test_a_cluster_of_our_own_ends_with_its_starter() -> None:
    """Also with one that is killed."""
    text = """
import os, signal
from colonnade.workers.ray_executor import RayExecutor
executor = RayExecutor(1, deadline=120.0)
print(executor._own.folder, executor._own._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    path = os.pathsep.join(one for one in sys.path if one)
    done = subprocess.run(
        [sys.executable, "-c", text], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    folder, process = done.stdout.split()[:2]
    until = time.monotonic() + 60
    while time.monotonic() < until and (Path(folder).exists() or Path(f"/proc/{process}").exists()):
        time.sleep(0.2)
    assert not Path(folder).exists()
    assert not Path(f"/proc/{process}").exists()


def test_where_ray_is_not_installed(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("colonnade.workers.engine.find_spec", lambda name: None)
    sentence = r"kind 'ray' needs Ray, which is not installed; install it with pip install 'colonnade\[ray\]', or use"
    with pytest.raises(OptionError, match=sentence):
        Engine("ray", 2).place(X)
    with pytest.raises(OptionError, match=sentence), Engine("ray", 2):
        pass


def test_a_ray_without_tokens_starts_no_cluster(monkeypatch) -> None:
    """It would ignore the token, and let every user of the machine in."""
    old = SimpleNamespace(is_initialized=lambda: False, __version__="2.51.2")
    monkeypatch.setitem(sys.modules, "ray", old)
    with pytest.raises(OptionError, match=r"Ray 2.51.2 knows no tokens, so everybody on this machine could join"):
        RayExecutor(1)


def test_an_address_at_which_nothing_listens() -> None:
    (port,) = free_ports(1)
    with pytest.raises(OptionError, match=rf"no Ray cluster answers at '127.0.0.1:{port}' .*; start one with ray"):
        RayExecutor(1, f"127.0.0.1:{port}")
    with pytest.raises(OptionError, match=r"no Ray cluster answers|needs Ray"):
        Engine("ray", 1, f"127.0.0.1:{port}").ready()
