"""Feed damaged streams and histories until told to stop: `make fuzz`.

    make fuzz ARGS="--minutes 10 --seed 7"

Recorded answers are cut, doubled, reordered and bitten; recorded requests lose, repeat and swap
messages. Nothing may raise but our own errors, any cut of the same bytes must give the same
answer, no call may come out of an answer that may not be committed, and what the rules accept
must pass a judge that knows nothing of them. Exit code 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).parent.parent))

from antiphon.adapters import registry  # found once the root is on the path
from antiphon.adapters.base import render
from antiphon.core import archive
from antiphon.core.assembler import Answer, Assembler
from antiphon.core.digests import NO_KEY
from antiphon.core.repair import repair
from antiphon.core.rollout import compare
from antiphon.core.rules import check as rules
from antiphon.errors import AntiphonError
from antiphon.server.doors.relay import renamed
from tests.cases.chat_rules import objections

DATA = Path(__file__).parent / "data"
ADAPTER = registry.get("openai-chat")
STREAMS = [
    path.read_bytes() for path in sorted((DATA / "fixtures/streams/openai_chat").glob("*.sse"))
]
REQUESTS = [
    case["given"]["messages"]
    for case in (
        json.loads(path.read_text("utf-8")) for path in sorted((DATA / "cases").glob("A-*.json"))
    )
    if case["provider"] == "openai-chat"
]


def read(pieces: list[bytes]) -> Answer:
    reader, assembler = ADAPTER.reader("text/event-stream"), Assembler()
    for piece in pieces:
        for delta in reader.feed(piece):
            assembler.feed(delta)
    for delta in reader.end():
        assembler.feed(delta)
    return assembler.end()


def damaged(body: bytes, chance: random.Random) -> bytes:
    """Return `body` with one to four bites taken, repeated, swapped or made up."""
    for _ in range(chance.randint(1, 4)):
        a, b = sorted(chance.choices(range(len(body) + 1), k=2))
        match chance.randrange(5):
            case 0:
                body = body[:a]
            case 1:
                body = body[:a] + body[b:]
            case 2:
                body = body[:b] + body[a:b] + body[b:]
            case 3:
                body = body[:a] + bytes(chance.choices(range(256), k=3)) + body[a:]
            case _:
                events = body.split(b"\n\n")
                chance.shuffle(events)
                body = b"\n\n".join(events)
    return body


def stream_faults(chance: random.Random) -> list[str]:
    body = damaged(chance.choice(STREAMS), chance)
    whole = read([body])
    marks = sorted(chance.choices(range(len(body) + 1), k=5))
    cut = read([body[a:b] for a, b in zip([0, *marks], [*marks, len(body)], strict=True)])
    found = []
    if whole != cut:
        found.append(f"another answer when cut at {marks}: {body!r}")
    if not whole.committable and (whole.calls or whole.blocks):
        found.append(f"blocks of an answer that may not be committed: {body!r}")
    return found


def history_faults(chance: random.Random) -> list[str]:
    messages: list[dict[str, Any]] = json.loads(json.dumps(chance.choice(REQUESTS)))
    for _ in range(chance.randint(0, 3)):
        a, b = chance.randrange(len(messages)), chance.randrange(len(messages))
        match chance.randrange(3):
            case 0 if len(messages) > 1:
                del messages[a]
            case 1:
                messages.insert(a, messages[b])
            case _:
                messages[a], messages[b] = messages[b], messages[a]
        if not messages:
            return []
    try:
        parsed = ADAPTER.parse({"model": "m", "messages": messages})
        if parsed.findings:
            return []
        body = render(
            ADAPTER, parsed.messages, parsed.policy, parsed.tools, key=NO_KEY
        ).request.body
    except AntiphonError:
        return []
    return [f"{objection}: {body!r}" for objection in objections(body)]


FOLDERS = {
    "anthropic": "anthropic",
    "bedrock": "bedrock_converse",
    "gemini": "gemini",
    "gemini-interactions": "gemini_interactions",
    "ollama": "ollama_native",
    "openai-responses": "openai_responses",
}
"""Where the recorded answers of each dialect lie that is no dialect of Chat Completions."""
KINDS = {"ollama": "application/x-ndjson", "bedrock": "application/vnd.amazon.eventstream"}
RECORDED = {
    dialect: [
        file.read_bytes()
        for file in sorted((DATA / "fixtures/streams" / folder).iterdir())
        if not file.name.endswith(".json")
    ]
    for dialect, folder in FOLDERS.items()
}


def reader_faults(chance: random.Random) -> list[str]:
    """Let a reader of any dialect read what its provider would never have sent."""
    dialect = chance.choice(sorted(RECORDED))
    body = damaged(chance.choice(RECORDED[dialect] or [b""]), chance)
    content_type = chance.choice([KINDS.get(dialect, "text/event-stream"), "application/json", ""])
    reader, assembler = registry.get(dialect).reader(content_type), Assembler()
    try:
        for delta in (*reader.feed(body), *reader.end()):
            assembler.feed(delta)
        assembler.end()
    except AntiphonError as error:
        return [f"{dialect} raised {error.code}: {body!r}"]
    return []


def anything(chance: random.Random, depth: int = 3) -> Any:
    """Return some JSON of the kind that requests are made of, and of no kind at all."""
    words = ["user", "assistant", "tool", "text", "function_call", "c1", "", "é\ud83d", "{}"]
    names = ["role", "content", "type", "text", "tool_calls", "tool_call_id", "id", "function"]
    names += ["name", "arguments", "input", "output", "call_id", "parts", "source", "toolUse"]
    if depth == 0 or chance.random() < 0.3:
        return chance.choice([None, True, 0, -1.5, 10**30, *words])
    if chance.random() < 0.5:
        return [anything(chance, depth - 1) for _ in range(chance.randrange(4))]
    return {chance.choice(names): anything(chance, depth - 1) for _ in range(chance.randrange(5))}


def request_faults(chance: random.Random) -> list[str]:
    """Let a parser of any dialect read what no client would send, then repair what it read."""
    dialect = chance.choice(registry.available())
    messages = json.loads(json.dumps(chance.choice(REQUESTS)))
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(messages))
        match chance.randrange(3):
            case 0:
                messages[place] = anything(chance)
            case 1 if isinstance(messages[place], dict):
                messages[place][chance.choice(["role", "content", "tool_calls"])] = anything(chance)
            case _:
                messages.append(anything(chance))
    key = chance.choice(["messages", "input", "contents", "tools", "system"])
    request = {"model": "m", "messages": messages, "max_tokens": 5, key: anything(chance)}
    request = {**request, "messages": messages} if chance.random() < 0.8 else request
    try:
        parsed = registry.get(dialect).parse(request)
    except AntiphonError:
        return []
    once = repair(parsed.messages)
    again = repair(once.messages)
    if again.repairs or again.messages != once.messages:
        return [f"{dialect}: a repair leaves something to repair: {request!r}"]
    left = {finding.code for finding in rules(once.messages)} & MENDED
    return [f"{dialect}: {left} after a repair: {request!r}"] if left else []


MENDED = frozenset(
    {"missing_tool_result", "orphan_tool_result", "duplicate_tool_result", "duplicate_call_id"}
    | {"result_before_call", "unclosed_arguments"}
)


def import_faults(chance: random.Random) -> list[str]:
    """Let an import read a file that was damaged."""
    with contextlib.suppress(AntiphonError):
        archive.read(damaged(EXPORT, chance).split(b"\n"))
    return []


EXPORT = b"\n".join(
    [
        b'{"kind":"export","format":1}',
        b'{"kind":"conversation","id":"conv_1","title":"T"}',
        b'{"kind":"message","id":"m1","parent_id":null,"role":"user","blocks":[{"kind":"text","text":"Hi"}]}',
        b'{"kind":"message","id":"m2","parent_id":"m1","role":"assistant","blocks":[{"kind":"text","text":"Ho"}]}',
    ]
)


def shadow_faults(chance: random.Random) -> list[str]:
    """Let a shadow compare and rename bodies of any kind."""
    one, other = ({"model": "m", "x": anything(chance)} for _ in "12")
    old, ours = json.dumps(one).encode(), json.dumps(other).encode()
    found = []
    if bool(compare(old, ours)) != (old != ours):
        found.append(f"compared wrongly: {old!r} {ours!r}")
    if json.loads(renamed(old, "n")) != {**json.loads(old), "model": "n"}:
        found.append(f"renamed wrongly: {old!r}")
    return found


Check: TypeAlias = Callable[[random.Random], list[str]]
CHECKS: tuple[Check, ...] = (
    stream_faults,
    history_faults,
    reader_faults,
    request_faults,
    import_faults,
    shadow_faults,
)
"""One for each kind of bytes that come from outside."""


def faults(check: Check, chance: random.Random) -> list[str]:
    """Return what one try found; whatever is raised but our own errors is a fault."""
    try:
        return check(chance)
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return [f"{check.__name__} raised {type(error).__name__}: {error}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    until = time.monotonic() + arguments.minutes * 60
    tries = failures = 0
    while time.monotonic() < until:
        for fault in faults(chance.choice(CHECKS), chance):
            failures += 1
            print(f"FOUND {fault}", flush=True)
        tries += 1
    print(f"{tries} tries, {failures} faults found (seed {arguments.seed})")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
