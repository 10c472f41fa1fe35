from __future__ import annotations

import json
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.blocks import (
    Block,
    Image,
    Message,
    Origin,
    Outcome,
    Reasoning,
    Role,
    Status,
    Text,
    ToolCall,
    ToolResult,
    Trust,
    Unknown,
)
from antiphon.core.ids import CallId, ConversationId, Digest, MessageId
from antiphon.core.telling import archive
from antiphon.core.telling.archive import Archived, read, write
from antiphon.errors import Conflict, InvalidInput, Refused

NOW_MS = 1_700_000_000_000
changes = partial(archive.changes, now_ms=NOW_MS)

HEADER = {"kind": "export", "version": 1}
CONV = {"kind": "conversation", "id": "conv_1"}


def lines(*values: dict[str, Any]) -> list[bytes]:
    return [json.dumps(value).encode() + b"\n" for value in values]


def line(id: str, parent: str | None, text: str = "hi", **more: Any) -> dict[str, Any]:
    return {
        "kind": "message",
        "id": id,
        "parent_id": parent,
        "role": "user",
        "blocks": [{"kind": "text", "text": text}],
        **more,
    }


# Round trip.

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
names = st.text("abcXYZ019_-", min_size=1, max_size=12)

blocks: st.SearchStrategy[Block] = st.one_of(
    st.builds(Text, text=texts),
    st.builds(Reasoning, text=texts),
    st.builds(Image, url=texts),
    st.builds(
        ToolCall, call_id=names.map(CallId), name=names, arguments=texts, closed=st.booleans()
    ),
    st.builds(
        ToolResult,
        call_id=names.map(CallId),
        content=st.lists(st.builds(Text, text=texts), max_size=2).map(tuple),
        outcome=st.sampled_from(Outcome),
        code=st.none() | names,
    ),
    st.builds(
        Unknown, name=st.just("hologram"), value=st.just(msgspec.Raw(b'{"kind":"hologram"}'))
    ),
)


@st.composite
def archived(draw: st.DrawFn, number: int = 1) -> Archived:
    conversation = ConversationId(f"conv_{number}")
    made: list[Message] = []
    for n in range(draw(st.integers(0, 8))):
        above = draw(st.none() | st.sampled_from(made)) if made else None
        made.append(
            Message(
                id=MessageId(f"m{number}-{n}"),
                conversation=conversation,
                parent=above.id if above else None,
                role=draw(st.sampled_from(Role)),
                blocks=tuple(draw(st.lists(blocks, max_size=3))),
                origin=draw(st.sampled_from(Origin)),
                trust=draw(st.sampled_from(Trust)),
                name=draw(st.none() | names),
                created_ms=draw(st.integers(0, 2**50)),
                metadata=draw(st.dictionaries(names, texts, max_size=2)),
                status=draw(st.sampled_from(Status)),
                error_code=draw(st.none() | names),
            )
        )
    ids = [message.id for message in made]
    return Archived(
        id=conversation,
        title=draw(st.none() | texts),
        head=draw(st.none() | st.sampled_from(ids)) if ids else None,
        created_ms=draw(st.integers(0, 2**50)),
        metadata=draw(st.dictionaries(names, texts, max_size=2)),
        messages=tuple(made),
        deleted=frozenset(draw(st.sets(st.sampled_from(ids)))) if ids else frozenset(),
        announced=len(made),
    )


@given(archived(1), archived(2))
@pytest.mark.req("M124", "M25")
def test_what_is_written_is_read_back_unchanged(one: Archived, two: Archived) -> None:
    found = read(write([one, two]))
    assert found.torn_line is None
    assert found.conversations == (one, two)


@given(archived(), st.data())
@pytest.mark.req("M124")
def test_a_file_cut_at_any_byte_keeps_every_whole_line(one: Archived, data: st.DataObject) -> None:
    whole = b"".join(write([one]))
    header = whole.index(b"\n") + 1
    cut = data.draw(st.integers(header, len(whole)))
    kept = whole[:cut]
    complete = [
        part
        for part in kept.splitlines(keepends=True)
        if part.endswith(b"\n") or part in whole.splitlines()
    ]
    found = read(kept.splitlines(keepends=True))
    torn = bool(kept) and len(complete) != len(kept.splitlines())
    assert (found.torn_line is not None) == torn
    got = [message for conv in found.conversations for message in conv.messages]
    assert got == list(one.messages)[: len(got)]
    assert len(got) == sum(b'"kind":"message"' in part for part in complete)
    if found.conversations:
        assert found.conversations[0].missing == len(one.messages) - len(got)


@given(archived())
def test_an_import_into_an_empty_place_says_the_same_with_no_higher_trust(one: Archived) -> None:
    change = changes(one, ConversationId("conv_new"), {})
    assert [m.id for m in change.new] == [m.id for m in one.messages]
    for before, after in zip(one.messages, change.new, strict=True):
        assert archive.same_content(before, after)
        assert after.conversation == "conv_new"
        assert after.origin is Origin.IMPORTED
        assert after.metadata["exported_origin"] == before.metadata.get(
            "exported_origin", before.origin.value
        )
        assert after.trust not in (Trust.OPERATOR, Trust.DEVELOPER, Trust.MODEL) or (
            before.trust is Trust.MODEL and before.role is not Role.ASSISTANT
        )
        assert after.status is not Status.PENDING
        assert after.created_ms == before.created_ms or (before.created_ms, NOW_MS) == (
            0,
            after.created_ms,
        )
    again = changes(one, ConversationId("conv_new"), {m.id: m for m in change.new})
    assert (again.new, again.replayed) == ((), len(one.messages))


@pytest.mark.req("M21")
def test_what_a_tool_said_stays_as_low_as_it_was() -> None:
    found = read(lines(HEADER, CONV, line("a", None, role="tool", trust="tool")))
    (message,) = changes(found.conversations[0], ConversationId("conv_1"), {}).new
    assert message.trust is Trust.TOOL


def test_digests_under_one_tenants_key_do_not_travel() -> None:
    key_bound = Digest("00" * 32)
    call = ToolCall(call_id=CallId("c"), name="dice", arguments="{}", schema_digest=key_bound)
    result = ToolResult(call_id=CallId("c"), name="dice", arguments_digest=key_bound)
    message = Message(
        id=MessageId("a"),
        conversation=ConversationId("conv_1"),
        parent=None,
        role=Role.ASSISTANT,
        blocks=(call, result),
        origin=Origin.MODEL,
        trust=Trust.MODEL,
    )
    one = Archived(id=ConversationId("conv_1"), metadata={}, messages=(message,))
    assert key_bound.encode() not in b"".join(write([one]))
    (brought,) = changes(one, ConversationId("conv_1"), {}).new
    assert brought.blocks == (
        ToolCall(call_id=CallId("c"), name="dice", arguments="{}"),
        ToolResult(call_id=CallId("c"), name="dice"),
    )
    again = changes(one, ConversationId("conv_1"), {message.id: message})
    assert again.replayed == 1


def test_a_kind_of_block_that_is_not_known_is_kept() -> None:
    strange = {"kind": "hologram", "depth": 3.10}
    found = read(lines(HEADER, CONV, line("a", None, blocks=[strange])))
    (block,) = found.conversations[0].messages[0].blocks
    assert isinstance(block, Unknown)
    assert block.name == "hologram"
    assert json.loads(bytes(block.value)) == strange


# Refusals.


@pytest.mark.req("M27")
def test_one_id_with_two_contents_in_a_file_is_a_conflict() -> None:
    with pytest.raises(Conflict) as refused:
        read(lines(HEADER, CONV, line("a", None, "one"), line("a", None, "two")))
    assert (refused.value.code, refused.value.at) == ("message_id_conflict", "a")


@pytest.mark.req("M27")
def test_the_same_line_twice_is_the_same_message() -> None:
    found = read(lines(HEADER, CONV, line("a", None), line("a", None)))
    assert [m.id for m in found.conversations[0].messages] == ["a"]


@pytest.mark.req("M27")
@pytest.mark.parametrize(
    "other",
    [
        line("a", None, "other words"),
        line("a", "b"),
        line("a", None, role="assistant"),
        line("a", None, name="Ann"),
    ],
    ids=["words", "parent", "role", "name"],
)
def test_an_id_that_is_taken_by_other_content_is_a_conflict(other: dict[str, Any]) -> None:
    there = read(lines(HEADER, CONV, line("a", None), line("b", None))).conversations[0]
    brought = read(lines(HEADER, CONV, line("b", None), other)).conversations[0]
    with pytest.raises(Conflict) as refused:
        changes(brought, ConversationId("conv_1"), {m.id: m for m in there.messages})
    assert (refused.value.code, refused.value.at) == ("message_id_conflict", "a")


def test_children_may_stand_before_their_parents() -> None:
    found = read(lines(HEADER, CONV, line("c", "b"), line("b", "a"), line("a", None)))
    change = changes(found.conversations[0], ConversationId("conv_1"), {})
    assert [m.id for m in change.new] == ["a", "b", "c"]


@pytest.mark.req("M127")
@pytest.mark.parametrize(
    ("code", "at", "messages"),
    [
        ("cycle", "a", [line("a", "b"), line("b", "a")]),
        ("cycle", "a", [line("r", None), line("a", "a")]),
        ("missing_parent", "b", [line("a", None), line("b", "nowhere")]),
        (
            "foreign_parent",
            "b",
            [
                line("a", None),
                {"kind": "conversation", "id": "conv_2"},
                line("b", "a"),
            ],
        ),
    ],
    ids=["circle", "own-parent", "missing", "foreign"],
)
def test_a_broken_tree_is_refused_with_its_code(
    code: str, at: str, messages: list[dict[str, Any]]
) -> None:
    found = read(lines(HEADER, CONV, *messages))
    last = found.conversations[-1]
    elsewhere = {m.id for c in found.conversations if c is not last for m in c.messages}
    with pytest.raises(Refused) as refused:
        changes(last, last.id, {}, elsewhere=elsewhere)
    assert (refused.value.code, refused.value.at) == (code, at)


def test_a_parent_that_is_stored_already_need_not_be_in_the_file() -> None:
    there = read(lines(HEADER, CONV, line("a", None))).conversations[0]
    more = read(lines(HEADER, CONV, line("b", "a"))).conversations[0]
    change = changes(more, ConversationId("conv_1"), {m.id: m for m in there.messages})
    assert [(m.id, m.parent) for m in change.new] == [("b", "a")]


@pytest.mark.parametrize(
    ("number", "code", "file"),
    [
        (1, "unknown_format", []),
        (1, "unknown_format", lines(CONV)),
        (1, "unknown_format", lines({**HEADER, "version": 2})),
        (1, "bad_line", [b"not json\n"]),
        (3, "bad_line", [*lines(HEADER, CONV), b"{half\n", *lines(line("a", None))]),
        (3, "bad_line", [*lines(HEADER, CONV), b'{"kind":"message","id":"\xff"}\n', b"{}\n"]),
        (3, "bad_line", lines(HEADER, CONV, {"kind": "message", "id": "a"})),
        (3, "bad_line", lines(HEADER, CONV, line("a", None, colour="red"))),
        (3, "bad_line", lines(HEADER, CONV, line("a", None, role="wizard"))),
        (3, "bad_line", lines(HEADER, CONV, line("a", None, blocks=[{"kind": "text"}]))),
        (3, "bad_line", lines(HEADER, CONV, line("a", None, blocks=["text"]))),
        (3, "bad_line", lines(HEADER, CONV, line("a", None, created_ms=2**62))),
        (3, "bad_line", lines(HEADER, CONV, line("a", None, blocks=[{"kind": "memory"}]))),
        (3, "bad_message_id", lines(HEADER, CONV, line("a b", None))),
        (3, "bad_message_id", lines(HEADER, CONV, line("a", "../b"))),
        (2, "bad_line", lines(HEADER, line("a", None))),
        (3, "bad_line", lines(HEADER, CONV, CONV)),
        (2, "bad_line", lines(HEADER, HEADER)),
        (3, "bad_line", [*lines(HEADER, CONV), b'{"kind":' + b"[" * 100_000 + b"\n", b"{}\n"]),
    ],
)
def test_a_line_that_cannot_be_read_is_named(number: int, code: str, file: list[bytes]) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(file)
    assert (refused.value.code, refused.value.at) == (code, f"line {number}")


def test_an_endless_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_LINE_BYTES", 100)
    with pytest.raises(InvalidInput) as refused:
        read(lines(HEADER, CONV, line("a", None, "x" * 100)))
    assert (refused.value.code, refused.value.at) == ("line_too_long", "line 3")


def test_half_a_character_in_the_last_line_is_refused_and_not_taken_for_a_cut() -> None:
    end = json.dumps(line("b", "a", "\ud800")).encode() + b"\n"
    with pytest.raises(InvalidInput) as refused:
        read([*lines(HEADER, CONV, line("a", None)), end])
    assert (refused.value.code, refused.value.at) == ("bad_line", "line 4")
    assert "surrogate" in str(refused.value)


@pytest.mark.parametrize(
    "end", [b'{"kind":"mess', b'{"a":"\xe4\xb8', b"\x00\x00\x00", b'{"kind"\n']
)
def test_a_last_line_that_was_cut_is_reported_and_the_rest_kept(end: bytes) -> None:
    found = read([*lines(HEADER, CONV, line("a", None)), end])
    assert found.torn_line == 4
    assert [m.id for m in found.conversations[0].messages] == ["a"]


def test_the_head_of_a_file_is_taken_only_if_it_is_a_message_that_can_be_one() -> None:
    for head, expected in [("a", "a"), ("b", None), ("c", None)]:
        found = read(
            lines(
                HEADER,
                {**CONV, "head": head},
                line("a", None),
                line("b", "a", status="error"),
            )
        )
        assert changes(found.conversations[0], ConversationId("conv_1"), {}).head == expected
