"""The run in small that is played before the parties are forked: it loads all that they need, and knows nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import colonnade as cn
from colonnade.algorithms import ALGORITHMS
from colonnade.families import rehearsal
from colonnade.runtimes.wire import encode

OTHERS = [cn.VFB2("svrg", asynchronous=False, batch=50), cn.VFB2("sgd"), cn.FedBCD(order="sequential")]
MARK = 4711.0  # stands for every secret: no array that holds it may leave it behind


class Caught(Exception):
    """Instead of a run."""


class Listener:
    """A runtime that only looks at what it is given."""

    def run(self, programs, observer=None):
        self.programs = programs
        raise Caught


def given(model, *parties, method="fit", **options):
    listener = Listener()
    with pytest.raises(Caught):
        getattr(model, method)(*parties, on=listener, **options)
    return listener.programs


def parties(make=np.asarray, dtype=float, classes=2, holders=2):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 9)).astype(dtype)
    X[X < -0.5] = 0.0
    y = np.arange(60) % classes
    return [cn.Party(f"p{i}", make(X[:, 3 * i : 3 * i + 3]), y if i < holders else None) for i in range(3)]


def arrays_in(value):
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from arrays_in(item)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix], ids=["dense", "csr"])
@pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
@pytest.mark.parametrize(
    "algorithm", [*(kind() for kind in ALGORITHMS.values()), *OTHERS], ids=lambda algorithm: algorithm.name
)
def test_every_training_can_be_rehearsed(algorithm, make):
    here = parties(make, holders=1 if algorithm.name in ("FDML", "SealedNewton") else 2)
    more = {"validation": here}
    programs = given(cn.LogisticRegression(algorithm=algorithm, verbose=0), *here, **more)
    rehearsal.rehearse(rehearsal.outline(programs))


@pytest.mark.parametrize("kind", [cn.RidgeRegression, cn.PoissonRegression, cn.LinearSVC, cn.SoftmaxRegression])
def test_every_model_can_be_rehearsed(kind):
    """In training and in use; with several classes too."""
    here = parties(classes=5 if kind is cn.SoftmaxRegression else 2)
    model = kind(algorithm=cn.FedSGD(epochs=1, tol=None, step=1e-3), verbose=0)
    rehearsal.rehearse(rehearsal.outline(given(model, *here)))
    model.fit(*here)
    rehearsal.rehearse(rehearsal.outline(given(model, *here, method="predict")))


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix], ids=["dense", "csr"])
def test_no_number_of_a_party_is_in_it_and_all_types_are(make):
    programs = given(cn.LogisticRegression(verbose=0), *parties(make, np.float32))
    real = [array for _, args in programs.values() for array in arrays_in(args)]
    for array in real:
        array[...] = MARK if array.dtype != bool else False
    outlined = rehearsal.outline(programs)
    made_up = list(arrays_in(outlined))
    assert [(array.dtype, array.ndim) for array in made_up] == [(array.dtype, array.ndim) for array in real]
    for array in made_up:
        assert array.max() <= 16
        assert array.dtype != bool or array.all()
    assert "pairwise" not in repr(outlined)  # no keys before the fork
    encode(outlined)  # it travels


LOADS_EVERYTHING = """
import sys
sys.path.insert(0, {tests!r})
import numpy as np
from scipy import sparse
from colonnade.kernels import columns
from colonnade.compiling.compiled import Compiled
from colonnade.algorithms import ALGORITHMS
from colonnade.families import rehearsal
from colonnade.runtimes.simulation import Simulation
import colonnade as cn
from test_rehearsal import given, parties

def loaded():
    kernels = {{name: kernel for name, kernel in vars(columns).items() if isinstance(kernel, Compiled)}}
    return {{(name, kernel._call) for name, kernel in kernels.items() if kernel._call != kernel._first}}

for algorithm in (cn.VFB2("saga", epochs=2, tol=None), cn.FedBCD(epochs=2, tol=None)):
    for make, dtype in ((np.asarray, "f8"), (sparse.csr_matrix, "f4")):
        programs = given(cn.LogisticRegression(algorithm=algorithm, verbose=0), *parties(make, dtype))
        rehearsal.rehearse(rehearsal.outline(programs))
        before, modules = loaded(), set(sys.modules)
        Simulation().run(programs)
        assert before, "the rehearsal used no kernel"
        assert loaded() == before, loaded() - before
        assert set(sys.modules) == modules, set(sys.modules) - modules
"""


def test_after_a_rehearsal_nothing_is_left_to_load():
    """No kernel and no module: in a new process, where nothing else has loaded them."""
    check = LOADS_EVERYTHING.format(tests=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
