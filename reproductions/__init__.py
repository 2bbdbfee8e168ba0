"""The papers' tables and figures, run again: `python -m reproductions NAME --data FOLDER`, from a checkout.

Each module that is named here has a function `run(data, *, out, seed, quick)`. What came out stands beside the papers'
own figures in docs/reproductions.
"""

from __future__ import annotations

# In the order of the papers, with about how many minutes each takes on two cores.
MINUTES = {
    "fedbcd-rounds": 5,
    "fedbcd-encrypted": 1,
    "fedbcd-ftl": 10,
    "fedbcd-mnist": 7,
    "fedbcd-digits": 6,
    "fedbcd-nus": 8,
    "fedbcd-parties": 2,
    "fedbcd-rate": 2,
    "vfb2-accuracy": 30,
    "vfb2-convergence": 30,
    "vfb2-scaling": 20,
    "afsgd-speedup": 20,
    "afsgd-scaling": 10,
    "afsgd-workload": 1,
    "afsgd-real-time": 20,
    "afsgd-fdml": 18,
    "fdskl-errors": 15,
    "fdskl-time": 25,
    "fdskl-scaling": 10,
    "fdskl-topologies": 1,
    "ssca-cost": 10,
    "ssca-accuracy": 10,
    "ssca-sparsity": 20,
    "trees": 4,
    "defences": 8,
    "defences-networks": 5,
    "audit": 3,
    "audit-attacks": 10,
}

REPRODUCTIONS = {name: f"reproductions.{name.replace('-', '_')}" for name in MINUTES}

# These draw what they run on and read no file.
WITHOUT_DATA = frozenset(
    {"fdskl-topologies", "fedbcd-rate", "vfb2-scaling", "afsgd-scaling", "afsgd-workload", "audit"}
)
