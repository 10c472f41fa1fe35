"""`antiphon erase`: takes away what was said, for good."""

from __future__ import annotations

import click

from antiphon.cli.lookup import find
from antiphon.cli.opening import reading, run, server_of, settings_of, writing
from antiphon.cli.output import config_option, db_option, json_option, note, print_json
from antiphon.cli.through import through
from antiphon.cli.view.text import count
from antiphon.core.ids import LOCAL_TENANT, ConversationId, TenantId
from antiphon.core.records import Conversation
from antiphon.engine.keeping.erasure import Erasure
from antiphon.engine.settings import Settings
from antiphon.errors import InvalidInput, NotFound


@click.command()
@click.argument("conversations", metavar="[CONV]...", nargs=-1)
@click.option("--tenant", metavar="NAME", help="Everything that this tenant has.")
@click.option(
    "--older-than",
    "days",
    metavar="DAYS",
    type=click.IntRange(min=1),
    help="What has not changed for so many days; of the tenant local if none is named.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be erased, and erase nothing.")
@json_option
@db_option
@config_option
def command(
    conversations: tuple[str, ...],
    tenant: str | None,
    days: int | None,
    dry_run: bool,
    as_json: bool,
    db: str | None,
    config: str | None,
) -> None:
    """Erase what was said in conversations, for good; all of them or none.

    What people and models said goes, with names, metadata and titles, with arguments and results of
    tools, with instructions and declarations that no other conversation needs. Runs that are open
    are canceled. Structure, statuses, times and digests stay, so it still shows that something was
    said and when, and a digest cannot be guessed without the tenant's key.

    Nothing of it is left in the database's files. Copies that were made of them are yours to find.

    While a server has the database open, this goes through that server; then ANTIPHON_KEY has to
    hold a key with the right to write, or to admin for a tenant or by age, if the server has keys.
    """
    several = tenant is not None or days is not None
    if several == bool(conversations):
        raise InvalidInput("Name conversations, or --tenant or --older-than.", code="usage")
    settings = settings_of(db, config)
    if several:
        where = TenantId(tenant or LOCAL_TENANT)
        erased = run(_erase_several(settings, where, days or 0, dry_run=dry_run))
    else:
        erased = run(_erase(settings, conversations, dry_run=dry_run))
    if as_json:
        print_json({"conversations": erased, "dry_run": dry_run})
        return
    for name in erased:
        click.echo(name)
    note(f"{'would erase' if dry_run else 'erased'} {count(len(erased), 'conversation')}")


async def _erase(
    settings: Settings, names: tuple[str, ...], *, dry_run: bool
) -> list[ConversationId]:
    server = await server_of(settings)
    async with reading(settings) as world:
        found = []
        for name in names:
            row = await find(world, name)
            if not isinstance(row, Conversation):
                raise NotFound("This is no conversation.", at=name)
            found.append(row.id)
    wanted = list(dict.fromkeys(found))
    if dry_run:
        return wanted
    if server is not None:
        for name in wanted:
            await through(server, "DELETE", f"/conversations/{name}/content")
        return wanted
    async with writing(settings) as world:
        await Erasure(world).erase(wanted)
    return wanted


async def _erase_several(
    settings: Settings, tenant: TenantId, days: int, *, dry_run: bool
) -> list[ConversationId]:
    server = await server_of(settings)
    if server is not None:
        wanted = {"tenant": tenant, "older_than_days": days, "dry_run": dry_run}
        told: list[ConversationId] = (await through(server, "POST", "/erasures", wanted))[
            "conversations"
        ]
        return told
    async with writing(settings) as world:
        erasure = Erasure(world)
        found = await erasure.found(tenant, days)
        if not dry_run:
            await erasure.erase(found)
            if not days:
                await erasure.erase_kept(tenant)
        return found
