"""Bytes as text, with the evidence for how they were read; what is no text is refused.

A byte order mark says it, then whoever brought the file, then UTF-8 says it of itself: other
encodings are hardly ever valid UTF-8. Only what is left is guessed, by how likely the text is.
"""

from __future__ import annotations

import codecs
import re
from typing import Final, NamedTuple

from antiphon.errors import InvalidInput

MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: its mark begins with that one's
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
GUESSED: Final = (
    "gb18030", "big5", "shift_jis", "euc_jp", "euc_kr", "cp1251", "koi8_r", "cp1252", "cp1250",
    "cp1253", "cp1255", "cp1256", "tis_620", "utf_16_le", "utf_16_be",
)  # fmt: skip
"""Encodings that people's files still come in; others have to be declared."""

KINDS: Final = (
    (b"%PDF-", "a PDF"),
    (b"PK\x03\x04", "a ZIP archive or an Office document"),
    (b"\x89PNG", "an image"),
    (b"\xff\xd8\xff", "an image"),
    (b"GIF8", "an image"),
    (b"\x1f\x8b", "a compressed file"),
    (b"\x7fELF", "a program"),
    (b"MZ\x90", "a program"),
    (b"\xd0\xcf\x11\xe0", "an old Office document"),
    (b"SQLite format 3", "a database"),
)
CONTROL: Final = frozenset(chr(code) for code in range(32)) - frozenset("\t\n\r\f\x1b")
LOOKED_AT: Final = 64 * 1024

_PAIRS: Final = re.compile(rb"[\x80-\xff][\x40-\xff]")
_SIGNS: Final = frozenset((0xA1, 0xA2, 0xA3))
"""Leading bytes of GB2312's punctuation, numbers and wide letters."""


class Decoded(NamedTuple):
    """A text, the encoding of its bytes, and how that is known."""

    text: str
    encoding: str
    evidence: str


def decode(data: bytes, *, declared: str | None = None, at: str | None = None) -> Decoded:
    """Return `data` as text.

    Args:
        data: The file.
        declared: The encoding that whoever brought it says.
        at: What the file is called, for errors.

    Raises:
        InvalidInput: `empty_file`; `not_text`, with the place of the first byte that says so; or
            `bad_encoding`: it is not what was declared.
    """
    if not data.strip(b" \t\r\n\0"):
        raise InvalidInput("The file is empty.", code="empty_file", at=at)
    for mark, kind in KINDS:
        if data.startswith(mark):
            raise InvalidInput(f"This is {kind}, not text.", code="not_text", at=at)
    decoded = _by_mark(data, at) or _as_declared(data, declared, at) or _as_utf8(data)
    if decoded is None:
        decoded = _guessed(data, at)
    _no_controls(decoded.text, at)
    if not decoded.text.strip():
        raise InvalidInput("The file holds no text.", code="empty_file", at=at)
    return decoded


def _by_mark(data: bytes, at: str | None) -> Decoded | None:
    for mark, encoding in MARKS:
        if data.startswith(mark):
            return Decoded(_strictly(data, encoding, at), encoding.removesuffix("-sig"), "bom")
    return None


def _as_declared(data: bytes, declared: str | None, at: str | None) -> Decoded | None:
    if declared is None:
        return None
    try:
        encoding = codecs.lookup(declared)
    except LookupError:
        encoding = None
    # Codecs of bytes to bytes, such as base64, are looked up in the same place.
    if encoding is None or not getattr(encoding, "_is_text_encoding", True):
        raise InvalidInput(
            "There is no encoding of this name.", code="bad_encoding", at=declared[:80]
        )
    return Decoded(_strictly(data, encoding.name, at), encoding.name, "declared")


def _as_utf8(data: bytes) -> Decoded | None:
    if b"\x1b$" in data:  # plain ASCII to the eye, and Japanese by its escapes
        try:
            return Decoded(data.decode("iso2022_jp"), "iso2022_jp", "escapes")
        except UnicodeDecodeError:
            pass
    try:
        return Decoded(data.decode("utf-8"), "utf-8", "utf-8")
    except UnicodeDecodeError:
        return None


def _is_common_chinese(data: bytes) -> bool:
    """Whether these are everyday Chinese characters in GB2312's order, as a few of them show.

    Its first level holds the 3,755 commonest ones, by their sound. Text in other encodings that
    can be read as GB18030 at all lands elsewhere, but for Korean, which ends where `p` begins.
    """
    try:
        data.decode("gb18030")
    except UnicodeDecodeError:
        return False
    pairs = [pair for pair in _PAIRS.findall(data) if pair[0] not in _SIGNS]
    common = [pair for pair in pairs if 0xB0 <= pair[0] <= 0xD7 and pair[1] >= 0xA1]
    late = sum(pair[0] > 0xC8 for pair in common)
    return len(common) >= 0.9 * len(pairs) and late >= 0.25 * len(pairs) > 0


def _guessed(data: bytes, at: str | None) -> Decoded:
    if _is_common_chinese(data):
        return Decoded(data.decode("gb18030"), "gb18030", "guessed")
    from charset_normalizer import from_bytes

    best = from_bytes(data[:LOOKED_AT], cp_isolation=[*GUESSED], threshold=0.3).best()
    if best is not None:
        try:
            return Decoded(data.decode(best.encoding), best.encoding, "guessed")
        except (UnicodeDecodeError, LookupError):
            pass
    raise InvalidInput(
        "These bytes are no text in an encoding that can be told. Declare it "
        "(text/plain; charset=…) or save the file as UTF-8.",
        code="not_text",
        at=at,
    )


def _strictly(data: bytes, encoding: str, at: str | None) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        place = error.start
    raise InvalidInput(
        f"The file is not valid {encoding}: byte {place} fits nowhere.", code="bad_encoding", at=at
    )


def _no_controls(text: str, at: str | None) -> None:
    place = next((n for n, char in enumerate(text) if char in CONTROL), None)
    if place is not None:
        raise InvalidInput(
            f"This is no text: character {place} is the control character {ord(text[place])}.",
            code="not_text",
            at=at,
        )
