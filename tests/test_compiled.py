"""Kernels as machine code that is kept: it is the same code, in the right hands only, and numba stands behind it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest

from colonnade.kernels import compiled, compiler
from colonnade.kernels.compiled import Compiled
from colonnade.kernels.curve import _call

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is kept")

PROGRAM = """
import sys
import numpy as np
from colonnade.kernels import columns
rng = np.random.default_rng(0)
X, rows, out = rng.standard_normal((50, 7)), np.arange(50), np.empty((50, 1))
columns.dense_forward(X, rows, rng.standard_normal((7, 1)), out)
print("numba" in sys.modules, out.tobytes().hex()[:500])
"""


def scaled(x, factor, out):
    """out = factor x; the sum of x."""
    total = 0.0
    for i in range(x.shape[0]):
        out[i] = factor * x[i]
        total += x[i]
    return total


def quotient(a, b):
    return a / b


def allocating(count):
    return np.ones(count).sum()


def held(check):
    """What CPython says of the GIL, asked from inside."""
    return 0 + _call(check, ())


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty folder for what is kept, in this process and in those that it starts."""
    for name in [name for name in os.environ if name.startswith("NUMBA_") or name == "COLONNADE_KERNELS"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiled._folder_of.cache_clear()
    yield tmp_path / "colonnade" / "kernels"
    compiled._folder_of.cache_clear()


def files(home):
    return sorted(home.glob("*/*.o"))


def run(**environment):
    """(whether numba was imported, the result's bits) of a process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    needed, bits = done.stdout.split()
    return needed == "True", bits


def test_a_second_process_needs_no_numba_for_the_same_bits(home):
    first, bits = run()
    (kept,) = files(home)
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert (first, *run()) == (True, False, bits)
    assert run(COLONNADE_KERNELS="numba") == (True, bits)


@pytest.mark.parametrize("spoil", ["nothing", "a byte", "the file's mode", "the folder's mode"])
def test_what_is_broken_or_was_open_to_others_is_not_loaded(home, monkeypatch, spoil):
    assert Compiled(quotient)(1.0, 4.0) == 0.25
    (kept,) = files(home)
    if spoil == "a byte":
        content = bytearray(kept.read_bytes())
        content[200] ^= 1
        kept.write_bytes(content)
    elif spoil == "the file's mode":
        kept.chmod(0o620)
    elif spoil == "the folder's mode":
        kept.parent.chmod(0o770)
    compiled._folder_of.cache_clear()
    compiling, again = [], Compiled(quotient)
    monkeypatch.setattr(compiler, "object_code", lambda *_: compiling.append("anew"))
    monkeypatch.setattr(compiler, "dispatcher", lambda kernel: compiling.append("by numba") or kernel.function)
    assert again(1.0, 4.0) == 0.25
    assert compiling == {"nothing": [], "the folder's mode": ["by numba"]}.get(spoil, ["anew", "by numba"])


@pytest.mark.parametrize("variable", ["COLONNADE_KERNELS", "NUMBA_OPT"])
def test_on_request_nothing_is_kept(home, monkeypatch, variable):
    monkeypatch.setenv(variable, "numba" if variable == "COLONNADE_KERNELS" else "3")
    assert Compiled(quotient)(1.0, 4.0) == 0.25
    assert files(home) == []


def test_without_a_folder_numba_does_it(home):
    home.parent.write_text("this is no folder")
    assert Compiled(quotient)(1.0, 4.0) == 0.25


def test_each_kind_of_arguments_finds_its_own_code(home):
    kernel, x = Compiled(scaled), np.arange(6.0)
    wide = np.arange(12.0)[::2]
    fixed = x.copy()
    fixed.flags.writeable = False
    kinds = [x, x.astype(np.float32), x.astype(np.int64), x.astype(np.int32), wide, fixed]
    for k in range(3):  # compiled, then called out of turn
        for given in kinds[k:] + kinds[:k]:
            out = np.zeros(6)
            assert kernel(given, 2.0, out) == given.sum()
            np.testing.assert_array_equal(out, 2.0 * given)
    assert len(files(home)) == len(kinds) == len(list(home.glob("*/*")))
    again = Compiled(scaled)
    again._other_types = pytest.fail
    assert [again(given, 2.0, np.zeros(6)) for given in kinds] == [given.sum() for given in kinds]


def test_numbers_of_another_precision_are_not_taken_for_floats(home):
    kernel, x, out = Compiled(scaled), np.full(6, 0.1, np.float32), np.zeros(6)
    for factor, expected in (
        (0.1, 0.1 * x.astype(float)),
        (np.float32(0.1), np.float32(0.1) * x),
        (3, 3 * x.astype(float)),
    ):
        kernel(x, factor, out)
        np.testing.assert_array_equal(out, expected)
    kernel(x, np.float64(0.1), out)
    np.testing.assert_array_equal(out, 0.1 * x.astype(float))


def test_what_only_numba_takes_for_the_same_type_goes_to_numba(home):
    """Two of C's types have 64 bits, and memory says which of them it holds."""
    kernel, out = Compiled(scaled), np.zeros(6)
    for _ in range(2):
        assert kernel(np.arange(6, dtype=np.longlong), 3.0, out) == 15.0
        np.testing.assert_array_equal(out, 3.0 * np.arange(6))


def test_memory_that_may_not_be_written_is_not(home):
    kernel, fixed = Compiled(scaled), np.zeros(6)
    kernel(np.arange(6.0), 1.0, fixed.copy())
    fixed.flags.writeable = False
    with pytest.raises(Exception, match="Cannot modify readonly array"):
        kernel(np.arange(6.0), 1.0, fixed)
    assert not fixed.any()


def test_division_by_zero_is_an_error_as_it_is_in_python(home):
    kernel = Compiled(quotient)
    for _ in range(3):
        assert kernel(1.0, 2.0) == 0.5
        with pytest.raises(ZeroDivisionError, match=r"^division by zero$"):
            kernel(1.0, 0.0)
    assert len(files(home)) == 1


def test_too_few_arguments_are_an_error(home):
    kernel = Compiled(quotient)
    kernel(1.0, 2.0)
    with pytest.raises(TypeError):
        kernel(1.0)


def test_a_kernel_that_allocates_stays_with_numba(home):
    kernel = Compiled(allocating)
    assert (kernel(5), kernel(7)) == (5.0, 7.0)
    assert files(home) == []


def test_no_gil_is_held(home):
    check = ctypes.cast(ctypes.pythonapi.PyGILState_Check, ctypes.c_void_p).value
    assert ctypes.pythonapi.PyGILState_Check() == 1
    assert Compiled(held)(check) == 0
    assert len(files(home)) == 1
