"""`antiphon show`: what is stored, for people and for programs. Reads only."""

from __future__ import annotations

import sys
from typing import Final

import click
import msgspec

from antiphon.cli.lookup import EVERY, Found, dispatched, find
from antiphon.cli.opening import reading, run, settings_of
from antiphon.cli.output import config_option, db_option, json_option, note
from antiphon.cli.view.plan import plan_page
from antiphon.cli.view.run import message_page, operation, timeline
from antiphon.cli.view.text import Ink, screen_width
from antiphon.cli.view.tree import Tree, conversation_list, conversation_page, first_words
from antiphon.core.blocks import Message
from antiphon.core.ids import LOCAL_TENANT
from antiphon.core.records import Conversation, Run
from antiphon.core.telling.explanation import OperationTold
from antiphon.engine.keeping.explain import explain, plan_told, verified_request
from antiphon.engine.settings import Settings
from antiphon.engine.world import World
from antiphon.errors import InvalidInput

LISTED: Final = 50


@click.command()
@click.argument("name", metavar="[ID]", required=False)
@click.option(
    "--request",
    "as_request",
    is_flag=True,
    help="Print the exact body of the newest dispatch that was sent, and nothing else.",
)
@click.option("--dispatch", metavar="OP", help="Another dispatch than the newest: op_….")
@click.option("--plan", "as_plan", is_flag=True, help="Say what went into the newest dispatch.")
@json_option
@db_option
@config_option
def command(
    name: str | None,
    as_request: bool,
    dispatch: str | None,
    as_plan: bool,
    as_json: bool,
    db: str | None,
    config: str | None,
) -> None:
    """Show what is stored, and where it stands.

    ID is a conversation (its tree), a run (every attempt with its times), an operation or a
    message; the last characters of an id are enough where no other ends with them. Without ID
    the conversations are listed, newest first.

    The database is only read, so this works while another process is at work in it.
    """
    settings = settings_of(db, config)
    if as_request or dispatch or as_plan:
        if name is None and dispatch is None:
            raise InvalidInput("Say of which run or conversation.", code="usage")
        work = _plan if as_plan else _request
        run(work(settings, name, dispatch, as_json))
    elif name is None:
        run(_list(settings, as_json))
    else:
        run(_show(settings, name, as_json))


def emit(value: object) -> None:
    """Print any of our values as one line of JSON."""
    click.echo(msgspec.json.encode(value).decode())


# Shapes.


async def _list(settings: Settings, as_json: bool) -> None:
    async with reading(settings) as world:
        rows = await world.store.conversations(LOCAL_TENANT, limit=EVERY if as_json else LISTED)
        if as_json:
            emit(rows)
            return
        abouts = [await _about(world, row) for row in rows]
        for line in conversation_list(rows, abouts, Ink(), world.clock.now_ms()):
            click.echo(line)
        if len(rows) == LISTED:
            note(f"The newest {LISTED}. All of them: antiphon show --json")
        if not rows:
            note("No conversations yet. Begin one with: antiphon chat")


async def _about(world: World, row: Conversation) -> str:
    if row.erased_ms is not None:
        return "(erased)"
    return row.title or first_words(await world.store.children(row.id, None))


async def _show(settings: Settings, name: str, as_json: bool) -> None:
    async with reading(settings) as world:
        found = await find(world, name)
        if as_json:
            emit(await _value(world, found))
            return
        for line in await _page(world, found, Ink(), screen_width()):
            click.echo(line)


async def _value(world: World, found: Found) -> object:
    match found:
        case Conversation():
            return {
                "conversation": found,
                "messages": await world.store.tree(found.id),
                "runs": await world.store.runs(found.id),
                "sessions": await world.store.sessions(found.id),
            }
        case Run():
            return await explain(world, found.id)
        case OperationTold() | Message():
            return found


async def _page(world: World, found: Found, ink: Ink, width: int) -> list[str]:
    match found:
        case Conversation():
            store = world.store
            return conversation_page(
                Tree(found, await store.tree(found.id)),
                await store.runs(found.id),
                await store.sessions(found.id),
                ink,
                width,
            )
        case Run():
            return timeline(await explain(world, found.id), ink, width)
        case OperationTold():
            return operation(found, ink, width)
        case Message():
            row = await world.store.conversation(found.conversation)
            beside = Tree(row, await world.store.children(row.id, found.parent))
            return message_page(found, beside.place(found), ink, width)


# One dispatch.


async def _request(
    settings: Settings, name: str | None, dispatch: str | None, as_json: bool
) -> None:
    async with reading(settings) as world:
        manifest = await dispatched(world, name, dispatch)
        request = await verified_request(world, manifest)
    if as_json:
        emit(
            {
                "operation": manifest.operation,
                "request_digest": manifest.request_digest,
                "method": request.method,
                "url": request.url,
                "headers": dict(request.headers),
                "body": request.body.decode(),
            }
        )
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(request.body)
    sys.stdout.buffer.flush()
    if sys.stdout.isatty():
        note("")


async def _plan(settings: Settings, name: str | None, dispatch: str | None, as_json: bool) -> None:
    async with reading(settings) as world:
        manifest = await dispatched(world, name, dispatch)
        told = await plan_told(world, manifest)
        answered = await world.store.run(manifest.conversation, manifest.run)
    if as_json:
        emit(told)
        return
    ink = Ink()
    click.echo(
        f"{ink(manifest.operation, 'bold')}  {manifest.purpose} to {manifest.model_revision}"
    )
    for row in plan_page(told, ink):
        click.echo(row)
    if answered.input_tokens:
        reported = f"  the provider counted {answered.input_tokens:,} tokens in for the whole run"
        click.echo(ink(reported, "dim"))
