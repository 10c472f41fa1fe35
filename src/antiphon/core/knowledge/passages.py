"""A text as passages: pieces that can be found, shown and named by themselves.

Cut where the writer cut: at headings first, then between paragraphs, and inside a paragraph only
where it is too long for one passage, between sentences if it has any. Short paragraphs under one
heading stay together. The same text gives the same passages, so their numbers are stable names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

MOST_CHARS: Final = 800
"""Longest passage: some two hundred words of English, or a page's third of Chinese."""

LONGEST_HEADING: Final = 200

_BLANK: Final = re.compile(r"\n[ \t\u3000]*\n+")
_HEADING: Final = re.compile(
    r"(?:#{1,6}[ \t]+(?P<marked>\S[^\n]*?)(?:[ \t]+#+)?"
    r"|(?P<under>[^\n]+)\n(?:=+|-{3,})"
    r"|(?P<part>第[0-9零〇一二三四五六七八九十百千]+[章节節条條回編部][^\n。]{0,60}))[ \t]*$"  # noqa: RUF001
)
_HEADING_LINES: Final = re.compile(r"^(#{1,6}[ \t]+\S[^\n]*)$", re.MULTILINE)
_SENTENCE_ENDS: Final = re.compile(r"(?<=[。！？；\n])|(?<=[.!?;])\s+")  # noqa: RUF001


class Piece(NamedTuple):
    """A passage as it was cut: the heading that it stands under, and its text."""

    heading: str
    text: str


def pieces(text: str, *, most_chars: int = MOST_CHARS) -> list[Piece]:
    r"""Return the passages of `text`, none longer than `most_chars`; none for a blank text.

    Example:
        >>> pieces("# Fees\n\nA berth costs nine crowns.")
        [Piece(heading='Fees', text='A berth costs nine crowns.')]
    """
    found: list[Piece] = []
    heading, bare, open_ones, size = "", False, list[str](), 0

    def close() -> None:
        nonlocal size
        if open_ones:
            found.append(Piece(heading, "\n\n".join(open_ones)))
            open_ones.clear()
        size = 0

    for paragraph in _paragraphs(text):
        named = _HEADING.fullmatch(paragraph)
        if named is not None and len(paragraph) <= LONGEST_HEADING:
            close()
            own = next(group for group in named.groups() if group is not None).strip()
            # A chapter's name with nothing under it but its parts' names belongs to all of them.
            heading, bare = (f"{heading} / {own}" if bare else own)[-LONGEST_HEADING:], True
            continue
        bare = False
        for part in _cut(paragraph, most_chars):
            if size and size + 2 + len(part) > most_chars:
                close()
            size += len(part) + (2 if open_ones else 0)
            open_ones.append(part)
    close()
    if bare:
        found.append(Piece("", heading))
    return found


def _paragraphs(text: str) -> Iterator[str]:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for block in _BLANK.split(text):
        # A heading with its text on the very next line is a paragraph of its own all the same.
        for part in _HEADING_LINES.split(block):
            if part.strip():
                yield part.strip("\n").rstrip()


def _cut(paragraph: str, most_chars: int) -> Iterator[str]:
    """Yield a paragraph in parts, between sentences, and within one that is too long by itself."""
    if len(paragraph) <= most_chars:
        yield paragraph
        return
    part = ""
    for sentence in _sentences(paragraph):
        if part and len(part) + len(sentence) > most_chars:
            yield part.strip()
            part = ""
        part += sentence
        while len(part) > most_chars:
            yield part[:most_chars]
            part = part[most_chars:]
    if part.strip():
        yield part.strip()


def _sentences(paragraph: str) -> Iterator[str]:
    """Yield the sentences of a paragraph, each with the space behind it."""
    at = 0
    for end in _SENTENCE_ENDS.finditer(paragraph):
        if end.end() > at:
            yield paragraph[at : end.end()]
            at = end.end()
    yield paragraph[at:]
