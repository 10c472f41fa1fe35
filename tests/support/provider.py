"""A provider at the engine's transport port, scripted step by step.

It stands where the HTTP client stands, so a test decides what arrives and when, with no socket
and no sleep. Whether the real client tells the truth about sockets is tested beside it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from antiphon.core.manifest import WireRequest
from antiphon.engine.ports import Cut, NotSent, Reply


@dataclass(slots=True)
class Hold:
    """Stop here until `go` is set; `reached` tells the test that it has come so far."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Status:
    """Answer with this status and these headers."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)


Step: TypeAlias = bytes | Hold | Status | Cut | NotSent | BaseException


def chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "chatcmpl-1", "choices": [choice]}).encode() + b"\n\n"


def usage(given: int, made: int) -> bytes:
    tokens = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
    return b"data: " + json.dumps({"choices": [], "usage": tokens}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def says(*words: str, finish: str = "stop") -> list[Step]:
    """Return the steps of a whole streamed answer."""
    return [*(chunk({"content": word}) for word in words), chunk({}, finish), usage(10, 5), DONE]


def asks(*calls: tuple[str, str, str]) -> list[Step]:
    """Return the steps of an answer that asks for tools: (id, name, arguments) each."""
    pieces: list[Step] = []
    for index, (call_id, name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": ""}
        opened = {"index": index, "id": call_id, "type": "function", "function": function}
        pieces.append(chunk({"tool_calls": [opened]}))
        for letter in arguments:
            part = {"index": index, "function": {"arguments": letter}}
            pieces.append(chunk({"tool_calls": [part]}))
    return [*pieces, chunk({}, "tool_calls"), usage(20, 9), DONE]


class ScriptedProvider:
    """Answers each request with the next script and records what it was sent.

    Holds and cuts at the start of a script come before the head of the answer; a `Status` or
    bytes begin it.
    """

    def __init__(self, *scripts: Sequence[Step]) -> None:
        self.scripts = list(scripts)
        self.requests: list[WireRequest] = []
        self.keys: list[str | None] = []
        self.closed = 0

    @property
    def bodies(self) -> list[bytes]:
        return [request.body for request in self.requests]

    def messages(self, number: int = -1) -> list[dict[str, object]]:
        found: list[dict[str, object]] = json.loads(self.bodies[number])["messages"]
        return found

    async def send(
        self,
        request: WireRequest,
        *,
        api_key: str | None,
        connect_timeout_s: float,
        on_written: Callable[[], None],
    ) -> Reply:
        assert self.scripts, f"nobody expected this request: {request.body!r}"
        steps = list(self.scripts.pop(0))
        if steps and isinstance(steps[0], NotSent):
            raise steps[0]
        self.requests.append(request)
        self.keys.append(api_key)
        on_written()
        while steps and isinstance(steps[0], Hold | Cut):
            await _take(steps.pop(0))
        head = steps.pop(0) if steps and isinstance(steps[0], Status) else Status(200)
        assert isinstance(head, Status)
        return _Scripted(self, head, steps)

    async def close(self) -> None:
        pass


async def _take(step: Step) -> None:
    if isinstance(step, Hold):
        step.reached.set()
        await step.go.wait()
    elif isinstance(step, BaseException):
        raise step


class _Scripted:
    def __init__(self, provider: ScriptedProvider, status: Status, steps: list[Step]) -> None:
        self._provider = provider
        self._steps = steps
        self.status = status.status
        self.headers = {"content-type": "text/event-stream", **status.headers}

    async def chunks(self) -> AsyncIterator[bytes]:
        for step in self._steps:
            if isinstance(step, bytes):
                yield step
            else:
                await _take(step)

    async def close(self) -> None:
        self._provider.closed += 1
