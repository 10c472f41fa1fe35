"""A case under way: its process, its provider, its runs, and how one of them is let go on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from tests.cases.facts import Rows, Said, read_rows
from tests.cases.files import Case
from tests.cases.player import Start
from tests.cases.provider import Exchange, HeldProvider
from tests.cases.screens import Screen
from tests.cases.stage import Stage
from tests.support.clock import START_MS

TRIES: Final = 12
ARRIVAL_S: Final = 10.0
RETRIES: Final = 4
ENDED: Final = {"success", "error", "canceled"}


@dataclass(slots=True)
class RunOf:
    """A run of the case. `chain` are the stored runs that stood for it, the newest last."""

    name: str
    conversation: str
    chain: list[str] = field(default_factory=list)
    attempt: int = 1
    exchanges: list[tuple[int, Exchange]] = field(default_factory=list)
    refused: str | None = None
    worker: str | None = None
    answers: list[str] = field(default_factory=list)
    """Names that the case gives to what this run was going to answer."""

    @property
    def id(self) -> str:
        return self.chain[-1]

    @property
    def live(self) -> Exchange | None:
        """The request that waits for its answer, if there is one."""
        newest = self.exchanges[-1][1] if self.exchanges else None
        return newest if newest is not None and newest.reachable else None

    def of_attempt(self, number: int) -> Exchange | None:
        """Return the newest request of an attempt."""
        found = [exchange for attempt, exchange in self.exchanges if attempt == number]
        return found[-1] if found else None


class Playing:
    """What the steps and the looks of a case share."""

    def __init__(self, case: Case, folder: Path) -> None:
        self._given = case.given
        self._steps: list[dict[str, Any]] = case.given["steps"]
        self._position = 0
        self._db = folder / "case.db"
        self._effects = folder / "effects"
        self._provider = HeldProvider()
        self._screens: dict[str, Screen] = {}
        self._stage = Stage(folder, self._shown)
        self._runs: dict[str, RunOf] = {}
        self._said: dict[str, Said] = {}
        self._names: dict[str, str] = {}
        self._committed: set[str] = set()
        self._conversations: list[str] = []
        self._touched: str | None = None
        self._taken_up: dict[str, list[str]] = {}
        self._call_runs: dict[str, RunOf] = {}
        self._outputs: dict[str, dict[str, Any]] = {}
        self._by_client: dict[str, int] = {}
        self._meanwhile: list[dict[str, Any]] = []
        self._errors: list[str] = []
        self._asked_again = 0
        self._at_the_door = 0
        self._now_ms = START_MS
        self.notes: list[str] = []

    async def __aenter__(self) -> Self:
        await self._provider.__aenter__()
        try:
            await self._stage.start(self._start())
        except BaseException:
            await self._provider.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stage.kill()
        await self._provider.__aexit__()

    # What the case needs to begin.

    def _start(self) -> Start:
        steps, tools = self._steps, self._given.get("tools") or {}
        names = [step["id"] for step in steps if step["op"] == "conversation"] or ["c1"]
        asked = [c for step in steps for c in step.get("tool_calls") or ()]
        begun = {s["call"] for s in steps if s["op"] in ("tool_started", "tool_effect")}
        # Calls that are answered one by one are the engine's to run; a client brings all at once.
        several = [s["tool_calls"] for s in steps if len(s.get("tool_calls") or ()) > 1]
        ours = {c["name"] for c in asked if c["id"] in begun} | {
            c["name"] for calls in several for c in calls
        }
        answered = {s["call"] for s in steps if s["op"] == "tool_result"}
        ours |= {c["name"] for c in asked if c["name"] in tools and c["id"] in answered}
        facts = {
            name: {
                "read_only": not tools.get(name, {}).get("side_effect", True),
                "idempotent": bool(tools.get(name, {}).get("idempotent", False)),
            }
            for name in sorted(ours)
        }
        retried = any(step["op"] == "retry" for step in steps)
        return Start(
            db=str(self._db),
            effects=str(self._effects),
            now_ms=self._now_ms,
            base_urls={name: self._provider.base_url(name) for name in names},
            functions=facts,
            client_tools=sorted({c["name"] for c in asked} - ours),
            retries=RETRIES if retried else 0,
            resend=retried,
            closing_ends=not any(_leaves_unknown(step) for step in steps),
        )

    # How a run is let go on.

    async def release(self) -> None:
        """Hold no run back any more: the case has nothing further to say about when it goes on."""
        for run in self._runs.values():
            if run.chain and self._stage.alive and run.live is None:
                await self._demand(run)

    async def _exchange(self, run: RunOf, attempt: int | None) -> Exchange | None:
        """Return the request that an attempt waits with, sent if it is still held.

        None where that attempt waits for nothing: it never began, or is over.
        """
        if not run.chain:
            return None
        wanted = run.attempt if attempt is None else attempt
        if wanted < run.attempt:
            return run.of_attempt(wanted)
        if wanted > run.attempt:
            run.attempt = wanted
            if run.live is not None:
                run.exchanges[-1] = (wanted, run.live)
        return run.live or await self._demand(run) or run.of_attempt(wanted)

    async def _demand(self, run: RunOf, *, until: str = "SENT") -> Exchange | None:
        """Open the gates until the run's next request has left; return it."""
        for _ in range(TRIES):
            held = (await self._quiet())["held"]
            if f"accept {run.id}" in held:
                await self._stage.do("open", gate=f"accept {run.id}")
            elif f"send {run.id}" in held:
                return None if until == "DISPATCHING" else await self._let_send(run)
            elif run.live is not None:
                return run.live
            else:
                row = await self._row(run.id)
                if row["status"] != "pending":
                    return None
                if row["attempt"] == "FAILED":
                    await self._stage.do("advance", seconds=1.0)  # the pause before a retry
        return None

    async def _let_send(self, run: RunOf) -> Exchange | None:
        seen = len(self._provider.of(run.conversation))
        await self._stage.do("open", gate=f"send {run.id}")
        async with asyncio.timeout(ARRIVAL_S):
            while len(self._provider.of(run.conversation)) == seen:
                came = await self._provider.changed(0.05)
                if not came and (await self._row(run.id))["status"] in ENDED:
                    return None  # it was canceled: nothing leaves any more
        exchange = self._provider.of(run.conversation)[-1]
        run.exchanges.append((run.attempt, exchange))
        await self._quiet()
        return exchange

    def _is_function(self, call_id: str) -> bool:
        names = [
            call["name"]
            for step in self._steps
            for call in step.get("tool_calls") or ()
            if call["id"] == call_id
        ]
        return bool(names) and names[-1] in self._start().functions

    async def _quiet(self) -> dict[str, Any]:
        quiet: dict[str, Any] = await self._stage.do("quiet")
        self._now_ms = quiet["now_ms"]
        for failure in quiet["failures"]:
            self._note(f"the engine failed: {failure}")
        return quiet

    async def _row(self, run: str) -> dict[str, Any]:
        row: dict[str, Any] = await self._stage.do("row", run=run)
        return row

    async def _rows(self) -> dict[str, Rows]:
        return await read_rows(self._db, self._conversations)

    def _conversation(self) -> str:
        """Return the conversation that steps mean which name none."""
        return self._touched or self._conversations[-1]

    def _conversation_of(self, step: dict[str, Any], message: str) -> str:
        said = self._said.get(message)
        if said is not None:
            return said.conversation
        return str(step.get("conversation") or self._conversation())

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _shown(self, client: str, shown: dict[str, Any]) -> None:
        screen = self._screens[client]
        if screen.connected:
            screen.take(shown)


def _leaves_unknown(step: dict[str, Any]) -> bool:
    """Say whether after this step nobody knows whether the provider still works.

    Such a provider is one whose work does not end with the connection; with any other an attempt
    whose connection broke is known to be over.
    """
    if step["op"] == "state":
        return bool(step["to"].upper() == "UNKNOWN")
    return bool(step["op"] == "fail" and not step.get("terminated"))
