"""How many rows a batch of encrypted signals needs, so that the gradients that come of it do not show the labels.

With one label holder no gradient is opened (`engine.encrypted_shares`), and batches may be as small as anybody likes.
With several of them gradients are, and this is about these.

A party gets X^T s of its own columns, in exact whole numbers: 23 bits of a value times 32 of a signal, 55 for each
column, whatever b, the rows of the batch, is. Where the signals are known up to the labels, each row hides one bit, and
lattice reduction finds all b of them from d columns as soon as 55 d is clearly above b. (With 15 columns, batches of 64
took it a minute and a half.) Signals are known so exactly in the first round, when all scores are one and the same
number, and can be guessed later where the label holder's own columns say little. Hence, under `sum="encrypted"` with
several label holders:

1. No batch has fewer rows than 55 times the columns of a party that gets a gradient of it. With K classes there are
   K - 1 independent gradients, and log2 K bits in a label: 55 d (K - 1) / log2 K.
2. The first epoch is one batch of all rows for every label holder. Its gradient then holds about 25 + log2(b) / 2 bits
   a column, about half of what (1) lets the labels hold. And it is the same in every run on these rows, whatever the
   seed and the batch, so that runs do not add up; a smaller first batch would be another one each time.
3. A label holder whose labels hold less than that gradient can show, as they do where one class is rare, refuses.

The count says that many labellings fit the same numbers. It does not say that nothing can be guessed, and it does
not add up epochs: docs/security.md. Who has how many columns everybody is told, so that everybody refuses alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from colonnade.errors import OptionError, ProtocolError
from colonnade.objective.penalties import L2
from colonnade.runtimes.net import Net

ENCRYPTED = "encrypted"  # the sum whose signals are encrypted
# Bits of a value, `blocks.whole_columns.VALUE_BITS`, and those of a signal behind its point, `encrypted.FRACTION_BITS`.
VALUE_BITS, SIGNAL_BITS = 23, 32
EXACT_BITS = VALUE_BITS + SIGNAL_BITS
# What a batch has at least where nobody names one, as with signals in the clear.
_USUAL = 64
# The same where no gradient is opened: a batch of fewer rows takes hardly less time.
_USUAL_SHARED = 256
_MOST_COLUMNS = 1 << 40  # that anybody is believed to have


def in_shares(sum_name: str, holders: Sequence[str]) -> bool:
    """Whether coefficients of others are shared with the only label holder, so that no gradient is opened."""
    return sum_name == ENCRYPTED and len(holders) == 1


def check_penalty(sum_name: str, holders: Sequence[str], penalty: str) -> None:
    """Refuse penalties whose gradient is not linear, as steps on shares are."""
    if in_shares(sum_name, holders) and penalty != L2.name:
        raise OptionError(
            f"sum='encrypted' with one label holder takes steps on shares of coefficients, which needs penalty 'l2', "
            f"got {penalty!r}; use 'l2', or another sum"
        )


def least_batch(columns: int, outputs: int = 1) -> int:
    """Rows of a batch at least, for a party with so many columns and a model with so many scores of a row."""
    return math.ceil(EXACT_BITS * columns * _gradients(outputs) / math.log2(max(2, outputs)))


def _gradients(outputs: int) -> int:
    """Independent gradients of a column: those of all classes add up to what is known."""
    return max(1, outputs - 1)


def usual_batch(sizes: Mapping[str, int], holders: tuple[str, ...], outputs: int, rows: int) -> int:
    """Rows per batch, at most, where the job does not say: no piece that rows are then cut into is too small.

    (Of 2 L - 1 at most, all pieces have L at least, unless there are fewer rows in all.)
    """
    if in_shares(ENCRYPTED, holders):
        return min(rows, _USUAL_SHARED)
    each = [least_batch(columns, outputs) for columns in sizes.values()]
    return min(rows, 2 * max([_USUAL, *each]) - 1)


def check_batches(sizes: Mapping[str, int], shares: Mapping[str, int], batch: int, outputs: int) -> None:
    """Refuse batches that are too small.

    sizes: of each party, its columns. shares: of each label holder, its rows. batch: rows of one, at most.
    """
    found = [
        (least_batch(columns, outputs), name, holder, rows // -(-rows // min(rows, batch)))
        for holder, rows in shares.items()
        for name, columns in sizes.items()
        if rows and name != holder
    ]
    refused = [(least, name, holder, smallest) for least, name, holder, smallest in found if smallest < least]
    if not refused:
        return
    least, name, holder, smallest = max(refused)
    rows, classes = shares[holder], "" if outputs < 3 else f" and {outputs} classes"
    if least > rows:
        remedy = (
            f"the {rows} rows of party {holder!r} are too few, so give more rows or fewer columns, or use another sum "
            f"where {name!r} may know the labels"
        )
    else:
        remedy = f"set batch to {-(-rows // (rows // least))}, or leave it out"
    raise OptionError(
        f"batches of {smallest} rows of party {holder!r} would let party {name!r} work out the labels from the "
        f"gradients of its {sizes[name]} columns{classes}, which are exact; under sum='encrypted' a batch for so many "
        f"has at least {least} rows: {remedy}"
    )


async def agree_on_batch(
    net: Net, columns: int, shares: Mapping[str, int], outputs: int, batch: int | None
) -> tuple[int, dict[str, int]]:
    """(rows per batch at most, the columns of each party), or refusal, at all parties alike."""
    sizes = {net.me: columns}
    for name in net.names:
        if name != net.me:
            await net.send(name, "block size", columns)
    for name in net.names:
        if name != net.me:
            told = await net.recv(name, "block size")
            if type(told) is not int or not 0 <= told <= _MOST_COLUMNS:
                raise ProtocolError(f"party {name!r} must tell a number of columns at step 'block size'")
            sizes[name] = told
    sizes = {name: sizes[name] for name in net.names}
    found = batch or usual_batch(sizes, tuple(shares), outputs, sum(shares.values()))
    if not in_shares(ENCRYPTED, tuple(shares)):
        check_batches(sizes, shares, found, outputs)
    return found, sizes


# -- rare labels -------------------------------------------------------------------------------------------------------


def check_labels(
    me: str,
    y: npt.NDArray[np.float64],
    sizes: Mapping[str, int],
    outputs: int,
    *,
    classes: bool,
    weights: npt.NDArray[np.float64] | None = None,
) -> None:
    """At a label holder: refuse labels that hold less than another party's gradient over all of its rows can show.

    Weights that differ between rows of one label are numbers of their own, which may be known to that party: they hide
    nothing, and its gradient can show as much as that of a real number.
    """
    held, told = label_bits(y), y
    if weights is not None and not _follow_labels(weights, y):
        classes, told = False, weights * (1.0 if outputs > 1 else y)
    for name, columns in sizes.items():
        shown = shown_bits(told, columns, outputs, classes=classes)
        if name != me and held < shown:
            rarest = int(np.unique(y, return_counts=True)[1].min())
            raise OptionError(
                f"the {len(y)} labels of party {me!r} hold {held:.0f} bits, as the rarest of them is there {rarest} "
                f"times, and the first gradient of the {columns} columns of party {name!r} can show {shown:.0f}; "
                f"under sum='encrypted' give more rows or fewer columns, or use another sum where {name!r} may know "
                f"the labels"
            )


def _follow_labels(weights: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> bool:
    """Whether all rows with one label weigh the same, as weights of classes do: then a row hides its label alone."""
    return all(np.ptp(weights[y == label]) == 0.0 for label in np.unique(y))


def label_bits(y: npt.NDArray[np.float64]) -> float:
    """How many orders the same labels have, in bits: what is hidden of them from one who knows how many of each are."""
    counts = np.unique(y, return_counts=True)[1]
    orders = math.lgamma(len(y) + 1) - sum(math.lgamma(count + 1) for count in counts.tolist())
    return orders / math.log(2.0)


def shown_bits(y: npt.NDArray[np.float64], columns: int, outputs: int, *, classes: bool) -> float:
    """What a gradient over these rows can hold at most, where scores are all the same.

    A whole number of variance v has at most log2(2 π e (v + 1/12)) / 2 bits. Here it is a sum of values of 23 bits,
    each times a label: 0 or 1 of a class, or a number, which has 32 bits behind its point unless it is a whole one.
    """
    if not columns or not len(y):
        return 0.0
    spread = 0.25 if classes else float(np.var(y))
    unit = 0 if classes or (y == np.rint(y)).all() else SIGNAL_BITS
    variance = len(y) * spread * 4.0 ** (VALUE_BITS + unit)
    return columns * _gradients(outputs) * 0.5 * math.log2(2.0 * math.pi * math.e * (variance + 1.0 / 12.0))
