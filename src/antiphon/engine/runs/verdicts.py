"""What people decide about tool calls: whether one may run, and what became of one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from antiphon.core.answers.arguments import Worth, worth
from antiphon.core.answers.schemas import compile_schema
from antiphon.core.asking import Output
from antiphon.core.commands import ApproveCall, FinishCall
from antiphon.core.dispatch import Denied
from antiphon.core.ids import CallId, ConversationId, RunId
from antiphon.core.records import Approval, Call, CallState
from antiphon.core.tools.ledger import REFUSED_BY_PERSON, text_result
from antiphon.engine.runs.refusals import carried_out, refusal
from antiphon.engine.world import World
from antiphon.errors import InvalidInput, NotFound


class Verdicts:
    """Takes decisions about calls; the conversation's worker then goes on."""

    def __init__(self, world: World, kick: Callable[[ConversationId], None]) -> None:
        self._world = world
        self._kick = kick

    async def approve(
        self, conversation: ConversationId, run: RunId, call: str, *, arguments: str | None = None
    ) -> Call:
        """Let a call run that waits for somebody to agree, with other arguments where given.

        The model is told of changed arguments. The same approval again changes nothing.

        Raises:
            Conflict: `not_approvable`: it needs no approval, or has begun or ended;
                `approval_expired`.
            InvalidInput: `invalid_arguments`: the changed arguments are no JSON object, or do
                not fit the tool's schema. The call waits on.
        """
        if arguments is not None:
            await self._require_fitting(conversation, run, call, arguments)
        return await self._take(
            ApproveCall(
                conversation=conversation,
                now_ms=self._world.clock.now_ms(),
                run=run,
                call_id=CallId(call),
                arguments=arguments,
            )
        )

    async def refuse(
        self, conversation: ConversationId, run: RunId, call: str, *, reason: str = ""
    ) -> Call:
        """Close a call that waits for approval: it does not run, and the model is told so.

        Raises:
            Conflict: `not_approvable`: it needs no approval, or has begun or ended.
        """
        row = await self._call(conversation, run, call)
        if row.state is CallState.PENDING and row.approval is not Approval.NEEDED:
            raise refusal(Denied("not_approvable"))
        return await self._take(
            FinishCall(
                conversation=conversation,
                now_ms=self._world.clock.now_ms(),
                run=run,
                call_id=row.call_id,
                state=CallState.ERROR,
                content=text_result(f"{REFUSED_BY_PERSON} {reason}".strip()),
                code="refused",
            )
        )

    async def resolve(
        self, conversation: ConversationId, run: RunId, call: str, output: Output
    ) -> Call:
        """Give a call of unknown fate the result that somebody found out.

        Raises:
            Conflict: `call_not_unknown`: its fate is not unknown; `duplicate_tool_result`.
        """
        row = await self._call(conversation, run, call)
        if row.state in (CallState.PENDING, CallState.EXECUTING):
            raise refusal(Denied("call_not_unknown"))
        return await self._take(
            FinishCall(
                conversation=conversation,
                now_ms=self._world.clock.now_ms(),
                run=run,
                call_id=row.call_id,
                state=CallState.ERROR if output.error else CallState.SUCCESS,
                content=text_result(output.text),
                code=output.code,
            )
        )

    async def _call(self, conversation: ConversationId, run: RunId, call: str) -> Call:
        for row in await self._world.store.calls(conversation, run):
            if row.call_id == call:
                return row
        raise NotFound("No call of this run has this id.", code="call_not_found", at=call)

    async def _take(self, command: ApproveCall | FinishCall) -> Call:
        try:
            return await carried_out(self._world, command)
        finally:  # a broken connection does not say whether it was kept
            self._kick(command.conversation)

    async def _require_fitting(
        self, conversation: ConversationId, run: RunId, call: str, arguments: str
    ) -> None:
        row = await self._call(conversation, run, call)
        function = self._world.functions.get(row.name)
        problem: str | None = None
        if worth(arguments) is not Worth.WHOLE:
            problem = "not one whole JSON object"
        elif function is not None:
            check = compile_schema(function.declaration.parameters)
            problem = await asyncio.to_thread(check.problem, arguments)
        if problem is not None:
            raise InvalidInput(
                f"The changed arguments do not fit: {problem}.", code="invalid_arguments", at=call
            )
