"""The numbered stream: however it was cut, whenever one comes, the same text and no more."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core import events as core
from antiphon.core.answers.deltas import Channel
from antiphon.core.blocks import (
    Block,
    Message,
    Opaque,
    Origin,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    Trust,
)
from antiphon.core.events import Preview
from antiphon.core.ids import CallId, ConversationId, Digest, MessageId, RunId
from antiphon.core.records import Call, CallState, Runner, RunStatus
from antiphon.server.responses.output import as_json
from antiphon.server.responses.write import Event, Stretch, Writer

RUN = RunId("run_1")
CONVERSATION = ConversationId("conv_1")


@dataclass(frozen=True)
class Told:
    """A durable event with what belongs to it."""

    event: core.DurableEvent
    message: Message | None = None
    calls: dict[CallId, Call] = field(default_factory=dict)


@dataclass(frozen=True)
class Shown:
    """A piece of preview."""

    preview: Preview


Step = Told | Shown


def describe(stretch: Stretch) -> dict[str, Any]:
    return {"status": stretch.status, "output": [as_json(item) for item in stretch.items]}


def written(
    steps: list[Step], *, after: int = -1, takes: bool = False, fine: bool = False
) -> list[Event]:
    writer = Writer(RUN, describe, after=after, takes_withdrawals=takes, fine=fine)
    return [event for step in steps for event in fed(writer, step)]


def fed(writer: Writer, step: Step) -> Iterable[Event]:
    if isinstance(step, Shown):
        return writer.show(step.preview)
    return writer.tell(step.event, 7, message=step.message, calls=step.calls)


class Client:
    """What somebody makes of the events, by the wire's own rules: an independent reading."""

    def __init__(self) -> None:
        self.output: list[dict[str, Any]] = []
        self.done: set[int] = set()
        self.number = -1
        self.final: dict[str, Any] | None = None
        self.kinds: list[str] = []

    def take(self, event: Event) -> None:
        assert self.final is None, "nothing follows the final event"
        assert event.number > self.number
        self.number = event.number
        self.kinds.append(event.type)
        f = event.fields
        match event.type.split("."):
            case ["response", "completed" | "incomplete" | "failed"]:
                self.final = f["response"]
            case ["response", "output_item", "added"]:
                assert f["output_index"] == len(self.output)
                self.output.append(deepcopy(f["item"]))
            case ["response", "output_item", "done"]:
                was = self.output[f["output_index"]]
                assert {**was, "status": ""} == {**f["item"], "status": ""} or (
                    was["type"] == "mcp_call"
                )
                self.output[f["output_index"]] = f["item"]
                self.done.add(f["output_index"])
            case ["response", "content_part", "added"]:
                content = self.output[f["output_index"]]["content"]
                assert f["content_index"] == len(content)
                content.append(dict(f["part"]))
            case ["response", "content_part", "done"]:
                assert self._part(f) == f["part"]
            case ["response", word, "delta"] if word != "function_call_arguments":
                key = "refusal" if word == "refusal" else "text"
                assert f["delta"], "an empty delta has no number of its own"
                self._part(f)[key] += f["delta"]
            case ["response", "function_call_arguments", "delta"]:
                self.output[f["output_index"]]["arguments"] += f["delta"]
            case ["antiphon:preview", "withdrawn"]:
                del self.output[f["output_index"] :]
            case _:
                pass

    def _part(self, f: dict[str, Any]) -> dict[str, Any]:
        item = self.output[f["output_index"]]
        assert item["id"] == f["item_id"]
        part: dict[str, Any] = item["content"][f["content_index"]]
        return part


def read(*parts: list[Event]) -> Client:
    client = Client()
    for events in parts:
        for event in events:
            client.take(event)
    return client


# Values.


def changed(status: RunStatus, code: str | None = None) -> Told:
    return Told(core.RunChanged(run=RUN, status=status, code=code))


def message(name: str, blocks: tuple[Block, ...]) -> Message:
    return Message(
        id=MessageId(name),
        conversation=CONVERSATION,
        parent=None,
        role=Role.ASSISTANT,
        blocks=blocks,
        origin=Origin.MODEL,
        trust=Trust.MODEL,
        run=RUN,
    )


def a_call(
    message: str,
    call_id: str,
    *,
    runner: Runner = Runner.CLIENT,
    state: CallState = CallState.PENDING,
    code: str | None = None,
) -> Call:
    return Call(
        conversation=CONVERSATION,
        run=RUN,
        message=MessageId(message),
        call_id=CallId(call_id),
        order=0,
        name="look",
        arguments='{"at":1}',
        arguments_digest=Digest("d"),
        generation=1,
        runner=runner,
        read_only=False,
        idempotent=False,
        state=state,
        attempt=0,
        node=None,
        epoch=0,
        deadline_ms=0,
        idempotency_key="k",
        code=code,
        content=(Text(text="12 degrees"),),
        ended_ms=None,
    )


def commit(answer: Message, generation: int, *calls: Call) -> Told:
    event = core.Committed(
        run=RUN,
        message=answer.id,
        parent=None,
        revision=2,
        generation=generation,
        calls=tuple(call.call_id for call in answer.calls),
        input_tokens=3,
        output_tokens=2,
    )
    return Told(event, answer, {call.call_id: call for call in calls})


SEALED = Opaque(profile="anthropic", value=b"{}")  # type: ignore[arg-type]  # as JSON
words = st.text("ab é世🙂", max_size=12)
said = words.filter(bool)
block = st.one_of(
    st.builds(lambda t: Text(text=t), said),
    st.builds(lambda t: Refusal(text=t), said),
    st.builds(lambda t: Reasoning(text=t), said),
    st.just(Reasoning(text="", opaque=SEALED)),
)


@st.composite
def answers(draw: st.DrawFn, name: str) -> Message:
    blocks: list[Block] = list(draw(st.lists(block, max_size=4)))
    for number in range(draw(st.integers(0, 2))):
        call = ToolCall(call_id=CallId(f"{name}c{number}"), name="look", arguments='{"at":1}')
        blocks.insert(draw(st.integers(0, len(blocks))), call)
    if all(isinstance(b, Reasoning) for b in blocks):
        blocks.append(Text(text=draw(words)))
    return message(name, tuple(blocks))


CHANNEL = {Text: Channel.TEXT, Refusal: Channel.REFUSAL, Reasoning: Channel.REASONING}


@st.composite
def previews(draw: st.DrawFn, answer: Message, generation: int) -> list[Shown]:
    """What is shown of an answer, cut and coalesced at will, up to any point of it."""
    pieces: list[Shown] = []
    call_seen = False
    for number, b in enumerate(answer.blocks):
        if isinstance(b, ToolCall):
            call_seen = True
        if not isinstance(b, Text | Refusal | Reasoning):
            continue
        cuts = sorted(draw(st.sets(st.integers(0, len(b.text)), max_size=4)) | {0, len(b.text)})
        for start, end in pairwise(cuts):
            preview = Preview(
                run=RUN,
                generation=generation,
                block=number * 3,
                channel=CHANNEL[type(b)],
                offset=start,
                text=b.text[start:end],
                message=answer.id,
                after_call=call_seen,
            )
            pieces.append(Shown(preview))
    return pieces[: draw(st.integers(0, len(pieces)))]


@dataclass
class Life:
    """One response: what is durable, and the ways in which it may be seen."""

    durable: list[Step]
    live: list[Step]


@st.composite
def lives(draw: st.DrawFn) -> Life:
    durable: list[Step] = [changed(RunStatus.QUEUED)]
    live: list[Step] = [changed(RunStatus.QUEUED)]

    def both(step: Step) -> None:
        durable.append(step)
        live.append(step)

    both(changed(RunStatus.PENDING))
    generation = 0
    fails = False
    for step in range(draw(st.integers(1, 3))):
        answer = draw(answers(f"msg_{step}"))
        for _ in range(draw(st.integers(0, 2))):
            generation += 1
            other = draw(answers(f"msg_{step}"))
            shown = draw(previews(other, generation))
            live += shown
            if shown:
                both(Told(core.Withdrawn(run=RUN, generation=generation, reason="cut")))
        if draw(st.booleans()) and step:
            fails = True
            break
        generation += 1
        live += draw(previews(answer, generation))
        calls = [a_call(answer.id, c.call_id, runner=Runner.FUNCTION) for c in answer.calls]
        both(commit(answer, generation, *calls))
        for call in answer.calls:
            closed = a_call(
                answer.id, call.call_id, runner=Runner.FUNCTION, state=CallState.SUCCESS
            )
            event = core.CallChanged(
                run=RUN, call=call.call_id, name="look", state=CallState.SUCCESS
            )
            both(Told(event, calls={call.call_id: closed}))
    both(changed(RunStatus.ERROR, "overloaded") if fails else changed(RunStatus.SUCCESS))
    return Life(durable, live)


# What holds for all of them.


@settings(max_examples=60, deadline=None)
@given(lives(), st.booleans())
@pytest.mark.req("M75")
def test_a_reader_that_can_take_back_has_in_the_end_what_was_committed(
    life: Life, fine: bool
) -> None:
    live = read(written(life.live, takes=True, fine=fine))
    stored = read(written(life.durable, takes=True, fine=fine))
    assert live.final is not None
    assert live.final == stored.final
    assert live.number == stored.number
    assert stored.output == live.final["output"]
    # After a failure what was shown last is still on the screen, and the status says so.
    assert live.output[: len(stored.output)] == stored.output
    if live.final["status"] == "completed":
        assert live.output == stored.output


@settings(max_examples=60, deadline=None)
@given(lives(), st.data())
@pytest.mark.req("M75")
def test_whoever_comes_back_misses_nothing_and_gets_nothing_twice(
    life: Life, data: st.DataObject
) -> None:
    whole = written(life.live, takes=True)
    cut = data.draw(st.integers(0, len(whole)))
    had = whole[:cut]
    after = had[-1].number if had else -1
    rest = written(life.durable, after=after, takes=True)
    client = read(had, rest)
    expected = read(written(life.durable, takes=True))
    assert client.final == expected.final
    if client.final is not None and client.final["status"] == "completed":
        assert client.output == expected.output


@settings(max_examples=40, deadline=None)
@given(lives())
def test_how_the_text_was_cut_moves_no_number(life: Life) -> None:
    # Every number of a coarse stream is one of the finest, with the same event but for text.
    fine = {e.number: e for e in written(life.durable, takes=True, fine=True)}
    live = written(life.live, takes=True)
    withdrawn = max((e.number for e in live if "withdrawn" in e.type), default=-1)
    for event in live:
        same = fine.get(event.number)
        if same is None:
            assert event.number <= withdrawn  # what came to nothing is nowhere in the store
        elif not same.type.endswith("delta"):
            assert same.type == event.type


@settings(max_examples=60, deadline=None)
@given(lives(), st.data())
@pytest.mark.req("M77")
def test_a_plain_reader_is_never_told_text_beside_withdrawn_text(
    life: Life, data: st.DataObject
) -> None:
    whole = written(life.live)
    cut = data.draw(st.integers(0, len(whole)))
    had = whole[:cut]
    after = had[-1].number if had else -1
    events = had + written(life.durable, after=after)
    withdrawn = False
    for event in events:
        if withdrawn:
            assert event.type in ("response.completed", "response.failed")
        withdrawn = withdrawn or event.type == "antiphon:preview.withdrawn"
    final = events[-1].fields["response"]
    assert final == written(life.durable)[-1].fields["response"]
    if not withdrawn and final["status"] == "completed":
        assert read(events).output == final["output"]


def test_a_reader_from_the_future_is_told_nothing() -> None:
    durable: list[Step] = [changed(RunStatus.QUEUED), changed(RunStatus.PENDING)]
    durable += [commit(message("msg_1", (Text(text="ok"),)), 1), changed(RunStatus.SUCCESS)]
    last = written(durable)[-1].number
    assert written(durable, after=last) == []
    assert written(durable, after=last + 1_000_000) == []


# By hand: the very events and numbers.


def test_the_events_of_a_streamed_text_are_those_of_the_wire() -> None:
    def piece(text: str, offset: int) -> Shown:
        preview = Preview(
            run=RUN,
            generation=1,
            block=1,
            channel=Channel.TEXT,
            offset=offset,
            text=text,
            message=MessageId("msg_1"),
        )
        return Shown(preview)

    events = written(
        [
            changed(RunStatus.QUEUED),
            changed(RunStatus.PENDING),
            piece("Hel", 0),
            piece("lo", 3),
            commit(message("msg_1", (Text(text="Hello!"),)), 1),
            changed(RunStatus.SUCCESS),
        ]
    )
    assert [(e.number, e.type, e.fields.get("delta")) for e in events] == [
        (0, "response.created", None),
        (1, "response.queued", None),
        (2, "response.in_progress", None),
        (3, "response.output_item.added", None),
        (4, "response.content_part.added", None),
        (7, "response.output_text.delta", "Hel"),
        (9, "response.output_text.delta", "lo"),
        (10, "response.output_text.delta", "!"),
        (11, "response.output_text.done", None),
        (12, "response.content_part.done", None),
        (13, "response.output_item.done", None),
        (14, "response.completed", None),
    ]
    assert [e.fields["response"]["status"] for e in (*events[:3], events[-1])] == [
        "queued",
        "queued",
        "in_progress",
        "completed",
    ]


def test_a_call_appears_whole_and_only_once_it_is_committed() -> None:
    call = ToolCall(call_id=CallId("c1"), name="look", arguments='{"at":1}')
    answer = message("msg_1", (Text(text="Let me"), call, Text(text="see")))
    late = Preview(
        run=RUN,
        generation=1,
        block=2,
        channel=Channel.TEXT,
        offset=0,
        text="see",
        message=answer.id,
        after_call=True,
    )
    start: list[Step] = [changed(RunStatus.QUEUED), changed(RunStatus.PENDING)]
    assert written([*start, Shown(late)]) == written(start)
    events = written(
        [
            *start,
            Shown(late),
            commit(answer, 1, a_call("msg_1", "c1")),
            changed(RunStatus.WAITING),
        ]
    )
    kinds = [e.type for e in events]
    at = kinds.index("response.function_call_arguments.delta")
    assert kinds[at - 1 : at + 3] == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]
    assert [i["type"] for i in read(events).output] == ["message", "function_call", "message"]
    assert [i["id"] for i in read(events).output] == ["msg_1", "msg_1.1", "msg_1.2"]
    assert kinds[-1] == "response.completed"


def test_a_call_that_was_refused_at_birth_is_nobodys_to_run() -> None:
    answer = message("msg_1", (ToolCall(call_id=CallId("c1"), name="nothing", arguments="{}"),))
    refused = a_call("msg_1", "c1", state=CallState.ERROR, code="unknown_tool")
    event = core.CallChanged(run=RUN, call=CallId("c1"), name="nothing", state=CallState.ERROR)
    events = written(
        [
            changed(RunStatus.QUEUED),
            changed(RunStatus.PENDING),
            commit(answer, 1, refused),
            Told(event, calls={CallId("c1"): refused}),
        ]
    )
    (item,) = read(events).output
    assert (item["type"], item["status"], item["error"]) == ("mcp_call", "failed", "12 degrees")


def test_text_that_goes_back_to_an_earlier_block_is_told_by_the_end_alone() -> None:
    def piece(block: int, channel: Channel, text: str, offset: int = 0) -> Shown:
        return Shown(
            Preview(
                run=RUN,
                generation=1,
                block=block,
                channel=channel,
                offset=offset,
                text=text,
                message=MessageId("msg_1"),
            )
        )

    answer = message("msg_1", (Reasoning(text="think more"), Text(text="said")))
    events = written(
        [
            changed(RunStatus.QUEUED),
            changed(RunStatus.PENDING),
            piece(0, Channel.REASONING, "think"),
            piece(1, Channel.TEXT, "sa"),
            piece(0, Channel.REASONING, " more", 5),
            commit(answer, 1),
            changed(RunStatus.SUCCESS),
        ]
    )
    deltas = [e.fields["delta"] for e in events if e.type.endswith("delta")]
    assert deltas == ["think", "sa"]
    assert events[-1].fields["response"]["output"][0]["content"][0]["text"] == "think more"


@pytest.mark.parametrize(
    ("status", "code", "expected", "event"),
    [
        (RunStatus.SUCCESS, None, "completed", "response.completed"),
        (RunStatus.SUCCESS, "tool_limit", "completed", "response.completed"),
        (RunStatus.SUCCESS, "length", "incomplete", "response.incomplete"),
        (RunStatus.WAITING, None, "completed", "response.completed"),
        (RunStatus.ERROR, "content_filter", "incomplete", "response.incomplete"),
        (RunStatus.ERROR, "truncated_by_length", "incomplete", "response.incomplete"),
        (RunStatus.ERROR, "outcome_unknown", "failed", "response.failed"),
        (RunStatus.CANCELED, "canceled", "cancelled", "response.failed"),
        (RunStatus.UNKNOWN, "cut", "in_progress", "response.in_progress"),
        (RunStatus.WAITING, "tool_unknown", "in_progress", "response.in_progress"),
    ],
)
def test_each_status_of_a_run_has_its_word_and_its_last_event(
    status: RunStatus, code: str | None, expected: str, event: str
) -> None:
    steps: list[Step] = [
        changed(RunStatus.QUEUED),
        changed(RunStatus.PENDING),
        changed(status, code),
    ]
    events = written(steps)
    assert events[-1].type == event
    assert events[-1].fields["response"]["status"] == expected


def test_other_runs_of_the_conversation_are_not_told() -> None:
    other = Told(core.RunChanged(run=RunId("run_2"), status=RunStatus.SUCCESS))
    steps: list[Step] = [changed(RunStatus.QUEUED), other, changed(RunStatus.PENDING)]
    assert [e.type for e in written(steps)][-1] == "response.in_progress"
