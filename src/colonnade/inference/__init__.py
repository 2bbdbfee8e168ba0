"""Standard errors, p values and intervals of a trained model's coefficients, and what computing them shows."""

from __future__ import annotations

from colonnade.leaks import (
    COLUMNS,
    CORRELATIONS,
    COVARIANCES,
    CURVATURES,
    MEAN,
    OF_COLUMNS,
    OF_LABELS,
    Leak,
    Setting,
    nothing,
    weights,
)

EVEN = ("square", "gamma")
"""Losses whose information, the expected curvature, is 1 for every row, as all know."""


def statistics_leaks(setting: Setting) -> tuple[Leak, ...]:
    """Declare what statistics show after training; their scores are those of training's last evaluation once more."""
    everybody, leader, holders = setting.parties, (setting.leader,), setting.holders
    found = [
        Leak(COLUMNS, OF_COLUMNS, everybody, everybody, ("block size",), "{who} will learn how many columns you have"),
        Leak(
            CORRELATIONS, OF_COLUMNS, everybody, leader, ("product shares",),
            "{who} could work out how well their columns predict yours, up to a rotation and scales that nobody tells",
        ),
        Leak(
            COVARIANCES, OF_COLUMNS, everybody, everybody, ("inverse block",),
            "{who} could work out how well your columns predict theirs"
            + ("" if setting.pair else ", with all others' added"),
        ),
        nothing(setting, "sealed columns", "sealed products"),  # ciphertexts, and uniform numbers
    ]  # fmt: skip
    found += weights(setting, ("curvatures",), everybody)
    if setting.loss not in EVEN:
        size = "the size of the score" if setting.loss == "logistic" else "the score"
        found.append(Leak(
            CURVATURES, OF_LABELS, holders, everybody, ("curvatures",),
            f"{{who}} will learn {size} of {{people}}, and could guess your labels from it as well as the model can",
            warning="the model was trained without showing anybody signals in the clear, and its statistics tell every "
            f"party the curvature of every row, which shows {size} of that row; leave them out where that matters",
        ))  # fmt: skip
    if len(holders) > 1:
        words = "{who} will learn the mean of all labels"
        found.append(Leak(MEAN, OF_LABELS, holders, holders, ("null score",), words))
    return tuple(found)
