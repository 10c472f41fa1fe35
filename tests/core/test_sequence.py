"""The sequence of one dispatch: what it binds, what the audit keeps of it, and what it refuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters import registry
from antiphon.adapters.base import render
from antiphon.core.blocks import Message, Role, Status, Text, Trust
from antiphon.core.ids import Digest, MessageId
from antiphon.core.inputs import Memory, Retrieved, Stable, Summary
from antiphon.core.manifest import Policy, ToolDeclaration, stored_digest
from antiphon.core.rules.sequence import MessageSequence, block_digest, sequence, sequence_digest
from antiphon.errors import SequenceRejected
from tests.support.lines import KEY, answer, asks, call, line, model, said, system, user

CHAT = registry.get("openai-chat")
POLICY = Policy(model="openai/m-1@2026-11-01", max_output_tokens=77)
TOOLS = (ToolDeclaration(name="look"),)


def made(*messages: Message, **fields: Any) -> MessageSequence:
    return sequence(
        line(*messages),
        key=fields.pop("key", KEY),
        conversation_revision=fields.pop("conversation_revision", 4),
        adapter=CHAT.name,
        adapter_version=CHAT.version,
        adapter_digest=CHAT.digest,
        toolset_digest=stored_digest(KEY, TOOLS)[0],
        policy_digest=stored_digest(KEY, POLICY)[0],
        model_revision=POLICY.model,
        max_output_tokens=POLICY.max_output_tokens,
        **fields,
    )


@pytest.mark.req("M1", "M3", "M7", "M8", "M9", "M10", "M11", "M12")
def test_a_sequence_binds_the_line_to_all_that_it_was_meant_for() -> None:
    one = made(user(), model())
    assert one.schema == 1
    assert one.conversation_revision == 4
    assert one.adapter_digest == CHAT.digest
    assert one.toolset_digest != stored_digest(KEY, (ToolDeclaration(name="find"),))[0]
    assert one.model_revision == "openai/m-1@2026-11-01"
    assert one.max_output_tokens == 77
    assert set(MessageSequence.__struct_fields__) == {
        "adapter",
        "adapter_digest",
        "adapter_version",
        "conversation_revision",
        "inputs",
        "max_output_tokens",
        "messages",
        "model_revision",
        "policy_digest",
        "schema",
        "sequence_digest",
        "toolset_digest",
    }


@pytest.mark.req("M4", "M14", "M29", "M44")
def test_the_audit_keeps_everything_about_a_block_but_what_it_says() -> None:
    one = made(
        system("secret rule"),
        user("secret wish"),
        asks("a", text="secret plan"),
        answer("a", "secret fact"),
        inputs={
            MessageId("m2"): (
                Stable(id="s1", text="secret plot", key="plot", scope="conv_here"),
                Summary(id="c1", text="secret past", scope="conv_here"),
                Retrieved(id="r1", text="secret page", source="page", scope="conv_here"),
                Memory(id="k1", text="secret habit", key="habit", scope="tenant", trust=Trust.USER),
            )
        },
    )
    records = list(one.records(KEY))
    assert [(r.id, r.order, r.role.value, r.kind, r.trust.value, r.call_id) for r in records] == [
        ("m1.0", 0, "system", "text", "operator", None),
        ("m2.0", 1, "user", "text", "user", None),
        ("m2+s1", 2, "user", "stable", "retrieved", None),
        ("m2+c1", 3, "user", "summary", "model", None),
        ("m2+r1", 4, "user", "retrieved", "retrieved", None),
        ("m2+k1", 5, "user", "memory", "user", None),
        ("m3.0", 6, "assistant", "text", "model", None),
        ("m3.1", 7, "assistant", "tool_call", "model", "a"),
        ("m4.0", 8, "tool", "tool_result", "tool", "a"),
    ]
    assert b"secret" not in msgspec.json.encode(records)
    assert len({r.digest for r in records}) == len(records)
    assert records[0].digest == block_digest(KEY, Text(text="secret rule"))
    assert records[0].digest != block_digest(b"another tenant", Text(text="secret rule"))


@pytest.mark.req("M4", "M21")
def test_a_tools_words_are_a_tools_whoever_handed_them_in() -> None:
    one = made(user(), asks("a"), answer("a", trust=Trust.USER))
    assert [r.trust for r in one.records(KEY)] == [Trust.USER, Trust.MODEL, Trust.TOOL]


@pytest.mark.req("M5")
def test_each_call_is_an_edge_to_its_result() -> None:
    one = made(
        user(),
        asks(call("a", schema_digest=Digest("d" * 64)), "b"),
        answer("b"),
        answer("a"),
        asks("c"),
        answer("c"),
    )
    assert [(e.call_id, e.call, e.closed, e.schema_digest, e.result) for e in one.edges()] == [
        ("a", "m2.0", True, "d" * 64, "m4.0"),
        ("b", "m2.1", True, None, "m3.0"),
        ("c", "m5.0", True, None, "m6.0"),
    ]


@pytest.mark.req("M3", "M22", "M37", "M47")
@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ((), "empty_sequence"),
        ((user(), model(status=Status.CANCELED), user()), "uncommitted_block"),
        ((user(), model(status=Status.PENDING)), "uncommitted_block"),
        ((user(), asks("a")), "missing_tool_result"),
        ((user(), asks(call("a", closed=False)), answer("a")), "unclosed_arguments"),
        ((said(Role.DEVELOPER, "x", trust=Trust.TOOL),), "trust_violation"),
    ],
)
def test_only_what_satisfies_the_graph_becomes_a_sequence(
    messages: tuple[Message, ...], code: str
) -> None:
    with pytest.raises(SequenceRejected) as caught:
        made(*messages)
    assert caught.value.code == code


@pytest.mark.req("M6", "M8")
@given(st.text(max_size=6), st.text(max_size=6), st.text(max_size=6), st.text(max_size=6))
def test_where_one_block_ends_and_the_next_begins_is_part_of_the_digest(
    a: str, b: str, c: str, d: str
) -> None:
    one, other = (sequence_digest(KEY, line(user(x, y))) for x, y in ((a, b), (c, d)))
    assert (one == other) is ((a, b) == (c, d))


@pytest.mark.req("M8")
def test_the_digest_of_a_sequence_is_the_one_that_rendering_arrives_at() -> None:
    messages = (system(), user(), asks("a"), answer("a"), model(), user())
    one = made(*messages)
    rendering = render(CHAT, line(*messages), POLICY, key=KEY)
    assert one.sequence_digest == rendering.sequence_digest
    assert made(*messages[:-1]).sequence_digest != one.sequence_digest


@pytest.mark.req("M3", "M44")
def test_what_stands_beside_a_message_is_part_of_the_sequence_and_so_is_where_it_stands() -> None:
    passage = Retrieved(id="r1", text="High water at six.", source="tides", scope="conv_here")
    messages = line(user(), model(), user())
    digests = set()
    for inputs in ({}, {messages[0].id: (passage,)}, {messages[2].id: (passage,)}):
        rendered = CHAT.line(POLICY, (), key=KEY)
        for message in messages:
            rendered.feed(message, inputs=inputs.get(message.id, ()))
        digest = rendered.finish().sequence_digest
        assert made(*messages, inputs=inputs).sequence_digest == digest
        digests.add(digest)
    assert len(digests) == 3


@pytest.mark.req("M7", "M8")
def test_the_same_talk_at_another_revision_has_the_same_digest_and_is_another_sequence() -> None:
    one, other = made(user()), made(user(), conversation_revision=5)
    assert one.sequence_digest == other.sequence_digest
    assert one != other
