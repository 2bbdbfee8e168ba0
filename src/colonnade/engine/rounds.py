"""Options of algorithms in which sites that hold rows work for a server: rounds, batches, and who may be missing."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from colonnade.errors import at_least, whole_number


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """Options of every algorithm in which sites with rows work for a server.

    Parameters
    ----------
    rounds : int
        How many rounds there are.
    batch : int, optional
        B, the rows of a site's mini-batch; None is 100, or all rows where there are fewer.
    seed : int
        The seed of the batches and of the first parameters.
    evaluate_every : int, optional
        Rounds between evaluations over all rows; None is a tenth of all rounds.
    threshold : int, optional
        Sites without which a masked sum is skipped, more than half of all; None is more than two thirds.
    wait : float, optional
        Seconds that a site may be silent in a round before it is left out of it. None is a seventh of the runtime's
        deadline; at most 0.16 of it is allowed, and less than a twentieth of it is rounded up to that.
    """

    rounds: int = 100
    batch: int | None = None
    seed: int = 0
    evaluate_every: int | None = None
    threshold: int | None = None
    wait: float | None = None

    name: ClassVar[str] = ""
    # Whether it can keep limits on the cost.
    keeps_limits: ClassVar[bool] = False
    # Whether a site takes steps of its own in a round, and tells how far it went, instead of its gradient.
    own_steps: ClassVar[bool] = False

    def __post_init__(self) -> None:
        whole_number("rounds", self.rounds, 1)
        whole_number("seed", self.seed, 0)
        for option in ("batch", "evaluate_every", "threshold"):
            if getattr(self, option) is not None:
                whole_number(option, getattr(self, option), 1)
        if self.wait is not None:
            at_least("wait", self.wait, 0, strict=True, finite=True)

    def warnings(self) -> tuple[str, ...]:
        """What is allowed here, and should be known before a run."""
        return ()

    def batch_for(self, rows: int) -> int:
        """Rows of a site's mini-batch; it can't have more than there are."""
        return min(rows, 100 if self.batch is None else self.batch)

    def chosen(self, sites: int, t: int) -> tuple[int, ...]:
        """Which of the sites work in round t; none named is all of them."""
        return ()

    def as_value(self) -> Any:
        """A form that the wire can carry; `horizontal.messages.method_from_value` is its inverse."""
        options = ((key, tuple(v) if isinstance(v, list) else v) for key, v in asdict(self).items())
        return (self.name, tuple(options))
