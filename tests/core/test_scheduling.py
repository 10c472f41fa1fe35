"""What a reply decides, when anybody is asked, and that whatever is wrong means to go on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.core.blocks import Message, Origin, Role, Text, Trust
from antiphon.core.ids import (
    LOCAL_TENANT,
    ConversationId,
    Digest,
    MessageId,
    RunId,
    SessionId,
)
from antiphon.core.records import Conversation, Run, RunKind, RunOptions, RunStatus
from antiphon.core.sessions.scheduling import (
    GOAL_CHARACTERS,
    AskFirst,
    BeginAnew,
    Decision,
    GoOn,
    after_text,
    asks_after,
    before_text,
    look,
    read_decision,
    read_switch,
    read_title,
)

HOUR_MS = 3_600_000
TWELVE_HOURS_MS = 12 * HOUR_MS


@pytest.mark.req("M149", "M153")
@pytest.mark.parametrize(
    ("reply", "decision", "goal"),
    [
        ('{"decision": "continue"}', "continue", None),
        ('{"decision": "continue", "goal": null}', "continue", None),
        ('{"decision": "start_new", "goal": "Cook a soup."}', "start_new", "Cook a soup."),
        (' {"goal": "煮一碗汤", "decision": "update_goal"}\n', "update_goal", "煮一碗汤"),
        ('```json\n{"decision":"start_new","goal":"x"}\n```', "start_new", "x"),
        ('```\n{"decision":"start_new","goal":" x \\n y "}\n```', "start_new", "x y"),
    ],
)
def test_a_decision_is_one_object_at_most_in_one_fence(
    reply: str, decision: str, goal: str | None
) -> None:
    decided = read_decision(reply)
    assert (decided.decision, decided.goal, decided.reason) == (decision, goal, None)


@pytest.mark.req("M154")
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "empty_reply"),
        (" \n", "empty_reply"),
        ('Sure! {"decision":"start_new","goal":"x"}', "not_json"),
        ('{"decision":"start_new","goal":"x"} Done.', "not_json"),
        ('{"decision":"start_new"', "not_json"),
        ("[" * 100_000, "not_json"),
        ('{"decision":"continue","decision":"start_new","goal":"x"}', "not_json"),
        ('["start_new"]', "not_an_object"),
        ('"start_new"', "not_an_object"),
        ("null", "not_an_object"),
        ('{"decision":"start_new","goal":"x","why":"y"}', "unknown_keys"),
        ('{"decision":"begin","goal":"x"}', "unknown_decision"),
        ('{"decision":["start_new"],"goal":"x"}', "unknown_decision"),
        ('{"decision":{},"goal":"x"}', "unknown_decision"),
        ('{"goal":"x"}', "unknown_decision"),
        ('{"decision":"start_new"}', "bad_goal"),
        ('{"decision":"start_new","goal":7}', "bad_goal"),
        ('{"decision":"update_goal","goal":["x"]}', "bad_goal"),
        ('{"decision":"update_goal","goal":" "}', "bad_goal"),
        ('{"decision":"update_goal","goal":"' + "x" * 10_000 + '"}', "bad_goal"),
        ('{"decision":"update_goal","goal":"a\\u202eb"}', "bad_goal"),
        (
            '```json\n{"decision":"continue"}\n```\n```json\n{"decision":"continue"}\n```',
            "not_json",
        ),
    ],
)
def test_whatever_else_it_says_means_to_go_on_and_why_is_told(reply: str, reason: str) -> None:
    decided = read_decision(reply)
    assert decided.decision is Decision.CONTINUE
    assert (decided.goal, decided.reason) == (None, reason)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(["decision", "goal", "Decision", "why"])
VALUES = st.sampled_from(["continue", "update_goal", "start_new", "START_NEW", "begin"]) | JSON


def legal(value: Any) -> bool:
    """What the contract takes for a decision that is none of `continue`, said once more by hand."""
    if type(value) is not dict or set(value) != {"decision", "goal"}:
        return False
    goal = value["goal"]
    if value["decision"] not in ("update_goal", "start_new") or type(goal) is not str:
        return False
    words = " ".join(goal.split())
    return 1 <= len(words) <= GOAL_CHARACTERS and words.isprintable()


@pytest.mark.req("M154")
@given(st.dictionaries(KEYS, VALUES, max_size=4) | JSON)
def test_any_object_is_a_decision_only_if_the_contract_says_so(value: Any) -> None:
    try:
        legal_value = legal(value)
    except TypeError:  # unhashable
        legal_value = False
    decided = read_decision(json.dumps(value, ensure_ascii=False))
    assert (decided.decision is not Decision.CONTINUE) == legal_value
    if legal_value:
        assert decided.decision == value["decision"]


@pytest.mark.req("M154")
@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")), st.integers(0, 60))
def test_any_text_and_any_part_of_a_decision_comes_to_something(text: str, cut: int) -> None:
    whole = '{"decision": "start_new", "goal": "Cook a soup."}'
    assert read_decision(text).decision in list(Decision)
    if cut < len(whole):
        assert read_decision(whole[:cut]).decision is Decision.CONTINUE
    if text.strip():
        assert read_decision(f"{text}x{whole}").decision is Decision.CONTINUE


@given(st.text(), st.text(max_size=50), st.text())
def test_what_was_said_is_data_in_a_question_and_ends_nothing(
    goal: str, said: str, new: str
) -> None:
    messages = [a_message(said)]
    told = json.loads(before_text(goal, messages, a_message(new)))
    assert set(told) == {"goal", "recent_messages", "new_message"}
    assert told["recent_messages"] == [{"role": "user", "text": said}]
    assert len(told["new_message"]) <= max(len(new), 4_000)
    assert set(json.loads(after_text(goal, messages))) == {"goal", "recent_messages"}


@pytest.mark.req("M155")
@pytest.mark.parametrize(
    ("arguments", "goal"),
    [
        ('{"goal": "Cook."}', "Cook."),
        ("{}", None),
        ('{"goal": 3}', None),
        ("[]", None),
        ('{"goal"', None),
    ],
)
def test_the_switch_tool_names_a_goal_or_none(arguments: str, goal: str | None) -> None:
    assert read_switch(arguments) == goal


@pytest.mark.parametrize("reply", ["", '""', "x" * 81, "two\nlines"])
def test_what_is_no_short_line_is_no_title(reply: str) -> None:
    assert read_title(reply) is None


# When.


def a_message(text: str) -> Message:
    return Message(
        id=MessageId("m1"),
        conversation=ConversationId("c"),
        parent=None,
        role=Role.USER,
        blocks=(Text(text=text),),
        origin=Origin.CLIENT,
        trust=Trust.USER,
    )


ROW = Conversation(
    id=ConversationId("c"),
    tenant=LOCAL_TENANT,
    session=SessionId("s"),
    head=MessageId("m1"),
    revision=3,
    cancel_generation=0,
    attempt_generation=0,
    active_operation=None,
    slot=None,
    title=None,
    created_ms=0,
    updated_ms=1_000,
    last_event=9,
)

RUN = Run(
    id=RunId("r"),
    conversation=ROW.id,
    kind=RunKind.SEND,
    status=RunStatus.QUEUED,
    options=RunOptions(model="m", policy_digest=Digest("p"), toolset_digest=Digest("t")),
    input=MessageId("m2"),
    asked_parent=None,
    session=None,
    leaf=None,
    head_left=None,
    answer=None,
    committed=0,
    node=None,
    epoch=0,
    error_code=None,
    end_code=None,
    input_tokens=0,
    output_tokens=0,
    created_ms=2_000,
    started_ms=None,
    ended_ms=None,
    seq=10,
)


@pytest.mark.req("M151", "M152")
@pytest.mark.parametrize(
    ("after_ms", "wanted"),
    [(0, AskFirst), (TWELVE_HOURS_MS - 1, AskFirst), (TWELVE_HOURS_MS, BeginAnew)],
)
def test_silence_counts_from_what_was_last_done_to_when_the_message_came(
    after_ms: int, wanted: type
) -> None:
    run = replace(RUN, created_ms=ROW.updated_ms + after_ms)
    assert look(run, ROW, [], idle_ms=TWELVE_HOURS_MS) == wanted()


@pytest.mark.req("M152")
@pytest.mark.parametrize(
    "change",
    [
        {"decision": "continue"},
        {"kind": RunKind.REGENERATE},
        {"asked_parent": MessageId("m0")},
        {"at_root": True},
    ],
)
def test_nobody_is_asked_twice_or_where_a_place_was_named(change: dict[str, Any]) -> None:
    assert look(replace(RUN, **change), ROW, [], idle_ms=TWELVE_HOURS_MS) == GoOn()


def test_an_empty_session_needs_no_decision() -> None:
    assert look(RUN, replace(ROW, head=None), [], idle_ms=1) == GoOn()


@pytest.mark.req("M152")
@pytest.mark.parametrize("status", list(RunStatus))
def test_no_session_ends_under_a_run_that_is_placed(status: RunStatus) -> None:
    other = replace(RUN, id=RunId("other"), status=status)
    placed = status in (RunStatus.PENDING, RunStatus.WAITING, RunStatus.UNKNOWN)
    wanted = GoOn() if placed else AskFirst()
    assert look(RUN, ROW, [other], idle_ms=TWELVE_HOURS_MS) == wanted


@pytest.mark.req("M156")
def test_a_closing_decision_follows_a_run_that_went_well_without_one_before() -> None:
    assert asks_after(replace(RUN, status=RunStatus.SUCCESS))
    assert not asks_after(replace(RUN, status=RunStatus.SUCCESS, decision="continue"))
    assert not asks_after(replace(RUN, status=RunStatus.ERROR))
    assert not asks_after(replace(RUN, status=RunStatus.CANCELED))
