"""What the JSON files of published models tell, without torch and without weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from antiphon.engines.diffusion.pipelines.facts import read_facts
from antiphon.engines.diffusion.pipelines.options import DiffusersOptions
from antiphon.engines.diffusion.pipelines.source import locate
from antiphon.engines.errors import EngineError
from antiphon.engines.interface import MediaCapabilities

WAN_VAE: dict[str, Any] = {
    "_class_name": "AutoencoderKLWan",
    "z_dim": 16,
    "dim_mult": [1, 2, 4, 4],
    "temperal_downsample": [False, True, True],
}
KL: dict[str, Any] = {"_class_name": "AutoencoderKL", "block_out_channels": [128, 256, 512, 512]}
PUBLISHED: dict[str, tuple[str, dict[str, Any], dict[str, Any], int, int]] = {
    # name: (pipeline, codec, denoiser, multiple of sizes, frame step), with the keys of the published configurations
    "Wan 2.1": ("WanPipeline", WAN_VAE, {"patch_size": [1, 2, 2], "in_channels": 16}, 16, 4),
    "Wan 2.2 5B": (
        "WanPipeline",
        WAN_VAE | {"z_dim": 48, "scale_factor_spatial": 16, "scale_factor_temporal": 4, "patch_size": 2},
        {"patch_size": [1, 2, 2], "in_channels": 48},
        32,
        4,
    ),
    "LTX-Video": (
        "LTXPipeline",
        {"_class_name": "AutoencoderKLLTXVideo", "spatio_temporal_scaling": [True, True, True, False], "patch_size": 4, "patch_size_t": 1},
        {"patch_size": 1, "patch_size_t": 1, "in_channels": 128},
        32,
        8,
    ),
    "CogVideoX": (
        "CogVideoXPipeline",
        {"_class_name": "AutoencoderKLCogVideoX", "block_out_channels": [128, 256, 256, 512], "temporal_compression_ratio": 4},
        {"patch_size": 2, "in_channels": 16},
        16,
        4,
    ),
    "HunyuanVideo": (
        "HunyuanVideoPipeline",
        {
            "_class_name": "AutoencoderKLHunyuanVideo",
            "spatial_compression_ratio": 8,
            "temporal_compression_ratio": 4,
            "latent_channels": 16,
        },
        {"patch_size": 2, "patch_size_t": 1, "in_channels": 16},
        16,
        4,
    ),
    "Mochi": (
        "MochiPipeline",
        {"_class_name": "AutoencoderKLMochi", "temporal_expansions": [1, 2, 3], "spatial_expansions": [2, 2, 2], "latent_channels": 12},
        {"patch_size": 2, "in_channels": 12},
        16,
        6,
    ),
    "FLUX.1": ("FluxPipeline", KL | {"latent_channels": 16}, {"patch_size": 1, "in_channels": 64}, 16, 1),
    "Qwen-Image": (
        "QwenImagePipeline",
        WAN_VAE | {"_class_name": "AutoencoderKLQwenImage"},
        {"patch_size": 2, "in_channels": 64},
        16,
        1,
    ),
    "SD3": ("StableDiffusion3Pipeline", KL | {"latent_channels": 16}, {"patch_size": 2, "in_channels": 16}, 16, 1),
    "SDXL": ("StableDiffusionXLPipeline", KL | {"latent_channels": 4}, {"in_channels": 4, "sample_size": 128}, 8, 1),
    "Sana": (
        "SanaPipeline",
        {"_class_name": "AutoencoderDC", "latent_channels": 32, "encoder_block_out_channels": [128, 256, 512, 512, 1024, 1024]},
        {"patch_size": 1, "in_channels": 32},
        32,
        1,
    ),
}


def write(folder: Path, pipeline: str, vae: dict[str, Any], denoiser: dict[str, Any]) -> Path:
    part = "transformer" if "patch_size" in denoiser else "unet"
    index = {"_class_name": pipeline, "vae": ["diffusers", "Vae"], part: ["diffusers", "Denoiser"], "image_encoder": [None, None]}
    for path, content in (("model_index.json", index), ("vae/config.json", vae), (f"{part}/config.json", denoiser)):
        (folder / path).parent.mkdir(exist_ok=True, parents=True)
        (folder / path).write_text(json.dumps(content))
    return folder


def media(folder: Path, **options: Any) -> MediaCapabilities:
    chosen = DiffusersOptions(model=str(folder), **options)
    return read_facts(locate(chosen), chosen).media


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_and_frames_of_published_models(tmp_path: Path, name: str) -> None:
    pipeline, vae, denoiser, multiple, step = PUBLISHED[name]
    found = media(write(tmp_path, pipeline, vae, denoiser))
    assert (found.multiple, found.frame_step) == (multiple, step)
    assert (found.max_frames > 1) == (step > 1)
    assert (found.default_frames - 1) % step == (found.max_frames - 1) % step == 0
    assert found.pictures


def test_what_was_left_out_on_purpose_is_known(tmp_path: Path) -> None:
    options = DiffusersOptions(model=str(write(tmp_path, *PUBLISHED["FLUX.1"][:3])))
    facts = read_facts(locate(options), options)
    assert facts.missing == ("image_encoder",)
    assert facts.parts == ("vae", "transformer")


def test_the_options_have_the_last_word(tmp_path: Path) -> None:
    folder = write(tmp_path, *PUBLISHED["Wan 2.1"][:3])
    found = media(
        folder,
        sizes=((480, 832), (832, 480)),
        default_frames=33,
        max_frames=81,
        fps=12.0,
        steps=30,
        max_steps=60,
        pictures=False,
        edits=True,
    )
    assert found == MediaCapabilities(
        sizes=((480, 832), (832, 480)),
        multiple=16,
        max_side=832,
        pictures=False,
        max_frames=81,
        frame_step=4,
        fps=12.0,
        default_frames=33,
        default_steps=30,
        max_steps=60,
        edits=True,
        previews=True,
    )


def test_a_wrong_number_of_frames_in_the_options_is_an_error(tmp_path: Path) -> None:
    folder = write(tmp_path, *PUBLISHED["Wan 2.1"][:3])
    with pytest.raises(EngineError, match="default_frames: clips of WanPipeline have a multiple of 4 plus one frames, not 32"):
        media(folder, default_frames=32)


@pytest.mark.parametrize(
    ("pipeline", "clips", "edits"),
    [("NobodysVideoPipeline", True, False), ("NobodysPipeline", False, False), ("NobodysImg2ImgPipeline", False, True)],
)
def test_unknown_families_are_judged_by_their_names(tmp_path: Path, pipeline: str, clips: bool, edits: bool) -> None:
    found = media(write(tmp_path, pipeline, {"_class_name": "NobodysVae"}, {"patch_size": 1}))
    assert (found.max_frames > 1, found.edits, found.previews) == (clips, edits, False)


def test_nothing_of_this_needs_torch(tmp_path: Path) -> None:
    """The gateway builds the engine to learn what it can do; that must work, and stay quick, where torch is not installed."""
    write(tmp_path, *PUBLISHED["FLUX.1"][:3])
    program = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('torch', 'diffusers', 'transformers', 'PIL')))\n"
        "from antiphon.engines.launchers import launch\n"
        f"print(launch('diffusers', 'x', {{'model': {str(tmp_path)!r}}}, 'subprocess').capabilities.media.multiple)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert answer.stdout.strip() == "16", answer.stderr
