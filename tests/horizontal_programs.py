"""Networks and programs for tests/test_horizontal.py, importable by a new process."""

from __future__ import annotations

import os
import signal

import numpy as np

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


def brier(scores, y):
    """The squared distance of the probabilities from the right class, and its derivative by each score."""
    q = np.exp(scores - scores.max(axis=1, keepdims=True))
    q /= q.sum(axis=1, keepdims=True)
    off = q - np.eye(scores.shape[1])[y]
    by_q = 2 * off
    return (off**2).sum(axis=1), q * (by_q - (q * by_q).sum(axis=1, keepdims=True))


def first_half(w):
    """|w|^2 of the first half of the parameters."""
    kept = np.where(np.arange(len(w)) < len(w) // 2, w, 0.0)
    return float(kept @ kept), 2 * kept


def not_a_pair(scores, y):
    """A function of rows that forgets the slopes."""
    return scores[:, 0]


def too_short(scores, y):
    """A function of rows that forgets a row."""
    return scores[1:, 0], scores
