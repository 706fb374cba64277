"""From a user's sentence to a complete scene: what it says is kept, what it leaves open is chosen by the seed, what the world lacks is
named.

So every prompt reaches the network as a canonical caption, which the user gets back as the revised prompt, and a wish that cannot be met
("a photo of a cat") is answered with the words that were ignored, not with a silent picture.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from .lexicon import ADJECTIVES, COUNT_WORDS, KNOWN_SHAPES, PHRASES, SILENT, canonical_word
from .scene import Scene, Thing
from .words import ARRANGEMENTS, COLOURS, LANES, MOTIONS, PLACES, RELATIONS, SHAPES, SIDES, SIZES, apart

T = TypeVar("T")
_RELATION_WORDS = {"above": "above", "below": "below", "left_of": "left of", "right_of": "right of", "beside": "beside"}
_DIRECTIONS = ("left", "right", "up", "down")
_PLACE_WORDS = ("top", "bottom", "left", "right", "center")
MOST_IGNORED = 32
"""So many ignored words are named one by one."""
_ARRANGEMENT_WORDS = frozenset(name for names in ARRANGEMENTS.values() for name in names)


@dataclass(frozen=True, slots=True)
class Understood:
    """What a prompt became."""

    scene: Scene
    caption: str
    """The canonical caption of the scene: the revised prompt."""
    ignored: tuple[str, ...]
    """The prompt's words that the picture does not follow, in their order."""


@dataclass(slots=True)
class _Wish:
    """One thing as far as a prompt names it."""

    size: str = ""
    colour: str = ""
    shape: str = ""
    count: int = 0
    plural: bool = False
    places: list[str] = field(default_factory=list)

    def place(self) -> str:
        """The named place, or "" (also for what is no place, such as "top bottom")."""
        rows = [word for word in self.places if word in ("top", "bottom")]
        columns = [word for word in self.places if word in ("left", "right")]
        name = " ".join([*rows[:1], *columns[:1]]) or ("center" if "center" in self.places else "")
        return name if name in PLACES else ""


class _Reader:
    """Reads a prompt's words into wishes; what it cannot use goes to `ignored`."""

    def __init__(self, prompt: str) -> None:
        text = " ".join(re.findall(r"[a-z0-9]+", prompt.lower().replace("'s", "")))
        for phrase, word in PHRASES:
            text = re.sub(rf"\b{phrase}\b", word, text)
        self.said = text.split()
        self.words = [canonical_word(word) for word in self.said]
        self.used = [False] * len(self.words)
        self.things: list[_Wish] = []
        self.background = self.relation = self.motion = self.arrangement = ""
        self._find_background()
        self._find_motion()
        self._find_things()

    def _take(self, *indices: int) -> None:
        for index in indices:
            self.used[index] = True

    def _find_background(self) -> None:
        """ "on a black background", "background is black", "on black"."""
        words = self.words
        for index, word in enumerate(words):
            if word == "background":
                before = [i for i in range(max(index - 1, 0), index) if words[i] in COLOURS]
                after = [
                    i for i in range(index + 1, min(index + 4, len(words))) if words[i] in COLOURS and (i == index + 1 or self._bare(i))
                ]
                for at in (*before, *after)[:1]:
                    self.background = words[at]
                    self._take(at)
                self._take(index)
        for index, word in enumerate(words[:-1]):
            at = index + 2 if words[index + 1] in ("a", "an") and index + 2 < len(words) else index + 1
            if word in ("on", "against") and not self.background and words[at] in COLOURS and self._bare(at):
                self.background = words[at]
                self._take(index, at)

    def _bare(self, index: int) -> bool:
        """Whether a colour stands for itself: no shape follows it."""
        following = [word for word in self.words[index + 1 : index + 3] if word not in COLOURS and word not in SIZES]
        return not following or following[0] not in KNOWN_SHAPES

    def _find_motion(self) -> None:
        for index, word in enumerate(self.words):
            if word in ("growing", "shrinking"):
                self._set_motion(word, index)
            elif word in ("up_alone", "down_alone"):
                self._set_motion(f"moving {word.removesuffix('_alone')}", index)
            elif word == "moving":
                ahead = [i for i in range(index + 1, min(index + 4, len(self.words))) if self.words[i] in _DIRECTIONS]
                if ahead:
                    self._set_motion(f"moving {self.words[ahead[0]]}", index, ahead[0])
                else:
                    self._set_motion("moving", index)

    def _set_motion(self, motion: str, *indices: int) -> None:
        if not self.motion:
            self.motion = motion
            self._take(*indices)

    def _find_things(self) -> None:
        """One pass: adjectives gather until their shape; what comes after a shape describes it, or the next thing."""
        shape_ahead = self._shapes_ahead()
        wish, named = _Wish(), False  # `named`: the wish has its shape, and later words may still describe it
        for index, word in enumerate(self.words):
            if self.used[index]:
                continue
            if word in KNOWN_SHAPES:
                if named:
                    wish = self._next(wish)
                wish.shape, wish.plural, named = KNOWN_SHAPES[word], word not in SHAPES, True
            elif word in _RELATION_WORDS and named and not self.relation:
                self.relation = _RELATION_WORDS[word]
                wish, named = self._next(wish), False
            elif word == "and" and named:
                wish, named = self._next(wish), False
            elif word in _ARRANGEMENT_WORDS and not self.arrangement:
                self.arrangement = word
            elif word in _PLACE_WORDS:
                wish.places.append(word)
            elif word in ADJECTIVES or word in COUNT_WORDS:
                if named and shape_ahead[index]:
                    wish, named = self._next(wish), False
                if not self._describe(wish, word):
                    continue
            else:
                continue
            self._take(index)
        self._next(wish)

    def _shapes_ahead(self) -> list[bool]:
        """For each word, whether a shape follows before the next thing is joined on, so that an adjective there belongs to it."""
        ahead, follows = [], False
        for word in reversed(self.words):
            ahead.append(follows)
            follows = word in KNOWN_SHAPES or (follows and word not in _RELATION_WORDS and word != "and")
        return ahead[::-1]

    def _next(self, wish: _Wish) -> _Wish:
        if wish != _Wish():
            self.things.append(wish)
        return _Wish()

    @staticmethod
    def _describe(wish: _Wish, word: str) -> bool:
        """Put a size, colour or number into a wish; False if it has one already."""
        if word in SIZES and not wish.size:
            wish.size = word
        elif word in COLOURS and not wish.colour:
            wish.colour = word
        elif word in COUNT_WORDS and not wish.count:
            wish.count = COUNT_WORDS[word]
        else:
            return False
        return True

    def ignored(self) -> list[str]:
        return [said for said, word, used in zip(self.said, self.words, self.used, strict=True) if not used and word not in SILENT]


class _Expander:
    """Fills what is open. Each choice has its own stream of the seed, so naming one attribute leaves the others as they were."""

    def __init__(self, reader: _Reader, seed: int, clip: bool, background: str) -> None:
        self.reader = reader
        self.background = background
        self.seed = seed
        self.clip = clip
        self.ignored = reader.ignored()

    def choose(self, what: str, options: Sequence[T]) -> T:
        return random.Random(f"{self.seed}/{what}").choice(options)

    def scene(self) -> Scene:
        reader = self.reader
        wishes = [wish for wish in reader.things if wish.shape or wish.colour or wish.size or wish.count] or reader.things[:1] or [_Wish()]
        if not any(wish.shape for wish in wishes):
            wishes = wishes[:1]
        most = 1 if self.clip else 2
        for extra in wishes[most:]:
            self._ignore_wish(extra)
        wishes = wishes[:most]
        background = self._background(wishes)
        if self.clip:
            return self._clip(wishes[0], background)
        if reader.motion:
            self.ignored.append(reader.motion)
        if len(wishes) == 2:
            return self._pair(wishes, background)
        if reader.relation:
            self.ignored.append(reader.relation)
        wish = wishes[0]
        count = wish.count or (self.choose("count", tuple(ARRANGEMENTS)) if wish.plural else 1)
        return self._group(wish, count, background) if count > 1 else self._single(wish, background)

    def _ignore_wish(self, wish: _Wish) -> None:
        self.ignored.append(" ".join(word for word in (wish.size, wish.colour, wish.shape) if word))

    def _background(self, wishes: Sequence[_Wish]) -> str:
        taken = {wish.colour for wish in wishes if wish.colour}
        if self.reader.background in taken:
            self.ignored.append(f"{self.reader.background} background")
        elif self.reader.background:
            return self.reader.background
        if self.background and self.background not in taken:
            return self.background
        return self.choose("background", [colour for colour in ("white", "black", "gray", *COLOURS) if colour not in taken])

    def _thing(self, wish: _Wish, background: str, which: int = 0) -> Thing:
        size = wish.size or self.choose(f"size {which}", SIZES)
        colour = wish.colour or self.choose(f"colour {which}", [colour for colour in COLOURS if colour != background])
        return Thing(size, colour, wish.shape or self.choose(f"shape {which}", SHAPES))

    def _place(self, wish: _Wish, options: Sequence[str], what: str = "place") -> str:
        """The named place if it is one of the options; else the part of it that is; else one by the seed."""
        named = wish.place()
        if named in options:
            return named
        part = next((word for word in named.split() if word in options), "")
        left_over = named.replace(part, "").strip()
        if left_over:
            self.ignored.append(left_over)
        return part or self.choose(what, options)

    def _single(self, wish: _Wish, background: str) -> Scene:
        if self.reader.arrangement:
            self.ignored.append(self.reader.arrangement)
        return Scene((self._thing(wish, background),), background, places=(self._place(wish, PLACES),))

    def _group(self, wish: _Wish, count: int, background: str) -> Scene:
        options = tuple(ARRANGEMENTS[count])
        arrangement = self.reader.arrangement
        if arrangement not in options:
            self.ignored.extend([arrangement] if arrangement else [])
            arrangement = self.choose("arrangement", options)
        self.ignored.extend([" ".join(wish.places)] if wish.places else [])
        return Scene((self._thing(wish, background),), background, count=count, arrangement=arrangement)

    def _pair(self, wishes: Sequence[_Wish], background: str) -> Scene:
        self.ignored.extend(name for wish in wishes for name, number in COUNT_WORDS.items() if wish.count == number > 1)
        arrangement = self.reader.arrangement
        things = (self._thing(wishes[0], background, 0), self._thing(wishes[1], background, 1))
        relation = self.reader.relation
        if relation == "beside" or (not relation and arrangement == "row"):
            relation = self.choose("beside", ("left of", "right of"))
        elif not relation and arrangement == "column":
            relation = self.choose("stacked", ("above", "below"))
        elif arrangement:
            self.ignored.append(arrangement)
        places = [wish.place() for wish in wishes]
        if not relation and any(places):
            return self._placed(wishes, things, background)
        relation = relation or self.choose("relation", RELATIONS)
        sides = SIDES[relation]
        side = next((place for place in reversed(places) if place in sides and place), "")
        side = side or ("" if "center" in places else self.choose("side", sides))
        self.ignored.extend(place for place in places if place and place not in (side, "center"))
        return Scene(things, background, relation=relation, side=side)

    def _placed(self, wishes: Sequence[_Wish], things: tuple[Thing, Thing], background: str) -> Scene:
        corners = [place for place in PLACES if place != "center"]  # nothing fits beside the center
        first, second = (wish.place() for wish in wishes)
        if not first and second in corners:
            first = self.choose("place 0", [place for place in corners if apart(second, place)])
        first = first if first in corners else self._place(wishes[0], corners, "place 0")
        second = self._place(wishes[1], [place for place in PLACES if apart(first, place)], "place 1")
        return Scene(things, background, places=(first, second))

    def _clip(self, wish: _Wish, background: str) -> Scene:
        reader = self.reader
        if wish.count > 1:
            self.ignored.append(next(name for name, number in COUNT_WORDS.items() if number == wish.count))
        self.ignored.extend(word for word in (reader.relation, reader.arrangement) if word)
        motion = reader.motion
        if motion not in MOTIONS:
            motion = self.choose("motion", [name for name in MOTIONS if name.startswith(motion)])
        thing = self._thing(wish, background)
        if not motion.startswith("moving"):
            self.ignored.extend([wish.size] if wish.size else [])
            thing = Thing("", thing.colour, thing.shape)
        return Scene((thing,), background, places=(self._place(wish, LANES[motion]),), motion=motion)


def understand(prompt: str, seed: int = 0, clip: bool = False, background: str = "") -> Understood:
    """The scene for a prompt; anything at all is understood as something. The same arguments give the same scene.

    `background`: what an unnamed background is to be, where that is known (from the picture that is to be edited).
    """
    expander = _Expander(_Reader(prompt), seed, clip, background)
    scene = expander.scene()
    ignored = list(dict.fromkeys(expander.ignored))
    if len(ignored) > MOST_IGNORED:
        ignored[MOST_IGNORED:] = [f"and {len(ignored) - MOST_IGNORED} more"]
    return Understood(scene, scene.caption(), tuple(ignored))
