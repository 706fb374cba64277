"""Policies that see: keypoints follow what moves, pictures are read in either layout, wrong ones are refused."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from antiphon.engines.action.card import Card, Entry, NetworkShape, load_card
from antiphon.engines.action.flow_model import FlowModel
from antiphon.engines.action.network import FlowNetwork
from antiphon.engines.action.vision import Eye
from antiphon.engines.errors import EngineError, InvalidRequestError
from antiphon.engines.messages import ActBody, Array

SIZE = 32
SHAPE = NetworkShape(width=32, depth=1, condition=16, observation_width=16, prompt_width=8, eyes=2, picture_size=SIZE, keypoints=4)


def card(layout: str = "HWC", **more: Any) -> Card:
    shape = (SIZE, SIZE, 3) if layout == "HWC" else (3, SIZE, SIZE)
    pictures = tuple(Entry(key=key, dtype="uint8", shape=shape, layout=layout) for key in ("left", "right"))  # type: ignore[arg-type]
    fields: dict[str, Any] = {
        "format": "antiphon-flow-policy/1",
        "policy": "seer",
        "horizon": 4,
        "action_dim": 2,
        "rate": 10.0,
        "observation": (Entry(key="joints", shape=(2,)), *pictures),
        "state": ("joints",),
        "pictures": ("left", "right"),
        "state_mean": (0.0, 0.0),
        "state_std": (1.0, 1.0),
        "action_mean": (0.0, 0.0),
        "action_std": (1.0, 1.0),
        "network": SHAPE,
        "sha256": hashlib.sha256(b"").hexdigest(),
    }
    return Card(**{**fields, **more})


def model(layout: str = "HWC") -> FlowModel:
    torch.manual_seed(0)
    made = card(layout)
    network = FlowNetwork.of(made)
    for parameter in network.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.2)
    for eye in network.eyes:
        torch.nn.init.constant_(eye.sharpness, 50.0)  # type: ignore[arg-type]  # fresh eyes look everywhere at once
    return FlowModel(made, network)


def actions(policy: FlowModel, bodies: list[ActBody]) -> list[np.ndarray[Any, Any]]:
    rows = [policy.prepare(body, 3) for body in bodies]
    policy.begin(rows)
    for _ in range(rows[0].steps):
        policy.advance(rows)
    return [policy.finish(row) for row in rows]


def body(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> ActBody:
    return ActBody(observation={"joints": Array.of(np.zeros(2, np.float32)), "left": Array.of(left), "right": Array.of(right)})


def pictures(seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (SIZE, SIZE, 3)).astype(np.uint8)


def test_keypoints_learn_where_a_spot_is() -> None:
    torch.manual_seed(0)
    eye, tell = Eye(4), torch.nn.Linear(8, 2)
    optimizer = torch.optim.Adam([*eye.parameters(), *tell.parameters()], 0.01)

    def spots(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        at = np.random.default_rng(seed).integers(2, SIZE - 2, (count, 2))
        drawn = torch.full((count, 3, SIZE, SIZE), 90, dtype=torch.uint8)
        for picture, (x, y) in zip(drawn, at, strict=True):
            picture[0, y - 2 : y + 2, x - 2 : x + 2] = 240
        return drawn, torch.from_numpy(at / (SIZE / 2) - 1).float()

    for step in range(150):
        drawn, places = spots(32, step)
        loss = (tell(eye(drawn)) - places).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    drawn, places = spots(64, 10_000)
    error = (tell(eye(drawn)) - places).abs().mean() * SIZE / 2
    assert float(error) < 1.5, "pixels"


def test_each_picture_counts() -> None:
    policy = model()
    plain, other_left, other_right = actions(
        policy, [body(pictures(0), pictures(1)), body(pictures(2), pictures(1)), body(pictures(0), pictures(2))]
    )
    assert np.abs(plain - other_left).max() > 1e-4
    assert np.abs(plain - other_right).max() > 1e-4
    alone = actions(policy, [body(pictures(0), pictures(1))])[0]
    assert np.abs(alone - plain).max() < 1e-5, "whoever shares the step"


def test_both_layouts_are_read_alike() -> None:
    left, right = pictures(0), pictures(1)
    hwc = actions(model("HWC"), [body(left, right)])[0]
    chw = actions(model("CHW"), [body(left.transpose(2, 0, 1), right.transpose(2, 0, 1))])[0]
    assert np.abs(hwc - chw).max() < 1e-6


@pytest.mark.parametrize(
    "wrong", [np.zeros((SIZE, SIZE), np.uint8), np.zeros((16, 16, 3), np.uint8), np.zeros((SIZE, SIZE, 3), np.float32)], ids=str
)
def test_a_picture_that_does_not_fit_is_refused(wrong: np.ndarray[Any, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="left"):
        model().prepare(body(wrong, pictures(0)), 0)


def test_a_missing_picture_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="right"):
        model().prepare(ActBody(observation={"joints": Array.of(np.zeros(2, np.float32)), "left": Array.of(pictures(0))}), 0)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"pictures": ("left",)}, "1 arrays for a network with 2 eyes"),
        ({"pictures": ("left", "rear")}, "'rear'"),
        ({"pictures": ("left", "joints")}, "'joints' must be uint8"),
    ],
)
def test_a_card_whose_pictures_do_not_fit_is_refused(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    (tmp_path / "card.json").write_bytes(msgspec.json.encode(card(**change)))
    with pytest.raises(EngineError, match=problem):
        load_card(tmp_path)
