"""Colonnade's horizontal algorithms on Flower (the extra `flower`): a strategy for the ServerApp, and a ClientApp.

    from colonnade.flower import SSCA, client_app

    app = client_app(load_site)                       # in the ClientApp's module; load_site(context) -> Site
    SSCA(sites=10, classes=range(10)).start(grid)     # in the ServerApp's main

The messages are those of `SSCAClassifier.fit`, in the same codec and under the same masks; Flower carries them.
"""

from __future__ import annotations

from colonnade.errors import OptionError

try:
    import flwr  # noqa: F401
except ImportError:
    raise OptionError(
        "colonnade.flower needs Flower, which is not installed; pip install 'colonnade[flower]'"
    ) from None

from colonnade.flower.client import client_app
from colonnade.flower.strategy import SSCAStrategy

__all__ = ["SSCA", "client_app"]

SSCA = SSCAStrategy
