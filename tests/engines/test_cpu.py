"""The thread budget."""

from __future__ import annotations

import pytest
from antiphon.engines.cpu import ThreadBudget, available_cores
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(("cores", "chat", "asr"), [(0, 1, 1), (1, 1, 1), (2, 1, 1), (4, 3, 1), (8, 6, 2), (64, 8, 2)])
def test_budget(cores: int, chat: int, asr: int) -> None:
    assert ThreadBudget.for_machine(cores) == ThreadBudget(chat=chat, asr=asr, vad=1, turn_end=1, speech=1)


@given(st.integers(2, 512))
def test_chat_and_asr_together_leave_nobody_spinning(cores: int) -> None:
    budget = ThreadBudget.for_machine(cores)
    assert budget.chat + budget.asr <= cores


def test_this_machine_has_cores() -> None:
    assert available_cores() >= 1
