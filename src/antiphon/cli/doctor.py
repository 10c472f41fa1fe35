"""`antiphon doctor`: examines the machine, the settings and the database. Changes nothing."""

from __future__ import annotations

import platform
import shutil
import sqlite3
from pathlib import Path
from typing import Final

import click

from antiphon import __version__
from antiphon.cli.lookup import EVERY, dispatched
from antiphon.cli.opening import holder_of, place_of, reading, run, settings_of
from antiphon.cli.output import config_option, db_option, json_option, print_json
from antiphon.cli.view.text import Ink, count, size
from antiphon.core.dispatch import ACTIVE, State
from antiphon.core.ids import LOCAL_TENANT
from antiphon.core.records import Conversation
from antiphon.engine.explain import verified_request
from antiphon.engine.settings import Settings
from antiphon.engine.world import World
from antiphon.errors import AntiphonError, Erased, NotFound
from antiphon.stores.addresses import is_shared
from antiphon.stores.sqlite.connections import check_file, has_wal_reset_bug, translated
from antiphon.stores.sqlite.examine import Check, Problem, examine

SCARCE_BYTES: Final = 64 * 1024 * 1024
"""With less left on the disk a commit will soon fail; it fails whole, and nothing is lost."""

NO_DATABASE: Final = "There is no database yet; antiphon chat makes one."


@click.command()
@json_option
@db_option
@config_option
def command(as_json: bool, db: str | None, config: str | None) -> int:
    """Examine versions, settings, disk and database, and say what is wrong.

    Every message and path is hashed again, every manifest too, and the newest request of every
    conversation is rendered again and compared with what was recorded. Nothing is changed; a
    database that another process works in can be examined.

    The exit code is 1 when something is wrong. What is only worth knowing does not count.
    """
    report = _Report()
    settings = report.settings(db, config)
    if settings is not None:
        report.disk(settings)
        report.database(settings)
    if as_json:
        print_json(report.as_json())
    else:
        report.print(Ink())
    return 1 if report.problems else 0


class _Report:
    """What was looked at, what is worth knowing, and what is wrong."""

    def __init__(self) -> None:
        self.facts: dict[str, str] = {
            "antiphon": __version__,
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "system": f"{platform.system()} {platform.machine()}",
        }
        self.done: list[str] = []
        self.notes: list[str] = []
        self.problems: list[Problem] = []

    def settings(self, db: str | None, config: str | None) -> Settings | None:
        """Read the settings; return them if they can be read."""
        try:
            settings = settings_of(db, config)
        except AntiphonError as error:
            self._wrong(error)
            return None
        if not place_of(settings).startswith("file:"):
            self.facts["database"] = place_of(settings)
        try:
            self.facts["model"] = settings.models.get().name
        except AntiphonError as error:
            self._wrong(error)
        self.notes += [
            f"model {name}: the environment has no {model.missing_key}"
            for name, model in settings.models.named.items()
            if model.missing_key
        ]
        if has_wal_reset_bug(sqlite3.sqlite_version_info):
            self.notes.append(
                f"SQLite {sqlite3.sqlite_version} can damage a database that two connections "
                "write to at once (fixed in 3.51.3). Antiphon writes through one; do not write to "
                "the file with other tools while it runs."
            )
        return settings

    def disk(self, settings: Settings) -> None:
        """See what room there is."""
        if is_shared(settings.db):
            return
        folder = Path(place_of(settings)).absolute().parent
        if not folder.is_dir():
            return
        free = shutil.disk_usage(folder).free
        self.facts["free"] = size(free)
        if free < SCARCE_BYTES:
            self.problems.append(
                Problem(
                    code="disk_nearly_full",
                    at=str(folder),
                    message=f"Only {size(free)} are left where the database lies.",
                )
            )

    def database(self, settings: Settings) -> None:
        """Examine the file and what is in it."""
        if is_shared(settings.db):
            try:
                run(self._stored(settings, at_work=True))
            except AntiphonError as error:
                self._wrong(error)
            return
        path = Path(place_of(settings))
        if not path.absolute().parent.is_dir():
            self.problems.append(
                Problem(
                    code="no_such_directory",
                    at=str(path.parent),
                    message="The directory of the database does not exist.",
                )
            )
            return
        if not path.exists():
            self.notes.append(NO_DATABASE)
            return
        log = path.with_name(f"{path.name}-wal")
        self.facts["size"] = size(sum(p.stat().st_size for p in (path, log) if p.exists()))
        holder = holder_of(settings)
        if holder is not None:
            self.notes.append(f"Process {holder} has the database open.")
        try:
            if check_file(path) == 0:  # made by a process that died before it wrote anything
                self.notes.append(NO_DATABASE)
                return
            for check in examine(path):
                self._take(check)
            if not self.problems:
                run(self._stored(settings, at_work=holder is not None))
        except AntiphonError as error:
            self._wrong(error)
        except sqlite3.Error as error:
            self._wrong(translated(error, str(path)))
        except UnicodeDecodeError:
            # The schema itself is damaged: SQLite names it in what is no text.
            self.problems.append(
                Problem(code="file_damaged", at=str(path), message="Its schema cannot be read.")
            )

    def _take(self, check: Check) -> None:
        self.problems += check.problems
        if not check.problems:
            self.done.append(_DONE[check.name].format(check.looked_at))

    async def _stored(self, settings: Settings, *, at_work: bool) -> None:
        rendered, erased = 0, 0
        async with reading(settings) as world:
            for row in await world.store.conversations(LOCAL_TENANT, limit=EVERY):
                if row.erased_ms is not None:
                    erased += 1
                else:
                    rendered += await self._rendered(world, row)
            active = await world.store.attempts_in(ACTIVE)
        self.done.append(f"requests    {rendered} rendered again, to the same bytes")
        if erased:
            self.notes.append(
                f"{count(erased, 'conversation')} erased: structure and digests stay."
            )
        unknown = [attempt for attempt in active if attempt.state is State.UNKNOWN]
        self.problems += [
            Problem(
                code="outcome_unknown",
                at=attempt.operation,
                message="Nobody knows its outcome. antiphon recover says what may be done.",
            )
            for attempt in unknown
        ]
        if not at_work and len(active) > len(unknown):
            left = count(len(active) - len(unknown), "dispatch", "dispatches")
            self.notes.append(f"{left} left by a process that died; the next start settles that.")

    async def _rendered(self, world: World, row: Conversation) -> int:
        """Render the newest request again; return whether there was one."""
        try:
            manifest = await dispatched(world, row.id, None)
            await verified_request(world, manifest)
        except (NotFound, Erased):
            return 0
        except AntiphonError as error:
            self._wrong(error)
        return 1

    def _wrong(self, error: AntiphonError) -> None:
        self.problems.append(Problem(code=error.code, at=error.at or "", message=error.message))

    # Telling.

    def as_json(self) -> dict[str, object]:
        """Return the report for programs."""
        return {
            "ok": not self.problems,
            "facts": self.facts,
            "checks": self.done,
            "notes": self.notes,
            "problems": [{"code": p.code, "at": p.at, "message": p.message} for p in self.problems],
        }

    def print(self, ink: Ink) -> None:
        """Print the report for people."""
        for name, value in self.facts.items():
            click.echo(f"  {name:<11} {value}")
        for line in self.done:
            click.echo(f"{ink('✓', 'good')} {line}")
        for line in self.notes:
            click.echo(f"{ink('!', 'warn')} {line}")
        for problem in self.problems:
            at = f" at {problem.at}" if problem.at else ""
            click.echo(f"{ink('✗', 'bad')} {ink(problem.code, 'bad')}{at}: {problem.message}")
        verdict = count(len(self.problems), "problem") if self.problems else "Nothing is wrong."
        click.echo(ink(verdict, "bad" if self.problems else "good"))


_DONE: Final = {
    "file": "file        sound, as far as SQLite can tell",
    "messages": "messages    {} hashed again, and the paths to them",
    "dispatches": "manifests   {} hashed again, and what their requests were made from",
    "references": "references  nothing dangles in {} conversations",
    "events": "events      numbered without gaps in {} conversations",
}
