"""Run by the interpreter that has lerobot: `python lerobot_made.py FOLDER NAME...` makes small checkpoints, and what lerobot itself does
with them.

FOLDER/NAME: a checkpoint with random weights and the statistics of a data set. FOLDER/NAME.npz: observations (as on the
wire) and, for each seed, the chunk that lerobot's own `predict_action_chunk` makes of them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
from lerobot.policies.vqbet.configuration_vqbet import VQBeTConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, SmolVLMConfig, SmolVLMImageProcessor, SmolVLMProcessor, SmolVLMVideoProcessor

CAMERAS = ("observation.images.front", "observation.images.wrist")
STATE, SIDE, A = 6, 32, 4
MOMENTS = 2
PROMPTS = ("put the red cube on the white pad", "lift it", "open the drawer")


def features(cameras: tuple[str, ...]) -> dict[str, Any]:
    inputs = {"observation.state": PolicyFeature(FeatureType.STATE, (STATE,))}
    inputs |= {key: PolicyFeature(FeatureType.VISUAL, (3, SIDE, SIDE)) for key in cameras}
    return {
        "input_features": inputs,
        "output_features": {"action": PolicyFeature(FeatureType.ACTION, (A,))},
        "device": "cpu",
        "push_to_hub": False,
    }


def statistics(frames: list[dict[str, Any]], actions: torch.Tensor) -> dict[str, dict[str, torch.Tensor]]:
    """As lerobot computes them for a data set: over frames, pictures by channel."""
    columns = {key: torch.stack([frame[key] for frame in frames]) for key in frames[0]} | {"action": actions}
    found = {}
    for key, values in columns.items():
        over = (0, 2, 3) if values.ndim == 4 else (0,)
        keep = values.ndim == 4
        found[key] = {
            "mean": values.mean(over, keepdim=keep),
            "std": values.std(over, keepdim=keep),
            "min": values.amin(over, keepdim=keep),
            "max": values.amax(over, keepdim=keep),
        }
        if keep:
            found[key] = {name: value[0] for name, value in found[key].items()}
    return found


def wire_observation(cameras: tuple[str, ...], random: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Two moments of it: `[2, ...]`."""
    observation = {"observation.state": (random.normal(size=(MOMENTS, STATE)) * np.arange(1, STATE + 1)).astype(np.float32)}
    return observation | {key: random.integers(0, 256, (MOMENTS, SIDE, SIDE, 3), np.uint8) for key in cameras}


def frame_of(observation: dict[str, np.ndarray[Any, Any]], moment: int) -> dict[str, torch.Tensor]:
    """A moment as lerobot's data sets and robots give it: floats from 0 to 1, channels first."""
    return {
        key: torch.from_numpy(value[moment]).permute(2, 0, 1).float() / 255 if value.dtype == np.uint8 else torch.from_numpy(value[moment])
        for key, value in observation.items()
    }


def chunk_of(policy: Any, pre: Any, post: Any, frames: list[dict[str, torch.Tensor]], task: str, seed: int) -> np.ndarray[Any, Any]:
    """What lerobot makes of the frames, with its history filled as `select_action` fills it."""
    policy.reset()
    for frame in frames:
        batch = pre({**frame, "task": task})
        policy.select_action(dict(batch))
    if "observation.images" in getattr(policy, "_queues", {}):
        batch["observation.images"] = torch.stack([batch[key] for key in policy.config.image_features], dim=-4)
    torch.manual_seed(seed)
    chunk = policy.predict_action_chunk(batch)
    return np.stack([post(chunk[:, index])[0].numpy() for index in range(chunk.shape[1])])


def as_trained_elsewhere(folder: Path) -> None:
    """What the files of most checkpoints say: they come from a machine with a GPU, and from a backbone that was downloaded."""
    for file in folder.glob("*.json"):
        text = file.read_text().replace('"device": "cpu"', '"device": "cuda"')
        file.write_text(
            text.replace('"pretrained_backbone_weights": null', '"pretrained_backbone_weights": "ResNet18_Weights.IMAGENET1K_V1"')
        )


def make(folder: Path, name: str, config: Any, cameras: tuple[str, ...], moments: int) -> None:
    """`moments` that are shown; a policy that sees more takes the first for those before it."""
    random = np.random.default_rng(5)
    observations = [wire_observation(cameras, random) for _ in range(3)]
    frames = [frame_of(observation, moment) for observation in observations for moment in range(MOMENTS)]
    stats = statistics(frames, torch.randn(50, A) * torch.tensor([1.0, 5.0, 0.1, 20.0]) + torch.arange(A))
    torch.manual_seed(0)
    policy = get_policy_class(name)(config)
    pre, post = make_pre_post_processors(config, dataset_stats=stats)
    for part in (policy, pre, post):
        part.save_pretrained(folder / name)
    as_trained_elsewhere(folder / name)
    policy.eval()
    kept = {}
    for number, observation in enumerate(observations):
        sent = observation if moments > 1 else {key: value[-1] for key, value in observation.items()}
        kept |= {f"{number}/{key}": value for key, value in sent.items()}
        frames = [frame_of(observation, moment) for moment in range(MOMENTS)][-moments:]
        kept |= {f"{number}/chunk/{seed}": chunk_of(policy, pre, post, frames, PROMPTS[number], seed) for seed in (1, 2)}
    np.savez(folder / f"{name}.npz", **kept)


def act(folder: Path) -> ACTConfig:
    return ACTConfig(
        **features(CAMERAS),
        chunk_size=10,
        n_action_steps=5,
        dim_model=32,
        n_heads=2,
        dim_feedforward=32,
        n_encoder_layers=1,
        n_vae_encoder_layers=1,
        latent_dim=4,
        pretrained_backbone_weights=None,
    )


def diffusion(folder: Path) -> DiffusionConfig:
    return DiffusionConfig(
        **features(CAMERAS),
        n_obs_steps=MOMENTS,
        horizon=8,
        n_action_steps=6,
        down_dims=(16, 32),
        n_groups=4,
        crop_shape=(28, 28),
        diffusion_step_embed_dim=16,
        spatial_softmax_num_keypoints=4,
        num_train_timesteps=12,
    )


def vqbet(folder: Path) -> VQBeTConfig:
    return VQBeTConfig(
        **features(CAMERAS[:1]),
        n_obs_steps=MOMENTS,
        n_action_pred_token=2,
        action_chunk_size=4,
        crop_shape=(28, 28),
        spatial_softmax_num_keypoints=4,
        vqvae_n_embed=4,
        vqvae_embedding_dim=16,
        vqvae_enc_hidden_dim=16,
        gpt_block_size=32,
        gpt_input_dim=32,
        gpt_output_dim=32,
        gpt_n_layer=1,
        gpt_n_head=2,
        gpt_hidden_dim=32,
        pretrained_backbone_weights=None,
    )


def smolvla(folder: Path) -> SmolVLAConfig:
    make_language_model(folder / "vlm")
    return SmolVLAConfig(
        **features(CAMERAS),
        chunk_size=5,
        n_action_steps=5,
        max_state_dim=8,
        max_action_dim=6,
        resize_imgs_with_padding=(SIDE, SIDE),
        vlm_model_name=str(folder / "vlm"),
        num_vlm_layers=2,
        num_steps=6,
    )


def make_language_model(folder: Path) -> None:
    """What SmolVLA otherwise has from the hub: the shape of a vision-language model, and its tokenizer."""
    special = ("<pad>", "<s>", "</s>", "<unk>", "<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
    words = (*special, *(word for prompt in PROMPTS for word in prompt.split()), "\n")
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(dict.fromkeys(words))}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    names = ("image_token", "fake_image_token", "global_image_token", "end_of_utterance_token")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        extra_special_tokens=dict(zip(names, special[4:], strict=True)),
    )
    layer = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
    text = {
        "model_type": "llama",
        **layer,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 64,
        "pad_token_id": 0,
    }
    vision = {**layer, "num_hidden_layers": 1, "image_size": SIDE, "patch_size": 8}
    SmolVLMConfig(text_config=text, vision_config=vision, scale_factor=2, image_token_id=4, pad_token_id=0).save_pretrained(folder)
    processor = SmolVLMProcessor(image_processor=SmolVLMImageProcessor(), tokenizer=fast, video_processor=SmolVLMVideoProcessor())
    processor.save_pretrained(folder)


KINDS = {"act": act, "diffusion": diffusion, "vqbet": vqbet, "smolvla": smolvla}


def main(folder: Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    for name in names:
        config = KINDS[name](folder)
        make(folder, name, config, tuple(config.image_features), MOMENTS if name == "diffusion" else 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
