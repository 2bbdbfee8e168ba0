"""What a worker is told of its starter's environment: where Python, modules and compiled kernels are, and no more."""

from __future__ import annotations

from colonnade.runtimes.launch import inherited

_NAMES = (
    "PATH", "HOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME",
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_CACHE_DIR", "COLONNADE_KERNELS", "COLONNADE_THREADS",
    "LD_LIBRARY_PATH",
)  # fmt: skip


def told() -> dict[str, str]:
    """The environment of a worker, which works on one core."""
    return {"COLONNADE_THREADS": "1", **{key: value for key, value in inherited().items() if key in _NAMES}}
