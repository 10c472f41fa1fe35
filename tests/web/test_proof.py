"""The console, and pages that others could have written, in a real browser against a real server.

One Node process with one browser runs all of it; each scenario is a test here, so that it can be
named, and say which requirement it proves.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic

import pytest

from tests.support.packages import WEB, installed, run
from tests.support.parts import chromium

pytestmark = pytest.mark.needs("node", "chromium")

PROVES = {
    "an answer is shown as a preview, lighter, and then as saved": ("M77", "M78"),
    "operations count what was taken back": ("M96",),
    "text that is taken back leaves the answer, and a line says so that opens": ("M77", "M78"),
    "an edit and another answer stand beside the first, and the arrows go between them": ("M125", "M126"),
    "stop is a call; what was shown stays, as stopped, and can be kept": ("M137",),
    "useChat: text that is taken back leaves the screen, and no page sends it as history": ("M77", "M78"),
    "useChat: loaded anew in the middle of an answer, it goes on; stop is a call": ("M137", "M169"),
}  # fmt: skip
"""Which requirement a scenario proves."""

SCENARIOS = [
    found[1]
    for name in ("protocol", "pages", "console", "network", "people", "size", "fallback", "pictures")
    for found in re.finditer(r'^test\("([^"]+)"', (WEB / f"proof/test/{name}.test.ts").read_text("utf-8"), re.MULTILINE)
]  # fmt: skip


PATIENCE_S = 150.0
"""Longest wait of one test for its scenario; less than what ends the whole run."""


class Run:
    """A run of all scenarios, read as it goes: each test waits for its own."""

    def __init__(self, output: Iterable[str], report: Callable[[str], None]) -> None:
        self._report = report
        self._said: dict[str, str] = {}
        self._failed: str | None = None
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._pumping = Thread(target=self._pump, args=[output])
        self._pumping.start()

    def _pump(self, output: Iterable[str]) -> None:
        for line in output:
            self._lines.put(line)
        self._lines.put(None)

    def join(self) -> None:
        """Wait until the report is at its end."""
        self._pumping.join()

    def verdict(self, scenario: str) -> str:
        """Return what a scenario's failure says; nothing where it went well."""
        until = monotonic() + PATIENCE_S
        while scenario not in self._said and self._read(until):
            pass
        return self._said.get(scenario, "it did not run, or not in time")

    def failures(self) -> Mapping[str, str]:
        """Return every scenario that failed, once all have ended."""
        until = monotonic() + PATIENCE_S
        while self._read(until):
            pass
        assert self._said
        return {name: said for name, said in self._said.items() if said}

    def _read(self, until: float) -> bool:
        """Take a line of the report; return whether there was one in time."""
        try:
            line = self._lines.get(timeout=max(0.0, until - monotonic()))
        except Empty:
            return False
        if line is None:
            self._lines.put(None)
            return False
        if measured := re.match(r"# (measured: .*)$", line):
            self._report(measured[1])
        elif ended := re.match(r"(not )?ok \d+ - (.*)$", line):
            self._failed = ended[2] if ended[1] else None
            self._said[ended[2]] = line if ended[1] else ""
        elif self._failed is not None:
            self._said[self._failed] += line
        return True


@pytest.fixture(scope="module")
def proof() -> Path:
    """The package, with its pages built."""
    folder = installed("proof")
    run([folder / "node_modules/.bin/vite", "build", "--logLevel", "warn"], folder)
    run([folder / "node_modules/.bin/tsc"], folder)
    return folder


@pytest.fixture(scope="module")
def scenarios(proof: Path, pytestconfig: pytest.Config) -> Iterator[Run]:
    """All scenarios, under way."""
    environment = {**os.environ, "ANTIPHON_PYTHON": sys.executable, "CHROMIUM": chromium() or ""}
    command = [
        "node",
        "--test",
        "--test-force-exit",
        "--test-reporter=tap",
        "build/test/all.test.js",
    ]
    with subprocess.Popen(
        command, cwd=proof, env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as process:  # fmt: skip
        assert process.stdout is not None
        reporter = pytestconfig.pluginmanager.getplugin("terminalreporter")
        report = Run(process.stdout, reporter.write_line)
        try:
            yield report
        finally:
            process.kill()
            report.join()


def test_the_pages_are_built_from_their_locks(proof: Path) -> None:
    assert (proof / "dist/usechat.html").exists()
    assert (proof / "dist/assistant.html").exists()


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(name, marks=pytest.mark.req(*PROVES[name]) if name in PROVES else ())
        for name in SCENARIOS
    ],
)
def test_in_a_browser(scenario: str, scenarios: Run) -> None:
    assert scenarios.verdict(scenario) == ""


def test_whatever_else_was_tried_there_went_well(scenarios: Run) -> None:
    assert scenarios.failures() == {}


def test_every_scenario_that_proves_something_is_there() -> None:
    assert set(PROVES) <= set(SCENARIOS)
