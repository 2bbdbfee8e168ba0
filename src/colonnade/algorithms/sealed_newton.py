"""Sealed Newton: a linear model trained on shares, of which each party learns its own coefficients and nothing else.

Two parties hold shares of everything that training makes: scores, signals, gradients, the curvature and its inverse,
and all coefficients. `SealedNewton.train` has the protocol in order, `sealed.party` each step, and `sealed.losses`
what is particular to a loss:

1.  `agree`: keys, how many columns everybody has, and how large targets and weights are, as powers of two. Each party
    whitens its own columns (`sealed.columns`).
2.  `bound`: the bound on the curvature is the identity within a block. Between blocks it is kappa Q_i'Q_j / N, in
    shares; and so is its inverse (`sealed.bound`, `sealed.inverse`).
3.  `correlate`: products of everybody's columns with random vectors, for all rounds at once (`sealed.random_products`),
    and of random matrices with one another (`sealed.triples`). From then on a product with a share needs one message:
    the share minus the random numbers.
4.  `start`: the label holder knows the first signals, as no score depends on a column yet. One step with the bound.
    Counts, and targets of rows with weights, begin with a fit instead, whose curvature the label holder knows as well.
5.  `round`: scores and gradients (`sealed.gradients`), of several classes how far each is above the others
    (`sealed.signals`), signals out of waves (`sealed.signals`), the curvature (`sealed.curvature`), a step
    (`sealed.inverse`). Or `solve`, where the loss is quadratic and the bound is the curvature.
6.  `open`: each party is told the shares of its own coefficients, and of nothing else.

docs/sealed.md explains it to readers who are no cryptographers, docs/adr/0028-sealed-training.md argues that it is
right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from colonnade.engine.options import Training, WholeRounds
from colonnade.errors import OptionError, whole_number
from colonnade.leaks import COLUMNS, MAGNITUDE, OF_COLUMNS, OF_LABELS, UNEVEN, Leak, Setting, nothing
from colonnade.sealed.losses import SEALED_LOSSES
from colonnade.sealed.party import SIZE, UNEVENNESS, SealedParty

# Messages that show nothing: keys, encryptions, numbers minus random ones, shares, and what is the receiver's own.
KINDS = (
    "sealed key", "sealed question", "sealed answer", "sealed difference", "sealed share",
    "own coefficients",
)  # fmt: skip


@dataclass(frozen=True)
class SealedNewton(WholeRounds):
    """Newton steps on shares: nobody sees a score, a signal, a gradient or another party's coefficients.

    Parameters
    ----------
    rounds : int, optional
        Rounds with fresh curvature; None chooses by the number of rows.
    polish : int, optional
        Rounds after them with the last curvature; None is none with few rows, and one or two otherwise.
    samples : int, optional
        Rounds before them, where there are many rows: with the bound, or with very many rows about a sample; at most 2.
    period : float, optional
        Scores are told apart modulo this number, a power of two: those beyond half of it are taken for others. None
        chooses by the number of rows, as a wider range costs more.
    second : str, optional
        The party that holds the shares beside the label holder. These two could read everything if they put their
        shares together, so it should be one that will not. None is the first of the others.
    seed : int
        The seed of the order of rows, which everybody knows.
    """

    rounds: int | None = None
    polish: int | None = None
    samples: int | None = None
    period: float | None = None
    second: str | None = None

    name: ClassVar[str] = "SealedNewton"
    family: ClassVar[str] = "sealed"
    seals: ClassVar[bool] = True
    second_order: ClassVar[bool] = True
    tells_signals: ClassVar[bool] = False
    # Its rounds are chosen, all of them before it starts; an epoch says nothing here.
    fixed: ClassVar[dict[str, Any]] = {k: only for k, only in WholeRounds.fixed.items() if k != "rounds"} | {
        "epochs": 1
    }
    instead: ClassVar[str] = (
        ", as its rounds are fixed before it starts and nobody sees how far it has come; leave it out, or use rounds "
        "and polish"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds is not None:
            whole_number("rounds", self.rounds, 1)
        for option, given in (("polish", self.polish), ("samples", self.samples)):
            if given is not None:
                whole_number(option, given, 0)
        if self.samples is not None and self.samples > 2:
            raise OptionError(f"samples must be at most 2, got {self.samples}; use rounds and polish for more")
        if self.period is not None and self.period not in (2.0**k for k in range(4, 13)):
            raise OptionError(f"period must be a power of two from 16 to 4096, got {self.period!r}")

    @property
    def given(self) -> tuple[int | None, int | None, int | None]:
        """How many rounds with fresh curvature there are, how many after them, and how many before."""
        return self.rounds, self.polish, self.samples

    def holders(self, parties: tuple[str, ...], first: str) -> tuple[str, str]:
        """Return the two parties that hold shares, or refuse one that can't."""
        others = tuple(name for name in parties if name != first)
        if not others:
            raise OptionError(
                f"sealed training needs two parties at least, got {first!r} alone; use protection 'plain', as there is "
                f"nobody to hide anything from"
            )
        if self.second is None:
            return first, others[0]
        if self.second not in others:
            raise OptionError(
                f"second must be one of {', '.join(map(repr, others))}, who hold no labels, got {self.second!r}"
            )
        return first, self.second

    def check(self, setting: Setting) -> None:
        """Refuse a run with a holder of shares that takes no part, and a period that the loss can't do with."""
        super().check(setting)
        least = SEALED_LOSSES[setting.loss].least_period
        if self.period is not None and self.period < least:
            raise OptionError(f"period must be {least:g} at least for the loss {setting.loss!r}, got {self.period:g}")
        self.holders(setting.parties, setting.leader)

    def rehearsed(self) -> Training:
        """The same in small."""
        return replace(self, rounds=1, polish=0, samples=0)

    def leaks(self, setting: Setting) -> tuple[Leak, ...]:
        """How many columns each party has, of a target that is a number how large it is; of rows, nothing."""
        everybody = setting.parties
        counted = Leak(
            COLUMNS, OF_COLUMNS, everybody, everybody, ("sealed sizes",), "{who} will learn how many columns you have"
        )
        found = [nothing(setting, *KINDS), counted]
        if SEALED_LOSSES[setting.loss].sized:
            words = "{who} will learn how large your target is, as a power of two"
            found.append(Leak(MAGNITUDE, OF_LABELS, setting.holders, everybody, (SIZE,), words))
        if setting.weighted:
            words = "{who} will learn how many times their mean your largest weight is, as a power of two"
            found.append(Leak(UNEVEN, OF_LABELS, setting.holders, everybody, (UNEVENNESS,), words))
        return tuple(found)

    async def train(self, session: Any) -> None:
        """All steps of the protocol, in order."""
        party: SealedParty = session
        await party.agree()
        done = await party.resume()
        if done is None:
            await party.bound()
        await party.correlate()
        if done is None:
            await party.start()
            party.keep(0)
        if party.quadratic:
            await party.solve()
        for number, step in enumerate(party.rounds[done or 0 :], done or 0):
            await party.round(number, step)
            party.keep(number + 1)
        await party.open()
