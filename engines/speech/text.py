"""From written text to spoken text, word by word, so that the transcript keeps what was written.

`speakable` takes the markup out and gives one `Piece` per written word: how it stands in the transcript and how it is said.
Only letters, simple punctuation and spaces remain in the spoken form: no digits, symbols, markup or emoji. All of it is
pure; speaking the spoken form again changes nothing.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from dataclasses import dataclass

from . import numbers
from .markup import strip_markup
from .spoken_numbers import say_number, say_unit
from .wordlists import ABBREVIATIONS, MONTH_NAMES, MONTHS, ROMAN_AFTER, ROMAN_KINGS, SYMBOLS, TITLES


@dataclass(frozen=True, slots=True)
class Piece:
    """One written word with its leading blanks and punctuation, and what is said for it ("" when nothing is)."""

    written: str
    spoken: str


@dataclass(frozen=True, slots=True)
class Speakable:
    """A text ready to be said; `written` is the transcript of it, markup removed."""

    pieces: tuple[Piece, ...]

    @property
    def written(self) -> str:
        return "".join(piece.written for piece in self.pieces)

    @property
    def spoken(self) -> str:
        return " ".join(piece.spoken for piece in self.pieces if piece.spoken)


@dataclass(frozen=True, slots=True)
class Word:
    """A written word taken apart: opening punctuation, core, closing punctuation; and its neighbours' cores."""

    opening: str
    core: str
    closing: str
    before: str = ""
    after: str = ""


_WORD = re.compile(r"\s*\S+|\s+")
_PARTS = re.compile(r"^([\"'“”‘’«»(\[{<¿¡*_—]*)(.*?)([\"'“”‘’«»)\]}>*_,.!?;:…—]*)$", re.DOTALL)
_URL = re.compile(
    r"(?:https?://|www\.)\S+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|edu|gov|ai|co|uk)(?:/\S*)?", re.I
)
_DOTTED = re.compile(r"(?:[A-Za-z]\.){2,}[A-Za-z]?")
_ROMAN = re.compile(r"(?=[IVX])X{0,3}(?:IX|IV|V?I{0,3})")
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10}
_PAUSES = ".,!?;:…—"
_FREE_ENDS = frozenset({"etc", "Inc", "Ltd", "Co", "Jr", "Sr"})
"""Abbreviations that may end a sentence: before a capital letter they do."""


def speakable(text: str) -> Speakable:
    """Take the text apart. Never raises; an empty text gives no pieces."""
    return _speakable(text)


@functools.lru_cache(maxsize=256)
def _speakable(text: str) -> Speakable:
    plain = strip_markup(text)
    written = [match.group(0) for match in _WORD.finditer(plain)]
    if len(written) > 1 and written[-1].isspace():
        written[-2:] = ["".join(written[-2:])]
    words = [Word(*_take_apart(word.strip())) for word in written]
    pieces: list[Piece] = []
    for index, (raw, word) in enumerate(zip(written, words, strict=True)):
        before = words[index - 1].core if index else ""
        after = words[index + 1].core if index + 1 < len(words) else ""
        spoken = _say(Word(word.opening, word.core, word.closing, before, after))
        pieces.append(Piece(raw, spoken))
    return Speakable(tuple(_attach_bare_pauses(pieces)))


def _take_apart(word: str) -> tuple[str, str, str]:
    match = _PARTS.match(word)
    return (match.group(1), match.group(2), match.group(3)) if match else ("", word, "")


def _attach_bare_pauses(pieces: list[Piece]) -> list[Piece]:
    """Punctuation that stands alone is spoken with the word before it, so that every spoken piece has a sound."""
    result: list[Piece] = []
    for piece in pieces:
        if piece.spoken and all(character in _PAUSES for character in piece.spoken):
            sounding = next((i for i in range(len(result) - 1, -1, -1) if result[i].spoken), None)
            if sounding is not None and result[sounding].spoken[-1] not in _PAUSES:
                result[sounding] = Piece(result[sounding].written, result[sounding].spoken + piece.spoken[0])
            piece = Piece(piece.written, "")
        result.append(piece)
    return result


def _say(word: Word) -> str:
    said, pause = _say_core(word)
    return _finish(said, pause)


def _say_core(word: Word) -> tuple[str, str]:
    """What is said, and the pause behind it."""
    pause = _pause(word.closing)
    core = word.core
    if not core:
        multiplied = word.opening == "*" and word.before[-1:].isdigit() and word.after[:1].isdigit()
        return ("times" if multiplied else ""), pause or _pause(word.opening)
    if "—" in core:
        return " ".join(_say(Word(*_take_apart(part + "—"))) for part in core.split("—") if part).rstrip("—"), pause
    if _URL.fullmatch(core):
        return _say_address(core), pause
    if word.closing[:1] == "." and core + "." in ABBREVIATIONS:
        ends = not word.after or (word.after[:1].isupper() and core in _FREE_ENDS)
        return ABBREVIATIONS[core + "."], _pause(word.closing[1:]) or ("." if ends else "")
    if core in ABBREVIATIONS:
        return ABBREVIATIONS[core], pause
    half = say_unit(core, word.before) if core.lower() in ("a.m", "p.m") else None
    if half is not None:
        return half, _pause(word.closing.removeprefix("."))
    if word.closing[:1] == "." and _DOTTED.fullmatch(core + "."):
        return core + ".", _pause(word.closing[1:])
    titled = _say_title(word)
    if titled is not None:
        return titled, _pause(word.closing.removeprefix("."))
    for rule in (_say_roman, _say_numeric, say_unit_word, _say_joined):
        said = rule(word)
        if said is not None:
            return said, pause
    return core, pause


def _say_title(word: Word) -> str | None:
    """ "Dr." before a name, "St." as saint or street, "No." before a number, a month cut short."""
    named = word.after[:1].isupper()
    if word.core in TITLES and named:
        return TITLES[word.core]
    if word.core == "St" and (word.closing[:1] == "." or named):
        return "Saint" if named and not word.before[:1].isupper() else "Street"
    if word.core in ("No", "Nos") and word.closing == "." and word.after[:1].isdigit():
        return "Number" if word.core == "No" else "Numbers"
    if word.core in MONTH_NAMES and word.core not in MONTHS.values() and (word.closing[:1] == "." or word.after[:1].isdigit()):
        return MONTHS[word.core[:3].lower()]
    return None


def _say_roman(word: Word) -> str | None:
    if not _ROMAN.fullmatch(word.core):
        return None
    values = [_ROMAN_VALUES[character] for character in word.core]
    total = sum(-value if value < following else value for value, following in zip(values, [*values[1:], 0], strict=True))
    if word.before.capitalize() in ROMAN_AFTER:
        return numbers.cardinal(total)
    if word.before in ROMAN_KINGS and total > 1:
        return f"the {numbers.ordinal(total)}"
    return None


def _say_numeric(word: Word) -> str | None:
    if not any(character.isdigit() for character in word.core):
        return None
    return say_number(word.core, before=word.before, after=word.after)


def say_unit_word(word: Word) -> str | None:
    """A unit or a magnitude that stands alone behind a number ("5 km", "$5 million", "10:30 pm")."""
    return say_unit(word.core, word.before)


def _say_joined(word: Word) -> str | None:
    """Words joined by slashes, ampersands and the like; symbols that stand alone."""
    core = word.core
    if core in SYMBOLS:
        return SYMBOLS[core]
    if core.startswith("#") and len(core) > 1:
        return f"hashtag {core[1:]}"
    if "/" in core:
        return " ".join(part for part in core.split("/") if part)
    return None


def _say_address(address: str) -> str:
    """ "https://www.example.com/a-b" -> "example dot com slash a b"."""
    bare = re.sub(r"^(?:https?://)?(?:www\.)?", "", address, flags=re.I).rstrip("/")
    bare = bare.split("?")[0].split("#")[0]
    said = re.sub(r"[-_]+", " ", bare).replace("@", " at ").replace(".", " dot ").replace("/", " slash ")
    return re.sub(r"\d+", lambda digits: f" {numbers.identifier(digits.group(0))} ", said)


def _pause(closing: str) -> str:
    """The strongest pause of some closing punctuation: the last mark that is one."""
    if "..." in closing:
        return "…"
    marks = [mark for mark in closing if mark in _PAUSES]
    for strong in "?!.":
        if strong in marks:
            return strong
    return marks[-1] if marks else ""


def _finish(said: str, pause: str) -> str:
    """Letters, apostrophes, hyphens inside words, inner full stops of abbreviations, pauses; everything else is a blank."""
    said = said.replace("’", "'").replace("‘", "'").replace("–", "-").replace("‑", "-").replace("−", "-")
    dotted = _DOTTED.search(said) is not None
    out: list[str] = []
    for index, character in enumerate(said):
        if _is_kept(character, said[index - 1 : index] if index else "", said[index + 1 : index + 2], dotted):
            out.append(character)
        elif character in SYMBOLS and character not in "$#°~<>":
            out.append(f" {SYMBOLS[character]} ")
        elif character.isdecimal():
            out.append(f" {numbers.cardinal(unicodedata.digit(character))} ")
        else:
            out.append(" ")
    said = " ".join("".join(out).split())
    if not any(character.isalpha() for character in said):
        return pause
    if pause == "." and said.endswith("."):
        return said
    return said.rstrip(",;:—") + pause if pause else said


def _is_kept(character: str, precedes: str, follows: str, dotted: bool) -> bool:
    """Whether a character may stay in the spoken form, between its neighbours; `dotted`: in letters with full stops."""
    if character.isalpha() or unicodedata.category(character) in ("Mn", "Mc"):
        return True
    if character == "'":
        return precedes.isalpha() or follows.isalpha()
    if character == "-":
        return precedes.isalpha() and follows.isalpha()
    if character == ".":
        return dotted and precedes.isalpha()
    return character in _PAUSES and precedes.isalpha() and follows in ("", " ")
