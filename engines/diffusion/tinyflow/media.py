"""What TinyFlow can make; known without loading it."""

from __future__ import annotations

from ...interface import MediaCapabilities

MEDIA = MediaCapabilities(
    sizes=((256, 256), (128, 128), (512, 512), (1024, 1024)),  # 256 is the network's own; the others are scaled from it
    max_frames=64,
    fps=8.0,
    default_frames=16,
    default_steps=8,
    max_steps=100,
    edits=True,
    previews=True,
)
