"""Policies that lerobot and openpi made, served by a real server to robots that know nothing of it."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from antiphon.tests.engines.action.lerobot_venv import lerobot_python
from antiphon.tests.gateway.robots.conftest import robot_at, serving_robots

OPENPI = Path(__file__).parents[2] / "data" / "openpi"


@pytest.mark.timeout(600)  # the environment is made the first time
async def test_robots_are_served_what_lerobot_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine runs in an interpreter that has lerobot."""
    monkeypatch.chdir(tmp_path)
    python = await asyncio.to_thread(lerobot_python)
    script = Path(__file__).parents[2] / "engines" / "action" / "lerobot_made.py"
    await asyncio.to_thread(
        subprocess.run, [str(python), str(script), str(tmp_path), "diffusion"], check=True, capture_output=True, timeout=300
    )
    told = np.load(tmp_path / "diffusion.npz")
    engine = {"kind": "lerobot-policy", "python": str(python), "options": {"model": str(tmp_path / "diffusion"), "rate": 10}}

    def observation(number: int, seed: int) -> dict[str, Any]:
        keys = [key for key in told if key.startswith(f"{number}/observation")]
        return {"seed": seed, **{key.split("/", 1)[1]: told[key] for key in keys}}

    async with (
        serving_robots({"policies": ("arm",)}, engines={"arm": engine}) as server,
        robot_at(server) as first,
        robot_at(server) as second,
    ):
        assert first.metadata["policy"] == "diffusion"
        assert (first.metadata["action_horizon"], first.metadata["action_dim"], first.metadata["control_hz"]) == (6, 4, 10)
        assert first.metadata["image_keys"] == ["observation.images.front", "observation.images.wrist"]
        assert first.metadata["observation"]["observation.images.front"]["shape"] == [2, 32, 32, 3]
        await first.send(observation(0, 1))
        await second.send(observation(1, 2))
        np.testing.assert_allclose((await first.receive())["actions"], told["0/chunk/1"], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose((await second.receive())["actions"], told["1/chunk/2"], rtol=1e-3, atol=1e-3)
        await first.send({**observation(0, 1), "sequence": 1, "observation.state": np.zeros(6, np.float32)})
        refused = await first.receive()
        assert refused["status"] == "refused"
        assert "[2, 6]" in refused["message"]
        await second.send(observation(2, 1))
        np.testing.assert_allclose((await second.receive())["actions"], told["2/chunk/1"], rtol=1e-3, atol=1e-3)


async def test_robots_are_served_what_openpi_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As openpi's own example of LIBERO asks for it."""
    monkeypatch.chdir(tmp_path)
    told = np.load(OPENPI / "pi05" / "openpi.npz")
    options = {"model": str(OPENPI / "pi05"), "tokenizer": str(OPENPI / "tokenizer.model"), "rate": 10, "preset": "libero"}
    keys = ("observation/state", "observation/image", "observation/wrist_image")
    async with (
        serving_robots({"policies": ("arm",)}, engines={"arm": {"kind": "openpi-policy", "process": False, "options": options}}) as server,
        robot_at(server) as robot,
    ):
        assert robot.metadata["policy_type"] == "pi05"
        assert robot.metadata["needs_prompt"]
        for number in range(3):
            await robot.send(
                {**{key: told[f"{number}/{key}"] for key in keys}, "prompt": str(told[f"{number}/prompt"]), "seed": 2, "steps": 4}
            )
            np.testing.assert_allclose((await robot.receive())["actions"], told[f"{number}/plain/2/4"], rtol=1e-3, atol=1e-3)
