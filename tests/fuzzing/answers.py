"""Answers of providers that no provider would give, to the reader of each dialect."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from antiphon.adapters import registry
from antiphon.core.answers.answer import Answer
from antiphon.core.answers.assembler import Assembler
from antiphon.errors import AntiphonError
from tests.fuzzing import mutations
from tests.fuzzing.mutations import EVENTS, FRAMES, LINES, Form, Part

STREAMS: Final = Path(__file__).parents[1] / "data/fixtures/streams"
FOLDERS: Final = {
    "anthropic": "anthropic",
    "azure": "azure",
    "bedrock": "bedrock_converse",
    "deepseek": "deepseek",
    "gemini": "gemini",
    "gemini-interactions": "gemini_interactions",
    "groq": "groq",
    "llamacpp": "llamacpp",
    "mistral": "mistral",
    "ollama": "ollama_native",
    "ollama-openai": "ollama_openai",
    "openai-chat": "openai_chat",
    "openai-responses": "openai_responses",
    "openrouter": "openrouter",
    "qwen-vllm": "qwen_vllm",
}
KINDS: Final = {"ollama": "application/x-ndjson", "bedrock": "application/vnd.amazon.eventstream"}
FORMS: Final[dict[str, Form]] = {"ollama": LINES, "bedrock": FRAMES}


def _recorded(folder: str) -> list[bytes]:
    return [
        file.read_bytes()
        for file in sorted((STREAMS / folder).iterdir())
        if not file.name.endswith(".json")
    ]


RECORDED: Final = {dialect: _recorded(folder) for dialect, folder in FOLDERS.items()}
PARTS: Final[dict[str, list[list[Part]]]] = {
    dialect: [FORMS.get(dialect, EVENTS)[0](body) for body in bodies]
    for dialect, bodies in RECORDED.items()
}


def read(dialect: str, content_type: str, pieces: Iterator[bytes]) -> Answer:
    """Return what comes of an answer that arrives in these pieces."""
    reader, assembler = registry.get(dialect).reader(content_type), Assembler()
    for piece in pieces:
        for delta in reader.feed(piece):
            assembler.feed(delta)
    for delta in reader.end():
        assembler.feed(delta)
    return assembler.end()


def _broken(dialect: str, chance: random.Random) -> bytes:
    if chance.random() < 0.25:
        return mutations.bitten(chance.choice(RECORDED[dialect]), chance)
    parts = mutations.shuffled(chance.choice(PARTS[dialect]), chance, PARTS[dialect])
    body = FORMS.get(dialect, EVENTS)[1](parts, chance)
    return mutations.bitten(body, chance) if chance.random() < 0.05 else body


def _faults(dialect: str, chance: random.Random) -> list[str]:
    body = _broken(dialect, chance)
    kind = KINDS.get(dialect, "text/event-stream")
    if chance.random() < 0.03:
        kind = chance.choice(["application/json", "text/event-stream", ""])
    marks = sorted(chance.choices(range(len(body) + 1), k=chance.choice([1, 5, 40])))
    cuts = [body[a:b] for a, b in zip([0, *marks], [*marks, len(body)], strict=True)]
    try:
        whole, cut = read(dialect, kind, iter([body])), read(dialect, kind, iter(cuts))
    except AntiphonError as error:
        return [f"{dialect} raised {error.code}: {body!r}"]
    found = []
    if whole != cut:
        found.append(f"{dialect}: another answer when cut at {marks}: {body!r}")
    if not whole.committable and (whole.calls or whole.blocks):
        found.append(f"{dialect}: blocks of an answer that may not be committed: {body!r}")
    ids = [call.call_id for call in whole.calls]
    if len(set(ids)) < len(ids):
        found.append(f"{dialect}: two calls of one id: {body!r}")
    for one in whole.calls:
        try:
            json.loads(one.arguments)
        except ValueError:
            found.append(f"{dialect}: arguments that are no JSON: {body!r}")
    return found


def _of(*dialects: str) -> Callable[[random.Random], list[str]]:
    return lambda chance: _faults(chance.choice(dialects), chance)


chat_streams: Final = _of(
    *(name for name in FOLDERS if registry.get(name).name == "openai-chat"),
)
"""SSE of Chat Completions, in all its dialects."""
event_streams: Final = _of("openai-responses", "anthropic", "gemini", "gemini-interactions")
"""SSE with events of their own."""
frame_streams: Final = _of("bedrock")
"""Frames of AWS, with checksums."""
line_streams: Final = _of("ollama")
"""One JSON a line."""
