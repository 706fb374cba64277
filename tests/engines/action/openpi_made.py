"""How the test data of `test_openpi.py` was made: tiny random pi0 and pi0.5, written and run by openpi's own code.

    python openpi_made.py tests/data/openpi

Needs openpi's sources (github.com/Physical-Intelligence/openpi, commit 15a9616) with jax, and transformers 4.53.2 with openpi's
replacements copied over it. None of that is on PyPI, so the tests only read what this left.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import openpi.models.gemma
import openpi.models.tokenizer
import openpi.models_pytorch.gemma_pytorch as parts
import openpi.shared.normalize
import openpi.transforms as transforms
import safetensors.torch
import sentencepiece
import torch
from openpi.models.model import ModelType, Observation
from openpi.models.pi0_config import Pi0Config
from openpi.models_pytorch.pi0_pytorch import PI0Pytorch
from openpi.policies.libero_policy import LiberoInputs, LiberoOutputs

PROMPTS = (
    "put the red cube on the white pad",
    "pick up_the blue bowl\n",
    "lift the green cube",
    "open the drawer and close the door",
    "Task: put, State: 0 1 2 3 4 5 6 7 8 9 10 127 128 200 255;\nAction: ",
)
HORIZON, A, SIDE, STATE = 6, 9, 8, 8
DELTA = transforms.make_bool_mask(6, -1)
READER = {"width": 32, "depth": 2, "mlp_dim": 48, "num_heads": 4, "num_kv_heads": 1, "head_dim": 8}
ACTOR = {**READER, "width": 16, "mlp_dim": 24}
EYES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "intermediate_size": 40,
    "patch_size": 4,
    "image_size": SIDE,
    "projection_dim": 32,
}


def make_tokenizer(file: Path) -> Any:
    """A small vocabulary with PaliGemma's special tokens."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([prompt.replace("\n", " ") for prompt in PROMPTS] * 3),
        model_prefix=str(file.with_suffix("")),
        vocab_size=72,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        user_defined_symbols=["\n"],
    )
    file.with_suffix(".vocab").unlink()
    return sentencepiece.SentencePieceProcessor(model_file=str(file))


def shrink(vocabulary: int) -> None:
    """Have openpi build its networks small."""
    openpi.models.gemma.get_config = lambda variant: openpi.models.gemma.Config(**(READER if variant == "gemma_2b" else ACTOR))
    whole, expert = parts.PaliGemmaForConditionalGeneration, parts.GemmaForCausalLM

    def small_whole(config: Any) -> Any:
        config.text_config.vocab_size = config._vocab_size = vocabulary
        config.image_token_index = vocabulary - 1
        config.projection_dim = config.hidden_size = READER["width"]
        for name, value in EYES.items():
            setattr(config.vision_config, name, value)
        return whole(config)

    def small_expert(config: Any) -> Any:
        config.vocab_size = vocabulary
        return expert(config)

    parts.PaliGemmaForConditionalGeneration, parts.GemmaForCausalLM = small_whole, small_expert


def make_network(pi05: bool) -> tuple[Pi0Config, PI0Pytorch]:
    torch.manual_seed(3)
    config = Pi0Config(dtype="float32", action_dim=A, action_horizon=HORIZON, pi05=pi05, pytorch_compile_mode=None)
    network = PI0Pytorch(config).eval()
    with torch.no_grad():  # where openpi starts from zero or from nearly nothing, a mistake could not be seen
        for name, parameter in network.named_parameters():
            if parameter.ndim == 1 or "dense" in name:
                parameter.add_((torch.randn(parameter.shape) * 0.3).to(parameter.dtype))
            if "embed_tokens" in name:
                parameter.copy_(torch.randn(parameter.shape) * 0.3)
            if "_proj" in name and parameter.ndim == 2 and "action" not in name and parameter.std() < 0.05:
                parameter.mul_(8)
    return config, network.float()


def make(folder: Path, pi05: bool, words: Any) -> None:
    config, network = make_network(pi05)
    (folder / "assets" / "lab").mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_model(network, str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps({"action_dim": A, "action_horizon": HORIZON, "precision": "float32"}))
    random = np.random.default_rng(4)
    statistics = {
        name: openpi.shared.normalize.NormStats(
            mean=random.normal(size=size),
            std=random.uniform(0.2, 2, size),
            q01=-random.uniform(0.5, 2, size),
            q99=random.uniform(0.5, 3, size),
        )
        for name, size in (("state", STATE), ("actions", 7))
    }
    openpi.shared.normalize.save(folder / "assets" / "lab", statistics)
    tokenizer = openpi.models.tokenizer.PaligemmaTokenizer.__new__(openpi.models.tokenizer.PaligemmaTokenizer)
    tokenizer._max_len, tokenizer._tokenizer = config.max_token_len, words
    into = transforms.compose(
        [
            LiberoInputs(model_type=ModelType.PI05 if pi05 else ModelType.PI0),
            transforms.Normalize(statistics, use_quantiles=pi05),
            transforms.TokenizePrompt(tokenizer, discrete_state_input=pi05),
            transforms.PadStatesAndActions(A),
        ]
    )
    kept: dict[str, Any] = {}
    for number, prompt in enumerate(PROMPTS[:3]):
        observation = {
            "observation/state": random.normal(size=STATE).astype(np.float32),
            "observation/image": random.integers(0, 256, (SIDE, SIDE, 3), np.uint8),
            "observation/wrist_image": random.integers(0, 256, (SIDE, SIDE, 3), np.uint8),
            "prompt": prompt,
        }
        kept |= {f"{number}/{key}": np.asarray(value) for key, value in observation.items()}
        data = into(dict(observation))
        for seed in (1, 2):
            for steps in (10, 4):
                raw = run(network, data, seed, steps)
                done = transforms.Unnormalize(statistics, use_quantiles=pi05)({"state": data["state"], "actions": raw})
                kept[f"{number}/plain/{seed}/{steps}"] = LiberoOutputs()(dict(done))["actions"]
                moved = transforms.AbsoluteActions(DELTA)({"state": done["state"], "actions": done["actions"].copy()})
                kept[f"{number}/delta/{seed}/{steps}"] = LiberoOutputs()(moved)["actions"]
    np.savez_compressed(folder / "openpi.npz", **kept)


def run(network: PI0Pytorch, data: dict[str, Any], seed: int, steps: int) -> np.ndarray[Any, Any]:
    """openpi's actions `[H, A]`, normalised, from the noise of a seed."""

    def tensor(value: Any) -> Any:
        return {key: tensor(each) for key, each in value.items()} if isinstance(value, dict) else torch.from_numpy(np.array(value))[None]

    seen = Observation.from_dict(tensor(data))
    inputs = (
        list(seen.images.values()),
        list(seen.image_masks.values()),
        seen.tokenized_prompt,
        seen.tokenized_prompt_mask,
        seen.state.float(),
    )
    network._preprocess_observation = lambda observation, train=False: inputs  # pictures have their size already
    noise = torch.randn(1, HORIZON, A, generator=torch.Generator().manual_seed(seed))
    actions: np.ndarray[Any, Any] = network.sample_actions("cpu", seen, noise=noise, num_steps=steps)[0].numpy()
    return actions


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    words = make_tokenizer(folder / "tokenizer.model")
    shrink(words.vocab_size())
    for name, pi05 in (("pi0", False), ("pi05", True)):
        make(folder / name, pi05, words)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
