"""Every command and option says what it does, and the pages say the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from antiphon.cli import COMMANDS, cli, run

ROOT = Path(__file__).parent.parent.parent


def command(name: str) -> click.Command:
    group: click.Group = cli
    first, _, second = name.partition(" ")
    found = group.get_command(click.Context(group), first)
    if second:
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), second)
    assert found is not None
    return found


@pytest.mark.parametrize("group", ["keys", "rollout"])
def test_a_group_without_a_command_shows_what_it_has(
    group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([group]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.split("\n")[0]) == (
        "",
        f"Usage: antiphon {group} [OPTIONS] COMMAND [ARGS]...",
    )
    assert "..." not in told.err.partition("Commands:")[2]
    assert run([group, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"


def leaves() -> list[str]:
    """Return every command that does something, those of groups as `group command`."""
    found = []
    for name in COMMANDS:
        inner = command(name)
        found += (
            [f"{name} {one}" for one in inner.commands]
            if isinstance(inner, click.Group)
            else [name]
        )
    return found


@pytest.mark.parametrize("name", leaves())
def test_a_command_documents_itself_and_every_option(name: str) -> None:
    found = command(name)
    assert found.help
    options = [parameter for parameter in found.params if isinstance(parameter, click.Option)]
    assert [o.name for o in options if not o.help] == []
    told = found.get_help(click.Context(found, info_name=name))
    for parameter in found.params:
        assert parameter.opts[-1] in told or (parameter.human_readable_name in told)


@pytest.mark.parametrize("name", leaves())
def test_every_command_can_tell_its_result_as_json(name: str) -> None:
    flags = {opt for parameter in command(name).params for opt in parameter.opts}
    assert "--json" in flags


@pytest.mark.parametrize("script", ["check_cli.py", "check_chat.py"])
def test_the_page_is_what_the_commands_say(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("asked", ["demo", "--help", "lint --json -", "no-such-command --json"])
def test_an_output_that_cannot_be_written_is_an_error_and_no_traceback(asked: str) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "antiphon", *asked.split()],
            input=b'{"model": "m", "messages": []}',
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr.decode().splitlines() == [
        "error[output_lost]: The output cannot be written: No space left on device."
    ]
