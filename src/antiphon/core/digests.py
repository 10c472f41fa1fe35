"""Digests: what makes content immutable, comparable and safe to keep after erasure.

Every digest is BLAKE2b with 32 bytes, written as 64 hexadecimal characters. Digests of
what people said are keyed per tenant, so that a digest that stays after an erasure cannot
be guessed by trying likely texts. A domain word keeps digests of different things apart.
"""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from functools import lru_cache
from typing import Final, Protocol

from antiphon.core.ids import Digest
from antiphon.errors import InvalidInput

NO_KEY: Final = b""
"""For what is the same for everybody: adapters, profiles, rules."""

CHARACTERS: Final = 64
_FRAME: Final = CHARACTERS.to_bytes(8, "big").decode()

MAX_JSON_DEPTH: Final = 128
LONGEST_INT: Final = 640  # digits; no setting of the interpreter refuses so few
_IN_FULL: Final = 10**21
"""Whole numbers below it are written in full: ECMAScript's rule, as in RFC 8785."""

_write_text: Final = json.JSONEncoder(ensure_ascii=False).encode


class Hasher(Protocol):
    """A running digest that can be forked, so that a long prefix is hashed once."""

    def update(self, data: bytes, /) -> None:
        """Take `data` in."""

    def copy(self) -> Hasher:
        """Return one that stands where this one stands."""

    def hexdigest(self) -> str:
        """Return the digest of what was taken in so far."""


@lru_cache(maxsize=256)
def _begun(key: bytes, domain: str) -> hashlib.blake2b:
    """Return the digest of nothing: to take the key in is half the work of a short digest."""
    return hashlib.blake2b(key=key, digest_size=32, person=domain.encode()[:16])


def hasher(key: bytes, domain: str) -> Hasher:
    """Return a running digest for `domain`; `key` is the tenant's, or `NO_KEY`."""
    return _begun(key, domain).copy()


def digest(key: bytes, domain: str, *parts: bytes) -> Digest:
    """Return the digest of `parts`; their borders count, so ("ab", "c") is not ("a", "bc").

    Example:
        >>> digest(NO_KEY, "x", b"ab", b"c") == digest(NO_KEY, "x", b"a", b"bc")
        False
    """
    whole = _begun(key, domain).copy()
    whole.update(framed(*parts))
    return Digest(whole.hexdigest())


def framed(*parts: bytes) -> bytes:
    """Return `parts` one behind the other, each behind its length: what a digest is made of.

    Whoever digests thousands of things alike frames once what they have in common.
    """
    return b"".join([piece for part in parts for piece in (len(part).to_bytes(8, "big"), part)])


def fold(key: bytes, so_far: Digest | None, own: Digest) -> Digest:
    """Return the digest of a path that ends in `own`, from the digest of the path before it.

    With it a path of any length costs one step per new message.
    """
    before = so_far or ""
    whole = _begun(key, "path").copy()
    if len(before) == len(own) == CHARACTERS:  # as in all steps but the first of each path
        whole.update(f"{_FRAME}{before}{_FRAME}{own}".encode())
    else:
        whole.update(framed(before.encode(), own.encode()))
    return Digest(whole.hexdigest())


def canonical_json(value: object) -> str:
    """Return the one JSON text for `value`: RFC 8785, but numbers keep their exact value.

    RFC 8785 would round numbers to doubles, and two different payments could then be taken
    for the same call. Here 1.0 and 1 are equal and 0.1 stays 0.1, at any length. Floats are
    taken at their shortest decimal form.

    Raises:
        InvalidInput: The value is no JSON value (NaN, a set), or nested deeper than 128.

    Example:
        >>> canonical_json({"b": Decimal("1.50"), "a": [True, None, "é"]})
        '{"a":[true,null,"é"],"b":1.5}'
    """
    pieces: list[str] = []
    _write(value, pieces, 0)
    return "".join(pieces)


def parse_exact(text: str) -> object:
    """Return the JSON value of `text` with numbers kept exact (int or `Exact`).

    Raises:
        InvalidInput: The text is not JSON, has a key twice, or is nested too deep.
    """
    try:
        return _read_exact(text)
    except RecursionError:
        raise InvalidInput("The JSON text is nested too deep.", code="too_deep") from None
    except ValueError as error:
        raise InvalidInput(f"Not JSON: {error}", code="invalid_json") from None


class Exact(Decimal):
    """A number of a JSON text, digit for digit, that reads in a sentence as any other number."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return it as it is written."""
        return str(self)


def _exact(text: str) -> Exact:
    try:
        return Exact(text)
    except ArithmeticError:
        raise ValueError("an exponent is out of every range") from None


def _whole(text: str) -> int | Exact:
    # Python reads no int of more than a few thousand digits from text; a Decimal takes them all.
    return int(text) if len(text) <= LONGEST_INT else Exact(text)


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is no JSON value")


def _unique_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return result


_read_exact: Final = json.JSONDecoder(
    parse_float=_exact,
    parse_int=_whole,
    parse_constant=_no_constant,
    object_pairs_hook=_unique_pairs,
).decode


def _write(value: object, out: list[str], depth: int) -> None:
    if depth > MAX_JSON_DEPTH:
        raise InvalidInput("The value is nested too deep.", code="too_deep")
    match value:
        case None:
            out.append("null")
        case bool():
            out.append("true" if value else "false")
        case str():
            out.append(_write_text(value))
        case int() if abs(value) < _IN_FULL:
            out.append(str(value))
        case int() | float() | Decimal():
            out.append(_number(value))
        case dict():
            out.append("{")
            # RFC 8785 sorts names by UTF-16 code units, which differs from code points.
            for position, name in enumerate(sorted(value, key=_utf16)):
                out.append("," if position else "")
                out.append(_write_text(name))
                out.append(":")
                _write(value[name], out, depth + 1)
            out.append("}")
        case list() | tuple():
            out.append("[")
            for position, item in enumerate(value):
                out.append("," if position else "")
                _write(item, out, depth + 1)
            out.append("]")
        case _:
            raise InvalidInput(f"{type(value).__name__} is no JSON value.", code="invalid_json")


def _utf16(name: object) -> bytes:
    if not isinstance(name, str):
        raise InvalidInput("A name in a JSON object is a string.", code="invalid_json")
    return name.encode("utf-16-be", "surrogatepass")


def _number(value: float | Decimal) -> str:
    exact = value if isinstance(value, Decimal) else Decimal(repr(value))
    if not exact.is_finite():
        raise InvalidInput("A number has to be finite.", code="invalid_json")
    sign, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    stripped = text.rstrip("0")
    exponent += len(text) - len(stripped)
    if not stripped:
        return "0"
    mark = "-" if sign else ""
    point = len(stripped) + exponent
    # Between 1e-6 and 1e21 in full, else with an exponent.
    if len(stripped) <= point <= 21:
        return mark + stripped + "0" * (point - len(stripped))
    if 0 < point <= 21:
        return f"{mark}{stripped[:point]}.{stripped[point:]}"
    if -6 < point <= 0:
        return f"{mark}0.{'0' * -point}{stripped}"
    fraction = f".{stripped[1:]}" if len(stripped) > 1 else ""
    return f"{mark}{stripped[0]}{fraction}e{point - 1:+d}"
