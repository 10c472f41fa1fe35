"""Sessions that come and go by themselves: decided before an answer, inside a run, after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.core.blocks import (
    Message,
    Origin,
    Role,
    Status,
    Text,
    ToolCall,
    ToolResult,
    default_trust,
)
from antiphon.core.events import Decided, SessionActivated, SessionSwitched, decode_event
from antiphon.core.ids import CallId, MessageId
from antiphon.core.manifest import WireRequest
from antiphon.core.records import Cause, RunStatus, Session
from antiphon.core.sessions.scheduling import SWITCH_TOOL
from antiphon.core.tree import line as visible
from antiphon.engine.settings import Settings
from antiphon.engine.tools.function import Function
from antiphon.engine.tools.typed import tool
from antiphon.errors import Conflict, InvalidInput
from antiphon.handles.chat import Chat
from antiphon.library import Antiphon
from tests.support.clock import SimulatedClock
from tests.support.engines import app_on, talk
from tests.support.provider import Hold, ScriptedProvider, Step, asks, says

ON = Settings(retry_base_s=0.0, cancel_grace_s=0.0, scheduling=True)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "antiphon.db"


def decides(decision: str, goal: str | None = None) -> list[Step]:
    value = {"decision": decision} | ({"goal": goal} if goal else {})
    return says(json.dumps(value))


CONTINUE = decides("continue")


async def sessions(app: Antiphon, chat: Chat) -> list[Session]:
    return await app.engine.world.store.sessions(chat.id)


async def settled(app: Antiphon, chat: Chat) -> None:
    await app.engine.idle(chat.id)


async def line(app: Antiphon, chat: Chat, head: MessageId | None = None) -> list[Message]:
    store = app.engine.world.store
    row = await store.conversation(chat.id)
    leaf = head or row.head
    return [] if leaf is None else visible(await store.path(chat.id, leaf), row.deletions)


async def events(app: Antiphon, chat: Chat, kind: type[Any]) -> list[Any]:
    stored = await app.engine.world.store.events(chat.id, 0)
    return [e for e in (decode_event(one.data) for one in stored) if isinstance(e, kind)]


@pytest.mark.req("M149", "M150", "M152", "M153", "M156", "M157")
async def test_a_first_answer_is_followed_by_a_goal_and_a_second_is_preceded_by_a_decision(
    db: Path,
) -> None:
    provider = ScriptedProvider(
        says("Aye."), decides("update_goal", "Plot a course to Oban."), CONTINUE, says("North.")
    )
    async with app_on(db, provider, settings=ON) as app:
        chat = await app.create()
        assert await talk(chat, "Plot a course to Oban") == "Aye."
        await settled(app, chat)
        (session,) = await sessions(app, chat)
        assert session.goal == "Plot a course to Oban."
        assert await talk(chat, "And the tide?") == "North."
        await settled(app, chat)
        asked = json.loads(str(provider.messages(2)[-1]["content"]))
        assert asked == {
            "goal": "Plot a course to Oban.",
            "recent_messages": [
                {"role": "user", "text": "Plot a course to Oban"},
                {"role": "assistant", "text": "Aye."},
            ],
            "new_message": "And the tide?",
        }
        assert provider.scripts == []
        assert len(await sessions(app, chat)) == 1
        (decided,) = await events(app, chat, Decided)
        assert (decided.decision, decided.reason) == ("continue", None)


@pytest.mark.req("M147", "M148", "M152", "M158", "M159", "M165", "M167", "M169")
async def test_a_new_task_begins_a_new_session_and_the_answer_belongs_to_it(db: Path) -> None:
    provider = ScriptedProvider(
        says("Leg 7 is north."),
        CONTINUE,
        decides("start_new", "Cook a soup."),
        says("Leg 7 was plotted; the tide is open."),
        says("With leeks."),
    )
    async with app_on(db, provider, settings=ON) as app:
        chat = await app.create()
        await talk(chat, "Plot leg-7")
        await settled(app, chat)
        run = await chat.send("How do I cook a soup?")
        assert (await run.result()).text == "With leeks."
        old, new = await sessions(app, chat)
        assert (old.active, new.active) == (False, True)
        assert (new.previous, new.cause, new.goal) == (old.id, Cause.DECISION, "Cook a soup.")
        assert old.handover is not None
        assert old.handover.summary == "Leg 7 was plotted; the tide is open."
        assert "leg-7" in old.handover.identifiers
        assert "Leg 7 was plotted" in (new.precis or "")
        here = await line(app, chat)
        assert [m.text for m in here] == [
            "Plot leg-7",
            "Leg 7 is north.",
            "How do I cook a soup?",
            "With leeks.",
        ]
        assert {m.session for m in here} == {new.id}
        # The model is told what came before beside the first message, and nowhere else.
        told = [str(m["content"]) for m in provider.messages(-1)]
        assert ["<summary>" in text for text in told] == [True, False, False]
        assert "Leg 7 was plotted; the tide is open." in told[0]
        before = await line(app, chat, old.head)
        assert [m.copied_from for m in here[:2]] == [m.id for m in before]
        assert [m.origin for m in here[:2]] == [Origin.COPIED, Origin.COPIED]
        row = await app.engine.world.store.run(chat.id, run.id)
        assert row.session == new.id
        (switched,) = await events(app, chat, SessionSwitched)
        assert (switched.previous, switched.session) == (old.id, new.id)


@pytest.mark.req("M151")
async def test_after_twelve_hours_of_silence_a_new_session_begins_without_asking(db: Path) -> None:
    clock = SimulatedClock()
    provider = ScriptedProvider(says("Aye."), CONTINUE, says("A summary."), says("Good morning."))
    async with app_on(db, provider, clock=clock, settings=ON) as app:
        chat = await app.create()
        await talk(chat, "Good night")
        await settled(app, chat)
        await clock.advance(12 * 3600)
        assert await talk(chat, "Good morning") == "Good morning."
        old, new = await sessions(app, chat)
        assert new.cause is Cause.IDLE
        assert old.handover is not None


@pytest.mark.req("M151")
async def test_a_moment_less_than_twelve_hours_is_a_decision_like_any_other(db: Path) -> None:
    clock = SimulatedClock()
    provider = ScriptedProvider(says("Aye."), CONTINUE, CONTINUE, says("Good morning."))
    async with app_on(db, provider, clock=clock, settings=ON) as app:
        chat = await app.create()
        await talk(chat, "Good night")
        await settled(app, chat)
        await clock.advance(12 * 3600 - 1)
        assert await talk(chat, "Good morning") == "Good morning."
        assert len(await sessions(app, chat)) == 1


@pytest.mark.req("M155", "M165", "M167")
async def test_a_switch_that_the_model_asks_for_leaves_no_trace_in_any_tree(db: Path) -> None:
    switch = asks(("c1", SWITCH_TOOL.name, '{"goal": "Cook a soup."}'))
    provider = ScriptedProvider(
        says("North."), CONTINUE, CONTINUE, switch, says("Summary."), says("With leeks.")
    )
    async with app_on(db, provider, settings=ON) as app:
        chat = await app.create()
        await talk(chat, "Plot a course")
        await settled(app, chat)
        run = await chat.send("How do I cook a soup?")
        assert (await run.result()).text == "With leeks."
        await settled(app, chat)
        old, new = await sessions(app, chat)
        assert (new.cause, new.goal, new.active) == (Cause.TOOL, "Cook a soup.", True)
        tree = await app.engine.world.store.tree(chat.id)
        assert not [m for m in tree if m.calls or m.results]
        here = await line(app, chat)
        assert [m.text for m in here] == [
            "Plot a course",
            "North.",
            "How do I cook a soup?",
            "With leeks.",
        ]
        assert {m.session for m in here} == {new.id}
        row = await app.engine.world.store.run(chat.id, run.id)
        assert (row.session, row.status, row.switched) == (new.id, RunStatus.SUCCESS, True)
        # What was asked stays where it was asked, too, and was answered.
        asked = (await line(app, chat, here[2].copied_from))[-1]
        assert (asked.session, asked.status) == (old.id, Status.SUCCESS)
        assert SWITCH_TOOL.name in provider.bodies[3].decode()
        assert SWITCH_TOOL.name not in provider.bodies[5].decode()  # once a run is enough
        assert await app.engine.world.store.calls(chat.id, run.id) == []


def a_look() -> Function:
    @tool(read_only=True)
    def look() -> str:
        """Look out."""
        return "Land."

    return look


@pytest.mark.req("M155", "M165")
async def test_a_switch_beside_other_calls_waits_until_they_are_closed(db: Path) -> None:
    both = asks(("c1", "look", "{}"), ("c2", SWITCH_TOOL.name, '{"goal": "Find land."}'))
    provider = ScriptedProvider(
        says("North."), CONTINUE, CONTINUE, both, says("Summary."), says("Land ahead.")
    )
    async with app_on(db, provider, settings=ON, functions=[a_look()]) as app:
        chat = await app.create()
        await talk(chat, "Plot a course")
        await settled(app, chat)
        run = await chat.send("Is there land?")
        assert (await run.result()).text == "Land ahead."
        await settled(app, chat)
        _, new = await sessions(app, chat)
        here = await line(app, chat)
        assert [m.role for m in here] == [
            Role.USER,
            Role.ASSISTANT,
            Role.USER,
            Role.ASSISTANT,
            Role.TOOL,
            Role.ASSISTANT,
        ]
        assert [c.name for m in here for c in m.calls] == ["look"]
        assert {m.session for m in here} == {new.id}
        assert "session_switch" not in json.dumps(provider.messages(-1))
        tree = await app.engine.world.store.tree(chat.id)
        assert {c.name for m in tree for c in m.calls} == {"look"}


@pytest.mark.req("M154")
@pytest.mark.parametrize(
    "reply",
    [
        says("Sure! Let us start anew."),
        says('{"decision": "start_new"'),
        says('{"decision": "start_new", "goal": "x", "why": "y"}'),
        says('{"decision": "start_new", "goal": "' + "x" * 10_000 + '"}'),
        says('{"decision": "start_new", "goal": 7}'),
        says(""),
    ],
)
async def test_a_reply_that_is_no_decision_goes_on_and_loses_nothing(
    db: Path, reply: list[Step]
) -> None:
    provider = ScriptedProvider(says("Aye."), CONTINUE, reply, says("North."))
    async with app_on(db, provider, settings=ON) as app:
        chat = await app.create()
        await talk(chat, "Plot a course")
        await settled(app, chat)
        assert await talk(chat, "And then?") == "North."
        assert len(await sessions(app, chat)) == 1
        (decided,) = await events(app, chat, Decided)
        assert decided.decision == "continue"
        assert decided.reason


@pytest.mark.req("M154")
async def test_a_cancel_during_a_decision_ends_the_run_and_nothing_is_answered(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider(says("Aye."), CONTINUE, [hold])
    async with app_on(db, provider, settings=ON) as app:
        chat = await app.create()
        await talk(chat, "Plot a course")
        await settled(app, chat)
        run = await chat.send("And then?")
        await hold.reached.wait()
        await run.cancel()
        await settled(app, chat)
        row = await app.engine.world.store.run(chat.id, run.id)
        assert row.status is RunStatus.CANCELED
        assert len(provider.requests) == 3


@pytest.mark.req("M154")
async def test_a_decision_holds_up_no_other_conversation(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider(says("Aye."), CONTINUE, [hold, *CONTINUE], says("Hi."), CONTINUE)
    async with app_on(db, provider, settings=ON) as app:
        chat, other = await app.create(), await app.create()
        await talk(chat, "Plot a course")
        await settled(app, chat)
        run = await chat.send("And then?")
        await hold.reached.wait()
        assert await talk(other, "Hello") == "Hi."
        await settled(app, other)
        provider.scripts.append(says("North."))
        hold.go.set()
        assert (await run.result()).text == "North."


@pytest.mark.req("M161")
async def test_models_bring_about_five_switches_an_hour_and_no_more(db: Path) -> None:
    clock = SimulatedClock()
    provider = ScriptedProvider(says("Aye."), CONTINUE)
    async with app_on(db, provider, clock=clock, settings=ON) as app:
        chat = await app.create()
        await talk(chat, "Plot a course")
        await settled(app, chat)
        for n in range(5):
            provider.scripts += [decides("start_new", f"Task {n}."), says("S."), says(f"A{n}.")]
            await talk(chat, f"Task {n}")
        assert len(await sessions(app, chat)) == 6
        provider.scripts += [decides("start_new", "Task 6."), says("Still here.")]
        assert await talk(chat, "Task 6") == "Still here."
        assert len(await sessions(app, chat)) == 6
        assert (await events(app, chat, Decided))[-1].reason == "switch_limit"
        await clock.advance(3601)
        provider.scripts += [decides("start_new", "Task 7."), says("S."), says("Anew.")]
        assert await talk(chat, "Task 7") == "Anew."
        assert len(await sessions(app, chat)) == 7


@pytest.mark.req("M147")
async def test_whoever_names_a_parent_in_an_archived_session_is_in_that_session_again(
    db: Path,
) -> None:
    provider = ScriptedProvider(
        says("North."), CONTINUE, decides("start_new", "Soup."), says("S."), says("Leeks.")
    )
    async with app_on(db, provider, settings=ON) as app:
        chat = await app.create()
        await talk(chat, "Plot a course")
        await settled(app, chat)
        await talk(chat, "Soup?")
        old, new = await sessions(app, chat)
        provider.scripts += [says("Still north.")]
        run = await chat.send("And now?", parent=old.head)
        assert (await run.result()).text == "Still north."
        old, new = await sessions(app, chat)
        assert (old.active, new.active) == (True, False)
        assert {m.session for m in await line(app, chat)} == {old.id}
        (active,) = await events(app, chat, SessionActivated)
        assert active.session == old.id
        row = await app.engine.world.store.run(chat.id, run.id)
        assert row.session == old.id


@pytest.mark.req("M147")
async def test_a_person_begins_a_session_and_takes_it_back_with_what_was_said_since(
    db: Path,
) -> None:
    provider = ScriptedProvider(says("North."), says("They talked of a course."), says("Leeks."))
    async with app_on(db, provider) as app:  # scheduling is off here
        chat = await app.create()
        await talk(chat, "Plot a course")
        begun = await chat.begin_session("Cook a soup.")
        assert (begun.cause, begun.goal, begun.active) == (Cause.PERSON, "Cook a soup.", True)
        assert await talk(chat, "Soup?") == "Leeks."
        back = await chat.undo_switch()
        old, new = await chat.sessions()
        assert back.id == old.id
        assert (old.active, new.active) == (True, False)
        here = await chat.line()
        assert [m.text for m in here] == ["Plot a course", "North.", "Soup?", "Leeks."]
        assert {m.session for m in here} == {old.id}
        assert [m.copied_from is None for m in here] == [True, True, False, False]
        (active,) = await events(app, chat, SessionActivated)
        assert active.undone
        with pytest.raises(Conflict) as refused:
            await chat.undo_switch()
        assert refused.value.code == "no_switch"


async def test_a_session_is_not_begun_under_a_run_that_works(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider([hold, *says("North.")])
    async with app_on(db, provider) as app:
        chat = await app.create()
        run = await chat.send("Plot a course")
        await hold.reached.wait()
        with pytest.raises(Conflict) as refused:
            await chat.begin_session()
        assert refused.value.code == "conversation_busy"
        hold.go.set()
        assert (await run.result()).text == "North."
        assert len(await chat.sessions()) == 1


async def test_a_goal_that_is_no_sentence_is_refused(db: Path) -> None:
    async with app_on(db, ScriptedProvider()) as app:
        chat = await app.create()
        with pytest.raises(InvalidInput) as refused:
            await chat.begin_session("x" * 10_000)
        assert refused.value.code == "bad_goal"


async def test_scheduling_is_off_unless_it_is_set_and_a_conversation_says_more_than_the_settings(
    db: Path,
) -> None:
    provider = ScriptedProvider(says("One."), says("Two."), says("Three."), CONTINUE)
    async with app_on(db, provider) as app:
        chat = await app.create()
        await talk(chat, "a")
        await talk(chat, "b")
        await chat.schedule(True)
        provider.scripts[:0] = [CONTINUE]
        assert await talk(chat, "c") == "Three."
        await settled(app, chat)
        await chat.schedule(False)
        provider.scripts[:] = [says("Four.")]
        assert await talk(chat, "d") == "Four."


@pytest.mark.req("M169")
async def test_a_title_is_asked_for_once_after_the_first_answer_where_that_is_wanted(
    db: Path,
) -> None:
    titled = Settings(retry_base_s=0.0, titles=True)
    provider = ScriptedProvider(says("North."), says('"A course for Oban"'), says("Low."))
    async with app_on(db, provider, settings=titled) as app:
        chat = await app.create()
        await talk(chat, "Plot a course to Oban")
        await settled(app, chat)
        assert (await chat.row()).title == "A course for Oban"
        assert await talk(chat, "And the tide?") == "Low."
        await settled(app, chat)
        assert provider.scripts == []


class Imitator(ScriptedProvider):
    """Does what it sees itself doing: switches where a switch is recorded, else answers."""

    def __init__(self) -> None:
        super().__init__()
        self.switched = 0

    async def send(self, request: WireRequest, **how: Any) -> Any:
        body = json.loads(request.body)
        seen = json.dumps(body["messages"])
        offered = SWITCH_TOOL.name in json.dumps(body.get("tools", ()))
        if offered and ("session_switch" in seen or "session::switch" in seen):
            self.switched += 1
            self.scripts = [asks((f"s{self.switched}", SWITCH_TOOL.name, '{"goal": "Again."}'))]
        elif offered or "tools" in body:
            self.scripts = [says("Going on.")]
        else:
            # Beside the turn: it imitates as well as it can, from what it is shown.
            wants = "start_new" if "session_switch" in seen.replace("start_new", "") else "continue"
            self.scripts = [decides(wants, "Again." if wants == "start_new" else None)]
        return await super().send(request, **how)


@pytest.mark.req("M165", "M166", "M168")
async def test_after_a_forced_switch_ten_more_messages_switch_nothing_though_the_model_imitates(
    db: Path,
) -> None:
    provider = Imitator()
    async with app_on(db, provider, settings=ON) as app:
        chat = await app.create()
        await _polluted(app, chat)
        await chat.begin_session("Go on.")
        count = len(await chat.sessions())
        for _ in range(10):
            assert await talk(chat, "continue") == "Going on."
            await settled(app, chat)
        assert provider.switched == 0
        assert len(await chat.sessions()) == count == 2
        here = await chat.line()
        assert not [call for m in here for call in m.calls]
        assert not [result for m in here for result in m.results]
        assert "session_switch" not in json.dumps(provider.messages(-1))


async def _polluted(app: Antiphon, chat: Chat) -> None:
    """Put a switch of older days into the tree, as an earlier program recorded it."""
    call = ToolCall(call_id=CallId("call-1"), name="session::switch", arguments='{"goal": "x"}')
    other = msgspec.structs.replace(call, call_id=CallId("call-2"), name="session_switch")
    nodes: list[Message] = []
    for name, role, blocks in (
        ("m1", Role.USER, (Text(text="Check the logbook."),)),
        ("m2", Role.ASSISTANT, (call,)),
        ("m3", Role.TOOL, (ToolResult(call_id=call.call_id, content=(Text(text="switched"),)),)),
        ("m4", Role.ASSISTANT, (other,)),
        ("m5", Role.TOOL, (ToolResult(call_id=other.call_id, content=(Text(text="switched"),)),)),
        ("m6", Role.ASSISTANT, (Text(text="It is checked."),)),
    ):
        nodes.append(
            Message(
                id=MessageId(name),
                conversation=chat.id,
                parent=nodes[-1].id if nodes else None,
                role=role,
                blocks=blocks,
                origin=Origin.IMPORTED,
                trust=default_trust(role, Origin.IMPORTED),
            )
        )
    await app.engine.add_messages(chat.id, nodes, nodes[-1].id)


@pytest.mark.req("M168")
async def test_after_a_forced_switch_a_scripted_model_that_wants_to_go_on_stays(db: Path) -> None:
    provider = ScriptedProvider(says("Aye."), says("Summary."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        await talk(chat, "Plot a course")
        await chat.begin_session("Go on.")
        await chat.schedule(True)
        for n in range(10):
            provider.scripts += [CONTINUE, says(f"A{n}.")]
            assert await talk(chat, "continue") == f"A{n}."
            await settled(app, chat)
        assert len(await chat.sessions()) == 2


@pytest.mark.req("M160")
async def test_what_the_session_before_the_last_left_is_carried_on(db: Path) -> None:
    provider = ScriptedProvider(says("A."), says("First: berth 12 is ours."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        await talk(chat, "one")
        await chat.begin_session()
        provider.scripts += [says("B."), says("Second: the soup is on.")]
        await talk(chat, "two")
        third = await chat.begin_session()
        assert third.precis is not None
        assert third.precis.index("Second") < third.precis.index("First: berth 12 is ours.")
        provider.scripts += [says("C.")]
        await talk(chat, "three")
        first = str(provider.messages(-1)[0]["content"])
        assert first.count("<summary>") == 1
        assert "berth 12 is ours" in first


@pytest.mark.req("M147")
async def test_what_is_brought_under_an_archived_message_belongs_to_its_session(db: Path) -> None:
    provider = ScriptedProvider(says("North."), says("A summary."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        await talk(chat, "Plot a course")
        await chat.begin_session()
        old, new = await chat.sessions()
        brought = Message(
            id=MessageId("brought"),
            conversation=chat.id,
            parent=old.head,
            role=Role.USER,
            blocks=(Text(text="By the way"),),
            origin=Origin.IMPORTED,
            trust=default_trust(Role.USER, Origin.IMPORTED),
            session=new.id,  # whoever brings it knows of no other
        )
        await app.engine.add_messages(chat.id, [brought], None)
        assert (await chat.message(brought.id)).session == old.id
        assert (await chat.row()).session == new.id
        await chat.look_at(brought.id)  # and looking at it makes that session the active one
        assert (await chat.row()).session == old.id
