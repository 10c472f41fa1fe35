"""What the outcome of an exchange means for the run, recorded before anything else is tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import msgspec

from antiphon.core import recovery
from antiphon.core.answers.assembler import Answer
from antiphon.core.answers.judging import SCHEMA_MISMATCH, Expectation
from antiphon.core.answers.said import Said
from antiphon.core.blocks import WHOEVER, Block, Message, Origin, Reasoning, Role, ToolCall, Trust
from antiphon.core.commands import (
    AnswerOpened,
    Close,
    Command,
    CommitAnswer,
    ConflictAnswer,
    End,
    EndRun,
    Lose,
    NewCall,
    NoteWish,
    Quarantine,
    Refuse,
    StartCall,
    Then,
    Written,
)
from antiphon.core.dispatch import Condition, Denied, State
from antiphon.core.ids import ConversationId, MessageId, RunId
from antiphon.core.manifest import Manifest, WireRequest
from antiphon.core.planning.trace import PromptTrace
from antiphon.core.records import OPEN_CALL, Attempt, Call, CallState, Run, Runner, RunStatus
from antiphon.core.sessions.scheduling import SWITCH_TOOL, read_switch
from antiphon.core.tools.ledger import (
    OVER_LIMIT,
    arguments_digest,
    invalid_arguments,
    repeated,
    text_result,
    unknown_tool,
)
from antiphon.core.tools.loop import TOOL_LIMIT
from antiphon.core.tools.repeats import (
    REPEATED_CALL,
    AwaitTwin,
    Fresh,
    Reuse,
    TooOften,
    may_begin,
    repetition,
)
from antiphon.core.traffic.standing import charged
from antiphon.engine.catalogue.models import Model
from antiphon.engine.dispatch.exchange import Answered, Broken, Outcome, Rejected, Unsent
from antiphon.engine.dispatch.hearing import heard
from antiphon.engine.dispatch.target import Target
from antiphon.engine.live import LiveRun
from antiphon.engine.tools.function import Function, start_call
from antiphon.engine.world import World
from antiphon.errors import InternalError


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """An attempt that has won its acceptance, with the bytes it may send.

    `answer` is the id reserved for the message that it may commit; `resent` counts attempts
    of this operation that followed an unknown outcome. `model` is who is asked, which may be a
    fallback, and `charged` the key whose it is. `trace` is its plan, where it was planned here.
    """

    run: RunId
    conversation: ConversationId
    attempt: Attempt
    manifest: Manifest
    request: WireRequest
    target: Target
    answer: MessageId
    max_calls: int
    expectation: Expectation | None = None
    model: Model
    charged: str = ""
    resent: int = 0
    trace: PromptTrace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """The attempt has ended for certain, and another one may follow after `wait_ms`."""

    wait_ms: int
    after_unknown: bool = False


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The attempt came to a definite no, and no other attempt of its operation follows.

    Nothing of it can reach us, so another model may be asked; otherwise the run ends with `code`.
    """

    code: str


@dataclass(frozen=True, slots=True)
class Kept:
    """The outcome is unknown, and the provider keeps the answer under the attempt's handle."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Stepped:
    """The run as it stands after a model call.

    `started` are the calls of its answer that are EXECUTING already, in the hands of whoever
    made the call: they were claimed in the transaction that committed them.
    """

    run: Run
    started: tuple[Call, ...] = ()


_WAY_BEHIND: Final = {State.DISPATCHING: 0, State.SENT: 1}
"""How many steps of the way to an open answer an attempt has behind it."""

Settled: TypeAlias = Stepped | Run | Again | GaveUp | Kept
"""The run as it then stands, or word that its operation may be tried again, or asked after."""


class Settlement:
    """Records outcomes. Every method may find that the run was canceled meanwhile."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def settle(
        self, accepted: Accepted, outcome: Outcome, live: LiveRun, *, goes_on: bool = False
    ) -> Settled:
        """Record what `outcome` means and return how the run goes on.

        `goes_on` says that what was cut can be read on from where it broke: then what was shown
        of it stands.
        """
        match outcome:
            case Answered(answer) if answer.committable:
                return await self.commit(accepted, answer)
            case Answered(answer) if answer.definite:
                return await self._refused(
                    accepted,
                    code=answer.error or "provider_error",
                    retryable=answer.retryable,
                    shown=live.shown,
                    # What a model was not willing or able to say is its answer.
                    elsewhere=answer.retryable,
                    said=heard(accepted.model, answer),
                )
            case Answered(answer):
                code, said = answer.error or "stream_incomplete", heard(accepted.model, answer)
                return await self._unknown(accepted, code, live, goes_on=goes_on, said=said)
            case Rejected(verdict=verdict, status=status) if verdict.definite:
                return await self._refused(
                    accepted,
                    code=verdict.code,
                    retryable=verdict.retryable,
                    retry_after_ms=verdict.retry_after_ms,
                    said=heard(accepted.model, verdict, status),
                )
            case Rejected(verdict=verdict, status=status):
                said = heard(accepted.model, verdict, status)
                return await self._unknown(accepted, verdict.code, live, goes_on=goes_on, said=said)
            case Unsent(code):
                return await self._refused(accepted, code=code, retryable=True, not_sent=True)
            case Broken(code):
                return await self._unknown(accepted, code, live, goes_on=goes_on)

    def lost(self, accepted: Accepted, code: str, *, shown: bool, said: Said | None = None) -> Lose:
        """Return the command that says that nobody knows any more."""
        return Lose(
            conversation=accepted.conversation,
            now_ms=self._world.clock.now_ms(),
            operation=accepted.attempt.operation,
            generation=accepted.attempt.generation,
            fence=self._world.fence,
            code=code,
            shown=shown,
            said=said,
        )

    async def end(self, run: RunId, conversation: ConversationId, code: str) -> Run:
        """End a run in error and return it; where another node has taken it, as it stands."""
        done = await self._world.do(
            EndRun(
                conversation=conversation,
                now_ms=self._world.clock.now_ms(),
                run=run,
                status=RunStatus.ERROR,
                fence=self._world.fence,
                error_code=code,
            )
        )
        if isinstance(done, Denied) and done.reason == Condition.OWNER_OR_GONE:
            return await self._world.store.run(conversation, run)
        if isinstance(done, Denied):
            raise InternalError(f"A run could not be ended: {done.reason}.", at=run)
        return done

    async def commit(self, accepted: Accepted, answer: Answer, *, found: bool = False) -> Stepped:
        """Let a whole answer become canonical; `found` where it was asked for, not streamed."""
        world, attempt, manifest = self._world, accepted.attempt, accepted.manifest
        if accepted.trace is not None:
            world.planner.learn(accepted.target.policy, accepted.trace, answer.usage.whole_input)
        now_ms = world.clock.now_ms()
        wish = None
        if accepted.target.switches:
            answer, wish = without_switch(answer)
        if wish is not None and not answer.calls:
            return Stepped(await self._wished(accepted, answer, wish))
        earlier = await self._earlier(accepted) if answer.calls else []
        calls = self._new_calls(accepted, answer, earlier)
        end_code = "length" if answer.truncated else None
        if calls and len(earlier) + len(calls) >= accepted.max_calls:
            end_code = TOOL_LIMIT
        then, verdict = then_after(calls, paused=answer.paused), None
        if accepted.expectation is not None and then is Then.FINISH:
            verdict = accepted.expectation.verdict(answer.text)
            if not verdict.fits:
                if accepted.expectation.retry:
                    then, end_code = Then.CONTINUE, SCHEMA_MISMATCH
                end_code = end_code or SCHEMA_MISMATCH
        cost = accepted.model.cost(answer.usage)
        commit = CommitAnswer(
            conversation=accepted.conversation,
            now_ms=now_ms,
            operation=attempt.operation,
            generation=attempt.generation,
            message=Message(
                id=accepted.answer,
                conversation=accepted.conversation,
                parent=manifest.base_leaf,
                role=Role.ASSISTANT,
                blocks=bound_to(manifest, attempt.generation, answer.blocks),
                origin=Origin.MODEL,
                trust=Trust.MODEL,
                session=manifest.session,
                run=accepted.run,
                created_ms=now_ms,
            ),
            calls=calls,
            usage=answer.usage,
            finish=answer.finish,
            then=then,
            end_code=end_code,
            found=found,
            verdict=verdict,
            cost=cost,
            spent=charged(accepted.charged, cost),
            wish=wish,
        )
        together = await world.do_all(commit, *self._starts(accepted, calls))
        if not isinstance(together, Denied):
            return Stepped(together[0], tuple(together[1:]))
        done = await world.do(commit)
        if isinstance(done, Denied) and (way := await self._way(accepted)):
            late = await world.do_all(*way, commit)
            done = late if isinstance(late, Denied) else late[-1]
        if isinstance(done, Denied):
            return Stepped(await self._too_late(accepted, answer.text, done))
        return Stepped(done)

    async def _way(self, accepted: Accepted) -> list[Command[Attempt]]:
        """Return what is not recorded yet of an answer that has begun.

        It was submitted on the way, and nobody waited for it: a store that could not be written
        to just then has kept nothing of it.
        """
        world, operation = self._world, accepted.attempt.operation
        stored = (await world.store.attempts(operation))[-1]
        steps: tuple[type[Written] | type[AnswerOpened], ...] = (Written, AnswerOpened)
        return [
            step(
                conversation=accepted.conversation,
                now_ms=world.clock.now_ms(),
                operation=operation,
                generation=accepted.attempt.generation,
                fence=world.fence,
            )
            for step in steps[_WAY_BEHIND.get(stored.state, len(steps)) :]
        ]

    async def _wished(self, accepted: Accepted, answer: Answer, wish: str) -> Run:
        """Keep nothing of an answer that only asks for a new session, and note the wish.

        Words beside it go too: the model is asked again where the talk then goes on, and what
        stood in the tree of a call that is in none would be a riddle to it.
        """
        world, attempt = self._world, accepted.attempt
        now_ms, at = world.clock.now_ms(), accepted.conversation
        preview = world.broker.preview(accepted.run)
        refuse = Refuse(
            conversation=at,
            now_ms=now_ms,
            operation=attempt.operation,
            generation=attempt.generation,
            fence=world.fence,
            code=SWITCH_TOOL.name,
            shown=preview is not None and preview.shown,
        )
        cost = accepted.model.cost(answer.usage)
        rest: tuple[Command[Any], ...] = (
            Close(conversation=at, now_ms=now_ms, operation=attempt.operation),
            NoteWish(
                conversation=at,
                now_ms=now_ms,
                run=accepted.run,
                goal=wish,
                usage=answer.usage,
                cost=cost,
                spent=charged(accepted.charged, cost),
            ),
        )
        done = await world.store.do_all(refuse, *rest)
        if isinstance(done, Denied):
            # It was taken up by its handle, or found: a no to that says nothing of the first
            # sending, but a whole answer is proof that it has ended.
            await world.store.do(refuse)
            ended = End(
                conversation=at,
                now_ms=now_ms,
                operation=attempt.operation,
                generation=attempt.generation,
                proof="its whole answer is here",
            )
            await world.store.do_all(ended, *rest)
        return await world.store.run(at, accepted.run)

    def _starts(self, accepted: Accepted, calls: tuple[NewCall, ...]) -> Iterator[StartCall]:
        """Claim what this process runs in the transaction that commits it: one flush less."""
        for call in may_begin(calls):
            if call.runnable:
                yield start_call(
                    self._world.functions[call.name],
                    conversation=accepted.conversation,
                    run=accepted.run,
                    call_id=call.call_id,
                    fence=self._world.fence,
                    now_ms=self._world.clock.now_ms(),
                )

    async def _earlier(self, accepted: Accepted) -> Sequence[Call]:
        """Return the calls that the run has asked for before this answer."""
        return await self._world.store.calls(accepted.conversation, accepted.run)

    def _new_calls(
        self, accepted: Accepted, answer: Answer, earlier: Sequence[Call]
    ) -> tuple[NewCall, ...]:
        """Return the ledger rows to be born, in order; each knows those before it."""
        born: list[NewCall] = []
        for call in answer.calls:
            before: list[Call | NewCall] = [*earlier, *born]
            allowed = len(before) < accepted.max_calls
            new = self._new_call(call, accepted.target, answer, allowed=allowed)
            if new.runner is Runner.FUNCTION and new.state is CallState.PENDING:
                new = self._unless_repeated(new, before)
            born.append(new)
        return tuple(born)

    def _unless_repeated(self, call: NewCall, before: Sequence[Call | NewCall]) -> NewCall:
        """Return the call, closed at birth where an earlier one of its run answers it."""
        match repetition(call, before, repeat_limit=self._world.settings.repeat_limit):
            case Reuse(had):
                return replace(call, content=had.content, reused_from=had.call_id)
            case TooOften(times):
                return replace(call, code=REPEATED_CALL, content=text_result(repeated(times)))
            case Fresh() | AwaitTwin():
                return call

    def _new_call(
        self, call: ToolCall, target: Target, answer: Answer, *, allowed: bool
    ) -> NewCall:
        """Return the ledger row to be born: who runs it, and what may happen twice."""
        function, settings = self._world.functions.get(call.name), self._world.settings
        approve_by_ms = None
        if function is not None and function.approval:
            approve_by_ms = self._world.clock.now_ms() + int(settings.approval_timeout_s * 1000)
        code, text = None, ""
        if not allowed:
            code, text = TOOL_LIMIT, OVER_LIMIT
        elif call.name not in target.checks:
            code, text = "unknown_tool", unknown_tool(call.name, target.checks)
        elif call.call_id in answer.problems:
            code, text = "invalid_arguments", invalid_arguments(answer.problems[call.call_id])
        return NewCall(
            call_id=call.call_id,
            name=call.name,
            arguments=call.arguments,
            arguments_digest=arguments_digest(target.key, call.name, call.arguments),
            runner=Runner.CLIENT if function is None else Runner.FUNCTION,
            read_only=function is not None and function.read_only,
            idempotent=function is not None and function.idempotent,
            idempotency_key=self._world.new_id("idem_"),
            code=code,
            content=text_result(text) if code else (),
            repeatable=function is not None and function.repeatable,
            approve_by_ms=approve_by_ms,
            max_result_chars=_shown_chars(function, settings.max_result_chars),
        )

    async def _too_late(self, accepted: Accepted, text: str, denied: Denied) -> Run:
        """A whole answer that may not land: canceled meanwhile, or its base has moved."""
        world, attempt = self._world, accepted.attempt
        now_ms = world.clock.now_ms()
        run = await world.store.run(accepted.conversation, accepted.run)
        if not run.open:
            await world.do(
                Quarantine(
                    conversation=accepted.conversation,
                    now_ms=now_ms,
                    operation=attempt.operation,
                    generation=attempt.generation,
                    reason=f"late: {denied.reason}",
                    data=text,
                )
            )
            return run
        conflict = await world.do(
            ConflictAnswer(
                conversation=accepted.conversation,
                now_ms=now_ms,
                operation=attempt.operation,
                generation=attempt.generation,
                data=text,
            )
        )
        if isinstance(conflict, Denied):
            # Nobody else has this attempt, and its base has not moved: a promise is broken.
            await world.do(self.lost(accepted, "commit_refused", shown=True))
            raise InternalError(f"The store refused a commit: {denied.reason}.", at=run.id)
        return await self.end(accepted.run, accepted.conversation, "commit_conflict")

    async def _refused(
        self,
        accepted: Accepted,
        *,
        code: str,
        retryable: bool,
        retry_after_ms: int | None = None,
        shown: bool = False,
        not_sent: bool = False,
        elsewhere: bool = True,
        said: Said | None = None,
    ) -> Settled:
        """Record a no. `elsewhere` says that another model might not say it."""
        world, attempt = self._world, accepted.attempt
        done = await world.do(
            Refuse(
                conversation=accepted.conversation,
                now_ms=world.clock.now_ms(),
                operation=attempt.operation,
                generation=attempt.generation,
                fence=world.fence,
                code=code,
                not_sent=not_sent,
                shown=shown,
                said=said,
            )
        )
        if isinstance(done, Denied):
            return await world.store.run(accepted.conversation, accepted.run)
        wait_ms = recovery.backoff_ms(
            world.settings.retry_policy,
            made=attempt.number,
            fraction=world.entropy.fraction(),
            retry_after_ms=retry_after_ms,
        )
        if retryable and wait_ms is not None:
            return Again(wait_ms=wait_ms)
        if elsewhere and done.state is State.FAILED:
            return GaveUp(code)
        return await self.end(accepted.run, accepted.conversation, code)

    async def _unknown(
        self,
        accepted: Accepted,
        code: str,
        live: LiveRun,
        *,
        goes_on: bool,
        said: Said | None = None,
    ) -> Settled:
        """Record that nobody knows, then do what the profile's ladder allows at once."""
        shown = live.shown and not goes_on
        lost = await self._world.do(self.lost(accepted, code, shown=shown, said=said))
        if isinstance(lost, Denied):
            if live.shown:
                return await self._too_late(accepted, live.text(), lost)
            return await self._world.store.run(accepted.conversation, accepted.run)
        return await self.descend(accepted, lost, recovery.Witness(closed=True, saw_cut=True))

    async def descend(
        self,
        accepted: Accepted,
        unknown: Attempt,
        witness: recovery.Witness,
        code: str = "outcome_unknown",
    ) -> Settled:
        """Do the next safe thing with an attempt that stands in UNKNOWN.

        Where it is known by then how the attempt ended, `code` says it.
        """
        world, adapter = self._world, accepted.target.adapter
        action = recovery.next_action(
            unknown,
            adapter.recovery,
            witness,
            now_ms=world.clock.now_ms(),
            closing_ends=adapter.closing_ends,
        )
        if isinstance(action, recovery.QueryHandle):
            return Kept(unknown)
        if not isinstance(action, recovery.ConfirmEnded):
            return await world.store.run(accepted.conversation, accepted.run)
        ended = await world.do(
            End(
                conversation=accepted.conversation,
                now_ms=world.clock.now_ms(),
                operation=unknown.operation,
                generation=unknown.generation,
                proof=action.proof,
            )
        )
        if isinstance(ended, Denied):
            return await world.store.run(accepted.conversation, accepted.run)
        may = recovery.may_resend(
            world.settings.resend_after_unknown, witness, resent=accepted.resent
        )
        if may and unknown.number <= world.settings.retries:
            return Again(wait_ms=0, after_unknown=True)
        return await self.end(accepted.run, accepted.conversation, code)


def _shown_chars(function: Function | None, default: int) -> int:
    """Return how much of a result the model is shown; what an application brings, whole."""
    if function is None:
        return 0
    return default if function.max_result_chars is None else function.max_result_chars


def bound_to(manifest: Manifest, generation: int, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Return `blocks` bound to what they answer.

    A call belongs to the generation that asked for it, and state that goes back to its provider
    to the line that it was made behind, and to the model that was asked where it names none.
    """
    return tuple(_bound(manifest, generation, block) for block in blocks)


def _bound(manifest: Manifest, generation: int, block: Block) -> Block:
    changes: dict[str, object] = {}
    if isinstance(block, ToolCall):
        changes["generation"] = generation
    if isinstance(block, ToolCall | Reasoning) and block.opaque is not None:
        opaque = msgspec.structs.replace(block.opaque, prefix=manifest.sequence_digest)
        if opaque.model == WHOEVER:
            opaque = msgspec.structs.replace(opaque, model=manifest.model_revision)
        changes["opaque"] = opaque
    return msgspec.structs.replace(block, **changes) if changes else block


def without_switch(answer: Answer) -> tuple[Answer, str | None]:
    """Return an answer without calls of the switch tool, and the goal that they name, if any is.

    The goal is empty where the call is there and names none.
    """
    wished = [call for call in answer.calls if call.name == SWITCH_TOOL.name]
    if not wished:
        return answer, None
    left = msgspec.structs.replace(
        answer,
        blocks=tuple(block for block in answer.blocks if block not in wished),
        calls=tuple(call for call in answer.calls if call not in wished),
    )
    return left, read_switch(wished[0].arguments) or ""


def then_after(calls: tuple[NewCall, ...], *, paused: bool) -> Then:
    """Return what becomes of a run whose answer asks for `calls`."""
    if not calls:
        return Then.CONTINUE if paused else Then.FINISH
    open_ones = [call for call in calls if call.state in OPEN_CALL]
    if open_ones and all(call.runner is Runner.CLIENT for call in open_ones):
        return Then.WAIT
    return Then.CONTINUE
