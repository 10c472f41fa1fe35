"""Calls whose arguments Vertex streams: put together from their pieces, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.adapters.gemini.read import Reader
from antiphon.core.answers.answer import Answer
from antiphon.core.answers.assembler import Assembler
from antiphon.core.wire.limits import Limits

GOES_ON = {"willContinue": True}


def answer_of(*calls: dict[str, Any], word: str | None = "STOP", size: int = 0) -> Answer:
    """Return what an answer of these parts of calls comes to, cut into reads of `size` bytes."""
    chunks: list[dict[str, Any]] = [
        {"candidates": [{"content": {"parts": [c]}}]} for c in map(part, calls)
    ]
    if word is not None:
        chunks.append({"candidates": [{"finishReason": word}]})
    body = b"".join(b"data: " + json.dumps(c).encode() + b"\r\n\r\n" for c in chunks)
    reader, assembler = Reader("text/event-stream", Limits(max_arguments_bytes=500)), Assembler()
    for at in range(0, len(body), size or len(body)):
        for delta in reader.feed(body[at : at + (size or len(body))]):
            assembler.feed(delta)
    for delta in reader.end():
        assembler.feed(delta)
    return assembler.end()


def part(call: dict[str, Any]) -> dict[str, Any]:
    signature = call.pop("signature", None)
    return {"functionCall": call} | ({"thoughtSignature": signature} if signature else {})


def pieces(*told: tuple[str, Any], goes_on: bool = True) -> dict[str, Any]:
    """Return a part with pieces: of each the path and the value; a text that ends in … goes on."""
    made: list[dict[str, Any]] = []
    for path, value in told:
        piece: dict[str, Any] = {"jsonPath": path}
        match value:
            case str():
                piece["stringValue"] = value.removesuffix("…")
                if value.endswith("…"):
                    piece["willContinue"] = True
            case bool():
                piece["boolValue"] = value
            case None:
                piece["nullValue"] = "NULL_VALUE"
            case _:
                piece["numberValue"] = value
        made.append(piece)
    return {"partialArgs": made} | (GOES_ON if goes_on else {})


LOOK = {"name": "look", "id": "c1", **GOES_ON}


@pytest.mark.req("M72", "M74", "M144")
@pytest.mark.parametrize("size", [0, 1, 7])
@pytest.mark.parametrize(
    ("parts", "arguments"),
    [
        ([pieces(("$.at", "Boston…")), pieces(("$.at", ", MA")), pieces(("$.n", 50)), {}], {"at": "Boston, MA", "n": 50}),
        # The last part of a call may hold pieces itself, and then nothing follows.
        ([pieces(("$.a[0].b", "x")), pieces(("$.a[1].b", 0.5), goes_on=False)], {"a": [{"b": "x"}, {"b": 0.5}]}),
        ([pieces(("$['a b'].c", True), ('$["d.e"]', None)), {}, {}], {"a b": {"c": True}, "d.e": None}),
        ([pieces(("$.m[0][0]", 1), ("$.m[0][1]", 2), ("$.m[1][0]", 3)), {}], {"m": [[1, 2], [3]]}),
        ([{}], {}),
        ([pieces(("$.s", "…"), ("$.s", "\"\\é")), {}], {"s": "\"\\é"}),
        ([{"name": "look", **pieces(("$.a", "x"))}, {"id": "c1"}], {"a": "x"}),
    ],
)  # fmt: skip
def test_a_call_is_put_together_from_its_pieces(
    parts: list[dict[str, Any]], arguments: Any, size: int
) -> None:
    answer = answer_of(dict(LOOK), *map(dict, parts), size=size)
    assert answer.error is None, answer.error_message
    assert [(c.call_id, c.name, json.loads(c.arguments)) for c in answer.released] == [
        ("c1", "look", arguments)
    ]


@pytest.mark.req("M72")
def test_what_came_whole_with_the_beginning_stays_and_numbers_are_as_they_were_spelled() -> None:
    begun = {**LOOK, "args": {"deep": {"a": [1]}, "n": 1}}
    answer = answer_of(begun, pieces(("$.deep.b", "x"), ("$.deep.a[1]", 2.50)), {})
    (call,) = answer.released
    assert call.arguments == '{"deep":{"a":[1,2.5],"b":"x"},"n":1}'


@pytest.mark.req("M72")
def test_calls_follow_each_other_and_only_what_is_signed_is_kept() -> None:
    first = {**LOOK, "signature": "c2ln"}
    answer = answer_of(first, pieces(("$.a", 1), goes_on=False), {**LOOK, "id": "c2"}, {}, {"name": "f", "args": {}})  # fmt: skip
    assert [(c.call_id, c.arguments) for c in answer.released[:2]] == [("c1", '{"a":1}'), ("c2", "{}")]  # fmt: skip
    assert [c.opaque is not None for c in answer.released] == [True, False, False]


@pytest.mark.req("M74", "M82", "M89")
@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ([dict(LOOK)], "unclosed_arguments"),
        ([dict(LOOK), pieces(("$.a", "x"))], "unclosed_arguments"),
        ([pieces(("$.a", "x"))], "malformed_function_call"),
        ([dict(LOOK), pieces(("$.a", "x…")), {}], "malformed_function_call"),
        ([dict(LOOK), pieces(("$.a", "x"), ("$.a", "y")), {}], "malformed_function_call"),
        ([dict(LOOK), pieces(("$.a", "x…"), ("$.b", "y")), {}], "malformed_function_call"),
        ([dict(LOOK), pieces(("$.a", "x"), ("$.a.b", "y")), {}], "malformed_function_call"),
        ([dict(LOOK), pieces(("$.a[1]", "x")), {}], "malformed_function_call"),
        ([dict(LOOK), pieces(("$.a[0]", 1), ("$.a.b", 1)), {}], "malformed_function_call"),
        ([dict(LOOK), pieces(("$", "x")), {}], "malformed_function_call"),
        ([dict(LOOK), pieces(("$..a", "x")), {}], "malformed_function_call"),
        ([dict(LOOK), pieces(("$[*]", "x")), {}], "malformed_function_call"),
        ([dict(LOOK), pieces(("$" + ".a" * 101, "x")), {}], "malformed_function_call"),
        ([dict(LOOK), {"partialArgs": [{"jsonPath": "$.a", "numberValue": "NaN"}]}], "malformed_function_call"),
        ([dict(LOOK), {"partialArgs": [{"jsonPath": "$.a", "boolValue": True, "stringValue": "x"}]}], "malformed_function_call"),
        ([dict(LOOK), {"name": "fly", **GOES_ON}, {}], "malformed_function_call"),
        ([dict(LOOK), {**LOOK, "id": "c2"}, {}], "malformed_function_call"),
        ([dict(LOOK), pieces(("$.a", "x" * 600)), {}], "answer_too_large"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_or_is_not_whole_is_never_run(
    parts: list[dict[str, Any]], error: str
) -> None:
    answer = answer_of(*parts)
    assert (answer.committable, answer.error, answer.released) == (False, error, ())


def test_a_cut_inside_a_call_is_a_cut() -> None:
    answer = answer_of(dict(LOOK), pieces(("$.a", "x")), word=None)
    assert (answer.error, answer.released) == ("stream_incomplete", ())
