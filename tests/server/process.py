"""A real server in a process of its own, on a real socket."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

PATIENCE_S = 60.0
SERVE = ("serve", "--json", "--port", "0")


@dataclass(slots=True)
class ServerProcess:
    """A running server. `err` is where its log goes."""

    process: subprocess.Popen[str]
    url: str
    err: Path

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self) -> int:
        """Stop it as an operator does, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def get(self, path: str) -> bytes:
        with urlopen(self.url + path, timeout=PATIENCE_S) as answer:
            found: bytes = answer.read()
            return found

    def post(self, path: str, body: object) -> dict[str, object]:
        request = Request(
            self.url + path,
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urlopen(request, timeout=PATIENCE_S) as answer:
            told: dict[str, object] = json.loads(answer.read())
            return told


@contextmanager
def server_process(
    folder: Path,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    command: Sequence[str] = (),
) -> Iterator[ServerProcess]:
    """Start `antiphon serve` in `folder` and give it once it listens; it is dead afterwards.

    `command` is what starts it in its stead, as `ip netns exec NAME` does, in the same process.
    """
    err = folder / "server.log"
    with err.open("a") as log:
        process = subprocess.Popen(
            [*command, sys.executable, "-m", "antiphon", *SERVE, *arguments],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "ANTIPHON_REHEARSAL_DELAY_S": "0", **(env or {})},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        told = json.loads(line) if line else {}
        assert "url" in told, (told, err.read_text())
        yield ServerProcess(process, told["url"], err)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        process.stdout.close()
