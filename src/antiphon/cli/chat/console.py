"""A chat on a terminal: the preview streams below, and turns solid when it is history.

┆ Rehearsal model: you said “hel      dim, with a broken bar: it may still be withdrawn
┆ not saved yet · /stop or Ctrl-C

┃ Rehearsal model: you said “hello”.  solid: complete, durable, what the model sees next
┗ saved …9kn8ff · 5 in, 24 out
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from antiphon.cli.chat.editor import Left, LineEditor, Offered, Submitted, laid_out
from antiphon.cli.chat.terminal import Screen
from antiphon.cli.chat.voice import Voice, asked_for, spoken
from antiphon.cli.view.text import Ink, clip, harmless, one_line, wrap
from antiphon.core.answers.deltas import Channel
from antiphon.core.blocks import Message
from antiphon.core.events import Preview
from antiphon.handles.events import RunEvent

WIDEST: Final = 100
PROMPT: Final = "› "  # noqa: RUF001
PROMPT_ROWS: Final = 8
_LOOSE, _SOLID, _SEAL, _ASIDE = "┆ ", "┃ ", "┗ ", "┊ "


class Console(Voice):
    """Speaks on a terminal, and listens to its keys where it is given them.

    Args:
        ink: Colours.
        editor: The line being typed; None where nobody types.
        submit: Told each line.
        leave: Told that there will be no more.
    """

    def __init__(
        self,
        ink: Ink,
        editor: LineEditor | None = None,
        *,
        submit: Callable[[str], None] = lambda _: None,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(ink)
        self.screen = Screen(sys.stdout, self._draw)
        self.editor = editor
        self._submit = submit
        self._leave = leave
        self._tails: dict[Channel, str] = {}
        self._generation = 0

    # The person types.

    def take(self, data: bytes) -> None:
        """Take keys from the terminal."""
        assert self.editor is not None
        self.hint = ""
        for typed in self.editor.feed(data):
            match typed:
                case Submitted(text=text):
                    self._echo(text)
                    self._submit(text)
                case Offered(words=words):
                    self.screen.print(self.ink("  ".join(words), "dim"))
                case Left():
                    self._leave()
        if data == b"\x0c":
            self.screen.clear()
        self.screen.redraw()

    def begin(self, text: str) -> bool:
        """Put `text` there to be edited."""
        if self.editor is None:
            return False
        self.editor.begin(text)
        self.screen.touch()
        return True

    def _echo(self, text: str) -> None:
        style = "dim" if text.startswith("/") else "bold"
        rows = wrap(harmless(text), self._columns - 2)
        marks = [PROMPT] + ["  "] * (len(rows) - 1)
        self.screen.print(
            "\n".join(
                self.ink(mark, "mark") + self.ink(row, style)
                for mark, row in zip(marks, rows, strict=True)
            )
        )

    # The model speaks.

    def note(self, text: str, *styles: str) -> None:
        """Say something that is no answer and no result."""
        self.screen.print(
            "\n".join(self.ink(row, *(styles or ("dim",))) for row in wrap(text, self._columns))
        )

    def result(self, lines: Iterable[str]) -> None:
        """Print what a command was asked for."""
        self.screen.print("\n".join(lines))

    def remark(self, lines: Iterable[str]) -> None:
        """Say several painted lines that are no result."""
        self.result(lines)

    def event(self, event: RunEvent, seal: str = "") -> None:
        """Tell what happened; whatever it is but a preview, the preview is over."""
        if not isinstance(event, Preview):
            self._tails.clear()
        super().event(event, seal)

    def preview(self, piece: Preview) -> None:
        """Show a piece of an answer below, until it is history or withdrawn."""
        if piece.generation != self._generation:
            self._tails.clear()
            self._generation = piece.generation
        columns, rows = self.screen.size
        held = self._tails.get(piece.channel, "") + piece.text
        self._tails[piece.channel] = held[-2 * columns * rows :]
        self.screen.touch()

    def answer(self, message: Message, seal: str) -> None:
        """Print an answer that is history from now on."""
        text = harmless(spoken(message)).strip("\n")
        rows = wrap(text, self._columns - 2) if text else []
        lines = [self.ink(_SOLID, "good") + row for row in rows]
        for asked in asked_for(message):
            asked = clip(asked, self._columns - 2)
            lines.append(self.ink(_SOLID, "good") + self.ink(asked, "mark"))
        self.screen.print("\n".join([*lines, self.ink(f"{_SEAL}{seal}", "good")]))

    def stopped(self, text: str) -> None:
        """Show what a stopped answer had said, as something that stands aside."""
        if text:
            self.screen.print(
                "\n".join(
                    self.ink(_ASIDE + row, "dim") for row in wrap(harmless(text), self._columns - 2)
                )
            )

    # What stands below.

    @property
    def _columns(self) -> int:
        return min(WIDEST, self.screen.size[0] - 1)

    def _draw(self) -> tuple[Sequence[str], tuple[int, int]]:
        _, height = self.screen.size
        prompt: list[str] = []
        at = (0, 0)
        if self.editor is not None:
            rows, at = laid_out(
                self.editor.text, self.editor.cursor, self._columns - 2, PROMPT_ROWS
            )
            marks = [self.ink(PROMPT, "mark")] + ["  "] * (len(rows) - 1)
            prompt = [mark + row for mark, row in zip(marks, rows, strict=True)]
        above = self._preview_rows(max(2, height - len(prompt) - 2))
        if self.hint:
            above.append(self.ink(clip(self.hint, self._columns), "warn"))
        if not prompt:
            return [*above, ""], (len(above), 0)
        return [*above, *prompt], (len(above) + at[0], at[1] + 2)

    def _preview_rows(self, most: int) -> list[str]:
        if not self._tails:
            return []
        text = self._tails.get(Channel.TEXT, "") + self._tails.get(Channel.REFUSAL, "")
        thought = self._tails.get(Channel.REASONING, "")
        shown = harmless(text) if text else f"thinking: {one_line(thought)}"
        rows = wrap(shown, self._columns - 2)[-most:]
        status = "not saved yet · /stop or Ctrl-C" if self.editor else "not saved yet · Ctrl-C"
        return [self.ink(_LOOSE + row, "dim") for row in rows] + [
            self.ink(_LOOSE, "dim") + self.ink(status, "warn")
        ]
