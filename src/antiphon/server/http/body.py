"""Bodies and queries: decoded strictly into a type, once, with the place of what does not fit."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from antiphon.engine.engine import Engine
from antiphon.errors import InvalidInput

T = TypeVar("T")

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}]', re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what our own resources take: a field that does not exist is a mistake."""


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of queries."""


def engine_of(request: Request) -> Engine:
    """Return the engine that the application serves."""
    engine = request.app.state.engine
    assert isinstance(engine, Engine)
    return engine


async def decoded(request: Request, kind: type[T]) -> T:
    """Return the body as `kind`.

    Raises:
        InvalidInput: `at` is the place in the body.
    """
    data = await request.body()
    check_depth(data, engine_of(request).world.settings.max_json_depth)
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        told = misfit(error)
    raise told


def queried(request: Request, kind: type[T]) -> T:
    """Return the query as `kind`; words become numbers and flags where it says so."""
    given = request.query_params.multi_items()
    names = {name for name, _ in given}
    if len(given) != len(names):
        raise InvalidInput("Each parameter is given once.", at=given[-1][0])
    nothing = next((name for name, value in given if value.lower() == "null"), None)
    if nothing is not None:  # it would be taken for the lack of a value
        raise InvalidInput("What is not meant is left out.", at=nothing)
    try:
        return msgspec.convert(dict(given), kind, strict=False)
    except msgspec.ValidationError as error:
        told = misfit(error)
    raise told


def misfit(error: Exception) -> InvalidInput:
    """Return what a decoder said as an error of ours, with its place."""
    if not isinstance(error, msgspec.ValidationError):
        return InvalidInput(f"The body is not JSON: {error}.", code="bad_json")
    message, _, place = str(error).partition(" - at `")
    at = place.rstrip("`").removeprefix("$").lstrip(".") or None
    unknown = _UNKNOWN.match(message)
    if unknown is not None:
        at = f"{at}.{unknown[1]}" if at else unknown[1]
        return InvalidInput("There is no such field.", code="unknown_field", at=at)
    return InvalidInput(f"{message}.", at=at)


def check_depth(data: bytes, most: int) -> None:
    """Refuse JSON nested deeper than `most`; what reads it later would run out of stack.

    Raises:
        InvalidInput: `body_too_deep`.
    """
    if data.count(b"[") + data.count(b"{") <= most:
        return
    depth = 0
    for token in _TOKEN.finditer(data):
        match token[0]:
            case b"[" | b"{":
                depth += 1
                if depth > most:
                    raise InvalidInput(
                        f"The body is nested deeper than {most} levels.", code="body_too_deep"
                    )
            case b"]" | b"}":
                depth -= 1
            case _:
                pass


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:  # noqa: ANN401 - anything that msgspec can write
    """Return `value` as JSON."""
    return Response(
        msgspec.json.encode(value),
        status_code=status,
        media_type="application/json",
        headers=headers,
    )
