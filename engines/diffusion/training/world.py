"""Drawing scenes at random, and the scenes that training never sees.

A scene is held out when any of its things has a held-out combination of colour, shape and background (one combination in ten). So a
held-out caption is not only a new sentence: the network has never seen that shape in that colour on that background, in any picture.
"""

from __future__ import annotations

import random
import zlib

from ..tinyflow.scene import Scene, Thing
from ..tinyflow.words import ARRANGEMENTS, COLOURS, LANES, MOTIONS, PLACES, RELATIONS, SHAPES, SIDES, SIZES, apart

HELD_OUT_ONE_IN = 10
KINDS = {"single": 0.20, "relation": 0.20, "placed": 0.10, "group": 0.12, "clip": 0.38}
"""How often training sees each kind."""
MOMENTS = 60
"""Clip frames are drawn at multiples of 1/60 of a clip."""
PICTURE_KINDS = ("single", "relation", "placed", "group")


def held_out(scene: Scene) -> bool:
    """Whether training must not see this scene."""
    return any(zlib.crc32(f"{thing.colour} {thing.shape} {scene.background}".encode()) % HELD_OUT_ONE_IN == 0 for thing in scene.things)


def draw(rng: random.Random, kind: str = "") -> Scene:
    """Any scene (of this kind)."""
    kind = kind or rng.choices(list(KINDS), list(KINDS.values()))[0]
    background = rng.choice(COLOURS)
    if kind == "single":
        return Scene((_thing(rng, background),), background, places=(rng.choice(PLACES),))
    if kind == "relation":
        relation = rng.choice(RELATIONS)
        return Scene(_two(rng, background), background, relation=relation, side=rng.choice(SIDES[relation]))
    if kind == "placed":
        first = rng.choice([place for place in PLACES if place != "center"])
        second = rng.choice([place for place in PLACES if apart(first, place)])
        return Scene(_two(rng, background), background, places=(first, second))
    if kind == "group":
        count = rng.choice(list(ARRANGEMENTS))
        return Scene((_thing(rng, background),), background, count=count, arrangement=rng.choice(list(ARRANGEMENTS[count])))
    motion = rng.choice(MOTIONS)
    thing = _thing(rng, background)
    if not motion.startswith("moving"):
        thing = Thing("", thing.colour, thing.shape)
    return Scene((thing,), background, places=(rng.choice(LANES[motion]),), motion=motion)


def draw_training(rng: random.Random, kind: str = "") -> Scene:
    """A scene that training may see."""
    while held_out(scene := draw(rng, kind)):
        pass
    return scene


def draw_moment(rng: random.Random, scene: Scene) -> float:
    """When, between 0 and 1, a training frame of this scene is; 0 for pictures."""
    return rng.randint(0, MOMENTS) / MOMENTS if scene.motion else 0.0


def draw_held_out(rng: random.Random, kind: str) -> Scene:
    """A scene of this kind that training never sees."""
    while not held_out(scene := draw(rng, kind)):
        pass
    return scene


def _thing(rng: random.Random, background: str) -> Thing:
    colour = rng.choice([colour for colour in COLOURS if colour != background])
    return Thing(rng.choice(SIZES), colour, rng.choice(SHAPES))


def _two(rng: random.Random, background: str) -> tuple[Thing, Thing]:
    return _thing(rng, background), _thing(rng, background)
