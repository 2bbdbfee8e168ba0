"""Kernels in a library: numba's bits, at every level of processors, with no numba to be found; or else a sentence."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from colonnade.compiling import compiled, shipped
from colonnade.compiling.compiled import Compiled
from colonnade.compiling.kinds import declared, kinds_of
from colonnade.compiling.linking import linker
from colonnade.errors import InputError, OptionError
from colonnade.kernels import columns

KERNELS = ("columns.dense_forward", "columns.csr_forward", "derivatives.logistic_derivatives", "coordinates.descend")
BUILD = """
import sys
from pathlib import Path
from colonnade.compiling.building import build
print(build(sys.argv[1], Path(sys.argv[2]), sys.argv[3].split(",")))
"""
# No numba, no llvmlite: what stands in sys.modules as None can't be imported.
PROGRAM = """
import json, os, sys
from pathlib import Path
if os.environ["COLONNADE_KERNELS"] != "numba":
    sys.modules |= {"numba": None, "llvmlite": None}
import numpy as np
from colonnade.compiling import compiled, shipped
shipped.FOLDER = Path(sys.argv[1])
from colonnade.kernels import columns, coordinates, derivatives
rng, said = np.random.default_rng(0), []
X, rows, W = rng.standard_normal((50, 7)), np.arange(50), rng.standard_normal((7, 2))
W.flags.writeable = False  # what is only read may be fixed
for given in (X, X.astype(np.float32), (9 * X).astype(np.int32)):
    out = np.empty((50, 2))
    columns.dense_forward(given, rows, W, out)
    said.append(out.tobytes().hex())
places = np.tile(np.arange(7), 50)
for kind in (np.uint32, np.uint64):
    out = np.empty((50, 2))
    columns.csr_forward(X.ravel(), places.astype(kind), np.arange(0, 351, 7), rows, W, out)
    said.append(out.tobytes().hex())
g, h = np.empty(50), np.empty(50)
derivatives.logistic_derivatives(10 * X[:, 0].copy(), (X[:, 1] > 0) * 1.0, np.empty(0), g, h)
said += [g.tobytes().hex(), h.tobytes().hex()]
M, r, u = X.T @ X, rng.standard_normal(7), np.zeros(7)
said += [coordinates.descend(M, r, u, 0.5, 6, sweeps, 1e-24) for sweeps in (1, 1000)]
said.append(u.tobytes().hex())
try:
    columns.dense_forward(X.astype(np.float16), rows, W, out)
except Exception as error:
    said.append(f"{type(error).__name__}: {error}")
try:
    columns.dense_backward(X, rows, W, 1.0, out)
except Exception as error:
    said.append(f"{type(error).__name__}: {error}")
print(json.dumps(said))
"""

pytestmark = pytest.mark.skipif(
    shipped.level() is None or linker() is None, reason="kernels are shipped for x86-64 under Linux, and need a linker"
)


def run(program, *arguments, **environment):
    known = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", program, *arguments], env=known, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """Of a few kernels, for the oldest processors and for ours."""
    folder = tmp_path_factory.mktemp("libraries")
    for level in {"x86-64-v2", next(iter(able()))}:
        made = run(BUILD, level, str(folder / f"{level}.so"), ",".join(KERNELS))
        assert int(made) == sum(len(declared()[name]) for name in KERNELS)
    return folder


def able():
    """The levels of this processor, the best first."""
    return [name for name, needs in shipped.LEVELS.items() if needs <= shipped._features()]


def test_a_library_gives_the_bits_that_numba_gives_and_needs_no_numba(libraries, tmp_path):
    by_numba = json.loads(run(PROGRAM, str(tmp_path), COLONNADE_KERNELS="numba"))
    *bits, other_kind, not_there = json.loads(run(PROGRAM, str(libraries), COLONNADE_KERNELS="", HOME=str(tmp_path)))
    assert len(bits) == 10
    assert bits == by_numba[:10]
    assert bits[7:9] == [False, True]  # bools
    assert bits == json.loads(run(PROGRAM, str(libraries), COLONNADE_KERNELS="x86-64-v2"))[:10]
    assert other_kind == (
        "InputError: this installation has no machine code for "
        "`columns.dense_forward f2[:,::1] i8[::1] f8[:,::1] f8[:,::1]`, and numba, which would compile it, is not "
        "installed: pip install 'colonnade[compile]'"
    )
    assert not_there.startswith("InputError: this installation has no machine code for `columns.dense_backward f8[:,")
    assert not list(tmp_path.iterdir())  # nothing had to be kept


def test_code_of_other_sources_is_not_found(libraries, monkeypatch):
    monkeypatch.setattr(shipped, "FOLDER", libraries)
    shipped._library.cache_clear()
    try:
        symbol = compiled.shipped_as(columns.dense_forward)
        assert len(shipped.addresses(symbol)) == len(declared()["columns.dense_forward"])
        monkeypatch.setattr(compiled, "_MAKERS", ("kinds.py",))
        compiled._digest_of.cache_clear()
        assert compiled.shipped_as(columns.dense_forward) != symbol
        assert shipped.addresses(compiled.shipped_as(columns.dense_forward)) == []
    finally:
        shipped._library.cache_clear()
        compiled._digest_of.cache_clear()


def test_a_library_that_can_not_be_loaded_is_as_none(tmp_path, monkeypatch):
    for name in shipped.LEVELS:
        (tmp_path / f"{name}.so").write_bytes(b"\x7fELF and no more")
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    shipped._library.cache_clear()
    assert shipped.addresses("colonnade_anything") == []
    shipped._library.cache_clear()


def test_the_level_is_the_best_that_the_processor_can_run(monkeypatch):
    monkeypatch.delenv("COLONNADE_KERNELS")
    for name, needs in shipped.LEVELS.items():
        monkeypatch.setattr(shipped, "_features", lambda needs=needs: needs | {"fpu", "sse2"})
        assert shipped.level() == name
    monkeypatch.setattr(shipped, "_features", lambda: frozenset({"fpu", "sse2"}))
    assert shipped.level() is None
    monkeypatch.setattr(shipped, "_features", lambda: shipped.LEVELS["x86-64-v3"])
    monkeypatch.setenv("COLONNADE_KERNELS", "x86-64-v2")
    assert shipped.level() == "x86-64-v2"
    monkeypatch.setenv("COLONNADE_KERNELS", "x86-64-v4")  # which this processor could not run
    assert shipped.level() == "x86-64-v3"


def test_another_wish_is_refused(monkeypatch):
    monkeypatch.setenv("COLONNADE_KERNELS", "x86-64-v5")
    again = Compiled(columns.dense_forward.function)
    with pytest.raises(OptionError, match=r"^COLONNADE_KERNELS must be one of numba, declared, x86-64-v4, .*v5'$"):
        again(np.zeros((3, 2)), np.arange(3), np.zeros((2, 1)), np.zeros((3, 1)))


def test_the_library_calls_nothing_but_what_every_python_and_every_glibc_has(libraries):
    for path in libraries.glob("*.so"):
        names = path.read_bytes()
        assert b"GLIBC_" not in names
        assert b"libm.so" not in names
        asked = {name for name in names.split(b"\0") if name.startswith((b"Py", b"_Py"))}
        assert asked <= STABLE, asked - STABLE
        assert len(asked) > 10


# All of CPython's stable interface by 3.11, but for PyObject_Vectorcall, which 3.11 has and 3.12 made stable.
STABLE = set(
    b"PyBool_FromLong PyBuffer_IsContiguous PyBuffer_Release PyErr_Clear PyErr_ExceptionMatches PyErr_Occurred "
    b"PyEval_RestoreThread PyEval_SaveThread PyFloat_AsDouble PyLong_AsLongLong PyLong_FromLongLong "
    b"PyNumber_TrueDivide PyObject_GetBuffer PyObject_Vectorcall Py_BuildValue".split()
)


def test_every_listed_kernel_exists_and_every_kernel_called_from_outside_is_listed():
    names, inner = set(), set()
    for path in Path(columns.__file__).parent.glob("[!_]*.py"):
        module = importlib.import_module(f"colonnade.kernels.{path.stem}")
        for kernel in vars(module).values():
            if isinstance(kernel, Compiled) and kernel.__module__ == module.__name__:
                names.add(kernel.full_name)
                called = map(kernel.function.__globals__.get, kernel.function.__code__.co_names)
                inner |= {one.full_name for one in called if isinstance(one, Compiled)}
    assert set(declared()) <= names
    assert names - inner <= set(declared())


def test_the_list_is_in_order_and_says_everything_once():
    kernels = list(declared())
    assert kernels == sorted(kernels)
    for name, kinds in declared().items():
        assert len(set(kinds)) == len(kinds), name


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.zeros((2, 3)), "f8[:,::1]"),
        (np.zeros((2, 3))[:, ::2], "f8[:,:]"),
        (np.zeros(4, np.uint32), "u4[::1]"),
        (np.zeros(4, bool), "b1[::1]"),
        (True, "b1"),
        (np.bool_(True), "b1"),
        (3, "i8"),
        (np.int64(3), "i8"),
        (3.0, "f8"),
        (np.float32(3), "float32"),
        (None, "NoneType"),
    ],
)
def test_kinds_are_those_of_the_list(value, kind):
    assert kinds_of((value,)) == (kind,)


def test_tests_know_no_kinds_but_those_of_the_list():
    """In the tests numba does not stand in for what would be missing in an installation; so the list is complete."""
    assert os.environ["COLONNADE_KERNELS"] == "declared"
    again, X = Compiled(columns.dense_forward.function), np.zeros((3, 2), np.float16)
    with pytest.raises(InputError, match=r"^kinds.txt does not list `columns.dense_forward f2\[:,::1\] i8"):
        again(X, np.arange(3), np.zeros((2, 1)), np.zeros((3, 1)))
