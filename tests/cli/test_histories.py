"""Histories that people bring, legal and illegal, in every dialect: verdict, first reason and place.

What is expected stands in `histories.json`, from the providers' rules where they decide it. For some
the rules leave the first reason or its exact place open: there it holds still what we answer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli.requests.documents import read_document
from antiphon.cli.requests.judging import judge
from antiphon.core.rules.findings import Severity

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "data" / "histories.json").read_text("utf-8")
)


@pytest.mark.req("M2", "M33", "M34", "M38", "M39", "M40", "M41", "M47", "M48", "M49", "M81")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['dialect']}: {case['what']}")
def test_a_request_is_taken_or_refused_for_its_first_reason_at_its_place(
    case: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "request.json"
    document = case["request"]
    if "facts" in case:  # stated of the model that it is meant for
        document = {"request": document, "model_profile": case["facts"]}
    file.write_text(json.dumps(document), "utf-8")
    verdict = judge(read_document(str(file)), source=case["dialect"], profile=None)
    found = [(f.code, f.at) for f in verdict.findings if f.severity is Severity.ERROR]
    code, at = found[0] if found else (None, None)
    assert code == case["code"], found
    assert at == case.get("at", at)


def test_there_are_legal_and_illegal_ones_of_every_form() -> None:
    told = {(case["dialect"], case["code"] is None) for case in CASES}
    forms = "openai-chat openai-responses anthropic gemini gemini-interactions bedrock ollama"
    assert {(form, legal) for form in forms.split() for legal in (True, False)} <= told
