"""Rounds of SSCA over ten sites with rows, beside Flower's FedAvg with the same network and batches."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import colonnade as cn
from reproductions.ssca_stage import HIDDEN, mnist

Rows = list[tuple[str, str, str]]
HERE = Path(__file__).parent
DATA = Path(os.environ.get("COLONNADE_DATA", "data"))
# Flower wants other versions of what others use, so `make bench` puts it into an environment of its own.
_OWN = HERE.parent / ".venv" / "opponents" / "bin" / "python"
OPPONENT = os.environ.get("COLONNADE_FLOWER_PYTHON", str(_OWN if _OWN.exists() else sys.executable))


def theirs(rounds: int, rows: int) -> tuple[float, float] | None:
    """(seconds, training cost) of Flower's FedAvg; None where Flower is not installed."""
    if subprocess.run([OPPONENT, "-c", "import flwr"], check=False, capture_output=True).returncode:
        return None
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent / "src"), str(HERE)]),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "COLONNADE_FEDAVG": f"{DATA.resolve()} {rounds} {rows}",
    }
    command = [OPPONENT, str(HERE / "flower_fedavg.py")]
    said = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    seconds, cost = said.strip().splitlines()[-1].split()
    return float(seconds), float(cost)


def horizontal_rounds(quick: bool) -> Rows:
    """MNIST at ten sites, 128 hidden cells, B = 100, one step per round: seconds in simulation."""
    rounds, few = (5, 2000) if quick else (100, 0)
    sites = mnist(DATA, few or None).sites
    rows: Rows = []
    for sum_, bar in (("pairwise", "bar: 30 s; "), ("plain", "")):
        algorithm = cn.SSCA(rounds=rounds, batch=100, evaluate_every=rounds)
        model = cn.SSCAClassifier(hidden=HIDDEN, fit_intercept=False, algorithm=algorithm, sum=sum_, verbose=0)
        began, spent = time.perf_counter(), time.process_time()
        model.fit(*sites)
        seconds, spent = time.perf_counter() - began, time.process_time() - spent
        cost = f"{bar}training cost {model.history_[-1]['loss']:.3f}; CPU time {spent:.1f} s"
        rows.append((f"SSCA, {rounds} rounds, {sum_}, with two evaluations", f"{seconds:.1f} s", cost))
    opponent = None if quick else theirs(rounds, few)
    if opponent is None:
        why = "not measured" if quick else "not installed"
        return [*rows, ("Flower's FedAvg", why, "name a Python that has it in COLONNADE_FLOWER_PYTHON")]
    said = f"no masks, no evaluation; training cost {opponent[1]:.3f}"
    return [*rows, (f"Flower's FedAvg, {rounds} rounds in its simulation", f"{opponent[0]:.1f} s", said)]
