"""What is remembered and instructions that have a name, over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.core.ids import ConversationId, RunId
from tests.server.sdk import door
from tests.server.stage import ROOT, served
from tests.support.provider import ScriptedProvider, says


@pytest.mark.req("M19")
async def test_instructions_are_versions_with_an_owner_and_a_run_says_which_it_was_told(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider(says("One."), says("Two."), says("Three."))
    async with served(tmp_path / "a.db", provider) as stage:
        named = f"{ROOT}/instructions/brief"
        for text, version in (("Be brief.", 1), ("Be brief.", 1), ("Be very brief.", 2)):
            told = (await stage.client.ask("PUT", named, {"text": text})).json
            assert (told["name"], told["version"], told["owner"]) == ("brief", version, "local")
        assert (await stage.client.get(f"{named}@1")).json["text"] == "Be brief."
        assert len((await stage.client.get(f"{named}/versions")).json["data"]) == 2
        assert len((await stage.client.get(f"{ROOT}/instructions")).json["data"]) == 1

        name = await stage.conversation()
        asked: list[dict[str, str]] = [
            {"named": "brief"},
            {"named": "brief@1", "instructions": "And kind."},
            {},
        ]
        digests = set()
        for more in asked:
            run = await stage.send(name, "Well?", **more)
            await stage.idle(name)
            store = stage.engine.world.store
            (operation,) = await store.operations(ConversationId(name), RunId(run["id"]))
            digests.add((await store.manifest(operation))[0].policy_digest)
        first = [str(provider.messages(n)[0]["content"]) for n in range(3)]
        assert first == ["Be very brief.", "Be brief.\n\nAnd kind.", "Well?"]
        assert len(digests) == 3
        for missing in ("none", "brief@3", "brief@x"):
            path = f"{ROOT}/conversations/{name}/messages"
            refused = await stage.client.post(path, {"content": "Well?", "named": missing})
            assert (refused.status, refused.json["error"]["code"]) == (404, "no_such_instructions")


async def test_the_sdks_stored_prompt_is_instructions_by_their_name(tmp_path: Path) -> None:
    async with door(tmp_path / "a.db", says("One.")) as d:
        memories = d.engine.memories
        row = await d.engine.create_conversation()
        await memories.write_instructions(row.tenant, "brief", "Be brief.", "local")
        await d.say("Well?", prompt={"id": "brief", "version": "1"})
        assert d.provider.messages()[0]["content"] == "Be brief."


async def test_what_is_remembered_for_all_is_told_in_a_response_of_a_new_conversation(
    tmp_path: Path,
) -> None:
    async with door(tmp_path / "a.db", says("One."), says("Two.")) as d:
        put = f"{d.url}{ROOT}/memories/language"
        await d.client.put(put, body={"text": "中文"}, cast_to=object)
        first = await d.say("Well?")
        assert '<memory key="language">\n中文\n</memory>' in str(
            d.provider.messages()[0]["content"]
        )
        await d.client.delete(put, cast_to=object)
        await d.say("And now?", previous_response_id=first.id)
        assert d.provider.messages()[0]["content"] == "Well?"


async def test_a_client_that_brings_its_history_is_told_nothing_that_it_did_not_bring(
    tmp_path: Path,
) -> None:
    async with door(tmp_path / "a.db", says("One.")) as d:
        await d.client.put(
            f"{d.url}{ROOT}/memories/language", body={"text": "中文"}, cast_to=object
        )
        await d.client.chat.completions.create(
            model="rehearsal", messages=[{"role": "user", "content": "Well?"}]
        )
        assert d.provider.messages() == [{"role": "user", "content": "Well?"}]


async def test_memories_are_listed_changed_and_forgotten(tmp_path: Path) -> None:
    async with served(tmp_path / "a.db") as stage:
        here = f"{ROOT}/conversations/{await stage.conversation()}/memories"
        assert (await stage.client.ask("PUT", f"{here}/a%20b", {"text": "One."})).status == 200
        assert (await stage.client.ask("PUT", f"{here}/a%20b", {"text": "Two."})).json[
            "text"
        ] == "Two."
        assert (await stage.client.ask("PUT", f"{ROOT}/memories/k", {"text": "All."})).status == 200
        told = (await stage.client.get(here)).json["data"]
        assert [(m["key"], m["text"]) for m in told] == [("k", "All."), ("a b", "Two.")]
        assert len((await stage.client.get(f"{ROOT}/memories")).json["data"]) == 1
        assert (await stage.client.ask("DELETE", f"{here}/a%20b")).status == 204
        assert (await stage.client.ask("DELETE", f"{here}/a%20b")).status == 404
        for body, code in (
            ({}, None),
            ({"text": ""}, "empty_content"),
            ({"text": "x", "kind": "y"}, None),
        ):
            refused = await stage.client.ask("PUT", f"{here}/k", body)
            assert refused.status == 400
            assert code is None or refused.json["error"]["code"] == code
