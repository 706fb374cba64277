"""The words of TinyFlow's small world: what it can draw, where, and how it can move.

A picture is a 64 x 64 canvas. Things stand on a grid of three columns and three rows, 16 pixels apart, and are small enough that no two
of them share a 16 x 16 tile: what a tile shows is decided by one thing and the background.
"""

from __future__ import annotations

PALETTE: dict[str, tuple[int, int, int]] = {
    "red": (222, 40, 44), "green": (36, 158, 62), "blue": (38, 78, 222), "yellow": (246, 222, 46),
    "orange": (248, 140, 24), "purple": (136, 52, 190), "pink": (252, 142, 190), "cyan": (56, 210, 222),
    "brown": (124, 76, 38), "black": (18, 18, 20), "white": (248, 248, 248), "gray": (138, 138, 142),
}  # fmt: skip
"""The colours and what they look like, sRGB."""
COLOURS = tuple(PALETTE)
SHAPES = ("circle", "square", "triangle", "diamond", "star", "cross", "ring", "heart")
SIZES = ("small", "medium", "large")

PLURALS = {shape: "crosses" if shape == "cross" else f"{shape}s" for shape in SHAPES}

PLACES = ("top left", "top", "top right", "left", "center", "right", "bottom left", "bottom", "bottom right")
"""The nine cells, row by row: `PLACES[3 * row + column]`."""

RELATIONS = ("above", "below", "left of", "right of")
SIDES: dict[str, tuple[str, ...]] = {  # where a pair stands as a whole, by its relation; "" is the middle
    "above": ("", "left", "right"),
    "below": ("", "left", "right"),
    "left of": ("", "top", "bottom"),
    "right of": ("", "top", "bottom"),
}

COUNTS = {2: "two", 3: "three", 4: "four"}
ARRANGEMENTS: dict[int, dict[str, tuple[str, ...]]] = {  # how a group of equal things stands, and its cells
    2: {"row": ("left", "right"), "column": ("top", "bottom"), "diagonal": ("top left", "bottom right")},
    3: {"pyramid": ("top", "bottom left", "bottom right"), "corner": ("top left", "bottom left", "bottom right")},
    4: {"grid": ("top left", "top right", "bottom left", "bottom right")},
}

MOTIONS = ("moving left", "moving right", "moving up", "moving down", "growing", "shrinking")
LANES: dict[str, tuple[str, ...]] = {  # the places a motion can have
    "moving left": ("top", "center", "bottom"),
    "moving right": ("top", "center", "bottom"),
    "moving up": ("left", "center", "right"),
    "moving down": ("left", "center", "right"),
    "growing": PLACES,
    "shrinking": PLACES,
}


def cell(place: str) -> tuple[int, int]:
    """A place's (column, row), each 0, 1 or 2."""
    row, column = divmod(PLACES.index(place), 3)
    return column, row


def apart(first: str, second: str) -> bool:
    """Whether things in these two places cannot touch."""
    (a, b), (c, d) = cell(first), cell(second)
    return abs(a - c) == 2 or abs(b - d) == 2


VOCABULARY = (
    *("<pad>", "<null>", "<unk>", "two", "three", "four", "and", "of", "both", "background"),
    *("top", "bottom", "left", "right", "center", "above", "below"),
    *("row", "column", "diagonal", "pyramid", "corner", "grid", "moving", "up", "down", "growing", "shrinking"),
    *SIZES,
    *COLOURS,
    *SHAPES,
    *PLURALS.values(),
)
"""The tokens, in the order of their ids. Words that carry nothing ("a", "the", "on") are dropped before."""

FILLERS = ("a", "an", "the", "on", "in", "at", "is", "are", "it", "its", "with", "that", "to", "centered")
"""Words that add nothing, dropped by the tokenizer: a pair is centered unless its side is named."""

MAX_TOKENS = 13
