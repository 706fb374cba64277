"""TinyFlow: a small text-to-picture and text-to-clip model that ships with its weights.

`words`, `scene` and `prompt` are the world and how a user's sentence becomes a complete caption (no torch); `text`, `transformer` and
`vae` are the networks, `pipeline` puts them together for diffusers, `steps` for the step scheduler.
"""

from pathlib import Path

SHIPPED = Path(__file__).parent.parent / "weights" / "tinyflow"
"""The weights that come with the package."""
