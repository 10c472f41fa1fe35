"""What befalls several nodes and their database, while clients work; each ends when it was felt.

python -m tests.server.calamities --minutes 10
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.server.cluster import Cluster
from tests.server.nodes import shared
from tests.support.postgres import FAST, Server, new_server, owned, remove

OFF_S: Final = (-86_400.0, -3_600.0, -5.0, 0.0, 5.0, 3_600.0, 86_400.0)
"""How much a clock is off, once somebody has set it."""

MOMENT_S: Final = 0.3
"""A server dies at any moment in this time, so that each transition is hit now and then."""

SMALL: Final = "64m"
FULL: Final = """
CREATE FUNCTION antiphon.full() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'antiphon' LOOP
    EXECUTE format('CREATE TRIGGER no_room BEFORE INSERT ON antiphon.%I EXECUTE '
                   'FUNCTION antiphon.full()', name);
  END LOOP;
END $$
"""
"""Every table says what PostgreSQL says of a disk that takes no more."""

ROOM: Final = "DROP FUNCTION antiphon.full() CASCADE"

OPEN: Final = """
SELECT json_build_object('conversation', c.id, 'slot', c.slot, 'active', c.active_operation,
  'last_event', c.last_event, 'run', r.id, 'status', r.status, 'node', r.node, 'epoch', r.epoch,
  'attempt', (SELECT row_to_json(a) FROM antiphon.attempt AS a
              WHERE a.manifest = r.operation ORDER BY a.number DESC LIMIT 1))
FROM antiphon.run AS r JOIN antiphon.conversation AS c ON c.number = r.place >> 32
WHERE r.ended_ms IS NULL ORDER BY r.place
"""
"""What has not ended yet, and where it stands."""

LINES: Final = 30


@dataclass(slots=True)
class Base:
    """A database server of our own, on a small disk where this user may mount one."""

    server: Server
    ballast: Path | None
    chance: random.Random = field(default_factory=lambda: random.Random(1))

    @property
    def kind(self) -> str:
        return "a table's disk" if self.ballast else "what tables say"

    def fill(self, database: str) -> None:
        """Take all the room away."""
        if self.ballast is None:
            self.server.sql(FULL, database)
            return
        with self.ballast.open("wb", buffering=0) as file:
            for size in (65_536, 512, 1):
                try:
                    while True:
                        file.write(b"\0" * size)
                except OSError:
                    pass  # it is full now, to that grain

    def free(self, database: str) -> None:
        """Give the room back."""
        if self.ballast is None:
            self.server.sql(ROOM, database)
        else:
            self.ballast.unlink()


@contextmanager
def own_base() -> Iterator[Base]:
    """Give a server that nobody else uses; it is gone afterwards.

    Its databases lie on a file system of their own, and its write-ahead log does not: a full disk
    under that one stops all of PostgreSQL, and is a restart to us.
    """
    with ExitStack() as stack:
        server = new_server(tuple({**FAST, "max_connections": "60"}.items()))
        place = Path(stack.enter_context(TemporaryDirectory(prefix="antiphon-small-")))
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(place)]
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        if mounted:
            stack.callback(subprocess.run, ["umount", str(place)], check=True)
        stack.callback(remove, server)
        if mounted:
            space = place / "space"
            space.mkdir()
            owned(space)
            place.chmod(0o755)
            server.sql(f"CREATE TABLESPACE small LOCATION '{space}'")
            server.tablespace = "small"
        yield Base(server, place / "ballast" if mounted else None)


Calamity = Callable[[Cluster, Base], Awaitable[None]]


async def stopped(cluster: Cluster, base: Base) -> None:
    """The server is stopped, as for an upgrade, and started."""
    await _down(cluster, base, at_once=False)


async def crashed(cluster: Cluster, base: Base) -> None:
    """The server dies with all that it had in memory, and is started."""
    await _down(cluster, base, at_once=True)


async def _down(cluster: Cluster, base: Base, *, at_once: bool) -> None:
    await asyncio.sleep(base.chance.uniform(0.0, MOMENT_S))
    await asyncio.to_thread(base.server.stop, at_once=at_once)
    await cluster.felt()
    await asyncio.to_thread(base.server.start)


async def full(cluster: Cluster, base: Base) -> None:
    """The disk that the tables lie on takes no more, and then there is room."""
    name = cluster.nodes.database.rpartition("/")[2]
    await asyncio.to_thread(base.fill, name)
    await cluster.felt()
    await asyncio.to_thread(base.free, name)


async def clocks(cluster: Cluster, base: Base) -> None:
    """Every node's clock is set to something else."""
    offs = base.chance.sample(OFF_S, len(cluster.clients))
    for name, off_s in zip(cluster.clients, offs, strict=True):
        cluster.nodes.set_clock(name, off_s)
    cluster.did["clock"] += len(offs)


CALAMITIES: Final[tuple[Calamity, ...]] = (stopped, crashed, full, clocks)

CRASHES: Final = 6
"""How often the server dies in a long life, at other moments each time: it is what loses most."""


async def befallen(cluster: Cluster, base: Base, calamity: Calamity, operations: int) -> list[str]:
    """Let clients work through a calamity and after it; return what is not as it was told."""
    over = asyncio.Event()
    work = asyncio.create_task(cluster.work(operations, 6, until=over))
    try:
        await cluster.mid_stream(work)
        cluster.unharmed()
        await calamity(cluster, base)
        over.set()
        await work
        await cluster.work(operations // 2, 6)
        return await cluster.judged()
    except Exception as error:
        work.cancel()
        error.add_note(f"It was {calamity.__name__} ({base.kind}); clients did {cluster.did}.")
        error.add_note(await asyncio.to_thread(_left, cluster, base))
        raise


def _left(cluster: Cluster, base: Base) -> str:
    """Return what has not ended in the database, and what the nodes have complained of last."""
    runs = base.server.sql(OPEN, cluster.nodes.database.rpartition("/")[2])
    said = [f"What has not ended: {runs or 'nothing'}"]
    for log in sorted(cluster.nodes.folder.glob("node-*/server.log")):
        lines = [line for line in log.read_text().splitlines() if '"level":"info"' not in line]
        said += [f"{log.parent.name} complained:", *lines[-LINES:]]
    return "\n".join(said)


async def lived(
    folder: Path, seed: int, operations: int
) -> tuple[Counter[str], dict[str, list[str]]]:
    """Let two nodes live through all of it; return what clients did, and what was broken when."""
    wrong: dict[str, list[str]] = {}
    with own_base() as base:
        base.chance.seed(seed)
        async with shared(folder, base.server, skewed=True) as stage:
            cluster = Cluster(stage, random.Random(seed))
            await cluster.start(2)
            await cluster.begin(3)
            for calamity in (*CALAMITIES, *[crashed] * CRASHES):
                broken = await befallen(cluster, base, calamity, operations)
                cluster.did[calamity.__name__] += 1
                wrong.setdefault(f"{calamity.__name__} ({base.kind})", []).extend(broken)
            return cluster.did, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    until, seed, broken = time.monotonic() + arguments.minutes * 60, arguments.seed, 0
    did: Counter[str] = Counter()
    while time.monotonic() < until:
        with TemporaryDirectory() as folder:
            done, wrong = asyncio.run(lived(Path(folder), seed, 24))
        did += done
        for when, promises in wrong.items():
            broken += len(promises)
            print("\n".join(f"BROKEN seed {seed}, {when}: {one}" for one in promises), flush=True)
        seed += 1
    print(f"calamities: {dict(did)}; {broken} broken promises")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
