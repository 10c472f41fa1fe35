"""Feed damaged streams and histories until told to stop: `make fuzz`.

    make fuzz ARGS="--minutes 10 --seed 7"

Recorded answers are cut, doubled, reordered and bitten; recorded requests lose, repeat and swap
messages. Nothing may raise but our own errors, any cut of the same bytes must give the same
answer, no call may come out of an answer that may not be committed, and what the rules accept
must pass a judge that knows nothing of them. Exit code 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from antiphon.adapters import registry  # found once the root is on the path
from antiphon.adapters.base import render
from antiphon.core.assembler import Answer, Assembler
from antiphon.core.digests import NO_KEY
from antiphon.errors import AntiphonError
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


CHECKS: tuple[Callable[[random.Random], list[str]], ...] = (stream_faults, history_faults)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    until = time.monotonic() + arguments.minutes * 60
    tries = failures = 0
    while time.monotonic() < until:
        for fault in chance.choice(CHECKS)(chance):
            failures += 1
            print(f"FOUND {fault}", flush=True)
        tries += 1
    print(f"{tries} tries, {failures} faults found (seed {arguments.seed})")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
