"""Requests that no client would send: to every parser, and through the doors of a server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.adapters import registry
from antiphon.adapters.base import render
from antiphon.core.digests import NO_KEY
from antiphon.core.manifest import WireRequest
from antiphon.core.rules.graph import check as rules
from antiphon.core.rules.repair import repair
from antiphon.core.traffic.rollout import compare
from antiphon.engine.ports import Reply
from antiphon.errors import AntiphonError, SequenceRejected
from antiphon.server.doors.relay import renamed
from antiphon.server.mending import with_help
from antiphon.server.uistream.request import Chat, blocks_of
from tests.cases.chat_rules import objections
from tests.fuzzing import mutations
from tests.fuzzing.mutations import Json, changed
from tests.server.stage import served
from tests.support.asgi import Client
from tests.support.provider import ScriptedProvider, says

TESTS: Final = Path(__file__).parents[1]


def _corpus() -> dict[str, list[Json]]:
    """Return the requests of the cases and of the golden files, by their dialect."""
    found: dict[str, list[Json]] = {name: [] for name in registry.available()}
    for path in sorted((TESTS / "golden").glob("*/*/request.json")):
        if path.parent.parent.name in found:
            found[path.parent.parent.name].append(json.loads(path.read_text("utf-8")))
    for path in sorted((TESTS / "data/cases").glob("*.json")):
        case = json.loads(path.read_text("utf-8"))
        given = case.get("given", {})
        if case.get("provider") in found and isinstance(given.get("messages"), list):
            name = {"openai-responses": "input", "gemini": "contents"}.get(
                case["provider"], "messages"
            )
            request = given.get("request")
            more = request if isinstance(request, dict) else {}
            found[case["provider"]].append({**more, name: given["messages"]})
    return {name: requests for name, requests in found.items() if requests}


CORPUS: Final = _corpus()

MENDED: Final = frozenset(
    {"missing_tool_result", "orphan_tool_result", "duplicate_tool_result", "duplicate_call_id"}
    | {"result_before_call", "unclosed_arguments"}
)


def parsers(chance: random.Random) -> list[str]:
    """Let a parser of any dialect read it; repair what it read, and render it for another one."""
    dialect = chance.choice(sorted(CORPUS))
    request = changed(chance.choice(CORPUS[dialect]), chance, CORPUS[dialect])
    if not isinstance(request, dict):
        return []
    try:
        request = msgspec.json.decode(json.dumps(request))
    except msgspec.DecodeError:
        return []  # what cannot be said in JSON never arrives
    try:
        parsed = registry.get(dialect).parse(request)
    except AntiphonError:
        return []
    if parsed.findings:
        with_help(SequenceRejected(parsed.located(parsed.findings)), parsed)
    once = repair(parsed.messages)
    again = repair(once.messages)
    if again.repairs or again.messages != once.messages:
        return [f"{dialect}: a repair leaves something to repair: {request!r}"]
    left = {finding.code for finding in rules(once.messages)} & MENDED
    if left:
        return [f"{dialect}: {left} after a repair: {request!r}"]
    return _rendered(dialect, request, parsed, chance)


def _rendered(dialect: str, request: Json, parsed: Any, chance: random.Random) -> list[str]:
    """Render what was read for any dialect: what may be sent there has to be whole."""
    if parsed.findings:
        return []
    target = registry.get(chance.choice(registry.available()))
    try:
        policy = msgspec.structs.replace(parsed.policy, model="m")
        sent = render(target, parsed.messages, policy, parsed.tools, key=NO_KEY)
    except AntiphonError:
        return []
    body = sent.request.body
    json.loads(body)
    if target.name == "openai-chat" and target.profile.name == "openai-chat":
        return [f"{dialect}: {objection}: {request!r}" for objection in objections(body)]
    return []


# Through the doors.

DOORS: Final = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
}


class _Willing(ScriptedProvider):
    """Answers whatever it is sent."""

    async def send(self, request: WireRequest, **how: Any) -> Reply:
        self.requests.clear()
        self.scripts.append(says("Yes."))
        return await super().send(request, **how)


class _Open:
    """A server over a provider that answers everything; a new one after some requests."""

    MOST = 2_000

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._closing = contextlib.AsyncExitStack()
        self._asked = 0
        self._client: Client | None = None

    def close(self) -> None:
        self._runner.run(self._closing.aclose())
        self._client = None

    def ask(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return what the server says to a body, however long that takes."""
        self._asked += 1
        if self._client is None or self._asked % self.MOST == 0:
            self.close()
            opening = self._closing.enter_async_context(served(":memory:", _Willing()))
            self._client = self._runner.run(opening).client
        told = self._runner.run(self._client.ask("POST", path, raw=body))
        return told.status, told.body


_open: Final = _Open()


def _door(dialect: str, chance: random.Random) -> list[str]:
    request = changed(chance.choice(CORPUS[dialect]), chance, CORPUS[dialect])
    if isinstance(request, dict) and chance.random() < 0.97:
        request["model"] = "rehearsal"
        if dialect == "anthropic":
            request.setdefault("max_tokens", 50)
        if chance.random() < 0.3:
            request["stream"] = True
    body = mutations.written(request, chance)
    status, told = _open.ask(DOORS[dialect], body)
    if status >= 500 or not told:
        return [f"{DOORS[dialect]} said {status}: {body!r}: {told[:300]!r}"]
    return []


def chat_door(chance: random.Random) -> list[str]:
    """Send it to Chat Completions."""
    return _door("openai-chat", chance)


def responses_door(chance: random.Random) -> list[str]:
    """Send it to Responses."""
    return _door("openai-responses", chance)


def messages_door(chance: random.Random) -> list[str]:
    """Send it to Messages."""
    return _door("anthropic", chance)


_SCREEN: Final = [
    {
        "id": "chat_1",
        "trigger": "submit-message",
        "messages": [
            {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]},
            {
                "id": "run_1",
                "role": "assistant",
                "parts": [
                    {"type": "step-start"},
                    {"type": "reasoning", "text": "So."},
                    {
                        "type": "tool-x",
                        "toolCallId": "c1",
                        "state": "output-available",
                        "output": 1,
                    },
                    {"type": "text", "text": "Ho", "state": "done"},
                ],
            },
            {
                "id": "u2",
                "role": "user",
                "parts": [
                    {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AA=="},
                    {"type": "data-x", "data": {}},
                ],
            },
        ],
        "tools": {"x": {"description": "X", "parameters": {"type": "object"}}},
        "callSettings": {"temperature": 0.5, "maxTokens": 9},
    }
]


def screens(chance: random.Random) -> list[str]:
    """Let the door of the AI SDK's own stream read what is on a screen."""
    body = mutations.written(changed(_SCREEN[0], chance, _SCREEN), chance)
    try:
        asked = msgspec.json.decode(body, type=Chat)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []
    with contextlib.suppress(AntiphonError):
        asked.asking()
        for message in asked.messages:
            blocks_of(message)
    return []


def shadows(chance: random.Random) -> list[str]:
    """Let a shadow compare and rename bodies of any kind."""
    requests = CORPUS[chance.choice(sorted(CORPUS))]
    one, other = (
        {"model": "m", "x": changed(chance.choice(requests), chance, requests)} for _ in "12"
    )
    old, ours = json.dumps(one).encode(), json.dumps(other).encode()
    found = []
    if bool(compare(old, ours)) != (old != ours):
        found.append(f"compared wrongly: {old!r} {ours!r}")
    if json.loads(renamed(old, "n")) != {**json.loads(old), "model": "n"}:
        found.append(f"renamed wrongly: {old!r}")
    return found
