"""`antiphon keys`: who may talk to a server, and what they may do there."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

from antiphon.cli.opening import reading, run, server_of, settings_of, writing
from antiphon.cli.output import config_option, db_option, json_option, note, print_json
from antiphon.cli.through import through
from antiphon.cli.view.text import Ink, table
from antiphon.core.ids import LOCAL_TENANT, TenantId
from antiphon.core.traffic.keys import EVERY_RIGHT, USUAL_RIGHTS, Key, KeyTerms, Right
from antiphon.core.traffic.standing import SpendingSince, day_of
from antiphon.engine.settings import Settings
from antiphon.engine.world import World
from antiphon.errors import NotFound


@click.group()
def command() -> None:
    """Make, list and revoke the keys of a server.

    Without any key a server listens on this machine only, and whoever reaches it may do
    everything. With the first key everybody needs one.

    While a server has the database open, this goes through that server; then ANTIPHON_KEY has to
    hold a key with the right to admin, if the server has keys.
    """


@command.command()
@click.option("--name", required=True, help="What it is for.")
@click.option("--tenant", default=LOCAL_TENANT, help="Whose conversations it opens; local.")
@click.option(
    "--right",
    "rights",
    multiple=True,
    type=click.Choice([*(right.value for right in Right), "all"]),
    help="What it may do, once for each; read, write and instruct if none is named.",
)
@click.option("--days", type=click.IntRange(min=1), help="For how long; for ever if not said.")
@click.option("--model", "models", multiple=True, help="A model that it may ask for; all if none.")
@click.option("--repair", is_flag=True, help="Have every broken history repaired, not refused.")
@click.option("--per-minute", type=click.IntRange(min=1), help="Requests that it may start.")
@click.option("--at-once", type=click.IntRange(min=1), help="Requests under way together.")
@click.option("--tokens-per-day", type=click.IntRange(min=0), help="Both directions, by the day.")
@click.option("--dollars-per-month", type=click.FloatRange(min=0), help="By the bundled prices.")
@json_option
@db_option
@config_option
def create(
    name: str,
    tenant: str,
    rights: tuple[str, ...],
    days: int | None,
    models: tuple[str, ...],
    repair: bool,
    per_minute: int | None,
    at_once: int | None,
    tokens_per_day: int | None,
    dollars_per_month: float | None,
    as_json: bool,
    db: str | None,
    config: str | None,
) -> None:
    """Make a key, and print its secret once.

    The secret is kept nowhere and never shown again.
    """
    given = EVERY_RIGHT if "all" in rights else frozenset(map(Right, rights)) or USUAL_RIGHTS
    expires_ms = None
    if days is not None:
        end = datetime.now().astimezone() + timedelta(days=days)
        expires_ms = int(end.timestamp() * 1000)
    terms = KeyTerms(
        models=frozenset(models) or None,
        repairs=repair,
        requests_per_minute=per_minute,
        concurrent=at_once,
        tokens_per_day=tokens_per_day,
        micros_per_month=None if dollars_per_month is None else round(dollars_per_month * 1e6),
    )
    made = run(_create(settings_of(db, config), name, TenantId(tenant), given, expires_ms, terms))
    if as_json:
        print_json(made)
        return
    click.echo(made["secret"])
    note(f"{made['id']} may {', '.join(sorted(given))} as {tenant}. It is not shown again.")


@command.command("list")
@json_option
@db_option
@config_option
def list_(as_json: bool, db: str | None, config: str | None) -> None:
    """List keys, without their secrets."""
    found = run(_list(settings_of(db, config)))
    if as_json:
        print_json({"keys": found})
        return
    ink = Ink()
    rows = [
        (
            key["id"],
            key["name"],
            key["tenant"],
            " ".join(sorted(key["rights"])),
            _until(key),
            _allowed(msgspec.convert(key.get("terms", {}), KeyTerms)),
        )
        for key in found
    ]
    for row, line in zip(rows, table(rows), strict=True):
        click.echo(line.replace(row[0], ink(row[0], "bold"), 1))
    if not rows:
        note("There are no keys: a server listens on this machine only.")


@command.command()
@click.argument("key")
@json_option
@db_option
@config_option
def revoke(key: str, as_json: bool, db: str | None, config: str | None) -> None:
    """Take a key's power away, for good."""
    revoked = run(_revoke(settings_of(db, config), key))
    if as_json:
        print_json(revoked)
    else:
        note(f"{revoked['id']} opens nothing any more.")


async def _create(
    settings: Settings,
    name: str,
    tenant: TenantId,
    rights: frozenset[Right],
    expires_ms: int | None,
    terms: KeyTerms,
) -> dict[str, Any]:
    server = await server_of(settings)
    if server is not None:
        wanted = {
            "name": name,
            "tenant": tenant,
            "rights": sorted(rights),
            "expires_ms": expires_ms,
            "terms": msgspec.to_builtins(terms),
        }
        return await through(server, "POST", "/keys", wanted)
    async with writing(settings) as world:
        key, secret = await (await _keyring(world)).make(
            tenant=tenant, name=name, rights=rights, expires_ms=expires_ms, terms=terms
        )
        return {**_told(key), "secret": secret}


async def _list(settings: Settings) -> list[dict[str, Any]]:
    server = await server_of(settings)
    if server is not None:
        found: list[dict[str, Any]] = (await through(server, "GET", "/keys"))["data"]
        return found
    async with reading(settings) as world:
        return [_told(key) for key in await world.store.keys()]


async def _revoke(settings: Settings, key: str) -> dict[str, Any]:
    server = await server_of(settings)
    if server is not None:
        return await through(server, "DELETE", f"/keys/{key}")
    async with writing(settings) as world:
        return _told(await (await _keyring(world)).revoke(key))


@command.command()
@click.argument("key")
@json_option
@db_option
@config_option
def usage(key: str, as_json: bool, db: str | None, config: str | None) -> None:
    """Tell what a key has used, today and this month (UTC)."""
    used = run(_usage(settings_of(db, config), key))
    if as_json:
        print_json(used)
        return
    for when, one in used.items():
        tokens = f"{one['input_tokens']} tokens in, {one['output_tokens']} out"
        click.echo(f"{when:6} {one['answers']} answers, {tokens}, ${one['micros'] / 1e6:.4f}")


async def _usage(settings: Settings, key: str) -> dict[str, Any]:
    server = await server_of(settings)
    if server is not None:
        return await through(server, "GET", f"/keys/{key}/usage")
    from antiphon.server.rights.admission import month_began_ms

    async with reading(settings) as world:
        if all(key != known.id for known in await world.store.keys()):
            raise NotFound("There is no such key.", at=key)
        now_ms = world.clock.now_ms()
        since = {"today": now_ms, "month": month_began_ms(now_ms)}
        return {
            when: msgspec.to_builtins(
                await world.store.answer(SpendingSince(key=key, day=day_of(began_ms)))
            )
            for when, began_ms in since.items()
        }


async def _keyring(world: World) -> Any:  # noqa: ANN401 - the server's part is loaded when it is needed
    from antiphon.server.rights.principals import Keyring

    return await Keyring.load(world)


def _told(key: Key) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(key)
    del told["secret_digest"]
    told["rights"].sort()
    return told


def _allowed(terms: KeyTerms) -> str:
    """Return what a key may use, in a few words; nothing for one without limits."""
    words = [
        terms.models is not None and "models " + ", ".join(sorted(terms.models)),
        terms.requests_per_minute is not None and f"{terms.requests_per_minute}/min",
        terms.concurrent is not None and f"{terms.concurrent} at once",
        terms.tokens_per_day is not None and f"{terms.tokens_per_day} tokens/day",
        terms.micros_per_month is not None and f"${terms.micros_per_month / 1e6:.2f}/month",
        terms.repairs and "repairs",
    ]
    return " · ".join(word for word in words if word)


def _until(key: dict[str, Any]) -> str:
    if key["revoked_ms"] is not None:
        return "revoked"
    if key["expires_ms"] is None:
        return "no end"
    end = datetime.fromtimestamp(key["expires_ms"] / 1000).astimezone()
    return f"until {end:%Y-%m-%d %H:%M}"
