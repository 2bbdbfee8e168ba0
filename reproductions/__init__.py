"""The papers' tables and figures, run again. Each module has `run(data, *, out, seed, quick)`."""

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
        "vfb2-accuracy",
        "vfb2-convergence",
        "vfb2-scaling",
    )
}
