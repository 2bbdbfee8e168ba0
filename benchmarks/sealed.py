"""Sealed training: what it costs to train on shares, and how near to the model of all columns in one place it comes.

Every training run is between two parties in two processes, over mutual TLS on the loopback. Seconds are those of the
whole `fit`, with the start of both processes; CPU is that of both parties together, read from /proc; megabytes are what
both sent. Latency is added by a relay between the two (`tests/lossy_line.py`), which passes every byte on 20 ms later
in either direction and lets nothing wait for anything else, as a long line would.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import colonnade as cn
from colonnade.algorithms.sealed_newton import SealedNewton
from colonnade.crypto.keystream import Keystream
from colonnade.crypto.lattice import Lattice
from colonnade.crypto.lattice_keys import LatticePublicKey, SecretKey
from colonnade.objective import losses
from colonnade.objective.metrics import auc
from colonnade.remote.network import Network
from colonnade.sealed.products import Packed, Silent

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))
from encrypted import breast_cancer, credit
from lossy_line import LossyLine
from network import LATENCY
from reproductions.datasets import MissingData
from training import _descendants

Rows = list[tuple[str, str, str]]
Floats = Any
DATA = Path(os.environ.get("COLONNADE_DATA", "data"))
SHORTER = {"rounds": 1, "polish": 0}  # the short way: no round with an old curvature
LEAST = {"rounds": 1, "samples": 0, "polish": 0}  # of the short form, which only sees that it works
FORMS = {"packed": "the vector encrypted", "silent": "a random vector beforehand, then a difference"}


# -- one run -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """Columns in one place and what they are to be trained for; the first `cut` of them are the label holder's."""

    name: str
    X: Floats
    y: Floats
    cut: int
    l2: float
    ridge: bool = False

    def parties(self, X: Floats | None = None, y: Floats | None = None) -> tuple[cn.Party, cn.Party]:
        """The two parties, with these rows or with those of training."""
        X, y = (self.X, self.y) if X is None else (X, y)
        return cn.Party("bank", X[:, : self.cut], y), cn.Party("shop", X[:, self.cut :])

    def model(self, **options: Any) -> Any:
        """An estimator that is trained on shares."""
        kind = cn.RidgeRegression if self.ridge else cn.LogisticRegression
        return kind(l2=self.l2, algorithm=SealedNewton(**options), verbose=0)

    def __str__(self) -> str:
        return f"{self.name}, {self.X.shape[0]:,} x {self.X.shape[1]}, l2 = {self.l2:g}"


class Cpu:
    """Seconds of processors that this process's descendants take while it is open, in `seconds`."""

    def __enter__(self) -> Cpu:
        self._seen: dict[int, float] = {}
        self._look()
        self._before, self._open = dict(self._seen), True
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while self._open:
            self._look()
            time.sleep(0.02)

    def _look(self) -> None:
        for pid in _descendants():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:  # it just ended
                continue
            self._seen[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __exit__(self, *_: object) -> None:
        self._open = False
        self._thread.join()
        self.seconds = sum(self._seen.values()) - sum(self._before.values())


@dataclass(frozen=True)
class Run:
    """A trained model, and what that took."""

    model: Any
    wall: float
    cpu: float

    def __str__(self) -> str:
        traffic = self.model.traffic_.values()
        megabytes, messages = sum(one.bytes for one in traffic) / 1e6, sum(one.messages for one in traffic)
        return f"{self.wall:.2f} s, {self.cpu:.2f} s of CPU, {megabytes:.1f} MB, {messages} messages"


def run(task: Task, delay: float = 0.0, **options: Any) -> Run:
    """Train over mutual TLS, with so many seconds each way."""
    model, parties = task.model(**options), task.parties()
    with ExitStack() as lines:
        relay = (lambda address: lines.enter_context(LossyLine(address, delay)).address) if delay else None
        began = time.perf_counter()
        with Cpu() as cpu:
            model.fit(*parties, on=Network() if relay is None else Network(relay=relay))
    return Run(model, time.perf_counter() - began, cpu.seconds)


# -- how near it comes -------------------------------------------------------------------------------------------------


def central(task: Task) -> tuple[Floats, float]:
    """scikit-learn's coefficients, to the last digits, and intercept."""
    from sklearn.linear_model import LogisticRegression, Ridge

    n = len(task.y)
    if task.ridge:
        found = Ridge(alpha=n * task.l2, solver="cholesky").fit(task.X, task.y)
        return found.coef_.ravel(), float(found.intercept_)
    options = {"tol": 1e-12, "max_iter": 10_000, "solver": "newton-cholesky"}
    found = LogisticRegression(C=1 / (n * task.l2), **options).fit(task.X, task.y)
    return found.coef_.ravel(), float(found.intercept_[0])


def objective(task: Task, w: Floats, intercept: float) -> float:
    """The mean loss and the penalty."""
    z = np.asarray(task.X @ w).ravel() + intercept
    if task.ridge:
        loss = 0.5 * np.mean((z - task.y) ** 2)
    else:
        labels = np.unique(task.y)
        loss = np.mean(np.logaddexp(0.0, np.where(task.y == labels[1], -z, z)))
    return float(loss + 0.5 * task.l2 * w @ w)


def nearness(task: Task, model: Any, best: tuple[Floats, float]) -> str:
    """How far above the optimum, and how far off the worst coefficient."""
    w = np.concatenate([np.ravel(model.coef_[name]) for name in ("bank", "shop")])
    intercept = float(np.ravel(model.intercept_)[0])
    least = objective(task, *best)
    off = max(float(np.abs(w - best[0]).max()), abs(intercept - best[1]))
    return f"{objective(task, w, intercept) / least - 1:.0e} above the optimum, largest coefficient error {off:.0e}"


# -- the primitive -----------------------------------------------------------------------------------------------------


def product_of(form: str, X: Floats, v: Floats) -> tuple[float, int]:
    """Seconds of CPU of both sides for X'v in shares, all in this process, and the bytes that would travel."""
    silent, mine, theirs = Silent(1, len(v)), Keystream(bytes(32)), Keystream(bytes(31) + b"1")
    lattice = Lattice.of(silent.parameters)
    key = SecretKey(lattice, mine)
    public, bound = LatticePublicKey.from_bytes(lattice, key.public), float(np.linalg.norm(X, axis=1).max())
    began = time.process_time()
    if form == "packed":
        packed = Packed(*X.shape)
        question = packed.ask(key, v)
        answer, share = packed.answer(public, question, X, bound * np.sqrt(packed.together), theirs)
        found, size = packed.read(key, answer) + share, len(question) + len(answer)
        seconds = time.process_time() - began
    else:
        seed, drawn = silent.ask(key, mine)
        answer, share = silent.answer(public, seed, X, bound, theirs)
        difference = v - drawn[0]
        found = (silent.read(key, answer, len(X)) + share)[:, 0] + X.astype(np.int64).view(np.uint64) @ difference
        size = len(seed) + len(answer) + difference.nbytes
        seconds = time.process_time() - began
    exact = X.astype(np.int64).view(np.uint64) @ v
    off = np.abs((found - exact).view(np.int64)).max()
    assert off <= 4 * bound, off  # random vectors are rounded to words: off by about bound / sqrt(12)
    return seconds, size


def paillier_product(X: Floats, v: Floats) -> tuple[float, int] | None:
    """The same under Paillier's scheme; None where that is no part of the package any more."""
    try:
        from colonnade.blocks.ciphertexts import Packing, WholeColumns
        from colonnade.crypto.modular import Threads
        from colonnade.crypto.paillier import PrivateKey

        from colonnade.blocks.column_values import columns_from_value
    except ImportError:
        return None
    threads, rows = Threads(1), X.shape[1]
    key, packing = PrivateKey.generate(2048, threads), Packing(2048, 1, 52, rows)
    columns = WholeColumns(columns_from_value(np.ascontiguousarray(X.T)), ones=False)
    began = time.process_time()
    sealed = packing.encrypt(key.public, np.rint(v[:, None]), key.residues(rows * packing.chunks))
    layout = packing.layout(len(X))
    masks = packing.masks(key.public, layout)
    products = packing.products(key.public, sealed, columns.entries(np.arange(rows)), len(X), "bank", "signal")
    blinded = packing.blind(key.public, products, layout, masks, key.public.residues(len(masks)))
    packing.unblind(key.public, key.decrypt(blinded, "shop", "blinded gradient"), masks, layout)
    seconds = time.process_time() - began
    threads.close()
    return seconds, sealed.nbytes + blinded.nbytes


def products(quick: bool) -> Rows:
    """X'v, a private matrix and a private vector."""
    rng, n, d = np.random.default_rng(0), *((600, 3) if quick else (24_000, 10))
    X, v = np.rint(rng.standard_normal((d, n)) * 2.0**14), rng.integers(0, 2**64, n, np.uint64)
    rows: Rows = []
    for form, words in FORMS.items():
        runs = [product_of(form, X, v) for _ in range(2 if quick else 20)]
        seconds, size = min(seconds for seconds, _ in runs), runs[0][1]
        rows.append((f"X'v, {n:,} x {d}, {words}", f"{seconds * 1e3:.1f} ms of CPU, {size / 1e6:.2f} MB", "-"))
    theirs = paillier_product(X, rng.integers(-(2**31), 2**31, n).astype(float))
    if theirs is not None:
        what = f"X'v, {n:,} x {d}, Paillier of 2048 bits"
        ratio = theirs[0] / float(rows[0][1].split()[0]) * 1e3
        rows.append((what, f"{theirs[0]:.2f} s of CPU, {theirs[1] / 1e6:.2f} MB", f"ratio {ratio:.0f}"))
    return rows


# -- what is trained ---------------------------------------------------------------------------------------------------


def _task(name: str, read: Callable[[bool], Any], l2: float) -> Callable[[bool], Task]:
    def load(quick: bool) -> Task:
        X, y, cut, *_ = read(quick)
        return Task(name, X, y, cut, l2)

    return load


def synthetic(quick: bool) -> Task:
    """Correlated columns, and labels of a logistic model."""
    rng, n, d = np.random.default_rng(0), *((600, 6) if quick else (100_000, 50))
    common = rng.standard_normal((n, 5)) @ rng.standard_normal((5, d)) * 0.3
    X = rng.standard_normal((n, d)) + common
    X = (X - X.mean(0)) / X.std(0)
    y = X @ rng.standard_normal(d) * 0.5 - 1.0 + rng.logistic(size=n) > 0
    return Task("synthetic", X, y.astype(int), d // 2, 1e-4)


def exact_tasks(quick: bool) -> Iterator[tuple[str, Callable[[bool], Task], dict[str, Any]]]:
    """Those that are compared with scikit-learn's coefficients: their name, how to load them, options."""
    strengths, ways = ((1e-3,), (LEAST,)) if quick else ((1e-3, 1e-4), (SHORTER, {}))
    for l2 in strengths:
        for options in ways:
            yield "ucicreditcard", _task("ucicreditcard", credit, l2), options
    for l2 in strengths:
        yield "breast cancer", _task("breast cancer", breast_cancer, l2), ways[-1]
    for options in ways:
        yield "synthetic", synthetic, options


def _recipes() -> Any:
    """The data folder's own loader, which has the split behind the quality tests."""
    if not (DATA / "recipes.py").exists():
        raise MissingData(f"there is no recipes.py in {DATA}; set COLONNADE_DATA")
    sys.path.insert(0, str(DATA))
    import recipes

    return recipes


def held_out(name: str, quick: bool) -> tuple[Task, Floats, Floats]:
    """A task on four fifths of the rows, and the last fifth: as in tests/test_quality.py."""
    recipes = _recipes()
    if not (DATA / f"{name}.npz").exists():
        raise MissingData(f"there is no {name}.npz in {DATA}")
    scaled = None
    if name == "givemesomecredit":
        X, y, _, scaled = recipes.givemesomecredit_92()
    else:
        stored = recipes.load(name)
        X, y = stored["X"], stored["y"]
        scaled = X.shape[1] if name == "casp" else None
    X = X.toarray() if hasattr(X, "toarray") else X
    if quick:
        X, y = X[:500, :12], y[:500]
    train, test = recipes.split(len(y), int(0.8 * len(y)), seed=0)
    if scaled is not None:
        X = recipes.scale_numeric(X.astype(float), min(scaled, X.shape[1]), train)
    task = Task(name, X[train].astype(float), y[train], X.shape[1] // 2, 1e-4, ridge=name == "casp")
    return task, X[test].astype(float), y[test]


# -- the measure -------------------------------------------------------------------------------------------------------


def sealed(quick: bool) -> Rows:
    """Training on shares: two parties over mutual TLS, the whole fit, CPU and megabytes of both together."""
    rows = products(quick)
    small = Task("small", *(np.random.default_rng(0).standard_normal((64, 4)), np.arange(64) % 2), 2, 1e-2)
    if not quick:
        run(small, rounds=1, polish=0)  # kernels are loaded, and the processes' nursery stands
    rows.append(("64 x 4, one round: start, keys and the least there is", str(run(small, rounds=1, polish=0)), "-"))
    for name, load, options in exact_tasks(quick):
        try:
            task = load(quick)
        except MissingData as error:
            rows.append((name, "skipped", str(error)))
            continue
        done = run(task, **options)
        rows.append((f"{task}, {_way(options)}", str(done), nearness(task, done.model, central(task))))
    rows += slow(quick)
    rows += others(quick)
    for name in ("casp",) if quick else ("casp", "a9a", "phishing", "givemesomecredit"):
        try:
            rows += quality(name, quick)
        except MissingData as error:
            rows.append((name, "skipped", str(error)))
    return rows


def _way(options: dict[str, Any]) -> str:
    return "short" if options == SHORTER else "the least" if options == LEAST else "default"


def others(quick: bool) -> Rows:
    """Other losses, beside the same model trained in the open to the last digits."""
    rng, rows = np.random.default_rng(0), list[tuple[str, str, str]]()
    n, d = (600, 4) if quick else (20_000, 12)
    X = rng.standard_normal((n, d))
    counts = rng.poisson(np.exp(X @ rng.standard_normal(d) * 0.25 - 1.0))
    classes = (X @ rng.standard_normal((d, 3)) + rng.gumbel(size=(n, 3))).argmax(axis=1)
    labels = (X @ rng.standard_normal(d) + rng.logistic(size=n) > 0).astype(int)
    for kind, y in ((cn.PoissonRegression, counts), (cn.LinearSVC, labels), (cn.SoftmaxRegression, classes)):
        parties, l2 = (cn.Party("bank", X[:, : d // 2], y), cn.Party("shop", X[:, d // 2 :])), 1e-3
        model = kind(l2=l2, algorithm=SealedNewton(**({"rounds": 1, "polish": 0} if quick else {})), verbose=0)
        began = time.perf_counter()
        with Cpu() as cpu:
            model.fit(*parties, on=Network())
        done = Run(model, time.perf_counter() - began, cpu.seconds)
        best = kind(l2=l2, algorithm=cn.BlockNewton(tol=1e-12, epochs=300), sum="plain", verbose=0).fit(*parties)
        values = [_mean_loss(one, parties, y, l2) for one in (model, best)]
        gap = (values[0] - values[1]) / abs(values[1])
        rows.append((f"{kind.__name__}, {n:,} x {d}, l2 = {l2:g}", str(done), f"{gap:.0e} above the optimum"))
    return rows


def _mean_loss(model: Any, parties: tuple[cn.Party, ...], y: Floats, l2: float) -> float:
    loss, z = losses.loss(model.loss), model.decision_function(*parties)
    encoded = np.where(y > 0, 1.0, -1.0) if loss.kind == "binary" else y
    return loss.value(z, encoded) + 0.5 * l2 * sum(float(np.sum(np.square(one))) for one in model.coef_.values())


def slow(quick: bool) -> Rows:
    """The same over a line that takes its time."""
    rows: Rows = []
    delay = 0.002 if quick else LATENCY
    sets = (("ucicreditcard", credit), ("breast cancer", breast_cancer))
    for name, read in sets[:1] if quick else sets:
        for options in (LEAST,) if quick else (SHORTER, {}) if name == "ucicreditcard" else ({},):
            how = _way(options)
            try:
                task = _task(name, read, 1e-3)(quick)
            except MissingData as error:
                rows.append((f"{name}, {how}, a slow line", "skipped", str(error)))
                continue
            done = run(task, delay, **options)
            rows.append((f"{task}, {how}, {delay * 1e3:.0f} ms each way", str(done), "every byte is relayed later"))
    return rows


def quality(name: str, quick: bool) -> Rows:
    """What the model is worth on rows that it has not seen, beside the one that is trained in the open."""
    task, X, y = held_out(name, quick)
    done, test = run(task, **(LEAST if quick else {})), task.parties(X, y)
    kind = cn.RidgeRegression if task.ridge else cn.LogisticRegression
    opened = kind(l2=task.l2, sum="pairwise", verbose=0).fit(*task.parties())
    if task.ridge:
        best = central(task)
        worth = f"R² {done.model.score(*test):.4f}, in the open {opened.score(*test):.4f}; "
        return [(str(task), str(done), worth + nearness(task, done.model, best))]
    positive = y == np.unique(task.y)[-1]
    ours, theirs = (
        f"{model.score(*test):.4f}, AUC {auc(positive, model.decision_function(*test)):.4f}"
        for model in (done.model, opened)
    )
    return [(str(task), str(done), f"accuracy {ours}; in the open {theirs}")]
