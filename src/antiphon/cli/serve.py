"""`antiphon serve`: conversations over HTTP, and the one screen that says how to reach them."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from antiphon import __version__
from antiphon.cli.opening import place_of, settings_of
from antiphon.cli.output import config_option, db_option, print_json
from antiphon.cli.view.text import Ink
from antiphon.engine.catalogue.models import REHEARSAL
from antiphon.engine.settings import Settings
from antiphon.stores.addresses import is_shared


@click.command()
@click.option("--host", metavar="NAME", help="Where to listen; 127.0.0.1.")
@click.option("--port", type=int, metavar="NUMBER", help="Its port; 8000. 0 takes any free one.")
@click.option("--json", "as_json", is_flag=True, help="Say where it listens as a line of JSON.")
@db_option
@config_option
def command(
    host: str | None, port: int | None, as_json: bool, db: str | None, config: str | None
) -> None:
    """Serve conversations over HTTP.

    A run belongs to the server: a client that leaves does not cancel it. Ctrl-C, or SIGTERM,
    stops in good order: what is in flight has some seconds to end.

    Requests and faults are logged on standard error, one line of JSON each, without what was
    said; at a terminal only what is wrong.
    """
    settings = settings_of(db, config, host=host, port=port)
    asyncio.run(_serve(settings, as_json=as_json))


async def _serve(settings: Settings, *, as_json: bool) -> None:
    from antiphon.engine.assembly import open_world
    from antiphon.engine.engine import Engine
    from antiphon.server.app import build
    from antiphon.server.http import logs
    from antiphon.server.http.serving import listen, may_listen, serve, told_to_stop, url_of
    from antiphon.server.rights.principals import Keyring

    # At a terminal the one screen shall stay; whoever collects the log has no terminal.
    logs.configure(logging.WARNING if sys.stderr.isatty() else logging.INFO)
    listener = listen(settings)
    url = url_of(listener)

    with listener, told_to_stop() as stop:
        async with open_world(settings=settings, address=settings.address or url) as world:
            keyring = await Keyring.load(world)
            may_listen(listener, keyring)

            def started() -> None:
                if as_json:
                    print_json({"url": url, "db": place_of(settings)})
                else:
                    tools = world.functions.told()
                    click.echo(screen(settings, url, keyed=not keyring.empty, tools=tools))

            engine = Engine(world)
            await engine.start()
            try:
                await serve(build(engine, keyring), listener, stop=stop, started=started)
            finally:
                await engine.close()


def screen(settings: Settings, url: str, *, keyed: bool = False, tools: Sequence[str] = ()) -> str:
    """Return the one screen that a start shows. What it says to try works as it stands."""
    ink = Ink()
    models = settings.models
    default = models.default_name
    place = place_of(settings)
    rows = [
        ("at", f"{url}  (in a browser: the console)"),
        ("data", place if is_shared(settings.db) else str(Path(place).absolute())),
        ("models", ", ".join(models.names())),
        *(("tools", server) for server in tools),
        ("stop", "Ctrl-C"),
    ]
    lines = [f"{ink('Antiphon', 'bold')} {__version__}", ""]
    lines += [f"  {ink(name.ljust(8), 'dim')}{value}" for name, value in rows]
    if default == REHEARSAL:
        lines += [
            "",
            "  No key: you are on the rehearsal model, a script that says so in every answer.",
            "  With OPENAI_API_KEY, or a model in antiphon.toml, a real one answers.",
        ]
    return "\n".join([*lines, "", *_to_try(url, default, keyed=keyed), ""])


def _to_try(url: str, model: str, *, keyed: bool) -> list[str]:
    """Return what to type; each of it alone, so that a whole line can be copied."""
    bearer = " -H 'authorization: Bearer KEY'" if keyed else ""
    key = "KEY" if keyed else "any"
    body = json.dumps({"model": model, "input": "Hello"})
    return [
        "  Try, with a key of yours in place of KEY:" if keyed else "  Try:",
        "",
        f"curl -s {url}/v1/responses{bearer} -H 'content-type: application/json' -d '{body}'",
        "",
        "  or, after pip install openai:",
        "",
        "from openai import OpenAI",
        f'client = OpenAI(base_url="{url}/v1", api_key="{key}")',
        f'print(client.responses.create(model="{model}", input="Hello").output_text)',
    ]
