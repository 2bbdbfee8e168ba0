"""Programs about where a party's process comes from and what it was handed, importable by a new process."""

from __future__ import annotations

import os
import random
import signal
import stat
import sys
from pathlib import Path

import numpy as np
import numpy.random  # before the parties are forked, who would otherwise all have the state that it begins with

from colonnade import errors
from colonnade.crypto.masks import KeyPair
from contracts.programs import all_to_all


async def ancestry(net):
    """(this process, its parent, its parent's parent)."""
    return (os.getpid(), os.getppid(), parent_of(os.getppid()))


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def surroundings(net):
    """What a process has from who started it: a variable, its folder, where it looks for modules first."""
    print("a word on standard output", flush=True)
    return (os.environ.get("COLONNADE_TEST", ""), os.getcwd(), sys.path[0])


async def leave_a_mark(net):
    """Change what can be changed in a process, and say what was there before."""
    found = getattr(errors, "mark", None)
    errors.mark = "from an earlier run"
    np.random.seed(3)
    return (found, float(np.random.random()))


async def take_part(net, data, other):
    """Hold data and a name, as a real program does, and talk to the other party."""
    await net.send(other, "sum", data)
    return float((data + await net.recv(other, "sum")).sum())


async def kill_the_nursery(net, starter):
    """The parent of the parent; it is the starter's only child that this process may end."""
    nursery = parent_of(os.getppid())
    if starter in (nursery, os.getppid()):
        raise RuntimeError("this party did not come out of a nursery")
    os.kill(nursery, signal.SIGKILL)
    return os.getpid()


async def family(net):
    """(this process, its parent, its session)."""
    return (os.getpid(), os.getppid(), os.getsid(0))


async def open_sockets(net):
    """How many sockets this process has, among all its files; nobody hangs up before all have looked."""
    count = 0
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            count += stat.S_ISSOCK(os.fstat(fd).st_mode)
        except OSError:
            continue  # the listing's own
    await all_to_all(net, 1)
    return count


async def secrets(net):
    """What no two parties may have in common."""
    return (os.urandom(8), KeyPair().public, random.random(), float(np.random.random()))


async def kill_the_parent(net, other, starter):
    if os.getppid() == starter:  # nothing was forked: that would be the tests' own process
        raise RuntimeError("this party is the starter's own child")
    os.kill(os.getppid(), signal.SIGKILL)
    await net.send(other, "done", None)
    return os.getpid()


async def await_done(net, other):
    await net.recv(other, "done")
    return os.getpid()


async def killed_after_done(net, other):
    await net.recv(other, "done")
    os.kill(os.getpid(), signal.SIGKILL)


async def array_facts(net, array, inside):
    """What a program may rely on about its arguments, large and small."""
    arrays = (array, inside[0])
    return tuple((a.flags.writeable, a.flags.aligned, a.flags.c_contiguous, float(a.sum())) for a in arrays)
