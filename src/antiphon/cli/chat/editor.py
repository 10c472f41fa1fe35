"""The line that a person is typing: keys in, text and a cursor out. Knows no terminal.

Keys mean what they mean in a shell. What is pasted may have many lines and is one message;
nothing of it is obeyed as a key.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from antiphon.cli.view.text import width_of

NEWLINE: Final = "\n"


@dataclass(frozen=True, slots=True)
class Submitted:
    """The person pressed Enter."""

    text: str


@dataclass(frozen=True, slots=True)
class Offered:
    """The person asked for a completion, and several fit."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Left:
    """The person said that there will be no more: Ctrl-D on an empty line."""


Typed: TypeAlias = Submitted | Offered | Left

# One key: a paste marker or another control sequence, an escape with a character, a character.
_KEY: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1bO[@-~]|\x1b[^\[O]|[^\x1b]", re.DOTALL)
_PASTE, _PASTED = "\x1b[200~", "\x1b[201~"
_WORD_END: Final = re.compile(r"\w+\W*$")
_WORD_START: Final = re.compile(r"^\W*\w+")


class LineEditor:
    """Edits one line. `feed` it what the terminal sends.

    Args:
        history: What was typed before, oldest first; it is added to.
        complete: Returns what a first word may be completed to.
    """

    def __init__(
        self,
        history: Sequence[str] = (),
        complete: Callable[[str], Sequence[str]] = lambda _: (),
    ) -> None:
        self.text = ""
        self.cursor = 0
        self._history = list(history)
        self._at = len(self._history)
        self._draft = ""
        self._complete = complete
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._pasting = False

    def feed(self, data: bytes) -> list[Typed]:
        """Take what was typed; a key that is cut in two waits for its other half."""
        self._rest += self._decoder.decode(data)
        told: list[Typed] = []
        while self._rest:
            if self._pasting:
                if not self._paste():
                    break
                continue
            key = _KEY.match(self._rest)
            if key is None:
                break
            self._rest = self._rest[key.end() :]
            event = self._press(key[0])
            if event is not None:
                told.append(event)
        return told

    def begin(self, text: str = "") -> None:
        """Put `text` there to be edited."""
        self.text, self.cursor = text, len(text)

    def remember(self, text: str) -> None:
        """Add a line to the history."""
        if text.strip() and self._history[-1:] != [text]:
            self._history.append(text)
        self._at = len(self._history)

    def _paste(self) -> bool:
        """Take pasted text as it is; return whether the paste has ended."""
        text, end, rest = self._rest.partition(_PASTED)
        if not end:
            # Keep back what may be the beginning of the end.
            keep = next((n for n in range(5, 0, -1) if text.endswith(_PASTED[:n])), 0)
            self._insert(text[: len(text) - keep])
            self._rest = text[len(text) - keep :]
            return False
        self._insert(text)
        self._rest, self._pasting = rest, False
        return True

    def _insert(self, text: str) -> None:
        text = text.replace("\r\n", NEWLINE).replace("\r", NEWLINE)
        text = "".join(c for c in text if c >= " " or c in "\n\t").replace("\x7f", "")
        self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
        self.cursor += len(text)

    def _press(self, key: str) -> Typed | None:
        match key:
            case "\r" | "\n":
                return self._submit()
            case "\t":
                return self._offer()
            case "\x04" if not self.text:
                return Left()
            case _ if key == _PASTE:
                self._pasting = True
            case _ if (action := _ACTIONS.get(key)) is not None:
                action(self)
            case _ if key >= " " and key != "\x7f":
                self._insert(key)
        return None

    def _submit(self) -> Submitted:
        text = self.text
        self.remember(text)
        self.begin()
        return Submitted(text)

    def _offer(self) -> Offered | None:
        head = self.text[: self.cursor]
        words = self._complete(head)
        common = _in_common(words)
        if len(words) == 1:
            common += " "
        if len(common) > len(head):
            self.text = common + self.text[self.cursor :].lstrip()
            self.cursor = len(common)
            return None
        return Offered(tuple(words)) if words else None

    # Keys.

    def _left(self) -> None:
        self.cursor = max(0, self.cursor - 1)

    def _right(self) -> None:
        self.cursor = min(len(self.text), self.cursor + 1)

    def _home(self) -> None:
        self.cursor = 0

    def _end(self) -> None:
        self.cursor = len(self.text)

    def _word_left(self) -> None:
        found = _WORD_END.search(self.text[: self.cursor])
        self.cursor = found.start() if found else 0

    def _word_right(self) -> None:
        found = _WORD_START.search(self.text[self.cursor :])
        self.cursor = self.cursor + found.end() if found else len(self.text)

    def _delete(self, start: int, end: int) -> None:
        self.text = self.text[:start] + self.text[end:]
        self.cursor = start

    def _backspace(self) -> None:
        self._delete(max(0, self.cursor - 1), self.cursor)

    def _delete_right(self) -> None:
        self._delete(self.cursor, self.cursor + 1)

    def _delete_word(self) -> None:
        end = self.cursor
        self._word_left()
        self._delete(self.cursor, end)

    def _delete_to_end(self) -> None:
        self._delete(self.cursor, len(self.text))

    def _delete_to_start(self) -> None:
        self._delete(0, self.cursor)

    def _newline(self) -> None:
        self._insert(NEWLINE)

    def _older(self) -> None:
        self._recall(self._at - 1)

    def _newer(self) -> None:
        self._recall(self._at + 1)

    def _recall(self, to: int) -> None:
        if not 0 <= to <= len(self._history):
            return
        if self._at == len(self._history):
            self._draft = self.text
        self._at = to
        self.begin(self._draft if to == len(self._history) else self._history[to])


_ACTIONS: Final[dict[str, Callable[[LineEditor], None]]] = {
    key: action
    for action, keys in (
        (LineEditor._left, ("\x02", "\x1b[D", "\x1bOD")),
        (LineEditor._right, ("\x06", "\x1b[C", "\x1bOC")),
        (LineEditor._home, ("\x01", "\x1b[H", "\x1bOH", "\x1b[1~", "\x1b[7~")),
        (LineEditor._end, ("\x05", "\x1b[F", "\x1bOF", "\x1b[4~", "\x1b[8~")),
        (LineEditor._word_left, ("\x1bb", "\x1b[1;5D", "\x1b[1;3D")),
        (LineEditor._word_right, ("\x1bf", "\x1b[1;5C", "\x1b[1;3C")),
        (LineEditor._backspace, ("\x7f", "\x08")),
        (LineEditor._delete_right, ("\x1b[3~", "\x04")),
        (LineEditor._delete_word, ("\x17", "\x1b\x7f")),
        (LineEditor._delete_to_end, ("\x0b",)),
        (LineEditor._delete_to_start, ("\x15",)),
        (LineEditor._newline, ("\x1b\r", "\x1b\n")),
        (LineEditor._older, ("\x10", "\x1b[A", "\x1bOA")),
        (LineEditor._newer, ("\x0e", "\x1b[B", "\x1bOB")),
    )
    for key in keys
}


def _in_common(words: Sequence[str]) -> str:
    """Return what all words begin with. The first and the last in order differ the most."""
    if not words:
        return ""
    first, last = min(words), max(words)
    return first[: next((n for n, c in enumerate(first) if last[n : n + 1] != c), len(first))]


def laid_out(text: str, cursor: int, width: int, most: int) -> tuple[list[str], tuple[int, int]]:
    """Return `text` in rows of `width` cells, and the row and column of the cursor.

    At most `most` rows come back, those around the cursor.
    """
    rows, row, used = [""], 0, 0
    at = (0, 0)
    for position, character in enumerate(f"{text} "):  # one more, for a cursor at the end
        taken = 1 if character == "\t" else width_of(character)
        if used + taken > width:
            rows.append("")
            row, used = row + 1, 0
        if position == cursor:
            at = (row, used)
        if character == NEWLINE:
            rows.append("")
            row, used = row + 1, 0
        else:
            rows[row] += " " if character == "\t" else character
            used += taken
    rows[-1] = rows[-1][:-1]
    first = max(0, min(at[0] - most + 1, len(rows) - most))
    if at[0] < first:
        first = at[0]
    return rows[first : first + most], (at[0] - first, at[1])
