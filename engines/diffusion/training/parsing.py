"""The first stage: the text encoder learns to parse canonical captions, and is then frozen.

Each word must name the thing it belongs to (size, colour, shape, cells), the background and the motion. So who is red and who stands above
is settled before the diffusion starts, as it is for large models that build on a ready language model.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..tinyflow.scene import Scene
from ..tinyflow.text import TinyFlowTextEncoder, encode_captions
from ..tinyflow.words import COLOURS, MAX_TOKENS, MOTIONS, PLACES, RELATIONS, SHAPES, SIZES
from .world import draw_training

_FIELDS = {"size": 4, "colour": len(COLOURS), "shape": len(SHAPES), "background": len(COLOURS), "motion": len(MOTIONS) + 1}
_OPEN = -100


class ParsingHead(nn.Module):
    """What a word's vector must tell; needed in training only."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.read = nn.Linear(dim, sum(_FIELDS.values()) + len(PLACES))

    def loss(self, words: Tensor, labels: Tensor, cells: Tensor) -> Tensor:
        """`words` `[n, length, dim]`, `labels` `[n, length, fields]` (`_OPEN` where nothing is asked), `cells` `[n, length, 9]`."""
        *fields, places = self.read(words).split([*_FIELDS.values(), len(PLACES)], -1)
        total = sum(F.cross_entropy(field.flatten(0, 1), labels[..., i].flatten(), ignore_index=_OPEN) for i, field in enumerate(fields))
        asked = labels[..., 0] != _OPEN
        return total + 4 * F.binary_cross_entropy_with_logits(places[asked], cells[asked])


def label(scenes: Sequence[Scene], ids: Tensor, words: Sequence[str]) -> tuple[Tensor, Tensor]:
    """The labels and cells of each word, as `ParsingHead.loss` takes them; `words` names the ids."""
    labels = torch.full((len(scenes), MAX_TOKENS, len(_FIELDS)), _OPEN)
    cells = torch.zeros(len(scenes), MAX_TOKENS, len(PLACES))
    splits = {relation.split()[0] for relation in RELATIONS} | {"and"}
    for row, scene in enumerate(scenes):
        said = [words[token] for token in ids[row].tolist() if token]
        end = len(said) - 2  # the last two are the background's
        shapes = [index for index, word in enumerate(said) if word.rstrip("s") in SHAPES or word in ("cross", "crosses")]
        cut = next((i for i in range(shapes[0], end) if said[i] in splits and len(shapes) == 2 and _splits(said, i)), end)
        labels[row, : len(said), 3] = COLOURS.index(scene.background)
        labels[row, : len(said), 4] = MOTIONS.index(scene.motion) + 1 if scene.motion else 0
        for thing, places, (start, stop) in zip(scene.things, scene.cells(), ((0, cut), (cut, end)), strict=False):
            size = SIZES.index(thing.size) + 1 if thing.size else 0
            labels[row, start:stop, :3] = torch.tensor([size, COLOURS.index(thing.colour), SHAPES.index(thing.shape)])
            cells[row, start:stop, [PLACES.index(place) for place in places]] = 1
    return labels, cells


def _splits(said: Sequence[str], index: int) -> bool:
    """Whether this word stands between two things ("left" does only before "of")."""
    return said[index] not in ("left", "right") or said[index + 1] == "of"


def train_text(tokenizer: Any, steps: int, seed: int, log: Any, batch: int = 128) -> TinyFlowTextEncoder:
    """The trained encoder, in evaluation mode."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    encoder = TinyFlowTextEncoder()
    head = ParsingHead(encoder.config.dim)
    words = {index: word for word, index in tokenizer.get_vocab().items()}
    names = [words[index] for index in range(len(words))]
    optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=2e-3, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min(1, (step + 1) / 30) * (1 - step / steps)
        scenes = [draw_training(rng) for _ in range(batch)]
        ids = encode_captions(tokenizer, [scene.caption() for scene in scenes])
        loss = head.loss(encoder(ids)[0], *label(scenes, ids, names))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        if step % 50 == 0 or step == steps - 1:
            log(stage="text", step=step, loss=round(float(loss.detach()), 4))
    return encoder.eval().requires_grad_(False)
