"""A line of the tree as whole UI messages: what a page that was loaded anew begins with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Final

import msgspec

from antiphon.core.blocks import (
    Block,
    File,
    Image,
    Message,
    Outcome,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from antiphon.core.ids import CallId
from antiphon.core.records import Approval, Call, CallState, Runner
from antiphon.server.uistream.write import REFUSED, Chunk

ANSWER: Final = (Role.ASSISTANT, Role.TOOL)


def messages(line: Iterable[Message], calls: Mapping[CallId, Call]) -> list[Chunk]:
    """Return the messages of a line; the answers of one run are one message, as in its stream.

    Args:
        line: What is on it, root first. Instructions are for the model and are left out.
        calls: The calls of its runs, as the ledger has them.
    """
    told: list[Chunk] = []
    for (answers, run), group in groupby(line, key=lambda m: (m.role in ANSWER, m.run)):
        if answers:
            told.append(_answer(list(group), run, calls))
        else:
            told += [
                {"id": message.id, "role": "user", "parts": [*map(_given, message.blocks)]}
                for message in group
                if message.role is Role.USER
            ]
    return told


def _answer(group: list[Message], run: str | None, calls: Mapping[CallId, Call]) -> Chunk:
    results = {result.call_id: result for message in group for result in message.results}
    parts: list[Chunk] = []
    for message in group:
        if message.role is Role.ASSISTANT:
            parts.append({"type": "step-start"})
            for block in message.blocks:
                match block:
                    case Text() | Refusal() if block.text:
                        parts.append({"type": "text", "text": block.text, "state": "done"})
                    case Reasoning() if block.text:
                        parts.append({"type": "reasoning", "text": block.text, "state": "done"})
                    case ToolCall():
                        parts.append(_tool(block, results.get(block.call_id), calls))
                    case _:
                        pass
    return {"id": run or group[0].id, "role": "assistant", "parts": parts}


def _tool(block: ToolCall, result: ToolResult | None, calls: Mapping[CallId, Call]) -> Chunk:
    call = calls.get(block.call_id)
    part: Chunk = {
        "type": f"tool-{block.name}",
        "toolCallId": block.call_id,
        "input": msgspec.json.decode(block.arguments),
    }
    if call is not None and call.runner is Runner.FUNCTION:
        part["providerExecuted"] = True
    if result is None:
        asks = (
            call is not None
            and call.approval is Approval.NEEDED
            and call.state is CallState.PENDING
        )
        if not asks:
            return {**part, "state": "input-available"}
        return {**part, "state": "approval-requested", "approval": {"id": block.call_id}}
    text = "".join(piece.text for piece in result.content if isinstance(piece, Text))
    if result.code == REFUSED:
        approval = {"id": block.call_id, "approved": False}
        return {**part, "state": "output-denied", "approval": approval}
    if result.outcome is Outcome.SUCCESS:
        return {**part, "state": "output-available", "output": text}
    return {**part, "state": "output-error", "errorText": text or result.code or "error"}


def _given(block: Block) -> dict[str, Any]:
    match block:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image():
            kind = block.media_type or "image/*"
            return {
                "type": "file",
                "mediaType": kind,
                "url": block.url or _inline(kind, block.data),
            }
        case File():
            kind = block.media_type or "application/octet-stream"
            file = {"type": "file", "mediaType": kind, "url": _inline(kind, block.data)}
            return {**file, "filename": block.filename} if block.filename else file
        case _:
            return {"type": "data-antiphon-block", "data": {"kind": block.__struct_config__.tag}}


def _inline(kind: str, data: str | None) -> str:
    return f"data:{kind};base64,{data or ''}"
