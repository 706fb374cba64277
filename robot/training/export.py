"""A trained network as a policy's folder: weights in fp16 and the card."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec
import numpy as np
from safetensors.torch import save as save_safetensors

from ...engines.action.card import CARD_NAME, Card, Entry
from ...engines.action.network import FlowNetwork
from .recipes import Recipe
from .scaling import Scaling

DIGITS = 7


def make_card(recipe: Recipe, scaling: Scaling, rate: float, sha256: str = "", steps: int = 0) -> Card:
    """The card of a recipe's policy."""
    dim = len(scaling.action_mean)
    size = recipe.picture_size
    pictures = tuple(Entry(key=key, dtype="uint8", shape=(size, size, 3), layout="HWC") for key in recipe.cameras)
    return Card(
        format="antiphon-flow-policy/1",
        policy=recipe.name,
        horizon=recipe.horizon,
        action_dim=dim,
        rate=round(rate, 3),
        observation=(Entry(key=recipe.state_key, shape=(len(scaling.state_mean),), low=-10.0, high=10.0), *pictures),
        state=(recipe.state_key,),
        pictures=tuple(recipe.cameras),
        state_mean=_rounded(scaling.state_mean),
        state_std=_rounded(scaling.state_std),
        action_mean=_rounded(scaling.action_mean),
        action_std=_rounded(scaling.action_std),
        action_low=(-1.0,) * dim,
        action_high=(1.0,) * dim,
        prompt=True,
        max_prefix=recipe.max_prefix,
        network=recipe.network,
        sha256=sha256,
        extras={"execute": recipe.execute, "training_steps": steps},
    )


def export(folder: Path, recipe: Recipe, scaling: Scaling, rate: float, network: FlowNetwork, steps: int) -> None:
    """Write `weights.safetensors` (fp16) and `card.json`, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    data = save_safetensors({name: value.half().contiguous() for name, value in network.state_dict().items()})
    card = make_card(recipe, scaling, rate, hashlib.sha256(data).hexdigest(), steps)
    _write(folder / card.weights, data)
    _write(folder / CARD_NAME, msgspec.json.format(msgspec.json.encode(card), indent=1) + b"\n")


def _rounded(values: np.ndarray) -> tuple[float, ...]:
    return tuple(round(float(value), DIGITS) for value in values)


def _write(file: Path, data: bytes) -> None:
    unfinished = file.with_suffix(".part")
    unfinished.write_bytes(data)
    os.replace(unfinished, file)
