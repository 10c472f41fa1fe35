"""Frames are folded as the shared vectors say; whatever happens to them, no state is invented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.client.feed import told
from antiphon.client.state import State, attached, reduce
from antiphon.core.events import CaughtUp, Durable, DurableEvent, Preview
from antiphon.core.telling.attach import Frame

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "client" / "reduce.json").read_text("utf-8")
)


def read(frame: dict[str, Any]) -> Frame | None:
    """The frame, or None where a new stream begins."""
    if frame == {"attach": True}:
        return None
    read: Frame = msgspec.convert(frame, type=Frame)
    return read


def folded(vector: dict[str, Any]) -> tuple[State, list[Any]]:
    state, heard = State(seq=vector.get("after", 0)), list[Any]()
    for one in vector["frames"]:
        frame = read(one)
        if frame is None:
            state = attached(state)
            continue
        before, state = state, reduce(state, frame)
        for item in told(before, state, frame):
            match item:
                case Durable(seq=seq):
                    heard.append(seq)
                case CaughtUp():
                    heard.append("caught_up")
                case Preview():
                    heard.append([item.run, item.generation, item.block, item.offset, item.text])
    return state, heard


def plain(state: State) -> dict[str, Any]:
    return {
        "seq": state.seq,
        "head": state.head,
        "runs": dict(state.runs),
        "messages": sorted(state.messages),
        "deleted": sorted(state.deleted),
        "previews": {
            run: {
                "generation": shown.generation,
                "blocks": [[b.block, b.channel, b.text] for b in shown.blocks],
            }
            for run, shown in state.previews.items()
        },
        "caught_up": state.caught_up,
        "behind": state.behind,
        "ended": state.ended,
    }


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_frames_are_folded_as_the_vectors_say(vector: dict[str, Any]) -> None:
    state, heard = folded(vector)
    known = plain(state)
    expected = {name: value for name, value in vector.items() if name in known}
    assert {name: known[name] for name in expected} == expected
    assert heard == vector["told"]


def test_every_kind_of_frame_and_event_is_in_a_vector() -> None:
    frames = [frame for vector in VECTORS for frame in vector["frames"] if "type" in frame]
    kinds = {kind.__struct_config__.tag for kind in Frame.__args__}
    assert {frame["type"] for frame in frames} == kinds
    events = {frame["event"]["type"] for frame in frames if frame["type"] == "durable"}
    named = {kind.__struct_config__.tag for kind in DurableEvent.__args__}
    assert events == named - {"dispatch.changed"}


WHOLE = [
    {"type": "durable", "seq": 1, "at_ms": 1, "event": {"type": "run.changed", "run": "r", "status": "pending"}},
    {"type": "preview.snapshot", "run": "r", "generation": 1, "blocks": [{"block": 0, "channel": "text", "text": "a"}]},
    {"type": "caught_up", "seq": 1},
    {"type": "preview.delta", "run": "r", "generation": 1, "block": 0, "channel": "text", "offset": 1, "text": "bc"},
    {"type": "durable", "seq": 2, "at_ms": 1, "event": {"type": "preview.withdrawn", "run": "r", "generation": 1, "reason": "x"}},
    {"type": "preview.delta", "run": "r", "generation": 2, "block": 0, "channel": "text", "offset": 0, "text": "de"},
    {"type": "preview.delta", "run": "r", "generation": 2, "block": 0, "channel": "text", "offset": 2, "text": "f"},
    {"type": "durable", "seq": 3, "at_ms": 1, "event": {"type": "message.committed", "run": "r", "message": "m", "parent": None, "revision": 1, "generation": 2}},
    {"type": "durable", "seq": 4, "at_ms": 1, "event": {"type": "head.moved", "head": "m"}},
    {"type": "durable", "seq": 5, "at_ms": 1, "event": {"type": "run.changed", "run": "r", "status": "success"}},
]  # fmt: skip


@given(st.lists(st.integers(0, len(WHOLE) - 1), max_size=40))
def test_whatever_comes_in_whatever_order_the_state_is_true_as_far_as_it_goes(
    order: list[int],
) -> None:
    frames = [msgspec.convert(frame, type=Frame) for frame in WHOLE]
    truths = [State()]
    for frame in frames:
        truths.append(reduce(truths[-1], frame))
    by_seq = {truth.seq: truth for truth in truths}
    state = State()
    for number in order:
        state = reduce(state, frames[number])
        truth = by_seq[state.seq]
        assert (state.runs, state.messages, state.head) == (truth.runs, truth.messages, truth.head)
        for shown in state.previews.values():
            assert "".join(block.text for block in shown.blocks) in (
                *("abc"[:n] for n in range(4)),
                *("def"[:n] for n in range(4)),
            )
        if state.seq >= 3:
            assert state.previews == {}
