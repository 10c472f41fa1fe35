"""Input blocks: what each is, how it is kept, and that none can be what it is not."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.core.blocks import Trust, encode_blocks
from antiphon.core.ids import Digest
from antiphon.core.inputs import (
    INPUT_KINDS,
    InputBlock,
    Memory,
    Retrieved,
    Stable,
    Summary,
    decode_inputs,
    digest_beside,
    encode_inputs,
)
from antiphon.errors import InvalidInput
from tests.support.lines import KEY, user

STORED: list[tuple[InputBlock, bytes]] = [
    (
        Stable(id="1", text="t", scope="conv_1", key="plot", trust=Trust.DEVELOPER, required=True),
        b'{"kind":"stable","id":"1","text":"t","scope":"conv_1","trust":"developer","required":true,"key":"plot"}',
    ),
    (
        Memory(id="2", text="t", scope="local", key="language", trust=Trust.USER),
        b'{"kind":"memory","id":"2","text":"t","scope":"local","trust":"user","key":"language"}',
    ),
    (
        Summary(id="3", text="t", scope="conv_1"),
        b'{"kind":"summary","id":"3","text":"t","scope":"conv_1"}',
    ),
    (
        Retrieved(id="4", text="", scope="conv_1", source="a.md", notice="no_match", priority=2),
        b'{"kind":"retrieved","id":"4","text":"","scope":"conv_1","priority":2,"source":"a.md","notice":"no_match"}',
    ),
]


@pytest.mark.req("M44")
@pytest.mark.parametrize(("block", "stored"), STORED, ids=lambda x: getattr(x, "kind", ""))
def test_an_input_is_stored_in_one_spelling_and_read_back(block: InputBlock, stored: bytes) -> None:
    assert encode_inputs((block,)) == b"[" + stored + b"]"
    assert decode_inputs(b"[" + stored + b"]") == (block,)
    assert block.kind in INPUT_KINDS
    assert len(INPUT_KINDS) == len(STORED)


@pytest.mark.req("M44")
def test_nothing_of_the_tree_is_read_as_an_input() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_inputs(encode_blocks(user("hello").blocks))


@pytest.mark.req("M44")
@pytest.mark.parametrize(("ident", "scope"), [("", "conv_1"), ("1", "")])
def test_an_input_has_a_name_and_somebody_it_holds_for(ident: str, scope: str) -> None:
    with pytest.raises(InvalidInput):
        Summary(id=ident, text="t", scope=scope)


def test_a_message_alone_keeps_its_digest_and_every_field_beside_it_counts() -> None:
    own = Digest("ab" * 32)
    assert digest_beside(KEY, own, ()) == own
    one = Retrieved(id="4", text="t", scope="conv_1", source="a.md")
    others = [
        msgspec.structs.replace(one, **change)
        for change in (
            {"id": "5"},
            {"text": "u"},
            {"scope": "conv_2"},
            {"source": "b.md"},
            {"notice": "no_match"},
            {"trust": Trust.TOOL},
            {"required": True},
        )
    ]
    digests = {digest_beside(KEY, own, beside) for beside in [(one,), *((x,) for x in others)]}
    assert len(digests) == len(others) + 1
    assert digest_beside(KEY, own, (one, others[0])) != digest_beside(KEY, own, (others[0], one))
