"""The weights of fixed runs, of every family and on every runtime, as digests: to move code without changing a bit.

    python tests/fixed_runs.py --write before.json     # before the first move
    python tests/fixed_runs.py --compare before.json   # after the last

Digests hold for one machine: another processor may round differently.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import warnings
from pathlib import Path

import numpy as np

import colonnade as cn
from contracts.everywhere import RUNTIMES

RNG = np.random.default_rng(20)
X = RNG.standard_normal((400, 12))
X[RNG.random(X.shape) < 0.2] = 0.0
Y = (X @ RNG.standard_normal(12) > 0).astype(int)
THREE = Y + (X[:, 0] > 0.5)


def digest(*arrays):
    """Of the bits of all arrays."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def linear(kind="LogisticRegression", *, y=Y, into=2, active=1, on=None, **options):
    """A linear model's coefficients and losses."""
    model = getattr(cn, kind)(verbose=0, **options).fit(*cn.split(X, y, into=into, active=active), on=on)
    losses = np.array([record["loss"] for record in model.history_])
    intercept = model.intercept_
    ones = list(intercept.values()) if isinstance(intercept, dict) else intercept
    return digest(*model.coef_.values(), np.asarray(ones, dtype=float), losses)


def kernel(on=None):
    """A kernel model's scores of its own training rows."""
    parties = cn.split(X, Y, into=3, active=2)
    model = cn.KernelClassifier(gamma=0.1, features=64, algorithm=cn.FDSKL(epochs=3), verbose=0).fit(*parties, on=on)
    return digest(model.decision_function(*parties))


def modules():
    """A network for each of two parties."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    return {f"party{k + 1}": nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1)) for k in range(2)}


def networks(on=None):
    """Scores of two networks."""
    parties = cn.split(X, Y, into=2)
    model = cn.NetworkClassifier(modules(), algorithm=cn.FedBCD(local_steps=3, epochs=3, tol=None), verbose=0)
    return digest(model.fit(*parties, on=on).decision_function(*parties))


def transfer():
    """Probabilities of a transferred model."""
    ids = np.arange(400)
    bank = cn.Party("party1", X[:200, :6], Y[:200], ids=ids[:200])
    shop = cn.Party("party2", X[100:, 6:], ids=ids[100:])
    model = cn.TransferClassifier(
        modules(), algorithm=cn.FedBCD(local_steps=2, step=0.1, epochs=3, tol=None), verbose=0
    )
    return digest(model.fit(bank, shop).decision_function(shop))


def over_rows(algorithm, on=None):
    """The parameters of a model that sites train."""
    sites = cn.split_rows(X, Y, into=4)
    model = cn.SSCAClassifier(hidden=4, algorithm=algorithm, verbose=0).fit(*sites, on=on)
    return digest(model.predict_proba(X))


def runs():
    """Name of each run, and how to make it."""
    secret = {"secret": "rehearsal"}
    fedbcd = cn.FedBCD(local_steps=2, batch=16, epochs=2, tol=None)
    saga = cn.VFB2("saga", asynchronous=False, epochs=2, batch=16, tol=None)
    svrg = cn.VFB2("svrg", epochs=2, batch=16, tol=None)
    slow = {"latency": 0.01, "speeds": {"party1": 0.2}}
    found = {
        "block newton, simulation": lambda: linear(),
        "block newton, two holders, processes": lambda: linear(into=4, active=2, on=cn.Processes(**secret)),
        "softmax, block newton, simulation": lambda: linear("SoftmaxRegression", y=THREE, into=3),
        "fedbcd, processes": lambda: linear(into=3, algorithm=fedbcd, on=cn.Processes()),
        "saga, network": lambda: linear(into=3, algorithm=saga, on=RUNTIMES["network"](**secret)),
        "svrg, asynchronous, simulation": lambda: linear(into=3, algorithm=svrg, on=cn.Simulation(**slow)),
        "afsgd, simulation": lambda: linear(into=4, active=2, algorithm=cn.AFSGD("saga", epochs=2, tol=None)),
        "fdml, simulation": lambda: linear(algorithm=cn.FDML(epochs=2, tol=None)),
        "ridge, two trees": lambda: linear("RidgeRegression", y=X[:, 0], into=4, sum="two-trees", algorithm=fedbcd),
        "encrypted fedsgd, simulation": lambda: linear(sum="encrypted", algorithm=cn.FedSGD(epochs=2, tol=None)),
        "kernel, simulation": kernel,
        "kernel, processes": lambda: kernel(cn.Processes(**secret)),
        "networks, simulation": networks,
        "networks, processes": lambda: networks(cn.Processes()),
        "transfer, simulation": transfer,
        "ssca, simulation": lambda: over_rows(cn.SSCA(rounds=5)),
        "fedavg, processes": lambda: over_rows(cn.FedAvg(rounds=3), cn.Processes()),
    }
    if "mpi" in RUNTIMES:
        found["fedsgd, mpi"] = lambda: linear(algorithm=cn.FedSGD(batch=16, epochs=2, tol=None), on=RUNTIMES["mpi"]())
    return found


def main():
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--write", type=Path)
    how.add_argument("--compare", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = {name: make() for name, make in runs().items()}
    if options.write:
        options.write.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{len(found)} runs written to {options.write}")
        return 0
    before = json.loads(options.compare.read_text())
    other = [name for name in before if before[name] != found.get(name)]
    for name in other:
        print(f"{name}: {before[name]} before, {found.get(name)} now")
    print(f"{len(before) - len(other)} of {len(before)} runs have the same bits")
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())
