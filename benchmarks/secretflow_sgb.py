"""The opponent of sealed trees: SecretFlow's SGB (SecureBoost under homomorphic encryption), in an interpreter with it.

python secretflow_sgb.py FILE SCHEME TREES DEPTH BINS

FILE is an .npz with X, y and cut; the first `cut` columns are the label holder's. SCHEME is `ou` (Okamoto-Uchiyama, the
faster one) or `paillier`. The two parties are two processes over the loopback, without TLS, as in SecretFlow's
production mode; options that are not named here are its own. Printed is one line of JSON: the version, seconds of `fit`
by the clock and of both parties' processors, and the scores of the training rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from secretflow_glm import PARTIES, free_ports, processor_seconds

_KEYS = {"ou": 2048, "paillier": 2048}  # bits


def party(me: str, ports: list[int], path: str, scheme: str, trees: int, depth: int, bins: int) -> None:
    """One party's program: it trains, and writes down what that took."""
    import numpy as np
    import secretflow as sf
    from secretflow.data import FedNdarray, PartitionWay
    from secretflow.ml.boost.sgb_v import Sgb

    lines = {name: {"address": f"127.0.0.1:{port}"} for name, port in zip(PARTIES, ports, strict=False)}
    sf.init(cluster_config={"parties": lines, "self_party": me}, ray_mode=False, logging_level="error")
    bank, shop = map(sf.PYU, PARTIES)
    keys = {
        "sk_keeper": {"party": PARTIES[0]},
        "evaluators": [{"party": PARTIES[1]}],
        "mode": "PHEU",
        "he_parameters": {"schema": scheme, "key_pair": {"generate": {"bit_size": _KEYS[scheme]}}},
        "encoding": {"cleartext_type": "DT_I32", "encoder": "IntegerEncoder", "encoder_args": {"scale": 1}},
    }
    heu = sf.HEU(keys, sf.device.device.spu.spu_pb2.FM128)

    def columns(first: int, last: int | None) -> Any:
        return np.load(path)["X"][:, first:last].astype(np.float32)

    def labels() -> Any:
        return np.load(path)["y"].astype(np.float32).reshape(-1, 1)

    cut = int(np.load(path)["cut"])
    blocks = {bank: bank(columns)(0, cut), shop: shop(columns)(cut, None)}
    table = FedNdarray(blocks, PartitionWay.VERTICAL)
    target = FedNdarray({bank: bank(labels)()}, PartitionWay.VERTICAL)
    sf.reveal([bank(np.sum)(blocks[bank]), shop(np.sum)(blocks[shop])])  # both have their columns
    options = {"num_boost_round": trees, "max_depth": depth, "max_leaf": 2**depth, "sketch_eps": 1 / bins}
    options |= {"learning_rate": 0.1, "objective": "logistic", "reg_lambda": 1.0, "gamma": 0.0}
    began, worked = time.perf_counter(), processor_seconds()
    model = Sgb(heu).train(options, table, target)
    found = {"version": sf.__version__, "seconds": time.perf_counter() - began, "cpu": processor_seconds() - worked}
    scores = sf.reveal(next(iter(model.predict(table, to_pyu=bank).partitions.values())))  # of `fit` no part
    found["scores"] = np.ravel(scores).tolist() if me == PARTIES[0] else []
    Path(f"{me}.json").write_text(json.dumps(found))
    sf.shutdown()


def main(file: str, *given: str) -> None:
    """Start both parties, and print what both say together."""
    ports = ",".join(map(str, free_ports(4)))
    with tempfile.TemporaryDirectory() as folder:
        logs, started = {me: Path(folder) / me for me in PARTIES}, {}
        for me, log in logs.items():
            command = [sys.executable, str(Path(__file__).resolve()), str(Path(file).resolve()), *given, me, ports]
            with log.open("wb") as said:
                started[me] = subprocess.Popen(command, cwd=folder, stdout=said, stderr=subprocess.STDOUT)
        failed = [process.wait() for process in started.values()]
        if any(failed):
            raise SystemExit("\n".join(f"{me}: {log.read_text(errors='replace')[-3000:]}" for me, log in logs.items()))
        told = {me: json.loads((Path(folder) / f"{me}.json").read_text()) for me in PARTIES}
    bank, shop = (told[me] for me in PARTIES)
    print(json.dumps({**bank, "seconds": max(bank["seconds"], shop["seconds"]), "cpu": bank["cpu"] + shop["cpu"]}))


if __name__ == "__main__":
    if len(sys.argv) == 6:
        main(*sys.argv[1:])
    else:
        path, scheme, trees, depth, bins, me, ports = sys.argv[1:]
        party(me, [int(port) for port in ports.split(",")], path, scheme, int(trees), int(depth), int(bins))
