"""What a policy sees: small convolutions that end in keypoints, where in the picture each channel looks (Levine et al. 2016)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Eye(nn.Module):
    """One camera. `[B, 3, s, s]` uint8 RGB -> `[B, 2 K]`: x and y in -1..1 of K keypoints.

    Positions come out finer than a pixel, and nothing but positions comes out: for reaching and grasping that is what counts.
    """

    def __init__(self, keypoints: int) -> None:
        super().__init__()
        self.keypoints = keypoints
        self.near = nn.Conv2d(3, 16, 5, stride=2, padding=2)
        self.mid = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.far = nn.Conv2d(32, keypoints, 3, padding=1)
        self.sharpness = nn.Parameter(torch.ones(keypoints))

    def forward(self, picture: Tensor) -> Tensor:
        hidden = functional.relu(self.near(picture.float() * (1 / 255) - 0.5))
        hidden = functional.relu(self.mid(hidden))
        scores = self.far(hidden)
        height, width = scores.shape[-2:]
        weights = functional.softmax(scores.flatten(2).float() * self.sharpness[:, None], -1).view(-1, self.keypoints, height, width)
        across = (weights.sum(2) * torch.linspace(-1, 1, width, device=scores.device)).sum(-1)
        down = (weights.sum(3) * torch.linspace(-1, 1, height, device=scores.device)).sum(-1)
        return torch.cat((across, down), -1)
