"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import antiphon.adapters
import antiphon.core

MODULES = [
    name
    for package in (antiphon.core, antiphon.adapters)
    for _, name, _ in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run_as_shown(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0


def test_there_are_examples_to_run() -> None:
    found = sum(doctest.testmod(import_module(name)).attempted for name in MODULES)
    assert found >= 10
