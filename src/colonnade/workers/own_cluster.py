"""A Ray cluster of this machine for one run: on loopback alone, under a token of its own, gone with who started it.

By itself Ray listens on all of a machine's addresses, passes the environment of whoever starts it on to every worker,
and keeps its token where every cluster of this user has it. So a process of its own starts it, with hardly any
environment, and ends it when its line ends, however that comes about.
"""

from __future__ import annotations

import os
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from colonnade.errors import RunFailed
from colonnade.workers.told import told

_MAIN = "import sys; sys.path = [p for p in sys.path if p]; from colonnade.workers.own_cluster import main; main()"
# The first is Ray's name for "this is one machine": without it Ray looks for an address that others reach, and listens
# there.
ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}
_ENDS_WITHIN = 30.0


@cache
def _token(process: int) -> str:
    """The token of all clusters of one process: Ray reads it once, and keeps it for as long as the process lives."""
    return secrets.token_hex(32)


class OwnCluster:
    """See the module.

    Parameters
    ----------
    workers
        How many it has places for.
    deadline
        Seconds within which it must have started.
    """

    def __init__(self, workers: int, deadline: float) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="colonnade-"))  # nobody else can look into it
        token = self.folder / "token"
        with os.fdopen(os.open(token, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(_token(os.getpid()))
        self.environment: Mapping[str, str] = {**ALONE, "RAY_AUTH_TOKEN_PATH": str(token)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _MAIN, str(workers), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**told(), **self.environment},
            start_new_session=True,
        )
        try:
            self.address = self._heard(time.monotonic() + deadline, deadline)
        except BaseException:
            self.close()
            raise

    def _heard(self, until: float, seconds: float) -> str:
        """What the process says once its cluster stands: the address, or why there is none."""
        line = self._process.stdout
        said = b""
        while line is not None and not said.endswith(b"\n"):
            ready, _, _ = select.select([line], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise RunFailed(f"Ray did not start on this machine within {seconds:.0f} s; use kind 'processes'")
            more = os.read(line.fileno(), 1 << 12)
            if not more:
                break
            said += more
        word, _, rest = said.decode(errors="replace").strip().partition(" ")
        if word != "at":
            raise RunFailed(f"Ray did not start on this machine: {rest or 'it ended at once'}; use kind 'processes'")
        return rest

    def close(self) -> None:
        """End it."""
        for line in (self._process.stdin, self._process.stdout):
            if line is not None:
                line.close()
        try:
            self._process.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Let these variables of the environment hold while Ray looks at them."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def main() -> None:
    """Start a cluster, say where it is, and end it with the line: what runs in the process of its own."""
    workers, folder = int(sys.argv[1]), Path(sys.argv[2])
    out, sys.stdout = sys.stdout, sys.stderr  # whatever Ray says is not what is waited for
    try:
        import ray

        # Ray makes the folder that it is given readable for all, so it is one within a private one.
        places = {"_temp_dir": str(folder / "ray"), "_node_ip_address": "127.0.0.1"}
        quiet = {"include_dashboard": False, "log_to_driver": False, "configure_logging": False}
        ray.init(address="local", num_cpus=workers, **places, **quiet)
        found = ray.get_runtime_context().gcs_address
        if not found.startswith("127."):
            raise RuntimeError(f"it listens at {found}, where others can reach it")
    except Exception as error:
        print("not", str(error).strip().split("\n", maxsplit=1)[0] or type(error).__name__, file=out, flush=True)
        return
    print("at", found, file=out, flush=True)
    sys.stdin.read()
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)  # whoever started it may be gone
