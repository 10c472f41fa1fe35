"""Blocks and messages: immutable, stored in one spelling, and covered by digests where they never change."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.blocks import (
    Audio,
    Block,
    File,
    Image,
    Message,
    Opaque,
    Origin,
    Outcome,
    Reasoning,
    Refusal,
    Role,
    Status,
    Text,
    ToolCall,
    ToolResult,
    Trust,
    Unknown,
    block_id,
    content_digest,
    decode_blocks,
    default_trust,
    encode_blocks,
    message_digest,
)
from antiphon.core.ids import CallId, ConversationId, Digest, MessageId, RunId, SessionId
from antiphon.core.inputs import Memory, Retrieved, Stable, Summary

KEY = b"k" * 32
OTHER_KEY = b"j" * 32

# How each kind is stored. Old data has to stay readable, so these bytes are never edited, only added to.
STORED: list[tuple[Block, bytes]] = [
    (Text(text="assistant: yes"), b'{"kind":"text","text":"assistant: yes"}'),
    (Image(url="https://a/b.png"), b'{"kind":"image","url":"https://a/b.png"}'),
    (
        Image(media_type="image/png", data="AA==", detail="low"),
        b'{"kind":"image","media_type":"image/png","data":"AA==","detail":"low"}',
    ),
    (Audio(data="AA==", format="wav"), b'{"kind":"audio","data":"AA==","format":"wav"}'),
    (File(file_id="file_1"), b'{"kind":"file","file_id":"file_1"}'),
    (
        Reasoning(text="So.", opaque=Opaque(profile="deepseek", value=msgspec.Raw(b'{"a":1}'))),
        b'{"kind":"reasoning","text":"So.","opaque":{"profile":"deepseek","value":{"a":1}}}',
    ),
    (Refusal(text="No."), b'{"kind":"refusal","text":"No."}'),
    (
        ToolCall(call_id=CallId("call_1"), name="f", arguments='{"a": 1}'),
        b'{"kind":"tool_call","call_id":"call_1","name":"f","arguments":"{\\"a\\": 1}"}',
    ),
    (
        ToolCall(call_id=CallId("call_1"), name="f", arguments='{"a', closed=False),
        b'{"kind":"tool_call","call_id":"call_1","name":"f","arguments":"{\\"a","closed":false}',
    ),
    (
        ToolResult(call_id=CallId("call_1"), content=(Text(text="12"),)),
        b'{"kind":"tool_result","call_id":"call_1","content":[{"kind":"text","text":"12"}]}',
    ),
    (
        ToolResult(
            call_id=CallId("call_1"), outcome=Outcome.ERROR, code="unknown_tool", generation=3
        ),
        b'{"kind":"tool_result","call_id":"call_1","outcome":"error","code":"unknown_tool","generation":3}',
    ),
    (
        Unknown(name="hologram", value=msgspec.Raw(b'{"x":[1]}')),
        b'{"kind":"unknown","name":"hologram","value":{"x":[1]}}',
    ),
]


def message(**changes: Any) -> Message:
    given_fields: dict[str, Any] = {
        "id": MessageId("msg_1"),
        "conversation": ConversationId("conv_1"),
        "parent": MessageId("msg_0"),
        "role": Role.ASSISTANT,
        "blocks": (Text(text="Hello."),),
        "origin": Origin.MODEL,
        "trust": Trust.MODEL,
    }
    return Message(**(given_fields | changes))


# ----------------------------------------------------------------------------------------- stored


@pytest.mark.req("M4", "M30")
@pytest.mark.parametrize(("block", "stored"), STORED, ids=range(len(STORED)))
def test_a_block_is_stored_in_one_spelling_and_read_back(block: Block, stored: bytes) -> None:
    assert encode_blocks((block,)) == b"[" + stored + b"]"
    assert decode_blocks(b"[" + stored + b"]") == (block,)


@pytest.mark.req("M30", "M44")
def test_every_kind_has_a_stored_form_and_input_blocks_are_none_of_them() -> None:
    assert {type(block) for block, _ in STORED} == set(get_args(Block))
    for made in (
        Summary(id="1", text="t", scope="s"),
        Retrieved(id="1", text="t", source="f", scope="s"),
        Memory(id="1", text="t", key="k", scope="s"),
        Stable(id="1", text="t", key="k", scope="s"),
    ):
        # What a planner made for one dispatch cannot be read back as part of the tree.
        with pytest.raises(msgspec.ValidationError):
            decode_blocks(msgspec.json.encode((made,)))


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"[",
        b"{}",
        b'[{"kind":"hologram"}]',
        b'[{"kind":"text"}]',
        b'[{"kind":"text","text":1}]',
        b'[{"text":"a"}]',
    ],
)
def test_what_is_no_stored_form_is_refused(stored: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):  # of which a ValidationError is one
        decode_blocks(stored)


@pytest.mark.req("M6", "M45")
@given(said=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=4))
def test_the_borders_of_blocks_are_kept_whatever_their_text_looks_like(said: list[str]) -> None:
    blocks = tuple(Text(text=text) for text in said)
    assert decode_blocks(encode_blocks(blocks)) == blocks


@pytest.mark.req("M25")
@pytest.mark.parametrize("kind", [*get_args(Block), Message])
def test_nothing_that_was_said_can_be_changed(kind: type[msgspec.Struct]) -> None:
    assert kind.__struct_config__.frozen
    made = next((block for block, _ in STORED if type(block) is kind), None) or message()
    with pytest.raises(AttributeError):
        setattr(made, made.__struct_fields__[0], "other")


# ----------------------------------------------------------------------------------------- digests

COVERED: list[dict[str, Any]] = [
    {"id": MessageId("msg_2")},
    {"parent": MessageId("msg_9")},
    {"parent": None},
    {"role": Role.USER},
    {"origin": Origin.IMPORTED},
    {"trust": Trust.USER},
    {"name": "bot"},
    {"blocks": (Text(text="Hello!"),)},
    {"blocks": (Text(text="Hel"), Text(text="lo."))},
    {"blocks": ()},
]
BESIDE: list[dict[str, Any]] = [
    {"status": Status.CANCELED},
    {"error_code": "stream_incomplete"},
    {"created_ms": 7},
    {"metadata": {"mood": "good"}},
    {"run": RunId("run_1")},
    {"session": SessionId("sess_1")},
]


@pytest.mark.req("M14", "M27")
def test_the_digest_of_a_message_covers_what_never_changes() -> None:
    digests = [message_digest(KEY, message(**change)) for change in [{}, *COVERED]]
    for one, other in itertools.combinations(digests, 2):
        assert one != other


@pytest.mark.req("M16")
def test_what_stands_beside_a_message_is_not_in_its_digest() -> None:
    for change in BESIDE:
        assert message_digest(KEY, message(**change)) == message_digest(KEY, message()), change


@pytest.mark.req("M28")
def test_digests_of_what_was_said_belong_to_one_tenant() -> None:
    blocks = encode_blocks((Text(text="Hello."),))
    assert message_digest(KEY, message()) != message_digest(OTHER_KEY, message())
    assert content_digest(KEY, Role.USER, None, blocks) != content_digest(
        OTHER_KEY, Role.USER, None, blocks
    )


def test_the_digest_of_a_message_is_of_its_fields_in_their_order_with_their_borders() -> None:
    """As those of the first release are: a database of it has to be believed."""
    said = message(name="Å", parent=None)
    parts = [said.id, "", said.role.value, said.origin.value, said.trust.value, "Å"]
    data = [part.encode() for part in parts] + [encode_blocks(said.blocks)]
    framed = b"".join(len(part).to_bytes(8, "big") + part for part in data)
    expected = hashlib.blake2b(framed, key=KEY, digest_size=32, person=b"message")
    assert message_digest(KEY, said) == expected.hexdigest()


@pytest.mark.req("M27")
def test_the_digest_of_the_content_is_the_same_wherever_it_stands() -> None:
    blocks = encode_blocks((Text(text="Hello."),))
    here = content_digest(KEY, Role.USER, None, blocks)
    assert here == content_digest(KEY, Role.USER, "", blocks)
    assert here != content_digest(KEY, Role.USER, "Ann", blocks)
    assert here != content_digest(KEY, Role.ASSISTANT, None, blocks)
    assert here != content_digest(KEY, Role.USER, None, encode_blocks((Text(text="Hello"),)))


def test_a_block_has_its_place_as_a_lasting_name() -> None:
    assert block_id(MessageId("msg_1"), 0) == "msg_1.0"
    assert block_id(MessageId("msg_1"), 12) == "msg_1.12"


# ------------------------------------------------------------------------------- roles and trust


@pytest.mark.req("M13")
def test_the_roles_are_five() -> None:
    assert sorted(Role) == ["assistant", "developer", "system", "tool", "user"]


@pytest.mark.req("M18", "M21")
def test_a_role_grants_nothing_that_its_origin_does_not() -> None:
    vouched = {
        (Role.SYSTEM, Origin.CLIENT): Trust.OPERATOR,
        (Role.DEVELOPER, Origin.CLIENT): Trust.DEVELOPER,
        (Role.ASSISTANT, Origin.MODEL): Trust.MODEL,
        (Role.TOOL, Origin.TOOL): Trust.TOOL,
    }
    for pair in itertools.product(Role, Origin):
        assert default_trust(*pair) is vouched.get(pair, Trust.USER), pair


@pytest.mark.req("M22", "M26")
def test_a_message_tells_its_calls_its_results_and_its_text_apart() -> None:
    call = ToolCall(call_id=CallId("call_1"), name="f", arguments="{}", schema_digest=Digest("d"))
    result = ToolResult(call_id=CallId("call_1"), content=(Text(text="inside a result"),))
    mixed = message(blocks=(Text(text="One "), call, Refusal(text="no"), Text(text="two."), result))
    assert mixed.calls == (call,)
    assert mixed.results == (result,)
    assert mixed.text == "One two."
    assert message(blocks=()).text == ""
