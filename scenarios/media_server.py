"""A server that makes pictures and clips, as the scenarios start it; and what its metrics say of that."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

ENGINE = "tinyflow"
"""The engine of the default configuration, and the name of its model."""
COUNTERS = {
    "steps": "antiphon_diffusion_steps_total",
    "rows": "antiphon_diffusion_rows_total",
    "step_seconds": "antiphon_diffusion_step_seconds_total",
    "preemptions": "antiphon_diffusion_preemptions_total",
    "held_seconds": "antiphon_diffusion_held_seconds_total",
    "capped_steps": "antiphon_diffusion_capped_steps_total",
}
"""Figures of `engine_figures` and the metrics that they are the sums of."""

CONFIGURATION = """\
[server]
pipelines = [{pipelines}]
media = ["{engine}"]
log_level = "warning"

[engines.{engine}.options]
gate = {gate}

[robots]
policies = [{policies}]

[jobs]
folder = "{folder}"
max_active = 1000
per_minute = 100000
"""
"""One key submits everything here, so its limits are out of the way."""


def write_configuration(path: Path, folder: Path, *, pipelines: Sequence[str], policies: Sequence[str] = (), gate: bool = True) -> Path:
    """The configuration file of a server with these pipelines and robots' policies and the default media engine; its jobs live in `folder`.
    Gives `path`."""
    names, robots = (", ".join(f'"{name}"' for name in those) for those in (pipelines, policies))
    place = folder.resolve().as_posix().replace('"', '\\"')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CONFIGURATION.format(pipelines=names, policies=robots, engine=ENGINE, gate=str(gate).lower(), folder=place))
    return path


def engine_figures(metrics: str) -> dict[str, float]:
    """The counters of the diffusion engines in the text of `/metrics`, summed over replicas; those that it lacks are left out."""
    found: dict[str, float] = {}
    for figure, name in COUNTERS.items():
        values = re.findall(rf"^{name}(?:\{{[^}}]*\}})? ([0-9.e+-]+)$", metrics, re.MULTILINE)
        if values:
            found[figure] = sum(map(float, values))
    return found
