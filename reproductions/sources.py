"""The papers' data sets: each from its file where there is one, else as an imitation, and which it was is said.

UCICreditCard: 30,000 card holders in Taiwan (Yeh and Lien 2009, UCI, CC BY 4.0), default in the next month. Education,
marriage and the six states of payment are one-hot, which makes 75 columns; sex and 14 numbers stay.

GiveMeSomeCredit: 120,269 complete rows of Kaggle's competition of 2011, serious delinquency within two years. Which
columns are one-hot the papers do not say. Here the five counts are, with real estate loans cut at 29: this gives 92
columns and an accuracy near the papers', and no choice without a cut gives both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from reproductions.datasets import Array, DataSet, MissingData, csr, read_npz, unit_rows
from reproductions.imitations import IMITATED, imitate
from reproductions.report import Table

PAYMENTS = ("PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6")
REAL_ESTATE = "NumberRealEstateLoansOrLines"
COUNTS = (
    "NumberOfTime30-59DaysPastDueNotWorse",
    "NumberOfTimes90DaysLate",
    "NumberOfTime60-89DaysPastDueNotWorse",
    "NumberOfDependents",
    REAL_ESTATE,
)
# Three people have more; without the cut each of them would have a column of their own.
MOST_LOANS = 29
# The papers' training rows.
UCI_TRAIN, GIVE_TRAIN = 24_000, 96_257
# The scale of the imitations, 1 is LIBSVM's size: what some minutes on two cores allow.
SCALES = {
    "rcv1.binary": 0.1,
    "rcv1.multiclass": 0.05,
    "news20": 1.0,
    "news20.binary": 0.5,
    "webspam": 0.02,
    "url": 0.02,
    "E2006-tfidf": 0.5,
    "YearPredictionMSD": 0.1,
    "real-sim": 1.0,
    "w8a": 1.0,
    "cod-rna": 1.0,
    "epsilon": 0.05,
}
# In short forms every set has about so many rows.
SHORT_ROWS = 400
NEWS20_BINARY_TRAIN, CASP_TRAIN = 17_996, 36_584


def encode(table: Array, names: Sequence[str], categories: Sequence[str]) -> tuple[Array, int]:
    """The other columns first, then a 0/1 column for every value of each category; and how many others there are."""
    others = [j for j, name in enumerate(names) if name not in categories]
    blocks = [table[:, others].astype(np.float64)]
    for name in categories:
        values = table[:, list(names).index(name)]
        blocks.append((values[:, None] == np.unique(values)).astype(np.float64))
    return np.hstack(blocks), len(others)


def ucicreditcard(data: Path) -> DataSet:
    """UCICreditCard, 30,000 x 90."""
    stored = read_npz(data, "ucicreditcard", ("X", "y", "columns"))
    names = [str(name) for name in stored["columns"]]
    X, numbers = encode(stored["X"], names, ("EDUCATION", "MARRIAGE", *PAYMENTS))
    train_rows = UCI_TRAIN * len(X) // 30_000
    return DataSet("UCICreditCard", X, stored["y"], train_rows, "logistic", "real", numbers)


def givemesomecredit(data: Path) -> DataSet:
    """GiveMeSomeCredit, 120,269 x 92: rows with a missing value are left out."""
    stored = read_npz(data, "givemesomecredit", ("X", "y", "columns"))
    names = [str(name) for name in stored["columns"]]
    complete = ~np.isnan(stored["X"]).any(axis=1)
    table = stored["X"][complete]
    loans = names.index(REAL_ESTATE)
    table[:, loans] = np.minimum(table[:, loans], MOST_LOANS)
    X, numbers = encode(table, names, COUNTS)
    train_rows = GIVE_TRAIN * len(X) // 120_269
    return DataSet("GiveMeSomeCredit", X, stored["y"][complete], train_rows, "logistic", "real", numbers)


def news20(data: Path) -> DataSet:
    """news20: 20 newsgroups, word counts, here with rows of unit length; four fifths train, as in AFSGD-VP."""
    stored = read_npz(data, "news20", ("data", "indices", "indptr", "shape", "y"))
    X = unit_rows(csr(stored, stored["data"]))
    return DataSet("news20", X, stored["y"], round(0.8 * X.shape[0]), "softmax", "real")


def news20_binary(data: Path) -> DataSet:
    """news20.binary, made again from the posts: 1- to 3-grams, binary, rows of unit length."""
    stored = read_npz(data, "news20.binary-rebuilt", ("indices", "indptr", "shape", "y"))
    X = unit_rows(csr(stored, np.ones(len(stored["indices"]))))
    train_rows = NEWS20_BINARY_TRAIN * X.shape[0] // 19_996
    return DataSet("news20.binary", X, stored["y"], train_rows, "logistic", "real, rebuilt", ordered=True)


def casp(data: Path) -> DataSet:
    """Properties of protein structures (UCI, CC BY 4.0): nine columns, a real target."""
    stored = read_npz(data, "casp", ("X", "y"))
    X = stored["X"].astype(np.float64)
    return DataSet("casp", X, stored["y"], CASP_TRAIN * len(X) // 45_730, "square", "real", X.shape[1])


def a9a(data: Path) -> DataSet:
    """a9a: census income in 123 columns of 0 and 1, its two parts joined."""
    parts = ("data", "indices", "indptr", "shape")
    stored = read_npz(data, "a9a", (*parts, *(f"test_{name}" for name in parts), "y", "y_test"))
    train = csr(stored, stored["data"])
    test = csr({name: stored[f"test_{name}"] for name in parts}, stored["test_data"])
    columns = max(train.shape[1], test.shape[1])
    for part in (train, test):
        part.resize(part.shape[0], columns)
    return _of_classes("a9a", sp.vstack([train, test]).tocsr(), np.concatenate([stored["y"], stored["y_test"]]))


def phishing(data: Path) -> DataSet:
    """phishing: web sites, 30 of 68 columns filled, here with ones."""
    stored = read_npz(data, "phishing", ("data", "indices", "indptr", "shape", "y"))
    return _of_classes("phishing", csr(stored, np.ones(len(stored["data"]))), stored["y"])


def ijcnn1(data: Path) -> DataSet:
    """ijcnn1: an engine's time series in 22 columns, the training part."""
    stored = read_npz(data, "ijcnn1", ("data", "indices", "indptr", "shape", "y"))
    return _of_classes("ijcnn1", csr(stored, stored["data"]).toarray().astype(np.float64), stored["y"])


def gisette(data: Path) -> DataSet:
    """A stand-in for gisette, built from MNIST's 4 and 9 as the original was (Guyon et al. 2003): 5,000 columns.

    Half of them are pixels of the upper middle and products of two; the other half, probes, are the same with other
    rows' values. From -1 to 1 in steps of 1 / 500.
    """
    stored = read_npz(data, "mnist", ("X", "y"))
    rng, rows, half = np.random.default_rng(0x615E), 7_000, 2_500
    chosen = [rng.permutation(np.flatnonzero(stored["y"] == digit))[: rows // 2] for digit in (4, 9)]
    order = rng.permutation(np.concatenate(chosen))
    pixels = stored["X"][order].reshape(-1, 28, 28)[:, 4:20, 4:24].reshape(len(order), -1).astype(np.float32) / 255
    pixels = pixels[:, pixels.mean(axis=0) > 0.02]
    one, two = rng.integers(pixels.shape[1], size=(2, half))
    real = pixels[:, one] * pixels[:, two]
    alone = min(pixels.shape[1], half // 8)
    real[:, :alone] = pixels[:, :alone]
    probes = real[:, rng.permutation(half)][rng.permutation(len(order))]
    X = np.hstack([real, probes])[:, rng.permutation(2 * half)]
    y = np.where(stored["y"][order] == 4, 1, -1)
    return _of_classes("gisette", np.round(X * 999) / 999 * 2 - 1, y, "made from MNIST")


def _of_classes(name: str, X: Any, y: Array, origin: str = "real") -> DataSet:
    """Two classes; four fifths train."""
    return DataSet(name, X, y, round(0.8 * X.shape[0]), "logistic", origin)


READERS: dict[str, Callable[[Path], DataSet]] = {
    "UCICreditCard": ucicreditcard,
    "GiveMeSomeCredit": givemesomecredit,
    "news20": news20,
    "news20.binary": news20_binary,
    "casp": casp,
    "a9a": a9a,
    "phishing": phishing,
    "ijcnn1": ijcnn1,
    "gisette": gisette,
}


def load(name: str, data: Path, *, quick: bool = False) -> DataSet:
    """A set by the papers' name for it. `MissingData` if its file is not there and nothing imitates it."""
    if name in READERS:
        try:
            found = READERS[name](data)
        except MissingData:
            if name not in IMITATED:
                raise
        else:
            return found.shorter(SHORT_ROWS) if quick else found
    if not quick:
        return imitate(name, SCALES[name])
    # A small imitation of few rows would have few columns too: a larger one is cut instead.
    return imitate(name, _SHORT_SCALES.get(name, 0.05)).shorter(SHORT_ROWS)


_SHORT_SCALES = {
    "rcv1.binary": 0.003,
    "rcv1.multiclass": 0.003,
    "webspam": 0.002,
    "url": 0.0005,
    "YearPredictionMSD": 0.002,
}


def load_all(names: Sequence[str], data: Path, *, quick: bool = False) -> tuple[dict[str, DataSet], list[str]]:
    """The sets that are available, and a sentence for each that is missing, or imitated because its file is missing."""
    found, said = {}, []
    for name in names:
        try:
            found[name] = load(name, data, quick=quick)
        except MissingData as error:
            said.append(f"{name} is skipped: {error}.")
            continue
        if name in READERS and found[name].origin.startswith("imitation"):
            said.append(f"{name} is imitated: its file is not in {data}.")
    if not found:
        raise MissingData(f"none of {', '.join(names)} is in {data}; name the folder that holds them with --data")
    return found, said


def data_table(sets: Mapping[str, DataSet], *, batches: bool = True) -> Table:
    """A table of the data sets that were used; `batches` adds the batch sizes of the linear models."""
    rows = []
    for data in sets.values():
        sizes = (f"{data.train_rows:,}", f"{data.rows - data.train_rows:,}", f"{data.X.shape[1]:,}")
        batch = (str(data.batch),) if batches else ()
        rows.append((data.name, *sizes, f"{data.nonzeros:.1f}", *batch, data.origin))
    header = ("data", "train", "test", "columns", "per row", *(("batch",) if batches else ()), "origin")
    words = [
        "An imitation has so many times the rows and columns of LIBSVM's set, hence as many rows per column, and as "
        "many numbers in a row."
    ]
    imitated = any(data.origin.startswith("imitation") for data in sets.values())
    return Table("data", "Rows, columns, and numbers in a row", header, rows, words if imitated else [])
