"""A terminal for tests: runs the command line on a pseudo-terminal, and remembers the screen."""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import subprocess
import sys
import time
import unicodedata
from collections.abc import Mapping
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSCTTY, TIOCSWINSZ

COLUMNS, ROWS = 80, 24
PATIENCE_S = 20.0

_ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


class Screen:
    """What a person sees: the least of a terminal that our output needs, and no more.

    An escape sequence that it does not know is an error, so that a test finds out.
    """

    def __init__(self) -> None:
        self.rows: list[list[str]] = [[]]
        self.row = self.column = 0
        self._rest = ""

    def feed(self, text: str) -> None:
        text = self._rest + text
        self._rest = ""
        while text:
            if text[0] == "\x1b":
                match = _ESCAPE.match(text)
                if match is None:
                    self._rest = text
                    return
                self._obey(match[1], match[2])
                text = text[match.end() :]
                continue
            self._put(text[0])
            text = text[1:]

    def reflow(self, columns: int) -> None:
        """Break rows that are too long now, as terminals do when their window gets narrower."""
        broken: list[list[str]] = []
        for number, row in enumerate(self.rows):
            if number == self.row:
                self.row, self.column = len(broken) + self.column // columns, self.column % columns
            broken += [row[n : n + columns] for n in range(0, len(row), columns)] or [[]]
        self.rows = broken

    def _obey(self, numbers: str, letter: str) -> None:
        first = int(numbers or 1) if numbers.isdigit() or not numbers else 0
        match letter:
            case "A":
                self.row = max(0, self.row - first)
            case "C":
                self.column += first
            case "J" if numbers in ("", "0"):
                del self.rows[self.row + 1 :]
                del self.rows[self.row][self.column :]
            case "m" | "h" | "l":
                pass  # colour, modes
            case _:
                raise AssertionError(f"unknown escape sequence {numbers!r} {letter!r}")

    def _put(self, character: str) -> None:
        match character:
            case "\r":
                self.column = 0
            case "\n":
                self.row += 1
                while len(self.rows) <= self.row:
                    self.rows.append([])
            case _:
                wide = unicodedata.east_asian_width(character) in "WF"
                line = self.rows[self.row]
                line.extend(" " * (self.column + 1 + wide - len(line)))
                line[self.column : self.column + 1 + wide] = [character, ""][: 1 + wide]
                self.column += 1 + wide

    def __str__(self) -> str:
        return "\n".join("".join(row).rstrip() for row in self.rows)


def _control() -> None:
    """In the child: make the pseudo-terminal the one whose Ctrl-C is meant."""
    ioctl(0, TIOCSCTTY, 0)


class Terminal:
    """One command on a pseudo-terminal."""

    def __init__(self, *arguments: str, cwd: Path, env: Mapping[str, str]) -> None:
        self.raw = ""
        self.screen = Screen()
        self.fd, self.slave = pty.openpty()
        ioctl(self.slave, TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "antiphon", *arguments],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
            preexec_fn=_control,
        )

    def send(self, text: str) -> None:
        """Press these keys."""
        os.write(self.fd, text.encode())

    def resize(self, columns: int) -> None:
        """Make the window this wide, or rather this narrow."""
        self.screen.reflow(columns)
        ioctl(self.slave, TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))

    def see(self, wanted: str, *, gone: str | None = None) -> str:
        """Wait until the screen shows `wanted` and not `gone`; return it."""
        end = time.monotonic() + PATIENCE_S
        while not (wanted in str(self.screen) and (gone is None or gone not in str(self.screen))):
            alive = self.process.poll() is None
            if not self._read(min(end, time.monotonic() + 0.1)) and (
                not alive or time.monotonic() > end
            ):
                raise AssertionError(f"{wanted!r} never came. The screen:\n{self.screen}")
        return str(self.screen)

    def exit_code(self) -> int:
        """Wait for the end and return the exit code."""
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            if time.monotonic() > end:
                raise AssertionError(f"it goes on. The screen:\n{self.screen}")
            self._read(time.monotonic() + 0.05)
        while self._read(time.monotonic()):
            pass
        return self.process.returncode

    def kill(self) -> None:
        """End it, if it still runs, and let go of the terminal."""
        self.process.kill()
        self.process.wait(PATIENCE_S)
        os.close(self.fd)
        os.close(self.slave)

    def _read(self, end: float) -> bool:
        ready, _, _ = select.select([self.fd], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return False
        data = os.read(self.fd, 65536)
        text = data.decode("utf-8", "replace")
        self.raw += text
        self.screen.feed(text)
        return bool(data)
