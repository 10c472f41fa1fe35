"""The official SDK, our server, a real small model, and a file in two languages. Part of `make e2e-model`.

The file is uploaded, named in a message, and looked up in. What can be proven is asked of us, to the
byte: the request that left held the one passage that answers, with its source, and not the others.
Of the model it is asked that its answer quotes that passage, in words that stand in no question: one
of this size answers in English, and in Chinese it repeats what it was given.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from openai import OpenAI

from antiphon.engine.edge.local_model import INSTALL, installed
from tests.server.process import server_process

WAIT_S = 600.0
HARBOUR = """# Harbour fees

A berth costs nine crowns a night.

The harbour master is called Anna Lind.

# 港口

港口的船长叫王明。

停泊费是每晚九元。
"""


@dataclass(frozen=True)
class Asked:
    """A question, where the answer stands, and what of that passage an answer may quote."""

    question: str
    source: str
    passage: str
    quoted: tuple[str, ...]


ASKED = (
    Asked("What does a berth cost a night?", "fees.md#1", "A berth costs nine crowns a night.", ("nine crowns",)),
    Asked("停泊费每晚多少元?".replace("?", "\uff1f"), "fees.md#2", "停泊费是每晚九元。", ("九元", "王明")),
)  # fmt: skip


def ask(client: OpenAI, file: str, asked: Asked) -> tuple[str, str]:
    """Ask about a file in a conversation of its own; return the answer, and its run."""
    message: Any = {
        "role": "user",
        "content": [
            {"type": "input_text", "text": asked.question},
            {"type": "input_file", "file_id": file},
        ],
    }
    told = client.responses.create(
        model="local", input=[message], temperature=0.0, max_output_tokens=56
    )
    assert told.status in ("completed", "incomplete"), told
    return told.output_text, told.to_dict()["antiphon"]["run"]  # type: ignore[index]


def check_sent(url: str, run: str, asked: Asked) -> None:
    """Hold the bytes that left against the passage that they had to hold."""
    body = httpx.get(f"{url}/antiphon/v1/runs/{run}/request/body", timeout=WAIT_S).content
    shown = json.loads(body)["messages"][-1]["content"]
    passages = [f'<rag source="{one.source}">' in shown for one in ASKED]
    assert passages == [one is asked for one in ASKED], shown
    within = shown.partition(f'<rag source="{asked.source}">\n')[2].partition("\n</rag>")[0]
    assert asked.passage in within, shown
    assert shown.endswith(f"<user_input>\n{asked.question}\n</user_input>"), shown


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as name,
        server_process(Path(name), "--db", str(Path(name) / "chat.db")) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="any", timeout=WAIT_S) as client,
    ):
        print(
            "\n-- an attached file, in two languages, through the server, with the official SDK\n"
        )
        file = client.files.create(file=("fees.md", HARBOUR.encode()), purpose="user_data")
        for one in ASKED:
            assert not any(fact in one.question for fact in one.quoted)
            print(f"  you>   {one.question}")
            answer, run = ask(client, file.id, one)
            check_sent(server.url, run, one)
            print(f"  model> {answer}", flush=True)
            assert any(fact in answer for fact in one.quoted), answer
    print("\ne2e-files: ok")


if __name__ == "__main__":
    if not installed():
        sys.exit(f"The real model is not installed: {INSTALL}")
    main()
