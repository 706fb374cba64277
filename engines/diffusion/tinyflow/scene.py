"""A complete description of one picture or clip, and its canonical caption: the only kind of text that the network is shown.

A scene leaves nothing open (size, colour, shape, place and background of everything are said), so that the network never has to choose.
Choosing is the prompt's business: `prompt` fills what a user left open, by the seed.
"""

from __future__ import annotations

from dataclasses import dataclass

from .words import ARRANGEMENTS, COUNTS, LANES, MOTIONS, PLACES, PLURALS, SIDES, apart

_PREPOSITIONS = {"top": "at", "bottom": "at", "left": "on", "right": "on"}


@dataclass(frozen=True, slots=True)
class Thing:
    """One shape; `size` is "" for things that grow or shrink."""

    size: str
    colour: str
    shape: str

    def phrase(self) -> str:
        return " ".join(word for word in (self.size, self.colour, self.shape) if word)


@dataclass(frozen=True, slots=True)
class Scene:
    """What a picture (or, with `motion`, a clip) shows. `ValueError` says what does not fit together.

    One thing has one place. Two things have either a relation and a side, or a place each. A group has a count and an arrangement.
    """

    things: tuple[Thing, ...]
    background: str
    places: tuple[str, ...] = ()
    relation: str = ""
    side: str = ""
    count: int = 1
    arrangement: str = ""
    motion: str = ""

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise ValueError(problem)

    def _problem(self) -> str:
        if any(thing.colour == self.background for thing in self.things):
            return f"nothing {self.background} can be seen on a {self.background} background"
        if self.motion:
            lanes = LANES.get(self.motion, ())
            fits = len(self.things) == 1 and len(self.places) == 1 and self.places[0] in lanes
            return "" if fits else f"a clip has one of the motions {MOTIONS} and one thing in one of its lanes {lanes}"
        if self.count > 1:
            fits = len(self.things) == 1 and self.arrangement in ARRANGEMENTS.get(self.count, {})
            return "" if fits else f"a group has 2 to 4 equal things in one of the arrangements {ARRANGEMENTS}"
        if len(self.things) == 1:
            return "" if len(self.places) == 1 and self.places[0] in PLACES else f"one thing has one of the places {PLACES}"
        if self.relation:
            fits = len(self.things) == 2 and self.side in SIDES.get(self.relation, ())
            return "" if fits else f"two things have a relation and one of its sides {SIDES}"
        fits = len(self.things) == len(self.places) == 2 and apart(*self.places)
        return "" if fits else "two things without a relation have two places that do not touch"

    @property
    def kind(self) -> str:
        """`single`, `relation`, `placed`, `group` or `clip`."""
        if self.motion:
            return "clip"
        if self.count > 1:
            return "group"
        if len(self.things) == 1:
            return "single"
        return "relation" if self.relation else "placed"

    def cells(self) -> tuple[tuple[str, ...], ...]:
        """For each thing the places where it stands (several for a group; for a clip the lane)."""
        if self.count > 1:
            return (ARRANGEMENTS[self.count][self.arrangement],)
        if self.relation:
            vertical = self.relation in ("above", "below")
            ends = ("top", "bottom") if vertical else ("left", "right")
            if self.relation in ("below", "right of"):
                ends = ends[::-1]
            return tuple(((f"{end} {self.side}" if vertical else f"{self.side} {end}").strip(),) for end in ends)
        return tuple((place,) for place in self.places)

    def caption(self) -> str:
        """The canonical caption."""
        ground = f"on {_article(self.background)} background"
        first = self.things[0]
        if self.count > 1:
            words = " ".join(word for word in (first.size, first.colour, PLURALS[first.shape]) if word)
            return f"{COUNTS[self.count]} {words} in a {self.arrangement} {ground}"
        if self.motion:
            return f"{_article(first.phrase())} {self.motion} {_where(self.places[0])} {ground}"
        if len(self.things) == 1:
            return f"{_article(first.phrase())} {_where(self.places[0])} {ground}"
        second = self.things[1]
        if self.relation:
            side = f"both {_where(self.side)}" if self.side else "centered"
            return f"{_article(first.phrase())} {self.relation} {_article(second.phrase())} {side} {ground}"
        parts = [f"{_article(thing.phrase())} {_where(place)}" for thing, place in zip(self.things, self.places, strict=True)]
        return f"{parts[0]} and {parts[1]} {ground}"


def _article(words: str) -> str:
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"


def _where(place: str) -> str:
    return f"{_PREPOSITIONS.get(place, 'in')} the {place}"
