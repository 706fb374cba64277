"""A policy as one writes it when one robot is all there is: an observation in, a chunk out, computed where it is called.

`python -m antiphon.engines.action.serial FOLDER --port PORT` serves it with openpi's own server (the packages `openpi-server` and
`openpi-client`, which must be importable), so that ours can be measured beside it on the same weights.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as load_safetensors

from .card import checked_weights, load_card
from .network import FlowNetwork
from .prompts import embed_prompt


class SerialPolicy:
    """What openpi calls a policy (`openpi_client.base_policy.BasePolicy`), integrated as openpi does it: the observation is encoded once,
    then come the steps. For policies without eyes. Used on one thread only."""

    def __init__(self, folder: Path, threads: int = 1) -> None:
        torch.set_num_threads(threads)
        self.card = card = load_card(folder)
        self._network = FlowNetwork.of(card)
        self._network.load_state_dict(load_safetensors(checked_weights(folder, card)))
        self._network.float().eval().requires_grad_(False)
        self._state_mean, self._state_std = np.asarray(card.state_mean, np.float32), np.asarray(card.state_std, np.float32)
        self._action_mean, self._action_std = np.asarray(card.action_mean, np.float32), np.asarray(card.action_std, np.float32)

    @torch.inference_mode()
    def infer(self, obs: Mapping[str, Any]) -> dict[str, Any]:
        """`actions` `[H, A]` for an observation with the card's keys and a `prompt`. Raises `KeyError`."""
        began = time.monotonic()
        card, network = self.card, self._network
        state = np.concatenate([np.asarray(obs[key], np.float32).reshape(-1) for key in card.state])
        state = np.clip((state - self._state_mean) / self._state_std, -card.state_clip, card.state_clip)
        prompt = embed_prompt(str(obs.get("prompt", "")), card.network.prompt_buckets, card.network.prompt_encoding)
        condition = network.condition(torch.from_numpy(state)[None], torch.from_numpy(prompt)[None])
        chunk = torch.randn(1, card.horizon, card.action_dim)
        mask = torch.zeros(1, card.horizon)
        for step in range(card.steps):
            tau = torch.full((1,), step / card.steps)
            chunk = chunk + network.velocity(chunk, network.time(tau), condition, mask) / card.steps
        actions = chunk[0].numpy() * self._action_std + self._action_mean
        if card.action_low and card.action_high:
            actions = np.clip(actions, np.asarray(card.action_low, np.float32), np.asarray(card.action_high, np.float32))
        return {"actions": actions, "policy_timing": {"infer_ms": (time.monotonic() - began) * 1000}}

    def reset(self) -> None:
        """Nothing is kept from one observation to the next."""


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the policy's folder")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    policy = SerialPolicy(arguments.folder, arguments.threads)
    server = importlib.import_module("openpi_server").WebsocketPolicyServer(
        policy, "127.0.0.1", arguments.port, {"policy": policy.card.policy}
    )
    server.serve_forever()


if __name__ == "__main__":
    main()
