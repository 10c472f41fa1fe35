"""Damage with a sense of structure: what comes out is nearly right, so that it gets far in.

Bytes that were bitten at random fail at the first brace. So JSON is changed as a tree, with parts
of other trees; a stream as events whose data is JSON; a frame with checksums that are right.
"""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from tests.support.converse import raw_frame

Json: TypeAlias = Any

ODD: Final[tuple[Json, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    -1.5,
    1e308,
    2**31,
    2**53 + 1,
    2**64,
    10**30,
    "",
    " ",
    "\x00",
    "é\ud83d",
    "\u2028",
    "‮",
    "a" * 70,
    "user",
    "assistant",
    "system",
    "tool",
    "developer",
    "text",
    "{}",
    "{",
    "null",
    "c1",
    "call_1",
    "http://127.0.0.1/x",
    "data:image/png;base64,AAAA",
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"type": "text", "text": "x"},
)
"""Values that somebody may have thought of, and some that nobody did."""


def bitten(body: bytes, chance: random.Random) -> bytes:
    """Return `body` with one to four bites taken, repeated, swapped or made up."""
    for _ in range(chance.randint(1, 4)):
        a, b = sorted(chance.choices(range(len(body) + 1), k=2))
        match chance.randrange(5):
            case 0:
                body = body[:a]
            case 1:
                body = body[:a] + body[b:]
            case 2:
                body = body[:b] + body[a:b] + body[b:]
            case 3:
                body = body[:a] + bytes(chance.choices(range(256), k=3)) + body[a:]
            case _:
                events = body.split(b"\n\n")
                chance.shuffle(events)
                body = b"\n\n".join(events)
    return body


def places(tree: Json) -> list[tuple[Any, Any]]:
    """Return every place inside a tree: what holds it, and under which key or index."""
    found, open_ones = [], [tree]
    while open_ones:
        held = open_ones.pop()
        match held:
            case dict():
                inner: Sequence[tuple[Any, Any]] = list(held.items())
            case list():
                inner = list(enumerate(held))
            case _:
                continue
        found += [(held, key) for key, _ in inner]
        open_ones += [value for _, value in inner]
    return found


def changed(tree: Json, chance: random.Random, others: Sequence[Json]) -> Json:
    """Return a copy of a tree with one to four places changed, some by parts of `others`."""
    tree = copy.deepcopy(tree)
    for _ in range(chance.randint(1, 4)):
        inside = places(tree)
        if not inside:
            return chance.choice(ODD)
        held, key = chance.choice(inside)
        match chance.randrange(9):
            case 0:
                del held[key]
            case 1:
                held[key] = copy.deepcopy(chance.choice(ODD))
            case 2 | 3:
                held[key] = copy.deepcopy(_like(key, chance, others))
            case 4 if isinstance(held, list):
                held.insert(chance.randint(0, len(held)), copy.deepcopy(held[key]))
            case 5 if isinstance(held, list):
                other = chance.randrange(len(held))
                held[key], held[other] = held[other], held[key]
            case 6 if isinstance(held, dict):
                held[_name(chance, others)] = copy.deepcopy(chance.choice(ODD))
            case 7:
                held[key] = chance.choice([[held[key]], {"text": held[key]}, str(held[key])])
            case _:
                held[key] = _near(held[key], chance)
    return tree


def _like(key: object, chance: random.Random, others: Sequence[Json]) -> Json:
    """Return what stands under the same name in another tree, or anything of it."""
    inside = places(chance.choice(others))
    alike = [(held, name) for held, name in inside if name == key]
    if not inside:
        return chance.choice(ODD)
    held, name = chance.choice(alike or inside)
    return held[name]


def _name(chance: random.Random, others: Sequence[Json]) -> str:
    names = [name for _, name in places(chance.choice(others)) if isinstance(name, str)]
    return chance.choice(names or ["x"])


def _near(value: Json, chance: random.Random) -> Json:
    """Return a value of the same kind, a little beside."""
    match value:
        case bool():
            return not value
        case int() | float():
            return chance.choice([value + 1, -value, value * 1000, str(value)])
        case str():
            at = chance.randint(0, len(value))
            return chance.choice([value[:at], value + value, value[:at] + "\n" + value[at:], "x"])
        case _:
            return value


def written(tree: Json, chance: random.Random) -> bytes:
    """Return a tree as JSON: mostly plain, at times escaped, spaced, or bitten."""
    text = json.dumps(
        tree,
        ensure_ascii=chance.random() < 0.5,
        indent=1 if chance.random() < 0.1 else None,
    ).encode("utf-8", "surrogatepass")
    return bitten(text, chance) if chance.random() < 0.03 else text


Part: TypeAlias = tuple[bytes, Json]
"""What stands before an event's data, and the data, parsed where it is JSON."""


def parts_of_events(body: bytes) -> list[Part]:
    """Return a stream of server-sent events as its events."""
    parts = []
    for event in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        head, mark, data = event.partition(b"data:")
        parts.append((head + mark, _tree(data)) if mark else (event, None))
    return parts


def parts_of_lines(body: bytes) -> list[Part]:
    """Return lines of JSON, each without anything before it."""
    return [(b"", _tree(line)) for line in body.split(b"\n") if line.strip()]


def _tree(data: bytes) -> Json:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace").strip()


def shuffled(
    parts: list[Part], chance: random.Random, others: Sequence[list[Part]]
) -> Iterator[Part]:
    """Yield parts of a stream: some gone, twice, elsewhere, of another stream, or changed."""
    trees = [tree for other in others for _, tree in other if isinstance(tree, dict)]
    parts = list(parts)
    for _ in range(chance.randint(0, 3)):
        if not parts:
            break
        at, to = chance.randrange(len(parts)), chance.randrange(len(parts))
        match chance.randrange(5):
            case 0:
                del parts[at]
            case 1:
                parts.insert(to, parts[at])
            case 2:
                parts[at], parts[to] = parts[to], parts[at]
            case 3:
                parts[to:to] = chance.choice(others)[:3]
            case _:
                parts = parts[:at]
    rate = chance.choice([0.0, 0.02, 0.1, 0.5])
    for head, tree in parts:
        if trees and isinstance(tree, dict) and chance.random() < rate:
            yield head, changed(tree, chance, trees)
        else:
            yield head, tree


def events_of(parts: Iterator[Part], chance: random.Random) -> bytes:
    """Write parts as server-sent events, with the line ends and comments that the form allows."""
    end = chance.choice([b"\n", b"\n", b"\r\n", b"\r"])
    pieces = [b"\xef\xbb\xbf" if chance.random() < 0.05 else b""]
    for head, tree in parts:
        if chance.random() < 0.05:
            pieces.append(b": ping" + end + end)
        data = tree if isinstance(tree, str) else _dumped(tree)
        text = data.encode("utf-8", "surrogatepass")
        told = head + b" " + text if head.endswith(b"data:") else head
        pieces.append(told.replace(b"\n", end) + end + end)
    return b"".join(pieces)


def lines_of(parts: Iterator[Part], chance: random.Random) -> bytes:
    """Write parts as lines of JSON."""
    end = chance.choice([b"\n", b"\r\n"])
    return b"".join(_dumped(tree).encode("utf-8", "surrogatepass") + end for _, tree in parts)


def _dumped(tree: Json) -> str:
    return json.dumps(tree, ensure_ascii=False)


def parts_of_frames(body: bytes) -> list[Part]:
    """Return an event stream of AWS as its frames: headers as they are, the payload parsed."""
    parts: list[Part] = []
    at = 0
    while at + 16 <= len(body):
        size, headers = struct.unpack(">II", body[at : at + 8])
        if size < 16 or at + size > len(body):
            break
        inner = body[at + 12 : at + size - 4]
        parts.append((inner[:headers], _tree(inner[headers:])))
        at += size
    return parts


def frames_of(parts: Iterator[Part], chance: random.Random) -> bytes:
    """Write parts as frames whose checksums are right, at times with headers that are not."""
    pieces = []
    for headers, tree in parts:
        if chance.random() < 0.03:
            headers = bitten(headers, chance)
        pieces.append(raw_frame(_dumped(tree).encode("utf-8", "surrogatepass"), headers))
    return b"".join(pieces)


Form: TypeAlias = tuple[
    Callable[[bytes], list[Part]], Callable[[Iterator[Part], random.Random], bytes]
]
EVENTS: Final[Form] = (parts_of_events, events_of)
LINES: Final[Form] = (parts_of_lines, lines_of)
FRAMES: Final[Form] = (parts_of_frames, frames_of)
