"""What holds for all tests: nothing that is drawn and no clock decides whether one passes.

Hypothesis draws the same examples every time. With COLONNADE_EXPLORE=1 it draws others: for whoever looks for defects,
and not for whoever asks whether a change is good.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("explore" if os.environ.get("COLONNADE_EXPLORE") == "1" else "steady")
