"""`antiphon assemble`: what it reads, what it prints, what it exits with."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli import run
from tests.support.chat_stream import DONE, call, chunk, text, whole

DATA = Path(__file__).parent.parent / "data"
CASES = [
    case
    for path in sorted((DATA / "cases").glob("B-*.json"))
    if (case := json.loads(path.read_text(encoding="utf-8")))["provider"] == "openai-chat"
]
KEYS = {
    "text",
    "reasoning",
    "tool_calls",
    "finish",
    "usage",
    "committable",
    "error",
    "duplicates_dropped",
    "diagnostics",
}
CITY = '{"city":"Oslo"}'
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def recording(tmp_path: Path) -> Any:
    """Write what is given to a file, as bytes or as JSON, and return its path."""

    def write(content: bytes | dict[str, Any]) -> str:
        path = tmp_path / "answer"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return str(path)

    return write


def assemble(capsys: Capture, *arguments: str) -> tuple[int, dict[str, Any]]:
    code = run(["assemble", "--json", *arguments])
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    found: dict[str, Any] = json.loads(out)
    return code, found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_reported_fault_comes_to_what_is_expected(
    case: dict[str, Any], recording: Any, capsys: Capture
) -> None:
    code, found = assemble(
        capsys,
        "--profile",
        case["provider"],
        recording({"from": case["provider"], **case["given"]}),
    )
    assert set(found) == KEYS
    expected = case["expect"]
    assert {key: found[key] for key in expected} == expected
    assert code == (0 if expected["committable"] else 4)


def test_a_raw_transcript_is_read_as_it_is(capsys: Capture) -> None:
    stream = DATA / "fixtures/streams/openai_chat/03_parallel_tools.sse"
    code, found = assemble(capsys, "--profile", "openai-chat", str(stream))
    assert code == 0
    assert found == {
        "text": "I'll check both.",
        "reasoning": None,
        "tool_calls": [
            {"id": "call_9fT2aQ", "name": "get_weather", "arguments": {"city": "Oslo"}},
            {"id": "call_4kLm0Z", "name": "get_time", "arguments": {"zone": "Europe/Oslo"}},
        ],
        "finish": "tool_calls",
        "usage": {
            "input_tokens": 84,
            "output_tokens": 40,
            "cached_tokens": 0,
            "reasoning_tokens": 0,
        },
        "committable": True,
        "error": None,
        "duplicates_dropped": 0,
        "diagnostics": [],
    }


@pytest.mark.parametrize(
    "content",
    [
        whole({"content": "Aye."}),
        b"\xef\xbb\xbf" + text("Aye.") + chunk(finish="stop"),
        {"chunks": [text("Aye.").decode(), chunk(finish="stop").decode()]},
        {"chunks": [whole({"content": "Aye."}).decode()], "content_type": "application/json"},
        {"chunks": None, "chunks_base64": [base64.b64encode(text("Aye.") + chunk(finish="stop")).decode()], "tools": None, "content_type": None, "from": None},
    ],
)  # fmt: skip
def test_an_answer_may_come_in_any_of_its_forms(
    content: bytes | dict[str, Any], recording: Any, capsys: Capture
) -> None:
    code, found = assemble(capsys, recording(content))
    assert (code, found["text"], found["committable"]) == (0, "Aye.", True)
    assert found["usage"] is None


def test_standard_input_is_a_file_too(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    class Input:
        buffer = io.BytesIO(text("Aye.") + chunk(finish="stop"))

    monkeypatch.setattr("sys.stdin", Input)
    assert assemble(capsys, "-")[1]["text"] == "Aye."


@pytest.mark.req("M72", "M89", "M98")
def test_an_answer_that_may_not_be_committed_exits_with_4_and_lists_no_call(
    recording: Any, capsys: Capture
) -> None:
    body = text("I look.") + call(0, "c1", "weather", CITY)
    code, found = assemble(capsys, recording(body))
    assert (code, found["error"], found["tool_calls"], found["text"]) == (
        4,
        "stream_incomplete",
        [],
        "I look.",
    )


DECLARED = {
    "openai-chat": [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}],
    "openai-responses": [{"type": "function", "name": "weather", "parameters": WEATHER}],
    "anthropic": [{"name": "weather", "input_schema": WEATHER}],
    "gemini": [{"functionDeclarations": [{"name": "weather", "parameters": WEATHER}]}],
    "bedrock": {"tools": [{"toolSpec": {"name": "weather", "inputSchema": {"json": WEATHER}}}]},
}


@pytest.mark.req("M72", "M144")
@pytest.mark.parametrize("tools", DECLARED.values(), ids=DECLARED)
def test_only_calls_that_fit_a_declared_tool_are_listed(
    tools: Any, recording: Any, capsys: Capture
) -> None:
    body = (
        call(0, "c1", "weather", CITY)
        + call(1, "c2", "weather", '{"city":7}')
        + call(2, "c3", "unheard_of", "{}")
        + chunk(finish="tool_calls")
    )
    code, found = assemble(capsys, recording({"chunks": [body.decode()], "tools": tools}))
    assert code == 0
    assert [c["id"] for c in found["tool_calls"]] == ["c1"]


def test_numbers_in_arguments_keep_their_exact_value(recording: Any, capsys: Capture) -> None:
    body = call(0, "c1", "pay", '{"n":12345678901234567890.123456789}') + chunk(finish="tool_calls")
    run(["assemble", "--json", recording(body)])
    assert "12345678901234567890.123456789" in capsys.readouterr().out


def test_a_page_of_html_is_no_answer(recording: Any, capsys: Capture) -> None:
    code, found = assemble(capsys, "--content-type", "text/html", recording(b"<html>"))
    assert (code, found["error"]) == (4, "malformed_event")


@pytest.mark.parametrize(
    ("content", "at"),
    [
        ({"chunks": "x"}, "chunks"),
        ({"chunks": [1]}, "chunks"),
        ({"chunks_base64": ["%"]}, "chunks_base64[0]"),
        ({"chunks": [], "from": 7}, "from"),
        ({"chunks": [], "content_type": []}, "content_type"),
        ({"chunks": [], "tools": "x"}, "tools"),
        ({"chunks": [], "tools": [{"type": "function"}]}, "tools[0]"),
        ({"chunks": [], "tools": [{"name": "f", "parameters": "x"}]}, "tools[0]"),
        ({"chunks": [], "from": "unheard-of"}, "unheard-of"),
    ],
)
def test_a_recording_that_is_none_exits_with_2_and_names_the_place(
    content: dict[str, Any], at: str, recording: Any, capsys: Capture
) -> None:
    code, found = assemble(capsys, recording(content))
    assert code == 2
    assert found["error"]["at"] == at


def test_a_file_that_is_not_there_exits_with_2(tmp_path: Path, capsys: Capture) -> None:
    code, found = assemble(capsys, str(tmp_path / "missing"))
    assert (code, found["error"]["code"]) == (2, "unreadable")


@pytest.mark.req("M78")
def test_a_person_reads_what_may_be_committed_and_what_may_not(
    recording: Any, capsys: Capture
) -> None:
    body = (
        chunk({"reasoning": "Hm."})
        + text("I look.")
        + call(0, "c1", "weather", '{"city":7}')
        + event_usage()
        + chunk(finish="tool_calls")
    )
    path = recording({"chunks": [body.decode()], "tools": DECLARED["openai-chat"]})
    assert run(["assemble", path]) == 0
    told = capsys.readouterr().out
    for words in (
        "may be committed",
        "I look.",
        "Hm.",
        "9 input, 2 output",
        "will not run, city: 7",
    ):
        assert words in told
    assert run(["assemble", recording(text("I look.") + call(0, "c1", "weather", '{"ci'))]) == 4
    told = capsys.readouterr().out
    for words in ("may not be committed [stream_incomplete]", "not known", "half call  weather"):
        assert words in told


def event_usage() -> bytes:
    return chunk({}, usage={"prompt_tokens": 9, "completion_tokens": 2})


def test_an_end_marker_is_no_finish(recording: Any, capsys: Capture) -> None:
    code, found = assemble(capsys, recording(text("Aye.") + DONE))
    assert (code, found["error"], found["finish"]) == (4, "missing_finish_reason", None)
