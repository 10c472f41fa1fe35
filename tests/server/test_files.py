"""Files at the server: the official SDK's `client.files`, a conversation's own, and who sees what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest

from antiphon.core.ids import ConversationId, TenantId
from antiphon.core.traffic.keys import USUAL_RIGHTS, Right
from antiphon.engine.settings import Settings
from antiphon.server.rights.principals import Keyring
from tests.server.process import server_process
from tests.server.sdk import door
from tests.server.stage import ROOT, served
from tests.support.provider import ScriptedProvider, says

FEES = b"# Fees\n\nA berth costs nine crowns a night."


async def test_the_official_sdk_uploads_lists_reads_and_deletes(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db") as d:
        kept = await d.client.files.create(file=("../fees.md", FEES), purpose="user_data")
        assert (kept.object, kept.filename, kept.bytes) == ("file", "fees.md", len(FEES))
        assert (kept.purpose, kept.status) == ("user_data", "processed")
        other = await d.client.files.create(file=("a.txt", b"One."), purpose="assistants")
        assert [f.id async for f in d.client.files.list()] == [other.id, kept.id]
        assert [f.id async for f in d.client.files.list(order="asc", limit=1)] == [
            kept.id,
            other.id,
        ]
        assert [f.id async for f in d.client.files.list(purpose="assistants")] == [other.id]
        assert (await d.client.files.retrieve(kept.id)) == kept
        told = await d.client.files.content(kept.id)
        assert told.content == FEES
        assert told.response.headers["x-content-type-options"] == "nosniff"
        assert (await d.client.files.delete(kept.id)).deleted
        for gone in (d.client.files.retrieve(kept.id), d.client.files.delete(kept.id)):
            with pytest.raises(openai.NotFoundError) as caught:
                await gone
            assert caught.value.code == "no_such_file"


@pytest.mark.req("M115", "M116")
async def test_a_response_is_asked_with_what_was_found_in_the_conversations_files(
    tmp_path: Path,
) -> None:
    async with door(tmp_path / "a.db", says("Nine."), says("Not there.")) as d:
        conversation = await d.client.conversations.create()
        file = await d.client.files.create(file=("fees.md", FEES), purpose="user_data")
        await d.client.post(
            f"{d.url}{ROOT}/conversations/{conversation.id}/files",
            body={"file_id": file.id},
            cast_to=object,
        )
        told = await d.say("What does a berth cost?", conversation=conversation.id)
        assert told.output_text == "Nine."
        sent = str(d.provider.messages()[-1]["content"])
        assert '<rag source="fees.md#1">' in sent
        items = await d.client.conversations.items.list(conversation.id, order="asc")
        assert "rag" not in str(items.data[0].to_dict())
        await d.say("明朝有几位皇帝", conversation=conversation.id)
        assert 'notice="no_match"' in str(d.provider.messages()[-1]["content"])


def asking(text: str, *files: str) -> list[Any]:
    parts = [{"type": "input_file", "file_id": file} for file in files]
    return [{"role": "user", "content": [*parts, {"type": "input_text", "text": text}]}]


@pytest.mark.req("M115")
async def test_a_file_that_a_message_names_is_looked_up_in_and_no_provider_is_told_its_id(
    tmp_path: Path,
) -> None:
    async with door(tmp_path / "a.db", says("Nine."), says("Nine."), says("Hm.")) as d:
        file = await d.client.files.create(file=("fees.md", FEES), purpose="user_data")
        told = await d.say(asking("What does a berth cost?", file.id))
        assert told.output_text == "Nine."
        sent = str(d.provider.messages()[-1]["content"])
        assert '<rag source="fees.md#1">' in sent
        assert file.id not in str(d.provider.bodies)
        # The conversation has it from then on, and the message still says what it came with.
        assert told.conversation is not None
        await d.say("What does a berth cost, once more?", conversation=told.conversation.id)
        assert "nine crowns" in str(d.provider.messages()[-1]["content"])
        items = await d.client.responses.input_items.list(told.id)
        assert [part.to_dict() for part in items.data[0].content] == [  # type: ignore[union-attr]
            {"type": "input_text", "text": "What does a berth cost?"},
            {"type": "input_file", "file_id": file.id, "filename": None, "file_data": None},
        ]
        # An id that is not ours is the provider's own.
        await d.say(asking("And this one?", "file-abc"))
        assert "file-abc" in str(d.provider.messages()[-1]["content"])


async def test_a_file_goes_with_the_conversation_it_was_given_to_but_not_with_one_it_was_lent_to(
    tmp_path: Path,
) -> None:
    async with door(tmp_path / "a.db", says("Nine."), says("Nine.")) as d:
        file = await d.client.files.create(file=("fees.md", FEES), purpose="user_data")
        await d.say(asking("What does a berth cost?", file.id), store=False)
        assert "nine crowns" in str(d.provider.messages()[-1]["content"])
        await d.engine.erasure.idle()
        assert (await d.client.files.retrieve(file.id)).id == file.id
        told = await d.say(asking("What does a berth cost?", file.id))
        assert told.conversation is not None
        await d.engine.erasure.erase([ConversationId(told.conversation.id)])
        with pytest.raises(openai.NotFoundError):
            await d.client.files.retrieve(file.id)


async def test_items_name_files_too_and_a_file_alone_says_nothing(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("Nine.")) as d:
        file = await d.client.files.create(file=("fees.md", FEES), purpose="user_data")
        items = asking("Here are the fees.", file.id)
        conversation = await d.client.conversations.create(items=items)
        await d.say("What does a berth cost?", conversation=conversation.id)
        assert "nine crowns" in str(d.provider.messages()[-1]["content"])
        alone = [{"role": "user", "content": [{"type": "input_file", "file_id": file.id}]}]
        with pytest.raises(openai.BadRequestError) as caught:
            await d.say(alone)
        assert (caught.value.code, caught.value.param) == ("empty_content", "input[0]")


async def test_another_tenants_file_is_not_ours_to_be_looked_up_in(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("Hm.")) as d:
        theirs = await d.engine.files.add(TenantId("acme"), "fees.md", FEES)
        await d.say(asking("What does a berth cost?", theirs.id))
        sent = str(d.provider.messages()[-1]["content"])
        assert "crowns" not in sent
        assert theirs.id in sent  # as any id that is not known here


async def test_a_declared_charset_counts_and_text_is_told_from_bytes(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db") as d:
        text = "Über die Brücke".encode("latin-1")
        kept = await d.client.files.create(
            file=("a.txt", text, "text/plain; charset=iso-8859-1"), purpose="user_data"
        )
        file = await d.engine.world.store.knowledge.file(TenantId("local"), kept.id)
        assert (file.encoding, file.evidence) == ("iso8859-1", "declared")


REFUSED: dict[str, tuple[Any, dict[str, Any], int, str, str | None]] = {
    "empty": (("a.txt", b""), {}, 400, "empty_file", "a.txt"),
    "binary": (("../x.pdf", b"%PDF-1.4 \0"), {}, 400, "not_text", "x.pdf"),
    "large": (("a.txt", b"x" * 2000), {}, 413, "file_too_large", "a.txt"),
    "charset": (("a.txt", b"x", "text/plain; charset=nil"), {}, 400, "bad_encoding", "nil"),
    "purpose": (("a.txt", b"x"), {"purpose": ""}, 400, "missing_purpose", "purpose"),
    "expiry": (
        ("a.txt", b"x"),
        {"expires_after": {"anchor": "created_at", "seconds": 3600}},
        400,
        "unsupported_parameter",
        None,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_no_text_or_too_large_is_refused_with_its_place(
    tmp_path: Path, case: str
) -> None:
    file, more, status, code, at = REFUSED[case]
    settings = Settings(max_file_bytes=1024)
    async with door(tmp_path / "a.db", settings=settings) as d:
        with pytest.raises(openai.APIStatusError) as caught:
            await d.client.files.create(**{"file": file, "purpose": "user_data", **more})
        assert (caught.value.status_code, caught.value.code) == (status, code)
        assert at is None or caught.value.param == at
        assert [f async for f in d.client.files.list()] == []


@pytest.mark.parametrize(
    ("kind", "body", "status", "code"),
    [
        ("application/json", b"{}", 415, "not_json"),
        ("multipart/form-data", b"x", 400, "bad_form"),
        ("multipart/form-data; boundary=b", b"--b\r\nnonsense", 400, None),
        ("multipart/form-data; boundary=b", b"--b--\r\n", 400, "missing_file"),
    ],
)
async def test_a_form_that_is_none_is_refused(
    tmp_path: Path, kind: str, body: bytes, status: int, code: str | None
) -> None:
    async with served(tmp_path / "a.db") as stage:
        told = await stage.client.ask("POST", "/v1/files", raw=body, headers={"content-type": kind})
        assert told.status == status, told.body
        assert code is None or told.json["error"]["code"] == code


async def test_a_conversation_is_given_files_and_lets_them_go(tmp_path: Path) -> None:
    async with served(tmp_path / "a.db", ScriptedProvider(says("Nine."))) as stage:
        name = await stage.conversation()
        files = f"{ROOT}/conversations/{name}/files"
        made = await stage.client.post(
            files, {"name": "a/b/fees.md", "data": "QSBiZXJ0aCBjb3N0cyBuaW5lIGNyb3ducy4="}
        )
        assert (made.status, made.json["name"], made.json["encoding"]) == (201, "fees.md", "utf-8")
        await stage.send(name, "What does a berth cost?", id="msg_q")
        await stage.idle(name)
        beside = (await stage.client.get(f"{ROOT}/messages/msg_q/beside")).json
        assert beside["inputs"][0]["source"] == "fees.md#1"
        assert beside["searched"][0]["status"] == "hit"
        file = made.json["id"]
        assert (await stage.client.ask("DELETE", f"{files}/{file}")).status == 200
        assert (await stage.client.get(files)).json == {"data": []}
        for body in ({}, {"data": "QQ==", "file_id": file}):
            assert (await stage.client.post(files, body)).status == 400
        assert (await stage.client.post(files, {"file_id": file})).status == 201
        assert len((await stage.client.get(files)).json["data"]) == 1
        erased = await stage.client.ask("DELETE", f"{ROOT}/conversations/{name}/content")
        assert erased.status == 200
        assert (await stage.client.get(f"/v1/files/{file}")).status == 404


async def test_what_one_tenant_keeps_another_one_cannot_tell_from_nothing(tmp_path: Path) -> None:
    async with served(tmp_path / "a.db") as stage:
        keyring: Keyring = stage.app.state.keyring
        secrets = {}
        for name, rights in (
            ("ours", USUAL_RIGHTS),
            ("others", USUAL_RIGHTS),
            ("plain", USUAL_RIGHTS - {Right.INSTRUCT}),
        ):
            tenant = TenantId("ours" if name == "plain" else name)
            _, secret = await keyring.make(tenant=tenant, name=name, rights=rights, expires_ms=None)
            secrets[name] = {"authorization": f"Bearer {secret}"}

        async def ask(who: str, method: str, path: str, body: object = None) -> int:
            told = await stage.client.ask(method, path, body, headers=secrets[who])
            return told.status

        made = await stage.client.ask("POST", f"{ROOT}/conversations", {}, headers=secrets["ours"])
        here = f"{ROOT}/conversations/{made.json['id']}"
        given = await stage.client.ask(
            "POST", f"{here}/files", {"name": "a", "data": "QQ=="}, headers=secrets["ours"]
        )
        file = given.json["id"]
        text = {"text": "Be brief."}
        assert await ask("ours", "PUT", f"{here}/memories/k", text) == 200
        assert await ask("ours", "PUT", f"{ROOT}/instructions/brief", text) == 200
        for method, path, body in (
            ("GET", f"/v1/files/{file}", None),
            ("GET", f"/v1/files/{file}/content", None),
            ("DELETE", f"/v1/files/{file}", None),
            ("GET", f"{here}/files", None),
            ("GET", f"{here}/memories", None),
            ("PUT", f"{here}/memories/k", text),
            ("GET", f"{ROOT}/instructions/brief", None),
        ):
            assert await ask("others", method, path, body) == 404
        # Who may write what the model takes for the operator's word is a right of the key.
        assert await ask("plain", "PUT", f"{here}/memories/k", text) == 200
        assert await ask("plain", "PUT", f"{here}/memories/k", {**text, "kind": "stable"}) == 403
        assert await ask("plain", "DELETE", f"{here}/memories/k?kind=stable") == 403
        assert await ask("plain", "PUT", f"{ROOT}/instructions/brief", text) == 403
        assert await ask("plain", "GET", f"{ROOT}/instructions/brief") == 200


@pytest.mark.req("M115", "M116")
def test_a_server_of_its_own_answers_from_a_file_in_either_language_by_the_official_sdk(
    tmp_path: Path,
) -> None:
    text = "# Fees\n\nA berth costs nine crowns.\n\n# 退款\n\n退款须在付款后七天内申请。"
    asked = {
        "What does a berth cost?": "in fees.md#1 it says “A berth costs nine crowns.”",
        "怎么申请退款": "in fees.md#2 it says “退款须在付款后七天内申请。”",
        "明朝皇帝": "nothing in files matches your question.",
    }
    with server_process(tmp_path, env={"ANTIPHON_REHEARSAL_DELAY_S": "0"}) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)
        with client:
            file = client.files.create(
                file=("fees.md", text.encode("gb18030")), purpose="user_data"
            )
            conversation = client.conversations.create()
            server.post(f"{ROOT}/conversations/{conversation.id}/files", {"file_id": file.id})
            for question, said in asked.items():
                told = client.responses.create(
                    model="rehearsal", input=question, conversation=conversation.id
                )
                assert said in told.output_text
