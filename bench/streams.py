"""G12 and G13: from the bytes of a stream to the block that would be committed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from antiphon.adapters import registry
from antiphon.core.answers.answer import Answer
from antiphon.core.answers.assembler import Assembler
from antiphon.core.answers.schemas import compile_schema
from antiphon.core.ids import ConversationId, RunId
from antiphon.engine.live import LiveRun
from bench.measure import Figure, cpu_ms, figure, interleaved, note
from bench.provider import anthropic_events, chat_call, chat_text
from bench.rivals import anthropic_helper, openai_helper
from bench.talk import words

TEXT_DELTAS = 2000
SMALL, LARGE = (50_000, 1250), (200_000, 5000)
EDIT = {"type": "object", "properties": {"edits": {"type": "array"}}, "required": ["edits"]}


async def figures(*, quick: bool) -> AsyncIterator[Figure]:
    """Yield what the assembler costs beside the SDKs' helpers and a bare decoder."""
    async for line in _text(rounds=1 if quick else 7):
        yield line
    async for line in _arguments(rounds=1 if quick else 3):
        yield line


async def _text(rounds: int) -> AsyncIterator[Figure]:
    note(f"stream: {TEXT_DELTAS} text deltas")
    pieces = [" " + words(1) for _ in range(TEXT_DELTAS)]
    chat = chat_text(pieces)
    block, deltas = (
        {"type": "text", "text": ""},
        [{"type": "text_delta", "text": p} for p in pieces],
    )
    contestants: dict[str, Callable[[], object]] = {
        "ours": lambda: ours(chat),
        "bare": lambda: bare(chat),
        "openai": openai_helper(chat),
        "anthropic": anthropic_helper(anthropic_events(block, deltas)),
    }
    expected = "".join(pieces)
    assert ours(chat).text == bare(chat) == expected
    costs = await interleaved(contestants, rounds, warm_up=1)
    speed = {name: TEXT_DELTAS / cpu_ms(taken) * 1000 for name, taken in costs.items()}
    what, unit = f"text stream of {TEXT_DELTAS} deltas to a committable block", "deltas/CPU s"
    for name, title, least in (
        ("openai", "openai SDK, chat.completions.stream", 15),
        ("anthropic", "anthropic SDK, messages.stream, its dialect", 5),
    ):
        yield figure("G12", what, speed["ours"], speed[name], title, unit=unit, at_least=least)
    yield figure(
        "G12 floor",
        what,
        speed["ours"],
        speed["bare"],
        "floor: msgspec and join, nothing checked",
        unit=unit,
        at_least=1 / 12,
    )
    yield figure("G12 aim", what, speed["ours"], 100_000, "the aim", unit=unit, at_least=1)


async def _arguments(rounds: int) -> AsyncIterator[Figure]:
    note("stream: tool arguments of 50 and 200 kB")
    small, large = _arguments_of(*SMALL), _arguments_of(*LARGE)
    few, many = chat_call("call_1", "edit", small), chat_call("call_1", "edit", large)
    block = {"type": "tool_use", "id": "toolu_1", "name": "edit", "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in large]
    assert ours(many).calls[0].arguments == "".join(large)
    fast = await interleaved(
        {"small": lambda: ours(few), "large": lambda: ours(many), "bare": lambda: bare(many)},
        rounds * 3,
    )
    slow = await interleaved(
        {"anthropic": anthropic_helper(anthropic_events(block, deltas))}, rounds, warm_up=0
    )
    what = "tool arguments of 200 kB in 5000 deltas"
    yield figure(
        "G13",
        f"{what}, growth",
        cpu_ms(fast["large"]),
        cpu_ms(fast["small"]),
        "ours: 50 kB in 1250 deltas",
        unit="CPU ms",
        at_most=5,
    )
    yield figure(
        "G13",
        what,
        cpu_ms(fast["large"]),
        cpu_ms(slow["anthropic"]),
        "anthropic SDK, messages.stream, its dialect",
        unit="CPU ms",
        at_most=1 / 20,
    )
    yield figure(
        "G13 floor",
        what,
        cpu_ms(fast["large"]),
        cpu_ms(fast["bare"]),
        "floor: msgspec and join, nothing checked",
        unit="CPU ms",
        at_most=12,
    )


def _arguments_of(size: int, count: int) -> list[str]:
    edits = [{"path": words(3), "line": n, "text": words(12)} for n in range(size // 145)]
    whole = json.dumps({"edits": edits})
    step = -(-len(whole) // count)
    return [whole[at : at + step] for at in range(0, len(whole), step)]


_adapter = registry.get("openai-chat")
_tools = {"edit": compile_schema(msgspec.Raw(json.dumps(EDIT).encode()))}


def ours(chunks: Sequence[bytes]) -> Answer:
    """Do what an exchange does with each read, the preview included."""
    reader = _adapter.reader("text/event-stream")
    assembler = Assembler(tools=_tools)
    live = LiveRun(ConversationId("conv_bench"), RunId("run_bench"), 1)
    for chunk in chunks:
        for delta in reader.feed(chunk):
            piece = assembler.feed(delta)
            if piece is not None:
                live.append(piece.block, piece.channel, piece.text)
    for delta in reader.end():
        assembler.feed(delta)
    answer = assembler.end()
    assert answer.committable, answer
    return answer


_decode = msgspec.json.Decoder().decode


def bare(chunks: Sequence[bytes]) -> str:
    """Decode and join, and check nothing: what no assembler can go below."""
    texts: list[str] = []
    for chunk in chunks:
        if chunk.startswith(b"data: {"):
            for choice in _decode(chunk[6:])["choices"]:
                delta = choice["delta"]
                if delta.get("content"):
                    texts.append(delta["content"])
                texts.extend(c["function"]["arguments"] for c in delta.get("tool_calls") or ())
    return "".join(texts)
