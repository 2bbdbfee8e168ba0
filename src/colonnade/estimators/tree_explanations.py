"""What a trained model of trees says of itself."""
from __future__ import annotations


class TreeExplanations:
    """Placeholder while its parts are being built."""
