"""Two answers in one stream, in every dialect: what is committed is never a mixture of both.

So it happens where a gateway loses its provider in the middle of an answer, asks again, and
goes on in the same body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.adapters import registry
from antiphon.core.answers.answer import Answer
from antiphon.core.answers.assembler import Assembler

STREAMS = Path(__file__).parent.parent / "data/fixtures/streams"
PROFILES = {
    "anthropic": "anthropic",
    "azure": "azure",
    "deepseek": "deepseek",
    "gemini": "gemini",
    "groq": "groq",
    "llamacpp": "llamacpp",
    "mistral": "mistral",
    "ollama_openai": "ollama-openai",
    "openai_chat": "openai-chat",
    "openai_responses": "openai-responses",
    "openrouter": "openrouter",
    "qwen_vllm": "qwen-vllm",
}
"""Where recordings lie, and the profile that reads them: those whose answers have an id."""


def answer_of(profile: str, body: bytes) -> Answer:
    reader, assembler = registry.get(profile).reader("text/event-stream"), Assembler()
    for delta in (*reader.feed(body), *reader.end()):
        assembler.feed(delta)
    return assembler.end()


def said(answer: Answer) -> tuple[object, ...]:
    return (answer.text, *((call.name, call.arguments) for call in answer.calls))


def spliced(folder: str, name: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield every beginning of an answer, and another one to go on with."""
    handle = json.loads((STREAMS / folder / "01_text.expect.json").read_text())["handle"]
    ours = (STREAMS / folder / "01_text.sse").read_bytes()
    other = (STREAMS / folder / name).read_bytes().replace(b"Oslo", b"Rome")
    other = other.replace(handle.encode(), handle[::-1].encode())
    for end in re.finditer(rb"\r?\n\r?\n", ours):
        yield ours[: end.end()], other


@pytest.mark.req("M70", "M86")
@pytest.mark.parametrize("name", ["01_text.sse", "02_one_tool.sse"])
@pytest.mark.parametrize("folder", PROFILES)
def test_what_is_committed_of_a_spliced_stream_is_one_of_the_answers(
    folder: str, name: str
) -> None:
    profile, refused = PROFILES[folder], 0
    for beginning, other in spliced(folder, name):
        answer = answer_of(profile, beginning + other)
        wholes = [answer_of(profile, part) for part in (beginning, other)]
        if answer.committable:
            assert said(answer) in [said(whole) for whole in wholes if whole.committable]
        else:
            refused += 1
            assert answer.error == "malformed_event"
    assert refused, "no splice was one"
