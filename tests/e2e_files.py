"""The official SDK, our server, a real small model, and a file in two languages. Part of `make e2e-model`.

The file is uploaded, named in a message, and looked up in. What the model says has to hold a fact
that stands in the file and in no question. More is not asked of it: a model of this size answers in
English, and in Chinese it repeats the passage that it was given.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

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
ASKED = (
    ("What does a berth cost a night?", ("nine crowns",)),
    ("停泊费每晚多少元?".replace("?", "\uff1f"), ("九元", "王明")),
)


def asked(client: OpenAI, file: str, question: str) -> str:
    """Ask about a file in a conversation of its own; return the answer."""
    message: Any = {
        "role": "user",
        "content": [
            {"type": "input_text", "text": question},
            {"type": "input_file", "file_id": file},
        ],
    }
    told = client.responses.create(
        model="local", input=[message], temperature=0.0, max_output_tokens=56
    )
    assert told.status in ("completed", "incomplete"), told
    return told.output_text


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
        for question, facts in ASKED:
            assert not any(fact in question for fact in facts)
            print(f"  you>   {question}")
            answer = asked(client, file.id, question)
            print(f"  model> {answer}", flush=True)
            assert any(fact in answer for fact in facts), answer
    print("\ne2e-files: ok")


if __name__ == "__main__":
    if not installed():
        sys.exit(f"The real model is not installed: {INSTALL}")
    main()
