"""What holds for all tests: nothing that is drawn and no clock decides whether one passes.

Hypothesis draws the same examples every time. With COLONNADE_EXPLORE=1 it draws others: for whoever looks for defects,
and not for whoever asks whether a change is good.

What is marked `long` has a short form that is not, and runs with COLONNADE_ALL=1: `make test-all`. CONTRIBUTING.md says
what that adds.
"""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before numpy or torch is loaded: several tests share the cores, and their matrices are small. Threads of a library
# would wait for each other, at work, for ten times as long as one calculates. test_same_bits.py has more of them.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# Kernels are shipped compiled for what they are listed to be called with: what is missing in the list fails here.
os.environ.setdefault("COLONNADE_KERNELS", "declared")

settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("explore" if os.environ.get("COLONNADE_EXPLORE") == "1" else "steady")

# Whoever starts the tests in the background of a shell has them ignore Ctrl-C, and so would all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def unpainted(monkeypatch):
    """Pictures are put together and not painted: that takes longer than what they show. `make test-all` paints all."""
    if os.environ.get("COLONNADE_ALL") != "1" and find_spec("matplotlib") is not None:
        picture = b"\x89PNG"
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda _, path: Path(path).write_bytes(picture))


def pytest_collection_modifyitems(config, items):
    """Leave the long cases out, and say how many."""
    if os.environ.get("COLONNADE_ALL") != "1":
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
