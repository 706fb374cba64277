"""Makes the real policy slow, from the moment a test says so."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from antiphon.engines.action.flow_model import FlowModel, FlowRow


class Pace:
    """`seconds` that each integration step takes longer; `steps` counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        self.steps = 0
        advance = FlowModel.advance

        def slow(model: FlowModel, rows: Sequence[FlowRow]) -> None:
            self.steps += 1
            if self.seconds:
                time.sleep(self.seconds)
            advance(model, rows)

        monkeypatch.setattr(FlowModel, "advance", slow)
