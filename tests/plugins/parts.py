"""Tests that need a part of the system: where it is missing they do not run, and everybody is told.

Mark them `@pytest.mark.needs("chromium")`. On CI, which has every part, a missing one is a
failure.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.support.parts import PARTS

_missed = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_missed] = Counter()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            part = PARTS[name]
            if part.there():
                continue
            if os.environ.get("CI"):
                pytest.fail(f"needs {part.title}: {part.install}", pytrace=False)
            item.config.stash[_missed][name] += 1
            pytest.skip(f"needs {part.title}")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for name, count in config.stash[_missed].items():
        part = PARTS[name]
        terminalreporter.write_line(
            f"{count} tests did not run, for they need {part.title}: {part.install}", yellow=True
        )
