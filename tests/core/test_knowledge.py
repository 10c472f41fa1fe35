"""Names of files, and what is remembered as it stands before the talk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.blocks import Trust
from antiphon.core.ids import ConversationId, TenantId
from antiphon.core.inputs import Memory, Stable
from antiphon.core.knowledge.kept import Remembered, RememberedKind, as_inputs, label

TENANT, HERE = TenantId("ours"), ConversationId("conv_1")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("prices.md", "prices.md"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("/a/b/c.txt/", "c.txt"),
        ("..", "file"),
        ("", "file"),
        (" . ", "file"),
        ("a\0b\nc\u202ed.txt", "abcd.txt"),
        ("价格 表.md", "价格 表.md"),
        ("x" * 300, "x" * 200),
    ],
)
def test_a_name_is_a_label_and_never_a_path(name: str, shown: str) -> None:
    assert label(name) == shown


@given(st.text())
def test_no_name_is_empty_or_leads_anywhere(name: str) -> None:
    shown = label(name)
    assert shown
    assert not {"/", "\\", "\n", "\0"} & {*shown}
    assert shown not in (".", "..")
    assert label(shown) == shown


def test_a_conversations_own_text_wins_and_the_order_is_that_of_the_keys() -> None:
    kept = [
        Remembered(key="b", text="for all", updated_ms=9),
        Remembered(key="a", text="for all"),
        Remembered(key="b", text="here", conversation=HERE, updated_ms=1, priority=2),
        Remembered(key="a", text="plot", kind=RememberedKind.STABLE, trust=Trust.DEVELOPER),
    ]
    told = as_inputs(kept, TENANT)
    assert told == as_inputs(kept[::-1], TENANT)
    assert told == (
        Memory(id="memory:a", key="a", text="for all", scope=TENANT, trust=Trust.USER),
        Memory(id="memory:b", key="b", text="here", scope=HERE, trust=Trust.USER, priority=2),
        Stable(id="stable:a", key="a", text="plot", scope=TENANT, trust=Trust.DEVELOPER),
    )
