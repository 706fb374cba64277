"""What people say when they want a task done: sentences to train on, and others that are kept out to see what was understood."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from . import meta_world_words
from .tabletop_goals import GOALS, Goal

CUBE_WORDS = ("cube", "block", "box", "brick", "dice", "one", "piece", "object", "thing", "")
PAD_WORDS = ("pad", "disc", "circle", "plate", "spot", "target", "area", "mat", "")
COLOURS = {
    "red": ("red", "red", "red", "crimson", "scarlet"),
    "green": ("green", "green", "green", "emerald", "lime"),
    "blue": ("blue", "blue", "blue", "navy", "azure"),
    "white": ("white", "white", "white", "pale", "snowy"),
    "yellow": ("yellow", "yellow", "yellow", "golden", "lemon"),
}
PLACE = (
    "put {c} on {p}",
    "place {c} on {p}",
    "move {c} to {p}",
    "set {c} down on {p}",
    "bring {c} to {p}",
    "carry {c} over to {p}",
    "drop {c} on {p}",
    "lay {c} onto {p}",
    "pick up {c} and put it on {p}",
    "grab {c} and place it on {p}",
    "take {c} and drop it onto {p}",
    "{c} goes on {p}",
    "{c} to {p}",
    "{c} on {p}",
    "on {p} put {c}",
    "onto {p} goes {c}",
    "I want {c} on {p}",
    "could you put {c} on {p}",
    "{c} should end up on {p}",
    "fetch {c} and leave it on {p}",
    "lift {c} and lower it onto {p}",
    "cover {p} with {c}",
    "make sure {c} sits on {p}",
    "transfer {c} from the table to {p}",
    "{p} is where {c} belongs",
)
LIFT = (
    "lift {c}",
    "lift up {c}",
    "raise {c}",
    "pick up {c}",
    "hold {c} up",
    "hold {c} in the air",
    "lift {c} off the table",
    "pick {c} up and hold it",
    "raise {c} high",
    "take {c} up",
    "hoist {c}",
    "get {c} up in the air",
    "grab {c} and lift it",
    "I want {c} up in the air",
    "could you lift {c}",
    "{c} up",
    "up with {c}",
    "{c} should be in the air",
    "hold up {c} above the table",
    "show me {c} by lifting it",
)
KEPT_OUT_PLACE = (
    "please take {c} over to {p}",
    "would you mind setting {c} upon {p}",
    "{p} needs {c} on top of it right now",
    "deliver {c} to {p}, thanks",
    "get {c} across and release it over {p}",
    "see that {c} finds its way onto {p}",
    "relocate {c}; its destination is {p}",
    "after picking, deposit {c} at {p}",
)
KEPT_OUT_LIFT = (
    "might {c} go upwards for a while",
    "elevate {c} well above the desk",
    "bring {c} upwards and keep it there",
    "let me see {c} floating in the air",
)
FRAMES = (
    "{}",
    "{}",
    "{}",
    "please {}",
    "{} please",
    "robot, {}",
    "now {}",
    "ok {}",
    "hey robot {} thanks",
    "can you {}",
    "next {}",
    "{} now",
)
LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")


@dataclass(frozen=True, slots=True)
class Language:
    """`training` and `kept_out` sentences of each task; `plain` is the one that a manual would print. `noise`: how many words that mean
    nothing are strewn into a training sentence at most, so that words which were never heard do no harm."""

    plain: Mapping[str, str]
    kept_out: Mapping[str, Sequence[str]]
    training: Mapping[str, Sequence[str]]
    noise: int = 0

    def say(self, task: str, random: np.random.Generator) -> str:
        """A training sentence for a task."""
        sentences = self.training[task]
        words = sentences[int(random.integers(len(sentences)))].split()
        if self.noise and random.random() < 0.7:
            for _ in range(random.integers(0, self.noise + 1)):
                words.insert(int(random.integers(0, len(words) + 1)), "".join(random.choice(LETTERS, random.integers(2, 9))))
        return " ".join(words)


@cache
def tabletop_language() -> Language:
    """Of the table-top scene."""
    return Language(
        plain={name: _plain(goal) for name, goal in GOALS.items()},
        training={name: tuple(dict.fromkeys(_training(goal))) for name, goal in GOALS.items()},
        kept_out={name: tuple(_kept_out(goal)) for name, goal in GOALS.items()},
        noise=6,
    )


@cache
def meta_world_language() -> Language:
    """Of Meta-World's tasks."""
    words = meta_world_words.TASKS
    return Language(
        plain={task: said[0] for task, said in words.items()},
        training={task: said[:-1] for task, said in words.items()},
        kept_out={task: said[-1:] for task, said in words.items()},
        noise=2,
    )


def _plain(goal: Goal) -> str:
    return f"put the {goal.cube} cube on the {goal.pad} pad" if goal.kind == "place" else f"lift the {goal.cube} cube"


def _named(colours: Sequence[str], words: Sequence[str]) -> list[str]:
    return [" ".join(f"the {colour} {word}".split()) for colour, word in itertools.product(colours, words)]


def _training(goal: Goal) -> list[str]:
    """Every sentence in every frame, four times, with the names of cubes and pads taken in turn: not a list of millions."""
    cubes = _named(COLOURS[goal.cube], CUBE_WORDS)
    pads = _named(COLOURS[goal.pad], PAD_WORDS) if goal.pad else [""]
    forms = list(itertools.product(PLACE if goal.kind == "place" else LIFT, FRAMES))
    sentences = []
    for index, (form, frame) in enumerate(forms * 4):
        cube = cubes[(index * 7) % len(cubes)]
        pad = pads[(index * 11) % len(pads)]
        sentences.append(frame.format(form.format(c=cube, p=pad)))
    return sentences


def _kept_out(goal: Goal) -> list[str]:
    forms = KEPT_OUT_PLACE if goal.kind == "place" else KEPT_OUT_LIFT
    pads = (f"the {goal.pad} pad", f"the {goal.pad} disc")
    return [
        form.format(c=f"the {goal.cube} {word}", p=pad)
        for form, word, pad in zip(forms, itertools.cycle(("cube", "block")), itertools.cycle(pads), strict=False)
    ]
