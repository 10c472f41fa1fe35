"""A request out of what people paste: a curl command, a line of a log, Python's way of writing it.

Where the request stands in the text as it is sent, everything around it becomes blanks, so that
each line and column of it stays what the person sees. How it is judged is not known here.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from typing import Final

CURL: Final = re.compile(r"(?:^|[\s;&|$`(])curl(?:\.exe)?\s")
DATA: Final = re.compile(r"""\s(?:--data(?:-raw|-binary|-ascii)?|--json|-d)(?:\s+|=)?(?=[$'"@{])""")
ANSI_C: Final = {"n": "\n", "t": "\t", "r": "\r", "'": "'", '"': '"', "\\": "\\"}
"""What stands behind a backslash in `$'…'`, as browsers copy a request."""

OBJECT: Final = re.compile(r"\{(?=\s*([\"']))")
JSON_BEGINS: Final = re.compile(r"\s*(?:\{\s*\"|\[\s*[\[{\"])")

SIGNS: Final = re.compile(r"""\\?["'{}]|\\\\""")
"""What opens and closes, and what escapes it: a backslash that is escaped itself escapes nothing."""

MAX_TRIES: Final = 64
"""How many braces of a text are tried as the beginning of a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A request in a text.

    Attributes:
        text: The text to judge: the request as JSON.
        what: One sentence: where it was found.
    """

    text: str
    what: str


def found_in(text: str) -> Found | str | None:
    """Return the request that a text which is no JSON holds.

    A sentence is returned where the text says that the request stands somewhere else, and None
    where nothing in it looks like one.
    """
    if CURL.search(text) and (data := DATA.search(text)):
        at = data.end()
        if text[at] == "@" or text[at + 1 : at + 2] == "@":
            name = re.match(r"""['"]?@([^\s'"]+)""", text[at:])
            if name is not None and name[1] != "-":
                return f"This command sends the file {name[1]}: lint that one."
        elif (body := _quoted(text, at)) is not None and body.lstrip().startswith("{"):
            return Found(text=body, what="what this curl command sends")
    return _inside(text)


def _inside(text: str) -> Found | None:
    """Return the first object of a text, as JSON or as Python writes it.

    JSON that breaks off or has a fault is returned as well: its reader says where.
    """
    if JSON_BEGINS.match(text):
        return None  # all of it means to be JSON
    decoder = json.JSONDecoder()
    for tries, brace in enumerate(OBJECT.finditer(text)):
        if tries == MAX_TRIES:
            break
        begin = brace.start()
        if brace[1] == "'":
            python = _python(text, begin)
            if python is not None:
                return Found(text=python, what="the request in it, written anew as JSON")
            continue
        try:
            _, end = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError):
            end = _end_of_braces(text, begin) or len(text)
        return Found(text=_blank(text[:begin]) + text[begin:end], what="the request in it")
    return None


def _python(text: str, begin: int) -> str | None:
    """Return a dictionary that Python printed, as JSON."""
    end = _end_of_braces(text, begin)
    if end is None:
        return None
    try:
        value = ast.literal_eval(text[begin:end])
        return json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _end_of_braces(text: str, begin: int) -> int | None:
    """Return where the brace that opens at `begin` is closed, strings left aside."""
    depth, quote = 0, ""
    for found in SIGNS.finditer(text, begin):
        sign = found[0]
        if quote:
            quote = "" if sign == quote else quote  # what is escaped is longer than a quote
        elif sign[-1] in "'\"":
            quote = sign[-1]
        elif sign[-1] == "{":
            depth += 1
        elif sign[-1] == "}":
            depth -= 1
            if depth == 0:
                return found.end()
    return None


def _quoted(text: str, at: int) -> str | None:
    """Return a word of a shell at its place, its quotes and all before it as blanks."""
    made = [_blank(text[:at])]
    while at < len(text) and not text[at].isspace():
        if text.startswith("$'", at):
            body, at = _until(text, at + 2, "'", escapes=True)
            made.append("  " + body)
        elif text[at] in "'\"":
            body, at = _until(text, at + 1, text[at], escapes=False)
            made.append(" " + body if not "".join(made).strip() else body)
        elif text[at] == "\\":
            made.append(text[at + 1 : at + 2])
            at += 2
        else:
            made.append(text[at])
            at += 1
        if at > len(text):
            return None
    return "".join(made)


def _until(text: str, at: int, quote: str, *, escapes: bool) -> tuple[str, int]:
    """Return what stands before the closing quote, and the place behind that.

    The place is past the end where the quote is never closed.
    """
    made: list[str] = []
    while at < len(text) and text[at] != quote:
        sign = text[at]
        follows = text[at + 1 : at + 2]
        if sign == "\\" and escapes:
            if follows == "u":
                made.append(text[at : at + 6])  # JSON reads it as the shell does
                at += 6
                continue
            made.append(ANSI_C.get(follows, sign + follows))
            at += 2
        elif sign == "\\" and quote == '"' and follows in tuple('"\\$`\n'):
            made.append("" if follows == "\n" else follows)
            at += 2
        else:
            made.append(sign)
            at += 1
    return "".join(made), at + 1 if at < len(text) else len(text) + 1


def _blank(text: str) -> str:
    """Return blanks that take the same place, line by line."""
    return re.sub(r"[^\n]", " ", text)
