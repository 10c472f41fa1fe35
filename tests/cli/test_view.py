"""Text for people: widths, cuts, and nothing that moves a cursor."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.cli.view import text as view
from antiphon.cli.view.tree import Tree, draw
from antiphon.core.blocks import Message, Origin, Role, Status, Text, Trust
from antiphon.core.ids import ConversationId, MessageId, SessionId, TenantId
from antiphon.core.records import Conversation

anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
words = st.text("ab 中文\n", max_size=80)


@pytest.mark.parametrize(
    ("text", "width"),
    [("abc", 3), ("中文", 4), ("é", 1), ("\uff76", 1), ("👍", 2), ("a\u200bb", 2)],
    ids=["latin", "wide", "combined", "half-width", "emoji", "joined"],
)
def test_wide_characters_take_two_cells_and_joining_ones_none(text: str, width: int) -> None:
    assert view.cells(text) == width


@given(words, st.integers(2, 20))
def test_wrapped_rows_fit_and_lose_only_blanks(text: str, width: int) -> None:
    rows = view.wrap(text, width)
    assert all(view.cells(row) <= width for row in rows)
    assert "".join(rows).replace(" ", "") == text.replace("\n", "").replace(" ", "")


@given(words, st.integers(2, 20))
def test_what_is_clipped_fits_and_says_so(text: str, width: int) -> None:
    text = view.one_line(text)
    clipped = view.clip(text, width)
    assert view.cells(clipped) <= width
    assert clipped == text or clipped.endswith("…")


@given(anything)
def test_nothing_harmless_moves_the_cursor(text: str) -> None:
    shown = view.harmless(text)
    assert not any(
        (unicodedata.category(c) == "Cc" and c != "\n") or c in "\u202e\u2066\u2069\u202d"
        for c in shown
    )


def test_columns_align_by_cells() -> None:
    assert view.table([("中文", "1"), ("abc", "2")]) == ["中文  1", "abc   2"]
    assert view.table([]) == []


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (0, "just now"),
        (5_000, "5 s ago"),
        (60_000, "1 min ago"),
        (7_200_000, "2 h ago"),
        (9e7, "1 d ago"),
    ],
)
def test_ages_have_one_unit(ms: float, told: str) -> None:
    assert view.ago(0, int(ms)) == told


def test_times_and_sizes_are_for_people() -> None:
    assert [view.lasted(ms) for ms in (12, 2_310, 184_000)] == ["12 ms", "2.31 s", "3 min 4 s"]
    assert [view.size(n) for n in (12, 2048, 5_000_000)] == ["12 B", "2.0 KiB", "4.8 MiB"]


def test_no_colour_where_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    assert view.colourful(terminal)  # type: ignore[arg-type]  # as much of a stream as is asked
    monkeypatch.setenv("NO_COLOR", "1")
    assert not view.colourful(terminal)  # type: ignore[arg-type]
    assert view.Ink(False)("text", "bad") == "text"
    assert view.Ink(True)("text", "bad") != "text"


def message(name: str, parent: str | None, **more: object) -> Message:
    values = {
        "role": Role.USER,
        "blocks": (Text(text=name),),
        "origin": Origin.CLIENT,
        "trust": Trust.USER,
        "status": Status.SUCCESS,
    }
    return Message(
        id=MessageId(name),
        conversation=ConversationId("c"),
        parent=None if parent is None else MessageId(parent),
        **(values | more),  # type: ignore[arg-type]  # as the fields say
    )


def conversation(head: str | None) -> Conversation:
    return Conversation(
        id=ConversationId("c"),
        tenant=TenantId("t"),
        session=SessionId("s"),
        head=None if head is None else MessageId(head),
        revision=1,
        cancel_generation=0,
        attempt_generation=0,
        active_operation=None,
        slot=None,
        title=None,
        created_ms=0,
        updated_ms=0,
        last_event=0,
    )


def test_a_long_talk_without_branches_stays_flat_and_needs_no_recursion() -> None:
    line = [message(f"m{n}", f"m{n - 1}" if n else None) for n in range(5000)]
    rows = draw(Tree(conversation("m4999"), line), view.Ink(False), 60)
    assert len(rows) == 5000
    assert all(row.startswith("● you") for row in rows)
    assert rows[-1].split() == ["●", "you", "m4999", "◀", "head", "m4999"]


@pytest.mark.req("M125")
def test_forks_indent_and_what_follows_stays_under_its_own_branch() -> None:
    tree = Tree(
        conversation("b2"),
        [
            message("a", None),
            message("b1", "a", role=Role.ASSISTANT),
            message("b2", "a", role=Role.ASSISTANT),
            message("c", "b1"),
            message("d", "c", role=Role.ASSISTANT, status=Status.CANCELED),
        ],
    )
    rows = [row[:20].rstrip() for row in draw(tree, view.Ink(False), 60)]
    assert rows == [
        "● you   a",
        "├─○ model b1",
        "│ ○ you   c",
        "│ ◌ model d",
        "└─● model b2",
    ]
    assert tree.newest_leaf(MessageId("b1")) == "c"
    assert tree.branches == 2
