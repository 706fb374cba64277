"""The diffusers pipeline: the standard layout, callbacks, interruption, and the same picture as step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from antiphon.engines.diffusion.tinyflow import SHIPPED
from antiphon.engines.diffusion.tinyflow.pipeline import TinyFlowPipeline
from antiphon.engines.diffusion.tinyflow.steps import TinyFlowSteps
from antiphon.engines.diffusion.tinyflow.text import build_tokenizer, encode_captions
from antiphon.engines.diffusion.tinyflow.words import VOCABULARY
from antiphon.engines.messages import GenerateBody


@pytest.fixture(scope="module")
def pipe() -> Any:
    pipe = TinyFlowPipeline.from_pretrained(SHIPPED, dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def test_the_pipeline_and_the_steps_make_the_same_picture(pipe: Any) -> None:
    steps = TinyFlowSteps(SHIPPED)
    for frames in (1, 3):
        sample = steps.prepare(GenerateBody(prompt="a large red ring on white", seed=5, frames=frames, guidance=1.5))
        while sample.step < sample.steps:
            steps.advance([sample])
        made = pipe("a large red ring on white", seed=5, num_frames=frames, guidance_scale=1.5, output_type="np")
        assert made.revised_prompts == [sample.revised_prompt]
        assert np.abs(made.frames[0].astype(int) - steps.decode(sample)).max() <= 2


def test_it_is_saved_and_loaded_in_the_standard_layout(pipe: Any, tmp_path: Path) -> None:
    pipe.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "model_index.json", "scheduler", "text_encoder", "tokenizer", "transformer", "vae",
    }  # fmt: skip
    again = TinyFlowPipeline.from_pretrained(tmp_path, dtype=torch.float32)
    again.set_progress_bar_config(disable=True)
    first, second = (each(["a red circle", "a cat"], output_type="np", num_inference_steps=3) for each in (pipe, again))
    assert np.array_equal(first.frames, second.frames)
    assert second.ignored == [(), ("cat",)]


def test_callbacks_see_each_step_and_can_change_it(pipe: Any) -> None:
    steps = []

    def callback(_: Any, step: int, timestep: torch.Tensor, given: dict[str, Any]) -> dict[str, Any]:
        steps.append((step, float(timestep)))
        return {"latents": torch.zeros_like(given["latents"])} if step == 3 else {}

    out = pipe("a red circle", num_inference_steps=4, output_type="latent", callback_on_step_end=callback)
    assert [step for step, _ in steps] == [0, 1, 2, 3]
    assert [t for _, t in steps] == sorted((t for _, t in steps), reverse=True)
    assert not out.frames.any()


def test_an_interrupted_call_takes_no_further_step(pipe: Any) -> None:
    steps = []

    def callback(pipeline: Any, step: int, *_: Any) -> dict[str, Any]:
        steps.append(step)
        pipeline._interrupt = True
        return {}

    pipe("a red circle", callback_on_step_end=callback)
    assert steps == [0]
    assert pipe("a red circle").images[0].size == (256, 256)


def test_the_tokenizer_keeps_the_words_that_carry_something() -> None:
    ids = encode_captions(build_tokenizer(), ["a large red circle at the top on a white background", ""])
    said = [[VOCABULARY[index] for index in row if index] for row in ids.tolist()]
    assert said == [["large", "red", "circle", "top", "white", "background"], ["<null>"]]
