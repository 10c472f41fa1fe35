"""`antiphon recover`: what nobody knows the outcome of, and what may safely be done about it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import click

from antiphon.cli.opening import holder_of, reading, run, server_of, settings_of, writing
from antiphon.cli.output import config_option, db_option, json_option, note, print_json
from antiphon.cli.through import through
from antiphon.cli.view.run import explained
from antiphon.cli.view.text import Ink, count, harmless, lasted, one_line, table
from antiphon.core import recovery
from antiphon.core.dispatch import State
from antiphon.core.records import Attempt, Call, Run
from antiphon.engine.dispatch.unsettled import Unsettled, unknown_calls, unsettled
from antiphon.engine.settings import Settings
from antiphon.engine.world import World
from antiphon.errors import InvalidInput, OutcomeUnknown

NOT_YET: Final = ("outcome_unproven", "dispatch_not_unknown")
"""Why a server leaves a dispatch as it is: nothing is proven, or it has been settled meanwhile."""


@click.command()
@click.option(
    "--settle",
    is_flag=True,
    help="Do what is safe, as every start does: nothing is sent, and nothing sent again.",
)
@json_option
@db_option
@config_option
def command(settle: bool, as_json: bool, db: str | None, config: str | None) -> int:
    """List the dispatches whose outcome nobody knows, how long for, and what may be done.

    A dispatch is in flight, or unknown: it may have been carried out. What a process left behind
    when it died is settled by the next one that opens the database; --settle does it now, through
    the server where one has the database open. Without it the database is only read.

    A run that ended with outcome_unknown is settled: nothing of it can come any more, although
    nobody knows whether the provider did the work. Antiphon never sends it again by itself.

    The exit code is 5 while something is left unknown, else 0.
    """
    settings = settings_of(db, config)
    found = run(_settle(settings) if settle else _look(settings, holder_of(settings)))
    if as_json:
        print_json(
            {
                "held_by": found.held_by,
                "dispatches": [_as_json(one) for one in found.dispatches],
                "calls": [_call_as_json(call) for call in found.calls],
                "settled": [
                    {"operation": one.attempt.operation, "run": row.id, "status": row.status}
                    for one, row in found.settled
                ],
            }
        )
    else:
        _print(found, Ink())
    return OutcomeUnknown.exit_code if found.unknown else 0


def _next(one: Unsettled) -> str:
    """Return what may be done, in words."""
    match one.action:
        case None:
            return "wait: a process is at work on it"
        case recovery.ConfirmEnded(proof):
            return f"settle it (antiphon recover --settle, or any start): {proof}"
        case recovery.WaitUntil(at_ms):
            return f"wait until {_clock(at_ms)}, or cancel the run: nothing is proven before"
        case recovery.QueryHandle():
            return "ask the provider by its handle"
        case recovery.ReplayRequest():
            return "send the same bytes again under the same key"
        case recovery.AskOperator():
            return "only a person can say; the run can be canceled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All that is open."""

    held_by: str | None
    dispatches: tuple[Unsettled, ...]
    calls: tuple[Call, ...]
    settled: tuple[tuple[Unsettled, Run], ...] = ()

    @property
    def unknown(self) -> bool:
        """Whether there is anything whose outcome may stay unknown."""
        at_work = self.held_by is not None
        return bool(self.calls) or any(
            one.attempt.state is State.UNKNOWN or not at_work for one in self.dispatches
        )


async def _look(settings: Settings, held_by: str | None) -> Found:
    async with reading(settings) as world:
        return await _found(world, held_by)


async def _settle(settings: Settings) -> Found:
    server = await server_of(settings)
    held_by = None if server is None else await asyncio.to_thread(holder_of, settings)
    async with reading(settings) as world:
        before = await _found(world, held_by)
    if server is None:
        async with writing(settings) as world:  # what is safe is done by opening it
            return await _since(world, before)
    for one in before.dispatches:
        # The server has held it all along, or is the successor of who did: it knows.
        if one.attempt.state is State.UNKNOWN:
            path = f"/dispatches/{one.attempt.operation}/resolve"
            try:
                await through(server, "POST", path, {"action": "settle"})
            except InvalidInput as refused:
                if refused.code not in NOT_YET:
                    raise
    async with reading(settings) as world:
        return await _since(world, before)


async def _since(world: World, before: Found) -> Found:
    """Return what is open now, and what of `before` is settled."""
    after = await _found(world, before.held_by)
    left = {one.attempt.operation for one in after.dispatches}
    settled = [
        (one, await world.store.find_run(one.attempt.run))
        for one in before.dispatches
        if one.attempt.operation not in left
    ]
    return replace(after, settled=tuple(settled))


async def _found(world: World, held_by: str | None) -> Found:
    return Found(
        held_by=held_by,
        dispatches=tuple(
            await unsettled(world, at_work=held_by is not None, successor=held_by is None)
        ),
        calls=tuple(await unknown_calls(world)),
    )


_WORDS: Final = {
    State.DISPATCHING: "accepted; a byte may have left",
    State.SENT: "sent; no answer has begun",
    State.STREAMING: "the answer had begun",
}


def _known(attempt: Attempt) -> str:
    words = [_WORDS.get(attempt.state) or explained(attempt.error_code)]
    if attempt.written_ms is not None:
        words.append(f"sent at {_clock(attempt.written_ms)}")
    if attempt.handle is not None:
        words.append(f"handle {harmless(attempt.handle)}")
    words.append(f"deadline {_clock(attempt.deadline_ms)}")
    return "; ".join(words)


def _clock(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).astimezone().strftime("%H:%M:%S")


def _print(found: Found, ink: Ink) -> None:
    for one, settled in found.settled:
        click.echo(f"{ink(one.attempt.operation, 'bold')}  {ink('settled', 'good')}")
        end = "goes on when the database is opened to work in" if settled.open else "has ended"
        click.echo(f"  {settled.id} {end}: {explained(settled.error_code or settled.status)}")
    for one in found.dispatches:
        attempt = one.attempt
        click.echo(
            f"{ink(attempt.operation, 'bold')}  {ink(attempt.state, 'warn')} "
            f"for {lasted(one.age_ms)}"
        )
        rows = [
            ("run", f"{attempt.run} of {attempt.conversation}"),
            ("attempt", f"{attempt.number}, generation {attempt.generation}"),
            ("known", _known(attempt)),
            ("policy", ", then ".join(one.policy)),
            ("next", _next(one)),
        ]
        for row in table(rows):
            click.echo(f"  {row}")
    for call in found.calls:
        click.echo(f"{ink(call.call_id, 'bold')}  tool call {ink('UNKNOWN', 'warn')}")
        rows = [
            ("run", f"{call.run} of {call.conversation}"),
            ("asked", one_line(f"{call.name} {call.arguments}")),
            ("next", "find out whether it took effect and bring its result, or cancel the run"),
        ]
        for row in table(rows):
            click.echo(f"  {row}")
    if found.held_by is not None:
        note(f"Process {found.held_by} has this database open.")
    left = len(found.dispatches) + len(found.calls)
    note(
        f"{count(left, 'outcome')} unknown or open."
        if left
        else "Nothing is in flight, and nothing is left to settle."
    )


def _as_json(one: Unsettled) -> dict[str, object]:
    attempt = one.attempt
    return {
        "operation": attempt.operation,
        "conversation": attempt.conversation,
        "run": attempt.run,
        "attempt": attempt.number,
        "generation": attempt.generation,
        "state": attempt.state,
        "code": attempt.error_code,
        "handle": attempt.handle,
        "age_ms": one.age_ms,
        "deadline_ms": attempt.deadline_ms,
        "sent": attempt.written_ms is not None,
        "policy": list(one.policy),
        "actions": list(one.actions),
        "next": _next(one),
    }


def _call_as_json(call: Call) -> dict[str, object]:
    return {
        "call": call.call_id,
        "conversation": call.conversation,
        "run": call.run,
        "name": call.name,
        "arguments": call.arguments,
        "attempt": call.attempt,
    }
