"""What goes wrong, as HTTP: one shape per API, a stable code, and a word to SDKs that retry."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Scope

from antiphon import errors
from antiphon.core.rules.findings import Finding
from antiphon.server.http.faults import error_body, headers_of, status_of
from tests.server.stage import ROOT, served
from tests.support.asgi import WAIT_S
from tests.support.provider import Hold, ScriptedProvider, asks, says

TOOL = {"name": "look", "parameters": {"type": "object", "properties": {}}}

# Written again by hand: class, code, status, and whether an SDK is told not to try again.
ANSWERS = [
    (errors.InvalidInput, "invalid_input", 400, False),
    (errors.InvalidInput, "body_too_large", 413, False),
    (errors.InvalidInput, "body_timeout", 408, False),
    (errors.InvalidInput, "not_json", 415, False),
    (errors.InvalidInput, "method_not_allowed", 405, False),
    (errors.InvalidInput, "host_not_allowed", 421, False),
    (errors.Unauthorized, "bad_key", 401, False),
    (errors.Forbidden, "forbidden", 403, False),
    (errors.NotFound, "model_not_found", 404, False),
    (errors.Refused, "not_editable", 400, False),
    (errors.Conflict, "conversation_busy", 409, True),
    (errors.Conflict, "idempotency_conflict", 409, True),
    (errors.Conflict, "message_id_conflict", 409, True),
    (errors.Conflict, "queue_full", 429, False),
    (errors.Conflict, "model_busy", 429, False),
    (errors.Conflict, "rate_limited", 429, False),
    (errors.Conflict, "budget_exhausted", 429, True),
    (errors.Conflict, "missing_tool_result", 400, True),
    (errors.Conflict, "orphan_tool_result", 400, True),
    (errors.Conflict, "duplicate_tool_result", 400, True),
    (errors.OutcomeUnknown, "outcome_unknown", 424, True),
    (errors.RunCanceled, "canceled", 409, True),
    (errors.ProviderFailed, "provider_error", 502, True),
    (errors.StoreLocked, "store_locked", 503, False),
    (errors.NotDurable, "not_durable", 503, False),
    (errors.StoreError, "store_error", 500, False),
    (errors.InternalError, "internal_error", 500, False),
    (errors.DigestMismatch, "digest_mismatch", 500, False),
    (errors.DigestMismatch, "content_missing", 410, False),
]


CHAT: Scope = {"type": "http", "path": "/v1/chat/completions", "headers": []}
MESSAGES: Scope = {**CHAT, "path": "/v1/messages"}
KEPT: Scope = {**CHAT, "headers": [(b"idempotency-key", b"k1")]}


@pytest.mark.parametrize(
    ("kind", "code", "status", "last"), ANSWERS, ids=[f"{a[1]}" for a in ANSWERS]
)
def test_an_error_has_its_status_and_tells_an_sdk_not_to_repeat_what_may_happen_twice(
    kind: type[errors.AntiphonError], code: str, status: int, last: bool
) -> None:
    error = kind("A sentence.", code=code, at="here")
    assert status_of(error) == status
    assert (headers_of(error, CHAT).get("x-should-retry") == "false") is last


@pytest.mark.parametrize(
    ("more", "scope", "status", "headers"),
    [
        ({"status": 429, "retry_after_s": 7}, "chat", 429, ("true", "7")),
        ({"status": 429}, "chat", 429, ("true", "1")),
        ({"status": 429, "retry_after_s": 10**9}, "chat", 429, ("true", "3600")),
        ({"status": 429, "retry_after_s": 7}, "kept", 429, ("false", "7")),
        ({"status": 429, "retryable": False}, "chat", 502, ("false", None)),
        ({"status": 503, "retry_after_s": 2}, "chat", 503, ("true", "2")),
        ({"status": 529, "retry_after_s": 2}, "chat", 503, ("true", "2")),
        ({"status": 529, "retry_after_s": 2}, "messages", 529, ("true", "2")),
        ({"status": 503}, "messages", 529, ("true", "1")),
        ({"code": "overloaded_error"}, "messages", 529, ("true", "1")),
        ({"code": "rate_limit_exceeded"}, "chat", 429, ("true", "1")),
        ({"code": "server_error"}, "chat", 502, ("true", None)),
        ({"status": 408}, "chat", 502, ("true", None)),
        # A provider may call its error what it likes: our own words are ours.
        ({"code": "body_too_large", "retryable": False}, "chat", 502, ("false", None)),
    ],
)
def test_a_provider_that_is_busy_is_told_as_such_and_when_to_ask_again(
    more: dict[str, Any], scope: str, status: int, headers: tuple[str, str | None]
) -> None:
    where = {"chat": CHAT, "messages": MESSAGES, "kept": KEPT}[scope]
    error = errors.ProviderFailed("A sentence.", **{"retryable": True, **more})
    assert status_of(error, where["path"]) == status
    told = headers_of(error, where)
    assert (told.get("x-should-retry"), told.get("retry-after")) == headers


def test_every_api_has_its_own_shape() -> None:
    error = errors.Conflict("A sentence.", code="conversation_busy", at="conv_1", retryable=True)
    ours, theirs = (error_body(error, path, "req_1") for path in (f"{ROOT}/x", "/v1/responses"))
    assert _plain(ours) == {
        "error": {
            "code": "conversation_busy",
            "message": "A sentence.",
            "at": "conv_1",
            "retryable": True,
            "request_id": "req_1",
        }
    }
    assert _plain(theirs) == {
        "error": {
            "message": "A sentence.",
            "type": "invalid_request_error",
            "param": "conv_1",
            "code": "conversation_busy",
        }
    }


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (errors.Unauthorized, "authentication_error"),
        (errors.Forbidden, "permission_error"),
        (errors.InternalError, "server_error"),
        (errors.NotFound, "invalid_request_error"),
    ],
)
def test_openai_s_word_for_a_kind_of_error_is_used(
    kind: type[errors.AntiphonError], word: str
) -> None:
    told = _plain(error_body(kind("A sentence."), "/v1/x", ""))
    assert told["error"]["type"] == word


def test_every_finding_of_an_illegal_history_is_told() -> None:
    findings = [
        Finding(code=code, at=f"m{n}", message="Why.", position=n)
        for n, code in enumerate(["orphan_tool_result", "missing_tool_result"])
    ]
    told = _plain(error_body(errors.SequenceRejected(findings), f"{ROOT}/x", "req_1"))
    assert [(f["code"], f["at"]) for f in told["error"]["findings"]] == [
        ("orphan_tool_result", "m0"),
        ("missing_tool_result", "m1"),
    ]


def _plain(body: Any) -> Any:
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(body))


BAD = [
    ("not JSON", b"{", "bad_json", None),
    ("not UTF-8", b'{"content": "\xff"}', "bad_json", None),
    ("an array", b"[]", "invalid_input", None),
    ("no content", b"{}", "invalid_input", None),
    ("empty content", b'{"content": ""}', "empty_content", None),
    ("empty blocks", b'{"content": []}', "empty_content", None),
    (
        "a wrong type",
        b'{"content": "x", "max_output_tokens": "5"}',
        "invalid_input",
        "max_output_tokens",
    ),
    ("a wrong range", b'{"content": "x", "temperature": -1}', "invalid_input", "temperature"),
    ("an unknown field", b'{"content": "x", "top_k": 5}', "unknown_field", "top_k"),
    ("an unknown block", b'{"content": [{"kind": "video"}]}', "invalid_input", "content[0].kind"),
    (
        "a block of the model's",
        b'{"content": [{"kind": "reasoning", "text": "x"}]}',
        "invalid_input",
        "content[0].kind",
    ),
    ("an unknown model", b'{"content": "x", "model": "nobody"}', "model_not_found", "nobody"),
    ("an unknown parent", b'{"content": "x", "parent": "nowhere"}', "missing_parent", "nowhere"),
    ("a bad id", b'{"content": "x", "id": "a b"}', "bad_message_id", "a b"),
    ("half a character", b'{"content": "\\ud800"}', "bad_json", None),
    ("deep nesting", b'{"tools": ' + b"[" * 200 + b"]" * 200 + b"}", "body_too_deep", None),
    ("brackets in text", b'{"content": "' + b"[" * 200 + b'", "x": 1}', "unknown_field", "x"),
]


@pytest.mark.parametrize(("raw", "code", "at"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
async def test_what_cannot_be_meant_is_refused_by_name_and_place_and_nothing_is_sent(
    tmp_path: Path, raw: bytes, code: str, at: str | None
) -> None:
    provider = ScriptedProvider()
    async with served(tmp_path / "a.db", provider) as server:
        name = await server.conversation()
        told = await server.client.ask("POST", f"{ROOT}/conversations/{name}/messages", raw=raw)
        assert (told.status, told.json["error"]["code"]) == (
            404 if code in ("model_not_found", "missing_parent") else 400,
            code,
        )
        if at is not None:
            assert told.json["error"]["at"] == at
        assert told.json["error"]["request_id"] == told.headers["x-request-id"]
        row = (await server.client.get(f"{ROOT}/conversations/{name}")).json
        assert (row["revision"], row["last_event"]) == (0, 0)
    assert provider.requests == []


async def test_a_path_or_a_method_that_does_not_exist_is_told_in_the_api_s_shape(
    tmp_path: Path,
) -> None:
    async with served(tmp_path / "a.db") as server:
        nowhere = await server.client.get(f"{ROOT}/nothing")
        assert (nowhere.status, nowhere.json["error"]["code"]) == (404, "not_found")
        theirs = await server.client.get("/v1/nothing")
        assert (theirs.status, theirs.json["error"]["type"]) == (404, "invalid_request_error")
        wrong = await server.client.ask("PUT", f"{ROOT}/conversations")
        assert (wrong.status, wrong.json["error"]["code"]) == (405, "method_not_allowed")
        assert wrong.headers["allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", " The base URL of your client lacks the /v1: /v1/chat/completions is served."),
        ("/responses", " The base URL of your client lacks the /v1: /v1/responses is served."),
        ("/v1/v1/messages", " The base URL of your client has a /v1 too many: /v1/messages is served."),
        ("/v1/embeddings", ""),
        ("/v1/v1/nothing", ""),
    ],
)  # fmt: skip
async def test_a_base_url_that_is_nearly_right_is_told_what_it_lacks(
    path: str, meant: str, tmp_path: Path
) -> None:
    async with served(tmp_path / "a.db") as server:
        told = await server.client.ask("POST", path)
        assert told.status == 404
        assert told.json["error"]["message"] == f"There is nothing at this path.{meant}"


async def test_queries_are_read_as_strictly_as_bodies(tmp_path: Path) -> None:
    async with served(tmp_path / "a.db") as server:
        for query, at in (
            ("limit=0", "limit"),
            ("limit=x", "limit"),
            ("limit=null", "limit"),
            ("limit=5&limit=6", "limit"),
            ("page=1", "page"),
        ):
            told = await server.client.get(f"{ROOT}/conversations?{query}")
            assert (told.status, told.json["error"]["at"]) == (400, at), query


async def test_a_full_queue_is_429_and_a_busy_conversation_that_may_not_queue_is_409(
    tmp_path: Path,
) -> None:
    hold = Hold()
    provider = ScriptedProvider([hold, *says("One.")], *[says("More.")] * 17)
    async with served(tmp_path / "a.db", provider) as server:
        name = await server.conversation()
        path = f"{ROOT}/conversations/{name}/messages"
        await server.send(name, "first")
        await asyncio.wait_for(hold.reached.wait(), WAIT_S)
        busy = await server.client.post(path, {"content": "x"}, antiphon_when_busy="refuse")
        assert (busy.status, busy.json["error"]["code"]) == (409, "conversation_busy")
        assert busy.headers["x-should-retry"] == "false"
        wrong = await server.client.post(path, {"content": "x"}, antiphon_when_busy="later")
        assert (wrong.status, wrong.json["error"]["at"]) == (400, "antiphon-when-busy")
        for n in range(16):
            await server.send(name, f"queued {n}")
        full = await server.client.post(path, {"content": "one too many"})
        assert (full.status, full.json["error"]["code"]) == (429, "queue_full")
        assert full.headers["retry-after"] == "1"
        hold.go.set()
        await server.idle(name)
        free = await server.client.post(path, {"content": "again"}, antiphon_when_busy="refuse")
        assert free.status == 202
        await server.idle(name)


async def test_a_key_with_other_bytes_is_409_and_with_the_same_the_same_run(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider(says("Once."))
    async with served(tmp_path / "a.db", provider) as server:
        name = await server.conversation()
        path = f"{ROOT}/conversations/{name}/messages"
        first, again = [
            await server.client.post(path, {"content": "x"}, idempotency_key="k") for _ in "12"
        ]
        assert first.json["id"] == again.json["id"]
        other = await server.client.post(path, {"content": "y"}, idempotency_key="k")
        assert (other.status, other.json["error"]["code"]) == (409, "idempotency_conflict")
        assert other.headers["x-should-retry"] == "false"
        empty = await server.client.post(path, {"content": "x"}, idempotency_key="k" * 256)
        assert (empty.status, empty.json["error"]["code"]) == (400, "bad_idempotency_key")
        await server.idle(name)
    assert len(provider.requests) == 1


@pytest.mark.req("M39", "M40")
async def test_wrong_outputs_are_400_with_the_call_that_is_meant_and_change_nothing(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider(
        asks(("call_1", "look", "{}"), ("call_2", "look", "{}")), says("Both seen.")
    )
    async with served(tmp_path / "a.db", provider) as server:
        name = await server.conversation()
        run = await server.send(name, "Look twice.", tools=[TOOL])
        await server.idle(name)
        path = f"{ROOT}/runs/{run['id']}/outputs"

        async def bring(*calls: str) -> tuple[int, str, str]:
            told = await server.client.post(
                path, {"outputs": [{"call_id": call, "output": "x"} for call in calls]}
            )
            error = told.json.get("error", {})
            return told.status, error.get("code"), error.get("at")

        assert await bring("call_1") == (400, "missing_tool_result", "call_2")
        assert await bring("call_1", "call_2", "call_3") == (400, "orphan_tool_result", "call_3")
        assert await bring("call_1", "call_2", "call_1") == (400, "duplicate_tool_result", "call_1")
        text = await server.client.post(
            f"{ROOT}/conversations/{name}/messages", {"content": "Never mind."}
        )
        assert (text.status, text.json["error"]["code"]) == (400, "missing_tool_result")
        assert len(provider.requests) == 1
        # Two tabs that answer the same: one of them answers, the other changes nothing.
        tabs = await asyncio.gather(*[bring("call_1", "call_2") for _ in "12"])
        assert {status for status, *_ in tabs} == {202}
        await server.idle(name)
        late = await server.client.post(
            path, {"outputs": [{"call_id": c, "output": "other"} for c in ("call_1", "call_2")]}
        )
        assert (late.status, late.json["error"]["code"]) == (400, "duplicate_tool_result")
    assert len(provider.requests) == 2


async def test_two_tabs_with_different_answers_leave_one_answer(tmp_path: Path) -> None:
    provider = ScriptedProvider(asks(("call_1", "look", "{}")), says("Seen."))
    async with served(tmp_path / "a.db", provider) as server:
        name = await server.conversation()
        run = await server.send(name, "Look.", tools=[TOOL])
        await server.idle(name)
        path = f"{ROOT}/runs/{run['id']}/outputs"
        told = await asyncio.gather(
            *[
                server.client.post(path, {"outputs": [{"call_id": "call_1", "output": tab}]})
                for tab in ("left", "right")
            ]
        )
        assert sorted(t.status for t in told) == [202, 400]
        await server.idle(name)
        (lost,) = [t for t in told if t.status == 400]
        assert lost.json["error"]["code"] == "duplicate_tool_result"
        won = ("left", "right")[[t.status for t in told].index(202)]
        said = provider.messages()[-1]
        assert (said["role"], said["content"]) == ("tool", won)
    assert len(provider.requests) == 2


async def test_a_place_is_told_no_longer_than_anybody_would_read(tmp_path: Path) -> None:
    async with served(tmp_path / "a.db") as stage:
        for path, body in (
            ("/v1/responses", {"input": "Hi"}),
            ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}),
        ):
            told = await stage.client.post(path, {**body, "model": "m" * 100_000})
            assert told.status == 404
            assert len(told.body) < 2000
