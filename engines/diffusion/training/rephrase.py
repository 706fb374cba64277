"""Saying a scene as a user might: other words, other orders, attributes left out. For the evaluation."""

from __future__ import annotations

import random

from ..tinyflow.scene import Scene
from ..tinyflow.words import COUNTS, PLURALS

_OTHERS = {
    "small": ("tiny", "little"), "large": ("big", "huge"), "gray": ("grey",), "purple": ("violet",), "cyan": ("turquoise", "aqua"),
    "circle": ("disc", "ball"), "diamond": ("rhombus",), "ring": ("donut",), "circles": ("discs",), "rings": ("donuts",),
    "above": ("over", "on top of"), "below": ("under", "beneath"), "left of": ("to the left of",), "right of": ("to the right of",),
    "moving left": ("moving to the left", "sliding left"), "moving right": ("that moves right", "drifting to the right"),
    "moving up": ("rising", "moving upwards"), "moving down": ("falling", "moving downward"),
    "growing": ("that grows", "getting bigger"), "shrinking": ("getting smaller", "that shrinks"),
    "top": ("upper middle",), "center": ("middle", "centre"), "top left": ("upper left",), "bottom right": ("lower right",),
}  # fmt: skip
_LEFT_OUT = 0.2


def _word(rng: random.Random, word: str) -> str:
    return rng.choice(_OTHERS[word]) if word in _OTHERS and rng.random() < 0.35 else word


class _Speaker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.kept: list[str] = []

    def maybe(self, name: str, text: str) -> str:
        """The text, or nothing; what is said is noted."""
        if not text or self.rng.random() < _LEFT_OUT:
            return ""
        self.kept.append(name)
        return text

    def thing(self, scene: Scene, index: int) -> str:
        thing = scene.things[index]
        size = self.maybe(f"size {index}", _word(self.rng, thing.size) if thing.size else "")
        self.kept += [f"colour {index}", f"shape {index}"]
        many = scene.count > 1
        article = COUNTS[scene.count] if many else "a"
        shape = PLURALS[thing.shape] if many else thing.shape
        return " ".join(word for word in (article, size, _word(self.rng, thing.colour), _word(self.rng, shape)) if word)

    def where(self, name: str, place: str) -> str:
        return self.maybe(name, f"in the {_word(self.rng, place)}" if place else "")


def rephrase(scene: Scene, rng: random.Random) -> tuple[str, list[str]]:
    """A user's prompt for a scene, and the names of the attributes that it says."""
    speaker = _Speaker(rng)
    parts = [speaker.thing(scene, 0)]
    if scene.motion:
        speaker.kept.append("motion")
        parts += [_word(rng, scene.motion), speaker.where("place 0", scene.places[0])]
    elif scene.count > 1:
        speaker.kept.append("count")
        parts.append(speaker.maybe("arrangement", f"in a {scene.arrangement}"))
    elif scene.relation:
        speaker.kept.append("relation")
        parts += [_word(rng, scene.relation), speaker.thing(scene, 1), speaker.where("side", scene.side)]
    else:
        parts.append(speaker.where("place 0", scene.places[0]))
        if len(scene.things) == 2:
            parts += ["and", speaker.thing(scene, 1), speaker.where("place 1", scene.places[1])]
    forms = ("on a {} background", "on {}", "against a {} backdrop", "on a {} background")
    parts.append(speaker.maybe("background", rng.choice(forms).format(_word(rng, scene.background))))
    prefix = rng.choice(("", "", "", "please draw", "a picture of"))
    return " ".join(part for part in (prefix, *parts) if part), speaker.kept


def agrees(named: list[str], wanted: Scene, got: Scene) -> bool:
    """Whether a scene has every named attribute of the wanted one."""
    return all(_value(wanted, name) == _value(got, name) for name in named)


def _value(scene: Scene, name: str) -> object:
    field, _, index = name.partition(" ")
    if not index:
        return getattr(scene, field)
    if field == "place":
        cells = scene.cells()
        return cells[int(index)] if int(index) < len(cells) else None
    return getattr(scene.things[int(index)], field) if int(index) < len(scene.things) else None
