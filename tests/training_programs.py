"""Programs through the one door into training, for tests that want to stand in it."""

from __future__ import annotations

import numpy as np

from colonnade.families.kernel import KernelOptions
from colonnade.families.linear import LinearOptions
from colonnade.families.training import TrainingJob, TrainingPart
from colonnade.objective.losses import loss


def linear_job(algorithm, holders, *, sum_="plain", l2=0.01, intercept=True, penalty="l2", of="logistic"):
    """A logistic model, or one of another loss, as every party is told of it."""
    options = LinearOptions(penalty, l2, intercept)
    return TrainingJob(algorithm.family, options, of, 1, holders, sum_, "tree", algorithm).as_value()


def kernel_job(algorithm, holders, *, features, gamma=0.2, alpha=1e-3):
    """A kernel model, as every party is told of it."""
    options = KernelOptions("rbf", gamma, features, alpha)
    return TrainingJob("kernel", options, "logistic", 1, holders, "pairwise", "tree", algorithm).as_value()


def part_of(party, classes=(0, 1), of="logistic"):
    """What a party brings to a model of two classes, or of another loss."""
    return TrainingPart.of(party, np.array(classes), loss(of)).as_value()
