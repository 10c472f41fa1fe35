"""What our doors write, read back: by our own readers and by the official SDKs' types."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from anthropic.types import Message as AnthropicMessage
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion

from antiphon.adapters import registry
from antiphon.adapters.anthropic.write import MessagesWriter
from antiphon.adapters.base import Ending, Writer
from antiphon.adapters.openai_chat.write import ChatWriter
from antiphon.core.answers.answer import Answer
from antiphon.core.answers.assembler import Assembler
from antiphon.core.answers.deltas import Channel, Usage
from antiphon.core.blocks import Block, Opaque, Reasoning, Text, ToolCall
from antiphon.core.ids import CallId

WRITERS: dict[str, Callable[[], Writer]] = {
    "openai-chat": lambda: ChatWriter("chatcmpl-1", "m", 7, include_usage=True),
    "anthropic": lambda: MessagesWriter("msg_1", "m"),
}
USED = Usage(input=12, output=5)


def read(dialect: str, data: bytes, kind: str) -> Answer:
    reader, assembler = registry.by_name(dialect).reader(kind), Assembler()
    for delta in [*reader.feed(data), *reader.end()]:
        assembler.feed(delta)
    return assembler.end()


def written(writer: Writer, pieces: list[str], calls: list[ToolCall], ending: Ending) -> bytes:
    told = writer.begin() + b"".join(writer.show(Channel.TEXT, piece) for piece in pieces)
    return told + (writer.ask(calls) if calls else b"") + writer.end(ending, USED)


names = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
arguments = st.dictionaries(names, st.text(max_size=9) | st.integers(0, 10**25), max_size=3)
calls_drawn = st.lists(
    st.builds(lambda name, value: (name, json.dumps(value)), names, arguments), max_size=3
)


@pytest.mark.parametrize("dialect", WRITERS)
@given(pieces=st.lists(st.text(min_size=1, max_size=9), max_size=4), drawn=calls_drawn)
def test_what_is_written_is_read_back_as_what_was_said(
    dialect: str, pieces: list[str], drawn: list[tuple[str, str]]
) -> None:
    calls = [
        ToolCall(call_id=CallId(f"call_{n}"), name=name, arguments=text)
        for n, (name, text) in enumerate(drawn)
    ]
    ending = Ending.CALLS if calls else Ending.STOP
    found = read(dialect, written(WRITERS[dialect](), pieces, calls, ending), "text/event-stream")
    assert found.error is None
    assert found.text == "".join(pieces)
    assert [(c.call_id, c.name, c.arguments) for c in found.calls] == [
        (c.call_id, c.name, c.arguments) for c in calls
    ]
    assert (found.usage.input, found.usage.output) == (12, 5)
    whole = WRITERS[dialect]().whole([Text(text="".join(pieces)), *calls], ending, USED)
    again = read(dialect, whole, "application/json")
    assert again.error is None
    assert again.text == found.text
    assert [(c.call_id, c.name) for c in again.calls] == [(c.call_id, c.name) for c in calls]
    assert [json.loads(c.arguments) for c in again.calls] == [
        json.loads(c.arguments) for c in calls
    ]


@pytest.mark.parametrize("dialect", WRITERS)
def test_an_answer_that_was_cut_says_so(dialect: str) -> None:
    told = written(WRITERS[dialect](), ["Half"], [], Ending.LENGTH)
    found = read(dialect, told, "text/event-stream")
    assert (found.text, found.truncated) == ("Half", True)


@pytest.mark.parametrize("dialect", WRITERS)
def test_an_answer_that_failed_is_never_one_that_could_be_committed(dialect: str) -> None:
    writer = WRITERS[dialect]()
    told = (
        writer.begin() + writer.show(Channel.TEXT, "Half") + writer.fail("outcome_unknown", "No.")
    )
    found = read(dialect, told, "text/event-stream")
    assert not found.committable
    assert b"[DONE]" not in told
    assert b"message_stop" not in told


def test_whole_answers_are_what_the_sdks_take() -> None:
    call = ToolCall(call_id=CallId("c1"), name="look", arguments='{"n":12345678901234567890}')
    blocks: list[Block] = [Text(text="Hi"), call]
    chat = WRITERS["openai-chat"]().whole(blocks, Ending.CALLS, USED)
    ChatCompletion.model_validate_json(chat, strict=True)
    message = WRITERS["anthropic"]().whole(blocks, Ending.CALLS, USED)
    AnthropicMessage.model_validate_json(message, strict=True)
    assert b"12345678901234567890" in message
    told: Any = json.loads(chat)
    assert told["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == call.arguments


def test_thinking_is_shown_where_a_client_can_ignore_it_and_nowhere_else() -> None:
    assert b"reasoning_content" in WRITERS["openai-chat"]().show(Channel.REASONING, "hm")
    assert WRITERS["anthropic"]().show(Channel.REASONING, "hm") == b""
    for profile, value in (
        ("gemini", b'{"type": "thinking", "signature": "s"}'),
        ("anthropic", b'{"type": "citations", "citations": []}'),
    ):
        foreign = Opaque(profile=profile, value=msgspec.Raw(value))
        block = Reasoning(text="hm", opaque=foreign)
        assert WRITERS["anthropic"]().think("hm", foreign) == b""
        assert b"hm" not in WRITERS["anthropic"]().whole([block], Ending.STOP, USED)
        assert WRITERS["openai-chat"]().think("hm", foreign) == b""
