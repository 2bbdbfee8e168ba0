"""An imitation of NUS-WIDE: 634 image features at one party, 1,000 tags at another, a label that needs both.

The pictures are not at hand. Tags come from `nus_wide_tags.npz` (1,900 real rows of tags) where that file is, with
some left out and some added at random; else words of Zipf's law stand for them, as many per row (6.3). Tags have hidden
topics; image features are noisy bent mixtures of these topics and of what no tag tells; the label depends on both and
on one product. The sizes of the image features (64 + 144 + 73 + 128 + 225) are the original's. What can't be imitated
is the meaning: accuracies here say nothing about the original.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from colonnade.data.party import Party
from reproductions.datasets import Array, MissingData, csr, read_npz

IMAGE = (64, 144, 73, 128, 225)  # colour histogram, correlogram, edges, wavelets, block moments
_NOISE = (1.2, 1.2, 1.0, 1.2, 1.0)
TAGS, PER_ROW, TOPICS = 1000, 6.3, 16
_KEPT, _ADDED = 0.85, 0.15  # of a row's tags, and of all tags in wrong places


@dataclass(frozen=True, eq=False)
class Pictures:
    """Image features, tags and labels of the same pictures, the training rows first."""

    image: Array
    tags: Any
    y: Array
    train_rows: int
    origin: str

    def parties(self, number: int, *, test: bool = False) -> list[Party]:
        """Two parties: image and tags. More: each kind is dealt to about as many parties as is its share of columns."""
        rows = slice(self.train_rows, None) if test else slice(None, self.train_rows)
        image, tags, y = self.image[rows], self.tags[rows], self.y[rows]
        if number == 2:
            return [Party("image", image, y), Party("tags", tags)]
        of_image = max(1, round(number * image.shape[1] / (image.shape[1] + tags.shape[1])))
        cut = np.array_split(np.arange(image.shape[1]), of_image)
        found = [Party(f"image{k}", image[:, part], y if k == 1 else None) for k, part in enumerate(cut, 1)]
        deal = np.random.default_rng(0x7A65).permutation(tags.shape[1])  # frequent tags to all
        columns = tags.tocsc()
        for k, part in enumerate(np.array_split(deal, number - of_image), 1):
            found.append(Party(f"tags{k}", columns[:, np.sort(part)].tocsr()))
        return found


def nus_wide(data: Path, train_rows: int, test_rows: int, seed: int = 0) -> Pictures:
    """Draw so many training and test pictures."""
    rng, n = np.random.default_rng([seed, 0x4E55]), train_rows + test_rows
    try:
        stored = read_npz(data, "nus_wide_tags", ("indices", "indptr", "shape"))
        real = csr(stored, np.ones(len(stored["indices"])))
        origin = "imitation over real tags"
        pool = np.flatnonzero(np.diff(real.indptr) > 0)
        drawn = real[rng.choice(pool, n)].tocoo()
        kept = rng.random(drawn.nnz) < _KEPT
        wrong = int(_ADDED * drawn.nnz)
        rows = np.concatenate([drawn.row[kept], rng.integers(n, size=wrong)])
        columns = np.concatenate([drawn.col[kept], rng.choice(drawn.col, wrong)])
    except MissingData:
        origin = "imitation"
        law = 1.0 / np.arange(10, TAGS + 10)
        counts = 1 + rng.poisson(PER_ROW - 1, n)
        rows, columns = np.repeat(np.arange(n), counts), rng.choice(TAGS, counts.sum(), p=law / law.sum())
    tags = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=(n, TAGS))
    tags.sum_duplicates()
    tags.data[:] = 1.0
    lengths = np.sqrt(np.maximum(np.diff(tags.indptr), 1))[:, None]
    told = np.asarray(tags @ rng.standard_normal((TAGS, TOPICS))) / lengths / 4.0
    shown = rng.standard_normal(told.shape)  # what the picture shows and no tag tells
    hidden = np.hstack([told, shown])
    image = np.hstack(
        [
            np.tanh(hidden @ rng.standard_normal((2 * TOPICS, width)) / 5.0) + noise * rng.standard_normal((n, width))
            for width, noise in zip(IMAGE, _NOISE, strict=True)
        ]
    )
    train = image[:train_rows]
    image = ((image - train.mean(axis=0)) / train.std(axis=0)).astype(np.float32)
    score = 5.0 * told[:, 0] + 1.3 * shown[:, 0] + 0.5 * shown[:, 1] * shown[:, 2] + 0.5 * rng.standard_normal(n)
    return Pictures(image, tags, (score > np.median(score)).astype(np.int64), train_rows, origin)
