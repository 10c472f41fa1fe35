"""G14 to G16: from a history of 1001 messages to the bytes of a request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from itertools import islice
from typing import Any

import msgspec
import orjson
from agents.models.chatcmpl_converter import Converter

from antiphon.adapters import registry
from antiphon.adapters.base import RenderedLine
from antiphon.core.blocks import Message, Role, Text
from antiphon.core.ids import ConversationId
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.rules.graph import LineChecker
from bench.measure import Figure, cpu_ms, figure, interleaved, note
from bench.rivals import openai_client
from bench.talk import SCHEMA, Writer, chat_form, item_form, turns, words

TURNS = 250  # and one more question: 1001 messages
KEY = bytes(32)
CONVERSATION = ConversationId("conv_bench")
TOOLS = (ToolDeclaration(name="forecast", parameters=msgspec.Raw(json.dumps(SCHEMA).encode())),)
POLICY = Policy(model="bench", endpoint="http://memory/v1")
_adapter = registry.get("openai-chat")


async def figures(*, quick: bool) -> AsyncIterator[Figure]:
    """Yield what rendering and checking cost beside converters and encoders."""
    note("history: 1001 messages to a request")
    said = list(islice(turns(), TURNS))
    question = words()
    chat = [message for turn in said for message in chat_form(turn)]
    chat.append({"role": "user", "content": question})
    items = [item for turn in said for item in item_form(turn)]
    items.append({"role": "user", "content": question})
    writer = Writer(CONVERSATION)
    messages = [message for turn in said for message in writer.messages(turn)]
    last = writer.message(Role.USER, Text(text=question))
    messages.append(last)
    more, more_chat = after(writer)
    assert json.loads(cold(messages))["messages"] == chat

    client, kept = openai_client()
    body = {"model": "bench", "messages": chat}
    rounds = 2 if quick else 12

    def through_sdk() -> bytes:
        client.chat.completions.create(model="bench", messages=chat)  # type: ignore[arg-type] # plain dicts are allowed
        return kept["body"]

    def through_converter() -> bytes:
        converted = Converter.items_to_messages(items)
        return json.dumps({"model": "bench", "messages": converted}).encode()

    def dumped() -> bytes:
        return json.dumps(body).encode()

    costs = await interleaved(
        {
            "cold": lambda: cold(messages),
            "checked": lambda: check(messages),
            "converter": through_converter,
            "json": dumped,
        },
        rounds * 2,
    )
    sdk = await interleaved({"sdk": through_sdk}, rounds // 3 + 1, warm_up=1)
    costs |= sdk

    # A line is warm once only: each sample gets its own.
    lines = [grown(messages) for _ in range(rounds * 2 + 2)]
    fresh = iter(lines)
    longer = {"model": "bench", "messages": chat + more_chat}

    def encoded_and_hashed() -> str:
        return hashlib.sha256(orjson.dumps(longer)).hexdigest()

    costs |= await interleaved(
        {"warm": lambda: grow(next(fresh), more), "encoded": encoded_and_hashed}, rounds * 2
    )

    what, unit = "1001 messages, graph to checked request bytes and digests, cold", "CPU ms"
    spent = {name: cpu_ms(taken) for name, taken in costs.items()}
    yield figure(
        "G14", what, spent["cold"], spent["sdk"],
        "openai SDK, chat.completions.create(dicts)", unit=unit, at_most=1 / 10,
    )  # fmt: skip
    yield figure(
        "G14", what, spent["cold"], spent["converter"],
        "openai-agents converter and json.dumps", unit=unit, at_most=4,
    )  # fmt: skip
    yield figure(
        "G15", "the same, warm, one new turn", spent["warm"], spent["encoded"],
        "orjson and SHA-256 of the whole body", unit=unit, at_most=3,
    )  # fmt: skip
    yield figure(
        "G16", "1001 messages, validator alone (graph and profile rules)", spent["checked"],
        spent["json"], "json.dumps of the same history", unit=unit, at_most=2,
    )  # fmt: skip


def after(writer: Writer) -> tuple[list[Message], list[dict[str, Any]]]:
    """Return a turn's worth of news: the answer to the last question, and what came after it."""
    answer, turn = words(), next(turns(TURNS))
    messages = [writer.message(Role.ASSISTANT, Text(text=answer)), *writer.messages(turn)[:3]]
    return messages, [{"role": "assistant", "content": answer}, *chat_form(turn)[:3]]


def grown(messages: list[Message]) -> RenderedLine:
    """Return a line that has taken `messages`."""
    line = _adapter.line(POLICY, TOOLS, key=KEY, conversation=CONVERSATION)
    for message in messages:
        line.feed(message)
    return line


def cold(messages: list[Message]) -> bytes:
    """Check, render and digest everything, and return the body."""
    return grown(messages).finish().request.body


def grow(line: RenderedLine, messages: list[Message]) -> bytes:
    """Take what is new, and return the whole body."""
    for message in messages:
        line.feed(message)
    return line.finish().request.body


def check(messages: list[Message]) -> None:
    """Judge the line by every rule."""
    checker = LineChecker(_adapter.profile, tools=TOOLS, key=KEY, conversation=CONVERSATION)
    for message in messages:
        checker.feed(message)
    assert not checker.finish()
