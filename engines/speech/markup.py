"""Taking the markup out of a chat model's text: what stays is what a person would read aloud from the page."""

from __future__ import annotations

import html
import re
import unicodedata

_FENCE = re.compile(r"(?:```|~~~)[^\n]*\n.*?(?:\n[ \t]*(?:```|~~~)|\Z)|```.*?(?:```|\Z)", re.DOTALL)
_INLINE_CODE = re.compile(r"`+([^`\n]*)`*")
_IMAGE_OR_LINK = re.compile(r"!?\[([^\]\[]*)\](?:\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*(?:\s+\"[^\"]*\")?\)|\[[^\]\[]*\])")
_FOOTNOTE = re.compile(r"\[\^[^\]\s]*\]:?")
_REFERENCE = re.compile(r"^[ \t]{0,3}\[[^\]\n]+\]:[ \t]*\S+.*$", re.MULTILINE)
_CHECKBOX = re.compile(r"^([ \t]*[-*+][ \t]+)\[[ xX]\][ \t]+", re.MULTILINE)
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)?[^<>\s]+[.@][^<>\s]+)>")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_TAG = re.compile(r"</?[a-zA-Z][^<>\n]*>")
_RULE = re.compile(r"^[ \t]*(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}|(?:=[ \t]*){3,})$", re.MULTILINE)
_TABLE_RULE = re.compile(r"^[ \t]*\|?(?:[ \t]*:?-{2,}:?[ \t]*\|)+[ \t]*(?::?-{2,}:?)?[ \t]*\n?", re.MULTILINE)
_TABLE_ROW = re.compile(r"^[ \t]*\|(.*)\|[ \t]*$", re.MULTILINE)
_HEADING = re.compile(r"^[ \t]{0,3}#{1,6}[ \t]+|[ \t]+#{2,6}[ \t]*$", re.MULTILINE)
_QUOTE = re.compile(r"^(?:[ \t]{0,3}>[ \t]?)+", re.MULTILINE)
_BULLET = re.compile(r"^([ \t]*)[-*+•◦▪‣·–][ \t]+(?=\S)", re.MULTILINE)
_NUMBERED = re.compile(r"(\n[ \t]*)\d{1,2}[.)][ \t]+(?=\S)")
_STRONG = re.compile(r"\*{2,}|_{2,}|~{2,}")
_STAR = re.compile(r"(?<![\d\s])\*(?!\d)|\*(?![\s\d])|^\*|\*$")
_UNDERSCORE = re.compile(r"(?<!\w)_+|_+(?!\w)")
_ESCAPE = re.compile(r"\\([\\`*_{}\[\]()#+\-.!|~>$])")
_MATH = re.compile(r"\\[()\[\]]|\$\$")
_LATEX = re.compile(r"\\[a-zA-Z]+\*?")
_LINE_END = re.compile(r"[ \t]*\n\s*")


def strip_markup(text: str) -> str:
    """Plain text from Markdown (also a piece of it, with markers left open), HTML and LaTeX remains.

    Code blocks, images' addresses, table rules and comments vanish; links leave their text, lists their items, each item
    or heading ends like a sentence. Leading and trailing blanks survive, so that pieces can be joined.
    """
    text = _clean_characters(text)
    before, text, after = _outer_blanks(text)
    for pattern, replacement in (
        (_FENCE, " "),
        (_COMMENT, " "),
        (_REFERENCE, ""),
        (_FOOTNOTE, ""),
        (_CHECKBOX, r"\1"),
        (_IMAGE_OR_LINK, r"\1"),
        (_AUTOLINK, r"\1"),
        (_TAG, ""),
        (_RULE, ""),
        (_TABLE_RULE, ""),
    ):
        text = pattern.sub(replacement, text)
    text = _TABLE_ROW.sub(lambda row: ", ".join(cell.strip() for cell in row.group(1).split("|") if cell.strip()) + ".", text)
    text = html.unescape(text)
    text = _HEADING.sub("", _QUOTE.sub("", text))
    text = _BULLET.sub(r"\1", text)
    text = _NUMBERED.sub(r"\1", text)
    text = _MATH.sub(" ", _ESCAPE.sub(r"\1", text))
    text = _LATEX.sub(lambda command: " ", text)
    text = _INLINE_CODE.sub(r"\1", text)
    text = _UNDERSCORE.sub("", _STAR.sub("", _STRONG.sub("", text)))
    text = _LINE_END.sub(_sentence_break, text.strip("\n")).strip()
    text = re.sub(r"[ \t]{2,}", " ", text)
    return before + text + after if text else before or after


def _sentence_break(end: re.Match[str]) -> str:
    """A line's end: a sentence's end where a block ended without one."""
    previous = end.string[: end.start()].rstrip()[-1:]
    if "\n" in end.group(0).strip(" \t") and end.group(0).count("\n") > 1:
        return " " if previous in '.!?…:;,"”)—' or not previous else ". "
    return " " if previous in ".!?…:;,—-" or end.string[end.end() : end.end() + 1].islower() else ", "


def _outer_blanks(text: str) -> tuple[str, str, str]:
    """The text without its outer white space, and whether there was some (as one space each)."""
    inner = text.strip()
    if not inner:
        return (" " if text else ""), "", ""
    return (" " if text[0].isspace() else ""), _keep_first_line_break(text), (" " if text[-1].isspace() else "")


def _keep_first_line_break(text: str) -> str:
    """The stripped text, with the line break before it kept: it tells that a list marker may follow."""
    head = text[: len(text) - len(text.lstrip())]
    return ("\n" if "\n" in head else "") + text.strip()


def _clean_characters(text: str) -> str:
    """Without control, format (zero width, byte order) and surrogate characters; all blanks are spaces or line ends."""
    normal = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", " ").replace("\u2028", "\n").replace("\u2029", "\n\n")
    kept = []
    for character in normal:
        category = unicodedata.category(character)
        if character == "\n" or category[0] != "C":
            kept.append(" " if category == "Zs" else character)
        elif category == "Cf" and character == "\u200d":
            kept.append(character)  # joins emoji; the spoken form drops them together
    return "".join(kept)
