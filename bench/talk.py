"""The talk that is measured, in our form and in the rivals': the same words for everybody.

A turn is four messages of about 240 characters that do not compress away: a person's, a call
of the tool `forecast`, its result, and the answer.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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
from antiphon.core.ids import CallId, ConversationId, MessageId, SessionId
from antiphon.core.tools.ledger import text_result

MODEL = "bench"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}

_draw = random.Random(7)
_words = [format(_draw.getrandbits(28), "x") for _ in range(5000)]


def words(count: int = 30) -> str:
    """Return text that nobody can guess or compress."""
    return " ".join(_draw.choices(_words, k=count))


def arguments(days: int = 3) -> str:
    """Return the arguments of one call of `forecast`."""
    return json.dumps({"city": words(1), "days": days})


@dataclass(frozen=True, slots=True)
class Turn:
    """What is said in one turn, before it takes anybody's form."""

    number: int
    asked: str
    arguments: str
    result: str
    answer: str

    @property
    def call_id(self) -> str:
        return f"call_{self.number}"


def turns(first: int = 0) -> Iterator[Turn]:
    """Yield turns for ever, numbered from `first`."""
    number = first
    while True:
        yield Turn(number, words(), arguments(), words(), words())
        number += 1


def chat_form(turn: Turn) -> list[dict[str, Any]]:
    """Return a turn as OpenAI Chat messages."""
    function = {"name": "forecast", "arguments": turn.arguments}
    return [
        {"role": "user", "content": turn.asked},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": turn.call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": turn.call_id, "content": turn.result},
        {"role": "assistant", "content": turn.answer},
    ]


def item_form(turn: Turn) -> list[dict[str, Any]]:
    """Return a turn as the items that openai-agents keeps."""
    call_id = turn.call_id
    text = {"type": "output_text", "text": turn.answer, "annotations": []}
    return [
        {"role": "user", "content": turn.asked},
        {
            "type": "function_call",
            "call_id": call_id,
            "name": "forecast",
            "arguments": turn.arguments,
        },
        {"type": "function_call_output", "call_id": call_id, "output": turn.result},
        {
            "type": "message",
            "role": "assistant",
            "id": f"m{turn.number}",
            "status": "completed",
            "content": [text],
        },
    ]


class Writer:
    """Writes turns as our messages, each under the one before."""

    def __init__(self, conversation: ConversationId, session: SessionId | None = None) -> None:
        self._conversation = conversation
        self._session = session
        self._count = 0
        self.leaf: MessageId | None = None

    def messages(self, turn: Turn) -> list[Message]:
        """Return the turn's four messages."""
        call_id = CallId(turn.call_id)
        call = ToolCall(call_id=call_id, name="forecast", arguments=turn.arguments)
        result = ToolResult(call_id=call_id, content=text_result(turn.result))
        return [
            self.message(Role.USER, Text(text=turn.asked)),
            self.message(Role.ASSISTANT, call),
            self.message(Role.TOOL, result),
            self.message(Role.ASSISTANT, Text(text=turn.answer)),
        ]

    def message(self, role: Role, block: Block) -> Message:
        """Return one message."""
        self._count += 1
        origin = Origin.CLIENT if role is Role.USER else Origin.IMPORTED
        message = Message(
            id=MessageId(f"m{self._count:09}"),
            conversation=self._conversation,
            parent=self.leaf,
            role=role,
            blocks=(block,),
            origin=origin,
            trust=default_trust(role, origin),
            session=self._session,
        )
        self.leaf = message.id
        return message
