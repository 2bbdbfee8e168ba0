"""Colonnade: vertical federated learning. Columns and parameters stay at home; one model stands on all of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from colonnade import errors

if TYPE_CHECKING:
    from colonnade.algorithms.afsgd import AFSGD
    from colonnade.algorithms.block_newton import BlockNewton
    from colonnade.algorithms.boosted import OpenBoosting, SealedBoosting
    from colonnade.algorithms.fdml import FDML
    from colonnade.algorithms.fdskl import FDSKL
    from colonnade.algorithms.fedavg import FedAvg, MiniBatchSGD, ParallelRestartedSGD
    from colonnade.algorithms.fedbcd import FedBCD, FedSGD
    from colonnade.algorithms.sealed_newton import SealedNewton
    from colonnade.algorithms.ssca import SSCA
    from colonnade.algorithms.vfb2 import VFB2
    from colonnade.alignment.common_rows import align_parties
    from colonnade.data.identity import Identity
    from colonnade.data.party import Party
    from colonnade.data.site import Site, split_rows
    from colonnade.data.split_table import split
    from colonnade.estimators.binning import Binning
    from colonnade.estimators.glms import (
        GammaRegression,
        NegativeBinomialRegression,
        QuantileRegression,
        TweedieRegression,
    )
    from colonnade.estimators.horizontal import SSCAClassifier
    from colonnade.estimators.kernel import KernelClassifier, KernelRegressor
    from colonnade.estimators.linear import (
        LinearSVC,
        LogisticRegression,
        PoissonRegression,
        RidgeRegression,
        SoftmaxRegression,
        load,
    )
    from colonnade.estimators.stepwise import stepwise
    from colonnade.estimators.torch_networks import NetworkClassifier, NetworkRegressor
    from colonnade.estimators.transfer import TransferClassifier
    from colonnade.estimators.trees import BoostedTreesClassifier, BoostedTreesRegressor
    from colonnade.objective.expressions import cost, mean_of, of_parameters, squared_norm
    from colonnade.report.models import write_report
    from colonnade.runtimes.processes import Processes
    from colonnade.runtimes.simulation import Faults, Simulation
    from colonnade.validation.search import cross_validate, search

__version__ = "0.2.0"

# Where each public name lives. Resolved on first use, so that `import colonnade` and `colonnade --help` are immediate.
_HOME = {
    "FedBCD": "colonnade.algorithms.fedbcd",
    "FedSGD": "colonnade.algorithms.fedbcd",
    "LinearSVC": "colonnade.estimators.linear",
    "LogisticRegression": "colonnade.estimators.linear",
    "PoissonRegression": "colonnade.estimators.linear",
    "RidgeRegression": "colonnade.estimators.linear",
    "GammaRegression": "colonnade.estimators.glms",
    "NegativeBinomialRegression": "colonnade.estimators.glms",
    "QuantileRegression": "colonnade.estimators.glms",
    "TweedieRegression": "colonnade.estimators.glms",
    "SoftmaxRegression": "colonnade.estimators.linear",
    "load": "colonnade.estimators.linear",
    "AFSGD": "colonnade.algorithms.afsgd",
    "FDML": "colonnade.algorithms.fdml",
    "FDSKL": "colonnade.algorithms.fdskl",
    "Binning": "colonnade.estimators.binning",
    "BoostedTreesClassifier": "colonnade.estimators.trees",
    "BoostedTreesRegressor": "colonnade.estimators.trees",
    "OpenBoosting": "colonnade.algorithms.boosted",
    "SealedBoosting": "colonnade.algorithms.boosted",
    "KernelClassifier": "colonnade.estimators.kernel",
    "KernelRegressor": "colonnade.estimators.kernel",
    "BlockNewton": "colonnade.algorithms.block_newton",
    "NetworkClassifier": "colonnade.estimators.torch_networks",
    "NetworkRegressor": "colonnade.estimators.torch_networks",
    "stepwise": "colonnade.estimators.stepwise",
    "TransferClassifier": "colonnade.estimators.transfer",
    "SealedNewton": "colonnade.algorithms.sealed_newton",
    "VFB2": "colonnade.algorithms.vfb2",
    "align_parties": "colonnade.alignment.common_rows",
    "SSCAClassifier": "colonnade.estimators.horizontal",
    "SSCA": "colonnade.algorithms.ssca",
    "FedAvg": "colonnade.algorithms.fedavg",
    "MiniBatchSGD": "colonnade.algorithms.fedavg",
    "ParallelRestartedSGD": "colonnade.algorithms.fedavg",
    "cost": "colonnade.objective.expressions",
    "mean_of": "colonnade.objective.expressions",
    "of_parameters": "colonnade.objective.expressions",
    "squared_norm": "colonnade.objective.expressions",
    "write_report": "colonnade.report.models",
    "Identity": "colonnade.data.identity",
    "Site": "colonnade.data.site",
    "split_rows": "colonnade.data.site",
    "Party": "colonnade.data.party",
    "split": "colonnade.data.split_table",
    "Faults": "colonnade.runtimes.simulation",
    "Processes": "colonnade.runtimes.processes",
    "Simulation": "colonnade.runtimes.simulation",
    "cross_validate": "colonnade.validation.search",
    "search": "colonnade.validation.search",
}

__all__ = [
    "AFSGD",
    "FDML",
    "FDSKL",
    "SSCA",
    "VFB2",
    "Binning",
    "BlockNewton",
    "BoostedTreesClassifier",
    "BoostedTreesRegressor",
    "Faults",
    "FedAvg",
    "FedBCD",
    "FedSGD",
    "GammaRegression",
    "Identity",
    "KernelClassifier",
    "KernelRegressor",
    "LinearSVC",
    "LogisticRegression",
    "MiniBatchSGD",
    "NegativeBinomialRegression",
    "NetworkClassifier",
    "NetworkRegressor",
    "OpenBoosting",
    "ParallelRestartedSGD",
    "Party",
    "PoissonRegression",
    "Processes",
    "QuantileRegression",
    "RidgeRegression",
    "SSCAClassifier",
    "SealedBoosting",
    "SealedNewton",
    "Simulation",
    "Site",
    "SoftmaxRegression",
    "TransferClassifier",
    "TweedieRegression",
    "align_parties",
    "cost",
    "cross_validate",
    "errors",
    "load",
    "mean_of",
    "of_parameters",
    "search",
    "split",
    "split_rows",
    "squared_norm",
    "stepwise",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'colonnade' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
