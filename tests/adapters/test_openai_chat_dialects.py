"""The named dialects of Chat Completions: what each says otherwise, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from antiphon.adapters import registry
from antiphon.adapters.openai_chat.dialects import DIALECTS
from antiphon.core.answer import Answer
from antiphon.core.assembler import Assembler
from antiphon.core.blocks import Reasoning
from antiphon.core.deltas import Usage
from antiphon.core.rules import check
from antiphon.engine.models import HOMES
from tests.adapters.chat_judge import problems
from tests.golden import requests as golden

FIXTURES = Path(__file__).parent.parent / "data" / "fixtures"
NAMED = sorted(DIALECTS.keys() - {"openai-chat", "llamacpp"})
CASES = {name: folder for name, folder in golden.cases() if name.split("/")[0] in NAMED}

DIFFERENCES: dict[str, dict[str, tuple[object, str]]] = {}
"""Where our rendering of the common graph is not its fixture: path, our value, and why."""


def fixture(dialect: str) -> Any:
    return json.loads((FIXTURES / "render" / f"{dialect.replace('-', '_')}.json").read_text())


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every field of a body with its place, an empty container as itself."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{number}]")
    else:
        yield path, value


# Exact bytes.


@pytest.mark.req("M2", "M20", "M30", "M31", "M42", "M48", "M87")
@pytest.mark.parametrize("name", CASES)
def test_a_golden_sequence_renders_to_its_recorded_bytes(name: str) -> None:
    case, recorded = golden.load(CASES[name])
    rendering = case.rendering()
    assert rendering.request.body == recorded
    assert tuple(m.rule for m in rendering.mappings) == case.mapped


@pytest.mark.req("M9", "M87")
@pytest.mark.parametrize("dialect", NAMED)
def test_the_golden_bytes_were_made_by_this_very_adapter(dialect: str) -> None:
    """Another digest is another adapter: raise its version, and keep the bytes of this one."""
    adapter = registry.get(dialect)
    recorded = (golden.HERE / dialect / "adapter.digest").read_text().strip()
    assert (adapter.name, adapter.version, adapter.digest) == (dialect, 1, recorded)


@pytest.mark.req("M2", "M9")
def test_no_two_dialects_are_one_adapter() -> None:
    assert len({registry.get(name).digest for name in DIALECTS}) == len(DIALECTS)


@pytest.mark.req("M2", "M42", "M48")
@pytest.mark.parametrize("dialect", NAMED)
def test_the_common_graph_says_what_its_fixture_says_field_by_field(dialect: str) -> None:
    case, recorded = golden.load(CASES[f"{dialect}/travel_desk"])
    graph = json.loads((FIXTURES / "render" / "graph.json").read_text())
    assert [m.id for m in case.messages] == graph["activePath"]
    expected = dict(leaves(fixture(dialect)))
    differences = DIFFERENCES.get(dialect, {})
    assert all(expected.get(path) != value for path, (value, _) in differences.items()), "stale"
    expected |= {path: value for path, (value, _) in differences.items()}
    assert dict(leaves(json.loads(recorded))) == expected


OWN_FIELDS: dict[str, set[str]] = {
    "qwen-vllm": {"chat_template_kwargs", "reasoning"},
}
"""What a dialect has beyond the published types of OpenAI, in a request or in a message."""


@pytest.mark.req("M2", "M16", "M42", "M88")
@pytest.mark.parametrize("name", CASES)
def test_beside_the_dialects_own_fields_there_is_nothing_that_the_published_types_lack(
    name: str,
) -> None:
    _, recorded = golden.load(CASES[name])
    own = OWN_FIELDS[name.split("/")[0]]
    request = {k: v for k, v in json.loads(recorded).items() if k not in own}
    request["messages"] = [
        {k: v for k, v in message.items() if k not in own} for message in request["messages"]
    ]
    if request["stream"]:  # the published type of a streamed request says that it is one
        assert problems(json.dumps(request).encode()) == []


def test_a_dialect_is_at_home_where_the_settings_say() -> None:
    for name, dialect in DIALECTS.items():
        assert dialect.wire.home == (HOMES[name].base_url or ""), name


# Recorded streams.

STREAMS = [
    pytest.param(dialect, path, id=f"{dialect}/{path.stem}")
    for dialect in NAMED
    for path in sorted((FIXTURES / "streams" / dialect.replace("-", "_")).glob("*.sse"))
]
OWN_CODES = {"truncated": "unclosed_arguments", "refused": "content_filter"}


def read(dialect: str, *reads: bytes) -> Answer:
    """What the engine would make of these reads, through the dialect's own reader."""
    reader, assembler = registry.get(dialect).reader("text/event-stream"), Assembler()
    for data in reads:
        for delta in reader.feed(data):
            assembler.feed(delta)
    for delta in reader.end():
        assembler.feed(delta)
    return assembler.end()


def expected_code(expected: dict[str, Any]) -> str | None:
    if expected["committable"]:
        return None
    if expected["error"] is None:
        return OWN_CODES[expected["finish"]["turn"]]
    word = expected["error"]["class"]
    return "stream_incomplete" if word == "stream_ended_without_finish" else str(word)


@pytest.mark.req("M71", "M72", "M73", "M74")
@pytest.mark.parametrize(("dialect", "stream"), STREAMS)
def test_a_recorded_stream_comes_to_what_it_says_however_it_is_cut(
    dialect: str, stream: Path
) -> None:
    body, expected = stream.read_bytes(), json.loads(stream.with_suffix(".expect.json").read_text())
    answer = read(dialect, body)
    assert (answer.text, answer.reasoning) == (expected["text"], expected["reasoning"])
    assert [(c.call_id, c.name, c.arguments) for c in answer.calls] == [
        (c["id"], c["name"], c["arguments"]) for c in expected["tool_calls"]
    ]
    assert [c.call_id for c in answer.released] == expected["dispatchable"]
    assert (answer.finish, answer.handle) == (expected["finish"]["native"], expected["handle"])
    assert answer.committable is expected["committable"]
    assert answer.error == expected_code(expected)
    assert answer.usage == Usage(**(expected["usage"] or {}))
    assert read(dialect, *(body[i : i + 1] for i in range(len(body)))) == answer
    for cut in range(1, len(body), 37):
        assert read(dialect, body[:cut], body[cut:]) == answer, cut


@pytest.mark.req("M31")
@pytest.mark.parametrize(("dialect", "stream"), STREAMS)
def test_reasoning_keeps_whose_it_is(dialect: str, stream: Path) -> None:
    blocks = [b for b in read(dialect, stream.read_bytes()).blocks if isinstance(b, Reasoning)]
    expected = json.loads(stream.with_suffix(".expect.json").read_text())
    said = expected["committable"] and expected["reasoning"] is not None
    assert [b.opaque.profile for b in blocks if b.opaque] == ([dialect] if said else [])


# Pairs: one thing that the dialect takes, and the same thing as it does not.


class Pair(NamedTuple):
    dialect: str
    code: str
    legal: list[dict[str, Any]]
    illegal: list[dict[str, Any]]
    more: dict[str, Any] = {}  # noqa: RUF012  # never changed


USER = {"role": "user", "content": "x"}


def asks(*ids: str, **fields: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": name, "type": "function", "function": function} for name in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls, **fields}


def result(name: str, **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": "1", **fields}


def shows(image: object) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": image}]}


PNG = "data:image/png;base64,iVBORw0KGgo="
LONG = "chatcmpl-tool-" + "0123456789abcdef" * 4
NO_DEVELOPER = ([{"role": "system", "content": "s"}, USER], [{"role": "developer", "content": "s"}, USER])  # fmt: skip

PAIRS = [
    Pair("qwen-vllm", "role_unsupported", *NO_DEVELOPER),
    Pair("qwen-vllm", "block_not_allowed", [USER, {"role": "assistant", "content": "no"}, USER], [USER, {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, USER]),
    Pair("qwen-vllm", "missing_tool_result", [USER, asks(LONG), result(LONG)], [USER, asks(LONG)]),
    Pair("qwen-vllm", "orphan_tool_result", [USER, asks("a", reasoning="r"), result("a")], [USER, result("a")]),
]  # fmt: skip


def verdict(pair: Pair, messages: list[dict[str, Any]]) -> list[str]:
    """The codes that lint gives a request as it stands."""
    parsed = registry.get(pair.dialect).parse({"model": "m", "messages": messages, **pair.more})
    assert parsed.findings == ()
    profile = registry.get(pair.dialect, parsed.facts).profile
    return [f.code for f in check(parsed.messages, profile, mapped=False, tools=parsed.tools)]


@pytest.mark.req("M2", "M30", "M48")
@pytest.mark.parametrize("pair", PAIRS, ids=[f"{n}-{p.dialect}-{p.code}" for n, p in enumerate(PAIRS)])  # fmt: skip
def test_of_each_pair_one_is_taken_and_the_other_refused(pair: Pair) -> None:
    assert verdict(pair, pair.legal) == []
    assert verdict(pair, pair.illegal)[0] == pair.code


def test_every_dialect_has_pairs() -> None:
    assert {pair.dialect for pair in PAIRS} == set(NAMED)
