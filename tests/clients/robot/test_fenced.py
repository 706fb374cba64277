"""A server that answers "fenced" has moved on: what it said before is not executed any more."""

from __future__ import annotations

import numpy as np
import pytest
from antiphon.clients.robot import Controller, ControlSettings, Mode, PolicyInfo

POLICY = PolicyInfo(rate=20.0, horizon=16, action_dim=2, max_prefix=8, marks=True)


def driven(now: float) -> Controller:
    """In the middle of its first chunk, with a request on its way."""
    controller = Controller(ControlSettings(), POLICY)
    controller.begin(0.0)
    controller.online(0.0)
    asked = controller.ask(0.0)
    assert asked is not None
    controller.take(asked.ticket.sequence, np.zeros((16, 2), np.float32), 0.01)
    for step in range(8):
        controller.ask(now + step / 20)
        assert controller.step(now + step / 20).mode is Mode.RUN
    return controller


@pytest.mark.parametrize(("reason", "mode"), [("fenced", Mode.HOLD), ("failed", Mode.RUN), ("superseded", Mode.RUN), ("late", Mode.RUN)])
def test_only_a_fence_ends_what_is_being_executed(reason: str, mode: Mode) -> None:
    controller = driven(0.1)
    controller.fail(2, 0.6, reason)
    assert controller.step(0.65).mode is mode
    again = controller.ask(0.7)
    assert again is not None
    assert again.prefix is None or mode is Mode.RUN, "a chunk that continues nothing"


def test_a_fence_of_an_older_request_changes_nothing() -> None:
    controller = driven(0.1)
    controller.fail(1, 0.6, "fenced")
    assert controller.step(0.65).mode is Mode.RUN
