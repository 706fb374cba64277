"""Writing a trained model in the diffusers layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..tinyflow.pipeline import TinyFlowPipeline, make_scheduler
from ..tinyflow.saved import ModelMixin
from ..tinyflow.text import TinyFlowTextEncoder
from ..tinyflow.transformer import TinyFlowTransformer
from ..tinyflow.vae import TinyFlowVAE


def export(folder: Path, tokenizer: Any, text: TinyFlowTextEncoder, transformer: TinyFlowTransformer, vae: TinyFlowVAE) -> None:
    """Save a pipeline: the transformers in bfloat16, the codec (whose matrices are applied alone) in float32."""
    TinyFlowPipeline(tokenizer, _half(text), _half(transformer), vae, make_scheduler()).save_pretrained(folder)
    for file in folder.glob("*/config.json"):  # where the parts were loaded from is nobody's business
        config = {name: value for name, value in json.loads(file.read_text(encoding="utf-8")).items() if name != "_name_or_path"}
        file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _half(network: ModelMixin) -> ModelMixin:
    copy = type(network).from_config(network.config)
    copy.load_state_dict(network.state_dict())
    return copy.bfloat16()
