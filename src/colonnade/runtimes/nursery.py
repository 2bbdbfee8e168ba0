"""The nursery: one process that imports what the programs need, once, and then forks a process for every party.

The children share the pages of interpreter and libraries, and none of them waits for imports. The nursery has one
thread, so that forking is safe, and never sees a party's data: a job travels over the party's own line, after the fork.
It then makes room for the reaper, and is gone.

Started by `launch.Nursery` as `python -c "from colonnade.runtimes.nursery import main; main()" <control fd>`.
"""

from __future__ import annotations

import gc
import importlib
import os
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np

from colonnade.runtimes import bulk
from colonnade.runtimes.child import leave, reader, serve
from colonnade.runtimes.reaper import FORKED, REHEARSING, THREADED, become, tell


def _threads() -> int:
    """Threads of this process, with those that libraries started where the system tells."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def _rehearse(module: str, outline: Any) -> None:
    """Run a miniature of the run through, so that all code is loaded, and compiled where it has to be, only once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(module).rehearse(outline)


def _fork(control: int, links: Sequence[int], everybodys: Sequence[int]) -> int:
    """A new party's process; only the nursery returns from here."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()  # as if it had been started by itself
        for fd in {*everybodys} - {control, *links}:
            os.close(fd)
        gc.enable()
        if "numpy.random" in sys.modules:
            np.random.seed()  # else all children would draw the same from numpy's global stream
        serve(control)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        leave(code)


def main() -> NoReturn:
    """Import, rehearse, fork, and become the reaper."""
    line = int(sys.argv[1])
    control = socket.socket(fileno=line)
    gc.disable()  # no holes in the pages that the children will share
    modules, rehearsal, berths = bulk.receive(reader(control))
    # Whatever goes wrong here goes wrong again in the child that needs it, and there it has a name and a line.
    for number, module in enumerate(modules):
        tell(control, number)
        with suppress(BaseException):
            importlib.import_module(module)
    tell(control, REHEARSING)
    with suppress(Exception):
        _rehearse(*rehearsal)
    if _threads() > 1:
        tell(control, THREADED)
        leave(0)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # else every child would say it again
    gc.collect()
    gc.freeze()
    everybodys = [line, *(fd for party, links in berths for fd in (party, *links))]
    pids = [_fork(party, links, everybodys) for party, links in berths]
    for fd in everybodys[1:]:
        os.close(fd)
    tell(control, FORKED, *pids)
    become(line, pids)
