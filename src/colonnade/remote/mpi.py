"""The MPI runtime: parties on the nodes of one cluster, each a rank of one MPI job.

`run_party_mpi` is what `mpirun -n 8 colonnade run job.toml --mpi` calls at each rank. `Mpi` runs all parties of a
federation on this machine, under an `mpiexec` of its own and over the very same lines, for tests and experiments.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.errors import OptionError, PartyFailed, PartySilent
from colonnade.remote.staged_net import PATIENCE, Arguments, Onlooker
from colonnade.runtimes.launch import START_LIMIT, Launched, Programs, spawn
from colonnade.runtimes.net import Doorkeeper, Observer, Outcome, Program
from colonnade.runtimes.processes import Lines, Processes

if TYPE_CHECKING:
    from colonnade.remote.mpi_net import MpiNet

_RANK = struct.Struct("<I")
_LOOK = 0.2  # seconds between two looks at whether mpiexec is still there, while its ranks start
_LINGER = 2.0  # seconds from a request to end to the end of mpiexec
# Open MPI starts no more ranks than there are cores, and nothing as root, unless it is told to; MPICH does both.
_OPEN_MPI = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def world() -> Any:
    """Join the MPI job that this process was started in: see `mpi_net.world`."""
    from colonnade.remote import mpi_net

    return mpi_net.world()


def party_of_rank(names: tuple[str, ...]) -> str:
    """The party that this process is, out of all in their order; refuses a number of ranks that is another.

    Call it before anything that may fail at one rank alone: from here on such a failure ends the others too.
    """
    ranks, how = world(), f"mpirun -n {len(names)} colonnade run job.toml --mpi"
    if ranks.size == 1 < len(names):
        raise OptionError(
            f"this process is alone: it was not started by mpirun, or by that of another MPI than mpi4py uses; "
            f"start {how}"
        )
    if ranks.size != len(names):
        raise OptionError(f"{len(names)} parties need {len(names)} ranks, got {ranks.size}; start {how}")
    return names[int(ranks.rank)]


async def run_party_mpi(
    program: Program,
    arguments: Arguments,
    names: tuple[str, ...],
    *,
    deadline: float = 30.0,
    job: Mapping[str, Any] | None = None,
    patience: float = PATIENCE,
    observer: Observer | None = None,
    door: Doorkeeper | None = None,
    longest: Callable[..., int] | None = None,
    onlooker: Onlooker | None = None,
) -> Outcome:
    """Take part in a run as the party of this rank, until all parties have ended; raises what ends it early.

    arguments: of the program, or a function that returns them and is called, in a thread, once all ranks are there.
    deadline: seconds after which a silent party ends the run. job: what all parties agreed on; where another rank's
    differs, both raise `JobMismatch`. patience: seconds to wait for the others to join, and then for their data. door:
    asked before anything leaves. longest: the most bytes of a message that this party sends and takes, from the
    arguments; None is any number. onlooker: hears who is waited for. Cancelling this tells the others. Where a party
    has not ended a deadline after this one, the MPI job is aborted when this process ends.
    """
    from colonnade.remote.mpi_net import MpiNet

    party_of_rank(names)
    net = MpiNet(names, deadline, observer, job=job, patience=patience)
    net.longest_for, net.onlooker = longest, onlooker
    return await net.take_part(program, arguments, door)


# -- all parties on this machine ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mpi(Processes):
    """Run every party in a process of its own on this machine, as the ranks of an MPI job.

    Parameters
    ----------
    deadline : float
        Seconds after which a silent party ends the run at all others.
    slowed : mapping of str to float or to mapping
        Stragglers, for experiments; see `Processes`.
    mpiexec : tuple of str
        The command that starts the ranks, if it is not to be the one that is installed beside this Python, or else the
        first on the path.
    secret : str, optional
        What the parties' own random choices are drawn from; see `Processes`.
    """

    mpiexec: tuple[str, ...] = ()

    @contextmanager
    def _lines(self, names: tuple[str, ...]) -> Iterator[Lines]:
        """MPI makes its own."""
        yield Lines(dict.fromkeys(names, ()), dict.fromkeys(names, (__name__, START_LIMIT)))

    def _launched(
        self, programs: Programs, lines: Lines, theirs: ExitStack
    ) -> tuple[Launched, dict[str, socket.socket]]:
        """The ranks call back on a socket in a folder that nobody else may look into, and say who they are."""
        command = (*(self.mpiexec or (_find_mpiexec(),)), "-n", str(len(programs)))
        folder = theirs.enter_context(tempfile.TemporaryDirectory(prefix="colonnade-"))
        listener = theirs.enter_context(socket.socket(socket.AF_UNIX))
        address = str(Path(folder, "starter"))
        listener.bind(address)
        listener.listen(len(programs))
        ranks = Ranks(command, address)
        try:
            return ranks, ranks.gather(tuple(programs), listener)
        except BaseException:
            ranks.end(0.0)
            raise


def opened(
    _: str, names: tuple[str, ...], told: Any, deadline: float, observer: Observer, slowed: Mapping[str, float]
) -> MpiNet:
    """The `Net` of a party that `Mpi` started, in its own process."""
    from colonnade.remote.mpi_net import MpiNet

    return MpiNet(names, deadline, observer, patience=told[0], slowed=slowed)


def _find_mpiexec() -> str:
    beside = sysconfig.get_path("scripts")
    found = shutil.which("mpiexec", path=beside) or shutil.which("mpiexec") or shutil.which("mpirun")
    if found is None:
        raise OptionError("Mpi needs mpiexec, which is not on the path; install colonnade[mpi], or load your own MPI")
    return found


class Ranks:
    """One mpiexec and the processes that it started, which end with it."""

    def __init__(self, command: tuple[str, ...], address: str) -> None:
        allowed = _OPEN_MPI | (_AS_ROOT if hasattr(os, "geteuid") and os.geteuid() == 0 else {})
        try:
            self._process = spawn("remote.mpi", address, under=command, also=allowed)
        except OSError as error:
            raise OptionError(f"mpiexec can't be started as {command[0]!r}: {error.strerror}") from None

    def gather(self, names: tuple[str, ...], listener: socket.socket) -> dict[str, socket.socket]:
        """The line to every party, in order, as soon as all have called."""
        found: dict[str, socket.socket] = {}
        until = time.monotonic() + START_LIMIT
        with ExitStack() as unless_all:
            listener.settimeout(_LOOK)
            while missing := [name for name in names if name not in found]:
                try:
                    line = unless_all.enter_context(listener.accept()[0])
                except TimeoutError:
                    if (code := self._process.poll()) is not None:
                        text = f"party {missing[0]!r} died at step 'start': mpiexec ended with code {code}"
                        raise PartyFailed(text, missing[0], "start") from None
                    if time.monotonic() > until:
                        text = f"party {missing[0]!r} was silent for {START_LIMIT:g} s at step 'start'"
                        raise PartySilent(text, missing[0], "start") from None
                    continue
                line.settimeout(START_LIMIT)
                found[names[_RANK.unpack(line.recv(_RANK.size, socket.MSG_WAITALL))[0]]] = line
                line.settimeout(None)
            unless_all.pop_all()
        return {name: found[name] for name in names}

    def code(self, name: str) -> int | None:
        """See `Launched.code`: only mpiexec learns how a rank ended, and says so in words of its own."""
        return None

    def kill(self, name: str) -> None:
        """See `Launched.kill`: one rank can't be ended without the others."""
        self.end(0.0)

    def end(self, seconds: float) -> None:
        """See `Launched.end`. The ranks themselves end as soon as they have lost their line to the starter."""
        for wait, number in ((seconds, signal.SIGTERM), (_LINGER, signal.SIGKILL)):
            try:
                self._process.wait(wait)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
        self._process.wait()


def main() -> None:
    """One rank of an MPI job that `Mpi` started."""
    from colonnade.remote.mpi_net import leave
    from colonnade.runtimes import child

    rank = world().rank
    control = socket.socket(socket.AF_UNIX)
    control.connect(sys.argv[1])
    control.sendall(_RANK.pack(rank))
    child.serve(control.detach())
    leave()
    # MPICH takes its last leave of mpiexec in a handler at the end of the process, and one that skips it for a failure.
    # So only a thread that goes on and on is not waited for.
    going_on = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    for thread in going_on:
        if not thread.daemon:
            thread.join(_LINGER / len(going_on))
    if any(thread.is_alive() and not thread.daemon for thread in going_on):
        child.leave(0)
