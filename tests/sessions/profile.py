"""How hard hypothesis looks: quick by default, `HYPOTHESIS_PROFILE=thorough` for a long look."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"


def bounded(quick: int, thorough: int, **more: Any) -> settings:
    """Settings with that many examples."""
    return settings(
        max_examples=thorough if THOROUGH else quick,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        **more,
    )
