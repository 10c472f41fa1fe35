"""Answers that servers stream, sound and broken, in every dialect: what each amounts to.

What is expected stands in `streams.json`, from the providers' rules; it says nothing of what they
leave open. Where the bytes are cut makes no difference.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli import run

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "data" / "streams.json").read_text("utf-8")
)


@pytest.mark.req("M41", "M42", "M71", "M72", "M73", "M74", "M84")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['dialect']}: {case['what']}")
def test_an_answer_amounts_to_the_same_wherever_its_bytes_were_cut(
    case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = case["body"].encode() if "body" in case else base64.b64decode(case["base64"])
    told = []
    for size in (len(body), 1, 7):
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        document = {
            "from": case["dialect"],
            "chunks_base64": [base64.b64encode(piece).decode() for piece in pieces],
            "content_type": case.get("content_type"),
            "tools": case.get("tools"),
        }
        file = tmp_path / "answer.json"
        file.write_text(json.dumps(document), "utf-8")
        code = run(["assemble", "--json", "--profile", case["dialect"], str(file)])
        told.append((code, json.loads(capsys.readouterr().out)))
    code, found = told[0]
    assert {name: found[name] for name in case["expect"]} == case["expect"]
    assert code == (0 if found["committable"] else 4)
    assert told[1:] == [told[0]] * 2


def test_there_are_sound_and_broken_ones_of_every_form() -> None:
    told = {(case["dialect"], case["expect"]["committable"]) for case in CASES}
    forms = "openai-chat openai-responses anthropic gemini gemini-interactions bedrock ollama"
    assert {(form, sound) for form in forms.split() for sound in (True, False)} <= told
