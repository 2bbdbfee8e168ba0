"""What `pip install` of the built wheel and sdist gives a user: in an environment of its own, with nothing from here.

For each of them: the environment is made, the file is installed, the command answers, and two parties train sealed.
What is printed says how long that took and how large what was installed is: the files that the packages bring, and
beside them the bytecode that pip makes of them. Where kernels are shipped compiled, there must be no numba, the
packages together must stay below 300 MB, and every kind of code that this processor can run must give the same bits.
With --sbom, the software bill of materials of that environment is written beside the wheel (CycloneDX, by
cyclonedx-bom in an environment apart from it).

    python packaging/check_dist.py dist
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

LINES = """
import numpy as np
import colonnade as cn

rng = np.random.default_rng(0)
X = rng.standard_normal((600, 8))
y = (X @ rng.standard_normal(8) > 0).astype(int)
bank, shop = cn.Party("bank", X[:, :4], y), cn.Party("shop", X[:, 4:])
model = cn.LogisticRegression(l2=1e-2, protection="sealed", verbose=0).fit(bank, shop)
score = model.score(bank, shop)
assert score > 0.9, score
"""
BITS = """
import sys
from colonnade.compiling.shipped import level
print(level() if "numba" not in sys.modules else "numba", *(part.tobytes().hex() for part in model.coef_.values()))
"""
MOST = 300e6  # bytes of all packages, where kernels are shipped
SHIPPED = sys.platform == "linux" and platform.machine() == "x86_64"


def environment(folder: Path) -> Path:
    """A new environment with nothing but pip; returns its interpreter."""
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def check(package: Path, *, sbom: Path | None = None) -> None:
    """Install one file and use it."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        python = environment(Path(folder) / "venv")
        subprocess.run([python, "-m", "pip", "install", "-q", str(package)], check=True)
        installed = time.perf_counter() - began
        colonnade = python.with_name("colonnade")
        said = subprocess.run([colonnade, "--version"], check=True, capture_output=True, text=True, cwd=folder)
        began = time.perf_counter()
        run(python, LINES, folder)
        seconds = time.perf_counter() - began
        print(f"{package.name}: {said.stdout.strip()}, installed in {installed:.0f} s")
        print(f"  ten lines to a first model: {seconds:.1f} s, and with the installation {installed + seconds:.0f} s")
        if SHIPPED:
            check_kernels(python, folder)
        found = sizes(python)
        for name, size in found:
            print(f"  {size / 1e6:7.1f} MB  {name}")
        if SHIPPED and (whole := found[0][1]) >= MOST:
            sys.exit(
                f"{package.name} installs {whole / 1e6:.0f} MB with all that it needs; {MOST / 1e6:.0f} are the most"
            )
        if sbom is not None:
            write_sbom(python, Path(folder) / "tool", sbom)


def run(python: Path, program: str, folder: str, **variables: str) -> str:
    """What a program prints. -I: neither this checkout nor Python's variables may stand in for what was installed."""
    known = {name: value for name, value in os.environ.items() if name != "COLONNADE_KERNELS"}
    command = [str(python), "-I", "-c", program]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, cwd=folder, env={**known, **variables}
    )
    return done.stdout


def check_kernels(python: Path, folder: str) -> None:
    """The shipped code is what runs, and gives one model whatever the processor."""
    levels = run(python, "from colonnade.compiling.shipped import LEVELS\nprint(*LEVELS)", folder).split()
    found = [run(python, LINES + BITS, folder, COLONNADE_KERNELS=level).split() for level in levels]
    used = sorted({level for level, *_ in found})
    if "numba" in used or len({tuple(bits) for _, *bits in found}) != 1:
        sys.exit(f"kernels must be shipped, and give the same bits at every level; these were used: {', '.join(used)}")
    print(f"  kernels shipped compiled, the same model to the bit by code for {', '.join(used)}")


def sizes(python: Path) -> list[tuple[str, int]]:
    """What was installed, but for pip and what came with it: the sum, the bytecode, and the largest parts."""
    (site,) = python.parent.parent.glob("lib/python*/site-packages")
    parts, bytecode = dict[str, int](), 0
    for one in site.iterdir():
        if not one.name.startswith(("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-")):
            for file in [one] if one.is_file() else filter(Path.is_file, one.rglob("*")):
                size = file.stat().st_size
                if file.suffix == ".pyc":
                    bytecode += size
                else:
                    parts[one.name] = parts.get(one.name, 0) + size
    largest = sorted(parts.items(), key=lambda item: -item[1])[:8]
    return [("in all, as the packages have it", sum(parts.values())), ("bytecode that pip adds", bytecode), *largest]


def write_sbom(python: Path, folder: Path, out: Path) -> None:
    """List everything that is installed, with versions and licences."""
    tool = environment(folder)
    subprocess.run([tool, "-m", "pip", "install", "-q", "cyclonedx-bom"], check=True)
    command = [tool.with_name("cyclonedx-py"), "environment", str(python), "--output-file", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    print(f"wrote {out}")


def main() -> None:
    """Check the wheel and the sdist of a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder", type=Path, help="where the wheel and the sdist are")
    parser.add_argument("--sbom", action="store_true", help="write the bill of materials beside the wheel")
    options = parser.parse_args()
    wheels, sources = sorted(options.folder.glob("*.whl")), sorted(options.folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sources) != 1:
        found = f"it has {len(wheels)} and {len(sources)}"
        sys.exit(f"{options.folder} must hold one wheel and one sdist, {found}; run `make dist`")
    check(wheels[0], sbom=options.folder / "colonnade.cdx.json" if options.sbom else None)
    check(sources[0])


if __name__ == "__main__":
    main()
