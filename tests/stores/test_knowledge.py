"""Contract: files with their index, what is remembered, and instructions, on every store."""

from __future__ import annotations

import pytest

from antiphon.core.blocks import Trust
from antiphon.core.commands import CreateConversation, EraseConversation
from antiphon.core.ids import ConversationId, Digest, SessionId, TenantId
from antiphon.core.knowledge.kept import File, NewFile, Remembered, RememberedKind
from antiphon.core.knowledge.passages import pieces
from antiphon.core.knowledge.ranking import index, rank
from antiphon.core.knowledge.words import terms
from antiphon.errors import Conflict, NotFound
from antiphon.stores.base import Store

OURS, OTHERS = TenantId("ours"), TenantId("others")
TEXT = "# Fees\n\nA berth costs nine crowns.\n\n# 退款\n\n退款须在付款后七天内申请。"


def new_file(name: str, text: str = TEXT, *, tenant: TenantId = OURS) -> NewFile:
    found, data = tuple(pieces(text)), text.encode()
    return NewFile(
        file=File(
            id=f"file_{name}",
            tenant=tenant,
            name=f"{name}.md",
            bytes=len(data),
            encoding="utf-8",
            evidence="utf-8",
            passages=len(found),
            digest=Digest("ab" * 32),
            created_ms=5,
        ),
        data=data,
        pieces=found,
        index=index(piece.text for piece in found),
    )


async def conversation(store: Store, name: str, tenant: TenantId = OURS) -> ConversationId:
    row = await store.do(
        CreateConversation(
            conversation=ConversationId(f"conv_{name}"),
            now_ms=1,
            tenant=tenant,
            session=SessionId(f"sess_{name}"),
        )
    )
    assert not hasattr(row, "reason")
    return ConversationId(f"conv_{name}")


async def test_a_file_is_kept_with_its_bytes_its_passages_and_their_index(store: Store) -> None:
    new = new_file("a")
    assert await store.knowledge.add_file(new, None) == new.file
    assert await store.knowledge.file(OURS, "file_a") == new.file
    assert await store.knowledge.file_data(OURS, "file_a") == TEXT.encode()
    assert await store.knowledge.passages([("file_a", 1), ("file_a", 9), ("file_a", 0)]) == [
        new.pieces[1],
        None,
        new.pieces[0],
    ]
    asked = terms("怎么申请退款?")
    found = await store.knowledge.index(["file_a", "file_b"], asked)
    assert found.keys() == {"file_a"}
    assert found["file_a"].lengths == new.index.lengths
    assert rank(asked, found, 9) == rank(asked, {"file_a": new.index}, 9)


async def test_a_file_of_another_tenant_is_not_there(store: Store) -> None:
    await store.knowledge.add_file(new_file("a", tenant=OTHERS), None)
    for asked in (
        store.knowledge.file(OURS, "file_a"),
        store.knowledge.file_data(OURS, "file_a"),
        store.knowledge.delete_file(OURS, "file_a"),
        store.knowledge.give_file(OURS, "file_a", await conversation(store, "a"), 1),
    ):
        with pytest.raises(NotFound):
            await asked
    foreign = await conversation(store, "b", OTHERS)
    with pytest.raises(NotFound):
        await store.knowledge.add_file(new_file("c"), foreign)
    with pytest.raises(NotFound):
        await store.knowledge.file(OURS, "file_c")  # nothing of it was kept


async def test_files_are_listed_in_either_order_from_any_of_them(store: Store) -> None:
    for name in "bac":
        await store.knowledge.add_file(new_file(name), None)
    await store.knowledge.add_file(new_file("d", tenant=OTHERS), None)

    async def listed(after: str | None, limit: int, newest_first: bool) -> list[str]:
        found = await store.knowledge.files(
            OURS, after=after, limit=limit, newest_first=newest_first
        )
        return [file.name for file in found]

    assert await listed(None, 9, newest_first=True) == ["c.md", "b.md", "a.md"]
    assert await listed("file_a", 1, newest_first=False) == ["b.md"]
    assert await listed("file_b", 9, newest_first=True) == ["a.md"]


async def test_a_conversation_has_the_files_that_it_was_given_and_not_taken_from_it(
    store: Store,
) -> None:
    one, other = await conversation(store, "a"), await conversation(store, "b")
    assert await store.knowledge.files_of(one) == []
    await store.knowledge.add_file(new_file("b"), one)
    await store.knowledge.add_file(new_file("a"), None)
    for _ in range(2):
        await store.knowledge.give_file(OURS, "file_a", one, 9)
    assert [f.name for f in await store.knowledge.files_of(one)] == ["b.md", "a.md"]
    assert await store.knowledge.files_of(other) == []
    await store.knowledge.take_file(OURS, "file_b", one)
    assert [f.name for f in await store.knowledge.files_of(one)] == ["a.md"]
    assert (await store.knowledge.file(OURS, "file_b")).name == "b.md"
    await store.knowledge.delete_file(OURS, "file_a")
    assert await store.knowledge.files_of(one) == []
    assert await store.knowledge.index(["file_a"], terms(TEXT)) == {}
    assert await store.knowledge.passages([("file_a", 0)]) == [None]


async def test_what_is_erased_takes_its_memories_and_the_files_that_only_it_was_given(
    store: Store,
) -> None:
    one, other = await conversation(store, "a"), await conversation(store, "b")
    await store.knowledge.add_file(new_file("alone"), one)
    await store.knowledge.add_file(new_file("shared"), one)
    await store.knowledge.give_file(OURS, "file_shared", other, 1)
    await store.knowledge.add_file(new_file("free"), None)
    await store.knowledge.remember(OURS, Remembered(key="k", text="t", conversation=one))
    await store.knowledge.remember(OURS, Remembered(key="k", text="for all"))
    await store.do(EraseConversation(conversation=one, now_ms=9))
    left = await store.knowledge.files(OURS, after=None, limit=9, newest_first=False)
    assert [file.name for file in left] == ["free.md", "shared.md"]
    assert [r.text for r in await store.knowledge.remembered(OURS, one)] == ["for all"]
    for refused in (
        store.knowledge.give_file(OURS, "file_free", one, 1),
        store.knowledge.remember(OURS, Remembered(key="k", text="t", conversation=one)),
    ):
        with pytest.raises(Conflict) as caught:
            await refused
        assert caught.value.code == "conversation_erased"
    assert await store.knowledge.delete_all(OURS) == 2
    assert await store.knowledge.remembered(OURS, other) == []
    assert await store.knowledge.files_of(other) == []


async def test_a_key_holds_one_text_for_each_conversation_and_one_for_all(store: Store) -> None:
    one, other = await conversation(store, "a"), await conversation(store, "b")
    stable = Remembered(
        key="k",
        text="Plot.",
        kind=RememberedKind.STABLE,
        conversation=one,
        trust=Trust.DEVELOPER,
        priority=3,
        required=True,
        updated_ms=4,
    )
    first = Remembered(key="k", text="Chinese", conversation=one)
    for kept in (first, stable, Remembered(key="k", text="for all"), first):
        assert await store.knowledge.remember(OURS, kept) == kept
    changed = Remembered(key="k", text="English", conversation=one, updated_ms=8)
    await store.knowledge.remember(OURS, changed)
    assert await store.knowledge.remembered(OURS, one, only=True) == [changed, stable]
    assert [r.text for r in await store.knowledge.remembered(OURS, other)] == ["for all"]
    assert [r.text for r in await store.knowledge.remembered(OURS, None)] == ["for all"]
    assert await store.knowledge.remembered(OTHERS, one) == []
    await store.knowledge.forget(OURS, RememberedKind.MEMORY, "k", one)
    assert await store.knowledge.remembered(OURS, one, only=True) == [stable]
    with pytest.raises(NotFound):
        await store.knowledge.forget(OURS, RememberedKind.MEMORY, "k", one)


@pytest.mark.req("M19")
async def test_each_writing_of_instructions_is_a_version_and_belongs_to_its_owner(
    store: Store,
) -> None:
    write = store.knowledge.write_instructions
    first = await write(OURS, "brief", "Be brief.", "ann", 1)
    again = await write(OURS, "brief", "Be brief.", "ann", 2)
    second = await write(OURS, "brief", "Be very brief.", "ann", 3)
    await write(OURS, "kind", "Be kind.", "ben", 4)
    assert (first.version, again, second.version) == (1, first, 2)
    with pytest.raises(Conflict) as caught:
        await write(OURS, "brief", "Be long.", "ben", 5)
    assert caught.value.code == "not_the_owner"
    assert await store.knowledge.instructions(OURS, "brief") == second
    assert await store.knowledge.instructions(OURS, "brief", 1) == first
    assert await store.knowledge.all_instructions(OURS, "brief") == [first, second]
    assert [i.name for i in await store.knowledge.all_instructions(OURS)] == ["brief", "kind"]
    for name, version in (("brief", 3), ("none", None)):
        with pytest.raises(NotFound):
            await store.knowledge.instructions(OURS, name, version)
    with pytest.raises(NotFound):
        await store.knowledge.instructions(OTHERS, "brief")


async def test_what_is_answered_from_memory_is_what_is_stored(store: Store) -> None:
    one = await conversation(store, "a")
    for text in ("one", "two"):
        await store.knowledge.remember(OURS, Remembered(key="k", text=text))
        for _ in range(2):
            assert [r.text for r in await store.knowledge.remembered(OURS, one)] == [text]
    await store.knowledge.add_file(new_file("a"), None)
    for _ in range(2):
        assert await store.knowledge.files_of(one) == []
    await store.knowledge.give_file(OURS, "file_a", one, 1)
    assert len(await store.knowledge.files_of(one)) == 1
