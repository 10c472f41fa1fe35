"""Cases of kind `loop`: a scripted model and scripted tools, played through the library.

The real engine over the real store; the model is a script that looks at what it is sent, as the
real one would: without tools in the request it takes its other turn.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from antiphon import (
    CallsWaiting,
    Chat,
    Ended,
    FateUnknown,
    Function,
    Lookup,
    Settings,
    ToolContext,
    ToolError,
)
from antiphon.core.blocks import Text
from antiphon.core.events import Preview
from antiphon.core.manifest import WireRequest
from antiphon.core.records import OPEN_CALL, Call, CallState, RunStatus
from antiphon.core.tools.ledger import next_call_action
from antiphon.engine.edge.clock import SystemClock
from antiphon.engine.ports import Reply
from antiphon.engine.tools.mcp.connection import tool_name
from antiphon.engine.tools.mcp.servers import McpServer
from tests.cases import sessions
from tests.cases.chat_rules import objections
from tests.cases.files import Case
from tests.cases.report import Result, keys_of
from tests.support.clock import START_MS
from tests.support.engines import app_on
from tests.support.provider import Hold, ScriptedProvider, Step, asks, chunk, says

PATIENCE_S: Final = 20
ELSEWHERE: Final = McpServer(
    command=sys.executable,
    args=[str(Path(__file__).parents[1] / "support" / "mcp_server.py")],
)
NO_PLAY: Final = "nothing of this case is known here"
OUTCOMES: Final = {
    CallState.SUCCESS: "success",
    CallState.ERROR: "error",
    CallState.CANCELED: "canceled",
}


def unplayable(case: Case) -> str | None:
    """Return why a case is not played here, or None."""
    return None if case.given.keys() & _PLAYS.keys() else NO_PLAY


async def run_loop(case: Case) -> Result:
    """Play one case and compare what it expects."""
    result = Result(id=case.id, kind=case.kind, keys=keys_of(case.kind, case.expect))
    result.skipped = unplayable(case)
    if result.skipped is not None:
        return result
    play = next(play for key, play in _PLAYS.items() if key in case.given)
    try:
        with tempfile.TemporaryDirectory(prefix="case-") as folder:
            async with asyncio.timeout(PATIENCE_S):
                await play(case, Path(folder), result)
    except TimeoutError:
        result.wrong.append("it does not end")
    return result


class ScriptedModel(ScriptedProvider):
    """Takes its turns one after the other; its other turn where it may call nothing."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        self._turns = list(given["model_turns"])
        self._otherwise = given.get("if_tools_absent")

    async def send(
        self,
        request: WireRequest,
        *,
        api_key: str | None,
        connect_timeout_s: float,
        on_written: Callable[[], None],
    ) -> Reply:
        body = json.loads(request.body)
        offered = bool(body.get("tools")) and body.get("tool_choice") != "none"
        if not offered and self._otherwise is not None:
            turn = self._otherwise
        else:
            turn = self._turns.pop(0) if self._turns else {"text": "", "finish": "stop"}
        self.scripts = [_steps(turn)]
        return await super().send(
            request, api_key=api_key, connect_timeout_s=connect_timeout_s, on_written=on_written
        )


def _steps(turn: dict[str, Any]) -> list[Step]:
    words: list[Step] = [chunk({"content": turn["text"]})] if turn.get("text") else []
    calls = [(c["id"], c["name"], _arguments(c["arguments"])) for c in turn.get("tool_calls") or ()]
    return [*words, *(asks(*calls) if calls else says(finish=turn.get("finish", "stop")))]


def _arguments(given: object) -> str:
    return given if isinstance(given, str) else json.dumps(given)


@dataclass
class Tools:
    """The tools of a case, and how often each call was really carried out."""

    given: dict[str, Any]
    ran: list[tuple[str, str]] = field(default_factory=list)

    def functions(self) -> Iterator[Function]:
        """Yield the tools that the model is offered."""
        for tool in self.given["tools"]:
            yield Function(
                name=tool["name"],
                run=self._running(tool["name"]),
                parameters=tool["parameters"],
                read_only=bool(tool.get("read_only")),
                idempotent=bool(tool.get("idempotent")),
                repeatable=bool(tool.get("repeatable")),
                context="context_of_the_case",
                lookup=self._look_up if tool.get("lookup") else None,
            )

    def _running(self, name: str) -> Callable[..., Any]:
        async def run(context_of_the_case: ToolContext, **_: object) -> str:
            self.ran.append((context_of_the_case.call_id, name))
            outcomes = self.given.get("tool_outcomes", {})
            return _outcome(outcomes.get(context_of_the_case.call_id, outcomes.get(name, "done")))

        return run

    async def _look_up(self, _: ToolContext) -> object:
        found = self.given["lookup_result"]
        if found["state"] == "running":
            return Lookup.RUNNING
        return Lookup.NOT_EXECUTED if found["state"] == "not_executed" else found.get("result", "")


def _outcome(given: Any) -> str:
    match given:
        case "connection_lost_after_accept":
            raise FateUnknown
        case {"chars": int(chars)}:
            return "x" * chars
        case {"error": error}:
            raise ToolError(str(error))
        case str():
            return given
        case _:
            return json.dumps(given)


def _settings(given: dict[str, Any]) -> Settings:
    limits = {
        key: value
        for key, value in given.get("limits", {}).items()
        if key in ("max_model_calls", "max_tool_calls", "repeat_limit")
    }
    if "tool_result_limit_chars" in given:
        limits["max_result_chars"] = given["tool_result_limit_chars"]
    return Settings(retry_base_s=0.0, cancel_grace_s=0.0, **limits)


async def _turns(case: Case, folder: Path, result: Result) -> None:
    found = await _played(case.given, folder / "a.db")
    for key, wanted in case.expect.items():
        if key != "applies_to" and (problem := found.compare(key, wanted)) is not NOT_COMPARED:
            result.check(key, problem)
    if "mcp" in case.expect.get("applies_to", ()):
        over = await _played(_over_mcp(case.given), folder / "b.db", mcp={"elsewhere": ELSEWHERE})
        problems = [
            f"over MCP, {key}: {problem}"
            for key, wanted in case.expect.items()
            if (problem := over.compare(key, wanted)) is not None and problem is not NOT_COMPARED
        ]
        result.check("applies_to", "; ".join(problems) or None)


def _over_mcp(given: dict[str, Any]) -> dict[str, Any]:
    """Return the case with its calls made to a server whose answers are as long."""
    outcomes = given["tool_outcomes"]
    turns = [
        {
            **turn,
            "tool_calls": [
                {
                    "id": call["id"],
                    "name": tool_name("elsewhere", "flood"),
                    "arguments": {"characters": outcomes[call["id"]]["chars"]},
                }
                for call in turn["tool_calls"]
            ],
        }
        for turn in given["model_turns"]
    ]
    return {**given, "model_turns": turns, "tools": []}


async def _played(
    given: dict[str, Any], db: Path, *, mcp: Mapping[str, McpServer] = MappingProxyType({})
) -> Played:
    """Let the model take its turns, and return what came of it."""
    model, tools = ScriptedModel(given), Tools(given)
    functions = list(tools.functions())
    clock = SystemClock() if mcp else None
    settings = msgspec.structs.replace(_settings(given), mcp=mcp)
    async with app_on(db, model, functions=functions, settings=settings, clock=clock) as app:
        chat = await app.create()
        run = await chat.send("Begin.")
        async for event in run.events():
            if isinstance(event, CallsWaiting | Ended):
                break
        calls = list((await run.explain()).calls)
        line = await chat.line()
        row = await run.row()
    final = line[-1].text if row.status is RunStatus.SUCCESS else None
    return Played(model, tools, calls, final, row.status, row.end_code, functions)


NOT_COMPARED: Final = "not compared"


@dataclass
class Played:
    """What came of a case with model turns."""

    model: ScriptedModel
    tools: Tools
    calls: list[Call]
    final: str | None
    status: RunStatus
    end_code: str | None
    functions: list[Function]

    def compare(self, key: str, wanted: Any) -> str | None:
        """Return what is wrong with one key, None where it is right, or NOT_COMPARED."""
        match key:
            case "final":
                return _differs(self.final, wanted)
            case "end_code":
                return _differs(self.end_code, wanted)
            case "ends" | "user_gets_answer":
                return _differs(self.status is RunStatus.SUCCESS and bool(self.final), wanted)
            case "open_calls":
                return _differs(sum(c.state in OPEN_CALL for c in self.calls), wanted)
            case "every_call_has_result":
                return _differs(all(c.state not in OPEN_CALL for c in self.calls), wanted)
            case "history_valid":
                found = [why for body in self.model.bodies for why in objections(body)]
                return None if (not found) == wanted else str(found)
            case "executions":
                ran = [call_id for call_id, _ in self.tools.ran]
                return _all(wanted, ran.count)
            case "executions_of":
                ran = [name for _, name in self.tools.ran]
                return _all(wanted, ran.count)
            case "blocked_result_code":
                blocked = {c.code for c in self.calls if c.state is CallState.ERROR}
                return _differs(blocked, {wanted})
            case "call_status":
                return _all(wanted, lambda call_id: str(self._call(call_id).state))
            case "automatic_retry":
                ran = [call_id for call_id, _ in self.tools.ran]
                return _differs(len(ran) != len(set(ran)), wanted)
            case "next_action":
                return _differs(self._next_action(), wanted)
            case "results":
                return "; ".join(filter(None, map(self._result, wanted, wanted.values()))) or None
            case "rendered_chars_of":
                return _all(wanted, lambda call_id: len(self._told(call_id)))
            case "stored_chars_of":
                return _all(wanted, lambda call_id: len(_text(self._call(call_id))))
            case "notice_has":
                cut = [c for c in self.calls if len(self._told(c.call_id)) < len(_text(c))]
                told = "".join(self._told(c.call_id) for c in cut)
                missing = [word for word in wanted if word not in told]
                return f"{missing} not told" if missing else None
            case _:
                return NOT_COMPARED

    def _call(self, call_id: str) -> Call:
        return next(c for c in self.calls if c.call_id == call_id)

    def _next_action(self) -> str:
        call = next(c for c in self.calls if c.state is CallState.UNKNOWN)
        function = next(f for f in self.functions if f.name == call.name)
        return next_call_action(call, can_query=function.lookup is not None, now_ms=START_MS)

    def _result(self, call_id: str, wanted: dict[str, Any]) -> str | None:
        call = self._call(call_id)
        problems = []
        if OUTCOMES.get(call.state) != wanted["outcome"]:
            problems.append(f"{call_id} is {call.state}")
        if "code" in wanted and call.code != wanted["code"]:
            problems.append(f"{call_id} has code {call.code}")
        problems += [
            f"{call_id} does not name {name}"
            for name in wanted.get("lists_available", ())
            if name not in self._told(call_id)
        ]
        return "; ".join(problems) or None

    def _told(self, call_id: str) -> str:
        """Return what the newest request says of a call."""
        told = [m for m in self.model.messages() if m.get("tool_call_id") == call_id]
        content = told[-1]["content"] if told else ""
        return content if isinstance(content, str) else "".join(p["text"] for p in content)  # type: ignore[attr-defined]  # parts


def _text(call: Call) -> str:
    return "".join(part.text for part in call.content if isinstance(part, Text))


def _all(wanted: dict[str, Any], found: Callable[[str], Any]) -> str | None:
    problems = [f"{name}: {why}" for name, w in wanted.items() if (why := _differs(found(name), w))]
    return "; ".join(problems) or None


def _differs(found: Any, wanted: Any) -> str | None:
    match wanted:
        case {"max": most}:
            right = found <= most
        case {"min": least}:
            right = found >= least
        case list():
            right = found in wanted
        case _:
            right = found == wanted
    return None if right else f"{found!r}, wanted {wanted!r}"


# Several conversations that are looked at in turn.


async def _views(case: Case, folder: Path, result: Result) -> None:
    """Play sends, pieces and looks; what a view shows is what its conversation's stream told."""
    texts = {e["run"]: e["text"] for e in case.given["events"] if e["op"] == "complete"}
    provider = ScriptedProvider()
    shown: dict[str, list[str]] = {}
    chats: dict[str, Chat] = {}
    readers: list[asyncio.Task[None]] = []
    async with app_on(folder / "a.db", provider) as app:

        async def chat_of(name: str) -> Chat:
            if name not in chats:
                chats[name] = await app.create(title=name)
                shown[name] = []
                readers.append(asyncio.create_task(_read(name)))
            return chats[name]

        async def _read(name: str) -> None:
            async for item in app.engine.follow(chats[name].id, 0):
                if isinstance(item, Preview):
                    shown[name].append(item.text)

        holds: dict[str, Hold] = {}
        runs = {}
        for event in case.given["events"]:
            match event["op"]:
                case "send":
                    hold = holds[event["run"]] = Hold()
                    whole = texts[event["run"]]
                    provider.scripts.append([chunk({"content": whole[:4]}), hold, *says(whole[4:])])
                    chat = await chat_of(event["conversation"])
                    runs[event["run"]] = await chat.send(event["text"])
                    await hold.reached.wait()
                case "complete":
                    holds[event["run"]].go.set()
                    await runs[event["run"]].result()
                case "view":
                    await chat_of(event["conversation"])
                case _:
                    pass  # pieces of text: the script tells them as they come
        found = {name: [m.text for m in await chat.line()] for name, chat in chats.items()}
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    for key, there in (("messages_in", found), ("previews_in", shown)):
        wanted = case.expect[key]
        had = {name: there[name] for name in wanted}
        result.check(key, None if had == wanted else f"{had}, wanted {wanted}")


_PLAYS: Final[dict[str, Callable[[Case, Path, Result], Awaitable[None]]]] = {
    "events": _views,
    "old_session": sessions.carries,
    "decision_replies": sessions.decides,
    "model_turns": _turns,
}
"""How a case is played, by what it gives."""
