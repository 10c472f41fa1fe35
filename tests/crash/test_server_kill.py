"""The real server is killed at each transition while the official SDK streams, and comes back.

On a file the next process is its successor, and knows that nothing of it is at work any more. On
PostgreSQL another node takes over, and knows no such thing: what may have been sent is UNKNOWN, the
response goes on to be `in_progress`, and whoever streams it waits until somebody says what is known.
Here that is the test, which is sure that the process is dead.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import msgspec
import openai
import pytest

from tests.crash.places import LONG_LEASE_S, SHORT_LEASE_S, Databases, Files, Place
from tests.crash.proof import KILLED, script
from tests.crash.server_program import Config
from tests.support.upstream_process import ROOT, UpstreamProcess

PATIENCE_S = 30.0
ASKED = "Name a tree."
PLACES = [
    pytest.param(Files, id="sqlite"),
    pytest.param(Databases, id="postgres", marks=pytest.mark.needs("postgres")),
]


@dataclass
class Seen:
    """What a client was told in one stream."""

    numbers: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    text: str = ""
    response: dict[str, Any] | None = None

    @property
    def id(self) -> str | None:
        return None if self.response is None else self.response["id"]

    @property
    def over(self) -> bool:
        ends = ("response.completed", "response.incomplete", "response.failed")
        return bool(self.kinds) and self.kinds[-1] in ends

    def take(self, stream: Any) -> None:
        for event in stream:
            assert not self.over, "nothing follows the last event"
            assert not self.numbers or event.sequence_number > self.numbers[-1]
            self.numbers.append(event.sequence_number)
            self.kinds.append(event.type)
            if event.type == "response.output_text.delta":
                self.text += event.delta
            told = getattr(event, "response", None)
            self.response = self.response if told is None else told.to_dict()


class Servers:
    """Lives of a server, one after the other, against an upstream that survives them."""

    def __init__(self, folder: Path, kept: Place) -> None:
        self.kept = kept
        self._folder = folder
        self._upstream = UpstreamProcess(folder)
        self._numbers = count()

    def __enter__(self) -> Servers:
        self._upstream.__enter__()
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.server_program"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._zygote.communicate(timeout=PATIENCE_S)
        self._upstream.__exit__()

    def place(self, *, holding: bool = False) -> Config:
        name = f"server-{next(self._numbers)}"
        self._upstream.script(name, script(holding=holding))
        return Config(
            folder=str(self._folder / name),
            db=self.kept.new(self._folder / name),
            base_url=self._upstream.base_url(name),
            lease_s=LONG_LEASE_S,
        )

    def done(self, config: Config) -> None:
        """Nobody asks after a place any more."""
        self.kept.done(config.db)

    @contextmanager
    def back(self, config: Config) -> Iterator[Back]:
        """Let another process follow on one that was killed; give its address and who looks after it."""
        self.kept.gone(config.db)
        pid, url = self.begin(msgspec.structs.replace(config, lease_s=SHORT_LEASE_S))
        with Back(url, waits=self.kept.shared) as back:
            yield back
        assert self.end(pid) == 0
        self.done(config)

    def begin(self, config: Config) -> tuple[int, str]:
        """Start a life; return its process and its address."""
        assert self._zygote.stdin is not None
        config.path("url.txt").unlink(missing_ok=True)
        self._zygote.stdin.write(msgspec.json.encode(config).decode() + "\n")
        self._zygote.stdin.flush()
        pid = int(self._line())
        deadline = time.monotonic() + PATIENCE_S
        while not config.path("url.txt").exists():
            assert time.monotonic() < deadline, config.path("log.txt").read_text()
            time.sleep(0.01)
        return pid, config.path("url.txt").read_text(encoding="utf-8")

    def end(self, pid: int | None = None) -> int:
        """Return how the life ended, after telling it to where a process is given."""
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
        return int(self._line())

    def received(self, config: Config) -> list[str]:
        """Return the last message of each request that the provider has received."""
        self._upstream.quiet()
        path = config.path("received.jsonl")
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        bodies = [json.loads(b64decode(json.loads(line)["body"])) for line in lines]
        return [body["messages"][-1]["content"] for body in bodies]

    def _line(self) -> str:
        assert self._zygote.stdout is not None
        return self._zygote.stdout.readline()


class Back:
    """The server that came after the one that was killed, and somebody who settles what it waits for.

    `waited` are the operations whose outcome it did not know, with the status in which the SDK was
    told their response then.
    """

    def __init__(self, url: str, *, waits: bool) -> None:
        self.url = url
        self.waited: dict[str, str] = {}
        self.id: str | None = None
        """The response to ask for, where one is known."""
        self.waits = waits
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._settle)

    def __enter__(self) -> Back:
        if self.waits:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self.waits:
            self._thread.join(PATIENCE_S)

    def _settle(self) -> None:
        while not self._over.wait(0.05):
            for dispatch in self._ask("/dispatches?state=UNKNOWN")["data"]:
                self.waited[dispatch["operation"]] = self._status()
                told = {"action": "ended", "because": "its process was killed"}
                self._ask(f"/dispatches/{dispatch['operation']}/resolve", told)

    def _status(self) -> str:
        if self.id is None:
            return "in_progress"  # the client was told no id before it was cut off
        with client_of(self.url) as client:
            return str(client.responses.retrieve(self.id).status)

    def _ask(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(
            f"{self.url}/antiphon/v1{path}", data, {"content-type": "application/json"}
        )
        with urlopen(request, timeout=PATIENCE_S) as answer:
            return json.loads(answer.read())


def client_of(url: str) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{url}/v1",
        api_key="any",
        max_retries=0,
        timeout=PATIENCE_S,
        default_headers={"Idempotency-Key": "one"},
    )


def ask(url: str) -> Seen:
    """Stream an answer until it or the connection ends."""
    seen = Seen()
    with client_of(url) as client:
        try:
            seen.take(client.responses.create(model="m", input=ASKED, stream=True))
        except (openai.APIConnectionError, openai.APIError, OSError):
            pass
        except Exception as error:
            if "httpx" not in type(error).__module__ and "httpcore" not in type(error).__module__:
                raise
    return seen


@pytest.fixture(scope="module", params=PLACES)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers]:
    with Servers(tmp_path_factory.mktemp("servers"), request.param()) as running:
        yield running


def points_of(servers: Servers) -> dict[str, str]:
    """Return the points of a whole turn that nobody kills, by their names."""
    config = servers.place()
    pid, url = servers.begin(config)
    undisturbed = ask(url)
    assert undisturbed.over
    assert undisturbed.text == "PARTIAL-1 Alder."
    assert servers.end(pid) == 0
    servers.done(config)
    trace = config.path("trace.txt").read_text(encoding="utf-8").splitlines()
    return {point.rsplit(" #", 1)[0]: point for point in reversed(trace)}


@pytest.mark.req("M75", "M76", "M77", "M97", "M130", "M136")
def test_killed_anywhere_the_status_is_honest_and_the_stream_goes_on_whole(
    servers: Servers,
) -> None:
    points = points_of(servers)
    assert len(points) > 8
    for point in points.values():
        config = servers.place()
        _, url = servers.begin(msgspec.structs.replace(config, kill=point))
        before = ask(url)
        assert servers.end() == KILLED, point
        reached = servers.received(config)
        with servers.back(config) as back:
            back.id = before.id
            judge(point, back, before, reached)
        # Never sent again: what may have reached the provider is not asked of it twice.
        assert len(servers.received(config)) <= 1, point


def judge(point: str, back: Back, before: Seen, reached: list[str]) -> None:
    """Compare what the client was told with what it is told by the next process."""
    url = back.url
    whole = ask(url)  # the same request again, under its key
    assert whole.over, point
    assert whole.response is not None
    status = whole.response["status"]
    assert status in ("completed", "failed"), point
    if status == "failed":
        assert whole.response["error"]["code"] == "outcome_unknown", point
        assert not before.over, point
    # What nobody knows the outcome of was said to be at work until somebody said that it is not.
    assert set(back.waited.values()) <= {"in_progress"}, point
    assert len(back.waited) == (status == "failed" and back.waits), point
    if status == "completed":
        assert whole.text == "PARTIAL-1 Alder.", point
    elif not reached:
        # Recorded as about to be sent: nobody can know that it was not.
        assert point.startswith(("after ", "before first byte", "before send", "before Written"))
    if before.id is None:
        return
    assert whole.id == before.id, point
    with client_of(url) as client:
        stored = client.responses.retrieve(before.id).to_dict()
        assert stored == whole.response, point
        rest = Seen(numbers=list(before.numbers), text=before.text)
        if before.over:
            return
        rest.take(
            client.responses.retrieve(before.id, stream=True, starting_after=before.numbers[-1])
        )
    assert rest.over, point
    assert rest.response == whole.response, point
    if status == "completed":
        assert rest.text == whole.text, point


@pytest.mark.req("M75", "M76", "M77")
def test_killed_after_text_was_told_the_stream_ends_above_all_that_was_told(
    servers: Servers,
) -> None:
    config = servers.place(holding=True)
    pid, url = servers.begin(config)
    before = Seen()
    with client_of(url) as client:
        stream = client.responses.create(model="m", input="Tell a long tale.", stream=True)
        with contextlib.suppress(Exception):  # however the SDK tells that the server is gone
            for event in stream:
                before.take([event])
                if event.type == "response.output_text.delta":
                    os.kill(pid, signal.SIGKILL)
    assert before.text == "PARTIAL-7 "
    assert servers.end() == KILLED
    assert before.id is not None
    with servers.back(config) as back, client_of(back.url) as client:
        back.id = before.id
        rest = Seen(numbers=list(before.numbers))
        rest.take(
            client.responses.retrieve(before.id, stream=True, starting_after=before.numbers[-1])
        )
        assert rest.kinds == ["antiphon:preview.withdrawn", "response.failed"]
        assert client.responses.retrieve(before.id).to_dict() == rest.response
    assert rest.response is not None
    assert rest.response["error"]["code"] == "outcome_unknown"
    assert set(back.waited.values()) <= {"in_progress"}
    assert len(back.waited) == back.waits
    assert servers.received(config) == ["Tell a long tale."]
