"""What people paste: a request is found in it, at the places that they see, or they are told why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from antiphon.cli import run
from antiphon.cli.requests.documents import read_documents
from antiphon.errors import InvalidInput

X = {"role": "user", "content": "it's é"}
ORPHAN = {"model": "m", "messages": [X, {"role": "tool", "tool_call_id": "c1", "content": "1"}]}
BODY = json.dumps(ORPHAN)
IN_A_SHELL = BODY.replace("'", "'\"'\"'")
PYTHON = f"400 Bad Request, sent: {ORPHAN}, answered: {{'error': None}}"
OPTIONS = f"Request options: {{'method': 'post', 'files': None, 'json_data': {ORPHAN}}}"
PASTED = {
    "a curl command": f"curl https://x.example/v1 -H 'a: b' -d '{IN_A_SHELL}' --compressed",
    "one of several lines": f"$ curl https://x.example/v1 \\\n  --data-raw '{IN_A_SHELL}'",
    "one in double quotes": f"curl x --json {json.dumps(BODY, ensure_ascii=False)}",
    "one from a browser": "curl x --data-raw $'{}'".format(
        BODY.replace("\\", "\\\\").replace("'", "\\'").replace("!", "\\u0021")
    ),
    "one with a here document": f"curl x -d @- <<EOF\n{BODY}\nEOF",
    "a line of a log": f"2026-11-30 ERROR upstream said 400, body={BODY} after 2 tries",
    "what Python printed": PYTHON,
    "what the SDK of OpenAI logs": OPTIONS,
    "a line of a batch": json.dumps({"custom_id": "1", "url": "/v1/x", "body": ORPHAN}),
}


def written(folder: Path, text: str) -> str:
    file = folder / "pasted.txt"
    file.write_text(text, encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("text", PASTED.values(), ids=PASTED)
def test_the_request_in_what_was_pasted_is_judged(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, text)
    assert read_documents(file)[0].request == ORPHAN
    assert run(["lint", file]) == 3
    assert "orphan_tool_result at " in capsys.readouterr().out


def test_places_are_those_of_the_file(tmp_path: Path) -> None:
    text = f"some words\ncurl x -d '{BODY.replace(chr(39), '_')}'"
    document = read_documents(written(tmp_path, text))[0]
    assert document.found == "what this curl command sends"
    assert document.text.rstrip() == "\n".join(
        [" " * len("some words"), " " * len("curl x -d '") + BODY.replace("'", "_")]
    )


def test_each_line_of_a_batch_is_judged_and_one_that_is_refused_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    legal = json.dumps({"model": "m", "messages": [X]})
    file = written(tmp_path, f"{legal}\n\n{BODY}\n")
    assert run(["lint", file]) == 3
    out = capsys.readouterr().out
    assert f"accept  {file}:1" in out
    assert f"reject  {file}:3" in out
    assert "     3 │ " in out
    assert "".join(f"--profile openai-chat <(sed -n 3p {file})".split()) in "".join(out.split())

    assert run(["lint", "--json", file]) == 3
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "reject"
    assert [(one["line"], one["verdict"]) for one in told["requests"]] == [
        (1, "accept"),
        (3, "reject"),
    ]


def test_what_takes_one_request_says_how_to_choose_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, f"{BODY}\n{BODY}\n")
    assert run(["render", "--profile", "anthropic", file]) == 2
    assert f"error[several_requests] at {file}: It holds 2 requests" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ('{"messages": [\n  {"role": "user"},\n]}', ":3:1", "a comma stands before the ]"),
        ('{"messages": [],}', ":1:17", "a comma stands before the }"),
        ("curl x -d '{\"messages\": [],}'", ":1:28", "a comma stands before the }"),
        ('{"messages": [], \'a\': 1}', ":1:18", "double quotes"),
        ('{"messages": None}', ":1:14", "JSON says null"),
        ('{"messages": [] // all\n}', ":1:17", "it has no comments"),
        ('{"messages": [', ":1:15", "it ends before its time"),
        ('body: {"messages": [', ":1:21", "it ends before its time"),
        ('{"messages": []}\n{"messages": [,]}', ":2:15", "expecting value"),
        ("curl x -d @body.json", "", "This command sends the file body.json"),
        ("curl x --data-binary '@a b.json'", "", "This command sends the file a"),
        ("hello", ":1:1", "expecting value"),
        ("curl x", ":1:1", "expecting value"),
        ("curl x -d 'never closed", ":1:1", "expecting value"),
        ("{'a': open}", ":1:2", "double quotes"),
    ],
)  # fmt: skip
def test_what_is_no_json_is_told_with_its_place_and_in_words(
    text: str, at: str, says: str, tmp_path: Path
) -> None:
    file = written(tmp_path, text)
    with pytest.raises(InvalidInput, match=r"^invalid_json: ") as refused:
        read_documents(file)
    assert (refused.value.code, refused.value.at) == ("invalid_json", f"{file}{at}")
    assert says in refused.value.args[0]


def test_a_request_that_has_a_field_named_as_a_wrapper_is_judged_itself(tmp_path: Path) -> None:
    value = {**ORPHAN, "body": {"messages": [X]}}
    assert read_documents(written(tmp_path, json.dumps(value)))[0].request == value
