"""The papers' tables and figures, run again: `python -m reproductions NAME --data FOLDER`, from a checkout.

Each module that is named here has a function `run(data, *, out, seed, quick)`. What came out stands beside the papers'
own figures in docs/reproductions.
"""

from __future__ import annotations

REPRODUCTIONS = {
    name: f"reproductions.{name.replace('-', '_')}"
    for name in (
        "afsgd-convergence",
        "afsgd-fdml",
        "afsgd-speedup",
        "fdskl-errors",
        "fdskl-scaling",
        "fdskl-time",
        "fdskl-topologies",
        "fedbcd-encrypted",
        "fedbcd-mnist",
        "fedbcd-nus",
        "fedbcd-rounds",
        "ssca-accuracy",
        "ssca-cost",
        "ssca-sparsity",
        "trees",
        "vfb2-accuracy",
        "vfb2-convergence",
        "vfb2-scaling",
    )
}

# These draw what they run on and read no file.
WITHOUT_DATA = frozenset({"fdskl-topologies", "vfb2-scaling"})
