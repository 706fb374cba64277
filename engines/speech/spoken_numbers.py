"""How a written word with digits in it is said: money, times, dates, years, ranges, phone numbers, units, model names."""

from __future__ import annotations

import re
from collections.abc import Callable

from . import numbers
from .wordlists import CURRENCIES, FRACTIONS, MAGNITUDES, MONTH_NAMES, MONTHS, ONLY_ATTACHED_UNITS, SYMBOLS, UNITS

_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*\.\d+|\d+"
_SIGN = r"[-−+]?"
_CURRENCY = "|".join(re.escape(sign) for sign in sorted(CURRENCIES, key=len, reverse=True))
_UNIT = "|".join(re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True))

_PLAIN = re.compile(rf"({_SIGN})({_NUMBER})")
_ORDINAL = re.compile(r"(\d[\d,]*)(?:st|nd|rd|th)", re.I)
_DECADE = re.compile(r"'?(\d{2}|\d{4})'?s")
_MONEY = re.compile(rf"([-−]?)({_CURRENCY})({_NUMBER})(k|K|m|M|mn|b|B|bn)?")
_MONEY_AFTER = re.compile(rf"({_NUMBER})({_CURRENCY})")
_PERCENT = re.compile(rf"({_SIGN})({_NUMBER})(?:[-–]({_NUMBER}))?%")
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?([ap]\.?m\.?)?", re.I)
_HOUR = re.compile(r"(\d{1,2})([ap]\.?m\.?)", re.I)
_DATE = re.compile(r"(\d{1,2})[/.](\d{1,2})[/.](\d{4}|\d{2})")
_ISO_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_FRACTION = re.compile(r"(\d{1,3})/(\d{1,3})")
_RANGE = re.compile(rf"({_CURRENCY})?({_NUMBER})[-–−]({_CURRENCY})?({_NUMBER})({_UNIT})?")
_RATIO = re.compile(r"(\d+):(\d+)")
_TIMES = re.compile(rf"({_NUMBER})[x×]({_NUMBER})")
_PHONE = re.compile(r"\+?\(?\d{1,4}\)?(?:[-.]\(?\d{2,4}\)?)+")
_DOTTED_VERSION = re.compile(r"v?\d+(?:\.\d+){2,}", re.I)
_MEASURE = re.compile(rf"({_SIGN})({_NUMBER})-?({_UNIT})")
_MARKED = re.compile(rf"([#~≈<>±+])({_NUMBER})")
_RUNS = re.compile(r"\d+|\D+")
_ANY_NUMBER = re.compile(rf"{_SIGN}(?:{_CURRENCY})?(?:{_NUMBER}).*")


def say_number(word: str, before: str = "", after: str = "") -> str:
    """A word with digits (outer punctuation removed) in words; `before` and `after` are its neighbours."""
    for pattern, rule in _RULES:
        match = pattern.fullmatch(word)
        if match:
            said = rule(match, before, after)
            if said is not None:
                return said
    return _mixed(word)


def say_unit(word: str, before: str) -> str | None:
    """A word that completes the number before it: a unit, the magnitude of an amount of money, am or pm; else None."""
    if not _ANY_NUMBER.fullmatch(before):
        return None
    currency = next((sign for sign in sorted(CURRENCIES, key=len, reverse=True) if before.lstrip("-−").startswith(sign)), None)
    if currency is not None:
        return f"{MAGNITUDES[word]} {CURRENCIES[currency][1]}" if word in MAGNITUDES else None
    if re.fullmatch(r"[ap]\.?m", word, re.I) and re.fullmatch(r"\d{1,2}(?::\d{2})?", before):
        return f"{word[0].upper()}.M."
    if word in UNITS and word not in ONLY_ATTACHED_UNITS:
        singular, plural = UNITS[word]
        return singular if before in ("1", "-1", "1.0") else plural
    return None


def _plain(match: re.Match[str], before: str, after: str) -> str | None:
    sign, number = match.groups()
    signed = {"-": "minus ", "−": "minus ", "+": "plus "}.get(sign, "")
    bare = number.replace(",", "")
    if not sign and number.isdigit():
        if before in MONTH_NAMES and len(number) <= 2 and 1 <= int(number) <= 31:
            return numbers.ordinal(int(number))
        if after in MONTH_NAMES and len(number) <= 2 and 1 <= int(number) <= 31:
            return f"the {numbers.ordinal(int(number))} of"
        if len(number) == 4 and 1100 <= int(number) <= 2099 and after not in UNITS:
            return numbers.year(int(number))
        if len(number) == 3 and re.fullmatch(r"\d{3}[-.]\d{4}", after):
            return numbers.digits(number) + ","  # an area code
        if len(number) >= 7 and not number.endswith("000"):
            return _in_groups(number)
    return signed + numbers.decimal(bare)


def _ordinal(match: re.Match[str], before: str, after: str) -> str | None:
    return numbers.ordinal(int(match.group(1).replace(",", "")))


def _decade(match: re.Match[str], before: str, after: str) -> str | None:
    value = int(match.group(1))
    words = numbers.year(value) if len(match.group(1)) == 4 else numbers.cardinal(value)
    head, _, last = words.rpartition(" ")
    return f"{head} {numbers.plural(last)}".strip()


def _money(match: re.Match[str], before: str, after: str) -> str | None:
    sign, currency, number, suffix = match.groups()
    minus = "minus " if sign else ""
    magnitude = MAGNITUDES.get(suffix or "")
    if magnitude:
        return f"{minus}{numbers.decimal(number)} {magnitude} {CURRENCIES[currency][1]}"
    if after in MAGNITUDES and len(after) > 2:
        return minus + numbers.decimal(number)  # "million dollars" is said for the next word
    return minus + _amount(number, currency)


def _amount(number: str, currency: str) -> str:
    one, many, cent, cents = CURRENCIES[currency]
    whole, _, fraction = number.replace(",", "").partition(".")
    if len(fraction) > 2 or (not cent and fraction):
        return f"{numbers.decimal(number)} {many}"
    units, hundredths = int(whole or 0), int(fraction.ljust(2, "0")) if fraction else 0
    said = f"{numbers.cardinal(units)} {one if units == 1 else many}"
    change = f"{numbers.cardinal(hundredths)} {cent if hundredths == 1 else cents}"
    if not hundredths:
        return said
    return change if not units else f"{said} and {change}"


def _money_after(match: re.Match[str], before: str, after: str) -> str | None:
    return _amount(match.group(1), match.group(2))


def _percent(match: re.Match[str], before: str, after: str) -> str | None:
    sign, first, second = match.groups()
    head = {"-": "minus ", "−": "minus ", "+": "plus "}.get(sign, "") + numbers.decimal(first)
    return f"{head} to {numbers.decimal(second)} percent" if second else f"{head} percent"


def _time(match: re.Match[str], before: str, after: str) -> str | None:
    hour, minute, second = int(match.group(1)), int(match.group(2)), match.group(3)
    half = match.group(4)
    if hour > 24 or minute > 59:
        return None
    if second is not None:
        parts = ((hour, "hour"), (minute, "minute"), (int(second), "second"))
        return " ".join(f"{numbers.cardinal(n)} {name}{'' if n == 1 else 's'}" for n, name in parts if n) or "zero"
    halved = half or re.fullmatch(r"[ap]\.?m", after, re.I)
    if minute == 0:
        words = numbers.cardinal(hour) + ("" if halved or hour > 12 or hour == 0 else " o'clock")
        words += " hundred" if not halved and (hour > 12 or hour == 0) else ""
    else:
        words = f"{numbers.cardinal(hour)} {'oh ' if minute < 10 else ''}{numbers.cardinal(minute)}"
    return f"{words} {half[0].upper()}.M." if half else words


def _hour(match: re.Match[str], before: str, after: str) -> str | None:
    return f"{numbers.cardinal(int(match.group(1)))} {match.group(2)[0].upper()}.M."


def _date(match: re.Match[str], before: str, after: str) -> str | None:
    first, second = int(match.group(1)), int(match.group(2))
    year = match.group(3)
    if len(year) == 2:
        year = ("19" if int(year) > 40 else "20") + year
    month, day = (first, second) if first <= 12 else (second, first)
    return _month_day_year(month, day, int(year))


def _iso_date(match: re.Match[str], before: str, after: str) -> str | None:
    year, month, day = (int(group) for group in match.groups())
    return _month_day_year(month, day, year)


def _month_day_year(month: int, day: int, year: int) -> str | None:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    return f"{list(MONTHS.values())[month - 1]} {numbers.ordinal(day)}, {numbers.year(year)}"


def _fraction(match: re.Match[str], before: str, after: str) -> str | None:
    above, below = int(match.group(1)), int(match.group(2))
    if match.group(0) == "24/7":
        return "twenty-four seven"
    if below in FRACTIONS and 0 < above < 100:
        one, many = FRACTIONS[below]
        return f"{numbers.cardinal(above)} {one if above == 1 else many}"
    return f"{numbers.cardinal(above)} over {numbers.cardinal(below)}"


def _range(match: re.Match[str], before: str, after: str) -> str | None:
    sign, first, sign_again, second, unit = match.groups()
    if _PHONE.fullmatch(match.group(0)) and len(re.sub(r"\D", "", match.group(0))) >= 7 and len(first) != 4:
        return None
    years = len(first) == 4 and len(second) in (2, 4) and not unit and first.isdigit() and 1100 <= int(first) <= 2099
    low = numbers.year(int(first)) if years else numbers.decimal(first)
    high = numbers.year(int(second)) if years and len(second) == 4 else numbers.decimal(second)
    tail = f" {CURRENCIES[sign or sign_again][1]}" if sign or sign_again else f" {UNITS[unit][1]}" if unit else ""
    return f"{low} to {high}{tail}"


def _ratio(match: re.Match[str], before: str, after: str) -> str | None:
    return f"{numbers.decimal(match.group(1))} to {numbers.decimal(match.group(2))}"


def _times(match: re.Match[str], before: str, after: str) -> str | None:
    return f"{numbers.decimal(match.group(1))} by {numbers.decimal(match.group(2))}"


def _phone(match: re.Match[str], before: str, after: str) -> str | None:
    digits = re.sub(r"\D", "", match.group(0))
    if len(digits) < 7:
        return None
    return ", ".join(numbers.digits(group) for group in re.findall(r"\d+", match.group(0)))


def _version(match: re.Match[str], before: str, after: str) -> str | None:
    parts = " point ".join(numbers.cardinal(int(part)) for part in re.findall(r"\d+", match.group(0)))
    return f"version {parts}" if match.group(0)[0] in "vV" else parts


def _measure(match: re.Match[str], before: str, after: str) -> str | None:
    sign, number, unit = match.groups()
    if unit == "K" and len(number) == 1:
        return None  # "4K video", "a 5K run"
    singular, plural = UNITS[unit]
    minus = {"-": "minus ", "−": "minus ", "+": "plus "}.get(sign, "")
    return f"{minus}{numbers.decimal(number)} {singular if number == '1' else plural}"


def _marked(match: re.Match[str], before: str, after: str) -> str | None:
    return f"{SYMBOLS[match.group(1)]} {numbers.decimal(match.group(2))}"


def _in_groups(digits: str) -> str:
    """A long run of digits, said in groups of three with a last one of four at most."""
    groups: list[str] = []
    while len(digits) > 4:
        groups.append(digits[:3])
        digits = digits[3:]
    return ", ".join(numbers.digits(group) for group in [*groups, digits])


def _mixed(word: str) -> str:
    """Letters and digits in turn ("MP3", "RTX4090", "B2B"), and whatever no rule knows."""
    said: list[str] = []
    for run in _RUNS.findall(word):
        if run.isascii() and run.isdigit():
            said.append(numbers.identifier(run))
        else:
            said.extend(_letters(run))
    return " ".join(part for part in said if part)


def _letters(run: str) -> list[str]:
    parts = re.split(r"([^\w'’]+|_)", run)
    return [SYMBOLS.get(part.strip(), "") if part and not part[0].isalpha() and not part[0].isdigit() else part for part in parts]


_RULES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], str, str], str | None]], ...] = (
    (_PLAIN, _plain),
    (_ORDINAL, _ordinal),
    (_DECADE, _decade),
    (_MONEY, _money),
    (_MONEY_AFTER, _money_after),
    (_PERCENT, _percent),
    (_TIME, _time),
    (_HOUR, _hour),
    (_ISO_DATE, _iso_date),
    (_DATE, _date),
    (_FRACTION, _fraction),
    (_RANGE, _range),
    (_PHONE, _phone),
    (_RATIO, _ratio),
    (_TIMES, _times),
    (_DOTTED_VERSION, _version),
    (_MEASURE, _measure),
    (_MARKED, _marked),
)
