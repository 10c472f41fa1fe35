"""A talk over Bedrock as a user has it: the file, real HTTP, a signature that an upstream verifies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.asking import Ask
from antiphon.core.blocks import Reasoning
from antiphon.engine.edge import signing
from antiphon.engine.settings import Settings
from antiphon.engine.tools import Function
from antiphon.errors import InvalidInput, OutcomeUnknown, ProviderFailed
from antiphon.library import Antiphon
from antiphon.library import open as open_app
from tests.support.converse import (
    STREAM,
    call,
    end,
    exception,
    metadata,
    reasoning,
    start,
    text,
)
from tests.support.sigv4 import problem
from tests.support.upstream import CLOSE, READ, WAIT_S, RawUpstream, Step

ID, SECRET, TOKEN = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "a session's token"
MODEL = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
ASKS = start() + reasoning(0, "hm") + text(1, "I look.") + call(2, "tooluse_1", "count", '{"n":1234567890', '1234567890}') + end("tool_use") + metadata()  # fmt: skip
SAYS = start() + text(0, "It is ", "that.") + end("end_turn") + metadata()


def reply(body: bytes, status: str = "200 OK", kind: str = STREAM, **headers: str) -> list[Step]:
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return [READ, "\r\n".join([*lines, "connection: close", "", ""]).encode() + body, CLOSE]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with credentials in its environment, and no other place to look for any."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": TOKEN,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)


async def count(n: int) -> str:
    """Count."""
    return f'{{"counted":"{n}"}}'


COUNT = Function(name="count", run=count, parameters={"type": "object", "properties": {"n": {"type": "integer"}}})  # fmt: skip


def settings(folder: Path, table: str, env: Mapping[str, str] | None = None) -> Settings:
    file = folder / "antiphon.toml"
    file.write_text(f'[models.claude]\nprofile = "bedrock"\nmodel = "{MODEL}"\n{table}\n')
    flags = {"db": str(folder / "antiphon.db"), "retry_base_s": 0.0, "cancel_grace_s": 0.0}
    return Settings.load(flags, config=file, env=env or {})


@asynccontextmanager
async def talking(
    upstream: RawUpstream, folder: Path, table: str = 'region = "eu-central-1"', **env: str
) -> AsyncIterator[Antiphon]:
    address = f'base_url = "http://127.0.0.1:{upstream.port}"\n{table}'
    made = await asyncio.to_thread(settings, folder, address, env)
    async with asyncio.timeout(WAIT_S), open_app(settings=made, functions=[COUNT]) as app:
        yield app


@pytest.mark.req("M2", "M72")
async def test_a_turn_with_a_tool_is_signed_over_the_very_bytes_of_both_requests(
    tmp_path: Path,
) -> None:
    async with (
        RawUpstream(reply(ASKS), reply(SAYS)) as upstream,
        talking(upstream, tmp_path) as app,
    ):
        chat = await app.create(ask=Ask(model="claude"))
        run = await chat.send("How many?")
        assert (await run.result()).text == "It is that."
        assert len((await run.explain()).operations) == 2
        first, second = upstream.requests
        for request in upstream.requests:
            assert problem(request, key_id=ID, secret=SECRET, region="eu-central-1", service="bedrock") == ""  # fmt: skip
            assert request.headers["x-amz-security-token"] == TOKEN
            line = request.head.decode().split("\r\n")[0]
            assert line == f"POST /model/{MODEL.replace(':', '%3A')}/converse-stream HTTP/1.1"
        sent = json.loads(second.body, parse_int=str)["messages"]
        assert second.body.startswith(first.body.removesuffix(b"]}]}"))
        assert sent[1]["content"] == [
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "Eq=="}}},
            {"text": "I look."},
            {"toolUse": {"toolUseId": "tooluse_1", "name": "count", "input": {"n": "12345678901234567890"}}},
        ]  # fmt: skip
        (result,) = (block["toolResult"] for block in sent[2]["content"])
        assert result["content"] == [{"json": {"counted": "12345678901234567890"}}]
        # What was signed is not what is recorded: neither key nor signature can be found again.
        state = next(b.opaque for m in await chat.tree() for b in m.blocks if isinstance(b, Reasoning))  # fmt: skip
        assert state is not None
        assert state.model == MODEL
    kept = (tmp_path / "antiphon.db").read_bytes()
    assert not any(word.encode() in kept for word in (SECRET, TOKEN, "AWS4-HMAC-SHA256"))


async def test_a_key_is_borne_and_nothing_is_signed(tmp_path: Path) -> None:
    table = 'region = "eu-central-1"\napi_key_env = "BEDROCK_KEY"'
    async with RawUpstream(reply(SAYS)) as upstream:
        async with talking(upstream, tmp_path, table, BEDROCK_KEY="a-key") as app:
            chat = await app.create(ask=Ask(model="claude"))
            assert (await (await chat.send("Hi")).result()).text == "It is that."
        (request,) = upstream.requests
        assert request.headers["authorization"] == "Bearer a-key"
        assert not any(name.startswith("x-amz-") for name in request.headers)


async def failure(upstream: RawUpstream, folder: Path, kind: type[Exception]) -> Any:
    async with talking(upstream, folder) as app:
        chat = await app.create(ask=Ask(model="claude"))
        run = await chat.send("Hi")
        with pytest.raises(kind) as caught:
            await run.result()
    return caught.value


async def test_a_refusal_for_now_is_tried_again_and_signed_anew(tmp_path: Path) -> None:
    busy = reply(b'{"message":"Too many requests."}', "429 Too Many Requests", "application/json", x_amzn_errortype="ThrottlingException:")  # fmt: skip
    async with RawUpstream(busy, reply(SAYS)) as upstream, talking(upstream, tmp_path) as app:
        chat = await app.create(ask=Ask(model="claude"))
        assert (await (await chat.send("Hi")).result()).text == "It is that."
        assert upstream.requests[0].body == upstream.requests[1].body


async def test_a_refusal_for_good_ends_the_run_by_its_name(tmp_path: Path) -> None:
    no = reply(b'{"message":"The model is not yours."}', "403 Forbidden", "application/json", x_amzn_errortype="AccessDeniedException")  # fmt: skip
    async with RawUpstream(no) as upstream:
        error = await failure(upstream, tmp_path, ProviderFailed)
    assert error.code == "AccessDeniedException"


async def test_an_exception_in_the_stream_voids_what_was_shown_and_is_tried_again(
    tmp_path: Path,
) -> None:
    broken = reply(start() + text(0, "It") + exception("modelStreamErrorException"))
    async with RawUpstream(broken, reply(SAYS)) as upstream, talking(upstream, tmp_path) as app:
        chat = await app.create(ask=Ask(model="claude"))
        assert (await (await chat.send("Hi")).result()).text == "It is that."


async def test_a_stream_that_is_cut_has_an_unknown_outcome(tmp_path: Path) -> None:
    cut = reply(start() + text(0, "It"))
    async with RawUpstream(cut, cut) as upstream:  # the process that saw the cut may try once more
        error = await failure(upstream, tmp_path, OutcomeUnknown)
    assert error.code == "outcome_unknown"


async def test_without_credentials_nothing_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    async with RawUpstream() as upstream:
        error = await failure(upstream, tmp_path, ProviderFailed)
        assert upstream.connections == 0
    assert error.code == "credentials"


# The file.


@pytest.mark.parametrize(
    ("table", "env", "base_url", "region"),
    [
        ('region = "eu-west-1"', {}, "https://bedrock-runtime.eu-west-1.amazonaws.com", "eu-west-1"),
        ("", {"AWS_REGION": "us-east-1"}, "https://bedrock-runtime.us-east-1.amazonaws.com", "us-east-1"),
        ("", {"AWS_DEFAULT_REGION": "cn-north-1"}, "https://bedrock-runtime.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ('base_url = "https://bedrock-runtime-fips.us-east-2.amazonaws.com"', {"AWS_REGION": "eu-west-1"}, "https://bedrock-runtime-fips.us-east-2.amazonaws.com", "us-east-2"),
        ('base_url = "https://vpce-1.bedrock-runtime.us-west-2.vpce.amazonaws.com"', {}, "https://vpce-1.bedrock-runtime.us-west-2.vpce.amazonaws.com", "us-west-2"),
        ('region = "us-east-1"', {"AWS_BEARER_TOKEN_BEDROCK": "k"}, "https://bedrock-runtime.us-east-1.amazonaws.com", None),
    ],
)  # fmt: skip
def test_a_region_gives_the_address_and_what_is_signed_for(
    table: str, env: dict[str, str], base_url: str, region: str | None, tmp_path: Path
) -> None:
    model = settings(tmp_path, table, env).models.get("claude")
    assert (model.base_url, model.region) == (base_url, region)


@pytest.mark.parametrize(
    "table",
    ["", 'base_url = "http://127.0.0.1:1"', 'region = "US East"', 'region = "us-east-1/../x"'],
)
def test_a_region_that_is_missing_or_none_is_said_to_be(table: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        settings(tmp_path, table)
    assert caught.value.at == f"{tmp_path / 'antiphon.toml'}: models.claude.region"


def test_other_profiles_have_no_regions(tmp_path: Path) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text('[models.a]\nregion = "us-east-1"\n')
    with pytest.raises(InvalidInput) as caught:
        Settings.load({}, config=file, env={})
    assert caught.value.at == f"{file}: models.a.region"


def test_without_the_extra_one_is_told_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signing, "find_spec", lambda _: None)
    made = settings(tmp_path, 'region = "us-east-1"')
    with pytest.raises(InvalidInput) as caught:
        made.models.get("claude")
    assert caught.value.code == "extra_missing"
    assert "antiphon[bedrock]" in str(caught.value)
    borne = settings(tmp_path, 'region = "us-east-1"', {"AWS_BEARER_TOKEN_BEDROCK": "k"})
    assert borne.models.get("claude").api_key is not None
