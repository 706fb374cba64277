"""The loss: what is given does not count, and what is learned is the flow."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from antiphon.engines.action.card import NetworkShape
from antiphon.engines.action.network import FlowNetwork
from antiphon.robot.training.objective import draw_prefix, draw_times, flow_loss


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_times_are_beta_1_and_a_half() -> None:
    times = draw_times(200_000, generator())
    assert 0 <= float(times.min()) <= float(times.max()) <= 1
    assert float(times.mean()) == pytest.approx(1 / 2.5, abs=0.005)
    assert float((times < 0.3).float().mean()) == pytest.approx(1 - 0.7**1.5, abs=0.005)


def test_prefixes_are_as_long_as_they_must_be() -> None:
    needed = torch.tensor([0] * 5000 + [3] * 5000 + [8] * 5000)
    drawn = draw_prefix(needed, 8, generator())
    assert bool((drawn >= needed).all())
    assert int(drawn.max()) == 8
    assert 0.5 < float((drawn[:5000] == 0).float().mean()) < 0.6
    assert set(drawn[10_000:].tolist()) == {8}


def network() -> FlowNetwork:
    torch.manual_seed(0)
    made = FlowNetwork(3, 6, 2, NetworkShape(width=48, depth=2, condition=24, observation_width=24, prompt_width=8, prompt_buckets=8))
    for parameter in made.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.05)
    return made


def test_given_actions_do_not_count_but_are_seen() -> None:
    made = network()
    condition = made.condition(torch.randn(4, 3, generator=generator(1)), torch.zeros(4, 8))
    chunks = torch.randn(4, 6, 2, generator=generator(2))
    prefix = torch.full((4,), 2)
    loss = flow_loss(made, condition, chunks, prefix, generator(3))
    other = chunks.clone()
    other[:, :2] += 1
    assert flow_loss(made, condition, other, prefix, generator(3)).item() != pytest.approx(loss.item(), rel=1e-6)
    chunk = chunks.clone().requires_grad_(True)
    flow_loss(made, condition, chunk, torch.full((4,), 5), generator(3)).backward()
    assert float(chunk.grad[:, 5].abs().sum()) > 0  # type: ignore[index]


def test_several_noises_share_an_observation() -> None:
    made = network()
    condition = made.condition(torch.randn(2, 3, generator=generator(1)), torch.zeros(2, 8))
    chunks = torch.randn(2, 6, 2, generator=generator(2)).repeat(3, 1, 1)
    many = flow_loss(made, condition, chunks, torch.zeros(6, dtype=torch.long), generator(4))
    spelled = flow_loss(made, condition.repeat(3, 1), chunks, torch.zeros(6, dtype=torch.long), generator(4))
    assert many.item() == pytest.approx(spelled.item())


def test_a_flow_is_learned() -> None:
    """Chunks that are all alike: after some steps, integrating from noise leads to them."""
    made = network()
    optimizer = torch.optim.Adam(made.parameters(), 3e-3)
    random = generator(5)
    target = torch.linspace(-1, 1, 12).view(1, 6, 2)
    for _ in range(200):
        condition = made.condition(torch.randn(32, 3, generator=random), torch.zeros(32, 8))
        loss = flow_loss(made, condition, target.repeat(32, 1, 1), torch.zeros(32, dtype=torch.long), random)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        condition = made.condition(torch.zeros(8, 3), torch.zeros(8, 8))
        chunk = torch.randn(8, 6, 2, generator=random)
        for step in range(10):
            chunk = chunk + made.velocity(chunk, made.time(torch.full((8,), step / 10)), condition, torch.zeros(8, 6)) / 10
    assert np.abs(chunk.numpy() - target.numpy()).mean() < 0.2, "noise's deviation is 1"
