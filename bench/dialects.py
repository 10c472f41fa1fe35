"""G12 and G14 to G16 for every dialect in the registry: its own stream, its own bytes.

A stream is the dialect's recorded transcript with its text made long: the events before and
behind stay, the one that brings text is repeated.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import islice
from typing import Final

import orjson

from antiphon.adapters import registry
from antiphon.adapters.base import Adapter, RenderedLine
from antiphon.core.answers.assembler import Assembler
from antiphon.core.blocks import Message, Role, Text
from antiphon.core.ids import ConversationId, RunId
from antiphon.core.manifest import Policy
from antiphon.core.rules.graph import LineChecker
from antiphon.engine.live import LiveRun
from bench.histories import CONVERSATION, KEY, TOOLS, TURNS, after
from bench.measure import Figure, cpu_ms, figure, interleaved, note
from bench.provider import anthropic_events, chat_text
from bench.rivals import anthropic_helper, openai_client, openai_helper
from bench.streams import TEXT_DELTAS
from bench.talk import Writer, chat_form, turns, words
from tests.support.transcripts import TYPES, transcript

NUMBERED: Final = re.compile(rb'"sequence_number":\d+|"event_id":"ev_\d+"')
FINISH: Final = re.compile(rb'"finish_?[rR]eason":"')
FRAMED: Final = "application/vnd.amazon.eventstream"


async def figures(*, quick: bool) -> AsyncIterator[Figure]:
    """Yield what each dialect costs beside the SDKs' helpers, and beside encoding and hashing."""
    async for line in _streams(rounds=1 if quick else 5):
        yield line
    async for line in _requests(rounds=2 if quick else 8):
        yield line


async def _streams(rounds: int) -> AsyncIterator[Figure]:
    note(f"streams of every dialect: {TEXT_DELTAS} text deltas")
    pieces = [" " + words(1) for _ in range(TEXT_DELTAS)]
    block = {"type": "text", "text": ""}
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    contestants: dict[str, Callable[[], object]] = {
        "openai SDK": openai_helper(chat_text(pieces)),
        "anthropic SDK": anthropic_helper(anthropic_events(block, deltas)),
    }
    for name in registry.available():
        kind, chunks = _stretched(name, pieces)
        assert _read(name, kind, chunks) == "".join(pieces)
        contestants[name] = lambda name=name, kind=kind, chunks=chunks: _read(name, kind, chunks)  # type: ignore[misc] # bound now
    costs = await interleaved(contestants, rounds, warm_up=1)
    speed = {name: TEXT_DELTAS / cpu_ms(taken) * 1000 for name, taken in costs.items()}
    for name in registry.available():
        what = f"{name}: {TEXT_DELTAS} text deltas to a committable block"
        for rival, least in (("openai SDK", 15), ("anthropic SDK", 5)):
            yield figure(
                "G12", what, speed[name], speed[rival], f"{rival}, its stream helper",
                unit="deltas/CPU s", at_least=least,
            )  # fmt: skip


def _read(name: str, kind: str, chunks: Sequence[bytes]) -> str:
    """Do what an exchange does with each read, the preview included."""
    reader, assembler = registry.get(name).reader(kind), Assembler()
    live = LiveRun(ConversationId("conv_bench"), RunId("run_bench"), 1)
    for chunk in chunks:
        for delta in reader.feed(chunk):
            piece = assembler.feed(delta)
            if piece is not None:
                live.append(piece.block, piece.channel, piece.text)
    for delta in reader.end():
        assembler.feed(delta)
    answer = assembler.end()
    assert answer.committable, (name, answer.error)
    return answer.text


def _stretched(name: str, pieces: Sequence[str]) -> tuple[str, list[bytes]]:
    """Return the content type and the events of a transcript, its text replaced by `pieces`."""
    path = transcript(name, "01_*")
    kind = TYPES[path.suffix]
    expected = json.loads(path.with_suffix(".expect.json").read_text("utf-8"))["text"]
    said, made = expected.encode(), "".join(pieces).encode()
    events = list(_events(path.read_bytes(), kind))
    begins = [n for n, event in enumerate(events) if _part(event, said)]
    first, last = begins[0], begins[-1]
    part = _part(events[first], said)
    repeated = [events[first].replace(part, json.dumps(p).encode()[1:-1]) for p in pieces]
    # Where the last piece of text comes with the finish it says nothing more.
    ends = FINISH.search(events[last]) is not None
    ending = [events[last].replace(_part(events[last], said), b"")] if ends else []
    behind = (event.replace(said, made) for event in events[last + 1 :])
    whole = [*events[:first], *repeated, *ending, *behind]
    return kind, [_sent(_numbered(event, n), kind) for n, event in enumerate(whole)]


def _part(event: bytes, said: bytes) -> bytes:
    """Return the piece of the text that an event brings, or nothing."""
    for match in re.finditer(rb'"(?:text|content|delta)":"((?:[^"\\]|\\.)+)"', event):
        if match[1] in said and match[1] != said:
            return match[1]
    return b""


def _events(data: bytes, kind: str) -> Iterator[bytes]:
    if kind == FRAMED:
        while data:
            size = int.from_bytes(data[:4], "big")
            yield data[:size]
            data = data[size:]
    else:
        mark = (
            b"\n"
            if kind == "application/x-ndjson"
            else b"\r\n\r\n"
            if b"\r\n\r\n" in data
            else b"\n\n"
        )
        yield from (event + mark for event in data.split(mark) if event.strip())


def _numbered(event: bytes, number: int) -> bytes:
    def renumber(match: re.Match[bytes]) -> bytes:
        quoted = match[0].startswith(b'"event_id"')
        return b'"event_id":"ev_%d"' % number if quoted else b'"sequence_number":%d' % number

    return NUMBERED.sub(renumber, event)


def _sent(event: bytes, kind: str) -> bytes:
    """Return an event as it goes over the wire: a frame says its length and its checksums."""
    if kind != FRAMED:
        return event
    head, rest = event[4:8], event[12:-4]
    prelude = (len(rest) + 16).to_bytes(4, "big") + head
    framed = prelude + zlib.crc32(prelude).to_bytes(4, "big") + rest
    return framed + zlib.crc32(framed).to_bytes(4, "big")


async def _requests(rounds: int) -> AsyncIterator[Figure]:
    note("histories of every dialect: 1001 messages to a request")
    writer = Writer(CONVERSATION)
    said, question = list(islice(turns(), TURNS)), words()
    messages = [message for turn in said for message in writer.messages(turn)]
    messages.append(writer.message(Role.USER, Text(text=question)))
    more, _ = after(writer)
    client, _ = openai_client()
    chat = [message for turn in said for message in chat_form(turn)]
    chat.append({"role": "user", "content": question})

    def through_sdk() -> object:
        return client.chat.completions.create(model="bench", messages=chat)  # type: ignore[arg-type] # plain dicts are allowed

    for name in registry.available():
        adapter = registry.get(name)
        body = json.loads(_grown(adapter, messages).finish().request.body)
        lines = iter([_grown(adapter, messages) for _ in range(rounds + 2)])
        costs = await interleaved(
            {
                "cold": lambda a=adapter: _grown(a, messages).finish(),  # type: ignore[misc] # bound now
                "checked": lambda a=adapter: _check(a, messages),  # type: ignore[misc] # bound now
                "json": lambda b=body: json.dumps(b),  # type: ignore[misc] # bound now
                "encoded": lambda b=body: hashlib.sha256(orjson.dumps(b)).digest(),  # type: ignore[misc] # bound now
                "sdk": through_sdk,
            },
            rounds,
            warm_up=1,
        )
        costs |= await interleaved({"warm": lambda n=lines: _grow(next(n), more)}, rounds)  # type: ignore[misc] # bound now
        spent = {what: cpu_ms(taken) for what, taken in costs.items()}
        unit = "CPU ms"
        yield figure(
            "G14", f"{name}: 1001 messages to checked request bytes and digests, cold", spent["cold"],
            spent["sdk"], "openai SDK, chat.completions.create(dicts)", unit=unit, at_most=1 / 10,
        )  # fmt: skip
        yield figure(
            "G15", f"{name}: the same, warm, one new turn", spent["warm"], spent["encoded"],
            "orjson and SHA-256 of the whole body", unit=unit, at_most=3,
        )  # fmt: skip
        yield figure(
            "G16", f"{name}: 1001 messages, validator alone", spent["checked"], spent["json"],
            "json.dumps of the same history", unit=unit, at_most=2,
        )  # fmt: skip


def _grown(adapter: Adapter, messages: Sequence[Message]) -> RenderedLine:
    policy = Policy(model="bench", profile=adapter.name, endpoint="http://memory/v1")
    line = adapter.line(policy, TOOLS, key=KEY, conversation=CONVERSATION)
    for message in messages:
        line.feed(message)
    return line


def _grow(line: RenderedLine, messages: Sequence[Message]) -> bytes:
    for message in messages:
        line.feed(message)
    return line.finish().request.body


def _check(adapter: Adapter, messages: Sequence[Message]) -> None:
    checker = LineChecker(adapter.profile, tools=TOOLS, key=KEY, conversation=CONVERSATION)
    for message in messages:
        checker.feed(message)
    assert not checker.finish()
