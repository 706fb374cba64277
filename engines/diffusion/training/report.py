"""The evaluation's figures as JSON and Markdown, a contact sheet and clips to look at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .evaluation import Outcome, by_shape, share

_PICTURES = ("prompt", "background", "count", "colour", "shape", "size", "place", "strict")
_CLIPS = ("prompt", "background", "count", "colour", "shape", "size", "motion", "constancy", "strict")
_CAPTION_HEIGHT = 56


def summary(outcomes: dict[str, list[Outcome]]) -> dict[str, Any]:
    """The figures, by kind and attribute, and every failure."""
    pictures = [outcome for kind, some in outcomes.items() if kind != "clip" for outcome in some]
    clips = outcomes.get("clip", [])
    kinds = {kind: _shares(some, _PICTURES) for kind, some in outcomes.items() if kind != "clip"}
    everything = [*pictures, *clips]
    return {
        "pictures": _shares(pictures, _PICTURES),
        "clips": _shares(clips, _CLIPS),
        "pictures by kind": kinds,
        "strict by shape": {"pictures": by_shape(pictures), "clips": by_shape(clips)},
        "failures": [
            {
                "prompt": outcome.trial.prompt,
                "seed": outcome.trial.seed,
                "caption": outcome.trial.scene.caption(),
                "wrong": [name for name, right in outcome.verdict.items() if not right and name != "strict"],
            }
            for outcome in everything
            if not outcome.verdict["strict"]
        ],
    }


def _shares(outcomes: list[Outcome], attributes: tuple[str, ...]) -> dict[str, Any]:
    return {"n": len(outcomes), **{name: share(outcomes, name) for name in attributes}}


def markdown(figures: dict[str, Any]) -> str:
    """The tables of a report."""
    lines = ["| pictures | n | " + " | ".join(_PICTURES) + " |", "|---" * (len(_PICTURES) + 2) + "|"]
    for kind, row in {**figures["pictures by kind"], "**all**": figures["pictures"]}.items():
        lines.append(f"| {kind} | {row['n']} | " + " | ".join(_percent(row[name]) for name in _PICTURES) + " |")
    clips = figures["clips"]
    lines += ["", "| clips | n | " + " | ".join(_CLIPS) + " |", "|---" * (len(_CLIPS) + 2) + "|"]
    lines.append(f"| **all** | {clips['n']} | " + " | ".join(_percent(clips[name]) for name in _CLIPS) + " |")
    shapes = figures["strict by shape"]
    names = sorted({*shapes["pictures"], *shapes["clips"]})
    lines += ["", "| strict by shape | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for kind in ("pictures", "clips"):
        lines.append(f"| {kind} | " + " | ".join(_percent(shapes[kind].get(name)) for name in names) + " |")
    return "\n".join(lines) + "\n"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def write(outcomes: dict[str, list[Outcome]], folder: Path) -> dict[str, Any]:
    """`report.json`, `report.md`, `pictures.png`, `clips.gif`; returns the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = summary(outcomes)
    (folder / "report.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    (folder / "report.md").write_text(markdown(figures), encoding="utf-8")
    pictures = [some for kind, some in outcomes.items() if kind != "clip" and some]
    if pictures:
        chosen = [some[index] for index in range(6) for some in pictures if index < len(some)]
        contact_sheet(chosen, folder / "pictures.png")
    if outcomes.get("clip"):
        clip_sheet(outcomes["clip"][:8], folder / "clips.gif")
    return figures


def contact_sheet(outcomes: list[Outcome], path: Path, columns: int = 6, side: int = 192) -> None:
    """Pictures with their prompts below; a failed one has a red bar."""
    _sheet(outcomes, 0, columns, side).save(path, optimize=True)


def clip_sheet(outcomes: list[Outcome], path: Path, columns: int = 4, side: int = 144, fps: float = 8.0) -> None:
    """Clips side by side, as an animated GIF."""
    sheets = [_sheet(outcomes, index, columns, side) for index in range(len(outcomes[0].frames))]
    palette = _palette(sheets)
    frames = [sheet.quantize(palette=palette, dither=0) for sheet in sheets]
    frames[0].save(path, save_all=True, append_images=[*frames[1:], *frames[-1:] * 4], duration=round(1000 / fps), loop=0, optimize=True)


def _palette(sheets: list[Any]) -> Any:
    """A palette for all frames that counts a shade by the root of its number, so that small things keep their colour."""
    import numpy as np
    from PIL import Image

    shades, counts = np.unique(np.concatenate([np.asarray(sheet).reshape(-1, 3) & 0xFE for sheet in sheets]), axis=0, return_counts=True)
    weighted = np.repeat(shades, np.ceil(np.sqrt(counts)).astype(int), axis=0)
    return Image.fromarray(weighted.astype(np.uint8)[None]).quantize(256, method=Image.Quantize.MEDIANCUT, kmeans=4)


def _sheet(outcomes: list[Outcome], index: int, columns: int, side: int) -> Any:
    import textwrap

    from PIL import Image, ImageDraw

    rows = -(-len(outcomes) // columns)
    sheet = Image.new("RGB", (columns * (side + 8), rows * (side + _CAPTION_HEIGHT)), "white")
    pen = ImageDraw.Draw(sheet)
    for number, outcome in enumerate(outcomes):
        x, y = (number % columns) * (side + 8) + 4, (number // columns) * (side + _CAPTION_HEIGHT) + 4
        sheet.paste(Image.fromarray(outcome.frames[index]).resize((side, side), Image.Resampling.LANCZOS), (x, y))
        if not outcome.verdict["strict"]:
            pen.rectangle((x, y + side, x + side, y + side + 2), fill=(220, 0, 0))
        text = "\n".join(textwrap.wrap(outcome.trial.prompt, width=side // 6)[:4])
        pen.multiline_text((x, y + side + 3), text, fill="black", spacing=1)
    return sheet
