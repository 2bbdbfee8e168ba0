"""Where the data sets are that are too large for the repository, and a mark for the tests that need one of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("COLONNADE_DATA") or Path(__file__).parent.parent / "data")


def needs(file: str) -> pytest.MarkDecorator:
    """Skip a test where this file is not among the data sets."""
    reason = f"{file} is not in {DATA}; set COLONNADE_DATA to a folder of data sets"
    return pytest.mark.skipif(not (DATA / file).is_file(), reason=reason)
