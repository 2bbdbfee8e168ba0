"""The colours of everything that is looked at in a browser: reports, timelines, tables in notebooks.

Each has a light and a dark form, and letters have a contrast of at least 4.5 to 1 to what they stand on, as WCAG asks;
tests/test_report_page.py holds each pair against it.
"""

from __future__ import annotations

from collections.abc import Mapping

LIGHT = {
    "page": "#f4f6f9", "card": "#ffffff", "soft": "#eef2f7", "ink": "#16202e", "quiet": "#556173", "edge": "#d7dee8",
    "grid": "#e4e9f0", "s1": "#1b5fc1", "s2": "#b3520a", "s3": "#14764a", "s4": "#7a3fb0", "good": "#14764a",
    "bad": "#b3261e", "tint": "#e3edfb",
}  # fmt: skip
DARK = {
    "page": "#0e131a", "card": "#171e28", "soft": "#202a37", "ink": "#e7edf5", "quiet": "#a6b3c4", "edge": "#303c4c",
    "grid": "#283342", "s1": "#7fb4ff", "s2": "#ffb26b", "s3": "#6bd6a2", "s4": "#cfa4f7", "good": "#6bd6a2",
    "bad": "#ff968c", "tint": "#1f3453",
}  # fmt: skip


def variables(palette: Mapping[str, str]) -> str:
    """Return a palette as the declarations of CSS variables."""
    return ";".join(f"--{name}:{colour}" for name, colour in palette.items())
