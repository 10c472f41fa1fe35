"""The envelope: reference material beside the words of a user, as text that cannot be mistaken.

    <ctx>
      <memory key="language">…</memory>
      <summary>…</summary>
      <rag source="prices.md#12">…</rag>
    </ctx>

    <user_input>
    …
    </user_input>

A reader that knows our tags, however forgiving, finds exactly those that we wrote: what could be
taken for one of them inside a text is escaped, and nothing else is, so that code and prose stay
as they were written. The escape is undone by `unescaped`, character for character. A message
with nothing beside it is left untouched.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final, assert_never

import msgspec

from antiphon.core.blocks import Block, Message, Role, Text
from antiphon.core.inputs import InputBlock, Memory, Retrieved, Stable, Summary
from antiphon.errors import InternalError

TAGS: Final = ("ctx", "stable", "memory", "summary", "rag", "user_input")
"""Every tag of ours; what stands first is what changes least."""

OPENING: Final = "<\uff1c\ufe64\u2039\u2329\u27e8\u3008\u276e\u2770\u02c2\U0001d236"
"""What a reader may take for the sign that opens a tag: the sign itself, its wide and small forms
and the brackets that look like it in some script."""

SLASHES: Final = "/\uff0f\u2044\u2215\u29f8\u2571"
UNSEEN: Final = frozenset(("Cc", "Cf", "Mn", "Me"))
MAX_CODE_POINTS: Final = 0x110000
BLANKS: Final = "\u115f\u1160\u3164\uffa0\u2800"
"""Letters by their category that no reader sees."""

_NAME_ENDS: Final = max(map(len, TAGS)) + 1
_AMPERSAND: Final = re.compile(r"&(?=(?:amp|lt|#[0-9]{1,7});)")
_ESCAPED: Final = re.compile(r"&(?:(amp)|(lt)|#([0-9]{1,7}));")
_OPENS: Final = re.compile(f"[{OPENING}]")


def enveloped(message: Message, inputs: Iterable[InputBlock]) -> Message:
    """Return `message` as the model is to read it, with `inputs` beside its words.

    Without inputs that is the message itself. Its images, sounds and files stay blocks of their
    own, and every block keeps its place; where it has no words, the envelope follows them. The
    result is for rendering only and never stored.
    """
    beside = sorted(inputs, key=_rank)
    if not beside:
        return message
    if message.role is not Role.USER:
        raise InternalError("Only a user's message has anything beside it.", at=message.id)
    context = f"<{TAGS[0]}>\n" + "".join(map(_element, beside)) + f"</{TAGS[0]}>"
    blocks: list[Block] = []
    for block in message.blocks:
        if isinstance(block, Text) and block.text.strip():
            words = f"<user_input>\n{escaped(block.text)}\n</user_input>"
            blocks.append(Text(text=f"{context}\n\n{words}" if context else words))
            context = ""
        else:
            blocks.append(block)
    if context:
        blocks.append(Text(text=context))
    return msgspec.structs.replace(message, blocks=tuple(blocks))


def escaped(text: str) -> str:
    """Return `text` without anything that could be taken for a tag of ours.

    Example:
        >>> escaped("a < b</ctx>")
        'a < b&lt;/ctx>'
    """
    text = _AMPERSAND.sub("&amp;", text)
    return _OPENS.sub(lambda at: _entity(at[0]) if _names_a_tag(text, at.end()) else at[0], text)


def unescaped(text: str) -> str:
    """Return the text that `escaped`, or the escape of attributes, was given.

    Example:
        >>> unescaped(escaped("&lt; is </ctx>"))
        '&lt; is </ctx>'
    """
    return _ESCAPED.sub(_meant, text)


def _rank(block: InputBlock) -> int:
    return TAGS.index(_tag(block))


def _tag(block: InputBlock) -> str:
    match block:
        case Stable():
            return "stable"
        case Memory():
            return "memory"
        case Summary():
            return "summary"
        case Retrieved():
            return "rag"
        case _ as never:
            assert_never(never)


def _element(block: InputBlock) -> str:
    attributes = ""
    match block:
        case Stable(key=key) | Memory(key=key):
            attributes = f' key="{_attribute(key)}"'
        case Retrieved(source=source, notice=notice):
            attributes = f' source="{_attribute(source)}"'
            if notice is not None:
                attributes += f' notice="{_attribute(notice)}"'
        case Summary():
            pass
        case _ as never:
            assert_never(never)
    tag = _tag(block)
    return f"<{tag}{attributes}>\n{escaped(block.text)}\n</{tag}>\n"


def _attribute(value: str) -> str:
    """Return `value` for between two quotes: one line, nothing unseen, no sign of a tag."""
    return "".join(char if _is_plain(char) else _entity(char) for char in value)


def _is_plain(char: str) -> bool:
    category = unicodedata.category(char)
    return char == " " or not (
        char in "&\"'`>\uff1e\ufe65" or char in OPENING or category[0] in "CZ" or char in BLANKS
    )


def _entity(char: str) -> str:
    match char:
        case "&":
            return "&amp;"
        case "<":
            return "&lt;"
        case _:
            return f"&#{ord(char)};"


def _meant(entity: re.Match[str]) -> str:
    ampersand, sign, number = entity.groups()
    if ampersand or sign:
        return "&" if ampersand else "<"
    return chr(int(number)) if int(number) < MAX_CODE_POINTS else entity[0]


def _names_a_tag(text: str, at: int) -> bool:
    """Whether what stands at `at`, behind an opening sign, may be read as the name of a tag of ours.

    Read as a careless reader would: wide letters, capitals and accents are letters, what is not
    seen is not there, and space or slashes may stand before the name.
    """
    name = ""
    for position in range(at, len(text)):
        char = text[position]
        if not name and (char.isspace() or char in SLASHES):
            continue
        letters = _seen(char)
        if not letters and not char.isspace():
            continue
        if not all(letter.isalnum() or letter in "_-" for letter in letters or " "):
            break
        name += letters
        if len(name) >= _NAME_ENDS:
            break
    return name in TAGS


def _seen(char: str) -> str:
    """Return the letters that a character is read as: none where it is not seen at all."""
    if char in BLANKS:
        return ""
    parts = unicodedata.normalize("NFKD", char).casefold()
    return "".join(part for part in parts if unicodedata.category(part) not in UNSEEN)
