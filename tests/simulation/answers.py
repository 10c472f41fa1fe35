"""What a simulated provider has to say, event by event, in the two dialects that it speaks.

Every answer has a number that stands in its text and its call ids, so whatever is lost, doubled or
crossed later on can be named.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.simulation.chance import Chance
from tests.support import responses_stream as items
from tests.support.provider import DONE, chunk, usage

CALLABLE: Final[dict[str, Callable[[Chance], dict[str, object]]]] = {
    "ring": lambda chance: {"times": chance.below(1000)},
    "light": lambda chance: {"lamp": chance.below(1000)},
    "count": lambda chance: {"shelf": chance.below(1000)},
    "pay": lambda chance: {"cents": chance.below(1000)},
    "ask_user": lambda chance: {"question": str(chance.below(1000))},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer: what a committed message of it says, and whether there may be one."""

    text: str
    calls: tuple[tuple[str, str, str], ...] = ()
    finish: str = "stop"

    @property
    def committable(self) -> bool:
        return self.finish in ("stop", "tool_calls") or (self.finish == "length" and not self.calls)


def answer(number: int, chance: Chance, *, tools: bool) -> Answer:
    """Return answer `number`: mostly text, sometimes calls, sometimes what nobody may keep."""
    words = f"answer {number}: " + "so it goes, " * chance.below(4)
    kind = chance.weighed({"text": 50, "calls": 40, "length": 4, "filter": 3, "cut calls": 3})
    calls: list[tuple[str, str, str]] = []
    if tools and kind in ("calls", "cut calls"):
        for place in range(1 + chance.below(3)):
            name = chance.one_of(list(CALLABLE))
            arguments = json.dumps(CALLABLE[name](chance))
            calls.append((f"call_{number}_{place}", name, arguments))
    finish = {"length": "length", "cut calls": "length", "filter": "content_filter"}.get(
        kind, "tool_calls" if calls else "stop"
    )
    return Answer(text=words, calls=tuple(calls), finish=finish)


def as_chat(said: Answer, chance: Chance) -> list[bytes]:
    """Return the events of Chat Completions; the last two are its finish and its end."""
    told = [chunk({"content": piece}) for piece in _pieces(said.text, chance)]
    for index, (call_id, name, arguments) in enumerate(said.calls):
        function = {"name": name, "arguments": ""}
        opened = {"index": index, "id": call_id, "type": "function", "function": function}
        told.append(chunk({"tool_calls": [opened]}))
        told += [
            chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
            for piece in _pieces(arguments, chance)
        ]
    return [*told, chunk({}, said.finish) + usage(10, 5), DONE]


def as_responses(said: Answer, handle: str, chance: Chance) -> list[bytes]:
    """Return the events of a kept response, each with its number."""
    told = items.said(0, *_pieces(said.text, chance))
    for place, (call_id, name, arguments) in enumerate(said.calls, start=1):
        told += items.call(place, call_id, name, *_pieces(arguments, chance))
    done = [e["item"] for e in told if e["type"] == "response.output_item.done"]
    events = [items.created(), *told, _ending(said, done)]
    return [_numbered(number, event, handle) for number, event in enumerate(events)]


def _ending(said: Answer, done: list[dict[str, Any]]) -> dict[str, Any]:
    match said.finish:
        case "length":
            why = {"reason": "max_output_tokens"}
            return items.ended("incomplete", *done, incomplete_details=why)
        case "content_filter":
            return items.ended("incomplete", *done, incomplete_details={"reason": said.finish})
        case _:
            return items.ended("completed", *done)


def _numbered(number: int, event: dict[str, Any], handle: str) -> bytes:
    if "response" in event:
        event = {**event, "response": {**event["response"], "id": handle}}
    data = json.dumps({**event, "sequence_number": number})
    return f"event: {event['type']}\ndata: {data}\n\n".encode()


def _pieces(text: str, chance: Chance) -> list[str]:
    pieces = []
    while text:
        size = 1 + chance.below(12)
        pieces.append(text[:size])
        text = text[size:]
    return pieces
