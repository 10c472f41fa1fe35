"""The client for browsers: its own tests, in the order a page would meet what they are about."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.packages import WEB, installed, run

pytestmark = pytest.mark.needs("node")


@pytest.mark.req("M77", "M78")
def test_the_client_for_browsers_keeps_its_promises() -> None:
    told = run(["npm", "test", "--silent"], installed("client"))
    assert re.search(r"^# fail 0$", told, re.MULTILINE), told
    vectors = json.loads((WEB.parent / "tests/data/client/reduce.json").read_text("utf-8"))
    for vector in vectors:  # the same that the Python client folds
        assert re.search(rf"^ok \d+ - {re.escape(vector['name'])}$", told, re.MULTILINE), told


def test_locks_name_what_is_installed_and_not_from_where() -> None:
    locks = [lock for lock in WEB.glob("**/package-lock.json") if "node_modules" not in lock.parts]
    assert locks
    for lock in locks:
        packages = json.loads(lock.read_text("utf-8"))["packages"]
        for name, package in packages.items():
            if name.startswith("node_modules/") and not package.get("link"):
                assert "integrity" in package, f"{lock}: {name}"
                assert "resolved" not in package, f"{lock}: {name}"
