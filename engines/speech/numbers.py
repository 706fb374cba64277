"""Numbers as English words: cardinals, ordinals, years, decimals, digit by digit."""

from __future__ import annotations

_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("zero", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES = ("", "thousand", "million", "billion", "trillion", "quadrillion", "quintillion")
_IRREGULAR = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_LARGEST_DIGITS = 18
"""Longer numbers are read digit by digit."""


def cardinal(value: int) -> str:
    """42 -> "forty-two"; 1250 -> "one thousand two hundred fifty"."""
    if value < 0:
        return "minus " + cardinal(-value)
    if len(str(value)) > _LARGEST_DIGITS:
        return digits(str(value))
    groups: list[str] = []
    for scale in _SCALES:
        value, part = divmod(value, 1000)
        if part:
            groups.append(f"{_below_thousand(part)} {scale}".strip())
        if not value:
            break
    return " ".join(reversed(groups)) or "zero"


def _below_thousand(value: int) -> str:
    hundreds, rest = divmod(value, 100)
    words = [f"{_ONES[hundreds]} hundred"] if hundreds else []
    if rest:
        words.append(_below_hundred(rest))
    return " ".join(words)


def _below_hundred(value: int) -> str:
    if value < 20:
        return _ONES[value]
    tens, ones = divmod(value, 10)
    return f"{_TENS[tens]}-{_ONES[ones]}" if ones else _TENS[tens]


def ordinal(value: int) -> str:
    """21 -> "twenty-first"."""
    words = cardinal(value)
    cut = max(words.rfind(" "), words.rfind("-")) + 1
    last = words[cut:]
    if last in _IRREGULAR:
        last = _IRREGULAR[last]
    elif last.endswith("y"):
        last = last[:-1] + "ieth"
    else:
        last += "th"
    return words[:cut] + last


def year(value: int) -> str:
    """1984 -> "nineteen eighty-four"; 2005 -> "two thousand five"; 1900 -> "nineteen hundred"."""
    high, low = divmod(value, 100)
    if not 1100 <= value <= 9999 or (high % 10 == 0 and low < 10):
        return cardinal(value)
    if low == 0:
        return f"{_below_hundred(high)} hundred"
    return f"{_below_hundred(high)} {'oh ' if low < 10 else ''}{_below_hundred(low)}"


def digits(text: str) -> str:
    """ "407" -> "four zero seven"; what is no digit is left out."""
    return " ".join(_ONES[int(character)] for character in text if character in "0123456789")


def decimal(text: str) -> str:
    """A plain number as written ("1,250", "3.14", "-2", ".5", "007") in words."""
    sign = "minus " if text[:1] in "-−" else ""
    whole, point, fraction = text.lstrip("-−+").replace(",", "").partition(".")
    if len(whole) > 1 and whole[0] == "0" and not fraction:
        return sign + digits(whole)
    words = cardinal(int(whole)) if whole else ""
    if point and fraction:
        words = f"{words} point {digits(fraction)}".strip()
    return sign + words


def plural(word: str) -> str:
    """The plural of a number word: "ninety" -> "nineties", "hundred" -> "hundreds"."""
    if word.endswith("y"):
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("x", "s")) else "s")


def identifier(text: str) -> str:
    """Digits in a name, as people read them: "4090" -> "forty ninety", "320" -> "three twenty", "5" -> "five"."""
    if text[0] == "0" or len(text) > 4:
        return digits(text)
    value = int(text)
    if len(text) <= 2 or value % 100 == 0:
        return year(value) if len(text) == 4 else cardinal(value)
    high, low = divmod(value, 100)
    return f"{cardinal(high)} {'oh ' if low < 10 else ''}{cardinal(low)}"
