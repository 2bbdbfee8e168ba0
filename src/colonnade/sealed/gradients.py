"""From coefficients in shares to scores in shares, and from signals in shares to the gradient in shares."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from colonnade.crypto.keystream import SEED_BYTES, Keystream
from colonnade.crypto.lattice_parameters import WIDE
from colonnade.sealed import wide
from colonnade.sealed.bound import EXACT_BITS
from colonnade.sealed.columns import PENALTY_BITS, divisor
from colonnade.sealed.random_products import STATE_BITS, RandomProducts
from colonnade.sealed.slots import SlotLayout, embedded, folded, words
from colonnade.sealed.wide import WideArray, WordArray

Floats = npt.NDArray[np.float64]


def signal_words(rows: int, values: Floats, bits: int) -> WordArray:
    """Return numbers of the label holder's, one for each row, as folded words with so many bits behind the point."""
    found = folded(embedded(SlotLayout(rows).first_copy(values)) * 2.0**bits)
    return words(np.rint(found)).reshape(-1)


# -- scores ------------------------------------------------------------------------------------------------------------


async def shared_scores(made: RandomProducts, number: int, state: WideArray) -> tuple[WordArray, WideArray]:
    """Return a holder's share of all scores of a round on the circle, and of the penalty's gradient S w."""
    members, own, rows = made.members, made.own, made.rounds[number].rows
    channel, me, place = members.channel, members.me, made.place(number)
    opened = await _masked_coefficients(made, number, state)
    # Uniform to this party, as the holders' random coefficients are missing from it; their part is in what they asked.
    mine = wide.to_words(opened, made.shift) @ words(own.forward[:, :rows])
    pull = wide.product(wide.from_integers(own.penalty), opened[:, None])[:, 0]
    for holder in channel.holders:
        if holder != me:
            mine = mine + made.lent["scores", holder, rows][place]
            pull = wide.add(pull, made.lent["penalty", holder, 0][:, number])
    if not channel.holds:
        await _lend(made, mine, pull)
        return np.zeros(0, np.uint64), wide.zeros(members.width)
    angles, pulled = mine, {me: pull}
    for owner in members.besides(me):
        angles = angles + made.asked["scores", owner, rows][place]
        pulled[owner] = made.asked["penalty", owner, 0][:, number]
    for owner in members.lenders:
        part, rest = await _borrow(made, owner, rows)
        angles, pulled[owner] = angles + part, wide.add(pulled[owner], rest)
    return angles, wide.truncated(members.together(pulled), PENALTY_BITS, first=channel.is_first)


async def _masked_coefficients(made: RandomProducts, number: int, state: WideArray) -> WideArray:
    """Return this party's coefficients minus the holders' random ones."""
    members, channel, size = made.members, made.members.channel, made.own.d
    found = wide.zeros(size)
    if channel.holds:
        found = state[members.of[members.me]]
        for owner in members.besides(members.me):
            share = wide.subtract(state[members.of[owner]], made.random[owner][:, number])
            await channel.send(owner, "difference", "coefficients", share.tobytes())
    for holder in channel.holders:
        if holder != members.me:
            found = wide.add(found, await channel.receive_wide(holder, "difference", "coefficients", size))
    return found


async def _lend(made: RandomProducts, mine: WordArray, pull: WideArray) -> None:
    """At a lender: one half of its part of the scores to each holder, neither of which says anything."""
    channel = made.members.channel
    seed = channel.stream.bytes(SEED_BYTES)
    half = mine - Keystream(seed).words(len(mine))
    await channel.send(channel.first, "share", "scores", half.tobytes())
    await channel.send(channel.second, "share", "scores", seed + pull.tobytes())


async def _borrow(made: RandomProducts, owner: str, rows: int) -> tuple[WordArray, WideArray]:
    """At a holder: its half of a lender's part; the second's comes with the lender's share of the penalty."""
    channel, size = made.members.channel, made.members.sizes[owner]
    if channel.is_first:
        return await channel.receive_words(owner, "share", "scores", rows), wide.zeros(size)
    raw = await channel.receive(owner, "share", "scores", SEED_BYTES + 12 * size)
    rest = np.frombuffer(raw[SEED_BYTES:], "<u4").astype(np.uint32).reshape(size, wide.LIMBS)
    return Keystream(raw[:SEED_BYTES]).words(rows), rest


# -- gradients ---------------------------------------------------------------------------------------------------------


async def shared_gradient(made: RandomProducts, number: int, signals: WordArray) -> WideArray:
    """Return a holder's share of Q' s / N, from its share of the signals s of a round: the second's is minus r."""
    members, channel, own = made.members, made.members.channel, made.own
    rows, place = made.rounds[number].rows, made.place(number)
    mine = np.zeros(own.d, np.uint64)
    if channel.holds:
        mine = words(own.backward(rows)) @ signals
    mine = mine + await _with_first(made, rows, made.outputs + place, signals)
    if members.me != channel.second:
        mine = mine - made.lent["signals", channel.second, rows][:, place]
    asked: dict[str, WordArray] = {}
    if channel.holds:
        for name in members.besides(members.me):
            share = made.asked["signals", name, rows]
            asked[name] = share[:, made.outputs + place] if channel.is_first else -share[:, place]
    return _scaled(made, await members.gathered("signals", mine, asked), rows)


async def first_gradient(made: RandomProducts, rows: int, signals: Floats, output: int = 0) -> WideArray:
    """Return a holder's share of Q' s / N, where s is the label holder's alone: signals of one score of every row."""
    members, channel, own = made.members, made.members.channel, made.own
    mine = np.zeros(0, np.uint64)
    if channel.is_first:
        mine = signal_words(rows, signals, own.signal_bits(rows))
    share = await _with_first(made, rows, output, mine)
    asked: dict[str, WordArray] = {}
    if channel.is_first:
        asked = {name: made.asked["signals", name, rows][:, output] for name in members.besides(members.me)}
    elif channel.holds:
        asked = {name: np.zeros(size, np.uint64) for name, size in members.besides(members.me).items()}
    gathered = await members.gathered("signals", share, asked)
    found = _scaled(made, gathered, rows)
    if channel.holds:
        # The label holder's own columns: it has all of it.
        exact = wide.zeros(members.sizes[channel.first])
        if channel.is_first:
            sums = (words(own.backward(rows)) @ mine).view(np.int64) / divisor(rows)
            bits = STATE_BITS - own.signal_bits(rows) - own.backward_bits(rows)
            exact = wide.from_integers(np.rint(sums * 2.0**bits))
        found[members.of[channel.first]] = exact
    return found


async def exact_gradient(made: RandomProducts, signals: Floats) -> WideArray:
    """Return the same of all rows, from sums modulo 2^96: where the solution hangs on these numbers alone."""
    members, channel, own = made.members, made.members.channel, made.own
    rows, bits, what, columns = members.rows, EXACT_BITS, "first signals", own.cross(EXACT_BITS)
    mine = wide.from_integers(np.rint(signals * 2.0**bits))[None]
    shares: dict[str, WideArray] = {}
    found: dict[str, WideArray] = {}
    if channel.is_first:
        drawn, asked = await channel.ask_silent(what, 1, rows, members.besides(members.me), WIDE)
        difference = wide.subtract(mine, drawn)
        for name in asked:
            await channel.send(name, "difference", what, difference.tobytes())
        shares = {name: (await answer())[:, 0] for name, answer in asked.items()}
    else:
        share = await channel.answer_silent(what, channel.first, 1, rows, columns, own.cross_bound(bits), WIDE)
        told = await channel.receive_wide(channel.first, "difference", what, 1, rows)
        sums = wide.product(wide.from_integers(columns), told.swapaxes(0, 1))
        shares[members.me] = wide.add(share, sums)[:, 0]
    for name, size in members.besides(channel.first).items():
        pair = (channel.first, name)
        share = await members.handed_over(what, shares.get(name), pair, size, limbs=True)
        found[name] = members.rescaled(share, 1.0 / divisor(rows), 2 * bits, STATE_BITS)
    if channel.is_first:
        found[members.me] = wide.from_integers(np.rint(own.Q.T @ signals / divisor(rows) * 2.0**STATE_BITS))
    return members.together(found)


async def _with_first(made: RandomProducts, rows: int, place: int, signals: WordArray) -> WordArray:
    """Tell everybody the first holder's signals minus its random ones; return this party's share of what follows."""
    members, channel, own = made.members, made.members.channel, made.own
    if channel.is_first:
        difference = signals - made.vectors[rows][place]
        for name in members.besides(members.me):
            await channel.send(name, "difference", "signals", difference.tobytes())
        return np.zeros(own.d, np.uint64)
    told = await channel.receive_words(channel.first, "difference", "signals", SlotLayout(rows).length)
    found: WordArray = words(own.backward(rows)) @ told + made.lent["signals", channel.first, rows][:, place]
    return found


def _scaled(made: RandomProducts, shares: dict[str, WordArray], rows: int) -> WideArray:
    bits = made.own.signal_bits(rows) + made.own.backward_bits(rows)
    return made.members.together(
        {name: made.members.scaled(share, 1.0 / divisor(rows), bits, STATE_BITS) for name, share in shares.items()}
    )
