"""One run: its events, its answer, its end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing

import msgspec

from antiphon.core import events
from antiphon.core.answers.deltas import Channel
from antiphon.core.answers.said import Said
from antiphon.core.asking import Output
from antiphon.core.blocks import Message, Text
from antiphon.core.dispatch import State
from antiphon.core.events import CaughtUp, Durable, Preview
from antiphon.core.ids import RunId
from antiphon.core.records import TERMINAL_CALL, Call, CallState, Run, RunStatus
from antiphon.core.rules.reasons import REASONS
from antiphon.core.telling.explanation import Explanation, PlanTold
from antiphon.errors import AntiphonError, OutcomeUnknown, ProviderFailed, Refused, RunCanceled
from antiphon.handles.backend import Backend
from antiphon.handles.events import (
    CallFinished,
    CallsWaiting,
    Committed,
    Ended,
    RunEvent,
    Unknown,
    Withdrawn,
)


class RunHandle:
    """One run: its events, its answer, its end."""

    def __init__(self, backend: Backend, run: Run, since: int | None = None) -> None:
        self._backend = backend
        self._since = run.seq - 1 if since is None else since
        self.id = run.id
        self.conversation = run.conversation

    async def row(self) -> Run:
        """Return where it stands now."""
        return await self._backend.run(self.id)

    async def events(self) -> AsyncGenerator[RunEvent, None]:
        """Yield what happens in this run, from its start to its end.

        All text of an answer comes as previews before its `Committed`, whenever one begins to
        iterate. Ends after `Ended`, and after `CallsWaiting` if the run still waits: nothing
        follows until the results are brought. Iterating again tells it all from the start.
        """
        told = (0, 0)  # the newest generation of which text was told, and how much
        stream = self._backend.follow(self.conversation, self._since)
        try:
            async for item in stream:
                if isinstance(item, Preview):
                    if item.run == self.id:
                        told = _longer(told, item)
                        yield item
                    continue
                if isinstance(item, CaughtUp):
                    continue
                event = await self._typed(item)
                if event is None:
                    continue
                if isinstance(event, Committed):
                    for piece in _rest(event, told[1] if told[0] == event.generation else 0):
                        yield piece
                yield event
                if isinstance(event, CallsWaiting | Ended):
                    return
        finally:
            await stream.aclose()

    async def _typed(self, item: Durable) -> RunEvent | None:
        event = item.event
        if getattr(event, "run", None) != self.id:
            return None
        match event:
            case events.Withdrawn():
                return Withdrawn(run=self.id, generation=event.generation, reason=event.reason)
            case events.Committed():
                message = await self._backend.message(self.conversation, event.message)
                return Committed(
                    run=self.id,
                    message=message,
                    generation=event.generation,
                    finish=event.finish,
                    verdict=event.verdict,
                )
            case events.CallChanged() if event.state not in (
                CallState.PENDING,
                CallState.EXECUTING,
            ):
                calls = await self.calls()
                call = next(c for c in calls if c.call_id == event.call)
                return CallFinished(run=self.id, call=call)
            case events.RunChanged(status=RunStatus.UNKNOWN):
                return Unknown(run=self.id, code=event.code)
            case events.RunChanged(status=RunStatus.WAITING):
                opened = await self.waiting()
                return CallsWaiting(run=self.id, calls=opened) if opened else None
            case events.RunChanged(status=RunStatus.SUCCESS | RunStatus.ERROR | RunStatus.CANCELED):
                return Ended(run=self.id, status=event.status, code=event.code, into=event.into)
            case _:
                return None

    async def calls(self) -> list[Call]:
        """Return its tool calls, as the ledger has them."""
        return await self._backend.calls(self.conversation, self.id)

    async def waiting(self) -> tuple[Call, ...]:
        """Return the calls whose results it waits for; none where it does not wait."""
        row = await self.row()
        if row.status is not RunStatus.WAITING:
            return ()
        return tuple(
            c for c in await self.calls() if c.message == row.leaf and c.state not in TERMINAL_CALL
        )

    async def result(self) -> Message:
        """Wait for the end and return the answer; where its message joined another run, that one's.

        Raises:
            OutcomeUnknown: Nobody knows what the provider did; it was not asked again.
            ProviderFailed: It said no, or what it said may not be committed.
            Refused: A rule forbids the request, and it was not sent; the code is the rule's.
            RunCanceled: Somebody canceled the run.
        """
        async with aclosing(self.events()) as told:  # who leaves it to the collector pays a task
            return await self._result(told)

    async def _result(self, told: AsyncIterator[RunEvent]) -> Message:
        answer: Message | None = None
        async for event in told:
            match event:
                case Committed(message=message):
                    answer = message
                case CallsWaiting(calls=calls):
                    raise ProviderFailed(
                        "The run waits for the results of tools.",
                        code="missing_tool_result",
                        at=calls[0].call_id if calls else self.id,
                    )
                case Ended(into=into) if into is not None:
                    other = await self._backend.run(into)
                    return await RunHandle(self._backend, other).result()
                case Ended(status=RunStatus.SUCCESS) if answer is not None:
                    return answer
                case Ended(status=status, code=code):
                    raise await self.failure(status, code)
                case _:
                    pass
        raise run_error(self.id, RunStatus.ERROR, "internal_error")

    async def failure(self, status: RunStatus, code: str | None) -> AntiphonError:
        """Return the error of an end with this status and code, for whoever wanted its answer."""
        if status is not RunStatus.ERROR:
            return run_error(self.id, status, code)
        # The step in which it ended had something sent, unless the one before was committed.
        operations = (await self.explain()).operations
        newest = operations[-1].attempts[-1] if operations else None
        sent = newest is not None and newest.state is not State.COMMITTED
        if code is not None and code in REASONS and not sent:
            return Refused(f"The request was not sent. {REASONS[code].rule}", code=code, at=self.id)
        said = newest.said if sent and newest is not None else None
        if said is not None and newest is not None and newest.proof is not None:
            said = msgspec.structs.replace(said, retryable=False)  # it may have been carried out
        return run_error(self.id, status, code, said)

    async def answer(self, outputs: Mapping[str, str | Output]) -> RunHandle:
        """Bring the results of all its open calls, each once; events go on from here."""
        since = await self._now()
        row = await self._backend.answer(self.conversation, self.id, outputs)
        return RunHandle(self._backend, row, since)

    async def approve(self, call: str, *, arguments: str | None = None) -> RunHandle:
        """Let a call run that waits for approval, with other arguments where given."""
        since = await self._now()
        await self._backend.approve(self.conversation, self.id, call, arguments=arguments)
        return RunHandle(self._backend, await self.row(), since)

    async def refuse(self, call: str, *, reason: str = "") -> RunHandle:
        """Close a call that waits for approval; the model is told that it was refused."""
        since = await self._now()
        await self._backend.refuse(self.conversation, self.id, call, reason=reason)
        return RunHandle(self._backend, await self.row(), since)

    async def resolve(self, call: str, output: str | Output) -> RunHandle:
        """Give a call of unknown fate the result that somebody found out."""
        since = await self._now()
        given = output if isinstance(output, Output) else Output(text=output)
        await self._backend.resolve(self.conversation, self.id, call, given)
        return RunHandle(self._backend, await self.row(), since)

    async def _now(self) -> int:
        """Return the number of the conversation's newest event."""
        return (await self._backend.conversation(self.conversation)).last_event

    async def cancel(self, reason: str = "canceled") -> Run:
        """Cancel it, in whatever state it is; for a run that has ended nothing changes."""
        return await self._backend.cancel(self.conversation, self.id, reason=reason)

    async def explain(self) -> Explanation:
        """Return its operations, attempts, calls and why each ended as it did."""
        return await self._backend.explain(self.id)

    async def request(self) -> bytes:
        """Return the exact body of its newest dispatch, its digest verified."""
        return await self._backend.request(self.id)

    async def plan(self) -> PlanTold:
        """Return what its newest dispatch was made of: tokens by kind, what was left out and why."""
        return await self._backend.plan(self.id)


def _longer(told: tuple[int, int], piece: Preview) -> tuple[int, int]:
    """Return of which generation text was told, and how much of it, after one more piece."""
    before = told[1] if told[0] == piece.generation else 0
    more = len(piece.text) if piece.channel is Channel.TEXT else 0
    return (piece.generation, before + more)


def _rest(event: Committed, told: int) -> list[Preview]:
    """Return the text of a committed answer of which nobody saw the preview.

    All of it, where nobody looked while it came; its end, where whoever looked came back late.
    """
    pieces = []
    for number, block in enumerate(event.message.blocks):
        if not isinstance(block, Text):
            continue
        skipped = min(told, len(block.text))
        told -= skipped
        if skipped < len(block.text):
            pieces.append(
                Preview(
                    run=event.run,
                    generation=event.generation,
                    block=number,
                    channel=Channel.TEXT,
                    offset=skipped,
                    text=block.text[skipped:],
                )
            )
    return pieces


def run_error(
    run: RunId, status: RunStatus, code: str | None, said: Said | None = None
) -> AntiphonError:
    """Return the error that tells how a run ended, for those who wanted its answer.

    `said` is what its provider said at last, where it said anything.
    """
    if status is RunStatus.CANCELED:
        return RunCanceled("The run was canceled.", code=code, at=run)
    if code == "outcome_unknown":
        return OutcomeUnknown(
            "The provider may have done the work; nothing came back, and it was not asked again.",
            at=run,
        )
    if code == "over_window":
        return Refused(
            "The model cannot hold this request. Shorten it, or let older turns be left out "
            "(truncation: auto).",
            code=code,
            at=run,
        )
    why = code or ProviderFailed.default_code
    words = said.for_clients if said is not None else ""
    wait_ms = None if said is None else said.retry_after_ms
    return ProviderFailed(
        f"The run ended without an answer: {why}. "
        + (f"The provider said: {words} " if words else "")
        + f"`antiphon show {run}` tells what was sent.",
        code=code,
        at=run,
        retryable=said is not None and said.retryable,
        status=None if said is None else said.status,
        retry_after_s=None if wait_ms is None else -(-wait_ms // 1000),
    )
