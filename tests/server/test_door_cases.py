"""Every case of a broken or odd history, through the front doors: what is said, what is sent.

A door speaks three of the forms that the cases come in; one in another form is brought to Chat
Completions as an agent would have it there. Whatever reaches the upstream is judged by the types
that its provider has published, and by nothing of ours.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from antiphon.core.rules.findings import GRAPH_CODES
from antiphon.engine.catalogue.models import Model, Models
from antiphon.engine.settings import Settings
from tests.adapters import chat_judge, messages_judge, responses_judge
from tests.cases.command import call
from tests.cases.files import Case, cases_in
from tests.cases.history import KEY, document, shapes
from tests.server.stage import Served, served
from tests.support.provider import ScriptedProvider, Status

DATA = Path(__file__).parents[1] / "data"
CASES = [
    case
    for folder in (DATA / "cases", DATA / "cases_extra")
    for case in cases_in(folder)
    if case.kind == "history"
]
DOORS = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
}
NO = b'{"error":{"message":"captured","type":"invalid_request_error","code":"captured"}}'
"""What the upstream says to everything: it is asked only for what reaches it."""


@asynccontextmanager
async def gateway(path: Path, case: Case) -> AsyncIterator[tuple[Served, ScriptedProvider]]:
    """Serve the case's dialect, for a model that is as the case says."""
    facts = case.given.get("request", {}).get("model_profile") or {}
    model = Model(
        name="m",
        profile=case.dialect,
        model="m-1",
        base_url="http://upstream.invalid/v1",
        max_output_tokens=100,
        facts=MappingProxyType(facts),
    )
    provider = ScriptedProvider([Status(400), NO], [Status(400), NO])
    settings = Settings(
        models=Models(named=MappingProxyType({"m": model})), retries=0, cancel_grace_s=0.0
    )
    async with served(path / "a.db", provider, settings=settings) as stage:
        yield stage, provider


def brought(case: Case) -> tuple[str, dict[str, Any]]:
    """Return the door that the case comes to, and the request as the client sends it."""
    request: dict[str, Any] = document(case, naive=True)["request"]
    form = case.dialect
    if form not in DOORS:
        form, request = "openai-chat", as_chat(case)
    more = {"max_tokens": 100} if form == "anthropic" else {}
    kept = {k: v for k, v in request.items() if k != "store"}
    return DOORS[form], {**kept, **more, "model": "m"}


def as_chat(case: Case) -> dict[str, Any]:
    code, out, notes = call(
        "render",
        "--profile",
        "openai-chat",
        document=document(case, naive="graph" not in case.given),
    )
    assert code == 0, notes
    made: dict[str, Any] = json.loads(out)
    return {**made, "stream": False, "stream_options": None}


def judged(case: Case, body: bytes) -> list[str]:
    """Return what its provider would say against a body."""
    facts = case.given.get("request", {}).get("model_profile") or {}
    match case.dialect:
        case "openai-chat":
            return chat_judge.problems(body)
        case "openai-responses":
            return responses_judge.problems(body)
        case "anthropic":
            return messages_judge.problems(body, prefill=facts.get("prefill") == "supported")
        case profile:
            code, out, _ = call(
                "lint",
                "--json",
                document={"from": profile, "request": json.loads(body), "model_profile": facts},
            )
            return [] if code == 0 else [out.decode()]


def same(case: Case, body: bytes) -> str | None:
    """Return how what was sent differs from what the case wants, or None."""
    sent, expect = json.loads(body)[KEY[case.dialect]], case.expect
    if "rendered" in expect and case.dialect in DOORS:
        problem: str | None = shapes().same_array(
            expect["rendered"], sent, case.dialect, strict_ids="rendered_note" not in expect
        )
        return problem
    return None


@pytest.mark.req("M12", "M34", "M88")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_each_history_is_refused_or_sent_as_its_case_says(tmp_path: Path, case: Case) -> None:
    door, request = await asyncio.to_thread(brought, case)
    async with gateway(tmp_path, case) as (stage, provider):
        told = await stage.client.post(door, request)
        expect = case.expect
        if expect["verdict"] == "reject" and expect["reason"] in GRAPH_CODES:
            error = told.json["error"]
            assert (told.status, error["code"]) == (400, expect["reason"])
            place = error.get("at", error.get("param"))
            if "at" in expect:
                assert place == expect["at"].replace("messages", KEY[case.dialect], 1)
            assert error["fix"]
            assert error["repairs"]
            assert "Antiphon-Repair: on" in error["message"]
            assert not provider.requests

            stage.client.headers["antiphon-repair"] = "on"
            told = await stage.client.post(door, request)
            assert told.status == 502  # as the upstream said
        elif expect["verdict"] == "reject" and not provider.requests:
            # A rule of the dialect, which no repair can meet without making something up.
            assert (told.status, told.json["error"]["code"]) == (400, expect["reason"])
            return
        assert len(provider.requests) == 1, told.body
        assert await asyncio.to_thread(judged, case, provider.bodies[0]) == []
        assert await asyncio.to_thread(same, case, provider.bodies[0]) is None
