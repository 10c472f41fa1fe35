"""Parts of a system that some tests need and a machine may lack, and how to get them."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final


@dataclass(frozen=True, slots=True)
class Part:
    """Something that is installed beside Python.

    Attributes:
        title: What it is called.
        there: Whether it is on this machine.
        install: What to do about it where it is not.
    """

    title: str
    there: Callable[[], bool]
    install: str


@cache
def _node() -> bool:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return False
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)\.", told)
    return version is not None and int(version[1]) >= 20


@cache
def chromium() -> str | None:
    """Return where Chromium is, if it is."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


def postgres(program: str) -> str | None:
    """Return where one of PostgreSQL's programs is, if it is: Debian keeps servers out of PATH."""
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    return shutil.which(program, path=os.pathsep.join([*folders, os.environ.get("PATH", "")]))


PARTS: Final = {
    "node": Part("Node.js 20 or newer, with npm", _node, "https://nodejs.org, or your packages"),
    "chromium": Part("Chromium", lambda: chromium() is not None, "apt install chromium"),
    "postgres": Part(
        "PostgreSQL", lambda: postgres("initdb") is not None, "apt install postgresql"
    ),
}
