"""The opponent of SSCA's rounds: Flower's own FedAvg in its simulation, in an interpreter that has Flower.

COLONNADE_FEDAVG="DATA ROUNDS ROWS" python flower_fedavg.py    prints seconds and the training cost at the end

The same network, the same batches: in each round each of ten clients takes one step on 100 of its rows.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from functools import lru_cache
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from colonnade.blocks.whole import ThreeLayers, costs
from reproductions.ssca_stage import CLIENTS, HIDDEN, mnist

# From the environment, which Flower's workers have too.
_TOLD = os.environ["COLONNADE_FEDAVG"].rsplit(" ", 2)
FOLDER, ROUNDS, ROWS = Path(_TOLD[0]), int(_TOLD[1]), int(_TOLD[2]) or None
BATCH, STEP = 100, 1.0
NETWORK = ThreeLayers(784, HIDDEN, 10)
client, server, found = ClientApp(), ServerApp(), {}


@lru_cache(maxsize=1)
def sites():
    return mnist(FOLDER, ROWS).sites


@client.train()
def step(message: Message, context: Context) -> Message:
    site = sites()[int(context.node_config["partition-id"])]
    w = message.content["arrays"]["w"].numpy()
    turn = int(message.content["config"]["server-round"])
    rng = np.random.default_rng([0, int(context.node_config["partition-id"]), turn])
    rows = rng.choice(site.rows, min(BATCH, site.rows), replace=False)
    _, gradient = NETWORK.value_and_gradient(w, site.X[rows], site.y[rows])
    arrays = ArrayRecord({"w": Array(w - STEP * gradient)})
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": site.rows})})
    return Message(content, reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    first = ArrayRecord({"w": Array(NETWORK.start(0))})
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=CLIENTS)
    strategy.start(grid, first, num_rounds=1)  # every worker has its data
    began = time.perf_counter()
    result = strategy.start(grid, first, num_rounds=ROUNDS)
    found["seconds"] = time.perf_counter() - began
    w = result.arrays["w"].numpy()
    found["cost"] = float(np.mean([costs(NETWORK.scores(w, site.X), site.y).mean() for site in sites()]))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(Path(__file__).parent))
    import flower_fedavg as importable  # what workers get by name, they can import

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(importable.server, importable.client, num_supernodes=CLIENTS, backend_config=resources)
    print(f"{importable.found['seconds']} {importable.found['cost']}")
