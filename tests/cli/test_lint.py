"""`antiphon lint`: the verdict, its reason and place, for people and for programs."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from antiphon.adapters import registry
from antiphon.cli import run
from antiphon.core.rules.findings import GRAPH_CODES, PROFILE_CODES
from antiphon.core.rules.reasons import REASONS

ROOT = Path(__file__).parent.parent.parent
DATA = Path(__file__).parent.parent / "data"
CHAT_CASES = [
    path.stem
    for path in sorted((DATA / "cases").glob("A-*.json"))
    if json.loads(path.read_text(encoding="utf-8"))["provider"] in ("openai-chat", "any")
]
X = {"role": "user", "content": "x"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ORPHAN = {"model": "m", "messages": [X, {"role": "tool", "tool_call_id": "c1", "content": "1"}]}


@pytest.fixture
def lint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Lint a value, or the bytes of a file, and return exit code, output and notes."""

    def call(value: Any, *options: str) -> tuple[int, str, str]:
        file = tmp_path / "request.json"
        file.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
        code = run(["lint", *options, str(file)])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def case(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((DATA / "cases" / f"{name}.json").read_text(encoding="utf-8"))
    return read


def document(read: dict[str, Any]) -> dict[str, Any]:
    """The combined document of a case, made as its README says."""
    given = read["given"]
    options = {k: v for k, v in given.get("request", {}).items() if k != "model_profile"}
    return {
        "from": "openai-chat",
        "request": {**options, "messages": given["messages"]},
        "graph": given.get("graph"),
        "target": given.get("target"),
        "model_profile": given.get("request", {}).get("model_profile"),
        "stored": None,
    }


@pytest.mark.req("M34", "M39", "M81", "M88")
@pytest.mark.parametrize("name", CHAT_CASES)
def test_a_recorded_request_is_judged_as_it_stands(lint: Any, name: str) -> None:
    expect = case(name)["expect"]
    code, out, _ = lint(document(case(name)), "--json", "--from", "openai-chat")
    told = json.loads(out)
    if expect["verdict"] == "accept":
        assert (code, told["verdict"], told["findings"]) == (0, "accept", [])
        return
    assert (code, told["verdict"]) == (3, "reject")
    first = told["findings"][0]
    assert first["code"] == expect["reason"]
    assert first["at"] == expect.get("at", first["at"])
    assert first.get("call_ids") == expect.get("call_ids", first.get("call_ids"))


@pytest.mark.parametrize("name", [n for n in CHAT_CASES if case(n)["given"].get("graph")])
def test_the_graph_of_a_case_is_legal_where_it_can_be_mapped(lint: Any, name: str) -> None:
    whole = {**document(case(name)), "request": None}
    assert lint(whole, "--json")[0] == 0
    assert lint(case(name)["given"]["graph"], "--json")[0] == 0


def test_a_request_is_recognised_and_accepted_in_one_line(lint: Any) -> None:
    code, out, err = lint({"model": "m", "messages": [X], "n": 1})
    assert code == 0
    first, blank, *_ = out.splitlines()
    assert first.startswith("accept  ")
    assert first.endswith("request.json  openai-chat request, 1 message")
    assert (blank, err) == ("", "")


def test_a_request_that_could_be_of_several_forms_is_said_to_be(lint: Any) -> None:
    _, out, _ = lint({"model": "m", "messages": [X]})
    assert out.splitlines()[1] == "It could be anthropic or ollama as well; --from says which."
    assert json.loads(lint({"messages": [X]}, "--json")[1])["could_be"] == ["anthropic", "ollama"]
    assert "as well" not in lint({"messages": [X]}, "--from", "openai-chat")[1]


def test_what_belongs_to_another_form_is_pointed_at(lint: Any) -> None:
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    request = {"messages": [X, ASKS, {"role": "tool", "tool_call_id": "c1", "content": "1"}]}
    code, out, _ = lint({**request, "tools": tools})
    assert (code, "malformed_item at tools[0]" in out) == (3, True)
    _, out, _ = lint({**request, "stop_sequences": ["x"]})
    assert "Not the way of openai-chat, but of another form: stop_sequences." in out


@pytest.mark.req("M91")
def test_a_refusal_shows_the_place_the_rule_and_the_remedy(lint: Any, tmp_path: Path) -> None:
    code, out, err = lint(json.dumps(ORPHAN, indent=1).encode())
    assert code == 3
    assert "orphan_tool_result at messages[1]" in out
    lines = out.splitlines()
    marked = next(n for n, text in enumerate(lines) if text.rstrip().endswith("^"))
    assert lines[marked - 1].endswith("  {"), "the mark stands below the message's brace"
    assert lines[marked].index("^") == lines[marked - 1].index("{")
    assert '"role": "tool"' in lines[marked + 1]
    assert any(text.startswith("  rule  A tool result answers a call") for text in lines)
    assert any(text.startswith("  fix   Keep or drop") for text in lines)
    assert "  see   docs/reason-codes.md#orphan_tool_result" in lines
    assert err == ""
    assert lines[-1] == "No other dialect takes it: this rule holds for all of them."


def test_a_body_of_one_long_line_is_shown_around_the_place(lint: Any) -> None:
    long = {"messages": [{"role": "user", "content": "y" * 5000}, *ORPHAN["messages"][1:], X]}
    code, out, _ = lint(long)
    assert code == 3
    shown, mark = next(
        (a, b)
        for a, b in zip(out.splitlines(), out.splitlines()[1:], strict=False)
        if b.endswith("^")
    )
    assert len(shown) < 120
    assert shown[mark.index("^") :].startswith('{"role": "tool"')


def test_every_finding_is_told_in_order(lint: Any) -> None:
    request = {"messages": [{"role": "robot"}, *ORPHAN["messages"][1:], ASKS]}
    told = json.loads(lint(request, "--json")[1])
    assert [(f["code"], f["at"]) for f in told["findings"]] == [
        ("role_unsupported", "messages[0]"),
        ("result_before_call", "messages[1]"),
    ]
    assert all(f["code"] in GRAPH_CODES + PROFILE_CODES for f in told["findings"])


def test_a_note_is_shown_and_refuses_nothing(lint: Any) -> None:
    call = {**CALL, "id": "c" * 41}
    result = {"role": "tool", "tool_call_id": "c" * 41, "content": "1"}
    request = {"messages": [X, {**ASKS, "tool_calls": [call]}, result]}
    code, out, _ = lint(request, "--json")
    assert code == 0
    assert [f.get("severity") for f in json.loads(out)["findings"]] == ["note"]


def test_what_is_legal_and_not_ours_to_send_is_accepted_and_told(lint: Any) -> None:
    request = {"messages": [X, {"role": "function", "name": "f", "content": "1"}]}
    code, out, err = lint(request)
    assert (code, out[:6]) == (0, "accept")
    assert "messages[1] is legal" in err


def test_what_no_message_can_be_read_from_is_not_called_empty(lint: Any) -> None:
    told = json.loads(lint({"messages": [5]}, "--json")[1])
    assert [f["code"] for f in told["findings"]] == ["malformed_item"]


@pytest.mark.req("M47")
def test_an_empty_history_is_refused(lint: Any) -> None:
    assert (
        json.loads(lint({"messages": []}, "--json")[1])["findings"][0]["code"] == "empty_sequence"
    )


@pytest.mark.req("M91")
def test_the_mark_stands_below_a_word_in_any_script_and_moves_no_cursor(lint: Any) -> None:
    _, out, _ = lint('{"model": "日本\x9b2J", "messages": ["no"]}'.encode())
    lines = out.splitlines()
    marked = next(n for n, text in enumerate(lines) if text.endswith("^"))
    shown, mark = lines[marked - 1], lines[marked]
    assert shown.endswith('{"model": "日本\\x9b2J", "messages": ["no"]}')
    assert mark.endswith(" ^^^^")
    assert (
        mark.index("^") == shown.index('"no"') + 2
    )  # each of the two characters is two cells wide
    finding = json.loads(lint({"messages": [{"role": "x\x1b[2J"}]}, "--json")[1])["findings"][0]
    assert "\x1b" not in lint({"messages": [{"role": "x\x1b[2J"}]})[1]
    assert "x1b[2J" in finding["message"]


def test_every_finding_leads_to_its_rule_its_fix_and_its_page(lint: Any) -> None:
    finding = json.loads(lint(ORPHAN, "--json")[1])["findings"][0]
    assert finding["rule"] == REASONS["orphan_tool_result"].rule
    assert finding["fix"] == REASONS["orphan_tool_result"].remedy
    page, anchor = finding["see"].split("#")
    assert f"\n### {anchor}\n" in (ROOT / page).read_text("utf-8")


LATE: dict[str, Any] = {
    "model": "m",
    "messages": [X, ASKS, {"role": "user", "content": "y"}, ORPHAN["messages"][1]],
    "tools": [{"type": "function", "function": {"name": "f"}}],
}


def test_what_rendering_would_put_right_comes_with_the_command_that_does_it(
    lint: Any, tmp_path: Path
) -> None:
    code, out, _ = lint(LATE)
    assert code == 3
    assert "mend  antiphon render --profile openai-chat" in out
    assert "result_hoisted" in out
    assert "mend  antiphon render --profile" not in lint(ORPHAN)[1]
    assert "--from groq --profile groq" in lint(LATE, "--from", "groq")[1]


@pytest.mark.req("M81")
def test_each_other_dialect_says_whether_it_would_take_it(lint: Any) -> None:
    dialects = json.loads(lint(LATE, "--json")[1])["dialects"]
    assert dialects.keys() == set(registry.available())
    assert dialects["anthropic"]["verdict"] == "accept"
    assert "result_hoisted" in dialects["anthropic"]["mappings"]
    for options, refused in (({"seed": 5}, "seed"), ({"logit_bias": {}}, "logit_bias")):
        told = json.loads(lint({**LATE, **options}, "--json")[1])["dialects"]["anthropic"]
        assert (told["verdict"], told["code"]) == ("reject", "unsupported_parameter")
        assert told["at"] == refused


def test_a_dialect_of_the_same_form_is_asked_about_the_very_request(lint: Any) -> None:
    legal = {"messages": [{"role": "system", "content": "x"}, X, ASKS, ORPHAN["messages"][1]]}
    dialects = json.loads(lint(legal, "--json")[1])["dialects"]
    assert dialects["groq"] == {"verdict": "accept", "as_it_stands": True, "mappings": []}
    assert dialects["mistral"]["as_it_stands"] is False  # its call ids have nine characters
    assert "call_id_respelled" in dialects["mistral"]["mappings"]
    whole = lint(legal)[1]
    assert "taken as it stands by" in whole
    assert "mistral (" in whole


def test_what_dialects_refuse_is_listed_with_code_and_place_and_those_that_agree_together(
    lint: Any,
) -> None:
    rows = lint({**LATE, "seed": 5})[1].splitlines()
    at = rows.index("refused for unsupported_parameter at seed by")
    names = rows[at + 1].strip().split(", ")
    assert rows[at + 1].startswith("  ")
    assert {"anthropic", "bedrock"} <= set(names)
    assert sum("anthropic" in row for row in rows[at:]) == 1


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice"),
        ({"max_tokens": 1024}, "thinking.budget_tokens"),
        ({"tool_choice": {"type": "auto"}}, None),
    ],
)
def test_options_of_messages_that_exclude_each_other_are_refused_at_their_place(
    lint: Any, options: dict[str, Any], place: str | None
) -> None:
    request = {
        "model": "claude-opus-5",
        "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": "x"}],
        **options,
    }
    told = json.loads(lint(request, "--json", "--from", "anthropic")[1])
    found = [(finding["code"], finding["at"]) for finding in told["findings"]]
    assert found == ([("malformed_item", place)] if place else [])


@pytest.mark.parametrize("variable", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_is_for_a_terminal_that_wants_it(tmp_path: Path, variable: dict[str, str]) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(LATE))
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
    main, side = pty.openpty()
    command = [sys.executable, "-m", "antiphon", "lint", str(file)]
    environment = kept | {"TERM": "xterm"} | variable
    with subprocess.Popen(command, stdout=side, env=environment) as process:
        os.close(side)
        shown = b""
        with contextlib.suppress(OSError):  # the other end hangs up
            while piece := os.read(main, 65536):
                shown += piece
        assert process.wait(60) == 3
    os.close(main)
    assert (b"\x1b[" in shown) is (variable == {})
    piped = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert b"\x1b" not in piped.stdout + piped.stderr


def test_a_result_behind_a_call_that_cannot_be_read_is_not_called_an_orphan(lint: Any) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {}}}
    asking = {"role": "assistant", "content": None, "tool_calls": [call]}
    answer = {"role": "tool", "tool_call_id": "c1", "content": "1"}
    ask = {"role": "user", "content": "x"}
    codes = [
        [f["code"] for f in json.loads(lint(messages, "--json")[1])["findings"]]
        for messages in ({"messages": [ask, asking, answer]}, {"messages": [ask, answer, asking]})
    ]
    assert codes == [["malformed_item"], ["orphan_tool_result", "malformed_item"]]


# What cannot be read at all.


@pytest.mark.parametrize(
    ("data", "code", "at"),
    [
        (b"", "empty_input", "request.json"),
        (b" \n", "empty_input", "request.json"),
        (b'{"messages": [\n  {"role" "user"}]}', "invalid_json", "request.json:2:11"),
        (b'{"messages": []', "invalid_json", "request.json:1:16"),
        (b'{"messages": [NaN]}', "invalid_json", "request.json"),
        (b'{"messages": "\xff\xfe"}', "invalid_utf8", "request.json"),
        (b'{"messages": [{"role": "user", "content": "\\ud83d"}]}', "invalid_unicode", "messages[0].content"),
        (b'{"messages": [], "\\ud83d": 1}', "invalid_unicode", "the root"),
        (b'{"messages": [], "temperature": 1e999}', "invalid_number", None),
        (b'{"messages": [], "seed": ' + b"9" * 5000 + b"}", "invalid_number", None),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "too_deep", "request.json"),
        (b"[" * 5000 + b"]" * 5000, "too_deep", "request.json"),
        (b'{"hello": "world"}', "unrecognised", None),
        (b'{"request": null, "graph": null}', "wrong_shape", "request.json"),
        (b'{"request": {"messages": []}, "model_profile": {"colour": 1}}', "unknown_fact", "model_profile.colour"),
        (b'{"nodes": 5}', "wrong_shape", "graph"),
        (b'[{"role": "robot", "kind": "text", "text": "x"}]', "wrong_shape", "graph[0]"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_clear_error(
    lint: Any, data: bytes, code: str, at: str | None
) -> None:
    exit_code, out, err = lint(data)
    assert (exit_code, out) == (2, "")
    assert err.startswith(f"error[{code}]")
    assert len(err.splitlines()) == 1
    told = json.loads(lint(data, "--json")[1])["error"]
    assert told["code"] == code
    assert told["retryable"] is False
    assert told["at"] == at or told["at"].endswith(str(at))


@pytest.mark.req("M34", "M81")
@pytest.mark.parametrize(
    ("request_", "at", "source"),
    [
        ("hi", "the root", None),
        (5, "the root", None),
        (None, "the root", "gemini"),
        ([X], "the root", "openai-chat"),
        ([{"type": "message", "role": "user", "content": "x"}], "the root", None),
        ({"request": []}, "request", None),
        ({"from": "bedrock", "request": "hi"}, "request", None),
        ({"messages": {}}, "messages", None),
        ({"messages": "hi", "max_tokens": 5}, "messages", "anthropic"),
        ({"model": "m", "n": 2}, "messages", None),
        ({"model": "m", "max_tokens": 9, "stop_sequences": []}, "messages", None),
        ({"generationConfig": {"temperature": 1}}, "contents", None),
        ({"contents": "hi"}, "contents", None),
        ({"inferenceConfig": {}, "messages": None}, "messages", None),
        ({"model": "m", "input": 5}, "input", "openai-responses"),
        ({"model": "m", "input": None, "agent": "a"}, "input", None),
        ({"model": 5, "messages": [X]}, "model", None),
        ({"model": "m", "messages": [X], "tools": {}}, "tools", None),
        ({"model": "m", "messages": [X], "tools": [{"type": "function"}]}, "tools[0]", None),
        ({"model": "m", "messages": [X], "temperature": "hot"}, "temperature", "anthropic"),
        ({"model": "m", "messages": [X], "system": 5}, "system", "anthropic"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}], "toolConfig": {"tools": []}}, "toolConfig.tools", None),
    ],
)  # fmt: skip
def test_a_request_of_the_wrong_shape_gets_a_verdict_with_its_place_and_what_helps(
    lint: Any, request_: Any, at: str, source: str | None
) -> None:
    code, out, err = lint(request_, "--json", *(["--from", source] if source else []))
    told = json.loads(out)
    assert (code, told["verdict"], err) == (3, "reject", "")
    first = told["findings"][0]
    assert (first["code"], first["at"]) == ("malformed_item", at)
    assert all(first[word] for word in ("message", "rule", "fix", "see"))
    shown = lint(request_, *(["--from", source] if source else []))[1]
    assert f"malformed_item at {at}" in shown


@pytest.mark.req("M34", "M81")
def test_what_stands_behind_an_option_of_the_wrong_shape_is_judged_all_the_same(lint: Any) -> None:
    told = json.loads(lint({**ORPHAN, "model": 5, "temperature": []}, "--json")[1])
    assert [(f["code"], f["at"]) for f in told["findings"]] == [
        ("malformed_item", "model"),
        ("malformed_item", "temperature"),
        ("orphan_tool_result", "messages[1]"),
    ]


@pytest.mark.req("M34", "M81")
@pytest.mark.parametrize(
    "said",
    [
        {"from": "openai-chat", "request": {"model": "m", "messages": [X]}},
        {"graph": [{"role": "user", "kind": "text", "text": "x"}]},
    ],
)
def test_a_target_that_nobody_speaks_is_a_finding_at_its_place(lint: Any, said: Any) -> None:
    code, out, _ = lint({**said, "target": "vertigo"}, "--json")
    found = json.loads(out)["findings"]
    assert (code, [(f["code"], f["at"]) for f in found]) == (3, [("unknown_profile", "target")])
    assert "openai-chat" in found[0]["message"]
    assert all(found[0][word] for word in ("rule", "fix", "see"))
    code, out, _ = lint({**said, "target": "vertigo"}, "--json", "--profile", "anthropic")
    assert (code, json.loads(out)["profile"]) == (0, "anthropic")  # what the caller names counts


@pytest.mark.req("M34", "M48")
def test_a_request_is_judged_for_the_target_that_its_document_names(lint: Any) -> None:
    late = [X, {"role": "assistant", "content": "y"}, {"role": "developer", "content": "z"}, X]
    said = {"from": "openai-chat", "request": {"model": "m", "messages": late}}
    told = {t: json.loads(lint({**said, "target": t}, "--json")[1]) for t in ("groq", "mistral")}
    assert {t: (read["verdict"], read["profile"]) for t, read in told.items()} == {
        "groq": ("accept", "groq"),
        "mistral": ("reject", "mistral"),
    }


@pytest.mark.parametrize(
    ("data", "helps"),
    [
        (b"\xff\xfe{\x00}\x00", "UTF-16"),
        (b"\xfe\xff\x00{\x00}", "UTF-16"),
        (gzip.compress(b"{}", mtime=0), "gzip -d"),
    ],
)
def test_what_is_text_of_another_kind_is_told_by_its_beginning(
    lint: Any, data: bytes, helps: str
) -> None:
    exit_code, _, err = lint(data)
    assert (exit_code, err.startswith("error[invalid_utf8]"), helps in err) == (2, True, True)


def test_a_body_too_large_to_be_a_request_is_refused_before_it_is_parsed(
    lint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.cli.requests.documents.MAX_BYTES", 100)
    code, _, err = lint({"messages": [{"role": "user", "content": "x" * 200}]})
    assert code == 2
    assert "error[too_large]" in err


def test_a_missing_file_a_folder_and_no_file_are_errors_of_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["lint", str(tmp_path / "no.json")], ["lint", str(tmp_path)], ["lint"]):
        assert run(arguments) == 2
        assert capsys.readouterr().err.startswith("error[")


def test_standard_input_is_a_file_called_minus(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(json.dumps(ORPHAN).encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert run(["lint", "--json", "-"]) == 3
    assert json.loads(capsys.readouterr().out)["verdict"] == "reject"


def test_a_byte_order_mark_is_no_part_of_the_request(lint: Any) -> None:
    assert lint(b"\xef\xbb\xbf" + json.dumps({"messages": [X]}).encode())[0] == 0


CALLED = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
DECLARED = [{"name": "f", "input_schema": {"type": "object"}}]
GOT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "1"}]}


@pytest.mark.parametrize(
    "fields",
    [
        {"system": "x"},
        {"tools": DECLARED},
        {"stop_sequences": ["x"]},
        {"messages": [X, {"role": "assistant", "content": [CALLED]}, GOT], "tools": DECLARED},
    ],
)
def test_an_anthropic_request_is_recognised_where_only_it_can_be_one(
    lint: Any, fields: dict[str, Any]
) -> None:
    code, out, _ = lint({"messages": [X], **fields})
    assert code == 0
    assert "anthropic request" in out


def test_a_request_that_could_be_either_can_be_named(lint: Any) -> None:
    request = {"messages": [X, {"role": "assistant", "content": "y"}], "model": "claude-opus-5"}
    assert lint(request)[0] == 0
    code, out, _ = lint(request, "--from", "anthropic", "--json")
    found = json.loads(out)["findings"]
    assert (code, [(f["code"], f["at"]) for f in found]) == (
        3,
        [("must_end_with_user", "messages[1]")],
    )


def test_a_request_is_held_against_what_earlier_answers_left(lint: Any) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "Eq=="}
    request = {"messages": [X, {"role": "assistant", "content": [CALLED]}, GOT], "tools": DECLARED}
    document = {"from": "anthropic", "request": request}
    assert lint(document)[0] == 0
    code, out, _ = lint({**document, "stored": {"committed_blocks": [thought, CALLED]}}, "--json")
    found = json.loads(out)["findings"]
    assert (code, [(f["code"], f["at"]) for f in found]) == (
        3,
        [("thinking_missing", "messages[1]")],
    )
    assert lint({**document, "stored": 5})[0] == 2


# Our own graph.


def block(block_id: str, role: str, kind: str, /, **fields: Any) -> dict[str, Any]:
    return {"id": block_id, "role": role, "kind": kind, **fields}


@pytest.mark.req("M5", "M36", "M38")
@pytest.mark.parametrize(
    ("graph", "code", "at"),
    [
        ([], "empty_sequence", "messages"),
        ([block("q", "user", "hologram")], "unknown_block_kind", "q"),
        ([block("r", "tool", "tool_result", call_id="c")], "orphan_tool_result", "r"),
        (
            [
                block("t", "assistant", "text", text="I look."),
                block("c", "assistant", "tool_call", call_id="c", name="f", arguments='{"a'),
                block("r", "tool", "tool_result", call_id="c", name="f"),
            ],
            "unclosed_arguments",
            "c",
        ),
        (
            [
                block("c", "assistant", "tool_call", call_id="c", name="f", generation=1),
                block("r", "tool", "tool_result", call_id="c", generation=2),
            ],
            "generation_mismatch",
            "r",
        ),
        ([block("u", "user", "text", text="x", status="canceled")], "uncommitted_block", "u"),
        ([block("s", "system", "text", text="x", trust="retrieved")], "trust_violation", "s"),
    ],
)
def test_a_flat_graph_is_judged_by_its_own_ids(
    lint: Any, graph: list[Any], code: str, at: str
) -> None:
    exit_code, out, _ = lint(graph, "--json")
    assert exit_code == 3
    first = json.loads(out)["findings"][0]
    assert (first["code"], first["at"]) == (code, at)


def node(name: str, parent: str | None, /, **fields: Any) -> dict[str, Any]:
    text = {"id": f"{name}-b", "kind": "text", "text": "x"}
    return {"id": name, "parent": parent, "role": "user", "blocks": [text], **fields}


@pytest.mark.req("M127")
@pytest.mark.parametrize(
    ("nodes", "active", "code", "at"),
    [
        ([node("a", None), node("b", "a")], ["a", "z"], "dangling_leaf", "z"),
        ([node("a", "z"), node("b", "a")], None, "missing_parent", "z"),
        ([node("a", "b"), node("b", "a")], ["b"], "cycle", "b"),
        ([node("a", None, conversation="other"), node("b", "a")], None, "foreign_parent", "a"),
        ([], None, "empty_sequence", "messages"),
    ],
)
def test_a_broken_tree_is_refused_and_never_walked_in_part(
    lint: Any, nodes: list[Any], active: list[str] | None, code: str, at: str
) -> None:
    exit_code, out, _ = lint({"nodes": nodes, "activePath": active}, "--json")
    assert exit_code == 3
    first = json.loads(out)["findings"][0]
    assert (first["code"], first["at"]) == (code, at)


@pytest.mark.req("M126")
def test_only_the_line_of_the_leaf_is_judged(lint: Any) -> None:
    odd = {"blocks": [{"id": "odd", "kind": "hologram"}]}
    nodes = [node("a", None), node("b", "a"), node("c", "a", **odd)]
    assert lint({"nodes": nodes, "activePath": ["a", "b"]}, "--json")[0] == 0
    assert lint({"nodes": nodes, "activePath": ["a", "c"]}, "--json")[0] == 3
    assert lint({"nodes": nodes}, "--json")[0] == 2


def test_the_common_graph_is_legal_for_every_profile_that_is_spoken(lint: Any) -> None:
    graph = (DATA / "fixtures" / "render" / "graph.json").read_bytes()
    assert lint(graph)[0] == 0
    assert lint(graph, "--profile", "openai-chat")[0] == 0
    assert lint(graph, "--profile", "llamacpp")[0] == 0


def test_a_request_may_be_judged_for_another_profile_by_what_cannot_be_mapped(lint: Any) -> None:
    request = {"messages": [{"role": "developer", "content": "Ring a bell."}, X]}
    assert lint(request, "--from", "llamacpp", "--json")[0] == 3
    assert lint(request, "--profile", "llamacpp", "--json")[0] == 0


# The frame.


def test_lint_loads_neither_network_nor_database(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(ORPHAN))
    program = (
        "import sys; from antiphon.cli import run; code = run(['lint', '--json', sys.argv[1]]);"
        "heavy = {'aiohttp', 'sqlite3', 'asyncio', 'jsonschema', 'ssl'} & set(sys.modules);"
        "sys.exit(code if not heavy else repr(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", program, file], capture_output=True, timeout=60)
    assert done.returncode == 3, done.stderr.decode()


def test_help_and_version_need_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "lint" in capsys.readouterr().out
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("antiphon 0.")
    assert run(["lint", "--help"]) == 0
    assert "Exit code 0: it may be sent" in " ".join(capsys.readouterr().out.split())


def test_a_word_that_is_no_command_is_told_with_the_nearest_that_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["lnit"]) == 2
    assert "Did you mean lint?" in capsys.readouterr().err
    assert run(["--json", "lint"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"


def test_a_fault_of_our_own_is_exit_1_and_says_so(
    lint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.cli.lint.judge", lambda *_, **__: 1 / 0)
    code, _, err = lint({"messages": [X]})
    assert code == 1
    assert "error[internal_error]" in err.splitlines()[-1]
    assert "ZeroDivisionError" in err


def test_what_a_repair_would_do_is_told_and_the_command_that_is_named_does_it(
    lint: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = lint(ORPHAN, "--json")
    assert code == 3
    assert json.loads(out)["repairs"] == [
        {
            "change": "result_removed",
            "reason": "orphan_tool_result",
            "at": "messages[1]",
            "call_id": "c1",
        }
    ]
    _, shown, _ = lint(ORPHAN)
    assert "--repair" in shown
    file = tmp_path / "request.json"
    assert run(["render", "--repair", "--profile", "openai-chat", str(file)]) == 0
    made, notes = capsys.readouterr()
    assert json.loads(made)["messages"] == [X]
    assert "repair_result_removed" in notes


CUSTOM = {"id": "c1", "type": "custom", "custom": {"name": "sh", "input": "ls"}}


@pytest.mark.req("M34", "M81")
def test_a_repair_is_offered_only_where_somebody_takes_what_comes_of_it(lint: Any) -> None:
    history = [X, {"role": "assistant", "tool_calls": [CUSTOM]}, X]
    told = json.loads(lint({"model": "m", "messages": history}, "--json")[1])
    assert told["findings"][0]["code"] == "missing_tool_result"
    assert "repairs" not in told  # nothing of ours can carry a custom call, repaired or not
    assert "--repair" not in lint({"model": "m", "messages": history})[1]


@pytest.mark.req("M34", "M81")
def test_where_the_meant_provider_would_not_take_a_repair_those_who_would_are_told(
    lint: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    said = {"role": "user", "content": [{"type": "text", "text": "x"}, heard]}
    request = {"model": "m", "messages": [said, *ORPHAN["messages"][1:]]}
    told = json.loads(lint(request, "--json", "--profile", "groq")[1])
    assert [one["change"] for one in told["repairs"]] == ["result_removed"]
    takers = told["repaired_for"]
    assert "openai-chat" in takers
    assert "groq" not in takers
    shown = " ".join(lint(request, "--profile", "groq")[1].split())
    assert f"--repair --profile {takers[0]}" in shown
    assert "groq would not take it even then, only" in shown
    for profile in registry.available():
        code = run(["render", "--repair", "--profile", profile, str(tmp_path / "request.json")])
        assert (code == 0) is (profile in takers), profile
        capsys.readouterr()
