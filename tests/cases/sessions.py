"""Cases of kind `loop` where sessions are the point: what is carried over, what a reply decides."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

from antiphon import Chat, Settings
from antiphon.core.blocks import (
    Block,
    Message,
    Origin,
    Role,
    Text,
    ToolCall,
    ToolResult,
    default_trust,
)
from antiphon.core.events import Decided, decode_event
from antiphon.core.ids import CallId, MessageId
from antiphon.library import Antiphon
from tests.cases.chat_rules import objections
from tests.cases.files import Case
from tests.cases.report import Result
from tests.support.clock import SimulatedClock
from tests.support.engines import app_on, talk
from tests.support.provider import Hold, ScriptedProvider, Step, says

CONTINUE: Final = '{"decision": "continue"}'


async def carries(case: Case, folder: Path, result: Result) -> None:
    """Bring an old session, switch, and say the next thing in the new one."""
    given, wanted = case.given, case.expect
    provider = ScriptedProvider(says("Plotted."))
    settings = Settings(session_carry_messages=given["carry_last"])
    async with app_on(folder / "a.db", provider, settings=settings) as app:
        chat = await app.create()
        await _bring(app, chat, given["old_session"])
        await chat.begin_session()
        await talk(chat, given["new_user"])
        carried = {m.copied_from for m in await chat.line()}
    body = provider.bodies[-1]
    missing = [name for name in wanted["carried_includes"] if name not in carried]
    result.check("carried_includes", f"{missing} left behind" if missing else None)
    there = [name for name in wanted["carried_excludes"] if name in carried]
    result.check("carried_excludes", f"{there} carried" if there else None)
    counts = {name: body.count(name.encode()) for name in wanted["request_mentions_tool"]}
    right = counts == wanted["request_mentions_tool"]
    result.check("request_mentions_tool", None if right else f"{counts}")
    found = list(objections(body))
    result.check("valid", None if (not found) == wanted["valid"] else str(found))


async def _bring(app: Antiphon, chat: Chat, said: list[dict[str, Any]]) -> None:
    nodes: list[Message] = []
    for item in said:
        role = Role(item["role"])
        nodes.append(
            Message(
                id=MessageId(item["id"]),
                conversation=chat.id,
                parent=nodes[-1].id if nodes else None,
                role=role,
                blocks=tuple(_blocks(item)),
                origin=Origin.IMPORTED,
                trust=default_trust(role, Origin.IMPORTED),
            )
        )
    await app.engine.add_messages(chat.id, nodes, nodes[-1].id)


def _blocks(item: dict[str, Any]) -> list[Block]:
    words = Text(text=item.get("text", ""))
    if "result_of" in item:
        return [ToolResult(call_id=CallId(item["result_of"]), content=(words,))]
    calls: list[Block] = [
        ToolCall(
            call_id=CallId(call["id"]),
            name=call["name"],
            arguments=json.dumps(call["arguments"]),
        )
        for call in item.get("tool_calls", ())
    ]
    return [words, *calls] if words.text else calls


async def decides(case: Case, folder: Path, result: Result) -> None:
    """Put each reply to a conversation whose next message waits for the decision."""
    told = [
        await _decided(folder / f"{number}.db", reply)
        for number, reply in enumerate(case.given["decision_replies"])
    ]
    decisions = [event.decision for event, _ in told]
    right = decisions == case.expect["decisions"]
    result.check("decisions", None if right else f"{decisions}")
    lost = not all(kept for _, kept in told)
    right = lost == case.expect["user_message_lost"]
    result.check("user_message_lost", None if right else f"{lost}")
    reasons = [number for number, (event, _) in enumerate(told) if event.reason]
    right = reasons == case.expect["trace_has_reason_for"]
    result.check("trace_has_reason_for", None if right else f"{reasons}")


async def _decided(db: Path, reply: object) -> tuple[Decided, bool]:
    """Return what was noted of a reply, and whether the message that it was about is answered."""
    clock, hold = SimulatedClock(), Hold()
    silent = isinstance(reply, dict)  # {"error": "timeout"}
    answer: list[Step] = [hold] if silent else says(str(reply))
    provider = ScriptedProvider(says("Aye."), says(CONTINUE), answer, says("North."))
    async with app_on(db, provider, clock=clock, settings=Settings(scheduling=True)) as app:
        chat = await app.create()
        await talk(chat, "Cast off.")
        await app.engine.idle(chat.id)
        asking = asyncio.create_task(talk(chat, "Which way now?"))
        if silent:
            await hold.reached.wait()
            await clock.advance(app.engine.world.settings.decision_timeout_s)
        said = await asking
        line = [m.text for m in await chat.line()]
        stored = await app.engine.world.store.events(chat.id, 0)
    events = [decode_event(one.data) for one in stored]
    (noted,) = [event for event in events if isinstance(event, Decided)]
    return noted, line[-2:] == ["Which way now?", "North."] and said == "North."
