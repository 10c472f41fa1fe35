"""A call whose arguments come in pieces, as Vertex streams them: a path and a value at a time.

Only who sets `streamFunctionCallArguments` gets them. A piece names its place by a JSON Path of names
and numbers; a string may come in several pieces, each of which but the last says that it goes on.
What contradicts itself is refused: a call that was put together by guessing would run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, TypeAlias

import msgspec

MOST_STEPS: Final = 100
"""Deeper than this nobody nests the arguments of a tool."""

STEP: Final = re.compile(
    r"""\.(?P<name>[^.\[\]'"]+)|\[(?P<at>\d{1,9})\]|\[(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]"""
)

Step: TypeAlias = str | int
Holder: TypeAlias = dict[str, Any] | list[Any]

_encode: Final = msgspec.json.Encoder().encode


class Piece(msgspec.Struct, rename="camel"):
    """A piece of a call's arguments: where it belongs, and one value."""

    json_path: str = ""
    string_value: str | None = None
    number_value: msgspec.Raw = msgspec.Raw()
    bool_value: bool | None = None
    null_value: str | None = None
    will_continue: bool | None = None


class Contradiction(ValueError):
    """The pieces of a call do not fit together."""


class StreamedCall:
    """A call that is still open, and the arguments that have come."""

    def __init__(self, block: int, call_id: str | None, name: str, begun: bytes) -> None:
        self.block, self.call_id, self.name = block, call_id, name
        self.size_bytes = 0
        self._root: dict[str, Any] = (
            msgspec.json.decode(begun, type=dict[str, msgspec.Raw] | None) or {}
        )
        self._going_on: tuple[Step, ...] | None = None  # the string that is to be gone on with

    def take(self, piece: Piece) -> None:
        """Put one piece where it belongs.

        Raises:
            Contradiction: There is no such place, or something else stands there.
        """
        steps = tuple(_steps(piece.json_path))
        holder: Holder = self._root
        for step, below in pairwise(steps):
            listed = isinstance(below, int)
            if not _holds(holder, step):
                _put(holder, step, [] if listed else {})
            holder = _inside(holder, step, listed=listed)
        if steps == self._going_on and piece.string_value is not None:
            holder[steps[-1]].append(piece.string_value)  # type: ignore[index]  # it was put there
        elif _holds(holder, steps[-1]) or self._going_on is not None:
            raise Contradiction(f"{piece.json_path} came where something else was to go on.")
        else:
            _put(holder, steps[-1], _value(piece))
        self._going_on = steps if piece.will_continue and piece.string_value is not None else None

    def arguments(self) -> str:
        """Return the arguments as JSON, every number as it was spelled.

        Raises:
            Contradiction: A string was to go on, and did not.
        """
        if self._going_on is not None:
            raise Contradiction("A string was to go on, and the call ended.")
        return _encode(_joined(self._root)).decode()


class _Text(list[str]):
    """A string in its pieces."""


def _steps(path: str) -> Iterator[Step]:
    """Yield the steps of a path below its root; there is at least one, as arguments are an object."""
    if not path.startswith("$") or len(path) == 1:
        raise Contradiction(f"{path!r} is no place in the arguments of a call.")
    at, taken = 1, 0
    while at < len(path):
        step = STEP.match(path, at)
        taken += 1
        if step is None or taken > MOST_STEPS:
            raise Contradiction(f"{path!r} is no place in the arguments of a call.")
        at = step.end()
        if step["at"] is not None:
            yield int(step["at"])
        else:
            yield step["name"] or re.sub(r"\\(.)", r"\1", step["quoted"][1:-1])


def _holds(holder: Holder, step: Step) -> bool:
    """Return whether something stands there already."""
    if isinstance(holder, list):
        return isinstance(step, int) and step < len(holder)
    return step in holder


def _put(holder: Holder, step: Step, value: object) -> None:
    match holder, step:
        case list(), int() if step == len(holder):
            holder.append(value)
        case dict(), str():
            holder[step] = value
        case _:
            raise Contradiction(f"{step!r} is no next place in what came before.")


def _inside(holder: Holder, step: Step, *, listed: bool) -> Holder:
    """Return what stands at a step, opened if it came whole."""
    inner = holder[step]  # type: ignore[index]  # `_holds` or `_put` has seen that they fit
    if isinstance(inner, msgspec.Raw):
        shape = list[msgspec.Raw] if listed else dict[str, msgspec.Raw]
        try:
            inner = msgspec.json.decode(inner, type=shape)
        except msgspec.ValidationError:
            inner = None
        holder[step] = inner  # type: ignore[index]
    if type(inner) is not (list if listed else dict):
        raise Contradiction(f"Something else than was said stands at {step!r}.")
    return inner


def _value(piece: Piece) -> object:
    given: list[object] = []
    if piece.string_value is not None:
        given.append(_Text([piece.string_value]))
    if piece.bool_value is not None:
        given.append(piece.bool_value)
    if piece.null_value is not None:
        given.append(None)
    number = bytes(piece.number_value)
    if number not in (b"", b"null"):
        if number[:1] not in b"-0123456789":
            raise Contradiction(f"The number at {piece.json_path} is none.")
        given.append(msgspec.Raw(number))
    if len(given) != 1:
        raise Contradiction(f"The piece at {piece.json_path} holds {len(given)} values.")
    return given[0]


def _joined(value: object) -> object:
    match value:
        case _Text():
            return "".join(value)
        case list():
            return [_joined(item) for item in value]
        case dict():
            return {name: _joined(inner) for name, inner in value.items()}
        case _:
            return value
