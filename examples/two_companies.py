"""Two companies, from files to scores: a bank that knows who repaid, a shop that knows what people buy.

    python examples/two_companies.py

What each company would type is printed and run, each in a process of its own, on this machine: `colonnade init`, a CSV
file each, `colonnade run` (private alignment, training, each its own part of the model), then `serve` at the shop while
the bank asks with `predict`. Everything lies in a temporary folder. docs/two-companies.md tells the same story slowly.
"""

from __future__ import annotations

import csv
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

COMMAND = [sys.executable, "-m", "colonnade.cli.main"]


def write_tables(folder: Path) -> None:
    """A bank and a shop that share about four fifths of their customers; repaying depends on what both know."""
    rng = np.random.default_rng(1)
    people = np.array([f"{number:05}" for number in range(3000)])
    bank, shop = rng.normal(size=(3000, 4)), rng.normal(size=(3000, 4))
    repaid = bank[:, 0] + bank[:, 1] - shop[:, 0] + shop[:, 1] + rng.normal(size=3000) > 0
    for name, table, columns in (
        ("bank", bank, ["id", "age", "savings", "rent", "debts", "label"]),
        ("shop", shop, ["id", "returns", "spend", "visits", "coupons"]),
    ):
        chosen = rng.permutation(3000)[:2400]
        with (folder / f"{name}.csv").open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(columns)
            for k in chosen:
                label = ["repaid" if repaid[k] else "lost"] if name == "bank" else []
                lines.writerow([people[k], *(f"{value:.4f}" for value in table[k]), *label])


def choose_ports(job: Path) -> None:
    """Put ports that are free into job.toml: here both companies are on one machine."""
    text = job.read_text()
    with socket.socket() as one, socket.socket() as two:
        for old, free in ((7443, one), (7444, two)):
            free.bind(("127.0.0.1", 0))
            text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{free.getsockname()[1]}")
    job.write_text(text)


def together(*lines: str) -> None:
    """Run commands at the same time, each as a company would in its own terminal, and print what they say."""
    started = []
    for line in lines:
        print(f"$ colonnade {line}", flush=True)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        started.append(subprocess.Popen([*COMMAND, *line.split()], **pipes))
    for process in started:
        said = process.communicate(timeout=120)[0]
        print("".join(f"  {line}\n" for line in said.splitlines()), end="")
        if process.returncode:
            sys.exit(f"the command ended with exit code {process.returncode}")


def main() -> None:
    """Do all of it."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "loans"
        together(f"init {folder} --parties bank,shop")
        write_tables(folder)
        choose_ports(folder / "job.toml")
        job, scores = folder / "job.toml", folder / "scores.csv"
        together(f"run {job} --as bank", f"run {job} --as shop")
        together(f"serve {job} --as shop --once", f"predict {job} --as bank --out {scores}")
        lines = list(csv.DictReader(scores.open()))
        known = [line for line in lines if line["known"] == "true"]
        print(f"the bank asked about {len(lines)} customers and has scores for the {len(known)} whom both serve")
        print(f"the first of them: {known[0]}")


if __name__ == "__main__":
    main()
