"""The disk fills up in mid-run: a clear error, nothing kept half, and on it goes when there is room.

As root on a file system of two megabytes; elsewhere by the limit that the system puts on a file's
size, which SQLite sees as a disk that takes no more. The second is always tried.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from antiphon.core.telling.examination import Problem
from antiphon.engine.edge.clock import SystemClock
from antiphon.errors import StoreError
from antiphon.handles.run import RunHandle
from antiphon.stores.sqlite.examine import examine
from tests.support.engines import app_on
from tests.support.provider import Hold, ScriptedProvider, says

WAIT_S = 20.0
CODES = {"disk_full", "io_error"}

Room = Callable[[bool], None]
"""Takes all the room away, or gives it back."""


@contextmanager
def small_disk(folder: Path) -> Iterator[tuple[Path, Room] | None]:
    """A file system of its own, or None where this user may not mount one."""
    place = folder / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        yield None
        return
    ballast = place / "ballast"

    def room(there_is: bool) -> None:
        if there_is:
            ballast.unlink()
            return
        with ballast.open("wb", buffering=0) as file:
            for size in (65_536, 512, 1):
                try:
                    while True:
                        file.write(b"\0" * size)
                except OSError:
                    pass  # it is full now, to that grain

    try:
        yield place, room
    finally:
        subprocess.run(["umount", str(place)], check=True)


@contextmanager
def small_files(folder: Path) -> Iterator[tuple[Path, Room]]:
    """A limit on the size of any file that this process writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def room(there_is: bool) -> None:
        log = folder / "talk.db-wal"
        size = before[0] if there_is else log.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    try:
        yield folder, room
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(params=["disk", "files"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Room]]:
    """Where the database lies, and how room is taken from it."""
    if request.param == "disk":
        with small_disk(tmp_path) as mounted:
            if mounted is not None:
                yield mounted
                return
    with small_files(tmp_path) as limited:
        yield limited


@pytest.mark.req("M54", "M77", "M90")
async def test_a_full_disk_in_mid_run_costs_time_and_nothing_else(
    place: tuple[Path, Room],
) -> None:
    folder, room = place
    db = folder / "talk.db"
    hold = Hold()
    first, second = says("One."), says("Two. " * 50)
    provider = ScriptedProvider(first, [*second[:3], hold, *second[3:]], says("Three."))
    async with app_on(db, provider, clock=SystemClock()) as app:
        chat = await app.create()
        await (await chat.send("first")).result()
        run = await chat.send("second")
        async with asyncio.timeout(WAIT_S):
            await hold.reached.wait()
        await asyncio.sleep(0.4)  # what was submitted on the way is in the file
        room(False)
        hold.go.set()
        with pytest.raises(StoreError) as refused:
            await _insist(lambda: chat.send("third " * 500, message="m3"))
        assert refused.value.code in CODES
        assert (await run.row()).status == "pending", "its answer waits for room"
        assert [m.text for m in await chat.line()][:2] == ["first", "One."]
        room(True)
        async with asyncio.timeout(WAIT_S):
            assert (await run.result()).text == "Two. " * 50
            third = await chat.send("third " * 500, message="m3")
            assert (await third.result()).text == "Three."
        assert len(provider.requests) == 3
        assert app.engine.failures == []
    assert await problems(db) == []
    async with app_on(db, ScriptedProvider(says("Four."))) as app:
        chat = await app.conversation(chat.id)
        assert (await (await chat.send("fourth")).result()).text == "Four."


async def problems(db: Path) -> list[Problem]:
    """Return what `antiphon doctor` would say."""
    checks = await asyncio.to_thread(examine, db)
    return [problem for check in checks for problem in check.problems]


async def _insist(send: Callable[[], object]) -> RunHandle:
    """Send until it is refused: the file's last pages may have had room for a little more."""
    for _ in range(200):
        await send()  # type: ignore[misc]
    raise AssertionError("the disk was never full")
