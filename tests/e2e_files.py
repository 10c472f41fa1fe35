"""The official SDK, our server, a real small model, and a file that both languages stand in. Part of `make e2e-model`.

The file is uploaded, named in a message, and looked up in; what the model says of it has to hold the
one fact that no question holds. A model of this size reads a short passage and repeats it; that is
why the questions are what they are, and why nothing more of its wording is asked for.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
from openai import OpenAI

from antiphon.engine.edge.local_model import INSTALL, installed
from tests.server.process import server_process

WAIT_S = 600.0
HARBOUR = """# Fees

A berth costs nine crowns a night.

# 停泊费

停泊费是每晚九元。

# Water

Fresh water is at the north mole.
"""
ASKED = (
    ("What does a berth cost a night?", "nine", "A berth costs nine crowns a night."),
    ("停泊费是每晚多少？", "九", "停泊费是每晚九元。"),
)


def asked(client: OpenAI, file: str, question: str) -> tuple[str, str]:
    """Ask about a file in a conversation of its own; return the answer and its response's id."""
    message: Any = {
        "role": "user",
        "content": [
            {"type": "input_file", "file_id": file},
            {"type": "input_text", "text": question},
        ],
    }
    told = client.responses.create(
        model="local", input=[message], temperature=0.0, max_output_tokens=48
    )
    assert told.status in ("completed", "incomplete"), told
    return told.output_text, told.id


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as name,
        server_process(Path(name), "--db", str(Path(name) / "chat.db")) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="any", timeout=WAIT_S) as client,
    ):
        print("\n-- an attached file, in two languages, through the server, with the official SDK\n")
        file = client.files.create(file=("harbour.md", HARBOUR.encode()), purpose="user_data")
        for question, fact, passage in ASKED:
            assert fact not in question
            print(f"  you>   {question}")
            answer, response = asked(client, file.id, question)
            print(f"  model> {answer}")
            run = httpx.get(f"{server.url}/antiphon/v1/responses/{response}", timeout=WAIT_S)
            print(run.status_code)
            assert fact in answer, answer
    print("\ne2e-files: ok")


if __name__ == "__main__":
    if not installed():
        sys.exit(f"The real model is not installed: {INSTALL}")
    main()
