"""A process that dies between any two effects of a session switch loses nothing and doubles nothing.

The store of a dying process takes its n-th change, or dies before it, and from then on nothing:
neither writes nor answers. Another process then starts on the same file.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.blocks import Message, Origin, Status
from antiphon.core.dispatch import FINAL, State
from antiphon.core.events import SessionSwitched, decode_event
from antiphon.core.ids import ConversationId
from antiphon.core.manifest import WireRequest
from antiphon.core.records import Cause, RunStatus
from antiphon.core.sessions.scheduling import SWITCH_TOOL
from antiphon.core.tree import line as visible
from antiphon.engine.settings import Settings
from antiphon.errors import AntiphonError
from antiphon.library import Antiphon
from tests.support.engines import app_on, talk
from tests.support.provider import ScriptedProvider, asks, says

ON = Settings(retry_base_s=0.0, cancel_grace_s=0.0, scheduling=True)
MOST_EFFECTS = 60


class Model(ScriptedProvider):
    """Answers by what it is asked, so that it does not matter who asks, or how often."""

    def __init__(self, *, decides: str = "continue", switches: bool = False) -> None:
        super().__init__()
        self.decides = decides
        self.switches = switches

    async def send(self, request: WireRequest, **how: Any) -> Any:
        messages = json.loads(request.body)["messages"]
        order = str(messages[0]["content"]) if messages[0]["role"] == "system" else ""
        if order.startswith("You decide whether a new message"):
            self.scripts = [says(json.dumps({"decision": self.decides, "goal": "Soup."}))]
        elif order.startswith("You "):
            self.scripts = [says("A summary.")]
        elif self.switches and SWITCH_TOOL.name.encode() in request.body:
            self.scripts = [asks(("c1", SWITCH_TOOL.name, '{"goal": "Soup."}'))]
        else:
            self.scripts = [says("Leeks.")]
        return await super().send(request, **how)


@dataclass
class Life:
    """How many changes a process may make, and whether it dies before or after the last one."""

    left: int
    after: bool
    dead: bool = False

    async def spend(self, work: Callable[[], Awaitable[Any]]) -> Any:
        if self.dead:
            await asyncio.Event().wait()
        self.left -= 1
        if self.left > 0:
            return await work()
        self.dead = True
        if self.after:
            await work()
        return await asyncio.Event().wait()


@asynccontextmanager
async def mortal(db: Path, model: Model, life: Life) -> AsyncIterator[Antiphon]:
    """An app whose store dies with its process."""
    async with app_on(db, model, settings=ON) as app:
        store = app.engine.world.store
        do, do_all, submit = store.do, store.do_all, store.submit

        async def dying_do(command: Any) -> Any:
            return await life.spend(lambda: do(command))

        async def dying_do_all(*commands: Any) -> Any:
            return await life.spend(lambda: do_all(*commands))

        def dying_submit(command: Any) -> Any:
            life.left -= 1
            if life.dead or life.left <= 0:
                life.dead = True
                return asyncio.get_running_loop().create_future()
            return submit(command)

        store.do = dying_do  # type: ignore[method-assign]
        store.do_all = dying_do_all  # type: ignore[method-assign]
        store.submit = dying_submit  # type: ignore[method-assign]
        yield app
        life.dead = True


async def begun(db: Path) -> ConversationId:
    """A conversation with one answered turn, whose process has ended in peace."""
    async with app_on(db, Model(), settings=ON) as app:
        chat = await app.create()
        await talk(chat, "Plot a course")
        await app.engine.idle(chat.id)
        return chat.id


async def lived(db: Path, conversation: ConversationId, model: Model, life: Life) -> bool:
    """Say something new in a process that dies; say whether it was acknowledged."""
    async with mortal(db, model, life) as app:
        chat = await app.conversation(conversation)
        sending = asyncio.create_task(chat.send("Soup?", message="mine"))
        acknowledged = False
        for _ in range(400):
            await asyncio.sleep(0.001)
            if sending.done() and not acknowledged:
                acknowledged = True
            if life.dead or (sending.done() and not app.engine._workers._tasks):
                break
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        return acknowledged


async def judged(db: Path, conversation: ConversationId, model: Model, cause: Cause) -> None:
    """Start the next process, say it again as a client would, and look at what there is."""
    async with app_on(db, model, settings=ON) as app:
        store = app.engine.world.store
        await app.engine.idle(conversation)
        chat = await app.conversation(conversation)
        run = await chat.send("Soup?", message="mine")  # the same run, if it was ever begun
        with suppress(AntiphonError):  # it may have been on the wire: nobody sends it again then
            await asyncio.wait_for(run.result(), 20)
        await app.engine.idle(conversation)
        row, here = await run.row(), await chat.row()
        assert row.status in (RunStatus.SUCCESS, RunStatus.ERROR)
        if row.status is RunStatus.ERROR:
            assert row.error_code == "outcome_unknown"
        tree = await store.tree(conversation)
        asked = [m for m in tree if m.text == "Soup?" and m.origin is Origin.CLIENT]
        assert [m.id for m in asked] == ["mine"], "never lost, never twice"
        assert not [m for m in tree if m.status is Status.PENDING]
        assert len([m for m in tree if m.text == "Leeks." and m.origin is Origin.MODEL]) <= 2
        assert not [m for m in tree if m.calls or m.results], "no record of a switch"
        _consistent(tree)
        sessions = await store.sessions(conversation)
        assert [s.id for s in sessions if s.active] == [here.session]
        events = [decode_event(e.data) for e in await store.events(conversation, 0)]
        switched = [e for e in events if isinstance(e, SessionSwitched)]
        assert len(switched) == len(sessions) - 1 <= 1
        if row.status is RunStatus.SUCCESS:
            assert [s.cause for s in sessions[1:]] == [cause]
            assert row.session == sessions[-1].id
            assert here.head is not None
            line = visible(await store.path(conversation, here.head), here.deletions)
            assert [m.text for m in line][-2:] == ["Soup?", "Leeks."]
            assert {m.session for m in line} == {sessions[-1].id}
        left = await store.attempts_in(set(State) - FINAL)
        assert left == [], "nothing is asked any more"


def _consistent(tree: list[Message]) -> None:
    by_id = {m.id: m for m in tree}
    for message in tree:
        if message.parent is not None:
            assert by_id[message.parent].session == message.session


@pytest.mark.req("M63", "M154", "M165", "M167")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("cause", [Cause.DECISION, Cause.TOOL])
async def test_whatever_effect_is_the_last_of_a_process_the_next_one_makes_it_whole(
    tmp_path: Path, cause: Cause, after: bool
) -> None:
    for effect in itertools.count(1):
        db = tmp_path / f"{effect}.db"
        conversation = await begun(db)
        by_tool = cause is Cause.TOOL
        model = Model(decides="continue" if by_tool else "start_new", switches=by_tool)
        life = Life(left=effect, after=after)
        await lived(db, conversation, model, life)
        survived = life.left > 0
        await judged(db, conversation, model, cause)
        if survived:
            assert effect > 8, "there was hardly anything to die in"
            return
        assert effect < MOST_EFFECTS
