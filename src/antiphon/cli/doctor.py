"""`antiphon doctor`: examines the machine, the settings and the database; mends where it is asked."""

from __future__ import annotations

import platform
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from antiphon import __version__
from antiphon.cli.lookup import EVERY, dispatched
from antiphon.cli.opening import holder_of, place_of, reading, run, settings_of
from antiphon.cli.output import config_option, db_option, json_option, print_json
from antiphon.cli.view.text import Ink, count, size
from antiphon.core.commands import Repair
from antiphon.core.dispatch import ACTIVE, Denied, State
from antiphon.core.ids import LOCAL_TENANT
from antiphon.core.manifest import Manifest
from antiphon.core.records import Conversation
from antiphon.core.telling.examination import Check, Problem
from antiphon.engine.assembly import open_store
from antiphon.engine.edge.clock import SystemClock
from antiphon.engine.keeping.explain import may_have_left, verified_request
from antiphon.engine.settings import Settings
from antiphon.engine.world import World
from antiphon.errors import AntiphonError, Erased, NotFound
from antiphon.stores.addresses import is_shared
from antiphon.stores.sqlite.connections import has_wal_reset_bug, translated
from antiphon.stores.sqlite.examine import examine

SCARCE_BYTES: Final = 64 * 1024 * 1024
"""With less left on the disk a commit will soon fail; it fails whole, and nothing is lost."""

NO_DATABASE: Final = "There is no database yet; antiphon chat makes one."


@click.command()
@click.option(
    "--repair",
    is_flag=True,
    help="Mend rows that contradict each other, where the others leave no doubt; each in an event.",
)
@click.option(
    "--thorough",
    is_flag=True,
    help="Render every request again that was ever sent, not only the newest of each conversation.",
)
@json_option
@db_option
@config_option
def command(repair: bool, thorough: bool, as_json: bool, db: str | None, config: str | None) -> int:
    """Examine versions, settings, disk and database, and say what is wrong.

    Every message and path is hashed again, every manifest too; the ledger is compared with the
    tree, and rows with one another; the newest request of every conversation is rendered again
    and compared with what was recorded. Without --repair nothing is changed, and a database that
    another process works in can be examined.

    With --repair rows that contradict each other are mended, each in a transaction of its own
    with an event that says what was wrong. What happened is never made up: a call that nobody
    told the end of gets a result that says so. What was said and is lost stays lost.

    The exit code is 1 when something is wrong. What is only worth knowing does not count.
    """
    report = _Report(thorough=thorough)
    settings = report.settings(db, config)
    if settings is not None:
        report.disk(settings)
        report.database(settings, repair=repair)
    if as_json:
        print_json(report.as_json())
    else:
        report.print(Ink())
    return 1 if report.problems else 0


class _Report:
    """What was looked at, what is worth knowing, and what is wrong."""

    def __init__(self, *, thorough: bool) -> None:
        self._thorough = thorough
        self.repaired: list[Problem] = []
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

    def database(self, settings: Settings, *, repair: bool) -> None:
        """Examine the database and what is in it, and mend it first where that is asked."""
        if not is_shared(settings.db) and not self._there(settings):
            return
        holder = holder_of(settings)
        if holder is not None:
            self.notes.append(f"Process {holder} has the database open.")
        at_work = holder is not None or is_shared(settings.db)
        try:
            checks = self._examined(settings)
            found = [p for check in checks for p in check.problems if p.conversation is not None]
            if repair and found:
                run(self._mended(settings, found))
                checks = self._examined(settings)
            for check in checks:
                self._take(check)
            if not self.problems:
                run(self._stored(settings, at_work=at_work))
        except AntiphonError as error:
            self._wrong(error)
        except sqlite3.Error as error:
            self._wrong(translated(error, place_of(settings)))
        except UnicodeDecodeError:
            # The schema itself is damaged: SQLite names it in what is no text.
            self.problems.append(
                Problem(
                    code="file_damaged", at=place_of(settings), message="Its schema cannot be read."
                )
            )

    def _there(self, settings: Settings) -> bool:
        """Say whether there is a file with anything in it."""
        path = Path(place_of(settings))
        if not path.absolute().parent.is_dir():
            self.problems.append(
                Problem(
                    code="no_such_directory",
                    at=str(path.parent),
                    message="The directory of the database does not exist.",
                )
            )
            return False
        if not path.exists():
            self.notes.append(NO_DATABASE)
            return False
        log = path.with_name(f"{path.name}-wal")
        self.facts["size"] = size(sum(p.stat().st_size for p in (path, log) if p.exists()))
        if path.stat().st_size == 0:  # made by a process that died before it wrote anything
            self.notes.append(NO_DATABASE)
            return False
        return True

    def _examined(self, settings: Settings) -> list[Check]:
        if is_shared(settings.db):
            return run(_asked(settings))
        return examine(Path(place_of(settings)))

    async def _mended(self, settings: Settings, problems: list[Problem]) -> None:
        """Mend what can be mended, one after the other. Raises `StoreLocked`."""
        store = await open_store(settings.db)
        try:
            for problem in problems:
                assert problem.conversation is not None
                done = await store.do(
                    Repair(
                        conversation=problem.conversation,
                        now_ms=SystemClock().now_ms(),
                        code=problem.code,
                        at=problem.at,
                    )
                )
                if not isinstance(done, Denied):
                    self.repaired.append(problem)
        finally:
            await store.close()

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
                    continue
                for manifest in await self._sent(world, row):
                    rendered += await self._rendered(world, manifest)
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

    async def _sent(self, world: World, row: Conversation) -> list[Manifest]:
        """Return what was dispatched: the newest, or everything."""
        store = world.store
        if not self._thorough:
            with suppress(NotFound):
                return [await dispatched(world, row.id, None)]
            return []
        operations = [
            operation
            for one in await store.runs(row.id)
            for operation in await store.operations(row.id, one.id)
        ]
        return [
            (await store.manifest(operation))[0]
            for operation in operations
            if any(may_have_left(attempt) for attempt in await store.attempts(operation))
        ]

    async def _rendered(self, world: World, manifest: Manifest) -> int:
        """Render a request again; return whether that could be done."""
        try:
            await verified_request(world, manifest)
        except (NotFound, Erased):
            return 0
        except AntiphonError as error:
            if error.code in ("adapter_mismatch", "unknown_profile"):
                self.notes.append(f"{manifest.operation}: {error.message}")
                return 0
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
            "problems": [_told(problem) for problem in self.problems],
            "repaired": [_told(problem) for problem in self.repaired],
        }

    def print(self, ink: Ink) -> None:
        """Print the report for people."""
        for name, value in self.facts.items():
            click.echo(f"  {name:<11} {value}")
        for line in self.done:
            click.echo(f"{ink('✓', 'good')} {line}")
        for line in self.notes:
            click.echo(f"{ink('!', 'warn')} {line}")
        for problem in self.repaired:
            click.echo(
                f"{ink('✓', 'good')} mended {problem.code} at {problem.at}: {problem.message}"
            )
        for problem in self.problems:
            at = f" at {problem.at}" if problem.at else ""
            click.echo(f"{ink('✗', 'bad')} {ink(problem.code, 'bad')}{at}: {problem.message}")
        verdict = count(len(self.problems), "problem") if self.problems else "Nothing is wrong."
        click.echo(ink(verdict, "bad" if self.problems else "good"))


async def _asked(settings: Settings) -> list[Check]:
    async with reading(settings) as world:
        return await world.store.examined()


def _told(problem: Problem) -> dict[str, str]:
    return {"code": problem.code, "at": problem.at, "message": problem.message}


_DONE: Final = {
    "file": "file        sound, as far as SQLite can tell",
    "messages": "messages    {} hashed again, and the paths to them",
    "dispatches": "manifests   {} hashed again, and what their requests were made from",
    "ledger": "ledger      {} calls compared with the messages that ask for them",
    "rows": "rows        nothing contradicts itself, by {} rules",
}
