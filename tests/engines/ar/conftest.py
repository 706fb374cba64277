"""A small chat model, loaded once."""

from __future__ import annotations

from pathlib import Path

import pytest
from antiphon.engines import weights


@pytest.fixture(scope="session")
def smollm() -> Path:
    """SmolLM2-135M's file."""
    return weights.pull("smollm2-135m-instruct")["model"]
