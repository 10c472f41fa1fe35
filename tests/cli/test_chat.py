"""`antiphon chat` through a pipe: answers on one side, talk on the other, and every command."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import antiphon
from antiphon.cli.chat.commands import COMMANDS
from antiphon.core.manifest import ToolDeclaration
from antiphon.engine.settings import Settings
from tests.cli.commands import PATIENCE_S, Place, killed_in_mid_answer, text, upstream


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def texts(place: Place, **wanted: str) -> list[str]:
    return [text(message) for message in place.messages(**wanted)]


# Input and output.


@pytest.mark.req("M78")
def test_answers_go_to_standard_output_and_everything_else_to_standard_error(
    place: Place,
) -> None:
    told = place.do("chat", given="hi\n")
    assert told.code == 0
    assert re.fullmatch(r"Rehearsal model: you said “hi”\. I was sent 1 message\..*\n", told.out)
    first, saved = told.err.splitlines()
    assert first == f"rehearsal: a script, not a model (no key in the environment) · {place.db}"
    assert saved.startswith("saved …")


def test_a_server_of_tools_that_is_not_there_is_named_and_the_talk_goes_on(place: Place) -> None:
    place.config = place.folder / "tools.toml"
    place.config.write_text('[mcp.shop]\ncommand = "no-such-program"\n', encoding="utf-8")
    told = place.do("chat", given="hi\n")
    assert told.code == 0
    assert "The MCP server shop is not there" in told.err
    assert "you said “hi”" in told.out


def test_each_line_of_a_pipe_is_a_message_and_a_dash_takes_all_as_one(place: Place) -> None:
    assert place.do("chat", given="one\n\ntwo").code == 0
    assert texts(place, role="user") == ["one", "two"]
    assert place.do("chat", "-", given="/one\ntwo\n").code == 0
    assert texts(place, role="user") == ["/one\ntwo"]


def test_a_message_on_the_command_line_is_said_and_may_be_a_command(place: Place) -> None:
    assert place.do("chat", "hello there").out.startswith("Rehearsal model: you said “hello there”")
    assert place.do("chat", "-c", "/title Named").code == 0
    assert place.tree()["conversation"]["title"] == "Named"


def test_every_event_is_a_line_of_json(place: Place) -> None:
    told = place.do(
        "chat", "--json", "--tools", "demo", given='tool dice {"sides": 6}\n/list\n/x\n'
    )
    events = told.events
    assert (told.err, told.code) == ("", 0)
    names = [event["event"] for event in events]
    assert names[0] == "conversation"
    assert [name for name in names if name != "preview"] == [
        "conversation",
        "committed",
        "call_finished",
        "committed",
        "ended",
        "result",
        "committed",
        "ended",
    ]
    committed = [event for event in events if event["event"] == "committed"]
    shown = "".join(e["text"] for e in events if e["event"] == "preview" and e["generation"] == 2)
    assert shown == text(committed[1]["message"])


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("hi", 0),
        ("/fail 400", 4),
        ("/cut", 5),
        ("/filter", 4),
        ("/truncate", 0),
        ("/nosuchword x", 0),
    ],
)
def test_the_exit_code_is_what_the_last_message_came_to(place: Place, said: str, code: int) -> None:
    assert place.do("chat", given=f"/fail 429\n{said}\n" if code == 0 else f"{said}\n").code == code


def test_a_stopped_answer_exits_with_130(place: Place) -> None:
    assert place.do("chat", given="/hold\n/stop\n").code == 130


@pytest.mark.req("M34", "M39", "M88")
def test_a_history_that_may_not_be_sent_exits_with_3_and_sends_nothing(place: Place) -> None:
    orphan = [
        {"kind": "export", "version": 1},
        {"kind": "conversation", "id": "conv_1", "head": "b"},
        {"kind": "message", "id": "a", "parent_id": None, "role": "user", "blocks": []},
        {
            "kind": "message",
            "id": "b",
            "parent_id": "a",
            "role": "tool",
            "blocks": [{"kind": "tool_result", "call_id": "nobody", "content": []}],
        },
    ]
    place.do("import", "-", given="".join(json.dumps(line) + "\n" for line in orphan))
    with upstream(place) as received:
        told = place.say("go on")
    assert told.code == 3
    assert "no answer. " in told.err
    assert received == []


def test_input_that_cannot_be_read_exits_with_2_and_changes_nothing(place: Place) -> None:
    told = place.do("chat", given=b"\xff\xfe\n")
    assert told.code == 2
    assert "invalid_utf8" in told.err
    assert place.do("show").out == ""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["-m", "nothing-like-it"], "model_not_found"),
        (["--conversation", "conv_nothing"], "not_found"),
        (["--config", "nowhere.toml"], "config_not_found"),
        (["--db", "mysql://x"], "unknown_database"),
        (["--db", ""], "unknown_database"),
        (["--db", "sqlite:///"], "unknown_database"),
        (["--no-such-option"], "usage"),
        (["one", "two"], "usage"),
        (["hi \udcff"], "invalid_utf8"),
    ],
)
def test_what_it_is_called_with_wrongly_is_one_clear_error(
    place: Place, arguments: list[str], code: str
) -> None:
    told = place.do("chat", *arguments, given="hi\n")
    assert (told.code, told.out) == (2, "")
    assert f"error[{code}]" in told.err
    assert not place.db.exists() or place.do("show").out == ""


def test_instructions_are_sent_and_are_no_part_of_the_talk(place: Place) -> None:
    with upstream(place) as received:
        place.do("chat", "-s", "Be brief.", "hi")
    assert json.loads(received[0].body)["messages"][0] == {
        "role": "system",
        "content": "Be brief.",
    }
    assert len(place.tree()["messages"]) == 2


# Going on.


def test_it_goes_on_in_the_newest_conversation_and_shows_its_line(place: Place) -> None:
    place.do("chat", "first")
    told = place.say("second")
    assert "   you  first\n" in told.err
    assert "I was sent 3 messages" in told.out
    assert len(place.do("show", "--json").json) == 1


def test_where_nothing_can_be_gone_on_with_a_new_one_begins(place: Place) -> None:
    told = place.say("hi")
    assert told.code == 0
    assert "There is no conversation to go on in" in told.err


@pytest.mark.req("M76", "M77", "M139")
def test_after_a_crash_it_says_so_and_nothing_is_lost_doubled_or_half(place: Place) -> None:
    place.do("chat", "hello")
    question = "long 40"
    with upstream(place, delay_s=0.02) as received:
        with killed_in_mid_answer(place, question, "word3") as shown:
            pass
        told = place.say("/regenerate", more=("--json",))
        assert told.code == 0
        (answer,) = [e["message"] for e in told.events if e["event"] == "committed"]
    assert shown
    assert text(answer).endswith("word40")
    assert len(received) == 2, "once by the one that died, once because a person asked"
    assert received[0].body == received[1].body
    assert shown not in received[1].body.decode()
    assert texts(place) == ["hello", *texts(place)[1:2], question, question, text(answer)]
    assert [m.get("status", "success") for m in place.messages()] == (
        ["success", "success", "error", "success", "success"]
    )


def test_a_crash_is_told_at_the_start(place: Place) -> None:
    place.do("chat", "hello")
    with killed_in_mid_answer(place, "/hold"):
        told = place.say("/list")
    assert "“/hold” has no answer: it broke off while it was under way." in told.err
    assert "It was not asked again: /regenerate does." in told.err


async def _ask_a_tool_of_the_client(place: Place, question: str) -> None:
    weather = ToolDeclaration(name="weather")
    async with antiphon.open(settings=Settings.load(env=place.env)) as app:
        chat = await app.create(ask=antiphon.Ask(tools=(weather,)))
        run = await chat.send(question)
        async for _ in run.events():
            pass


def test_a_run_that_waits_for_somebody_is_answered_in_the_chat(place: Place) -> None:
    question = "tool weather {}"
    asyncio.run(asyncio.wait_for(_ask_a_tool_of_the_client(place, question), PATIENCE_S))
    told = place.say("/answer sunny 24°")
    assert "waits for the result of weather {}" in told.err
    assert told.code == 0
    assert told.out == "Rehearsal model: weather answered “sunny 24°”.\n"
    assert place.say("/answer again").code == 3


def test_several_calls_are_answered_one_by_one(place: Place) -> None:
    question = 'tool weather {"in": 1}\ntool weather {"in": 2}'
    asyncio.run(asyncio.wait_for(_ask_a_tool_of_the_client(place, question), PATIENCE_S))
    calls = place.do("show", place.tree()["runs"][0]["id"], "--json").json["calls"]
    first, second = (call["call_id"] for call in calls)
    told = place.say("/answer sunny", f"/answer {second} rain", f"/answer {first} sun and wind")
    assert "/answer CALL TEXT, where CALL is one of" in told.err
    assert f"noted; still waits for {first}" in told.err
    assert told.out == (
        "Rehearsal model: weather answered “sun and wind”; weather answered “rain”.\n"
    )


def test_a_run_that_waits_can_be_given_up(place: Place) -> None:
    asyncio.run(asyncio.wait_for(_ask_a_tool_of_the_client(place, "tool weather {}"), PATIENCE_S))
    assert place.say("new words").code == 3
    told = place.say("/stop", "go on")
    assert told.code == 0, told.err
    assert "I was sent 4 messages" in told.out


# Commands.


@pytest.mark.req("M125")
def test_regenerate_and_edit_add_branches_and_destroy_nothing(place: Place) -> None:
    place.say("one", "two")
    before = place.messages()
    assert place.say("/regenerate", "/edit 2", "/edit 3").code == 0
    after = place.messages()
    assert after[: len(before)] == before
    assert texts(place, role="user") == ["one", "two", "2", "3"]
    two, other, third = place.messages(role="user")[1:]
    assert two["parent"] == other["parent"] == third["parent"] == before[1]["id"]
    first = before[0]["id"]
    assert place.say(f"/edit {first} uno").code == 0
    assert place.messages(role="user")[-1]["parent"] is None
    assert place.say(f"/regenerate {before[1]['id'][-8:]}").code == 0
    assert place.messages()[-1]["parent"] == first


@pytest.mark.req("M125", "M126")
def test_branches_are_numbered_and_switching_moves_the_line(place: Place) -> None:
    place.say("one", "/regenerate", "two")
    told = place.say("/branches")
    first, second = told.out.splitlines()
    assert re.match(r"   1  \u2039 1/2 \u203a  Rehearsal model: you said “one”", first)
    assert re.match(r"●  2  \u2039 2/2 \u203a  Rehearsal model: you said “one”", second)
    answers = place.messages(role="assistant")
    assert place.say("/switch 1").code == 0
    assert place.tree()["conversation"]["head"] == answers[0]["id"]
    assert place.say("instead").code == 0
    assert place.messages()[-2]["parent"] == answers[0]["id"]
    place.say(f"/switch {answers[1]['id'][-7:]}")
    assert place.tree()["conversation"]["head"] == answers[2]["id"], "the end of that branch"
    assert place.say("/switch 9").code == 2
    assert place.say("/switch").code == 2


@pytest.mark.req("M137")
def test_stopped_text_is_kept_only_when_a_person_says_so(place: Place) -> None:
    place.do("chat", "hello")
    place.stop_in_mid_answer("/hold")
    canceled = place.messages(status="canceled")[0]
    with upstream(place) as received:
        place.say("on")
    assert text(canceled) not in received[0].body.decode()
    assert place.say(f"/switch {canceled['id']}").code == 3
    assert place.say("/keep").code == 0
    kept = place.messages()[-1]
    assert (kept["origin"], text(kept)) == ("kept", text(canceled))
    assert place.tree()["conversation"]["head"] == kept["id"]


def test_deleted_messages_are_skipped_and_stay_stored(place: Place) -> None:
    place.say("one", "two")
    gone = place.messages()[0]["id"]
    assert place.say(f"/delete {gone}").code == 0
    assert place.tree()["conversation"]["deletions"] == [gone]
    assert "I was sent 4 messages" in place.say("three").out
    assert place.say("/delete").code == 2


def test_why_and_request_tell_what_was_sent(place: Place) -> None:
    with upstream(place) as received:
        told = place.say("hello", "/why", "/request")
    assert place.tree()["runs"][0]["id"] in told.out
    assert "COMMITTED" in told.out
    assert told.out.splitlines()[-1] == received[0].body.decode()


def test_models_are_listed_and_chosen(place: Place) -> None:
    with upstream(place) as received:
        told = place.say("/models", "hi", "/model rehearsal", "there", "/model nothing")
    assert told.code == 2
    assert "● away" in told.out
    assert "a script that stands in for a model" in told.out
    answered = [one for one in received if b"start_new" not in one.body]  # no decision beside
    assert len(answered) == 1
    assert [run["options"]["model"] for run in place.tree()["runs"]] == ["away", "rehearsal"]


def test_conversations_are_begun_listed_and_opened_again(place: Place) -> None:
    place.say("one", "/new", "two")
    rows = place.do("show", "--json").json
    assert len(rows) == 2
    told = place.say("/list", f"/open {rows[1]['id'][-8:]}", "three")
    assert "● conv_" in told.out
    assert told.code == 0
    assert texts(place, role="user") == ["one", "three"]


def test_the_tree_is_drawn(place: Place) -> None:
    told = place.say("one", "/regenerate", "/tree")
    assert "├─○ model" in told.out
    assert "└─● model" in told.out


def test_help_lists_every_command(place: Place) -> None:
    told = place.do("chat", "/help")
    for name, command in COMMANDS.items():
        assert re.search(rf"^/{name}\b.*{re.escape(command.help)}$", told.out, re.MULTILINE)


def test_a_command_that_does_not_exist_is_not_said(place: Place) -> None:
    with upstream(place) as received:
        told = place.do("chat", given="/regnerate\n")
        assert (told.code, "Did you mean /regenerate?" in told.err) == (2, True)
        assert place.do("chat", given="/nothing\n").code == 2
        assert received == []
        place.do("chat", given="//usr/bin is a folder\n")
    assert json.loads(received[0].body)["messages"][0]["content"] == "/usr/bin is a folder"


@pytest.mark.parametrize(
    "line",
    ["/regenerate", "/edit x", "/branches", "/keep", "/why", "/request", "/title x", "/tree"],
)
def test_a_command_that_needs_a_talk_says_so_where_there_is_none(place: Place, line: str) -> None:
    told = place.do("chat", line)
    assert told.code == 3
    assert "empty_conversation" in told.err
    assert place.do("show").out == ""


def test_titles_come_and_go(place: Place) -> None:
    place.say("hi", "/title 中文 title")
    assert place.tree()["conversation"]["title"] == "中文 title"
    place.say("/title")
    assert place.tree()["conversation"]["title"] is None


def test_a_tool_turn_is_shown(place: Place) -> None:
    told = place.do("chat", "--tools", "demo", 'tool dice {"sides": 2}')
    assert '→ dice {"sides": 2}' in told.err
    assert re.search(r"← dice: [12]\n", told.err)
    refused = place.do("chat", "--tools", "demo", 'tool dice {"sides": 1}')
    assert "← dice: invalid_arguments" in refused.err


def test_two_chats_cannot_have_one_database(place: Place) -> None:
    chat = place.start("chat", "--json", "/hold")
    try:
        assert chat.stdout is not None
        chat.stdout.readline()
        told = place.do("chat", "hi")
        assert told.code == 1
        assert "error[store_locked]" in told.err
    finally:
        chat.kill()
        chat.communicate(timeout=PATIENCE_S)


def test_a_program_that_stops_listening_is_no_fault_of_ours(place: Place) -> None:
    chat = place.start("chat", "--json", "/long 4000")
    assert chat.stdout is not None
    assert chat.stderr is not None
    chat.stdout.readline()
    chat.stdout.close()
    assert chat.wait(PATIENCE_S) == 0
    errors = chat.stderr.read().decode()
    chat.stderr.close()
    assert chat.stdin is not None
    chat.stdin.close()
    assert "Traceback" not in errors


def test_impatience_while_the_interpreter_ends_changes_neither_the_code_nor_the_last_word() -> None:
    program = (
        "import atexit, os, signal\n"
        "from antiphon import cli\n"
        "cli.run = lambda arguments: 3\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "cli.main([])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (3, b"")


def test_a_file_is_attached_asked_and_told_of_in_either_language(
    place: Place, tmp_path: Path
) -> None:
    fees = tmp_path / "fees.md"
    fees.write_text(
        "# Fees\n\nA berth costs nine crowns.\n\n# 退款\n\n退款须在付款后七天内申请。", "utf-8"
    )
    told = place.do(
        "chat",
        given=f"/attach {fees}\nWhat does a berth cost?\n怎么申请退款\n/beside\n/files\n/detach fees.md\n/files\n",
    )
    assert told.code == 0, told.err
    assert "in fees.md#1 it says “A berth costs nine crowns.”" in told.out
    assert "in fees.md#2 it says “退款须在付款后七天内申请。”" in told.out
    assert "attached fees.md (utf-8, 2 passages)" in told.err
    assert re.search(r"files: hit; \d candidates?, best 0\.\d+", told.out)
    assert "No files yet" in told.out
    assert texts(place, role="user") == ["What does a berth cost?", "怎么申请退款"]
    assert place.do("chat", given="/attach nowhere.md\n").err.count("unreadable") == 1


def test_what_is_remembered_is_told_with_every_message(place: Place) -> None:
    told = place.do(
        "chat",
        given="/remember language 中文\n/memories\nhello\n/request\n/forget language\n/memories\n",
    )
    assert told.code == 0, told.err
    assert "language  中文" in told.out
    assert "<memory key=" in told.out
    assert "you said “hello”" in told.out
    assert "Nothing yet" in told.out


def test_a_session_is_begun_drawn_and_taken_back(place: Place) -> None:
    told = place.say("one", "/session new Cook a soup.", "two", "/sessions", "/tree")
    assert told.code == 0
    assert "archived" in told.out
    assert "active, begun by person" in told.out
    assert "Cook a soup." in told.out
    shown = place.do("show", place.tree()["conversation"]["id"])
    assert shown.out.count("session …") == 2
    undone = place.do("chat", "-c", "/session undo")
    assert (undone.code, "back in" in undone.err) == (0, True)
    assert place.do("chat", "-c", "/session sideways").code == 2
    assert [s["active"] for s in place.tree()["sessions"]] == [True, False]


def test_who_says_one_message_is_told_why_there_is_no_answer_and_what_to_call_next(
    place: Place,
) -> None:
    told = place.do("chat", "fail 400")
    assert told.code == 4
    assert told.err.splitlines()[1:] == [
        "the reason given: Rehearsal model: you asked for 400.",
        "no answer. invalid_request_error",
        "antiphon chat -c /regenerate asks again; antiphon chat -c /why tells what happened",
    ]
    assert "\n/regenerate asks again; /why tells what happened\n" in place.say("fail 400").err
