"""Other words for the world's words, as people write them."""

from __future__ import annotations

from .words import COLOURS, FILLERS, PLURALS, SHAPES, SIZES

_WHOLE = "of the (?:picture|image|frame|screen|scene|canvas)"
PHRASES = (  # several words that mean one thing, as regular expressions; tried in this order, on words already in lower case
    (f"left {_WHOLE}", "left"),
    (f"right {_WHOLE}", "right"),
    (f"top {_WHOLE}", "top"),
    ("to the left of", "left_of"),
    ("to the right of", "right_of"),
    ("on the left of", "left_of"),
    ("on the right of", "right_of"),
    ("left of", "left_of"),
    ("right of", "right_of"),
    ("on top of", "above"),
    ("at the top of", "above"),
    ("next to", "beside"),
    ("side by side", "row"),
    ("in front of", "infront"),
    ("left hand side", "left"),
    ("right hand side", "right"),
    ("left side", "left"),
    ("right side", "right"),
    ("getting bigger", "growing"),
    ("getting larger", "growing"),
    ("getting smaller", "shrinking"),
    ("light blue", "cyan"),
    ("sky blue", "cyan"),
)

SYNONYMS = {
    "small": "tiny little mini",
    "medium": "middling midsize mid average",
    "large": "big huge giant great enormous",
    "red": "crimson scarlet",
    "green": "emerald lime",
    "blue": "navy azure",
    "yellow": "golden gold",
    "orange": "tangerine",
    "purple": "violet lilac",
    "pink": "magenta rose",
    "cyan": "aqua turquoise teal",
    "brown": "chocolate",
    "black": "ebony",
    "white": "snowy",
    "gray": "grey silver",
    "circle": "disc disk ball dot round",
    "square": "box quadrat",
    "diamond": "rhombus lozenge",
    "cross": "plus",
    "ring": "donut doughnut hoop annulus",
    "circles": "discs disks balls dots",
    "squares": "boxes",
    "diamonds": "rhombuses lozenges",
    "crosses": "pluses",
    "rings": "donuts doughnuts hoops",
    "background": "backdrop ground canvas",
    "above": "over",
    "below": "under beneath underneath",
    "beside": "by near",
    "top": "upper",
    "bottom": "lower",
    "center": "centre middle central centered centred",
    "left": "leftwards leftward",
    "right": "rightwards rightward",
    "up": "upwards upward",
    "down": "downwards downward",
    "moving": "moves move going goes flying flies sliding slides drifting drifts travelling traveling",
    "up_alone": "rising rises climbing",
    "down_alone": "falling falls sinking dropping",
    "growing": "grows grow expanding expands",
    "shrinking": "shrinks shrink contracting contracts",
    "row": "line rows",
    "column": "stack stacked",
    "diagonal": "diagonally",
    "one": "1 single",
    "two": "2 pair couple",
    "three": "3",
    "four": "4",
}
_TO_WORD = {other: word for word, others in SYNONYMS.items() for other in others.split()}

_ASKING = "of there and both please draw paint make show me picture image video clip from against which as"
SILENT = frozenset((*(word for word in FILLERS if word != "centered"), *_ASKING.split()))
"""Words that ask for nothing that could be ignored."""

KNOWN_SHAPES = {**{shape: shape for shape in SHAPES}, **{plural: shape for shape, plural in PLURALS.items()}}
"""Singular and plural -> singular."""

COUNT_WORDS = {"one": 1, "two": 2, "three": 3, "four": 4}
ADJECTIVES = frozenset((*SIZES, *COLOURS))


def canonical_word(word: str) -> str:
    """The world's word for a word, or the word itself."""
    return _TO_WORD.get(word, word)
