"""One word for how training is protected, the same for estimators and jobs, whatever the family of the model.

sealed   linear models on shares: each party learns its own coefficients, and nothing else of it; trees whose labels and
         nodes nobody else sees, with few ranges of others' columns at the label holder
masked   training in the open: sums are masked, which hides each party's part of them from three parties on
plain    training in the open: sums are in the clear

What a family lacks it says itself (`Family.lacks`). The option `sum` stays the detail of how masks are made.
"""

from __future__ import annotations

from typing import Any

from colonnade.errors import OptionError, one_of
from colonnade.families import family
from colonnade.families.base import Family
from colonnade.sums import choose_sum

SEALED, MASKED, PLAIN = "sealed", "masked", "plain"
PROTECTIONS = (SEALED, MASKED, PLAIN)
AUTO = "auto"
HIDES_NOTHING = (
    "between two parties masks hide nothing, as each of them can take its own part off the sum and has the other's"
)


def protection_of(name: str, sum_name: str) -> str:
    """Return the word for a model of the family of this name that was trained with this sum."""
    if family(name).sealed:
        return SEALED
    return PLAIN if sum_name == PLAIN or MASKED in family(name).lacks else MASKED


def sealing(kind: Family) -> type[Any] | None:
    """Return the algorithm that trains this family's models sealed, or None if there is none."""
    return next((one for one in kind.algorithms if one.seals), None)


def seals(algorithm: Any) -> bool:
    """Return whether an algorithm trains sealed."""
    return bool(getattr(algorithm, "seals", False))


def check_word(word: Any, kind: Family) -> None:
    """Refuse what is no protection, or one that this family does not have."""
    one_of("protection", word, (AUTO, *PROTECTIONS))
    if word in kind.lacks:
        raise OptionError(f"protection={word!r} {kind.lacks[word]}")


def masked_sum(word: str, sum_name: str, parties: int) -> str:
    """Return the sum of training in the open, where the option `sum` goes with this protection.

    "masked" and "plain" decide what sum="auto" is; without a word it is as `choose_sum` has it.
    """
    if word == PLAIN and sum_name not in (AUTO, PLAIN):
        raise OptionError(
            f"protection='plain' adds up in the clear, got sum={sum_name!r}; leave sum out, or give protection='masked'"
        )
    if word == MASKED and sum_name == PLAIN:
        raise OptionError(
            "protection='masked' adds up under masks, got sum='plain'; leave sum out, or give protection='plain'"
        )
    if sum_name == AUTO and word in (MASKED, PLAIN):
        return PLAIN if word == PLAIN else "pairwise"
    return choose_sum(sum_name, parties)


def check_sealed(word: str, algorithm: Any, by: type[Any]) -> None:
    """Refuse a protection and an algorithm that contradict each other; `by` is the algorithm of sealed training."""
    if word == SEALED and algorithm != AUTO and not isinstance(algorithm, by):
        raise OptionError(
            f"protection='sealed' trains with {by.name}, got algorithm={algorithm!r}; leave algorithm out, or give "
            f"another protection"
        )
    if word in (MASKED, PLAIN) and isinstance(algorithm, by):
        raise OptionError(
            f"{by.name} is sealed training, got protection={word!r}; leave one of them out, or give protection='sealed'"
        )


def check_without_effect(given: dict[str, tuple[Any, Any]]) -> None:
    """Refuse options beside sealed training that would do nothing; `given` is {option: (its value, its default)}."""
    for option, (value, default) in given.items():
        if value != default:
            raise OptionError(
                f"{option} has no effect with protection='sealed', which adds up shares, got {option}={value!r}; leave "
                f"it out, or give protection='masked'"
            )
