"""Diffusers folders of about 0.1 million random parameters: real pipelines with real loading code, callbacks and files. They draw noise."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

WORDS = ("<pad>", "</s>", "<unk>", "a", "red", "blue", "circle", "square", "on", "white", "background", "moving", "left")


def build(name: str, folder: Path) -> Path:
    """Assemble the pipeline called `name` and save it in `folder`."""
    import torch
    from diffusers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        {"wan": _wan, "ltx": _ltx, "flux": _flux, "sd3": _sd3, "sd": _sd, "pixart": _pixart, "dit": _dit}[name]().save_pretrained(folder)
    return folder


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=16)


def t5() -> Any:
    from transformers import T5Config, T5EncoderModel

    return T5EncoderModel(T5Config(vocab_size=len(WORDS), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)).eval()


def clip(projection: bool = False) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    config = CLIPTextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=37,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=77,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=0,
        projection_dim=32,
    )
    return (CLIPTextModelWithProjection if projection else CLIPTextModel)(config).eval()


def kl(**options: Any) -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        in_channels=3,
        out_channels=3,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(8, 16),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=4,
        sample_size=32,
        **options,
    ).eval()


def _wan() -> Any:
    from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel

    vae = AutoencoderKLWan(base_dim=3, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1, temperal_downsample=[False, True, True])
    transformer = WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=16,
        out_channels=16,
        text_dim=32,
        freq_dim=256,
        ffn_dim=32,
        num_layers=2,
        cross_attn_norm=True,
        qk_norm="rms_norm_across_heads",
        rope_max_seq_len=32,
    )
    # The scheduler of the published folders: a multistep one, which remembers more than a step.
    scheduler = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)
    return WanPipeline(tokenizer=tokenizer(), text_encoder=t5(), vae=vae, scheduler=scheduler, transformer=transformer)


def _ltx() -> Any:
    from diffusers import AutoencoderKLLTXVideo, FlowMatchEulerDiscreteScheduler, LTXPipeline, LTXVideoTransformer3DModel

    transformer = LTXVideoTransformer3DModel(
        in_channels=8,
        out_channels=8,
        patch_size=1,
        patch_size_t=1,
        num_attention_heads=4,
        attention_head_dim=8,
        cross_attention_dim=32,
        num_layers=2,
        caption_channels=32,
    )
    vae = AutoencoderKLLTXVideo(
        in_channels=3,
        out_channels=3,
        latent_channels=8,
        block_out_channels=(8, 8, 8, 8),
        decoder_block_out_channels=(8, 8, 8, 8),
        layers_per_block=(1,) * 5,
        decoder_layers_per_block=(1,) * 5,
        spatio_temporal_scaling=(True, True, True, False),
        decoder_spatio_temporal_scaling=(True, True, True, False),
        decoder_inject_noise=(False,) * 5,
        upsample_residual=(False,) * 4,
        upsample_factor=(1,) * 4,
        timestep_conditioning=False,
        patch_size=1,
        patch_size_t=1,
        encoder_causal=True,
        decoder_causal=False,
    )
    return LTXPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(), vae=vae, text_encoder=t5(), tokenizer=tokenizer(), transformer=transformer
    )


def _flux() -> Any:
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel

    transformer = FluxTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=[4, 4, 8],
    )
    return FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=kl(shift_factor=0.06, scaling_factor=1.5, use_quant_conv=False, use_post_quant_conv=False),
        text_encoder=clip(),
        tokenizer=tokenizer(),
        text_encoder_2=t5(),
        tokenizer_2=tokenizer(),
        transformer=transformer,
    )


def _sd3() -> Any:
    """Without its third text encoder, as many people keep it: the folder says so with nulls."""
    from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel, StableDiffusion3Pipeline

    transformer = SD3Transformer2DModel(
        sample_size=32,
        patch_size=1,
        in_channels=4,
        num_layers=1,
        attention_head_dim=8,
        num_attention_heads=4,
        joint_attention_dim=32,
        caption_projection_dim=32,
        pooled_projection_dim=64,
        out_channels=4,
    )
    return StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=kl(shift_factor=0.06, scaling_factor=1.5),
        text_encoder=clip(projection=True),
        tokenizer=tokenizer(),
        text_encoder_2=clip(projection=True),
        tokenizer_2=tokenizer(),
        text_encoder_3=None,
        tokenizer_3=None,
    )


def _sd() -> Any:
    """Stable Diffusion, with a U-Net and epsilon prediction."""
    from diffusers import DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel

    unet = UNet2DConditionModel(
        block_out_channels=(8, 16),
        layers_per_block=1,
        sample_size=16,
        in_channels=4,
        out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
        norm_num_groups=4,
    )
    return StableDiffusionPipeline(
        unet=unet,
        scheduler=DDIMScheduler(clip_sample=False, steps_offset=1),
        vae=kl(),
        text_encoder=clip(),
        tokenizer=tokenizer(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def _pixart() -> Any:
    """It knows only the old `callback`."""
    from diffusers import DDIMScheduler, PixArtSigmaPipeline, PixArtTransformer2DModel

    transformer = PixArtTransformer2DModel(
        sample_size=16,
        num_layers=2,
        patch_size=2,
        attention_head_dim=8,
        num_attention_heads=3,
        caption_channels=32,
        in_channels=4,
        cross_attention_dim=24,
        out_channels=8,
        attention_bias=True,
        activation_fn="gelu-approximate",
        num_embeds_ada_norm=1000,
        norm_type="ada_norm_single",
        norm_elementwise_affine=False,
        norm_eps=1e-6,
    )
    return PixArtSigmaPipeline(
        tokenizer=tokenizer(),
        text_encoder=t5(),
        vae=kl(),
        transformer=transformer,
        scheduler=DDIMScheduler(clip_sample=False, steps_offset=1),
    )


def _dit() -> Any:
    """It takes no callback at all, and no prompt."""
    from diffusers import DDIMScheduler, DiTPipeline, DiTTransformer2DModel

    transformer = DiTTransformer2DModel(
        sample_size=16,
        num_layers=2,
        patch_size=4,
        attention_head_dim=8,
        num_attention_heads=2,
        in_channels=4,
        out_channels=8,
        attention_bias=True,
        activation_fn="gelu-approximate",
        num_embeds_ada_norm=1000,
        norm_type="ada_norm_zero",
        norm_elementwise_affine=False,
    ).eval()
    return DiTPipeline(
        transformer=transformer,
        vae=kl(),
        scheduler=DDIMScheduler(clip_sample=False, steps_offset=1),
        id2label={0: "red circle", 1: "blue square"},
    )


STUBBORN = """
    import time
    from types import SimpleNamespace

    import numpy as np
    from diffusers import DiffusionPipeline


    class StubbornPipeline(DiffusionPipeline):
        def __init__(self):
            super().__init__()

        def __call__(self, prompt, width=16, height=16, num_inference_steps=4, generator=None, output_type="np"):
            for _ in range(num_inference_steps):
                time.sleep(0.1)
            return SimpleNamespace(images=np.full((1, height, width, 3), len(prompt) / 255, np.float32))
"""


def stubborn(folder: Path) -> Path:
    """A pipeline with code of its own in its folder, which calls nobody between its steps: only a kill ends it."""
    folder.mkdir()
    (folder / "pipeline.py").write_text(textwrap.dedent(STUBBORN))
    (folder / "model_index.json").write_text(json.dumps({"_class_name": ["pipeline", "StubbornPipeline"], "_diffusers_version": "0.42.1"}))
    return folder
