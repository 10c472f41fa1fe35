"""What the documents show runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.process import server_process

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
OF_A_CLIENT = re.compile(r"^```py\n(.*?)^```", re.MULTILINE | re.DOTALL)
SERVER = "http://127.0.0.1:8000"
EXAMPLES = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, code in enumerate(BLOCK.findall(page.read_text("utf-8")), 1)
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_runs_on_an_empty_folder(code: str, tmp_path: Path) -> None:
    program = tmp_path / "example.py"
    program.write_text(code, "utf-8")
    environment = {
        "PATH": os.environ["PATH"],
        "ANTIPHON_REHEARSAL_DELAY_S": "0",
        "PYTHONWARNINGS": "error::RuntimeWarning",
    }
    done = subprocess.run(
        [sys.executable, program.name],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_an_example_of_a_client_runs_against_a_server(tmp_path: Path) -> None:
    found = [
        (page.name, code)
        for page in PAGES
        for code in OF_A_CLIENT.findall(page.read_text(encoding="utf-8"))
        if SERVER in code
    ]
    assert {name for name, _ in found} == {"README.md", "responses.md", "server.md"}
    with server_process(tmp_path) as server:
        for name, code in found:
            program = tmp_path / "example.py"
            program.write_text(code.replace(SERVER, server.url), encoding="utf-8")
            ran = subprocess.run(
                [sys.executable, program], capture_output=True, text=True, timeout=60, check=False
            )
            assert ran.returncode == 0, (name, ran.stderr)


def test_every_link_of_a_page_leads_somewhere() -> None:
    pages = [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
    broken = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


@pytest.mark.req("M105")
def test_every_neighbour_of_a_dispatch_has_an_owner_that_exists() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    table = page.partition("## Neighbours")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:4] for line in table.splitlines() if line.startswith("| ")][1:]
    assert [topic.strip() for topic, _, _ in rows] == [
        "token admission",
        "the SSE protocol",
        "long streams in a browser",
        "timeouts, retries and keys of MCP calls",
        "lineage of what stands for older talk",
        "the business schema of an answer",
    ]
    for _, owners, _ in rows:
        for owner in re.findall(r"`([^`]+)`", owners):
            assert (ROOT / "src" / "antiphon" / owner).exists() or (ROOT / owner).exists(), owner


PACKAGE = ROOT / "src" / "antiphon"


def test_every_place_that_the_architecture_names_exists_and_no_folder_is_left_out() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    named = {
        word.rstrip("/")
        for word in re.findall(r"`([\w./]+)`", page)
        if ("/" in word and not word.startswith("/")) or word.endswith(".py")
    }
    assert [one for one in named if not ((PACKAGE / one).exists() or (ROOT / one).exists())] == []
    folders = {
        f"{layer}/{folder.name}"
        for layer in ("core", "engine", "server", "stores", "cli")
        for folder in (PACKAGE / layer).iterdir()
        if (folder / "__init__.py").exists()
    }
    assert folders - named == {"cli/chat", "cli/demo"}  # commands of those names


def test_the_modules_that_a_row_of_the_architecture_names_are_in_its_place() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    tables = page.partition("## Who owns what")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in tables.splitlines() if line.startswith("| `")]
    assert len(rows) > 30
    for _, place, owns, without, _ in rows:
        places = [PACKAGE / one for one in re.findall(r"`([^`]+)`", place)]
        inside = {module.stem for one in places for module in [one, *one.rglob("*")]}
        for word in re.findall(r"`([a-z_]+)`", owns + without):
            assert word in inside, f"{place}has no {word}"


def test_each_row_of_the_threat_model_names_a_test_that_exists() -> None:
    rows = re.findall(
        r"`(tests/\S+\.py)::(\S+)`", (ROOT / "docs/threat-model.md").read_text("utf-8")
    )
    assert len(rows) > 20
    for path, name in rows:
        source = (ROOT / path).read_text("utf-8")
        assert name == "*" or f"def {name}(" in source, f"{path} has no {name}"
