"""Kernels as machine code that is kept: it is the same code, in the right hands only, and numba stands behind it."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.caching import CacheImpl

from colonnade.compiling import compiled, compiler, wrapper
from colonnade.compiling.compiled import Compiled
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


def tripled(x):
    return x * 3


def guarded(x):
    if x < 0:
        raise ValueError("negative")
    return x // 2


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


def test_code_depends_on_the_files_of_pieces_that_it_takes_from_others(home, tmp_path):
    """`doubled` is in another file than the kernel that calls it: when that file changes, so does what is kept."""
    folders = set()
    for factor in (2, 3):
        spaces = [{"Compiled": Compiled}, {"Compiled": Compiled}]
        other, own = tmp_path / "other.py", tmp_path / "own.py"
        other.write_text(f"@Compiled\ndef doubled(x):\n    return {factor} * x\n")
        own.write_text("@Compiled\ndef more(x):\n    return doubled(x) + 1\n")
        exec(compile(other.read_text(), str(other), "exec"), spaces[0])
        spaces[1]["doubled"] = spaces[0]["doubled"]
        exec(compile(own.read_text(), str(own), "exec"), spaces[1])
        compiled._folder_of.cache_clear()
        assert compiled._sources(spaces[1]["more"].function) == [str(own), str(other)]
        assert compiled._sources(spaces[0]["doubled"].function) == [str(other)]
        assert spaces[1]["more"](5) == 5 * factor + 1
        folders |= {path.parent for path in files(home)}
    assert len(folders) == 2


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
    monkeypatch.setattr(compiler, "dispatcher", lambda kernel, **_: compiling.append("by numba") or kernel.function)
    assert again(1.0, 4.0) == 0.25
    assert compiling == {"nothing": [], "the folder's mode": ["by numba"]}.get(spoil, ["anew", "by numba"])


def spoiled(home, how):
    """What others could have done to the folder, or to one above it."""
    leaf = next(home.iterdir())
    if how == "a link":
        leaf.rename(home.parent / "elsewhere")
        leaf.symlink_to(home.parent / "elsewhere")
    elif how == "somebody else's above":
        os.chown(home, 1234, 1234)
    else:
        home.chmod(
            {"all may write above": 0o777, "a group may write above": 0o770, "all may, but not rename": 0o1777}[how]
        )


@pytest.mark.parametrize(
    "how",
    [
        "a link",
        "all may write above",
        "a group may write above",
        "all may, but not rename",
        pytest.param("somebody else's above", marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can")),
    ],
)
def test_a_folder_that_others_could_exchange_is_not_used_and_numba_keeps_nothing_either(home, monkeypatch, how):
    monkeypatch.setattr(os, "getegid", lambda: -1)  # a user whose group is not the user alone
    assert Compiled(quotient)(1.0, 4.0) == 0.25
    spoiled(home, how)
    compiled._folder_of.cache_clear()
    asked = []
    monkeypatch.setattr(compiler, "dispatcher", lambda kernel, *, kept: asked.append(kept) or kernel.function)
    assert Compiled(quotient)(1.0, 4.0) == 0.25
    assert asked == ([] if how == "all may, but not rename" else [False])


def test_a_group_that_is_the_user_alone_may_write_above(home, monkeypatch):
    home.mkdir(parents=True)
    home.chmod(0o770)
    status = os.stat(home)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(os, "getegid", lambda: 1234)
    for group, is_open in ((1234, False), (1235, True)):
        assert compiled._is_open_to_others(os.stat_result((*status[:4], 1234, group, *status[6:]))) is is_open


def test_a_cache_at_a_relative_place_is_ignored(home, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path)
    folder, numba_may = compiled._folder_of(__file__)
    assert folder.is_relative_to(tmp_path / "home" / ".cache")
    assert not numba_may  # it would look there
    compiled._folder_of.cache_clear()
    monkeypatch.setenv("HOME", "there")
    assert compiled._folder_of(__file__) == (None, False)
    assert not (tmp_path / "here").exists()
    assert not (tmp_path / "there").exists()


def test_where_numba_can_write_nowhere_it_keeps_nothing(home, monkeypatch):
    home.parent.write_text("this is no folder")
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])  # as if all of them were read-only
    assert Compiled(quotient)(1.0, 4.0) == 0.25


def test_a_file_under_another_name_is_passed_over(home):
    assert Compiled(quotient)(1.0, 4.0) == 0.25
    (kept,) = files(home)
    kept.rename(kept.with_name("quotient-0123456789abcdef.o"))
    assert Compiled(quotient)(1.0, 4.0) == 0.25
    assert kept in files(home)


def test_a_file_that_can_not_be_finished_leaves_nothing(home, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    assert Compiled(quotient)(1.0, 4.0) == 0.25
    assert list(home.glob("*/*")) == []


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
    assert len(files(home)) == len(kinds) - 1 == len(list(home.glob("*/*")))  # what is only read may be fixed
    again = Compiled(scaled)
    again._other_kinds = pytest.fail
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


@pytest.mark.parametrize(
    "first", [True, 5, 5.0, np.True_, np.int64(5), np.float64(5)], ids=lambda one: type(one).__name__ + str(one)
)
def test_a_number_is_of_the_type_that_numba_says(home, first):
    """Whatever was compiled first, and in a process that loads it; no bool is an integer, and the other way round."""
    numbers = [True, False, 5, 0, -1, 2**62, 2.5, np.True_, np.False_, np.int64(7), np.float64(0.5), np.float32(0.1)]
    numbers += [np.uint64(7), np.int32(7), np.uint8(200), np.array(2)]
    expected = [(type(one), one) for one in map(numba.njit(tripled), numbers)]
    kernel = Compiled(tripled)
    assert kernel(first) == 3 * first
    for again in (kernel, Compiled(tripled)):
        assert [(type(one), one) for one in map(again, numbers)] == expected


def test_an_object_that_can_be_turned_into_a_number_is_not_asked_to(home):
    class Number:
        def __index__(self):
            return 1

        def __float__(self):
            return 1.0

    for first in (1, 2.5, True):
        kernel = Compiled(tripled)
        kernel(first)
        with pytest.raises(numba.core.errors.TypingError, match="Cannot determine Numba type"):
            kernel(Number())


def test_an_error_that_is_not_about_types_is_not_lost(home, monkeypatch):
    """Here, that of memory with gaps counts as such."""
    monkeypatch.setattr(wrapper, "_PASSED_OVER", ("TypeError", "BufferError"))
    kernel, wide, out = Compiled(scaled), np.arange(12.0)[::2], np.zeros(6)
    for _ in range(2):
        assert kernel(np.arange(6.0), 2.0, out) == 15.0
        with pytest.raises(ValueError, match="not C-contiguous"):
            kernel(wide, 2.0, out)
    assert kernel(np.arange(6), 2.0, out) == 15.0


def test_a_kernel_that_raises_an_error_of_its_own_stays_with_numba(home):
    kernel = Compiled(guarded)
    for _ in range(2):
        assert kernel(8) == 4
        with pytest.raises(ValueError, match=r"^negative$"):
            kernel(-1)
    assert files(home) == []


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
