"""State of a provider in files of ours: it goes back to whom it came from, and to nobody else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli import run
from antiphon.cli.requests.kept_state import kept_state

FIXTURES = Path(__file__).parent.parent / "data" / "fixtures" / "render"
X = {"id": "m1", "role": "user", "kind": "text", "text": "Weather?"}
CALL = {"id": "m2", "role": "assistant", "kind": "tool_call", "call_id": "c", "name": "f", "arguments": {}}  # fmt: skip
RESULT = {"id": "m3", "role": "tool", "kind": "tool_result", "call_id": "c", "outcome": "success", "content": "rain"}  # fmt: skip
SIGNED = {**CALL, "provider_state": {"thoughtSignature": "c2ln"}}


@pytest.fixture
def rendered(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    """The body that a graph is rendered to."""

    def call(graph: Any, profile: str, model: str = "m") -> Any:
        file = tmp_path / "graph.json"
        file.write_text(json.dumps(graph), encoding="utf-8")
        assert run(["render", "--profile", profile, "--model", model, str(file)]) == 0
        return json.loads(capfdbinary.readouterr()[0])

    return call


@pytest.mark.req("M2", "M48")
@pytest.mark.parametrize(
    "profile",
    ["anthropic", "gemini", "gemini-interactions", "openai-responses", "llamacpp", "ollama-openai"],
)
def test_the_common_graph_is_rendered_as_its_fixture_with_all_that_was_kept(
    rendered: Any, profile: str
) -> None:
    graph = json.loads((FIXTURES / "graph.json").read_text("utf-8"))
    wanted = json.loads((FIXTURES / f"{profile.replace('-', '_')}.json").read_text("utf-8"))
    assert rendered(graph, profile, wanted.get("model", "gemini-3.8-flash")) == wanted


def test_reasoning_that_was_kept_of_an_answer_stands_before_what_it_said(rendered: Any) -> None:
    graph = json.loads((FIXTURES / "graph.json").read_text("utf-8"))
    wanted = json.loads((FIXTURES / "deepseek.json").read_text("utf-8"))
    assert rendered(graph, "deepseek")["messages"] == wanted["messages"]


@pytest.mark.req("M48")
def test_a_signature_beside_a_block_goes_back_on_its_part(rendered: Any) -> None:
    said = {"id": "t", "role": "assistant", "kind": "text", "text": "So.", "provider_state": {"thoughtSignature": "dA=="}}  # fmt: skip
    parts = rendered([X, said, SIGNED, RESULT], "gemini")["contents"][1]["parts"]
    assert [part["thoughtSignature"] for part in parts] == ["dA==", "c2ln"]


@pytest.mark.req("M48")
def test_nobody_is_shown_what_another_made(rendered: Any) -> None:
    for profile in ("openai-chat", "openai-responses", "gemini-interactions", "mistral"):
        made = rendered([X, SIGNED, RESULT], profile)
        assert "c2ln" not in json.dumps(made)
    foreign = {**CALL, "provider_state": {"thoughtSignature": "c2ln"}, "origin": "openai-chat"}
    made = rendered([X, foreign, RESULT], "gemini")
    assert "c2ln" not in json.dumps(made)


@pytest.mark.parametrize(
    ("state", "origin", "profile"),
    [
        ({"thoughtSignature": "x"}, None, "gemini"),
        ({"id": "rs_1", "encrypted_content": "x"}, None, "openai-responses"),
        ({"signature": "x"}, None, "anthropic"),
        ({"signature": "x"}, "gemini-interactions", "gemini-interactions"),
        ({"signature": "x"}, "somebody", "anthropic"),
        ({"data": "x"}, None, "anthropic"),
        ({"cookie": "x"}, None, None),
        ({}, "gemini", None),
        ("x", "gemini", None),
    ],
)
def test_whose_state_it_is_is_said_or_shows(state: Any, origin: Any, profile: Any) -> None:
    kept = kept_state({"provider_state": state, "origin": origin})
    assert (kept and kept.profile) == profile


CALLED = [
    {"id": "q", "role": "user", "kind": "text", "text": "x"},
    {"id": "a", "role": "assistant", "kind": "tool_call", "call_id": "c1", "name": "f"},
    {"id": "b", "role": "assistant", "kind": "tool_call", "call_id": "c2", "name": "f"},
    {"id": "r", "role": "tool", "kind": "tool_result", "call_id": "c1", "content": "1"},
    {"id": "s", "role": "tool", "kind": "tool_result", "call_id": "c2", "content": "2"},
]


@pytest.mark.req("M26")
@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"c1": "call_a", "c2": "call_b"}, ["call_a", "call_b"]),
        ({"c1": "call_a"}, ["call_a", "c2"]),
        ({"c1": "call_0", "c2": "call_0"}, ["c1", "c2"]),
        ({"c1": "c2"}, ["c1", "c2"]),
        ({"c1": None, "c2": 5, "c9": "x"}, ["c1", "c2"]),
    ],
)
def test_calls_go_back_by_the_ids_that_their_provider_gave_unless_it_gave_one_twice(
    given: dict[str, Any], sent: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "case.json"
    file.write_text(json.dumps({"graph": CALLED, "stored": {"provider_call_ids": given}}), "utf-8")
    assert run(["render", "--profile", "openai-chat", str(file)]) == 0
    messages = json.loads(capsys.readouterr().out)["messages"]
    assert [call["id"] for call in messages[1]["tool_calls"]] == sent
    assert [message["tool_call_id"] for message in messages[2:]] == sent


@pytest.mark.parametrize(
    ("state", "content"),
    [
        ({"data": "x"}, [{"type": "redacted_thinking", "data": "x"}]),
        ({"signature": "x"}, [{"type": "thinking", "thinking": "hm", "signature": "x"}]),
        ({"signature": ""}, []),
        ({"id": "x"}, []),
    ],
)
def test_thinking_goes_back_as_what_it_is_and_not_at_all_unsigned(
    state: dict[str, str], content: list[Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    thought: dict[str, Any] = {"role": "assistant", "kind": "reasoning", "text": "hm"}
    thought |= {"origin": "anthropic", "provider_state": state}
    said = {"role": "assistant", "kind": "text", "text": "ok"}
    line: list[dict[str, Any]] = [CALLED[0], thought, said, CALLED[0]]
    graph = [{**block, "id": f"m{n}"} for n, block in enumerate(line)]
    file = tmp_path / "case.json"
    file.write_text(json.dumps(graph), "utf-8")
    assert run(["render", "--profile", "anthropic", str(file)]) == 0
    said_back = json.loads(capsys.readouterr().out)["messages"][1]["content"]
    assert said_back == [*content, {"type": "text", "text": "ok"}]
