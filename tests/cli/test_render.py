"""`antiphon render`: the exact bytes on standard output, and nothing else there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli import run
from tests.cli.test_lint import ASKS, LATE, ORPHAN, X, case, document
from tests.golden import requests as golden

GRAPH = Path(__file__).parent.parent / "data" / "fixtures" / "render" / "graph.json"


@pytest.fixture
def render(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    """Render a value and return exit code, standard output and standard error."""

    def call(value: Any, *options: str) -> tuple[int, bytes, str]:
        file = tmp_path / "in.json"
        file.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
        profile = () if "--profile" in options else ("--profile", "openai-chat")
        code = run(["render", *profile, *options, str(file)])
        out, err = capfdbinary.readouterr()
        return code, out, err.decode()

    return call


@pytest.mark.req("M2", "M51")
def test_standard_output_is_the_body_to_the_byte(render: Any) -> None:
    code, out, err = render({"model": "m", "stream": True, "messages": [X]})
    assert code == 0
    assert out == (
        b'{"model":"m","stream":true,"stream_options":{"include_usage":true},"store":false,'
        b'"messages":[{"role":"user","content":"x"}]}'
    )
    assert err == ""


@pytest.mark.req("M20", "M42")
@pytest.mark.parametrize(("name", "roles"), [("A-008", 3), ("A-011", 2), ("A-012", 1)])
def test_the_graph_of_a_case_is_rendered_and_what_was_mapped_is_told(
    render: Any, name: str, roles: int
) -> None:
    code, out, err = render(document(case(name)))
    assert code == 0
    messages = json.loads(out)["messages"]
    assert len(messages) == roles
    assert "mapped " in err
    expected = case(name)["expect"].get("rendered")
    assert expected is None or messages == expected


@pytest.mark.req("M88")
def test_what_may_not_be_sent_is_not_printed(render: Any) -> None:
    code, out, err = render(ORPHAN)
    assert (code, out) == (3, b"")
    assert err.startswith("error[orphan_tool_result] at messages[1]:")
    assert render({"messages": [5]})[:2] == (3, b"")


def test_a_refusal_is_json_where_json_was_asked_for(render: Any) -> None:
    code, out, _ = render(ORPHAN, "--json")
    told = json.loads(out)["error"]
    assert (code, told["code"], told["at"]) == (3, "orphan_tool_result", "messages[1]")
    assert [f["code"] for f in told["findings"]] == ["orphan_tool_result"]


def test_what_cannot_be_carried_is_refused_and_not_dropped(render: Any) -> None:
    custom = {"id": "a", "type": "custom", "custom": {"name": "f", "input": "x"}}
    result = {"role": "tool", "tool_call_id": "a", "content": "1"}
    code, out, err = render({"messages": [X, {**ASKS, "tool_calls": [custom]}, result]})
    assert (code, out) == (2, b"")
    assert err.startswith("error[unsupported_parameter] at messages[1].tool_calls[0]:")


def test_the_common_graph_brings_its_tools_and_options(render: Any) -> None:
    code, out, err = render(GRAPH.read_bytes(), "--model", "gpt-6-astra")
    assert code == 0
    body = json.loads(out)
    _, recorded = golden.load(golden.HERE / "openai-chat" / "travel_desk")
    wanted = json.loads(recorded)
    for declared in wanted["tools"]:
        del declared["function"]["strict"]  # the file does not say so
    wanted["messages"][0]["role"] = "system"  # without the fact that its model wants developer
    assert body == wanted
    # The file keeps what another provider's model had thought.
    assert err == "mapped reasoning_dropped at a-1-reasoning\n"


def test_the_address_decides_how_a_server_is_spoken_to(render: Any) -> None:
    request = {"model": "m", "max_tokens": 9, "messages": [X]}
    assert json.loads(render(request)[1])["max_completion_tokens"] == 9
    elsewhere = json.loads(render(request, "--base-url", "http://127.0.0.1:8080/v1")[1])
    assert elsewhere["max_tokens"] == 9
    assert "store" not in elsewhere


def test_json_shows_the_whole_request_with_its_digests(render: Any) -> None:
    _, body, _ = render({"model": "m", "messages": [X]})
    code, out, _ = render({"model": "m", "messages": [X]}, "--json")
    told = json.loads(out)
    assert code == 0
    assert told["body"].encode() == body
    assert told["method"] == "POST"
    assert told["url"] == "https://api.openai.com/v1/chat/completions"
    assert len(told["request_digest"]) == len(told["sequence_digest"]) == 64
    assert told["mappings"] == []


@pytest.mark.req("M42")
def test_a_request_of_one_form_comes_out_in_another(render: Any) -> None:
    request = {**LATE, "model": "claude-opus-5", "max_tokens": 9, "stop": "END", "user": "u1"}
    code, out, err = render(request, "--from", "openai-chat", "--profile", "anthropic")
    assert code == 0
    body = json.loads(out)
    assert body["stop_sequences"] == ["END"]
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user"]
    assert [p["type"] for p in body["messages"][2]["content"]] == ["tool_result", "text"]
    told = [line.split()[1:4] for line in err.splitlines()]
    assert ["option_respelled", "at", "stop:"] in told
    assert ["option_dropped", "at", "user:"] in told
    assert ["result_hoisted", "at", "messages[2]:"] in told


def test_there_and_back_says_the_same(render: Any) -> None:
    _, there, _ = render({**LATE, "max_tokens": 9}, "--profile", "anthropic")
    code, back, _ = render(there, "--from", "anthropic", "--profile", "openai-chat")
    assert code == 0
    asked = [LATE["messages"][n] for n in (0, 1, 3, 2)]
    assert json.loads(back)["messages"] == asked


@pytest.mark.parametrize(
    "option", [{"seed": 5}, {"logprobs": True}, {"response_format": {"type": "json_object"}}]
)
def test_an_option_that_the_other_form_has_no_word_for_is_refused_at_its_place(
    render: Any, option: dict[str, Any]
) -> None:
    code, out, err = render({**LATE, **option}, "--profile", "anthropic")
    assert (code, out) == (2, b"")
    assert err.startswith(f"error[unsupported_parameter] at {next(iter(option))}: anthropic ")


def test_the_form_may_be_named_where_it_could_be_either(render: Any) -> None:
    request = {"model": "m", "messages": [X], "max_tokens": 9}
    for source in ("anthropic", "openai-chat"):
        assert render(request, "--from", source, "--profile", "groq")[0] == 0
    assert render(request, "--from", "nobody", "--profile", "groq")[0] == 2


def test_a_body_without_a_model_says_that_it_lacks_one(render: Any) -> None:
    code, out, err = render({"messages": [X]})
    assert (code, json.loads(out)["model"]) == (0, "unnamed-model")
    assert "--model" in err
