"""`antiphon show`: what is stored, for people and for programs. Reads only."""

from __future__ import annotations

import sys
from typing import Final

import click
import msgspec

from antiphon.cli.lookup import EVERY, Found, dispatched, find
from antiphon.cli.opening import reading, run, settings_of
from antiphon.cli.output import config_option, db_option, json_option, note
from antiphon.cli.view.run import message_page, operation, timeline
from antiphon.cli.view.text import Ink, ago, clip, count, one_line, screen_width, table
from antiphon.cli.view.tree import LEGEND, Tree, draw, headline
from antiphon.core.blocks import Message, Role
from antiphon.core.ids import LOCAL_TENANT
from antiphon.core.records import Conversation, Run, RunStatus
from antiphon.engine.explain import OperationTold, explain, planned, verified_request
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
        for line in await conversation_list(world, rows, Ink()):
            click.echo(line)
        if len(rows) == LISTED:
            note(f"The newest {LISTED}. All of them: antiphon show --json")
        if not rows:
            note("No conversations yet. Begin one with: antiphon chat")


async def conversation_list(world: World, rows: list[Conversation], ink: Ink) -> list[str]:
    """Return one line a conversation: id, age, size and what it is about."""
    now_ms, width = world.clock.now_ms(), screen_width()
    told = []
    for row in rows:
        about = row.title or await _first_words(world, row)
        told.append((row.id, ago(row.updated_ms, now_ms), one_line(about)))
    return [
        clip(line, width).replace(row[0], ink(row[0], "bold"), 1)
        for line, row in zip(table(told), told, strict=True)
    ]


async def _first_words(world: World, row: Conversation) -> str:
    """Return what a person said first: the best title that nobody gave."""
    for root in await world.store.children(row.id, None):
        if root.role is Role.USER:
            return root.text
    return ""


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
            }
        case Run():
            return await explain(world, found.id)
        case OperationTold() | Message():
            return found


async def _page(world: World, found: Found, ink: Ink, width: int) -> list[str]:
    match found:
        case Conversation():
            return await conversation_page(world, found, ink, width)
        case Run():
            return timeline(await explain(world, found.id), ink, width)
        case OperationTold():
            return operation(found, ink)
        case Message():
            row = await world.store.conversation(found.conversation)
            beside = Tree(row, await world.store.children(row.id, found.parent))
            return message_page(found, beside.place(found), ink, width)


async def conversation_page(world: World, row: Conversation, ink: Ink, width: int) -> list[str]:
    """Return a conversation's tree, and the runs that did not come to an answer."""
    messages = await world.store.tree(row.id)
    tree = Tree(row, messages)
    lines = [headline(tree, ink), "", *draw(tree, ink, width)]
    if any(message.id not in tree.line for message in messages):
        lines += ["", ink(LEGEND, "dim")]
    for told in await world.store.runs(row.id):
        if told.status not in (RunStatus.SUCCESS, RunStatus.CANCELED):
            code = told.error_code or told.end_code or ""
            lines.append(f"{told.id}  {told.status}  {code}".rstrip())
    return lines


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
        told = await planned(world, manifest)
        answered = await world.store.run(manifest.conversation, manifest.run)
    if as_json:
        emit({"operation": manifest.operation, **told})
        return
    ink = Ink()
    click.echo(f"{ink(manifest.operation, 'bold')}  {manifest.purpose}")
    rows = [
        (block["kind"], str(block["count"]), "may be cached" if block["cacheable"] else "")
        for block in told["blocks"]
    ]
    rows += [(f"  {kind}", str(number), "") for kind, number in told["transcript"].items()]
    for line in table(rows):
        click.echo(f"  {line}".rstrip())
    for reason, number in told["left_out"].items():
        click.echo(f"  left out: {count(number, 'message')}, {reason}")
    click.echo(
        ink(f"  tokens of the run, as the provider counted: {answered.input_tokens} in", "dim")
    )
