"""The terminal: keys come in one by one, and the last rows of the screen are ours to redraw.

What is printed for good scrolls up and stays. Below it lies the *live* part: a preview that may
still be withdrawn, and the line being typed. It is erased and drawn anew, and nothing of it is
left behind, so what one scrolls back to is only what became true.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TextIO

import click

from antiphon.cli.view.text import cells

FRAMES_PER_S: Final = 30
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"


class Screen:
    """Prints for good, and keeps a live part below. `draw` says what that holds.

    Args:
        out: The terminal.
        draw: Returns the rows, none wider than the screen, and where the cursor stands.
    """

    def __init__(
        self, out: TextIO, draw: Callable[[], tuple[Sequence[str], tuple[int, int]]]
    ) -> None:
        self._out = out
        self._draw = draw
        self._above = 0  # rows of the live part above the cursor
        self._drawn: Sequence[str] = ()
        self._due: asyncio.TimerHandle | None = None
        self._ended = False

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        try:
            found = os.get_terminal_size(self._out.fileno())
        except OSError:
            return 80, 24
        return max(20, found.columns), max(5, found.lines)

    def print(self, text: str) -> None:
        """Write `text` for good, above the live part."""
        self._write(f"{self._erased()}{text}\n")
        self.redraw()

    def touch(self) -> None:
        """The live part has changed: draw it soon, however often this is called until then."""
        if self._due is None and not self._ended:
            loop = asyncio.get_running_loop()
            self._due = loop.call_later(1 / FRAMES_PER_S, self.redraw)

    def redraw(self) -> None:
        """Draw the live part now."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._ended:
            return
        rows, (row, column) = self._draw()
        text = self._erased() + "\n".join(rows)
        if (up := len(rows) - 1 - row) > 0:
            text += f"\x1b[{up}A"
        text += "\r" + (f"\x1b[{column}C" if column else "")
        self._above, self._drawn = row, rows[: row + 1]
        self._write(text)

    def resized(self) -> None:
        """The terminal has another size and has broken our rows anew."""
        columns, _ = self.size
        self._above = sum(-(-cells(click.unstyle(row)) // columns) or 1 for row in self._drawn[:-1])
        self.redraw()

    def clear(self) -> None:
        """Begin again on an empty screen."""
        self._above = 0
        self._write("\x1b[H\x1b[2J")
        self.redraw()

    def end(self) -> None:
        """Erase the live part; nothing is drawn any more."""
        if not self._ended:
            self._write(self._erased())
            self._ended = True
        if self._due is not None:
            self._due.cancel()

    def _erased(self) -> str:
        up = f"\x1b[{self._above}A" if self._above else ""
        self._above = 0
        return f"\r{up}\x1b[J"

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


@contextmanager
def keys(
    screen: Screen, take: Callable[[bytes], None], *, leave: Callable[[], None]
) -> Iterator[None]:
    """Give every key to `take` as it is pressed, without a thread and without echo.

    Ctrl-C stays a signal. Whatever happens, the terminal is given back as it was; while the
    process is suspended too.
    """
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def enter() -> None:
        mode = termios.tcgetattr(descriptor)
        mode[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        termios.tcsetattr(descriptor, termios.TCSADRAIN, mode)
        sys.stdout.write(_PASTE_ON)
        sys.stdout.flush()

    def give_back() -> None:
        sys.stdout.write(_PASTE_OFF)
        sys.stdout.flush()
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

    def readable() -> None:
        try:
            data = os.read(descriptor, 4096)
        except OSError:
            data = b""
        if data:
            take(data)
        else:
            loop.remove_reader(descriptor)
            leave()

    def suspend() -> None:
        give_back()
        os.kill(os.getpid(), signal.SIGSTOP)  # goes on here when it is continued
        enter()
        screen.redraw()

    enter()
    loop.add_reader(descriptor, readable)
    loop.add_signal_handler(signal.SIGTSTP, suspend)
    loop.add_signal_handler(signal.SIGWINCH, screen.resized)
    try:
        yield
    finally:
        for number in (signal.SIGTSTP, signal.SIGWINCH):
            loop.remove_signal_handler(number)
        loop.remove_reader(descriptor)
        with contextlib.suppress(termios.error):  # the terminal may be gone
            give_back()
