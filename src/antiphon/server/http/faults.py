"""What goes wrong, as HTTP: a status for each of our errors, a body for each API.

The OpenAI and Anthropic SDKs try again by themselves on 408, 409, 429 and 5xx. Where trying
again cannot help, or may do a thing twice, the answer says `x-should-retry: false`. After a
provider's definite no that may pass nothing is done twice: then the same request begins anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from antiphon.core.rules.reasons import REASONS
from antiphon.errors import (
    AntiphonError,
    Conflict,
    Forbidden,
    InternalError,
    InvalidInput,
    NotDurable,
    NotFound,
    OutcomeUnknown,
    ProviderFailed,
    Refused,
    RunCanceled,
    SequenceRejected,
    StoreLocked,
    Unauthorized,
)
from antiphon.server.http.edge import answering

log = logging.getLogger("antiphon.server")

STATUS_OF_CODE: Final = MappingProxyType(
    {
        "body_too_large": 413,
        "file_too_large": 413,
        "body_timeout": 408,
        "not_json": 415,
        "encoding_not_supported": 415,
        "host_not_allowed": 421,
        "method_not_allowed": 405,
        "conversation_paused": 503,
        "queue_full": 429,
        "model_busy": 429,
        "rate_limited": 429,
        "too_many_at_once": 429,
        "budget_exhausted": 429,
        # The database's trouble is no fault of ours: another node may answer, or this one soon.
        "database_unreachable": 503,
        "too_many_connections": 503,
        "store_busy": 503,
        "commit_unknown": 503,
        "content_missing": 410,
        "content_erased": 410,
        "conversation_erased": 410,
        # The caller's mistake, not a race: the same request is wrong whoever comes first.
        "missing_tool_result": 400,
        "orphan_tool_result": 400,
        "duplicate_tool_result": 400,
    }
)
"""Codes whose status is not that of their class."""

UNREAD: Final = frozenset({"body_too_large", "body_timeout"})
"""Codes of requests whose body is not read to its end: nothing can follow on the connection."""

LONGEST_PLACE: Final = 200

STATUS_OF_CLASS: Final[tuple[tuple[type[AntiphonError], int], ...]] = (
    (Unauthorized, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (Conflict, 409),
    (Refused, 400),
    (OutcomeUnknown, 424),
    (RunCanceled, 409),
    (StoreLocked, 503),
    (NotDurable, 503),
)

OPENAI: Final = "/v1/"
ANTHROPIC: Final = "/v1/messages"

OVERLOADED: Final = 529
"""What Anthropic says where it has no room; the others say 503."""

BUSY: Final = frozenset({429, 503, OVERLOADED})
BUSY_CODES: Final = MappingProxyType(
    {
        "overloaded": 503,
        "overloaded_error": 503,
        "rate_limit_error": 429,
        "rate_limit_exceeded": 429,
    }
)
"""Words for it of providers that had begun to answer, and so had no status left to say it with."""

LONGEST_WAIT_S: Final = 3600


def status_of(error: AntiphonError, path: str = OPENAI) -> int:
    """Return the HTTP status of an error at a path.

    A provider that is busy, and would be asked again by who talks to it, is told as such.
    """
    if isinstance(error, ProviderFailed):
        said = error.status if error.status in BUSY else BUSY_CODES.get(error.code)
        if said is None or not error.retryable:
            return HTTPStatus.BAD_GATEWAY
        if said == HTTPStatus.TOO_MANY_REQUESTS:
            return said
        return OVERLOADED if path.startswith(ANTHROPIC) else HTTPStatus.SERVICE_UNAVAILABLE
    known = STATUS_OF_CODE.get(error.code)
    if known is not None:
        return known
    return next((status for kind, status in STATUS_OF_CLASS if isinstance(error, kind)), 500)


def headers_of(error: AntiphonError, scope: Scope) -> dict[str, str]:
    """Return the headers that tell an SDK, or a browser, what to do about an error."""
    status = status_of(error, scope["path"])
    if isinstance(error, ProviderFailed):
        # Under a key of its own the same request finds the same run, however often it comes.
        kept = "idempotency-key" in Headers(scope=scope)
        told = {"x-should-retry": "true" if error.retryable and not kept else "false"}
        if status in BUSY:
            told["retry-after"] = str(min(max(1, error.retry_after_s or 1), LONGEST_WAIT_S))
        return told
    if status == HTTPStatus.UNAUTHORIZED:
        return {"www-authenticate": "Bearer"}
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        after_s = error.retry_after_s if isinstance(error, Conflict) else None
        told = {"retry-after": str(after_s or 1)}
        # Nobody should wait for tomorrow with the connection open.
        spent = error.code == "budget_exhausted"
        return {**told, "x-should-retry": "false"} if spent else told
    if status == HTTPStatus.SERVICE_UNAVAILABLE and isinstance(error, Conflict):
        return {"retry-after": "5"}
    if error.code in UNREAD:
        return {"connection": "close"}
    if isinstance(error, Conflict | OutcomeUnknown | RunCanceled):
        return {"x-should-retry": "false"}
    return {}


class RepairTold(msgspec.Struct, frozen=True, kw_only=True):
    """One change that would help a broken history, and the rule that asks for it."""

    change: str
    reason: str
    at: str
    call_id: str


class OpenAIError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wrong, in the words of OpenAI's API, with what of ours helps beside them."""

    message: str
    type: str
    param: str | None
    code: str | None
    fix: str | None = None
    repairs: tuple[RepairTold, ...] = ()


class OpenAIErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """Every error under `/v1/`."""

    error: OpenAIError


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One rule that a history breaks, and where."""

    code: str
    at: str | None
    message: str


class Error(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wrong. `retryable`: whether the same request may succeed later, unchanged."""

    code: str
    message: str
    at: str | None
    retryable: bool
    request_id: str
    findings: tuple[Finding, ...] = ()
    fix: str | None = None
    repairs: tuple[RepairTold, ...] = ()


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """Every error under `/antiphon/v1/`."""

    error: Error


def _place(error: AntiphonError) -> str | None:
    """Return the place of an error, no longer than anybody would read: it may be what was sent."""
    return error.at and error.at[:LONGEST_PLACE]


def _fix(error: AntiphonError) -> str | None:
    """Return what helps, where a rule was broken."""
    broken = isinstance(error, SequenceRejected) and error.code in REASONS
    return REASONS[error.code].remedy if broken else None


def _repairs(error: AntiphonError) -> tuple[RepairTold, ...]:
    """Return what a repair would do, where it would help."""
    found = error.repairs if isinstance(error, SequenceRejected) else ()
    return tuple(msgspec.convert(one, RepairTold, from_attributes=True) for one in found)


def _hint(error: AntiphonError) -> str:
    """Return how the same request can be answered: the message is all that most clients show."""
    repairs = _repairs(error)
    if not repairs:
        return ""
    more = f" and {len(repairs) - 1} more" if len(repairs) > 1 else ""
    return (
        " With the header Antiphon-Repair: on it is answered after repairs: "
        f"{repairs[0].change} at {repairs[0].at}{more}."
    )


def openai_error(error: AntiphonError) -> OpenAIError:
    """Return the error in OpenAI's words; also for an error event inside a stream."""
    status = status_of(error)
    match status:
        case 401:
            kind = "authentication_error"
        case 403:
            kind = "permission_error"
        case 429:
            kind = "rate_limit_error"
        case status if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            kind = "server_error"
        case _:
            kind = "invalid_request_error"
    return OpenAIError(
        message=error.message + _hint(error),
        type=kind,
        param=_place(error),
        code=error.code,
        fix=_fix(error),
        repairs=_repairs(error),
    )


class AnthropicError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wrong, in the words of Anthropic's API, with what of ours helps beside them.

    The message begins with the code, since it is all that most clients show.
    """

    type: str
    message: str
    code: str
    at: str | None
    fix: str | None = None
    repairs: tuple[RepairTold, ...] = ()


class AnthropicErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """Every error of `/v1/messages`."""

    error: AnthropicError
    request_id: str
    type: str = "error"


ANTHROPIC_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    OVERLOADED: "overloaded_error",
}


def anthropic_error(error: AntiphonError) -> AnthropicError:
    """Return the error in Anthropic's words."""
    status = status_of(error, ANTHROPIC)
    usual = "api_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    place = f" (at {_place(error)})" if error.at else ""
    return AnthropicError(
        type=ANTHROPIC_TYPES.get(status, usual),
        message=f"{error.code}: {error.message}{place}{_hint(error)}",
        code=error.code,
        at=_place(error),
        fix=_fix(error),
        repairs=_repairs(error),
    )


def error_shape(path: str) -> type[OpenAIErrorBody | AnthropicErrorBody | ErrorBody]:
    """Return the type of the bodies of errors at a path."""
    if path.startswith(ANTHROPIC):
        return AnthropicErrorBody
    return OpenAIErrorBody if path.startswith(OPENAI) else ErrorBody


def error_body(
    error: AntiphonError, path: str, request_id: str
) -> OpenAIErrorBody | AnthropicErrorBody | ErrorBody:
    """Return the body of an error, in the shape of the API that was asked."""
    shape = error_shape(path)
    if shape is AnthropicErrorBody:
        return AnthropicErrorBody(error=anthropic_error(error), request_id=request_id)
    if shape is OpenAIErrorBody:
        return OpenAIErrorBody(error=openai_error(error))
    findings = error.findings if isinstance(error, SequenceRejected) else ()
    return ErrorBody(
        error=Error(
            code=error.code,
            message=error.message,
            at=_place(error),
            retryable=error.retryable,
            request_id=request_id,
            findings=tuple(Finding(code=f.code, at=f.at, message=f.message) for f in findings),
            fix=_fix(error),
            repairs=_repairs(error),
        )
    )


def fault(scope: Scope, error: AntiphonError, headers: dict[str, str] | None = None) -> Response:
    """Return the whole answer for an error."""
    body = error_body(error, scope["path"], scope.get("state", {}).get("request_id", ""))
    return Response(
        msgspec.json.encode(body),
        status_code=status_of(error, scope["path"]),
        media_type="application/json",
        headers={**headers_of(error, scope), **(headers or {})},
    )


def _routing_fault(request: Request, error: HTTPException) -> Response:
    """Return the answer for what the router says: no such path, or not by this method."""
    told: AntiphonError
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(sorted(_methods(request)))
        told = InvalidInput(
            f"{request.url.path} does not take {request.method}.", code="method_not_allowed"
        )
    elif error.status_code == HTTPStatus.NOT_FOUND:
        words = f"There is nothing at this path.{_meant(request)}"
        told = NotFound(words, code="not_found", at=request.url.path)
    else:
        told = InvalidInput(error.detail, code="bad_request")
    return fault(request.scope, told, headers)


def _meant(request: Request) -> str:
    """Return a hint where a client's base URL has one `/v1` too few or too many.

    Clients of Chat Completions are given it with the `/v1`, those of Messages without.
    """
    path = request.url.path
    for meant, wrong in ((f"/v1{path}", "lacks the /v1"), (path[3:], "has a /v1 too many")):
        served = any(isinstance(r, Route) and r.path == meant for r in request.app.routes)
        if served and (path.startswith("/v1/v1/") or not path.startswith("/v1/")):
            return f" The base URL of your client {wrong}: {meant} is served."
    return ""


def _methods(request: Request) -> set[str]:
    """Return every method that the path takes; the router tells of one route's only.

    A path that is written out is no id, though it would fit where one stands.
    """
    path = request.url.path
    routes = [r for r in request.app.routes if isinstance(r, Route) and r.path_regex.match(path)]
    exact = [route for route in routes if route.path == path]
    return {method for route in exact or routes for method in route.methods or ()}


class Faults:
    """Turns whatever is raised further in into an answer, and never tells more than it should."""

    def __init__(
        self, app: ASGIApp, *, refused: Callable[[AntiphonError], None] = lambda error: None
    ) -> None:
        self._app = app
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer within, or for what is raised there."""
        try:
            await self._app(scope, receive, send)
        except AntiphonError as error:
            self._refused(error)
            if isinstance(error, InternalError):
                _note(error, scope)
            if answering(scope).begun:
                raise Broken from None
            await fault(scope, error)(scope, receive, send)
        except HTTPException as error:
            if answering(scope).begun:
                raise Broken from None
            await _routing_fault(Request(scope), error)(scope, receive, send)
        except ClientDisconnect:
            # In the middle of its request: nothing was begun, and nobody reads the answer.
            told = InvalidInput("The request broke off.", code="request_broken_off")
            await fault(scope, told)(scope, receive, send)
        except Exception as error:  # noqa: BLE001 - the outermost frame: a bug is a 500 and a line in the log
            if not isinstance(error, Broken):
                _note(error, scope)
            if answering(scope).begun:
                raise Broken from None
            ours = InternalError("A fault of ours; the log has it under this request's id.")
            await fault(scope, ours)(scope, receive, send)


class Broken(Exception):
    """The answer had begun and cannot be ended in good order: the connection is cut instead."""


def _note(error: Exception, scope: Scope) -> None:
    """Log where a bug is. Messages of exceptions may hold what users said, so none is logged."""
    frames: list[str] = []
    at: Any = error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        frames.append(f"{code.co_filename}:{at.tb_lineno} {code.co_name}")
        at = at.tb_next
    log.error(
        "fault",
        extra={
            "fields": {
                "request_id": scope.get("state", {}).get("request_id"),
                "error": type(error).__name__,
                "frames": frames[-8:],
            }
        },
    )
