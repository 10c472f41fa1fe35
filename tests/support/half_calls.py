"""Answers that end inside the arguments of a call, in every dialect that there is.

Where a dialect sends arguments in pieces, the last piece is short. Where it sends a call whole, the
bytes themselves end in it, and whatever comes behind them begins a line of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final

from tests.support import chat_stream as chat
from tests.support import converse
from tests.support import gemini_stream as gemini
from tests.support import interactions_stream as steps
from tests.support import messages_stream as messages
from tests.support import responses_stream as items
from tests.support.transcripts import TYPES

ARGUMENTS: Final = '{"city":"Oslo"}'
TOOL: Final = "get_weather"


class Way(Enum):
    """What follows the last byte of the arguments."""

    CLEAN = auto()
    """The connection is closed in good order."""
    MARKER = auto()
    """The mark at the end of every answer, and no word on how it ended."""
    LENGTH = auto()
    """The provider says that it stopped at its limit."""
    RESET = auto()
    """The connection breaks."""


def content_type(dialect: str) -> str:
    return TYPES[{"bedrock": ".bin", "ollama": ".ndjson"}.get(dialect, ".sse")]


def half_answer(dialect: str, *, calls: int, length: int, way: Way) -> bytes:
    """Return an answer whose last call has `length` characters of its arguments, ended in a way.

    The calls before it are whole.
    """
    make = MAKERS.get(dialect, _chat)
    return make([*[ARGUMENTS] * (calls - 1), ARGUMENTS[:length]], way)


def _chat(given: list[str], way: Way) -> bytes:
    calls = b"".join(chat.call(n, f"c{n}", TOOL, *part) for n, part in enumerate(given))
    ends = {Way.MARKER: chat.DONE, Way.LENGTH: chat.chunk(finish="length") + chat.DONE}
    return calls + ends.get(way, b"")


def _responses(given: list[str], way: Way) -> bytes:
    events = [items.created()]
    for n, part in enumerate(given):
        events += items.call(n, f"c{n}", TOOL, *part)
    events.pop()  # the last call is never said to be done
    if way is Way.LENGTH:
        details = {"reason": "max_output_tokens"}
        events.append(items.ended("incomplete", incomplete_details=details))
    return items.wire(events) + (chat.DONE if way is Way.MARKER else b"")


def _messages(given: list[str], way: Way) -> bytes:
    calls = [messages.call(n, f"c{n}", TOOL, *part) for n, part in enumerate(given)]
    stop = messages.event("content_block_stop", index=len(given) - 1)
    # At its limit this provider closes the block all the same.
    ends = {Way.MARKER: messages.STOP, Way.LENGTH: stop + messages.end("max_tokens")}
    return messages.start() + b"".join(calls).removesuffix(stop) + ends.get(way, b"")


def _converse(given: list[str], way: Way) -> bytes:
    calls = [converse.call(n, f"c{n}", TOOL, *part) for n, part in enumerate(given)]
    stop = converse.stop(len(given) - 1)
    length = stop + converse.end("max_tokens") + converse.metadata()
    ends = {Way.MARKER: converse.metadata(), Way.LENGTH: length}
    return converse.start() + b"".join(calls).removesuffix(stop) + ends.get(way, b"")


def _interactions(given: list[str], way: Way) -> bytes:
    events = [steps.created()]
    for n, part in enumerate(given):
        events += steps.call(n, f"c{n}", TOOL, *part)
    events.pop()
    if way is Way.LENGTH:
        events.append(steps.ended("incomplete"))
    body = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)
    return body + (chat.DONE if way is Way.MARKER else b"")


def _gemini(given: list[str], way: Way) -> bytes:
    calls = (gemini.chunk(gemini.call(TOOL, json.loads(ARGUMENTS))) for _ in given)
    usage = gemini.event({"usageMetadata": gemini.COUNTS})
    ends = {Way.MARKER: b"\r\n\r\n" + usage, Way.LENGTH: b"\r\n\r\n" + gemini.end("MAX_TOKENS")}
    return _cut(calls, given[-1]) + ends.get(way, b"")


def _ollama(given: list[str], way: Way) -> bytes:
    def line(message: object, **more: object) -> bytes:
        return (
            json.dumps({"model": "m", "message": message, "done": False, **more}).encode() + b"\n"
        )

    function = {"name": TOOL, "arguments": json.loads(ARGUMENTS)}
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}
    last: dict[str, object] = {"role": "assistant", "content": ""}
    ends = {
        Way.MARKER: b"\n" + line(last, done=True),
        Way.LENGTH: b"\n" + line(last, done=True, done_reason="length"),
    }
    return _cut((line(call) for _ in given), given[-1]) + ends.get(way, b"")


def _cut(calls: Iterable[bytes], part: str) -> bytes:
    """Return the calls up to where the arguments of the last one have only come to `part`."""
    *before, last = calls
    spelled = json.dumps(json.loads(ARGUMENTS)).encode()
    spaces = len(part) > ARGUMENTS.index(":")  # the wire has one behind the colon
    return b"".join(before) + last[: last.index(spelled) + len(part) + spaces]


MAKERS: Final[dict[str, Callable[[list[str], Way], bytes]]] = {
    "openai-responses": _responses,
    "anthropic": _messages,
    "bedrock": _converse,
    "gemini": _gemini,
    "gemini-interactions": _interactions,
    "ollama": _ollama,
}
"""Every other dialect is one of Chat Completions."""
