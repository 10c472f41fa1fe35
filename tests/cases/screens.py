"""What a client's screen shows, and whether it was told everything once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Screen:
    """One client: a browser tab that follows the events of a conversation.

    It believes nothing about the server. Numbers have to follow each other, preview text has to
    begin whole and go on where it stopped; whatever does not is a problem.
    """

    client: str
    run: str | None = None
    connected: bool = False
    hides: int = 0
    """Code points of the run's text that lie before the cursor it asked for first."""
    last_seq: int = 0
    problems: list[str] = field(default_factory=list)
    _expected: int = 0
    _previews: dict[tuple[str, int, int], str] = field(default_factory=dict)
    _begun: set[tuple[str, int, int]] = field(default_factory=set)
    _ended: dict[str, str] = field(default_factory=dict)

    def attach(self, run: str, after: int, *, hides: int) -> None:
        """Follow `run`, having seen durable events up to `after`."""
        if run != self.run or not self.text(run):
            self.hides = hides
        self.run, self.connected = run, True
        self._expected = after + 1
        self._begun.clear()

    def leave(self) -> None:
        """Lose the connection; what is on the screen stays there."""
        self.connected = False

    def clear(self) -> None:
        """Load anew: the screen is empty."""
        self.leave()
        self.hides = self.last_seq = 0
        self._previews.clear()
        self._ended.clear()

    def take(self, shown: dict[str, Any]) -> None:
        """Show what the server told."""
        if "preview" in shown:
            self._preview(shown["preview"])
        seq = shown.get("seq")
        if seq is None:
            return
        if seq != self._expected:
            self.problems.append(f"event {seq} where {self._expected} was next")
        self.last_seq, self._expected = seq, seq + 1
        for what in ("committed", "kept"):
            if what in shown:
                self._ended[shown["run"]] = shown[what]
        if "withdrawn" in shown:
            gone = shown["withdrawn"]
            for key in [k for k in self._previews if k[:2] == (shown["run"], gone)]:
                del self._previews[key]

    def _preview(self, piece: dict[str, Any]) -> None:
        if piece["channel"] != "text":
            return
        key = (piece["run"], piece["generation"], piece["block"])
        so_far = self._previews.get(key, "")
        offset, text = piece["offset"], piece["text"]
        if key not in self._begun:
            self._begun.add(key)
            if offset:
                self.problems.append(f"a preview began at {offset}")
            elif not text.startswith(so_far):
                self.problems.append(f"a preview took back {so_far!r}")
            self._previews[key] = text
            return
        if offset != len(so_far):
            self.problems.append(f"preview text at {offset} where {len(so_far)} was next")
        self._previews[key] = so_far + text

    def text(self, run: str | None = None) -> str:
        """Return what the screen shows of a run: its answer, else the preview."""
        run = run or self.run
        if run is None:
            return ""
        if run in self._ended:
            return self._ended[run][self.hides :]
        newest = max((k[1] for k in self._previews if k[0] == run), default=0)
        blocks = sorted(k for k in self._previews if k[:2] == (run, newest))
        return "".join(self._previews[key] for key in blocks)[self.hides :]
