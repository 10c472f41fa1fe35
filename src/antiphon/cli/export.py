"""`antiphon export`: conversations as lines of JSON, for keeping, moving and reading."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import click

from antiphon.cli.lookup import EVERY, find
from antiphon.cli.opening import reading, run, settings_of
from antiphon.cli.output import config_option, db_option, json_option, note, print_json
from antiphon.cli.view.text import count
from antiphon.core.ids import LOCAL_TENANT
from antiphon.core.records import Conversation
from antiphon.core.telling.archive import write
from antiphon.engine.keeping.looking import archived
from antiphon.engine.settings import Settings
from antiphon.engine.world import World
from antiphon.errors import InvalidInput, NotFound


class _Written(NamedTuple):
    conversations: int
    messages: int
    erased: int


@click.command()
@click.argument("conversations", metavar="[CONV]...", nargs=-1)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of standard output.")
@json_option
@db_option
@config_option
def command(
    conversations: tuple[str, ...],
    output: str | None,
    as_json: bool,
    db: str | None,
    config: str | None,
) -> None:
    """Write conversations as JSON lines: all of them, or those named.

    The first line says which format it is; then each conversation, followed by its messages, one
    a line, parents before children: the branches not taken, canceled and failed messages and
    deletion markers too. `antiphon import` reads it. A file is complete or not there: it gets its
    name when it is whole.

    With --json and --output, what was written is told as JSON.
    """
    settings = settings_of(db, config)
    with _target(output) as file:
        written = run(_export(settings, conversations, file))
    told = ", ".join(
        (count(written.conversations, "conversation"), count(written.messages, "message"))
    )
    if written.erased:
        note(
            f"{count(written.erased, 'message')} of them erased: their lines say so, and hold nothing"
        )
    if as_json and output is not None:
        print_json({"file": output, **written._asdict()})
    else:
        note(f"wrote {told}" + (f" to {output}" if output else ""))


async def _export(settings: Settings, names: tuple[str, ...], file: BinaryIO) -> _Written:
    messages, erased = 0, 0
    async with reading(settings) as world:
        rows = await _rows(world, names)
        header, *_ = write([])
        await asyncio.to_thread(file.write, header)
        for row in rows:
            whole = await archived(world.store, row)
            _, *lines = write([whole])
            await asyncio.to_thread(file.writelines, lines)
            messages += len(whole.messages)
            erased += sum(message.erased for message in whole.messages)
    return _Written(len(rows), messages, erased)


async def _rows(world: World, names: tuple[str, ...]) -> list[Conversation]:
    """Return the conversations that are named, or all; each once."""
    if names:
        named = [await _conversation(world, name) for name in names]
        return list({row.id: row for row in named}.values())
    # Oldest first, so that two exports of a growing store begin alike.
    return (await world.store.conversations(LOCAL_TENANT, limit=EVERY))[::-1]


async def _conversation(world: World, name: str) -> Conversation:
    found = await find(world, name)
    if not isinstance(found, Conversation):
        raise NotFound("This is no conversation.", at=name)
    return found


@contextmanager
def _target(output: str | None) -> Iterator[BinaryIO]:
    """Give a file to write to, which takes its name when all is written."""
    if output is None or output == "-":
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if Path(output).exists() and not Path(output).is_file():
        with _plain(output) as file:
            yield file
        return
    path = Path(output).resolve()  # a link stays one, and what it names is written
    try:
        descriptor, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise _unwritable(error, output) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(part).replace(path)
    except BaseException as error:
        Path(part).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(error, output) from None
        raise


@contextmanager
def _plain(output: str) -> Iterator[BinaryIO]:
    """Give a device or a pipe to write to. It has its name, and keeps it."""
    try:
        with Path(output).open("wb") as file:
            yield file
    except OSError as error:
        raise _unwritable(error, output) from None


def _unwritable(error: OSError, output: str) -> InvalidInput:
    return InvalidInput(
        f"The file cannot be written: {error.strerror}.", code="unwritable", at=output
    )
