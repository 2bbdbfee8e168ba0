"""`colonnade demo`: three organisations on this machine, from `colonnade init` to scores and ledgers.

It types nothing that a reader could not type: every command is printed, and everything is left in its folder. What
federation gains is said beside it: the hospital alone, all three federated, all data in one place.
"""

from __future__ import annotations

import csv
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

import colonnade as cn
from colonnade.cli.demo_data import COLUMNS, NEW_PATIENTS, Patients, patients, write_tables
from colonnade.errors import OptionError
from colonnade.objective import metrics
from colonnade.progress import human_bytes

Array = npt.NDArray[Any]
_L2 = 1e-2
_NAMES = tuple(COLUMNS)
_MARK = ".made-by-colonnade-demo"
_LIMIT = 300.0  # seconds for one step of all three; their own deadlines are far shorter


def run_demo(folder: Path) -> None:
    """Show the whole way."""
    console = Console(highlight=False)
    found = patients()
    _clear(folder)
    console.print(
        f"[bold]Breast cancer[/bold]: {found.X.shape[1]} columns of {len(found.ids)} patients in three organisations. "
        "Only the hospital knows outcomes."
    )
    _command(console, f"colonnade init {folder} --parties {','.join(_NAMES)}")
    _init(folder)
    counts = write_tables(folder, found)
    console.print("Their tables: " + ", ".join(f"{name} {count} patients" for name, count in counts.items()) + ".\n")

    job = folder / "job.toml"
    for name in _NAMES:
        _command(console, f"colonnade run {job} --as {name}")
    seconds = _together(console, job, dict.fromkeys(_NAMES, ("run", "--quiet")))

    console.print()
    partners = _NAMES[1:]
    scores = folder / "scores.csv"
    for name in partners:
        _command(console, f"colonnade serve {job} --as {name} --once")
    ask = ("--data", str(folder / "new.csv"), "--out", str(scores))
    _command(console, f"colonnade predict {job} --as hospital {' '.join(ask)}")
    asked = {"hospital": ("predict", *ask), **dict.fromkeys(partners, ("serve", "--once"))}
    _together(console, job, asked)

    console.print()
    _command(console, f"colonnade ledger show {job} --as hospital")
    sent = _ledgers(console, job)
    console.print()
    _compare(console, folder, found, scores, (seconds, sent))


def _command(console: Console, text: str) -> None:
    console.print(f"[dim]$[/dim] [cyan]{text}[/cyan]", soft_wrap=True)


def _clear(folder: Path) -> None:
    """Make room, but only where an earlier demo was."""
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / _MARK).exists())):
        raise OptionError(f"{str(folder)!r} is there already and no earlier demo's; choose another place with --out")
    shutil.rmtree(folder, ignore_errors=True)


def _init(folder: Path) -> None:
    """As the command does; then what a user would edit: free ports, a stronger penalty, and whom they will score."""
    from colonnade.jobs.init import init

    init(folder, _NAMES)
    (folder / _MARK).touch()
    job = folder / "job.toml"
    text = job.read_text(encoding="utf-8")
    for number, port in enumerate(_free_ports(len(_NAMES))):
        text = text.replace(f"127.0.0.1:{7443 + number}", f"127.0.0.1:{port}")
    job.write_text(text.replace("l2 = 1e-4 ", f"l2 = {_L2:g} ").replace("patience = 600", "patience = 60"))
    for name in _NAMES:  # the new patients, whom they agreed on, and not those of the training
        file = folder / f"{name}.toml"
        text = file.read_text(encoding="utf-8").replace('serve_people = "trained"', 'serve_people = "listed" ')
        file.write_text(text.replace('# serve_list = "people.txt" ', f'serve_list = "{NEW_PATIENTS}" '))


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _together(console: Console, job: Path, commands: dict[str, tuple[str, ...]]) -> float:
    """Each organisation's command in a process of its own, their words as they come; returns the seconds."""
    began, said = time.perf_counter(), dict.fromkeys(commands, "")

    def listen(name: str, words: IO[str]) -> None:
        with words:
            for line in filter(str.strip, words):
                said[name] = line.strip()
                console.print(f"  {said[name]}", markup=False, soft_wrap=True)

    with ExitStack() as ends:
        started = {}
        for name, (verb, *rest) in commands.items():
            line = [sys.executable, "-m", "colonnade.cli.main", verb, str(job), "--as", name, *rest]
            environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
            process = subprocess.Popen(
                line, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            listener = threading.Thread(target=listen, args=(name, process.stdout), daemon=True)
            listener.start()
            for end in (listener.join, process.wait, process.kill):
                ends.callback(end)
            started[name] = process
        try:
            codes = {name: process.wait(_LIMIT) for name, process in started.items()}
        except subprocess.TimeoutExpired:
            raise OptionError(f"the three did not end within {_LIMIT:g} s") from None
    for name, code in codes.items():
        if code:
            raise OptionError(f"{name!r} ended with: {said[name].removeprefix('colonnade: ')}")
    return time.perf_counter() - began


def _ledgers(console: Console, job: Path) -> int:
    """What left the hospital, and whether every ledger is as it was written; returns the bytes that left anybody."""
    from colonnade.cli.main import main
    from colonnade.ledger.verify import verify
    from colonnade.remote.signatures import checker

    main(["ledger", "show", str(job), "--as", "hospital"])
    sent = 0
    for name in _NAMES:
        ledger = job.parent / f"{name}-files" / "ledger.jsonl"
        report = verify(ledger, checker(job.parent / "certificates" / f"{name}.pem"))
        sent += sum(report.bytes_by_kind.values())
    console.print(f"All three ledgers verified; {human_bytes(sent)} left the organisations altogether.")
    return sent


def _compare(console: Console, folder: Path, found: Patients, scores: Path, cost: tuple[float, int]) -> None:
    """Score the new patients in two other ways too: by the hospital's columns alone, and by all tables at one party."""
    with scores.open(encoding="utf-8") as file:
        answers = {row["id"]: float(row["p(malignant)"]) for row in csv.DictReader(file)}
    federated = np.array([answers[one] for one in found.ids[found.new]])
    mine = list(COLUMNS["hospital"])
    by_itself = _by_one_party(found.X[:, mine], found.y, found.known["hospital"], found.new)
    joined = _by_one_party(found.X, found.y, found.common, found.new)

    y, rows = found.y[found.new], {}
    table = Table(title=f"{len(y)} new patients", title_justify="left")
    for heading in ("", "AUC", "accuracy", "seconds", "bytes"):
        table.add_column(heading, justify="right" if heading else "left")
    seconds, sent = cost
    for name, chances, more in (
        ("the hospital alone", by_itself, ("-", "-")),
        ("all three, federated", federated, (f"{seconds:.1f}", human_bytes(sent))),
        ("all data in one place", joined, ("-", "-")),
    ):
        rows[name] = chances
        style = "bold green" if chances is federated else None
        quality = f"{metrics.auc(y, chances):.4f}", f"{metrics.accuracy(y, chances > 0.5):.4f}"
        table.add_row(name, *quality, *more, style=style)
    console.print(table)
    console.print(
        "The seconds are of three processes from their start to the model: imports, handshakes, private alignment, "
        "training. That was sealed: no column, coefficient, score or outcome left its organisation in it, and each "
        "learnt its own coefficients alone."
    )
    _plot(rows, y, folder / "demo.png")
    console.print(f"Everything is in {folder}; a plot is {folder / 'demo.png'}.")
    console.print(f"To look at it as an organisation: colonnade dashboard {folder} --as {_NAMES[0]}", soft_wrap=True)


def _by_one_party(X: Array, y: Array, train: Array, new: Array) -> Array:
    """The chances of new rows by a model of one party that has all these columns of the rows to train on."""
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    model = cn.LogisticRegression(l2=_L2, verbose=0).fit(cn.Party("one", X[train], y[train]))
    chances: Array = model.predict_proba(cn.Party("one", X[new]))[:, 1]
    return chances


def _plot(chances: dict[str, Array], y: Array, out: Path) -> None:
    """Draw how many patients each of the three finds, and at which price; sealed training itself shows no curve."""
    from matplotlib.figure import Figure  # and not pyplot, which would look for a screen

    figure = Figure(figsize=(6, 4), layout="constrained")
    axis = figure.subplots()
    for name, found in chances.items():
        order = np.argsort(-found)
        hits, alarms = np.cumsum(y[order]) / y.sum(), np.cumsum(1 - y[order]) / (1 - y).sum()
        axis.plot(np.r_[0, alarms], np.r_[0, hits], label=f"{name}, AUC {metrics.auc(y, found):.4f}")
    axis.set(xlabel="false alarms", ylabel="found", title="New patients", xlim=(-0.01, 0.3), ylim=(0.6, 1.01))
    axis.legend()
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.3)
    figure.savefig(out, dpi=120)
