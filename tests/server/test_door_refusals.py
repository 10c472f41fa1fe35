"""What the doors refuse before anything is sent, and `antiphon lint` with them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from antiphon.cli.requests.documents import document_of
from antiphon.cli.requests.judging import judge
from antiphon.core.ids import LOCAL_TENANT
from tests.server.sdk import WAIT_S, Door, door
from tests.server.test_doors import HI, WEATHER
from tests.support.provider import ScriptedProvider


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Door]:
    async with door(tmp_path / "a.db", ScriptedProvider()) as opened:
        yield opened


@pytest.fixture
async def claude(at: Door) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=at.url, api_key="any", max_retries=0, timeout=WAIT_S
    ) as client:
        yield client


IMPOSSIBLE: list[tuple[dict[str, Any], str, str]] = [
    ({"tool_choice": "tool:wether", "tools": True}, "unknown_tool", "tool_choice"),
    ({"tool_choice": "tool:weather"}, "unknown_tool", "tool_choice"),
    ({"tool_choice": "required"}, "bad_option", "tool_choice"),
    ({"most": -1}, "bad_option", "most"),
    ({"image": "not base64"}, "malformed_item", "image"),
]
"""What no provider can do, in words of no form."""


@pytest.mark.req("M12", "M34")
@pytest.mark.parametrize(("asked", "code", "place"), IMPOSSIBLE)
async def test_what_no_provider_can_do_is_refused_at_every_door_before_anything_is_sent(
    at: Door, claude: anthropic.AsyncAnthropic, asked: dict[str, Any], code: str, place: str
) -> None:
    """And by `antiphon lint` alike, which reads the same request."""
    doors: dict[str, Callable[..., Awaitable[Any]]] = {
        "openai-chat": at.client.chat.completions.create,
        "openai-responses": at.client.responses.create,
        "anthropic": claude.messages.create,
    }
    for form in doors:
        body, places = in_words_of(form, asked)
        with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)) as caught:
            await doors[form](**body)
        error: Any = caught.value.body
        error = error.get("error", error)
        # The Responses door knows this one by its own type.
        typed = form == "openai-responses" and place == "most"
        assert error["code"] == ("invalid_input" if typed else code), form
        assert (error.get("param") or error.get("at")) == places[place], form
        linted = judge(document_of(body, json.dumps(body), "x"), source=form, profile=None)
        assert (linted.findings[0].code, linted.findings[0].at) == (code, places[place])
    assert not at.provider.requests
    assert not await at.engine.world.store.conversations(LOCAL_TENANT, limit=1)


def in_words_of(form: str, asked: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a request of this form, and what the places in question are called there."""
    choice: Any = asked.get("tool_choice")
    name = choice.removeprefix("tool:") if choice and choice.startswith("tool:") else None
    schema = WEATHER["function"]["parameters"]
    declared: dict[str, Any]
    if form == "anthropic":
        choice = {"type": "tool", "name": name} if name else choice and {"type": "any"}
        declared = {"name": "weather", "input_schema": schema}
        source = {"type": "base64", "media_type": "image/png", "data": asked.get("image")}
        image = {"type": "image", "source": source}
        limit, items, most = "max_tokens", "messages", 9
    elif form == "openai-responses":
        choice = {"type": "function", "name": name} if name else choice
        declared = {"type": "function", "name": "weather", "parameters": schema, "strict": False}
        image = {"type": "input_image", "image_url": f"data:image/png;base64,{asked.get('image')}"}
        limit, items, most = "max_output_tokens", "input", None
    else:
        choice = {"type": "function", "function": {"name": name}} if name else choice
        declared = WEATHER
        url = f"data:image/png;base64,{asked.get('image')}"
        image = {"type": "image_url", "image_url": {"url": url}}
        limit, items, most = "max_completion_tokens", "messages", None
    said: list[Any] = [{"role": "user", "content": [image]}] if "image" in asked else HI
    body = {
        "model": "rehearsal",
        items: said,
        limit: asked.get("most", most),
        "tool_choice": choice,
        "tools": [declared] if asked.get("tools") else None,
    }
    places = {"tool_choice": "tool_choice", "most": limit, "image": f"{items}[0].content[0]"}
    return {k: v for k, v in body.items() if v is not None}, places


async def test_a_request_that_only_warms_a_cache_is_legal_there_and_no_turn_of_ours(
    at: Door, claude: anthropic.AsyncAnthropic
) -> None:
    body: dict[str, Any] = {"model": "rehearsal", "messages": HI, "max_tokens": 0}
    with pytest.raises(anthropic.BadRequestError) as caught:
        await claude.messages.create(**body)
    told: Any = caught.value.body
    assert (told["error"]["code"], told["error"]["at"]) == ("unsupported_parameter", "max_tokens")
    linted = judge(document_of(body, json.dumps(body), "x"), source="anthropic", profile=None)
    assert linted.accepted
    assert linted.parsed.uncarried == ("max_tokens",)
