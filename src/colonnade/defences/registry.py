"""All defences by name, and the way back from what the wire and job files say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from colonnade.defences.base import Defence
from colonnade.defences.bottleneck import Bottleneck
from colonnade.defences.compression import CompressedSignals
from colonnade.defences.distance_correlation import DistanceCorrelation
from colonnade.defences.gaussian_signals import GaussianSignals
from colonnade.defences.label_correlation import LabelCorrelation
from colonnade.defences.marvell import Marvell
from colonnade.defences.noisy_embeddings import NoisyEmbeddings
from colonnade.defences.output_noise import OutputNoise
from colonnade.defences.randomised_labels import RandomisedLabels
from colonnade.defences.rounded_scores import RoundedScores
from colonnade.errors import OptionError, one_of

DEFENCES: tuple[type[Defence], ...] = (
    # of signals and labels
    RandomisedLabels,
    Marvell,
    CompressedSignals,
    GaussianSignals,
    OutputNoise,
    # of networks and scores
    DistanceCorrelation,
    LabelCorrelation,
    Bottleneck,
    NoisyEmbeddings,
    RoundedScores,
)


def defence(name: str, options: Any) -> Defence:
    """Return the defence of this name with options by name; refuse what it does not have."""
    one_of("the defence", name, tuple(one.name for one in DEFENCES))
    kind = next(one for one in DEFENCES if one.name == name)
    given, known = dict(options), tuple(one.name for one in fields(kind))
    for key in given:
        one_of(f"the option of the defence {name!r}", key, known)
    try:
        return kind(**given)
    except TypeError:
        raise OptionError(f"an option of the defence {name!r} is missing or of the wrong kind") from None


def from_value(value: Any) -> tuple[Defence, ...]:
    """Return the defences that `as_value` of each described."""
    return tuple(defence(name, options) for name, options in value)


def checked(given: Any) -> tuple[Defence, ...]:
    """Return a user's option `defences` as a tuple; refuse everything else."""
    if not isinstance(given, Sequence) or not all(isinstance(one, Defence) for one in given):
        raise OptionError(
            f"defences must be a list of defences such as [colonnade.defences.CompressedSignals()], got {given!r}"
        )
    return tuple(given)
