"""Tests that need a part of the system: where it is missing they do not run, and everybody is told.

Mark them `@pytest.mark.needs("chromium")`. On CI, which has every part, a missing one is a
failure.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.support.parts import PARTS

MISSES = "misses"
"""What a test's report says it lacks: reports come from every worker process, a stash does not."""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Missed(), "missed-parts")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            part = PARTS[name]
            if part.there():
                continue
            if os.environ.get("CI"):
                pytest.fail(f"needs {part.title}: {part.install}", pytrace=False)
            item.user_properties.append((MISSES, name))
            pytest.skip(f"needs {part.title}")


class Missed:
    """Counts the tests of a run that lacked something, and says so at its end."""

    def __init__(self) -> None:
        self._tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what a test lacked."""
        if report.when == "setup":
            self._tests.update(str(value) for key, value in report.user_properties if key == MISSES)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name what was missing, how many tests wanted it, and how to get it."""
        for name, count in self._tests.items():
            part = PARTS[name]
            terminalreporter.write_line(
                f"{count} tests did not run, for they need {part.title}: {part.install}",
                yellow=True,
            )
