"""What one organisation needs to take part, packed for sending: the job, its own file, and its own test certificate.

Nothing of another party is in it, and no other key; the authority's key stays where the files were made.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from colonnade import private_files

FOLDER = "bundles"


def bundle(folder: Path, party: str) -> Path:
    """Write the bundle of one party of a new federation, readable by its owner only, and return its path."""
    certificates = ("authority.pem", f"{party}.pem", f"{party}.key")
    names = ["job.toml", f"{party}.toml", *(f"certificates/{name}" for name in certificates)]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in names:
            content = (folder / name).read_bytes()
            entry = tarfile.TarInfo(f"{folder.name}/{name}")
            entry.size, entry.mode = len(content), 0o600 if name.endswith(".key") else 0o644
            archive.addfile(entry, io.BytesIO(content))
    path = folder / FOLDER / f"{party}.tar.gz"
    private_files.make_folder(path.parent)
    private_files.write(path, packed.getvalue())
    return path
