"""`antiphon chat` on a terminal: what streams looks like a preview, what is saved looks saved."""

from __future__ import annotations

import signal
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Place, killed_in_mid_answer, serving, text
from tests.cli.terminal import Terminal

LOOSE, SOLID, SEAL, ASIDE = "┆ ", "┃ ", "┗ saved …", "┊ "
UNSAVED = "not saved yet · /stop or Ctrl-C"
PROMPT = "\u203a"
CTRL_C, CTRL_D = "\x03", "\x04"

Open = Callable[..., Terminal]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def chat(place: Place) -> Iterator[Open]:
    opened: list[Terminal] = []

    def start(*arguments: str, delay_s: str = "0.02", **env: str) -> Terminal:
        settings = {"ANTIPHON_REHEARSAL_DELAY_S": delay_s}
        opened.append(
            Terminal("chat", *arguments, cwd=place.folder, env=place.env | settings | env)
        )
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.kill()


def test_the_first_screen_says_where_the_data_lies_who_answers_and_how_to_stop(
    place: Place, chat: Open
) -> None:
    first = chat().see(PROMPT).splitlines()
    assert [line.split()[0] for line in first[:4]] == ["Antiphon", "data", "model", "stop"]
    assert str(place.db) in first[1]
    assert "a script, not a model (no key in the environment)" in first[2]
    assert "/help" in first[3]


@pytest.mark.req("M71", "M78")
def test_a_preview_looks_loose_until_it_is_saved_and_solid_from_then_on(
    place: Place, chat: Open
) -> None:
    with serving(place) as away:
        terminal = chat()
        terminal.see(PROMPT)
        terminal.send("hold 3 中文\r")
        live = terminal.see(f"{LOOSE}Rehearsal model: this")
        assert UNSAVED in live
        assert SOLID not in live
        assert place.messages(role="assistant") == [], "what is loose is nowhere stored"
        away.release()
        saved = terminal.see(SEAL, gone=UNSAVED)
        assert LOOSE not in saved
        assert f"{PROMPT} hold 3 中文" in saved
        assert f"{SOLID}Rehearsal model: this sentence will not be finished" in saved
        terminal.send("/quit\r")
        assert terminal.exit_code() == 0
    assert UNSAVED not in str(terminal.screen)
    assert len(place.messages(role="assistant")) == 1


@pytest.mark.req("M137", "M78")
def test_stop_stops_while_the_answer_streams(place: Place, chat: Open) -> None:
    terminal = chat()
    terminal.see(PROMPT)
    terminal.send("/hold 3\r")
    terminal.see(f"{LOOSE}Rehearsal model: this")
    terminal.send("/stop\r")
    shown = terminal.see("stopped: what was shown is no part of the talk", gone=UNSAVED)
    assert f"{ASIDE}Rehearsal model: this" in shown
    assert SOLID not in shown
    (canceled,) = place.messages(status="canceled")
    assert text(canceled).startswith("Rehearsal model: this")
    terminal.send("still here\r")
    terminal.see("you said “still here”. I was sent 2 messages")
    terminal.send(CTRL_D)
    assert terminal.exit_code() == 0


def test_control_c_stops_the_answer_and_a_second_one_leaves(place: Place, chat: Open) -> None:
    terminal = chat()
    terminal.see(PROMPT)
    terminal.send("/hold\r")
    terminal.see(UNSAVED)
    terminal.send(CTRL_C)
    terminal.see("stopped:", gone=UNSAVED)
    terminal.see("Ctrl-C again to leave")
    assert place.tree()["runs"][0]["status"] == "canceled"
    terminal.send(CTRL_C)
    assert terminal.exit_code() == 130


def test_control_c_on_a_line_drops_the_line_and_typing_takes_the_warning_back(
    chat: Open,
) -> None:
    terminal = chat()
    terminal.see(PROMPT)
    terminal.send("half a thought")
    terminal.see("half a thought")
    terminal.send(CTRL_C)
    terminal.see("Ctrl-C again to leave", gone="half a thought")
    terminal.send("x")
    terminal.see(f"{PROMPT} x", gone="Ctrl-C again to leave")
    terminal.send(CTRL_C)
    terminal.see("Ctrl-C again to leave")
    terminal.send(CTRL_C)
    assert terminal.exit_code() == 130


@pytest.mark.req("M78", "M77")
def test_what_is_withdrawn_goes_from_the_screen_and_is_said_to_be_gone(
    place: Place, chat: Open
) -> None:
    terminal = chat()
    terminal.see(PROMPT)
    terminal.send("/cut\r")
    terminal.see(f"{LOOSE}Rehearsal model:")
    shown = terminal.see("no answer. outcome_unknown", gone=UNSAVED)
    assert "withdrawn, nothing of it was kept" in shown
    assert "this sentence" not in shown
    terminal.send("/quit\r")
    assert terminal.exit_code() == 0
    assert place.messages(role="assistant") == []


def test_what_is_typed_while_an_answer_streams_is_kept_and_takes_its_turn(
    place: Place, chat: Open
) -> None:
    terminal = chat()
    terminal.see(PROMPT)
    terminal.send("/long 20\r")
    terminal.see(UNSAVED)
    terminal.send("ne")
    terminal.see(f"{PROMPT} ne")
    terminal.send("xt\r")
    terminal.see("This waits for its turn.")
    terminal.see("you said “next”. I was sent 3 messages")
    terminal.send("/quit\r")
    assert terminal.exit_code() == 0
    assert [m["role"] for m in place.messages()] == ["user", "assistant"] * 2


def test_the_last_message_is_edited_in_place(place: Place, chat: Open) -> None:
    terminal = chat(delay_s="0")
    terminal.see(PROMPT)
    terminal.send("helo\r")
    terminal.see(SEAL)
    terminal.send("/ed\t\r")
    terminal.see(f"{PROMPT} /edit helo")
    terminal.send("\x7flo\r")
    terminal.see("you said “hello”")
    terminal.send("/quit\r")
    assert terminal.exit_code() == 0
    assert [text(m) for m in place.messages(role="user")] == ["helo", "hello"]


def test_after_a_crash_the_first_screen_says_what_is_missing(place: Place, chat: Open) -> None:
    place.do("chat", "hello")
    with killed_in_mid_answer(place, "/hold"):
        terminal = chat("-c", delay_s="0")
        shown = terminal.see("It was not asked again: /regenerate does.")
    assert "you  hello" in shown
    assert "“/hold” has no answer" in shown
    terminal.send("\x10\x10\r")  # what was said before is in the editor's memory
    terminal.see("you said “hello”. I was sent 3 messages")
    terminal.send("/quit\r")
    assert terminal.exit_code() == 0


@pytest.mark.parametrize(
    ("keys", "code"), [(["/quit\r"], 0), ([CTRL_C, CTRL_C], 130), ([CTRL_D], 0)]
)
def test_the_terminal_is_given_back_as_it_was_however_the_chat_ends(
    chat: Open, keys: list[str], code: int
) -> None:
    terminal = chat(delay_s="0")
    before = termios.tcgetattr(terminal.slave)
    terminal.see(PROMPT)
    assert termios.tcgetattr(terminal.slave) != before
    terminal.send(keys[0])
    for key in keys[1:]:
        terminal.see("Ctrl-C again to leave")
        terminal.send(key)
    assert terminal.exit_code() == code
    assert termios.tcgetattr(terminal.slave) == before
    assert terminal.raw.count("\x1b[?2004h") == terminal.raw.count("\x1b[?2004l") == 1


def test_what_would_leave_the_talk_waits_for_nobody_while_an_answer_streams(
    place: Place, chat: Open
) -> None:
    terminal = chat()
    terminal.see(PROMPT)
    terminal.send("/hold\r")
    terminal.see(UNSAVED)
    terminal.send("/new\r")
    terminal.see("conversation_busy")
    terminal.send("/quit\r")
    assert terminal.exit_code() == 0
    assert place.tree()["runs"][0]["status"] == "canceled"


def test_ended_from_outside_it_gives_the_terminal_back_and_the_outcome_is_honest(
    place: Place, chat: Open
) -> None:
    terminal = chat()
    before = termios.tcgetattr(terminal.slave)
    terminal.see(PROMPT)
    terminal.send("/hold\r")
    terminal.see(UNSAVED)
    terminal.process.terminate()
    assert terminal.exit_code() == 128 + signal.SIGTERM
    assert termios.tcgetattr(terminal.slave) == before
    place.say("/list")
    (run,) = place.tree()["runs"]
    assert (run["status"], run["error_code"]) == ("error", "outcome_unknown")


def test_a_narrower_window_is_drawn_anew(chat: Open) -> None:
    terminal = chat()
    terminal.see(PROMPT)
    terminal.send("/hold 12\r")
    terminal.see("because you asked me")
    terminal.resize(40)
    above = str(terminal.screen).partition(f"{PROMPT} /hold")[0]
    terminal.see(f"{LOOSE}not be finished")
    terminal.see(UNSAVED)
    assert str(terminal.screen).startswith(above), "what stood above still stands there"
    live = [row for row in str(terminal.screen).splitlines() if row.startswith(LOOSE)]
    assert len(live) >= 3
    assert all(len(row) < 40 for row in live)
    terminal.send("/quit\r")
    assert terminal.exit_code() == 0


def test_without_a_capable_terminal_it_speaks_plainly(place: Place, chat: Open) -> None:
    terminal = chat(TERM="dumb", delay_s="0")
    terminal.see("rehearsal: a script")
    terminal.send("hi\n")
    shown = terminal.see("saved …")
    assert "\nRehearsal model: you said “hi”" in shown
    assert "\x1b" not in terminal.raw
    terminal.send(CTRL_D)
    assert terminal.exit_code() == 0


def test_no_colour_means_none_and_colour_is_used_otherwise(chat: Open) -> None:
    for no_color, painted in (("1", False), ("", True)):
        terminal = chat("hi", delay_s="0", NO_COLOR=no_color)
        assert terminal.exit_code() == 0
        assert f"{SOLID}Rehearsal model: you said “hi”" in str(terminal.screen)
        assert ("\x1b[32m" in terminal.raw) is painted


def test_a_long_answer_scrolls_and_stays_whole(chat: Open) -> None:
    terminal = chat("/long 400", delay_s="0")
    assert terminal.exit_code() == 0
    words = str(terminal.screen).replace(SOLID, " ").split()
    assert [w for w in words if w.startswith("word")] == [f"word{n}" for n in range(1, 401)]
