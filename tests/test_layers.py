"""Who may import whom, what is public, and how light the package is."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import colonnade as cn

SOURCE = Path(cn.__file__).parent


def modules(*rooms):
    """All modules of these rooms."""
    return [f"{room}.{path.stem}" for room in rooms for path in sorted((SOURCE / room).glob("*.py"))]


MATHS = [
    *modules("data", "objective", "compiling", "kernels", "crypto", "blocks", "networks"),
    *(f"algorithms.{n}" for n in ("ssca", "quadratics", "fedavg")),
]
TRANSPORT = modules("runtimes", "remote")


@cache
def said(path):
    """(what a file imports, the names in its code, its own public classes), read once for all tests."""
    tree, imports, names = ast.parse(path.read_text()), set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imports |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    return imports, names, classes


def imported(module):
    path = SOURCE / (module.replace(".", "/") + ".py")
    path = path if path.exists() else SOURCE / module.replace(".", "/") / "__init__.py"
    return said(path)[0]


@pytest.mark.parametrize("module", MATHS)
def test_maths_knows_no_transport(module):
    known = imported(module)
    assert not [name for name in known if "runtimes" in name or "colonnade.sums" in name or "asyncio" in name]


@pytest.mark.parametrize("module", TRANSPORT)
def test_transport_knows_no_maths(module):
    ours = {name for name in imported(module) if name.startswith("colonnade.")} - {"colonnade.__version__"}
    allowed = (
        "colonnade.runtimes",
        "colonnade.remote",
        "colonnade.errors",
        "colonnade.private_files",
        "colonnade.notebooks",
    )
    assert not [name for name in ours if not name.startswith(allowed)]


@pytest.mark.parametrize("module", modules("runtimes"))
def test_runtimes_do_not_know_the_lines_between_organisations(module):
    assert not [name for name in imported(module) if name.startswith("colonnade.remote")]


@pytest.mark.parametrize("module", ["alignment.protocol", *modules("engine", "flows", "newton", "algorithms", "sums")])
def test_programs_see_the_world_only_as_a_net(module):
    runtime = {name for name in imported(module) if name.startswith("colonnade.runtimes")}
    assert all(name.startswith(("colonnade.runtimes.net", "colonnade.runtimes.wire")) for name in runtime)
    assert not imported(module) & {"time", "asyncio", "socket", "random", "os"}


def test_public_names():
    expected = {
        "AFSGD", "Binning", "BlockNewton", "BoostedTreesClassifier", "BoostedTreesRegressor", "FDML", "FDSKL", "Faults",
        "FedAvg", "FedBCD", "FedSGD", "GammaRegression", "Identity", "KernelClassifier", "KernelRegressor", "LinearSVC",
        "LogisticRegression", "MiniBatchSGD", "NegativeBinomialRegression",
        "NetworkClassifier", "NetworkRegressor", "OpenBoosting",
        "ParallelRestartedSGD", "Party", "PoissonRegression", "Processes",
        "QuantileRegression", "RidgeRegression", "SSCA",
        "SSCAClassifier", "SealedBoosting", "SealedNewton", "Simulation", "Site", "SoftmaxRegression",
        "TransferClassifier", "TweedieRegression",
        "VFB2", "align_parties", "cost", "cross_validate", "errors", "load", "mean_of", "of_parameters", "search",
        "split", "split_rows", "squared_norm", "stepwise", "write_report",
    }  # fmt: skip
    assert set(cn.__all__) == expected
    for name in expected:
        assert getattr(cn, name).__doc__
    assert set(cn.__all__) <= set(dir(cn))
    with pytest.raises(AttributeError, match="no attribute 'Magic'"):
        _ = cn.Magic


def test_importing_loads_nothing_heavy():
    """Not a timing: what is not loaded can't cost time."""
    heavy = ("numpy", "numba", "scipy", "rich", "cryptography", "coincurve", "mpi4py", "torch", "flwr")
    check = f"import sys, colonnade, colonnade.cli.main; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, text=True).stdout
    assert found.strip() == "[]"


def test_no_pickle_and_no_unseeded_randomness():
    for path in SOURCE.rglob("*.py"):
        assert "pickle" not in said(path)[1], path
        assert "default_rng()" not in path.read_text(), path


# Every room imports those above it in this list, and none below; the top level's few modules are everybody's.
ROOMS = (
    "notebooks", "compiling", "kernels", "objective", "settings", "runtimes", "remote", "data", "tables", "crypto",
    "blocks", "streams", "networks", "sums", "alignment", "defences", "engine", "flows", "sealed", "boosting",
    "newton", "algorithms", "horizontal", "inference", "binning", "ledger", "events", "families", "workers", "versions",
    "views", "attacks", "inversions", "audit", "conventions", "timelines", "estimators", "validation", "jobs",
    "report", "inspection", "integrations", "service", "site_jobs", "planning", "dashboard", "flower", "cli",
)  # fmt: skip
# What is shown is declared where it happens, and a job has to list all of it.
EXCEPTIONS = {"jobs.words": {"service", "planning"}}


def test_every_room_is_in_the_list():
    assert set(ROOMS) == {path.parent.name for path in SOURCE.glob("*/__init__.py")}


@pytest.mark.parametrize("module", modules(*ROOMS))
def test_rooms_import_those_above_them(module):
    room = module.split(".")[0]
    allowed = {*ROOMS[: ROOMS.index(room) + 1], *EXCEPTIONS.get(module, ())}
    rooms = {name.split(".")[1] for name in imported(module) if name.startswith("colonnade.")}
    assert not rooms & set(ROOMS) - allowed


def test_the_top_level_is_small():
    """Public names, errors, what runs show, the line about a run, and files that only their owner may read."""
    assert {path.stem for path in SOURCE.glob("*.py")} == {"__init__", "errors", "leaks", "private_files", "progress"}


def test_no_two_classes_have_one_name():
    homes = {}
    for path in SOURCE.rglob("*.py"):
        for name in said(path)[2]:
            homes.setdefault(name, []).append(str(path.relative_to(SOURCE)))
    assert not {name: found for name, found in homes.items() if len(found) > 1}


def test_no_room_is_crowded():
    assert max(len(modules(room)) for room in ROOMS) <= 20
