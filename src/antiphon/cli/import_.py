"""`antiphon import`: brings conversations back from lines of JSON, all of them or nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import BinaryIO

import click
import msgspec

from antiphon.cli.lookup import find
from antiphon.cli.opening import reading, run, server_of, settings_of, writing
from antiphon.cli.output import config_option, db_option, json_option, note, print_json
from antiphon.cli.through import through
from antiphon.cli.view.text import count
from antiphon.core.ids import LOCAL_TENANT, ConversationId
from antiphon.core.records import Conversation
from antiphon.core.telling.archive import MAX_LINE_BYTES, Archive, read
from antiphon.engine.keeping.importing import Brought, bring
from antiphon.engine.settings import Settings
from antiphon.errors import InvalidInput, NotFound


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

    While a server has the database open, this goes through that server; then ANTIPHON_KEY has to
    hold a key with the right to write, if the server has keys.
    """
    settings = settings_of(db, config)
    lines = _read(file)
    archive = read(lines)
    done = run(_import(settings, lines, archive, into))
    if as_json:
        print_json({"conversations": msgspec.to_builtins(done), "torn_line": archive.torn_line})
    else:
        for one in done:
            there = f", {one.replayed} were there already" if one.replayed else ""
            click.echo(f"{one.id}  imported {count(one.imported, 'message')}{there}")
    if archive.torn_line is not None:
        note(f"line {archive.torn_line} was cut and is left out; everything before it is kept")
    for one in done:
        if one.missing:
            note(f"{one.id}: the file lacks {count(one.missing, 'message')} of the export")


def _read(name: str) -> list[bytes]:
    if name == "-":
        return list(_lines(sys.stdin.buffer))
    try:
        with open(name, "rb") as file:
            return list(_lines(file))
    except OSError as error:
        problem = f"The file cannot be read: {error.strerror}."
    raise InvalidInput(problem, code="unreadable", at=name)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield lines; one that is too long comes cut, which is enough to refuse it."""
    while line := file.readline(MAX_LINE_BYTES + 1):
        yield line


async def _import(
    settings: Settings, lines: list[bytes], archive: Archive, into: str | None
) -> list[Brought]:
    server = await server_of(settings)
    target = await _target(settings, into)
    if server is not None:
        body = {"lines": b"".join(lines).decode(), "into": target}
        told = await through(server, "POST", "/imports", body)
        return msgspec.convert(told["conversations"], list[Brought])
    async with writing(settings) as world:
        return await bring(world, archive, LOCAL_TENANT, target)


async def _target(settings: Settings, into: str | None) -> ConversationId | None:
    if into is None:
        return None
    async with reading(settings) as world:
        found = await find(world, into)
    if not isinstance(found, Conversation):
        raise NotFound("This is no conversation.", at=into)
    return found.id
