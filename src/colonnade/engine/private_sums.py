"""Sums over rows of one party's columns times another's numbers, of which nobody sees a single one.

    the other (numbers S, key)                               a party (columns X)
    [[S]]                       -- encrypted signal -->
                               <-- blinded gradient --       [[X'S + rho]], rho uniform
    X'S + rho                    -- opened gradient -->      X'S

It is the exchange of `engine.encrypted`, for any two parties and any numbers. The one with the key sees what is
uniform; the one with the columns sees ciphertexts, and X'S, exact to the bits that columns and numbers have.
"""

from __future__ import annotations

import numpy as np

from colonnade.blocks import FloatArray
from colonnade.blocks.whole_columns import VALUE_BITS, WholeColumns
from colonnade.crypto.keystream import Keystream
from colonnade.crypto.lattice_keys import LatticePublicKey, SecretKey
from colonnade.crypto.lattice_products import LIMBS, ProductLayout, ProductSums, unmasked
from colonnade.engine.encrypted import (
    FRACTION_BITS,
    hear_bytes,
    multiply_portions,
    send_portions,
    signal_bits,
    whole_signals,
)
from colonnade.errors import ProtocolError
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array

ENCRYPTED_NUMBERS, BLINDED, OPENED = "encrypted signal", "blinded gradient", "opened gradient"


async def give_numbers(net: Net, to: str, key: SecretKey, numbers: FloatArray, columns: int) -> None:
    """At the party with the key: send [[S]], numbers (rows, outputs), for a product with so many columns."""
    layout = ProductLayout.of(*numbers.shape, (columns,))
    whole = whole_signals(numbers, net.me, signal_bits(len(numbers)))
    await send_portions(
        net, [to], ENCRYPTED_NUMBERS, layout, lambda first, last: layout.encrypt(key, whole[first:last])
    )


async def open_sums(net: Net, to: str, key: SecretKey, shape: tuple[int, int], columns: int) -> None:
    """At the party with the key: open the sums under their masks, and send them back; shape: of the numbers."""
    layout = ProductLayout.of(*shape, (columns,))
    blinded = await hear_bytes(net, to, BLINDED, layout.answer_bytes(columns))
    await net.send(to, OPENED, await net.in_thread(layout.open, key, blinded, columns))


async def take_sums(
    net: Net, of: str, key: LatticePublicKey, columns: WholeColumns, shape: tuple[int, int], stream: Keystream
) -> FloatArray:
    """At the party with the columns: return X'S, (columns, outputs); shape: of the other party's numbers."""
    rows, outputs = shape
    layout = ProductLayout.of(rows, outputs, (columns.width,))
    sums, places = ProductSums(layout, key, columns.width, VALUE_BITS), np.arange(rows)
    await multiply_portions(
        net, of, ENCRYPTED_NUMBERS, layout, sums, lambda first, last: columns.part(places[first:last])
    )
    blinded, masks = await net.in_thread(sums.answer, stream)
    await net.send(of, BLINDED, blinded)
    opened = expect_array(await net.recv(of, OPENED), (columns.width, outputs, LIMBS), np.uint32, of, OPENED)
    whole = unmasked(opened, masks, 2.0 ** (VALUE_BITS + signal_bits(rows)) * rows)
    if whole is None:
        raise ProtocolError(
            f"what party {of!r} sent at step {OPENED!r} is not what it was sent to open; it uses another key, or its "
            f"numbers were none"
        )
    return whole * (columns.scale / 2.0**FRACTION_BITS)[:, None]
