"""All runtimes that the contracts are tested on."""

from __future__ import annotations

from importlib.util import find_spec

from colonnade.remote.mpi import Mpi
from colonnade.remote.network import Network
from colonnade.runtimes.processes import Processes
from colonnade.runtimes.simulation import Simulation

RUNTIMES = {"simulation": Simulation, "processes": Processes, "network": Network}
if find_spec("mpi4py") is not None:  # else tests/test_mpi.py is skipped, and says so
    RUNTIMES["mpi"] = Mpi
