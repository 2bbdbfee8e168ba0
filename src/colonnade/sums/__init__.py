"""Secure sums: how the contributions of all parties become a score, and which of them there are."""

from __future__ import annotations

from colonnade.errors import OptionError, one_of
from colonnade.runtimes.net import Net
from colonnade.sums.base import PlainSum, SecureSum
from colonnade.sums.masked import EncryptedSignalsSum, NeighboursSum, PairwiseSum, TwoTreesSum

__all__ = ["GONE", "SUMS", "SecureSum", "choose_sum", "open_sum"]

SUMS: dict[str, type[SecureSum]] = {
    kind.name: kind for kind in (PairwiseSum, NeighboursSum, TwoTreesSum, PlainSum, EncryptedSignalsSum)
}
# Names of earlier versions, and what is said of each.
GONE = {"paillier": "'paillier' is called 'encrypted' now, and needs no key_bits; write 'encrypted'"}


def choose_sum(name: str, parties: int) -> str:
    """Resolve "auto": pairwise masks, except between two parties, from whom no mask can hide anything."""
    if name in GONE:
        raise OptionError(f"sum={GONE[name]}")
    one_of("sum", name, ("auto", *SUMS))
    if name == "auto":
        return "pairwise" if parties > 2 else "plain"
    return name


async def open_sum(name: str, net: Net, topology: str) -> SecureSum:
    """Open this party's side of a secure sum, with keys agreed where it needs any.

    In a strand of a run (`validation.strands`) for which such a sum was opened already, its keys are used.
    """
    known = getattr(net, "agreed", None)
    if isinstance(known, SecureSum) and (known.name, known.topology) == (name, topology):
        return known.beside(net)
    opened = SUMS[name](net, topology)
    await opened.open()
    return opened
