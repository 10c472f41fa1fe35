"""`antiphon copy`: everything that a database holds, into an empty one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from antiphon.cli.output import json_option, note, print_json
from antiphon.cli.view.text import count
from antiphon.errors import InvalidInput
from antiphon.stores.addresses import POSTGRES, SQLITE, is_shared, shown
from antiphon.stores.sql.copying import copy
from antiphon.stores.sql.statements import Statements


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@json_option
def command(source: str, target: str, as_json: bool) -> None:
    """Copy everything from one database into another, which has to be empty.

    FROM and TO are paths, sqlite:/// or postgresql:// addresses; a file that is not there is
    made. Conversations, runs, manifests, the ledger, events, content and keys arrive in one
    transaction, or nothing does. Every row is read back and compared, and what has arrived is
    examined as `antiphon doctor` would, before any of it counts.

    A file that a server has open is refused: stop the server first. FROM stays as it is.
    """
    if shown(source) == shown(target):
        raise InvalidInput("The two are the same database.", code="usage", at=shown(target))
    with _opened(source, source=True) as old, _opened(target, source=False) as new:
        copied = copy(old, new)
    rows = {table: number for table, number in copied.rows.items() if number}
    if as_json:
        print_json({"from": shown(source), "to": shown(target), "rows": rows})
        return
    for table, number in rows.items():
        click.echo(f"{number:>9}  {table}")
    said = count(rows.get("conversation", 0), "conversation")
    note(f"{said} copied to {shown(target)}; every row was read back and compared.")


@contextmanager
def _opened(address: str, *, source: bool) -> Iterator[Statements]:
    if is_shared(address):
        try:
            from antiphon.stores import postgres  # noqa: F401 - whether its driver is installed
        except ModuleNotFoundError:
            raise InvalidInput(
                "PostgreSQL needs one more package: pip install 'antiphon[postgres]'.",
                code="unknown_database",
                at=POSTGRES[0],
            ) from None
        from antiphon.stores.postgres.whole import whole as whole_postgres

        with whole_postgres(address, source=source) as db:
            yield db
        return
    from antiphon.stores.sqlite.whole import whole as whole_sqlite

    with whole_sqlite(Path(address.removeprefix(SQLITE)), source=source) as db:
        yield db
