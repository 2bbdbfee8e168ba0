"""How many files something new touches, counted on things that are there: names and strings in code, not in docs."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import colonnade as cn
from colonnade.algorithms import ALGORITHMS
from colonnade.families.linear import LinearFamily
from colonnade.objective import losses

SOURCE = Path(cn.__file__).parent


def said(path):
    """All names and strings of a module's code; what its docstrings say does not count."""
    tree = ast.parse(path.read_text())
    bodies = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, bodies) and node.body and isinstance(node.body[0], ast.Expr)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            found.add(node.value)
        for name in ("id", "attr", "name", "module"):
            value = getattr(node, name, None)
            found |= set(value.split(".")) if isinstance(value, str) else set()
    return found


def touched(*words):
    """The modules that mention one of these."""
    likely = [path for path in SOURCE.rglob("*.py") if any(word in path.read_text() for word in words)]
    return sorted(str(path.relative_to(SOURCE)) for path in likely if said(path) & set(words))


@pytest.mark.parametrize(
    ("what", "words", "most"),
    [
        ("a sum", ("two-trees", "TwoTreesSum"), 2),
        ("an algorithm", ("AFSGD", "afsgd"), 4),  # the fourth is what an onlooker can replay of it
        ("a family", ("KernelFamily", "KernelOptions", "KernelModel", "KernelClassifier", "KernelScorer"), 5),
        ("a file format", ("libsvm",), 2),
    ],
)
def test_what_is_there_is_mentioned_in_few_files(what, words, most):
    found = touched(*words)
    assert found, f"nothing mentions {what} by {words} any more"
    assert len(found) <= most, f"{what} is mentioned in {len(found)} files: {', '.join(found)}"


def test_a_key_of_a_job_is_declared_and_kept():
    """Beside these two, only the code that goes by it knows it."""
    assert [path for path in touched("checkpoint_every") if path.startswith("jobs/")] == [
        "jobs/job.py",
        "jobs/job_file.py",
    ]


# -- new ones, without touching any other file ---------------------------------------------------------------------


def data(y):
    X = np.random.default_rng(3).standard_normal((60, 4))
    return cn.split(X, y(X), into=2)


def test_a_new_loss_needs_its_class_and_a_model(monkeypatch):
    """The absolute value, rounded at zero; no other module knows of it."""

    class Rounded(type(losses.loss("square"))):
        name = "rounded"

        def values(self, z, y):
            return np.sqrt(1 + (z - y) ** 2) - 1

        def signal(self, z, y):
            return (z - y) / np.sqrt(1 + (z - y) ** 2)

    monkeypatch.setitem(losses.LOSSES, "rounded", Rounded())

    class RobustRegression(cn.RidgeRegression):
        loss = "rounded"

    parties = data(lambda X: X @ np.arange(4.0))
    model = RobustRegression(algorithm=cn.FedSGD(epochs=30), verbose=0).fit(*parties)
    assert model.score(*parties) > 0.9


def test_a_new_algorithm_needs_its_class_and_its_place_in_the_list(monkeypatch):
    @dataclass(frozen=True)
    class Twice(cn.FedSGD):
        """FedSGD with steps twice as long."""

        name: ClassVar[str] = "Twice"

        def boldness(self, loss):
            return 2 * super().boldness(loss)

    monkeypatch.setitem(ALGORITHMS, "Twice", Twice)
    monkeypatch.setattr(LinearFamily, "algorithms", tuple(ALGORITHMS.values()))
    parties = data(lambda X: (X[:, 0] > 0).astype(int))
    one, other = (
        cn.LogisticRegression(algorithm=kind(epochs=2, tol=None), verbose=0).fit(*parties)
        for kind in (cn.FedSGD, Twice)
    )
    assert (one.coef_["party1"] != other.coef_["party1"]).any()
