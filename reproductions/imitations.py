"""Imitations of data sets that are not at hand: the same shape and sparsity, classes that a linear model tells apart.

Nothing is read: a seed and the numbers below make each set. A row is a bag of words. Its length is log-normal, its
words follow Zipf's law, and each class has its own taste: every word is more or less likely there by a factor of
exp(tilt · g), g normal. What can't be imitated is the meaning, so accuracies here say nothing about the original.

The numbers are LIBSVM's (rows, columns, non-zeros, labels), with both parts of a set together; for rcv1, AFSGD-VP
trains on the larger part, which is called the test part there. A scale makes rows and columns fewer alike: the rows per
column and the non-zeros of a row, so those of a column too, stay as they are, and the share of filled cells grows.
Spread, law and tilt are chosen so that row lengths look like those of a small real sample and a linear model does about
as well as on the original.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from colonnade.errors import one_of
from reproductions.datasets import Array, DataSet, unit_rows
from reproductions.dense_imitations import DENSE


@dataclass(frozen=True)
class Words:
    """How the rows of a set look."""

    rows: int
    columns: int
    nonzeros: float  # per row, on average
    spread: float  # standard deviation of the logarithm of a row's length
    zipf: float
    labels: float | int | None  # the share of +1, or how many classes, or None for real numbers
    values: str  # "tf-idf", "counts" and "binary" have rows of unit length; "ones" are as they are
    tilt: float
    train: float = 0.8  # share of the rows
    skew: float = 1.0  # class k has a share in proportion to k^-skew


WORDS = {
    "rcv1.binary": Words(697_641, 47_236, 74.05, 0.69, 1.02, 0.525, "tf-idf", 0.57, 677_399 / 697_641),
    "rcv1.multiclass": Words(534_135, 47_236, 66.0, 0.69, 1.02, 53, "tf-idf", 0.82, 518_571 / 534_135),
    "news20": Words(15_935, 62_061, 79.9, 0.80, 1.00, 20, "counts", 0.60, skew=0.0),
    "news20.binary": Words(19_996, 1_355_191, 455.0, 0.92, 0.85, 0.5, "binary", 0.42, 0.9),
    "webspam": Words(350_000, 16_609_143, 3727.7, 0.90, 0.85, 0.606, "counts", 0.22, 0.5),
    "url": Words(2_396_130, 3_231_961, 115.6, 0.15, 1.10, 0.331, "ones", 0.50),
    "E2006-tfidf": Words(19_395, 150_360, 1241.4, 0.75, 1.00, None, "tf-idf", 0.0, 16_087 / 19_395),
    "real-sim": Words(72_309, 20_958, 51.3, 0.80, 1.00, 0.3075, "tf-idf", 0.63),
    "w8a": Words(64_700, 300, 11.65, 0.55, 0.80, 0.0297, "ones", 1.0),
}
YEAR = "YearPredictionMSD"
IMITATED = (*WORDS, YEAR, *DENSE)
_YEAR_ROWS, _YEAR_TRAIN = 515_345, 463_715
# The most frequent words are nearly equally frequent: Zipf's law starts at this rank.
_FIRST_RANK = 10
# No row has more than this share of all columns: in small imitations the words would run out.
_FULLEST = 0.2
# The share of E2006's words that say something about its target.
_TELLING = 0.01


def imitate(name: str, scale: float, seed: int = 0) -> DataSet:
    """The set of that name with `scale` times its rows and columns; the non-zeros of a row stay."""
    one_of("the imitation's name", name, IMITATED)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    origin = f"imitation x {scale:g}"
    if name == YEAR:
        X, y = _songs(round(_YEAR_ROWS * scale), rng)
        return DataSet(name, X, y, _YEAR_TRAIN * len(y) // _YEAR_ROWS, "square", origin, X.shape[1])
    if name in DENSE:
        X, y = DENSE[name](scale, rng)
        return DataSet(name, X, y, round(0.8 * len(y)), "logistic", origin, ordered=True)
    words = WORDS[name]
    rows, columns = round(words.rows * scale), round(words.columns * scale)
    classes = _classes(words, rows, rng)
    X = _values(_counts(words, columns, classes, rng), words.values)
    loss, y = "softmax", classes
    if words.labels is None:
        loss, y = "square", _volatility(X, rng)
    elif isinstance(words.labels, float):
        loss, y = "logistic", 2 * classes - 1
    return DataSet(name, X, y, round(words.train * rows), loss, origin, ordered=True)


def _classes(words: Words, rows: int, rng: np.random.Generator) -> Array:
    if words.labels is None:
        return np.zeros(rows, dtype=np.int64)
    if isinstance(words.labels, float):
        return (rng.random(rows) < words.labels).astype(np.int64)
    shares = np.arange(1.0, words.labels + 1) ** -words.skew
    return rng.choice(words.labels, size=rows, p=shares / shares.sum())


def _counts(words: Words, columns: int, classes: Array, rng: np.random.Generator) -> Any:
    """How often each row has each word, CSR."""
    mean = min(words.nonzeros, _FULLEST * columns)
    lengths = rng.lognormal(np.log(mean) - words.spread**2 / 2, words.spread, len(classes))
    lengths = np.clip(lengths, 1.0, 2 * _FULLEST * columns)
    law = np.arange(_FIRST_RANK, columns + _FIRST_RANK, dtype=np.float64) ** -words.zipf
    place = rng.permutation(columns).astype(np.int32)  # frequent words anywhere: parties' columns are alike
    which, drawn = [], []
    draws: Array | None = None
    for label in np.unique(classes):
        taste = law * np.exp(words.tilt * rng.standard_normal(columns))
        taste /= taste.sum()
        if draws is None:
            draws = _draws(lengths, taste)
        mine = np.nonzero(classes == label)[0]
        which.append(np.repeat(mine, draws[mine]))
        reach = np.cumsum(taste)
        at = np.searchsorted(reach, reach[-1] * rng.random(len(which[-1])), side="right")
        drawn.append(place[np.minimum(at, columns - 1)])
    ones = np.ones(sum(map(len, drawn)), dtype=np.float32)
    # Duplicates are added up on the way to CSR: that makes the counts.
    X = sp.coo_matrix((ones, (np.concatenate(which), np.concatenate(drawn))), shape=(len(classes), columns)).tocsr()
    X.sort_indices()
    return X


def _draws(lengths: Array, taste: Array) -> Array:
    """How often to draw for so many different words, from the expected number of different ones."""
    tries = np.geomspace(1.0, 200 * lengths.max(), 60)
    missed = np.log1p(-taste)
    different = np.array([-np.expm1(n * missed).sum() for n in tries])
    found: Array = np.maximum(1, np.rint(np.interp(lengths, different, tries))).astype(np.int64)
    return found


def _values(X: Any, kind: str) -> Any:
    if kind == "tf-idf":
        seen = np.bincount(X.indices, minlength=X.shape[1])
        rarity = np.log(X.shape[0] / np.maximum(seen, 1))
        X.data = ((1.0 + np.log(X.data)) * rarity[X.indices]).astype(np.float32)
    elif kind != "counts":
        X.data[:] = 1.0
    return X if kind == "ones" else unit_rows(X)


def _volatility(X: Any, rng: np.random.Generator) -> Array:
    """A target like E2006's: the logarithm of a volatility, half of it explained by some frequent words."""
    weight = np.bincount(X.indices, np.square(X.data), minlength=X.shape[1])
    telling = np.argsort(-weight)[: max(2, round(_TELLING * X.shape[1]))]
    w = np.zeros(X.shape[1])
    w[telling] = rng.standard_normal(len(telling))
    told = X @ w
    told = (told - told.mean()) / told.std()
    out: Array = -3.7 + 0.6 * np.sqrt(0.5) * (told + rng.standard_normal(X.shape[0]))
    return out


def _songs(rows: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """90 correlated columns and a year up to 2011, most of them recent; a line explains a fifth of its variance."""
    from scipy.special import gammaincinv

    hidden = rng.standard_normal((rows, 15))
    X = hidden @ (0.6 * rng.standard_normal((15, 90))) + rng.standard_normal((rows, 90))
    told = X @ rng.standard_normal(90)
    told = 0.48 * told / told.std() + 0.877 * rng.standard_normal(rows)
    recent = (np.argsort(np.argsort(told)) + 0.5) / rows
    age = 9.5 * gammaincinv(1.33, 1.0 - recent)  # mean 12.6 years, deviation 10.9
    return X.astype(np.float32), 2011.0 - np.round(np.minimum(age, 89.0))
