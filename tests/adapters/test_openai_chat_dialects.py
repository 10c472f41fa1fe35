"""The named dialects of Chat Completions: what each says otherwise, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from antiphon.adapters import registry
from antiphon.adapters.base import render
from antiphon.adapters.openai_chat.dialects import DIALECTS
from antiphon.adapters.openai_chat.profile import NOWHERE, same_upstream
from antiphon.core.answers.answer import Answer
from antiphon.core.answers.assembler import Assembler
from antiphon.core.answers.deltas import Usage
from antiphon.core.blocks import Image, Message, Reasoning, Role
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.rules.graph import check
from antiphon.engine.catalogue.models import HOMES
from antiphon.errors import InvalidInput, SequenceRejected
from tests.adapters.chat_judge import problems
from tests.golden import requests as golden
from tests.support.chat_stream import chunk, text
from tests.support.lines import KEY, answer, line, model, said, system, user
from tests.support.lines import asks as asks_for

FIXTURES = Path(__file__).parent.parent / "data" / "fixtures"
NAMED = sorted(DIALECTS.keys() - {"openai-chat", "llamacpp"})
CASES = {name: folder for name, folder in golden.cases() if name.split("/")[0] in NAMED}

RESPELLED = "made from the id alone, the same in every request; the fixture drew its own"
DIFFERENCES: dict[str, dict[str, tuple[object, str]]] = {
    "mistral": {
        "messages[2].tool_calls[0].id": ("s9QD5xWos", RESPELLED),
        "messages[2].tool_calls[1].id": ("jih6eoCup", RESPELLED),
        "messages[3].tool_call_id": ("s9QD5xWos", RESPELLED),
        "messages[4].tool_call_id": ("jih6eoCup", RESPELLED),
    },
}
"""Where our rendering of the common graph is not its fixture: path, our value, and why."""


def fixture(dialect: str) -> Any:
    return json.loads((FIXTURES / "render" / f"{dialect.replace('-', '_')}.json").read_text())


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every field of a body with its place, an empty container as itself."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{number}]")
    else:
        yield path, value


def parts_of(request: Any) -> Iterator[dict[str, Any]]:
    for message in request["messages"]:
        if isinstance(message["content"], list):
            yield from message["content"]


# Exact bytes.


@pytest.mark.req("M2", "M20", "M30", "M31", "M42", "M48", "M87")
@pytest.mark.parametrize("name", CASES)
def test_a_golden_sequence_renders_to_its_recorded_bytes(name: str) -> None:
    case, recorded = golden.load(CASES[name])
    rendering = case.rendering()
    assert rendering.request.body == recorded
    assert tuple(m.rule for m in rendering.mappings) == case.mapped


@pytest.mark.req("M9", "M87")
@pytest.mark.parametrize("dialect", NAMED)
def test_the_golden_bytes_were_made_by_this_very_adapter(dialect: str) -> None:
    """Another digest is another adapter: raise its version, and keep the bytes of this one."""
    adapter = registry.get(dialect)
    recorded = (golden.HERE / dialect / "adapter.digest").read_text().strip()
    assert (adapter.name, adapter.version, adapter.digest) == (dialect, 1, recorded)


@pytest.mark.req("M2", "M9")
def test_no_two_dialects_are_one_adapter() -> None:
    assert len({registry.get(name).digest for name in DIALECTS}) == len(DIALECTS)


@pytest.mark.req("M2", "M42", "M48")
@pytest.mark.parametrize("dialect", NAMED)
def test_the_common_graph_says_what_its_fixture_says_field_by_field(dialect: str) -> None:
    case, recorded = golden.load(CASES[f"{dialect}/travel_desk"])
    graph = json.loads((FIXTURES / "render" / "graph.json").read_text())
    assert [m.id for m in case.messages] == graph["activePath"]
    expected = dict(leaves(fixture(dialect)))
    differences = DIFFERENCES.get(dialect, {})
    assert all(expected.get(path) != value for path, (value, _) in differences.items()), "stale"
    expected |= {path: value for path, (value, _) in differences.items()}
    assert dict(leaves(json.loads(recorded))) == expected


OWN_FIELDS: dict[str, set[str]] = {
    "qwen-vllm": {"chat_template_kwargs", "reasoning"},
    "ollama-openai": {"reasoning"},
    "groq": {"reasoning_format"},
    "azure": set(),
    "deepseek": {"reasoning_content", "thinking"},
    "mistral": {"name", "tool_choice"},  # its `any`; and an image's address as a string
    "openrouter": {"provider", "reasoning_details", "usage"},
}
"""What a dialect has beyond the published types of OpenAI, in a request or in a message."""


@pytest.mark.req("M2", "M16", "M42", "M88")
@pytest.mark.parametrize("name", CASES)
def test_beside_the_dialects_own_fields_there_is_nothing_that_the_published_types_lack(
    name: str,
) -> None:
    _, recorded = golden.load(CASES[name])
    own = OWN_FIELDS[name.split("/")[0]]
    request = {k: v for k, v in json.loads(recorded).items() if k not in own}
    request["messages"] = [
        {k: v for k, v in message.items() if k not in own} for message in request["messages"]
    ]
    for part in parts_of(request):
        if isinstance(part.get("image_url"), str) and name.startswith("mistral/"):
            part["image_url"] = {"url": part["image_url"]}
    if request["stream"]:  # the published type of a streamed request says that it is one
        assert problems(json.dumps(request).encode()) == []


def test_a_dialect_is_at_home_where_the_settings_say() -> None:
    for name, dialect in DIALECTS.items():
        assert dialect.wire.home == (HOMES[name].base_url or NOWHERE), name


# Recorded streams.

STREAMS = [
    pytest.param(dialect, path, id=f"{dialect}/{path.stem}")
    for dialect in NAMED
    for path in sorted((FIXTURES / "streams" / dialect.replace("-", "_")).glob("*.sse"))
]
OWN_CODES = {"truncated": "unclosed_arguments", "refused": "content_filter"}


def read(dialect: str, *reads: bytes) -> Answer:
    """What the engine would make of these reads, through the dialect's own reader."""
    reader, assembler = registry.get(dialect).reader("text/event-stream"), Assembler()
    for data in reads:
        for delta in reader.feed(data):
            assembler.feed(delta)
    for delta in reader.end():
        assembler.feed(delta)
    return assembler.end()


def expected_code(expected: dict[str, Any]) -> str | None:
    if expected["committable"]:
        return None
    if expected["error"] is None:
        return OWN_CODES[expected["finish"]["turn"]]
    word = expected["error"]["class"]
    return "stream_incomplete" if word == "stream_ended_without_finish" else str(word)


@pytest.mark.req("M71", "M72", "M73", "M74")
@pytest.mark.parametrize(("dialect", "stream"), STREAMS)
def test_a_recorded_stream_comes_to_what_it_says_however_it_is_cut(
    dialect: str, stream: Path
) -> None:
    body, expected = stream.read_bytes(), json.loads(stream.with_suffix(".expect.json").read_text())
    answer = read(dialect, body)
    assert (answer.text, answer.reasoning) == (expected["text"], expected["reasoning"])
    assert [(c.call_id, c.name, c.arguments) for c in answer.calls] == [
        (c["id"], c["name"], c["arguments"]) for c in expected["tool_calls"]
    ]
    assert [c.call_id for c in answer.released] == expected["dispatchable"]
    assert (answer.finish, answer.handle) == (expected["finish"]["native"], expected["handle"])
    assert answer.committable is expected["committable"]
    assert answer.error == expected_code(expected)
    assert answer.usage == Usage(**(expected["usage"] or {}))
    assert read(dialect, *(body[i : i + 1] for i in range(len(body)))) == answer
    for cut in range(1, len(body), 37):
        assert read(dialect, body[:cut], body[cut:]) == answer, cut


@pytest.mark.req("M31")
@pytest.mark.parametrize(("dialect", "stream"), STREAMS)
def test_reasoning_keeps_whose_it_is(dialect: str, stream: Path) -> None:
    blocks = [b for b in read(dialect, stream.read_bytes()).blocks if isinstance(b, Reasoning)]
    expected = json.loads(stream.with_suffix(".expect.json").read_text())
    said = expected["committable"] and expected["reasoning"] is not None
    assert [b.opaque.profile for b in blocks if b.opaque] == ([dialect] if said else [])


# Pairs: one thing that the dialect takes, and the same thing as it does not.


class Pair(NamedTuple):
    dialect: str
    code: str
    legal: list[dict[str, Any]]
    illegal: list[dict[str, Any]]
    more: dict[str, Any] = {}  # noqa: RUF012  # never changed


USER = {"role": "user", "content": "x"}
SYSTEM = {"role": "system", "content": "be brief"}


def asks(*ids: str, **fields: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": name, "type": "function", "function": function} for name in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls, **fields}


def result(call_id: str, **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "1", **fields}


def shows(image: object) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": image}]}


PNG = "data:image/png;base64,iVBORw0KGgo="
LONG = "chatcmpl-tool-" + "0123456789abcdef" * 4
NO_DEVELOPER = ([{"role": "system", "content": "s"}, USER], [{"role": "developer", "content": "s"}, USER])  # fmt: skip

PAIRS = [
    Pair("qwen-vllm", "role_unsupported", *NO_DEVELOPER),
    Pair("qwen-vllm", "block_not_allowed", [USER, {"role": "assistant", "content": "no"}, USER], [USER, {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, USER]),
    Pair("qwen-vllm", "missing_tool_result", [USER, asks(LONG), result(LONG)], [USER, asks(LONG)]),
    Pair("qwen-vllm", "orphan_tool_result", [USER, asks("a", reasoning="r"), result("a")], [USER, result("a")]),
    Pair("ollama-openai", "block_not_allowed", [shows({"url": PNG})], [shows({"url": "https://e.test/a.png"})]),
    Pair("ollama-openai", "empty_content", [USER, asks("a", content=None), result("a")], [{"role": "assistant", "content": None}]),
    Pair("ollama-openai", "role_unsupported", *NO_DEVELOPER),
    Pair("ollama-openai", "orphan_tool_result", [USER, asks("a"), result("a")], [USER, asks("a"), result("a"), result("b")]),
    Pair("groq", "role_unsupported", *NO_DEVELOPER),
    Pair("groq", "block_not_allowed", [USER, asks("a"), result("a")], [USER, asks("a", reasoning="r"), result("a")]),
    Pair("groq", "missing_tool_result", [USER, asks("a", "b"), result("b"), result("a")], [USER, asks("a", "b"), result("b")]),
    Pair("azure", "block_not_allowed", [{"role": "developer", "content": "s"}, USER, asks("a"), result("a")], [USER, asks("a", reasoning_content="r"), result("a")]),
    Pair("azure", "call_id_too_long", [USER, asks("a" * 40), result("a" * 40)], [USER, asks("a" * 65), result("a" * 65)]),
    Pair("deepseek", "lost_reasoning", [USER, asks("call_00_a", reasoning_content="call f"), result("call_00_a")], [USER, asks("call_00_a"), result("call_00_a")]),
    Pair("deepseek", "lost_reasoning", [USER, asks("a", reasoning_content=""), result("a"), {"role": "assistant", "content": "done"}, USER], [USER, asks("a"), result("a"), {"role": "assistant", "content": "done", "reasoning_content": "ok"}, USER]),
    Pair("deepseek", "orphan_tool_result", [USER, asks("a", reasoning_content="r"), result("a")], [USER, result("a")]),
    Pair("deepseek", "role_unsupported", *NO_DEVELOPER),
    Pair("mistral", "bad_call_id", [USER, asks("abcdefgh1"), result("abcdefgh1", name="f")], [USER, asks("call_1"), result("call_1", name="f")]),
    Pair("mistral", "role_order", [SYSTEM, USER, SYSTEM, USER, asks("abcdefgh1"), result("abcdefgh1"), USER], [USER, asks("abcdefgh1"), result("abcdefgh1"), SYSTEM, USER]),
    Pair("mistral", "role_order", [USER, {"role": "assistant", "content": "a"}, USER], [USER, {"role": "assistant", "content": "a"}, SYSTEM, USER]),
    Pair("mistral", "orphan_tool_result", [USER, asks("abcdefgh1"), result("abcdefgh1")], [USER, result("abcdefgh1")]),
    Pair("mistral", "duplicate_tool_result", [USER, asks("abcdefgh1"), result("abcdefgh1")], [USER, asks("abcdefgh1"), result("abcdefgh1"), result("abcdefgh1")]),
    Pair("mistral", "must_end_with_user", [USER, {"role": "assistant", "content": "hi", "prefix": True}], [USER, {"role": "assistant", "content": "hi"}]),
    Pair("mistral", "must_end_with_user", [SYSTEM], [USER, SYSTEM]),
    Pair("mistral", "missing_tool_result", [USER, asks("abcdefgh1", "abcdefgh2"), result("abcdefgh2"), result("abcdefgh1")], [USER, asks("abcdefgh1", "abcdefgh2"), result("abcdefgh2")]),
    Pair("mistral", "block_not_allowed", [USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "a"}]}, USER], [USER, {"role": "assistant", "content": [{"type": "refusal", "refusal": "a"}]}, USER]),
    Pair("openrouter", "block_not_allowed", [USER, asks("a", reasoning_details=[{"type": "reasoning.encrypted", "data": "x"}]), result("a")], [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "refusal", "refusal": "x"}]}]),
    Pair("openrouter", "role_unsupported", *NO_DEVELOPER),
]  # fmt: skip


def verdict(pair: Pair, messages: list[dict[str, Any]]) -> list[str]:
    """The codes that lint gives a request as it stands."""
    parsed = registry.get(pair.dialect).parse({"model": "m", "messages": messages, **pair.more})
    assert parsed.findings == ()
    profile = registry.get(pair.dialect, parsed.facts).profile
    return [f.code for f in check(parsed.messages, profile, mapped=False, tools=parsed.tools)]


@pytest.mark.req("M2", "M30", "M48")
@pytest.mark.parametrize("pair", PAIRS, ids=[f"{n}-{p.dialect}-{p.code}" for n, p in enumerate(PAIRS)])  # fmt: skip
def test_of_each_pair_one_is_taken_and_the_other_refused(pair: Pair) -> None:
    assert verdict(pair, pair.legal) == []
    assert verdict(pair, pair.illegal)[0] == pair.code


def test_every_dialect_has_pairs() -> None:
    assert {pair.dialect for pair in PAIRS} == set(NAMED)


# Options: what a dialect cannot say is refused where it was meant, and left out where it was not.

TOOLS = (ToolDeclaration(name="look"),)


def body(dialect: str, *tools: ToolDeclaration, **policy: Any) -> Any:
    made = Policy(model="m", endpoint="http://127.0.0.1:1/v1", profile=dialect, **policy)
    return json.loads(
        render(registry.get(dialect), line(user()), made, tools, key=KEY).request.body
    )


@pytest.mark.req("M2", "M31")
@pytest.mark.parametrize("dialect", NAMED)
def test_a_field_that_a_dialect_does_not_list_is_never_sent(dialect: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        body(dialect, extra={"colour": msgspec.Raw(b'"red"'), "top_p": msgspec.Raw(b"1")})
    assert (caught.value.code, caught.value.at) == ("unsupported_parameter", "extra.colour")
    assert body(dialect, extra={"top_p": msgspec.Raw(b"1")})["top_p"] == 1


@pytest.mark.req("M31")
def test_where_there_is_no_tool_choice_a_forced_one_is_refused_and_a_free_one_left_out() -> None:
    for choice in ("required", "tool:look"):
        with pytest.raises(InvalidInput) as caught:
            body("ollama-openai", *TOOLS, tool_choice=choice)
        assert (caught.value.code, caught.value.at) == ("unsupported_parameter", "tool_choice")
    assert "tool_choice" not in body("ollama-openai", *TOOLS, tool_choice="auto")
    assert "tools" not in body("ollama-openai", *TOOLS, tool_choice="none")
    assert body("qwen-vllm", *TOOLS, tool_choice="none")["tools"]


@pytest.mark.req("M31")
@pytest.mark.parametrize("dialect", [d for d in NAMED if not DIALECTS[d].wire.parallel_tool_calls])
def test_one_call_at_a_time_is_refused_where_it_cannot_be_asked_for(dialect: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        body(dialect, *TOOLS, parallel_tool_calls=False)
    assert (caught.value.code, caught.value.at) == ("unsupported_parameter", "parallel_tool_calls")
    assert "parallel_tool_calls" not in body(dialect, *TOOLS, parallel_tool_calls=True)


@pytest.mark.req("M30")
def test_an_image_by_address_is_refused_wherever_it_stands() -> None:
    far = Image(url="https://example.org/a.png")
    adapter, policy = registry.get("ollama-openai"), Policy(model="m", profile="ollama-openai")
    for messages in ([user(far)], [user(), asks_for("a"), answer("a", far)]):
        with pytest.raises(SequenceRejected) as caught:
            render(adapter, line(*messages), policy, key=KEY)
        assert [f.code for f in caught.value.findings] == ["block_not_allowed"]
    assert registry.get("ollama-openai", {"image_urls": True}).profile.image_urls


# Errors: what is a definite no, and what nobody knows.


class Refused(NamedTuple):
    dialect: str
    status: int
    body: dict[str, Any]
    code: str
    definite: bool = True
    retryable: bool = False


ERRORS = [
    Refused("qwen-vllm", 400, {"object": "error", "message": "m", "type": "BadRequestError", "code": 400}, "BadRequestError"),
    Refused("qwen-vllm", 400, {"error": {"message": "<400> InternalError.Algo.InvalidParameter: m", "type": "invalid_request_error", "code": "invalid_parameter_error"}}, "invalid_parameter_error"),
    Refused("qwen-vllm", 500, {"error": {"message": "m", "type": "InternalServerError", "code": 500}}, "InternalServerError", definite=False, retryable=True),
    Refused("ollama-openai", 400, {"error": {"message": "invalid message content type: <nil>", "type": "invalid_request_error", "param": None, "code": None}}, "invalid_request_error"),
    Refused("ollama-openai", 404, {"error": {"message": "model not found", "type": "not_found_error", "param": None, "code": None}}, "not_found_error"),
    Refused("ollama-openai", 500, {"error": {"message": "m", "type": "api_error", "param": None, "code": None}}, "api_error", definite=False, retryable=True),
    Refused("groq", 400, {"error": {"message": "m", "type": "invalid_request_error", "code": "tool_use_failed", "failed_generation": "<f>"}}, "tool_use_failed", retryable=True),
    Refused("groq", 413, {"error": {"message": "m", "type": "tokens", "code": "rate_limit_exceeded"}}, "rate_limit_exceeded"),
    Refused("groq", 422, {"error": {"message": "m", "type": "invalid_request_error"}}, "invalid_request_error"),
    Refused("groq", 424, {"error": {"message": "m", "type": "t"}}, "t"),
    Refused("groq", 498, {"error": {"message": "capacity", "type": None}}, "overloaded", retryable=True),
    Refused("groq", 499, {"error": {"message": "cancelled", "type": None}}, "http_499", definite=False),
    Refused("azure", 400, {"error": {"message": "m", "type": None, "param": "prompt", "code": "content_filter", "status": 400, "innererror": {"code": "ResponsibleAIPolicyViolation"}}}, "content_filter"),
    Refused("azure", 401, {"error": {"code": "401", "message": "Access denied due to invalid subscription key."}}, "authentication_error"),
    Refused("azure", 404, {"error": {"code": "DeploymentNotFound", "message": "m"}}, "DeploymentNotFound"),
    Refused("azure", 429, {"error": {"code": "429", "message": "m"}}, "rate_limit_exceeded", retryable=True),
    Refused("deepseek", 400, {"error": {"message": "The `reasoning_content` in the thinking mode must be passed back to the API.", "type": "invalid_request_error", "param": None, "code": "invalid_request_error"}}, "invalid_request_error"),
    Refused("deepseek", 402, {"error": {"message": "Insufficient Balance", "type": "unknown_error", "param": None, "code": "invalid_request_error"}}, "invalid_request_error"),
    Refused("deepseek", 503, {"error": {"message": "m", "type": "service_unavailable_error", "code": None}}, "service_unavailable_error", retryable=True),
    Refused("mistral", 400, {"object": "error", "message": "Expected last role User or Tool", "type": "invalid_request_message_order", "param": None, "code": "3230"}, "invalid_request_message_order"),
    Refused("mistral", 422, {"detail": [{"type": "missing", "loc": ["body", "model"], "msg": "Field required"}]}, "invalid_request_error"),
    Refused("mistral", 429, {"object": "error", "message": "Rate limit exceeded", "type": "rate_limited", "param": None, "code": "1300"}, "rate_limited", retryable=True),
    Refused("openrouter", 402, {"error": {"code": 402, "message": "Insufficient credits"}}, "payment_required"),
    Refused("openrouter", 403, {"error": {"code": 403, "message": "moderation", "metadata": {"reasons": ["x"]}}}, "permission_error"),
    Refused("openrouter", 408, {"error": {"code": 408, "message": "m"}}, "request_timeout", retryable=True),
    Refused("openrouter", 429, {"error": {"code": 429, "message": "m"}}, "rate_limit_exceeded", retryable=True),
    Refused("openrouter", 502, {"error": {"code": 502, "message": "provider down"}}, "http_502", definite=False, retryable=True),
    Refused("openrouter", 503, {"error": {"code": 503, "message": "no provider"}}, "overloaded", retryable=True),
]  # fmt: skip


@pytest.mark.parametrize("case", ERRORS, ids=[f"{n}-{e.dialect}-{e.code}" for n, e in enumerate(ERRORS)])  # fmt: skip
def test_an_error_of_a_dialect_is_a_definite_no_or_is_not(case: Refused) -> None:
    verdict = registry.get(case.dialect).classify(case.status, {}, json.dumps(case.body).encode(), 0)  # fmt: skip
    assert (verdict.code, verdict.definite, verdict.retryable) == (
        case.code,
        case.definite,
        case.retryable,
    )


def test_every_dialect_has_errors() -> None:
    assert {case.dialect for case in ERRORS} == set(NAMED)


# Azure: where a request goes, and how the key comes along.


@pytest.mark.req("M2", "M51")
def test_the_path_names_the_deployment_and_the_key_has_a_header_of_its_own() -> None:
    case, _ = golden.load(CASES["azure/minimal"])
    request = case.rendering().request
    assert request.url == (
        "https://example.openai.azure.com/openai/deployments/my%20deployment%2F2"
        "/chat/completions?api-version=2024-10-21"
    )
    assert request.headers == (
        ("accept", "text/event-stream"),
        ("api-key", ""),
        ("content-type", "application/json"),
    )
    for name, query in (("same_path_as_openai", ""), ("other_version", "2025-04-01-preview")):
        url = golden.load(CASES[f"azure/{name}"])[0].rendering().request.url
        assert url.partition("?api-version=")[2] == query
        assert ("/deployments/" in url) is bool(query)


def test_a_request_to_azure_can_be_shown_before_anybody_names_an_address() -> None:
    request = render(registry.get("azure"), line(user()), Policy(model="m"), key=KEY).request
    assert request.url.startswith("https://unnamed.invalid/openai/deployments/m/")


def test_the_wait_that_azure_asks_for_is_honoured_to_the_millisecond() -> None:
    headers = {"retry-after-ms": "1500", "retry-after": "2"}
    verdict = registry.get("azure").classify(429, headers, b"", 0)
    assert verdict.retry_after_ms == 1500


# DeepSeek: reasoning that has to come back.


@pytest.mark.req("M2", "M31")
def test_without_thinking_nobody_misses_the_reasoning() -> None:
    calls = [USER, asks("a"), result("a")]
    thinking = Pair("deepseek", "", [], [], {"thinking": {"type": "enabled"}})
    assert verdict(thinking, calls) == ["lost_reasoning"]
    assert verdict(thinking._replace(more={"thinking": {"type": "disabled"}}), calls) == []


@pytest.mark.req("M31", "M42")
def test_what_a_dialect_itself_thought_comes_back_and_no_others() -> None:
    stream = (FIXTURES / "streams" / "deepseek" / "04_reasoning_then_tool.sse").read_bytes()
    for reader, sent, rules in (("deepseek", True, []), ("groq", False, ["reasoning_dropped"])):
        made = read(reader, stream)
        messages = line(user(), said(Role.ASSISTANT, *made.blocks), answer(made.calls[0].call_id))
        rendering = render(registry.get("deepseek"), messages, Policy(model="m"), key=KEY)
        turn = json.loads(rendering.request.body)["messages"][1]
        assert turn["reasoning_content"] == (made.reasoning if sent else "")
        assert [m.rule for m in rendering.mappings] == rules


# Mistral: the order of roles, the one form of ids, and templates of different age.

MAY_FOLLOW = {
    "system": {"user", "assistant", "system"},
    "user": {"assistant", "system", "user"},
    "assistant": {"assistant", "user", "tool"},
    "tool": {"assistant", "tool", "user"},
}
"""The published validator's table, written down once more."""

PICTURE = Image(media_type="image/png", data="iVBORw0KGgo=")
SNIPPETS: list[list[Message]] = [
    [user()],
    [user()],
    [user(PICTURE, name="ada")],
    [system()],
    [said(Role.DEVELOPER, "Be kind.")],
    [model()],
    [model("")],
    [said(Role.ASSISTANT, Reasoning(text="Hm."))],
    [asks_for("call", text="I look."), answer("call", PICTURE)],
    [asks_for("call", "other"), user("Hurry!"), answer("other"), answer("call")],
    [asks_for("call"), system(), answer("call")],
    [asks_for("call"), model(), answer("call")],
    [asks_for("call")],
    [answer("call")],
]


@st.composite
def talk(draw: st.DrawFn) -> list[Message]:
    """Pieces of talk in any order, each with call ids of its own."""
    chosen = draw(st.lists(st.sampled_from(SNIPPETS), min_size=1, max_size=5))
    stored = (
        msgspec.json.encode(snippet).replace(b'"call_id":"', b'"call_id":"%d-' % number)
        for number, snippet in enumerate(chosen)
    )
    return line(*(m for data in stored for m in msgspec.json.decode(data, type=list[Message])))


TEMPLATES: list[dict[str, object]] = [{}, {"text_with_calls": False}]


def refusals_of_mistral(messages: list[dict[str, Any]], template: dict[str, object]) -> list[str]:
    """Why a Mistral server of any age would refuse these messages."""
    roles = [message["role"] for message in messages]
    found = [f"{b} after {a}" for a, b in pairwise(roles) if b not in MAY_FOLLOW[a]]
    if roles[-1] not in ({"user", "tool"} if len(roles) > 1 else {"user", "system"}):
        found.append(f"ends with {roles[-1]}")
    due: list[tuple[str, str]] = []
    for message in messages:
        calls = [(c["id"], c["function"]["name"]) for c in message.get("tool_calls", [])]
        if message["role"] == "tool":
            due.remove((message["tool_call_id"], message["name"]))
        elif due or "name" in message:
            found.append(f"{due} open before {message}")
        if message["role"] == "assistant" and not (message["content"] or calls):
            found.append("says nothing")
        if template and message["content"] and calls:
            found.append("text and calls in one message")
        found += [f"bad id {name}" for name, _ in calls if not re.fullmatch("[a-zA-Z0-9]{9}", name)]
        due += calls
    return [*found, *(f"{name} has no result" for name, _ in due)]


@pytest.mark.req("M2", "M20", "M26", "M42", "M48")
@given(talk(), st.sampled_from(TEMPLATES))
def test_of_any_messages_nothing_is_rendered_that_mistral_refuses(
    messages: list[Message], template: dict[str, object]
) -> None:
    adapter = registry.get("mistral", template)
    try:
        rendering = render(adapter, messages, Policy(model="m"), key=KEY)
    except SequenceRejected:
        event("refused")
        return
    event("rendered")
    sent = json.loads(rendering.request.body)["messages"]
    assert refusals_of_mistral(sent, template) == []


@pytest.mark.req("M2", "M48")
def test_a_template_of_its_age_may_be_stated_and_is_judged_by() -> None:
    both = Pair("mistral", "", [], [])
    messages = [USER, asks("abcdefgh1", content="I look."), result("abcdefgh1")]
    assert verdict(both, messages) == []
    parsed = registry.get("mistral").parse({"model": "m", "messages": messages})
    older = registry.get("mistral", {"text_with_calls": False}).profile
    assert [f.code for f in check(parsed.messages, older, mapped=False)] == ["block_not_allowed"]


@pytest.mark.req("M31")
def test_mistrals_own_words_are_read_as_what_they_mean() -> None:
    request = {"model": "m", "messages": [USER], "tools": [], "tool_choice": "any"}
    assert registry.get("mistral").parse(request).policy.tool_choice == "required"
    assert body("mistral", *TOOLS, tool_choice="required")["tool_choice"] == "any"
    assert body("mistral", *TOOLS, tool_choice="none")["tool_choice"] == "none"


# OpenRouter: state that goes back as it came.


def details(*pieces: dict[str, Any]) -> Any:
    """The state that is kept of a stream whose chunks brought these pieces, one each."""
    chunks = (chunk({"reasoning_details": [piece]}, model="acme/m-1") for piece in pieces)
    made = read("openrouter", *chunks, text("x"), chunk(finish="stop"))
    (block, _) = made.blocks
    assert isinstance(block, Reasoning)
    assert block.opaque is not None
    assert (block.opaque.profile, block.opaque.model) == ("openrouter", "acme/m-1")
    return block.text, json.loads(bytes(block.opaque.value))


@pytest.mark.req("M2", "M31")
def test_the_recorded_state_is_kept_whole_and_goes_back_unchanged() -> None:
    stream = FIXTURES / "streams" / "openrouter" / "04_reasoning_then_tool.sse"
    expected = json.loads(stream.with_suffix(".expect.json").read_text())["opaque"][0]["value"]
    made = read("openrouter", stream.read_bytes())
    said_so = said(Role.ASSISTANT, *made.blocks)
    messages = line(user(), said_so, answer(made.calls[0].call_id))
    policy = Policy(model="anthropic/claude-opus-5")
    sent = render(registry.get("openrouter"), messages, policy, key=KEY).request.body
    assert json.loads(sent)["messages"][1]["reasoning_details"] == expected
    again = registry.get("openrouter").parse(json.loads(sent)).messages
    assert render(registry.get("openrouter"), again, policy, key=KEY).request.body == sent


def test_state_in_pieces_is_put_together_and_whole_state_is_left_as_it_is() -> None:
    a = {"type": "reasoning.text", "text": "One ", "index": 0, "format": "f"}
    b = {"type": "reasoning.text", "text": "two.", "index": 0}
    signed = {"type": "reasoning.text", "text": None, "signature": "s", "index": 0}
    other = {"type": "reasoning.text", "text": "Three.", "index": 1}
    assert details(a, other, b, signed) == (
        "One Three.two.",
        [{**a, "text": "One two.", "signature": "s"}, other],
    )
    short = {"type": "reasoning.summary", "summary": "In short", "index": 0}
    assert details(short, {**short, "summary": "."}, b) == (
        "In short.two.",
        [{**short, "summary": "In short."}, b],
    )
    secret = {"type": "reasoning.encrypted", "data": "AA", "index": 0}
    assert details(secret, secret) == ("", [secret, secret])


def test_state_that_cannot_be_read_is_noted_and_the_answer_stands() -> None:
    reads = (chunk({"reasoning_details": "?"}), text("x"), chunk(finish="stop"))
    made = read("openrouter", *reads)
    assert (made.text, made.committable, made.diagnostics) == ("x", True, ("unreadable_reasoning",))


@pytest.mark.parametrize(
    ("maker", "reader", "same"),
    [
        ("anthropic/claude-opus-5", "anthropic/claude-sonnet-5", True),
        ("anthropic/claude-opus-5", "openai/gpt-6-astra", False),
        ("anthropic/claude-opus-5", "openrouter/auto", True),
        (None, "openai/gpt-6-astra", True),
        ("a-model", "openai/gpt-6-astra", True),
    ],
)
def test_state_goes_to_the_upstream_that_made_it(maker: str, reader: str, same: bool) -> None:
    assert same_upstream(maker, reader) is same


def test_what_the_provider_behind_a_gateway_said_is_told() -> None:
    error = {"code": 400, "message": "Provider returned error", "metadata": {"raw": "too long"}}
    verdict_of = registry.get("openrouter").classify(400, {}, json.dumps({"error": error}).encode(), 0)  # fmt: skip
    assert verdict_of.message == "Provider returned error: too long"


def test_an_error_with_status_200_is_an_error() -> None:
    body_of_error = json.dumps({"error": {"code": 429, "message": "m"}}).encode()
    reader, assembler = registry.get("openrouter").reader("application/json"), Assembler()
    for delta in (*reader.feed(body_of_error), *reader.end()):
        assembler.feed(delta)
    made = assembler.end()
    assert (made.committable, made.error, made.retryable, made.definite) == (False, "429", True, True)  # fmt: skip
