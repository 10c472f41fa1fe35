"""Messages of every kind as items, and pages of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from antiphon.core.blocks import (
    Audio,
    Block,
    File,
    Image,
    Message,
    Refusal,
    Role,
    Status,
    Text,
    ToolResult,
    block_id,
)
from antiphon.core.ids import CallId
from antiphon.core.records import TERMINAL_CALL, Call, Conversation
from antiphon.engine.engine import Engine
from antiphon.errors import InvalidInput
from antiphon.server.http.body import Query
from antiphon.server.responses.attaching import attached_parts
from antiphon.server.responses.output import Json, as_json, is_clients, listed, ran

_STATUS: Final = {Status.PENDING: "in_progress", Status.SUCCESS: "completed"}


class Listing(Query, frozen=True, kw_only=True):
    """Which items: so many after one of them, newest first or last."""

    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"


def items_of(message: Message, calls: Mapping[CallId, Call]) -> list[Json]:
    """Return the items that a message is on the wire.

    Args:
        message: Any message.
        calls: Ledger rows of the run that it belongs to.
    """
    if message.erased:
        return []
    match message.role:
        case Role.ASSISTANT:
            items = [as_json(item) for item in listed(message, calls)]
            own = [call for call in calls.values() if call.message == message.id]
            closed = [c for c in own if not is_clients(c) and c.state in TERMINAL_CALL]
            return items + [as_json(ran(call)) for call in closed]
        case Role.TOOL:
            return [
                output_json(block, block_id(message.id, order))
                for order, block in enumerate(message.blocks)
                if isinstance(block, ToolResult) and is_clients(calls.get(block.call_id))
            ]
        case Role.USER | Role.SYSTEM | Role.DEVELOPER:
            return [
                {
                    "id": message.id,
                    "type": "message",
                    "status": _STATUS.get(message.status, "incomplete"),
                    "role": message.role.value,
                    "content": [
                        *(_part(block) for block in message.blocks),
                        *attached_parts(message.metadata),
                    ],
                }
            ]


def output_json(result: ToolResult, own: str) -> Json:
    """Return a result as the item that brought it."""
    content = result.content
    output: Any = [_part(part) for part in content]
    if all(isinstance(part, Text) for part in content):
        output = "".join(part.text for part in content if isinstance(part, Text))
    return {
        "id": own,
        "type": "function_call_output",
        "status": "completed",
        "call_id": result.call_id,
        "output": output,
    }


def _part(block: Block) -> Json:
    match block:
        case Text(text=text) | Refusal(text=text):
            return {"type": "input_text", "text": text}
        case Image():
            url = block.url or f"data:{block.media_type};base64,{block.data}"
            return {
                "type": "input_image",
                "image_url": url,
                "file_id": None,
                "detail": block.detail or "auto",
            }
        case File():
            return {
                "type": "input_file",
                "file_id": block.file_id,
                "filename": block.filename,
                "file_data": block.data,
            }
        case Audio():
            sound = {"data": block.data, "format": block.format}
            return {"type": "input_audio", "input_audio": sound}
        case _:
            return {"type": "input_text", "text": ""}


async def all_items(engine: Engine, row: Conversation, messages: Sequence[Message]) -> list[Json]:
    """Return the items of messages of one conversation, in their order."""
    ledgers: dict[str, dict[CallId, Call]] = {}
    items: list[Json] = []
    for message in messages:
        run = message.run
        if run is not None and run not in ledgers and message.role in (Role.ASSISTANT, Role.TOOL):
            rows = await engine.world.store.calls(row.id, run)
            ledgers[run] = {call.call_id: call for call in rows}
        items += items_of(message, ledgers.get(run or "", {}))
    return items


def page_of(items: Sequence[Json], listing: Listing) -> Json:
    """Return a page of `items`, which come oldest first.

    Raises:
        InvalidInput: `bad_cursor`: `after` is none of them.
    """
    ordered = list(items) if listing.order == "asc" else list(reversed(items))
    start = 0
    if listing.after is not None:
        found = [n for n, item in enumerate(ordered) if item["id"] == listing.after]
        if not found:
            raise InvalidInput(
                "The cursor is none of these items.", code="bad_cursor", at=listing.after[:80]
            )
        start = found[0] + 1
    page = ordered[start : start + listing.limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": start + len(page) < len(ordered),
    }
