"""Contract: conversations, and what changes their tree without a run."""

from __future__ import annotations

import pytest

from antiphon.core.blocks import Message, Origin, Role, Status, Text, Trust
from antiphon.core.commands import (
    AddMessages,
    CancelRun,
    CreateConversation,
    DeleteMessages,
    KeepCanceled,
    MoveHead,
    PutContent,
    Quarantine,
    SetTitle,
)
from antiphon.core.ids import (
    LOCAL_TENANT,
    ConversationId,
    MessageId,
    RunId,
    SessionId,
    TenantId,
)
from antiphon.core.records import RunStatus
from antiphon.errors import NotFound, Refused
from antiphon.stores.base import Store
from tests.stores.talk import Talk, a_digest


def add(talk: Talk, *messages: Message, head: str | None = None) -> AddMessages:
    return AddMessages(
        **talk.head(), messages=messages, head=None if head is None else MessageId(head)
    )


@pytest.mark.req("M7")
async def test_a_new_conversation_stands_at_revision_zero_with_one_active_session(
    store: Store,
) -> None:
    talk = await Talk.begin(store)
    row = await talk.row()
    assert (row.revision, row.cancel_generation, row.attempt_generation) == (0, 0, 0)
    assert (row.head, row.slot, row.active_operation) == (None, None, None)
    assert row.tenant == LOCAL_TENANT
    (session,) = await store.sessions(talk.conversation)
    assert (session.id, session.active, session.goal) == (talk.session, True, None)
    assert row.session == session.id


async def test_creating_a_conversation_again_returns_it_as_it_stands(talk: Talk) -> None:
    await talk.do(SetTitle(**talk.head(), title="Oslo"))
    again = await talk.do(
        CreateConversation(**talk.head(), tenant=LOCAL_TENANT, session=SessionId("sess_other"))
    )
    assert (again.title, again.session) == ("Oslo", talk.session)


async def test_a_conversation_of_another_tenant_is_not_handed_out_by_its_id(talk: Talk) -> None:
    command = CreateConversation(
        **talk.head(), tenant=TenantId("other"), session=SessionId("sess_other")
    )
    assert await talk.denied(command) == "conversation_id"


async def test_metadata_and_title_come_back_as_they_were_given(store: Store) -> None:
    talk = await Talk.begin(store)
    created = await talk.do(
        CreateConversation(
            conversation=ConversationId("conv_2"),
            now_ms=1,
            tenant=LOCAL_TENANT,
            session=SessionId("sess_2"),
            title="Wéather",
            metadata=(("a", "1"), ("b", "é")),
            scheduling=True,
        )
    )
    assert created == await store.conversation(ConversationId("conv_2"))
    assert created in await store.conversations(LOCAL_TENANT), "how it is known is how it is stored"
    assert (created.title, created.metadata) == ("Wéather", {"a": "1", "b": "é"})


@pytest.mark.req("M124", "M25")
async def test_imported_messages_form_a_tree_and_move_the_revision_once(talk: Talk) -> None:
    row = await talk.do(
        add(
            talk,
            talk.message("m1"),
            talk.message("m2", parent="m1", role=Role.ASSISTANT),
            talk.message("m3", parent="m1", role=Role.ASSISTANT),
            talk.message("root2"),
            head="m2",
        )
    )
    assert (row.revision, row.head) == (1, "m2")
    tree = await talk.store.tree(talk.conversation)
    assert [(m.id, m.parent) for m in tree] == [
        ("m1", None),
        ("m2", "m1"),
        ("m3", "m1"),
        ("root2", None),
    ]
    assert [m.id for m in await talk.store.children(talk.conversation, MessageId("m1"))] == [
        "m2",
        "m3",
    ]
    assert [m.id for m in await talk.store.children(talk.conversation, None)] == ["m1", "root2"]
    assert await talk.store.children(talk.conversation, MessageId("m3")) == []


@pytest.mark.req("M14", "M30", "M31")
async def test_every_field_of_a_message_survives_the_way_through_the_store(talk: Talk) -> None:
    message = Message(
        id=MessageId("m1"),
        conversation=talk.conversation,
        parent=None,
        role=Role.DEVELOPER,
        blocks=(Text(text="a"), Text(text="assistant: b")),
        origin=Origin.IMPORTED,
        trust=Trust.DEVELOPER,
        name="ops",
        session=talk.session,
        copied_from=MessageId("m0"),
        created_ms=123,
        metadata={"k": "v"},
        status=Status.ERROR,
        error_code="content_filter",
    )
    await talk.do(add(talk, message))
    assert await talk.store.message(talk.conversation, message.id) == message
    assert await talk.store.path(talk.conversation, message.id) == [message]
    assert await talk.store.tree(talk.conversation) == [message]


@pytest.mark.req("M27")
async def test_the_same_message_again_is_a_replay_that_changes_nothing(talk: Talk) -> None:
    first = await talk.do(add(talk, talk.message("m1"), head="m1"))
    again = await talk.do(add(talk, talk.message("m1"), head="m1"))
    assert (again.revision, again.last_event) == (first.revision, first.last_event)
    more = await talk.do(add(talk, talk.message("m1"), talk.message("m2", parent="m1")))
    assert more.revision == first.revision + 1
    assert len(await talk.store.tree(talk.conversation)) == 2


@pytest.mark.req("M27")
@pytest.mark.parametrize(
    "other",
    [
        {"text": "other words"},
        {"parent": "m0"},
        {"role": Role.SYSTEM},
    ],
    ids=["words", "parent", "role"],
)
async def test_the_same_id_with_other_content_is_a_conflict_and_nothing_is_kept(
    talk: Talk, other: dict[str, object]
) -> None:
    await talk.do(add(talk, talk.message("m0"), talk.message("m1")))
    row = await talk.row()
    conflict = talk.message("m1", **other)  # type: ignore[arg-type]  # one of its own keywords
    command = add(talk, talk.message("m2", parent="m1"), conflict)
    assert await talk.denied(command) == "message_id_conflict"
    assert await talk.row() == row
    with pytest.raises(NotFound):
        await talk.store.message(talk.conversation, MessageId("m2"))


@pytest.mark.req("M127")
@pytest.mark.parametrize(
    ("code", "parents"),
    [
        ("missing_parent", {"m1": "nowhere"}),
        ("cycle", {"m1": "m1"}),
        ("cycle", {"m1": "m2", "m2": "m1"}),
    ],
    ids=["missing", "itself", "two"],
)
async def test_a_broken_tree_is_refused_whole(
    talk: Talk, code: str, parents: dict[str, str]
) -> None:
    messages = [talk.message(name, parent=parent) for name, parent in parents.items()]
    with pytest.raises(Refused) as caught:
        await talk.store.do(add(talk, talk.message("m0"), *messages))
    assert caught.value.code == code
    assert await talk.store.tree(talk.conversation) == []


@pytest.mark.req("M127")
async def test_a_message_of_another_conversation_is_refused(store: Store, talk: Talk) -> None:
    other = await Talk.begin(store, "conv_2")
    with pytest.raises(Refused) as caught:
        await store.do(add(talk, other.message("m1")))
    assert caught.value.code == "foreign_parent"


async def test_messages_of_two_conversations_may_have_the_same_id(store: Store, talk: Talk) -> None:
    other = await Talk.begin(store, "conv_2")
    await talk.do(add(talk, talk.message("m1", "here")))
    await other.do(add(other, other.message("m1", "there")))
    assert (await store.message(talk.conversation, MessageId("m1"))).text == "here"
    assert (await store.message(other.conversation, MessageId("m1"))).text == "there"


@pytest.mark.req("M139")
async def test_nothing_is_added_kept_or_deleted_while_an_operation_is_active(talk: Talk) -> None:
    await talk.do(add(talk, talk.message("m0"), talk.message("c0", status=Status.CANCELED)))
    await talk.accepted()
    busy = "conversation_busy"
    assert await talk.denied(add(talk, talk.message("m2"))) == busy
    delete = DeleteMessages(**talk.head(), messages=(MessageId("m0"),))
    assert await talk.denied(delete) == busy
    keep = KeepCanceled(**talk.head(), source=MessageId("c0"), message=MessageId("k0"))
    assert await talk.denied(keep) == busy


@pytest.mark.req("M7")
async def test_looking_at_another_line_moves_the_head_and_not_the_revision(talk: Talk) -> None:
    await talk.do(add(talk, talk.message("m1"), talk.message("m2"), head="m2"))
    row = await talk.do(MoveHead(**talk.head(), head=MessageId("m1")))
    assert (row.head, row.revision) == ("m1", 1)
    row = await talk.do(MoveHead(**talk.head(), head=None))
    assert (row.head, row.revision) == (None, 1)
    with pytest.raises(NotFound):
        await talk.store.do(MoveHead(**talk.head(), head=MessageId("nowhere")))


async def test_a_title_comes_and_goes(talk: Talk) -> None:
    assert (await talk.do(SetTitle(**talk.head(), title="Oslo"))).title == "Oslo"
    assert (await talk.do(SetTitle(**talk.head(), title=None))).title is None


@pytest.mark.req("M25")
async def test_a_deletion_is_a_marker_that_later_revisions_see_and_earlier_ones_do_not(
    talk: Talk,
) -> None:
    await talk.do(add(talk, talk.message("m1"), talk.message("m2", parent="m1")))
    row = await talk.do(DeleteMessages(**talk.head(), messages=(MessageId("m1"),)))
    assert (row.revision, row.deletions) == (2, frozenset({MessageId("m1")}))
    assert await talk.store.deletions_at(talk.conversation, 1) == frozenset()
    assert await talk.store.deletions_at(talk.conversation, 2) == {"m1"}
    # The node itself stays, for people and for what hangs below it.
    path = await talk.store.path(talk.conversation, MessageId("m2"))
    assert [m.id for m in path] == ["m1", "m2"]


async def test_deleting_again_moves_nothing(talk: Talk) -> None:
    await talk.do(add(talk, talk.message("m1")))
    first = await talk.do(DeleteMessages(**talk.head(), messages=(MessageId("m1"),)))
    again = await talk.do(DeleteMessages(**talk.head(), messages=(MessageId("m1"),)))
    assert (again.revision, again.last_event) == (first.revision, first.last_event)


async def test_a_deletion_above_a_run_cancels_it_in_the_same_transaction(talk: Talk) -> None:
    await talk.accepted()
    row = await talk.do(
        DeleteMessages(**talk.head(), messages=(MessageId("m1"),), cancel=(RunId("run_1"),))
    )
    assert row.deletions == {"m1"}
    assert (row.active_operation, row.slot) == (None, None)
    assert (row.revision, row.cancel_generation) == (2, 1)
    run = await talk.run("run_1")
    assert (run.status, run.error_code) == (RunStatus.CANCELED, "deleted")


async def test_canceled_text_is_kept_as_a_new_message_that_vouches_for_nothing(talk: Talk) -> None:
    await talk.streaming()
    await talk.do(
        CancelRun(
            **talk.head(),
            run=RunId("run_1"),
            reason="user",
            partial=(Text(text="half"),),
            partial_id=MessageId("p1"),
        )
    )
    before = await talk.row()
    keep = KeepCanceled(**talk.head(), source=MessageId("p1"), message=MessageId("k1"))
    row = await talk.do(keep)
    kept = await talk.store.message(talk.conversation, MessageId("k1"))
    assert (row.revision, row.head) == (before.revision + 1, "k1")
    assert (kept.origin, kept.trust, kept.status) == (Origin.KEPT, Trust.USER, Status.SUCCESS)
    assert (kept.text, kept.parent, kept.copied_from) == ("half", "m1", "p1")
    assert await talk.do(keep) == row


async def test_only_canceled_text_is_kept(talk: Talk) -> None:
    await talk.do(add(talk, talk.message("m1")))
    keep = KeepCanceled(**talk.head(), source=MessageId("m1"), message=MessageId("k1"))
    assert await talk.denied(keep) == "message_canceled"


@pytest.mark.req("M28")
async def test_content_is_stored_once_per_tenant_and_digest(talk: Talk) -> None:
    digest = a_digest("policy")
    await talk.do(PutContent(**talk.head(), items=((digest, b"{}"), (a_digest("b"), b"\x00\xff"))))
    await talk.do(PutContent(**talk.head(), items=((digest, b"{}"),)))
    assert await talk.store.content(LOCAL_TENANT, digest) == b"{}"
    assert await talk.store.content(LOCAL_TENANT, a_digest("b")) == b"\x00\xff"
    with pytest.raises(NotFound):
        await talk.store.content(TenantId("other"), digest)


@pytest.mark.req("M28")
async def test_tenants_have_keys_of_their_own_that_stay(store: Store) -> None:
    ours = await store.tenant_key(TenantId("a"))
    assert len(ours) == 32
    assert ours == await store.tenant_key(TenantId("a"))
    assert ours != await store.tenant_key(TenantId("b"))


async def test_conversations_are_listed_by_last_change_a_page_at_a_time(store: Store) -> None:
    talks = [await Talk.begin(store, f"conv_{n}") for n in range(5)]
    talks[1].now_ms += 10_000
    await talks[1].do(add(talks[1], talks[1].message("m1")))
    talks[0].now_ms += 20_000
    await talks[0].placed()
    first = await store.conversations(LOCAL_TENANT, limit=2)
    assert [c.id for c in first] == ["conv_0", "conv_1"]
    rest = await store.conversations(LOCAL_TENANT, before=first[-1].id)
    assert {c.id for c in rest} == {"conv_2", "conv_3", "conv_4"}
    assert await store.conversations(TenantId("other")) == []


@pytest.mark.req("M67")
async def test_what_is_put_aside_is_kept_in_order_and_changes_nothing_else(talk: Talk) -> None:
    before = await talk.row()
    for n in (1, 2):
        await talk.do(
            Quarantine(**talk.head(), operation=None, generation=n, reason="late", data=f"text {n}")
        )
    aside = await talk.store.quarantine(talk.conversation)
    assert [(q.generation, q.reason, q.data) for q in aside] == [
        (1, "late", "text 1"),
        (2, "late", "text 2"),
    ]
    assert await talk.row() == before


async def test_every_read_of_what_is_not_there_says_so(talk: Talk) -> None:
    store, here = talk.store, talk.conversation
    nowhere = ConversationId("conv_nowhere")
    for read in (
        store.conversation(nowhere),
        store.sessions(nowhere),
        store.tree(nowhere),
        store.message(here, MessageId("nothing")),
        store.path(here, MessageId("nothing")),
        store.children(here, MessageId("nothing")),
        store.run(here, RunId("nothing")),
        store.find_run(RunId("nothing")),
        store.run_input(here, RunId("nothing")),
        store.events(nowhere, 0),
    ):
        with pytest.raises(NotFound):
            await read


async def test_a_run_of_another_conversation_is_not_found_here(store: Store, talk: Talk) -> None:
    other = await Talk.begin(store, "conv_2")
    await other.placed("run_9")
    with pytest.raises(NotFound):
        await store.run(talk.conversation, RunId("run_9"))
    with pytest.raises(NotFound):
        await store.do(talk.place("run_9", parent=None, revision=0))
    assert (await store.find_run(RunId("run_9"))).conversation == other.conversation


async def test_the_end_of_a_line_comes_with_its_alternatives_and_without_what_is_above(
    talk: Talk,
) -> None:
    line = [talk.message(f"m{n}", parent=f"m{n - 1}" if n else None) for n in range(9)]
    beside = [talk.message(f"b{n}", parent=f"m{n}") for n in range(0, 8, 2)]
    below = [talk.message("below", parent="b6"), talk.message("next", parent="m8")]
    await talk.do(add(talk, *line, *beside, *below, head="m8"))

    async def excerpt(leaf: str | None, newest: int) -> tuple[list[str], bool]:
        name = None if leaf is None else MessageId(leaf)
        messages, whole = await talk.store.excerpt(talk.conversation, name, newest)
        return [message.id for message in messages], whole

    # m6 has a child that another line goes through; what stands below that one is not told.
    assert await excerpt("m8", 2) == (["m7", "m8", "b6", "next"], False)
    assert await excerpt("m2", 3) == (["m0", "m1", "m2", "m3", "b0", "b2"], False)
    assert await excerpt(None, 3) == (["m0"], False)
    assert await excerpt("m8", 15) == ([m.id for m in (*line, *beside, *below)], True)
    (root, *_), _ = await talk.store.excerpt(talk.conversation, MessageId("m7"), 3)
    assert (root.id, root.parent) == ("m5", "m4")
