"""The line that a person is typing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.cli.chat.editor import Left, LineEditor, Offered, Submitted, Typed, laid_out
from antiphon.cli.view.text import cells

UP, DOWN, RIGHT, LEFT = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"


def typed(keys: str, editor: LineEditor | None = None) -> tuple[LineEditor, list[Typed]]:
    editor = editor or LineEditor()
    return editor, editor.feed(keys.encode())


@pytest.mark.parametrize(
    ("keys", "text", "cursor"),
    [
        ("hello", "hello", 5),
        ("中文", "中文", 2),
        ("helo\x1b[Dl", "hello", 4),
        ("ello\x01h", "hello", 1),
        ("hell\x01\x05o", "hello", 5),
        ("hellos\x7f", "hello", 5),
        ("xhello\x01\x04", "hello", 0),
        ("xhello\x1b[H\x1b[3~", "hello", 0),
        ("hello there\x17", "hello ", 6),
        ("hello there\x1bb\x0b", "hello ", 6),
        ("gone hello\x1bb\x15", "hello", 0),
        ("hello\x1b[1;5D\x1b[1;5C!", "hello!", 6),
        ("one\x1b\rtwo", "one\ntwo", 7),
        ("\x1b[200~one\r\ntwo\x03\x1b[201~!", "one\ntwo!", 8),
        ("a\x1b[9999zb\x1b[5~c", "abc", 3),
        ("\x00a\x1fb", "ab", 2),
    ],
)
def test_keys_do_what_they_do_in_a_shell(keys: str, text: str, cursor: int) -> None:
    editor, told = typed(keys)
    assert (editor.text, editor.cursor, told) == (text, cursor, [])


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20).map(
        lambda t: f"{t}\x1b[Dé\x1b[200~a\nb\x1b[201~\x1bb\x0b!"
    ),
    st.data(),
)
def test_it_does_not_matter_how_the_bytes_arrive(keys: str, data: st.DataObject) -> None:
    whole, told = typed(keys)
    split = LineEditor()
    pieces: list[Typed] = []
    raw = keys.encode()
    while raw:
        size = data.draw(st.integers(1, len(raw)))
        pieces += split.feed(raw[:size])
        raw = raw[size:]
    assert (split.text, split.cursor, pieces) == (whole.text, whole.cursor, told)


def test_enter_gives_the_line_and_begins_another() -> None:
    editor, told = typed("one\rtwo\nthree")
    assert told == [Submitted("one"), Submitted("two")]
    assert editor.text == "three"


def test_what_is_pasted_with_line_ends_is_one_message() -> None:
    _, told = typed("\x1b[200~a\nb\rc\x1b[201~\r")
    assert told == [Submitted("a\nb\nc")]


def test_control_d_leaves_only_where_nothing_was_typed() -> None:
    assert typed("a\x04")[1] == []
    assert typed("a\x7f\x04")[1] == [Left()]


def test_earlier_lines_come_back_and_the_draft_is_kept() -> None:
    editor, _ = typed("first\rsecond\rdraft")
    seen = []
    for key in (UP, UP, UP, DOWN, DOWN, DOWN):
        editor.feed(key.encode())
        seen.append(editor.text)
    assert seen == ["second", "first", "first", "second", "draft", "draft"]


def test_the_same_line_twice_is_remembered_once() -> None:
    editor, _ = typed(f"a\ra\r{UP}")
    assert editor.text == "a"
    editor.feed(UP.encode())
    assert editor.text == "a"


def complete(head: str) -> list[str]:
    return [word for word in ("/regenerate", "/request", "/title") if word.startswith(head)]


def test_tab_completes_what_is_certain_and_offers_the_rest() -> None:
    editor, told = typed("/ti\tmine", LineEditor(complete=complete))
    assert (editor.text, told) == ("/title mine", [])
    editor, told = typed("/r\t", LineEditor(complete=complete))
    assert (editor.text, told) == ("/re", [])
    _, told = typed("\t", editor)
    assert told == [Offered(("/regenerate", "/request"))]
    assert typed("x\t", LineEditor(complete=complete))[1] == []


@given(st.text("ab \n中文", max_size=60), st.data(), st.integers(4, 20), st.integers(1, 5))
def test_rows_fit_and_the_cursor_stands_where_the_next_letter_goes(
    text: str, data: st.DataObject, width: int, most: int
) -> None:
    cursor = data.draw(st.integers(0, len(text)))
    rows, (row, column) = laid_out(text, cursor, width, most)
    assert len(rows) <= most
    assert all(cells(r) <= width for r in rows)
    assert 0 <= row < len(rows)
    assert column <= width
    if cursor < len(text) and text[cursor] != "\n":
        before = ""
        for character in rows[row]:
            if cells(before) == column:
                assert character == text[cursor]
                break
            before += character
