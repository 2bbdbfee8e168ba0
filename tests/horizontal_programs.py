"""Networks and programs for tests/test_horizontal.py, importable by a new process."""

from __future__ import annotations

import os
import signal

from colonnade.horizontal.program import attend


def two_layers(features, classes):
    """A torch module like the paper's, with tanh."""
    import torch

    return torch.nn.Sequential(torch.nn.Linear(features, 8), torch.nn.Tanh(), torch.nn.Linear(8, classes))


def one_layer(features, classes):
    """Another one."""
    import torch

    return torch.nn.Linear(features, classes)


async def die_after(net, rounds, *args):
    """A site whose process is killed after so many rounds."""

    class Mortal:
        def __getattr__(self, name):
            if name == "work" and net.traffic.rounds >= rounds:
                os.kill(os.getpid(), signal.SIGKILL)
            return getattr(net, name)

    return await attend(Mortal(), *args)
