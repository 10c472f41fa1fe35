"""`antiphon import`: brings conversations back from lines of JSON, all of them or nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

import click

from antiphon.cli.lookup import find
from antiphon.cli.opening import run, settings_of, writing
from antiphon.cli.output import config_option, db_option, json_option, note, print_json
from antiphon.cli.view.text import count
from antiphon.core.archive import MAX_LINE_BYTES, Archive, Archived, Change, changes, read
from antiphon.core.commands import AddMessages, Command, CreateConversation, DeleteMessages
from antiphon.core.dispatch import Denied
from antiphon.core.ids import LOCAL_TENANT, ConversationId, MessageId, SessionId
from antiphon.core.records import OPEN_RUN, Conversation
from antiphon.engine.runs.refusals import refusal
from antiphon.engine.settings import Settings
from antiphon.engine.world import World
from antiphon.errors import Conflict, InvalidInput, NotFound


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--into", metavar="CONV", help="Add the messages to this conversation.")
@json_option
@db_option
@config_option
def command(file: str, into: str | None, as_json: bool, db: str | None, config: str | None) -> None:
    """Read conversations from JSON lines, as `antiphon export` writes them; `-` is standard input.

    Ids stay as they are. A message that is there already with the same content is left alone and
    counted; with other content the whole import is refused, as it is for a parent that is missing
    or foreign, a circle, or a line that cannot be read. A last line that was cut is reported and
    left out.

    Imported messages are marked as such, and are trusted no more than what a user wrote.
    """
    settings = settings_of(db, config)
    archive = _read(file)
    done = run(_import(settings, archive, into))
    if as_json:
        print_json(
            {
                "conversations": [
                    {
                        "id": one.id,
                        "imported": len(one.change.new),
                        "replayed": one.change.replayed,
                        "deleted": len(one.change.deleted),
                        "missing": one.missing,
                    }
                    for one in done
                ],
                "torn_line": archive.torn_line,
            }
        )
    else:
        for one in done:
            there = f", {one.change.replayed} were there already" if one.change.replayed else ""
            click.echo(f"{one.id}  imported {count(len(one.change.new), 'message')}{there}")
    if archive.torn_line is not None:
        note(f"line {archive.torn_line} was cut and is left out; everything before it is kept")
    for one in done:
        if one.missing:
            note(f"{one.id}: {count(one.missing, 'message')} of the export are not in the file")


def _read(name: str) -> Archive:
    if name == "-":
        return read(_lines(sys.stdin.buffer))
    try:
        with open(name, "rb") as file:
            return read(_lines(file))
    except OSError as error:
        problem = f"The file cannot be read: {error.strerror}."
    raise InvalidInput(problem, code="unreadable", at=name)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield lines; one that is too long comes cut, which is enough to refuse it."""
    while line := file.readline(MAX_LINE_BYTES + 1):
        yield line


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    id: ConversationId
    change: Change
    missing: int


async def _import(settings: Settings, archive: Archive, into: str | None) -> list[_Done]:
    if into is not None and len(archive.conversations) > 1:
        raise InvalidInput(
            "The file holds several conversations; --into takes one.", code="usage", at=into
        )
    async with writing(settings) as world:
        done: list[_Done] = []
        commands: list[Command[Any]] = []
        for archived in archive.conversations:
            target = await _target(world, archived, into)
            elsewhere = {
                message.id
                for other in archive.conversations
                if other is not archived
                for message in other.messages
            }
            one, needed = await _changes(world, archived, target, elsewhere)
            done.append(one)
            commands += needed
        result = await world.store.do_all(*commands)
        if isinstance(result, Denied):
            raise refusal(result)
        return done


async def _target(world: World, archived: Archived, into: str | None) -> ConversationId:
    if into is None:
        return archived.id
    found = await find(world, into)
    if not isinstance(found, Conversation):
        raise NotFound("This is no conversation.", at=into)
    return found.id


async def _changes(
    world: World, archived: Archived, target: ConversationId, elsewhere: set[MessageId]
) -> tuple[_Done, list[Command[Any]]]:
    """Return what is to be done for one conversation, and what that comes to."""
    store, now_ms = world.store, world.clock.now_ms()
    row: Conversation | None = None
    with suppress(NotFound):
        row = await store.conversation(target)
    commands: list[Command[Any]] = []
    if row is None:
        commands.append(
            CreateConversation(
                conversation=target,
                now_ms=archived.created_ms or now_ms,
                tenant=LOCAL_TENANT,
                session=SessionId(world.new_id("sess_")),
                title=archived.title,
                metadata=tuple(archived.metadata.items()),
            )
        )
    existing = {m.id: m for m in await store.tree(target)} if row is not None else {}
    change = changes(
        archived,
        target,
        existing,
        now_ms=now_ms,
        deleted=row.deletions if row is not None else (),
        elsewhere=elsewhere,
    )
    head = change.head if row is None or row.head is None else None
    if change.new or head is not None:
        commands.append(
            AddMessages(conversation=target, now_ms=now_ms, messages=change.new, head=head)
        )
    if change.deleted:
        if row is not None and await store.runs(target, OPEN_RUN):
            raise Conflict(
                "Runs are open here, and the import would delete messages under them.",
                code="conversation_busy",
                at=target,
            )
        commands.append(
            DeleteMessages(
                conversation=target, now_ms=now_ms, messages=tuple(sorted(change.deleted))
            )
        )
    return _Done(id=target, change=change, missing=archived.missing), commands
