"""Which test proves which requirement.

A test says it with `@pytest.mark.req("M34", "M36")`, on the function, on its class or on one parameter set. The numbers
are those of `tests/data/requirements.md`; a mark that names another one stops every run before its first test.

    --requirements=FILE   write one JSON object to FILE: each number -> the sorted ids of the tests that passed
    --require-owned       fail when a number of `tests/data/requirements_owned.txt` has no passing test

A test counts when setup, call and teardown passed: a skipped or expected failure proves nothing.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DATA = Path(__file__).parent.parent / "data"
KNOWN = DATA / "requirements.md"
OWNED = DATA / "requirements_owned.txt"


def known_numbers(text: str) -> list[str]:
    """Return the numbers that the list of requirements defines, in its order."""
    return re.findall(r"^- \*\*(M\d+)\*\*", text, flags=re.MULTILINE)


def owned_numbers(text: str) -> list[str]:
    """Return the numbers that finished work owns: `M1` or `M1-M9`, separated by blanks; `#` begins a comment."""
    numbers: list[str] = []
    for word in re.sub(r"#.*", "", text).split():
        match = re.fullmatch(r"M(\d+)(?:-M(\d+))?", word)
        if match is None:
            raise pytest.UsageError(f"{OWNED.name}: {word!r} is neither a number nor a range")
        first = int(match[1])
        numbers += [f"M{number}" for number in range(first, int(match[2] or first) + 1)]
    return numbers


def named_by(item: pytest.Item) -> list[str]:
    """Return the numbers that a test's marks name."""
    numbers: list[str] = []
    for mark in item.iter_markers("req"):
        if mark.kwargs or not mark.args or not all(isinstance(number, str) for number in mark.args):
            raise pytest.UsageError(
                f'{item.nodeid}: write the mark as req("M34") or req("M34", "M36")'
            )
        numbers += mark.args
    return numbers


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options."""
    group = parser.getgroup("requirements")
    group.addoption(
        "--requirements", metavar="FILE", help="write as JSON which tests prove which requirement"
    )
    group.addoption(
        "--require-owned",
        action="store_true",
        help="fail when an owned requirement has no passing test",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin the record of this run."""
    config.pluginmanager.register(Record(config), "requirements-record")


class Record:
    """What the tests of one run have proved."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.known = known_numbers(KNOWN.read_text(encoding="utf-8"))
        self.named: dict[str, list[str]] = {}
        self.passed: set[str] = set()
        self.failed: set[str] = set()
        self.unproved: list[str] = []
        self.collected = False

    @pytest.hookimpl(tryfirst=True)  # before anything is deselected
    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        """Refuse marks that name no requirement."""
        wrong: list[str] = []
        for item in items:
            numbers = named_by(item)
            if numbers:
                self.named[item.nodeid] = numbers
            wrong += [
                f"{item.nodeid}: no requirement {number}"
                for number in numbers
                if number not in self.known
            ]
        if wrong:
            raise pytest.UsageError("\n".join(wrong))

    def pytest_collection_finish(self) -> None:
        """Note that tests will run."""
        self.collected = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome of one phase of a test."""
        if report.outcome != "passed" or hasattr(report, "wasxfail"):
            self.failed.add(report.nodeid)
        elif report.when == "call":
            self.passed.add(report.nodeid)

    def proved(self) -> dict[str, list[str]]:
        """Return each known number with the sorted ids of the tests that passed."""
        tests: dict[str, set[str]] = {number: set() for number in self.known}
        for nodeid in self.passed - self.failed:
            for number in self.named.get(nodeid, ()):
                tests[number].add(nodeid)
        return {number: sorted(ids) for number, ids in tests.items()}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the record; fail the run if it misses an owned number."""
        if not self.collected or self.config.option.collectonly:
            return
        proved = self.proved()
        target: str | None = self.config.option.requirements
        if target is not None:
            Path(target).write_text(json.dumps(proved, indent=1) + "\n", encoding="utf-8")
        if self.config.option.require_owned:
            owned: Iterable[str] = owned_numbers(OWNED.read_text(encoding="utf-8"))
            self.unproved = [number for number in owned if not proved.get(number)]
            if self.unproved and session.exitstatus in (
                pytest.ExitCode.OK,
                pytest.ExitCode.NO_TESTS_COLLECTED,
            ):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the owned numbers that nothing proves."""
        if self.unproved:
            terminalreporter.section("requirements without a passing test")
            terminalreporter.line(" ".join(self.unproved))
