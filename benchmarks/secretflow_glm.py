"""The opponent of sealed training: SecretFlow's logistic regressions on SPU, in an interpreter that has it.

python secretflow_glm.py FILE METHOD PROTOCOL EPOCHS L2

FILE is an .npz with X, y and cut; the first `cut` columns are the label holder's. METHOD is `irls` (SSGLM) or
`sgd:BATCH:STEP:EVERY:BY` (SSRegression), whose step is multiplied by BY after EVERY epochs; PROTOCOL is `semi2k`, whose
correlated randomness the first party deals by default, or `cheetah`, which needs no dealer. The two parties are two
processes over the loopback, without TLS, as in SecretFlow's production mode. Printed is a line of JSON for each epoch:
seconds since `fit` began, seconds of processors of both parties since then, and the coefficients with the intercept
last; then one with the bytes that both sent, as SPU counts them.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PARTIES = ("bank", "shop")
_SENT = re.compile(r"total send bytes (\d+)")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at."""
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [door.getsockname()[1] for door in doors]
    for door in doors:
        door.close()
    return ports


def processor_seconds() -> float:
    """Seconds of processors that this process has taken, with all of its threads."""
    used = os.times()
    return used.user + used.system


def party(me: str, ports: list[int], path: str, method: str, protocol: str, epochs: int, l2: float) -> None:
    """One party's program: it trains, and writes down how far it is after each epoch."""
    import numpy as np
    import secretflow as sf
    import spu
    from secretflow.data import FedNdarray, PartitionWay
    from secretflow.ml.linear import SSGLM, SSRegression

    lines = {name: {"address": f"127.0.0.1:{port}"} for name, port in zip(PARTIES, ports, strict=False)}
    sf.init(cluster_config={"parties": lines, "self_party": me}, ray_mode=False, logging_level="info")
    how = {
        "semi2k": {"protocol": spu.spu_pb2.SEMI2K, "field": spu.spu_pb2.FM128},
        "cheetah": {"protocol": spu.spu_pb2.CHEETAH, "field": spu.spu_pb2.FM64},
    }[protocol]
    if method == "irls" and protocol == "semi2k":
        how["fxp_fraction_bits"] = 40  # as SecretFlow's own component has it
    nodes = [{"party": name, "address": f"127.0.0.1:{port}"} for name, port in zip(PARTIES, ports[2:], strict=True)]
    device = sf.SPU({"nodes": nodes, "runtime_config": {**how, "enable_pphlo_profile": True}})
    bank, shop = map(sf.PYU, PARTIES)

    def columns(first: int, last: int | None) -> Any:
        return np.load(path)["X"][:, first:last].astype(np.float32)

    def labels() -> Any:
        return np.load(path)["y"].astype(np.float32).reshape(-1, 1)

    stored = np.load(path)
    cut, rows = int(stored["cut"]), len(stored["y"])
    blocks = {bank: bank(columns)(0, cut), shop: shop(columns)(cut, None)}
    table = FedNdarray(blocks, PartitionWay.VERTICAL)
    target = FedNdarray({bank: bank(labels)()}, PartitionWay.VERTICAL)
    sf.reveal([bank(np.sum)(blocks[bank]), shop(np.sum)(blocks[shop])])  # both have their columns
    began, worked = time.perf_counter(), processor_seconds()

    def note(epoch: int, kept: Any) -> None:
        seconds, used, model = time.perf_counter() - began, processor_seconds() - worked, kept[1]
        while isinstance(model, (list, tuple)):
            model = model[0]
        w = np.ravel(sf.reveal(model)).tolist()
        with Path(f"{me}.jsonl").open("a") as epochs_so_far:
            epochs_so_far.write(json.dumps({"epoch": epoch, "seconds": seconds, "cpu": used, "w": w}) + "\n")

    if method != "irls":
        batch, step, every, by = method.split(":")[1:]
        SSRegression(device).fit(
            table, target, epochs, learning_rate=float(step), batch_size=int(batch), sig_type="mix",
            reg_type="logistic", penalty="l2", l2_norm=l2 * int(batch), eps=0.0, decay_epoch=int(every),
            decay_rate=float(by), epoch_callback=note,
        )  # fmt: skip
    else:
        # SSGLM takes the penalty off twice, so that half of it is the penalty that is meant.
        SSGLM(device).fit_irls(
            table, target, None, None, epochs, "Logit", "Bernoulli", l2_lambda=rows * l2 / 2, epoch_callback=note
        )
    sf.shutdown()


def main(file: str, *given: str) -> None:
    """Start both parties, and print what both say together."""
    ports = ",".join(map(str, free_ports(4)))
    with tempfile.TemporaryDirectory() as folder:
        logs, started = {me: Path(folder) / me for me in PARTIES}, {}
        for me, log in logs.items():
            command = [sys.executable, str(Path(__file__).resolve()), str(Path(file).resolve()), *given, me, ports]
            with log.open("wb") as said:  # SPU writes its own log and its caches to where it is started
                started[me] = subprocess.Popen(command, cwd=folder, stdout=said, stderr=subprocess.STDOUT)
        failed = [process.wait() for process in started.values()]
        texts = {me: log.read_text(errors="replace") for me, log in logs.items()}
        notes = {me: Path(folder) / f"{me}.jsonl" for me in PARTIES}
        told = {me: note.read_text().splitlines() if note.exists() else [] for me, note in notes.items()}
    if any(failed):
        raise SystemExit("\n".join(f"{me}: {text[-2000:]}" for me, text in texts.items()))
    for mine, theirs in zip(map(json.loads, told["bank"]), map(json.loads, told["shop"]), strict=True):
        print(json.dumps({**mine, "cpu": mine["cpu"] + theirs["cpu"]}))
    print(json.dumps({"bytes": sum(int(found) for text in texts.values() for found in _SENT.findall(text))}))


if __name__ == "__main__":
    if len(sys.argv) == 6:
        main(*sys.argv[1:])
    else:
        path, method, protocol, epochs, l2, me, ports = sys.argv[1:]
        party(me, [int(port) for port in ports.split(",")], path, method, protocol, int(epochs), float(l2))
