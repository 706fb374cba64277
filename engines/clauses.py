"""Where to cut a growing text into pieces worth speaking: soon for the first, by sentence later, longer once there is time.

Pure decisions on text; `connectors.ClauseConnector` is the thin shell that waits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CUT = re.compile(
    r"""(?P<strong>(?<![.!?…])[.!?…]++["'”’)\]*_]*+(?=\s)|(?<!\n)\n++(?=\S))  # a sentence ends before white space, or a line ends
      | (?P<weak>[,;:]["'”’)*_]*+(?=\s)|(?<=\w)[—–](?=\w))  # a clause ends; a dash needs no space""",
    re.VERBOSE,
)
_LAST_TOKEN = re.compile(r"[^\s(\[\"'“‘*_]+$")
_ABBREVIATIONS = frozenset(
    (
        "mr",
        "mrs",
        "ms",
        "dr",
        "prof",
        "st",
        "mt",
        "vs",
        "approx",
        "dept",
        "inc",
        "ltd",
        "jr",
        "sr",
        "gov",
        "sen",
        "rep",
        "capt",
        "lt",
        "sgt",
    )
)
_INITIALS = re.compile(r"(?!I\.)(?:[A-Za-z]\.)+")
"""J. Smith, U.S., e.g.; but not "so do I."."""
_LIST_NUMBER = re.compile(r"(?:^|\n)\s*\d{1,3}\.$")
_WORD_END = re.compile(r"(?<!\S)\S++(?=\s)")
_FENCE = "```"
_TAIL = 40
"""Characters before a mark that tell an abbreviation or a list's number from the end of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClauseOptions:
    """When a piece is long enough; in words, and seconds of audio that are made but not yet due to be heard.

    The first piece is cut at any mark after `first_words`, or without a mark after `first_limit`. Later, while less than `low`
    seconds are ahead: at any mark after `clause_words`, or after `clause_limit`. Up to `high`: by sentence. Beyond: whole sentences
    of at least `paragraph_words` together. No piece is longer than `longest` words (or `longest_characters`, if that is a single
    word). Only the first `window` characters are looked at, so that a decision costs the same however much text waits.
    """

    first_words: int = 3
    first_limit: int = 8
    clause_words: int = 4
    clause_limit: int = 12
    paragraph_words: int = 14
    longest: int = 36
    longest_characters: int = 400
    window: int = 2000
    low: float = 1.0
    high: float = 4.0


@dataclass(frozen=True, slots=True)
class _Cut:
    end: int
    strong: bool
    words: int


class ClauseSplitter:
    """Text in with `feed`, pieces out with `take`; the pieces joined are the text (less white space at its very end).

    Every decision looks at the text's `_head` only.
    """

    def __init__(self, options: ClauseOptions | None = None) -> None:
        self.options = options or ClauseOptions()
        self._text = ""
        self._first = True
        self._finished = False
        self._fenced = False

    @property
    def pending(self) -> int:
        """Characters that wait to be taken."""
        return len(self._text)

    @property
    def exhausted(self) -> bool:
        return self._finished and not self._text.strip()

    def feed(self, text: str) -> None:
        """More text."""
        self._text += text

    def finish(self) -> None:
        """No more text will come."""
        self._finished = True

    def take(self, ahead: float) -> str | None:
        """The next piece, if one is worth speaking when `ahead` seconds of audio are in hand; else None: wait for more."""
        if not self._text.strip():
            return None
        end = self._end(ahead)
        if end is None:
            return None
        piece, self._text = self._text[:end], self._text[end:]
        self._first = False
        self._fenced ^= piece.count(_FENCE) % 2 == 1
        return piece

    @property
    def _head(self) -> str:
        return self._text[: self.options.window]

    def _end(self, ahead: float) -> int | None:
        options = self.options
        cuts = self._cuts()
        if self._first:
            return self._earliest(cuts, options.first_words, options.first_words, options.first_limit)
        if ahead < options.low:
            return self._earliest(cuts, 1, options.clause_words, options.clause_limit)
        if ahead < options.high:
            return self._earliest(cuts, 1, None, options.longest)
        fitting = [cut for cut in cuts if cut.strong and options.paragraph_words <= cut.words <= options.longest]
        if fitting:
            return fitting[-1].end
        return self._earliest(cuts, options.paragraph_words, None, options.longest)

    def _earliest(self, cuts: list[_Cut], strong_words: int, weak_words: int | None, limit: int) -> int | None:
        """The first cut that is long enough; without one, a forced cut at `limit` words, or all that is left at the end."""
        for cut in cuts:
            enough = strong_words if cut.strong else weak_words
            if enough is not None and cut.words >= enough:
                return cut.end if cut.words <= self.options.longest else self._forced(cuts, self.options.longest)
        if len(self._text) > self.options.longest_characters or _count(self._text) > limit:
            return self._forced(cuts, limit)
        return len(self._text.rstrip()) if self._finished else None

    def _forced(self, cuts: list[_Cut], limit: int) -> int | None:
        """Cut a piece that has no fit mark: at the last mark within `limit` words, else between two words; within one only when it
        is longer than any piece may be."""
        within = [cut.end for cut in cuts if self.options.clause_words <= cut.words <= limit]
        if within:
            return within[-1]
        head = self._head
        ends = [match.end() for match in _WORD_END.finditer(head)]
        if ends:
            return ends[min(limit, len(ends)) - 1]
        if len(head) > self.options.longest_characters:
            return self.options.longest_characters
        return len(self._text.rstrip()) if self._finished else None

    def _cuts(self) -> list[_Cut]:
        """The marks at which a piece may end, up to the first beyond `longest` words."""
        text = self._head
        cuts: list[_Cut] = []
        code = _CodeAndLinks(self._fenced)
        words, counted, looked = 0, 0, 0
        for match in _CUT.finditer(text):
            code.pass_over(text[looked : match.start()])
            looked = match.start()
            words += _count(text[counted : match.end()])
            counted = match.end()
            if words and not code.inside(match[0]) and _ends_something(text, match):
                cuts.append(_Cut(counted, match["strong"] is not None, words))
                if words > self.options.longest:
                    break
        return cuts


class _CodeAndLinks:
    """Whether a place in a text lies within code or the text of a link; the text is passed over piece by piece."""

    def __init__(self, fenced: bool) -> None:
        self._fenced = fenced
        self._ticked = False
        self._linked = False

    def pass_over(self, piece: str) -> None:
        fences = piece.count(_FENCE)
        self._fenced ^= fences % 2 == 1
        self._ticked ^= (piece.count("`") - len(_FENCE) * fences) % 2 == 1
        opened, closed = piece.rfind("["), piece.rfind("]")
        if opened != closed:
            self._linked = opened > closed

    def inside(self, mark: str) -> bool:
        return self._fenced or self._ticked or (self._linked and "]" not in mark)


def _ends_something(text: str, match: re.Match[str]) -> bool:
    """A full stop may belong to an abbreviation, an initial or a list's number."""
    if not match[0].startswith("."):
        return True
    tail = text[max(0, match.start() - _TAIL) : match.start()]
    if _LIST_NUMBER.search(tail + "."):
        return False
    token = _LAST_TOKEN.search(tail)
    word = token[0] if token else ""
    return word.lower() not in _ABBREVIATIONS and not _INITIALS.fullmatch(word + ".")


def _count(text: str) -> int:
    return len(text.split())
