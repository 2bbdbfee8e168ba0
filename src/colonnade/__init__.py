"""Colonnade: vertical federated learning. Columns and parameters stay at home; one model stands on all of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from colonnade import errors

if TYPE_CHECKING:
    from colonnade.algorithms.afsgd import AFSGD
    from colonnade.algorithms.block_newton import BlockNewton
    from colonnade.algorithms.fdml import FDML
    from colonnade.algorithms.fdskl import FDSKL
    from colonnade.algorithms.fedavg import FedAvg, MiniBatchSGD, ParallelRestartedSGD
    from colonnade.algorithms.fedbcd import FedBCD, FedSGD
    from colonnade.algorithms.ssca import SSCA
    from colonnade.algorithms.vfb2 import VFB2
    from colonnade.common_rows import align_parties
    from colonnade.estimators import (
        LinearSVC,
        LogisticRegression,
        PoissonRegression,
        RidgeRegression,
        SoftmaxRegression,
        load,
    )
    from colonnade.horizontal_estimator import SSCAClassifier
    from colonnade.identity import Identity
    from colonnade.kernel_estimators import KernelClassifier, KernelRegressor
    from colonnade.network_estimators import NetworkClassifier, NetworkRegressor
    from colonnade.party import Party, split
    from colonnade.runtimes.faults import Faults
    from colonnade.runtimes.processes import Processes
    from colonnade.runtimes.simulation import Simulation
    from colonnade.site import Site, split_rows
    from colonnade.transfer_estimator import TransferClassifier

__version__ = "0.2.0"

# Where each public name lives. Resolved on first use, so that `import colonnade` and `colonnade --help` are immediate.
_HOME = {
    "FedBCD": "colonnade.algorithms.fedbcd",
    "FedSGD": "colonnade.algorithms.fedbcd",
    "LinearSVC": "colonnade.estimators",
    "LogisticRegression": "colonnade.estimators",
    "PoissonRegression": "colonnade.estimators",
    "RidgeRegression": "colonnade.estimators",
    "SoftmaxRegression": "colonnade.estimators",
    "load": "colonnade.estimators",
    "AFSGD": "colonnade.algorithms.afsgd",
    "FDML": "colonnade.algorithms.fdml",
    "FDSKL": "colonnade.algorithms.fdskl",
    "KernelClassifier": "colonnade.kernel_estimators",
    "KernelRegressor": "colonnade.kernel_estimators",
    "BlockNewton": "colonnade.algorithms.block_newton",
    "NetworkClassifier": "colonnade.network_estimators",
    "NetworkRegressor": "colonnade.network_estimators",
    "TransferClassifier": "colonnade.transfer_estimator",
    "VFB2": "colonnade.algorithms.vfb2",
    "align_parties": "colonnade.common_rows",
    "SSCAClassifier": "colonnade.horizontal_estimator",
    "SSCA": "colonnade.algorithms.ssca",
    "FedAvg": "colonnade.algorithms.fedavg",
    "MiniBatchSGD": "colonnade.algorithms.fedavg",
    "ParallelRestartedSGD": "colonnade.algorithms.fedavg",
    "Identity": "colonnade.identity",
    "Site": "colonnade.site",
    "split_rows": "colonnade.site",
    "Party": "colonnade.party",
    "split": "colonnade.party",
    "Faults": "colonnade.runtimes.faults",
    "Processes": "colonnade.runtimes.processes",
    "Simulation": "colonnade.runtimes.simulation",
}

__all__ = [
    "AFSGD",
    "FDML",
    "FDSKL",
    "SSCA",
    "VFB2",
    "BlockNewton",
    "Faults",
    "FedAvg",
    "FedBCD",
    "FedSGD",
    "Identity",
    "KernelClassifier",
    "KernelRegressor",
    "LinearSVC",
    "LogisticRegression",
    "MiniBatchSGD",
    "NetworkClassifier",
    "NetworkRegressor",
    "ParallelRestartedSGD",
    "Party",
    "PoissonRegression",
    "Processes",
    "RidgeRegression",
    "SSCAClassifier",
    "Simulation",
    "Site",
    "SoftmaxRegression",
    "TransferClassifier",
    "align_parties",
    "errors",
    "load",
    "split",
    "split_rows",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'colonnade' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
