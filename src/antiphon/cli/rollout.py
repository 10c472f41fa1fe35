"""`antiphon rollout`: shadow first, then in earnest, and back again in a second."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import click
import msgspec

from antiphon.cli.opening import reading, run, server_of, settings_of, writing
from antiphon.cli.output import config_option, db_option, json_option, note, print_json
from antiphon.cli.through import through
from antiphon.cli.view.text import Ink, harmless, table
from antiphon.core.ids import LOCAL_TENANT, TenantId
from antiphon.core.traffic.rollout import EVERY_MODEL, Rollout, Stage
from antiphon.core.traffic.standing import Differences, ForgetShadow, Rollouts, SetRollout, Tallies
from antiphon.engine.settings import Settings

tenant_option = click.option("--tenant", default=LOCAL_TENANT, help="Whose traffic; local.")
model_option = click.option(
    "--model",
    default=EVERY_MODEL,
    help="For which model; every one that has no rollout of its own.",
)


@click.group()
def command() -> None:
    """Say which way the traffic of a tenant goes, and see what the shadow found.

    off: requests go to the provider as they came. shadow: so do they, and ours is built beside
    and compared. without_tools: what has no tools goes ours. tools: everything does, as it does
    for a tenant without a rollout. Promotion and rollback hold for the next request.

    While a server has the database open, this goes through that server; then ANTIPHON_KEY has to
    hold a key with the right to admin, if the server has keys.
    """


@command.command("set")
@click.argument("stage", type=click.Choice([stage.value for stage in Stage]))
@tenant_option
@model_option
@click.option("--share", type=click.IntRange(0, 100), default=100, help="Of 100 conversations.")
@click.option("--adapter-version", type=int, help="Pin the version that renders ours.")
@json_option
@db_option
@config_option
def set_(
    stage: str,
    tenant: str,
    model: str,
    share: int,
    adapter_version: int | None,
    as_json: bool,
    db: str | None,
    config: str | None,
) -> None:
    """Let a stage hold from now on.

    What does not fall into the share stays a stage behind.
    """
    rollout = Rollout(
        tenant=TenantId(tenant),
        model=model,
        stage=Stage(stage),
        share=share,
        adapter_version=adapter_version,
        by="cli",
    )
    done = run(_set(settings_of(db, config), rollout))
    if as_json:
        print_json(done)
        return
    note(f"{done['stage']} for {share} of 100 conversations of {tenant}, model {model}.")


@command.command("list")
@json_option
@db_option
@config_option
def list_(as_json: bool, db: str | None, config: str | None) -> None:
    """List rollouts, and what is paused by a pinned version."""
    found = run(_list(settings_of(db, config)))
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one["tenant"],
            harmless(one["model"]),
            one["stage"],
            f"{one['share']}%",
            f"version {one['adapter_version']}" if one.get("adapter_version") is not None else "",
        )
        for one in found["data"]
    ]
    for line in table(rows):
        click.echo(line)
    for conversation, kind in found["paused"].items():
        click.echo(f"paused  {conversation}: this version does not know blocks of kind {kind}")
    if not rows:
        note("There are no rollouts: everything goes ours.")


@command.command()
@tenant_option
@model_option
@click.option("--forget", is_flag=True, help="Begin to count and compare anew.")
@json_option
@db_option
@config_option
def diff(
    tenant: str, model: str, forget: bool, as_json: bool, db: str | None, config: str | None
) -> None:
    """Show by cause how clients' requests and ours differed."""
    found = run(_diff(settings_of(db, config), TenantId(tenant), model, forget=forget))
    if as_json:
        print_json(found)
        return
    ink = Ink()
    tallies = ", ".join(f"{one['count']} {one['outcome']}" for one in found["requests"])
    click.echo(tallies or "Nothing was counted yet.")
    for one in found["differences"]:
        head = f"{one['count']:6} {one['kind']:8} {harmless(one['cause'])}"
        click.echo(f"{head}  {ink(harmless(one['example']), 'dim')}")


async def _set(settings: Settings, rollout: Rollout) -> dict[str, Any]:
    server = await server_of(settings)
    if server is not None:
        wanted = {
            "tenant": rollout.tenant,
            "model": rollout.model,
            "stage": rollout.stage.value,
            "share": rollout.share,
            "adapter_version": rollout.adapter_version,
        }
        return await through(server, "PUT", "/rollouts", wanted)
    async with writing(settings) as world:
        at = msgspec.structs.replace(rollout, updated_ms=world.clock.now_ms())
        told: dict[str, Any] = msgspec.to_builtins(await world.store.change(SetRollout(rollout=at)))
        return told


async def _list(settings: Settings) -> dict[str, Any]:
    server = await server_of(settings)
    if server is not None:
        return await through(server, "GET", "/rollouts")
    async with reading(settings) as world:
        found = await world.store.answer(Rollouts())
        told = [{"share": 100, **msgspec.to_builtins(one)} for one in found]
        return {"data": told, "paused": {}}


async def _diff(
    settings: Settings, tenant: TenantId, model: str, *, forget: bool
) -> dict[str, Any]:
    server = await server_of(settings)
    if server is not None:
        query = urlencode({"tenant": tenant, "model": model})
        method = "DELETE" if forget else "GET"
        return await through(server, method, f"/rollouts/differences?{query}")
    if forget:
        async with writing(settings) as world:
            await world.store.change(ForgetShadow(tenant=tenant, model=model))
    async with reading(settings) as world:
        requests = await world.store.answer(Tallies(tenant=tenant, model=model))
        differences = await world.store.answer(Differences(tenant=tenant, model=model))
    return {
        "requests": msgspec.to_builtins(requests),
        "differences": [msgspec.structs.asdict(one) for one in differences],
    }
