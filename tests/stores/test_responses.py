"""Contract: a response is born with its run or its outputs, once for each request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from antiphon.core.commands import (
    CreateConversation,
    DeleteConversation,
    DeleteResponse,
    EraseConversation,
    OpenResponse,
    PutContent,
    SetMetadata,
    StartKey,
    Then,
)
from antiphon.core.dispatch import Denied
from antiphon.core.ids import (
    LOCAL_TENANT,
    ConversationId,
    Digest,
    MessageId,
    ResponseId,
    RunId,
    SessionId,
    TenantId,
)
from antiphon.core.records import RunStatus
from antiphon.errors import NotFound
from tests.stores.talk import START_MS, Talk, a_digest

SCOPE = "me POST /v1/responses"


def a_key(key: str = "key", body: str = "body", lives_ms: int = 86_400_000) -> StartKey:
    return StartKey(
        scope=SCOPE, key=key, body_digest=a_digest(body), expires_ms=START_MS + lives_ms
    )


def begin(
    talk: Talk,
    response: str = "resp_1",
    run: str = "run_1",
    key: StartKey | None = None,
    *,
    attach: bool = True,
    continues: bool = False,
    request: Digest | None = None,
) -> OpenResponse:
    return OpenResponse(
        **talk.head(),
        response=ResponseId(response),
        run=RunId(run),
        input=(MessageId("m1"),),
        request=request,
        key=key,
        attach=attach,
        continues=continues,
    )


async def under_key(talk: Talk) -> str | None:
    found = await talk.store.response_of_key(SCOPE, "key", talk.now_ms)
    return None if found is None else found[0].id


@pytest.mark.req("M130")
async def test_a_response_is_durable_with_the_run_that_it_starts(talk: Talk) -> None:
    await talk.answered("run_0", "op_0", name="m0", answer="a0")
    before = (await talk.row()).last_event
    started = await talk.store.do_all(
        begin(talk, request=a_digest("request")), talk.start("run_1", "m1")
    )
    assert not isinstance(started, Denied)
    response = await talk.store.response(LOCAL_TENANT, ResponseId("resp_1"))
    assert response == started[0]
    assert (response.run, response.conversation) == ("run_1", "conv_1")
    assert (response.since, response.input, response.stored) == (before, ("m1",), True)
    assert response.request == a_digest("request")
    assert not response.deleted
    # The event that told of its run is the first of its own.
    assert (await talk.run("run_1")).seq == before + 1


async def test_only_a_run_that_waits_can_be_continued(talk: Talk) -> None:
    await talk.streaming()
    denied = await talk.denied(begin(talk, continues=True))
    assert denied == "run_waiting"


async def test_where_the_run_is_refused_there_is_no_response(talk: Talk) -> None:
    await talk.do(talk.start("run_0", "m0"))
    refused = await talk.store.do_all(
        begin(talk, key=a_key()), talk.start("run_1", "m1", max_queued=1)
    )
    assert refused == Denied("queue_full")
    with pytest.raises(NotFound):
        await talk.store.response(LOCAL_TENANT, ResponseId("resp_1"))
    assert await talk.store.response_of_key(SCOPE, "key", START_MS) is None  # its key is free


async def test_outputs_begin_another_response_of_the_same_run(talk: Talk) -> None:
    await talk.do(begin(talk))
    await talk.answered(calls=("call_1",), then=Then.WAIT)
    assert (await talk.run("run_1")).status is RunStatus.WAITING
    waited = (await talk.row()).last_event
    done = await talk.store.do_all(
        begin(talk, "resp_2", continues=True), talk.finish_call("run_1", "call_1", outside=True)
    )
    assert not isinstance(done, Denied)
    first, second = await talk.store.responses(talk.conversation, RunId("run_1"))
    assert (first.id, second.id) == ("resp_1", "resp_2")
    assert (first.since, second.since) == (0, waited)


@pytest.mark.req("M136")
async def test_a_repeated_request_begins_nothing_and_finds_what_it_began(talk: Talk) -> None:
    await talk.store.do_all(begin(talk, key=a_key()), talk.start("run_1", "m1"))
    before = await talk.row()
    again = await talk.store.do_all(
        begin(talk, "resp_2", "run_2", a_key()), talk.start("run_2", "m2")
    )
    assert again == Denied("response_known")
    assert await talk.row() == before
    found = await talk.store.response_of_key(SCOPE, "key", START_MS)
    first = await talk.store.response(LOCAL_TENANT, ResponseId("resp_1"))
    assert found == (first, a_digest("body"))
    assert [run.id for run in await talk.store.runs(talk.conversation)] == ["run_1"]


@pytest.mark.req("M136")
async def test_a_key_with_another_body_is_a_conflict_until_it_expires(talk: Talk) -> None:
    await talk.do(begin(talk, key=a_key(lives_ms=1000)))
    assert await talk.denied(begin(talk, "resp_2", "run_2", a_key(body="b"))) == (
        "idempotency_conflict"
    )
    talk.now_ms += 1000
    await talk.do(begin(talk, "resp_2", "run_2", a_key(body="b")))
    assert await under_key(talk) == "resp_2"


async def test_a_request_that_is_no_repetition_takes_the_key_over(talk: Talk) -> None:
    await talk.do(begin(talk, key=a_key(), attach=False))
    await talk.do(begin(talk, "resp_2", "run_2", a_key(), attach=False))
    assert await talk.denied(begin(talk, "resp_3", "run_3", a_key())) == "response_known"
    assert await under_key(talk) == "resp_2"


async def test_a_repetition_in_a_conversation_made_for_it_leaves_no_trace_of_that(
    talk: Talk,
) -> None:
    await talk.do(begin(talk, key=a_key()))
    other = Talk(talk.store, talk.fence, ConversationId("conv_2"), SessionId("sess_2"))
    created = CreateConversation(**other.head(), tenant=LOCAL_TENANT, session=other.session)
    again = begin(other, "resp_2", "run_2", a_key())
    assert await talk.store.do_all(created, again) == Denied("response_known")
    with pytest.raises(NotFound):
        await other.row()


@pytest.mark.req("M94")
async def test_a_response_is_nobody_elses(talk: Talk) -> None:
    await talk.do(begin(talk))
    with pytest.raises(NotFound) as caught:
        await talk.store.response(TenantId("other"), ResponseId("resp_1"))
    assert caught.value.at == "resp_1"


async def test_a_deleted_response_says_so_and_its_run_stays(talk: Talk) -> None:
    await talk.store.do_all(begin(talk), talk.start("run_1", "m1"))
    other = Talk(talk.store, talk.fence, ConversationId("conv_2"), SessionId("sess_2"))
    await other.do(CreateConversation(**other.head(), tenant=LOCAL_TENANT, session=other.session))
    with pytest.raises(NotFound):
        await other.do(DeleteResponse(**other.head(), response=ResponseId("resp_1")))
    gone = await talk.do(DeleteResponse(**talk.head(), response=ResponseId("resp_1")))
    assert gone.deleted
    assert gone == await talk.store.response(LOCAL_TENANT, ResponseId("resp_1"))
    assert (await talk.run("run_1")).open


# Conversations, as far as a front door changes them.


async def test_metadata_is_replaced_and_moves_nothing_else(talk: Talk) -> None:
    before = await talk.row()
    await talk.do(SetMetadata(**talk.head(), metadata=(("a", "1"), ("b", "2"))))
    row = await talk.do(SetMetadata(**talk.head(), metadata=(("c", "3"),)))
    assert row.metadata == {"c": "3"}
    assert (row.revision, row.last_event) == (before.revision, before.last_event)
    assert (await talk.do(SetMetadata(**talk.head(), metadata=()))).metadata == {}


async def test_a_deleted_conversation_works_no_more_and_is_not_listed(talk: Talk) -> None:
    await talk.answered(calls=("call_1",), then=Then.WAIT)
    await talk.do(talk.start("run_2", "m2", parent="m1"))
    row = await talk.do(DeleteConversation(**talk.head()))
    assert row.deleted
    assert {run.status for run in await talk.store.runs(talk.conversation)} == {RunStatus.CANCELED}
    assert row.active_operation is None
    assert await talk.store.conversations(LOCAL_TENANT) == []
    assert (await talk.row()).deleted


async def test_a_run_in_flight_is_canceled_with_its_conversation(talk: Talk) -> None:
    attempt = await talk.streaming()
    row = await talk.do(DeleteConversation(**talk.head()))
    assert (row.slot, row.active_operation, row.cancel_generation) == (None, None, 1)
    late = talk.commit("op_1", attempt.generation, talk.answer("a1"))
    assert isinstance(await talk.store.do(late), Denied)


async def test_what_is_erased_leaves_its_structure_and_nothing_that_was_said(talk: Talk) -> None:
    request = a_digest("request")
    await talk.do(PutContent(**talk.head(), items=((request, b"asked"),)))
    await talk.do(begin(talk, request=request))
    await talk.answered(calls=("call_1",), then=Then.WAIT)
    await talk.do(talk.finish_call("run_1", "call_1", outside=True))
    await talk.do(EraseConversation(**talk.head(), at_once=False))
    tree = await talk.store.tree(talk.conversation)
    assert [(m.id, m.blocks) for m in tree][:2] == [("m1", ()), ("a1", ())]
    assert {m.blocks for m in tree} == {()}
    (call,) = await talk.store.calls(talk.conversation, RunId("run_1"))
    assert (call.call_id, call.arguments, call.content) == ("call_1", "", ())
    assert (await talk.store.message(talk.conversation, MessageId("a1"))).blocks == ()
    with pytest.raises(NotFound):
        await talk.store.content(LOCAL_TENANT, request)
    assert await talk.store.unstored() == []


async def test_what_is_not_to_be_stored_is_found_until_it_is_dropped(talk: Talk) -> None:
    await talk.do(begin(talk, "resp_1"))
    command = begin(talk, "resp_2", "run_2")
    await talk.do(replace(command, stored=False))
    assert [r.id for r in await talk.store.unstored()] == ["resp_2"]
