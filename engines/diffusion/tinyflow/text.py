"""The caption's side: a word-level tokenizer in the `transformers` format and a two-layer encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .layers import TextBlock
from .saved import ModelMixin, register_to_config
from .words import FILLERS, MAX_TOKENS, VOCABULARY

PAD, NULL = VOCABULARY.index("<pad>"), VOCABULARY.index("<null>")


def build_tokenizer() -> Any:
    """A `PreTrainedTokenizerFast` over the vocabulary; words that carry nothing are dropped by its normaliser."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(VOCABULARY)}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Lowercase(),
            normalizers.Replace(Regex("[^a-z]+"), " "),
            normalizers.Replace(Regex(rf"\b(?:{'|'.join(FILLERS)})\b"), " "),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", model_max_length=MAX_TOKENS)


def encode_captions(tokenizer: Any, captions: Sequence[str]) -> Tensor:
    """Canonical captions -> ids `[n, MAX_TOKENS]`; an empty caption is the null caption of classifier-free guidance."""
    ids = torch.full((len(captions), MAX_TOKENS), PAD)
    for row, caption in enumerate(captions):
        found = tokenizer(caption, add_special_tokens=False)["input_ids"][:MAX_TOKENS] or [NULL]
        ids[row, : len(found)] = torch.tensor(found)
    return ids


class TinyFlowTextEncoder(ModelMixin):
    """Ids -> a vector a token, in which each word knows the thing it belongs to (it is trained to parse, then frozen)."""

    @register_to_config
    def __init__(
        self, vocabulary: int = len(VOCABULARY), length: int = MAX_TOKENS, dim: int = 192, heads: int = 6, layers: int = 2
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, dim)
        self.positions = nn.Parameter(torch.randn(length, dim) * 0.02)
        self.blocks = nn.ModuleList(TextBlock(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """`[n, length]` -> `[n, length, dim]` and the mask of real words `[n, length]`."""
        mask = ids != PAD
        x = self.words(ids) + self.positions[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, mask[:, None, None])
        return self.norm(x), mask
