"""`antiphon chat`: the place to talk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Final, TypeVar

import click

from antiphon.cli.chat.commands import completions, obey
from antiphon.cli.chat.console import Console
from antiphon.cli.chat.editor import LineEditor
from antiphon.cli.chat.pipe import must_be_text, read
from antiphon.cli.chat.session import Session
from antiphon.cli.chat.terminal import keys
from antiphon.cli.chat.tools import DEMO
from antiphon.cli.chat.voice import JsonVoice, Voice
from antiphon.cli.opening import conversing, place_of, run, server_of, settings_of
from antiphon.cli.output import config_option, db_option, json_option
from antiphon.cli.view.text import Ink, colourful
from antiphon.engine.catalogue.models import LOCAL, REHEARSAL
from antiphon.engine.settings import Settings
from antiphon.engine.tools.function import Function
from antiphon.errors import AntiphonError, RunCanceled
from antiphon.version import __version__

T = TypeVar("T")

AT_ONCE: Final = frozenset({"/stop", "/quit"})
"""Lines that do not wait for the answer that is under way."""


@click.command()
@click.argument("message", metavar="[MESSAGE]", required=False)
@click.option("-m", "--model", metavar="NAME", help="Who answers; /models lists them.")
@click.option("-c", "--continue", "go_on", is_flag=True, help="Go on in the newest conversation.")
@click.option("--conversation", metavar="ID", help="Go on in this conversation.")
@click.option("-s", "--system", metavar="TEXT", help="Instructions for the model.")
@click.option(
    "--tools",
    type=click.Choice(["demo"]),
    help="Offer two small functions, clock and dice, so that a tool turn can be seen.",
)
@click.option(
    "--server",
    metavar="URL",
    envvar="ANTIPHON_SERVER",
    help="Talk through this server; by default through the one that has the database open, if any.",
)
@json_option
@db_option
@config_option
def command(
    message: str | None,
    model: str | None,
    go_on: bool,
    conversation: str | None,
    system: str | None,
    tools: str | None,
    server: str | None,
    as_json: bool,
    db: str | None,
    config: str | None,
) -> int:
    """Talk to a model.

    With MESSAGE: say it, print the answer, and exit. Input from a pipe is taken line by line, as
    if it were typed; `-` takes all of it as one message. Then answers, once they are saved, go to
    standard output and everything else to standard error, and the exit code is that of the last
    message. With --json every event is a line of JSON.

    What streams is a preview: it may still be withdrawn, and looks like it. What is saved is
    complete. Nothing that you do here destroys anything: /edit and /regenerate add branches.

    Through a server everything is the same, and an answer does not need this process to go on.
    Where the server has keys, ANTIPHON_KEY holds yours.
    """
    for given in (message, system):
        must_be_text(given)
    settings = settings_of(db, config)
    talk = _Talk(settings, model=model, system=system, message=message, as_json=as_json)
    functions = DEMO if tools else ()
    return run(talk.run(server, conversation=conversation, go_on=go_on, functions=functions))


class _Talk:
    """One call of the command: where lines come from, and who speaks."""

    def __init__(
        self,
        settings: Settings,
        *,
        model: str | None,
        system: str | None,
        message: str | None,
        as_json: bool,
    ) -> None:
        self._settings = settings
        self._model = model
        self._system = system
        self._message = message
        self._stopping: asyncio.Task[None] | None = None
        self._lines: asyncio.Queue[str | AntiphonError | None] = asyncio.Queue()
        terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not as_json
        self._typed = terminal and sys.stdin.isatty() and message is None
        self._voice = self._speaker(terminal, as_json)
        self._voice.once = message is not None

    def _speaker(self, terminal: bool, as_json: bool) -> Voice:
        if as_json:
            return JsonVoice(Ink(False))
        if not terminal:
            return Voice(Ink(colourful(sys.stderr)))
        editor = LineEditor(complete=completions) if self._typed else None
        return Console(
            Ink(),
            editor,
            submit=self._lines.put_nowait,
            leave=lambda: self._lines.put_nowait(None),
        )

    async def run(
        self,
        server: str | None,
        *,
        conversation: str | None,
        go_on: bool,
        functions: Iterable[Function],
    ) -> int:
        """Open what is talked through, talk, and return the exit code."""
        url = server or await server_of(self._settings)
        async with conversing(self._settings, url, functions) as app:
            if self._model is not None:
                await app.model(self._model)  # says now what would be said at the first message
            default = next(model for model in await app.models() if model.default)
            session = Session(
                app,
                self._voice,
                default_model=default.name,
                model=self._model,
                system=self._system,
            )
            chat = await app.latest() if go_on and conversation is None else None
            if conversation is not None:
                chat = await session.conversation(conversation)
            if isinstance(self._voice, Console) and self._voice.editor is not None:
                for said in await session.history():
                    self._voice.editor.remember(said)
            with self._listening(session):
                self._greet(session, url)
                if chat is not None:
                    await session.take_up(chat)
                    self._voice.remark(await session.recent())
                elif go_on:
                    self._voice.note("There is no conversation to go on in: a new one begins.")
                return await self._talk(session)

    # The first screen.

    def _greet(self, session: Session, url: str | None) -> None:
        why = _why(self._settings, self._model) if url is None else "answers at the server"
        place = url or place_of(self._settings)
        if not isinstance(self._voice, Console) or self._message is not None:
            self._voice.note(f"{session.model_name}: {why} · {place}")
            return
        self._voice.result(
            [
                self._voice.ink(f"Antiphon {__version__}", "bold"),
                f"  data   {os.path.abspath(place)}" if url is None else f"  server {url}",
                f"  model  {session.model_name}: {why}",
                "  stop   /stop or Ctrl-C stops an answer; /quit or Ctrl-D leaves; /help tells more",
                "",
            ]
        )

    # Where lines come from.

    @contextlib.contextmanager
    def _listening(self, session: Session) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as stack:
            self._hear(stack, signal.SIGINT, self._interrupted, session)
            for ending in (signal.SIGTERM, signal.SIGHUP):
                self._hear(stack, ending, session.leave, 128 + ending)
            if isinstance(self._voice, Console):
                stack.callback(self._voice.screen.end)
                if self._typed:
                    stack.enter_context(
                        keys(
                            self._voice.screen,
                            self._voice.take,
                            leave=lambda: self._lines.put_nowait(None),
                        )
                    )
            if not self._typed:
                self._feed(loop)
            yield

    def _hear(
        self,
        stack: contextlib.ExitStack,
        number: signal.Signals,
        what: Callable[..., None],
        *arguments: object,
    ) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(RuntimeError, ValueError):  # only the main thread has signals
            loop.add_signal_handler(number, what, *arguments)
            stack.callback(loop.remove_signal_handler, number)

    def _feed(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._message is not None and self._message != "-":
            self._lines.put_nowait(self._message)
            self._lines.put_nowait(None)
            return

        def hand_over(line: str | AntiphonError | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended before the input
                loop.call_soon_threadsafe(self._lines.put_nowait, line)

        whole = self._message == "-"
        threading.Thread(target=read, args=(hand_over, whole), daemon=True).start()

    def _interrupted(self, session: Session) -> None:
        """Ctrl-C: the first one stops, the second one leaves."""
        if self._voice.hint or not (session.busy or self._typed):
            session.leave(RunCanceled.exit_code)
            return
        self._voice.hint = "Ctrl-C again to leave"
        if session.busy:
            self._stopping = asyncio.get_running_loop().create_task(self._stop(session))
        if isinstance(self._voice, Console):
            if self._voice.editor is not None:
                self._voice.editor.begin()
            self._voice.screen.touch()

    async def _stop(self, session: Session) -> None:
        try:
            await session.stop()
        except AntiphonError as error:
            self._voice.refused(error)

    # The talk itself.

    async def _talk(self, session: Session) -> int:
        teller = asyncio.create_task(session.tell())
        leaving = asyncio.create_task(session.leaving.wait())
        try:
            while (line := await _first(self._lines.get(), teller, leaving)) is not None:
                self._voice.hint = ""
                if not self._typed and line not in AT_ONCE:
                    await _first(session.settled(), teller, leaving)
                    if leaving.done():
                        break
                await self._take(session, line)
            if session.left is None and self._typed:
                await obey(session, "/quit")
            elif session.left is None:
                await _first(session.settled(), teller, leaving)
        finally:
            teller.cancel()
            leaving.cancel()
            await asyncio.wait({teller, leaving})
        if session.left is not None:
            return session.left
        return 0 if self._typed else session.code

    async def _take(self, session: Session, line: str | AntiphonError) -> None:
        try:
            if isinstance(line, AntiphonError):
                raise line
            if self._message == "-":
                await session.say(line)
            elif line.strip():
                await obey(session, line.strip())
        except AntiphonError as error:
            session.code = error.exit_code
            self._voice.refused(error)


async def _first(
    work: Coroutine[Any, Any, T], teller: asyncio.Task[None], leaving: asyncio.Task[bool]
) -> T | None:
    """Return what `work` comes to, or None if the person leaves first.

    Raises:
        AntiphonError: The store failed while a run was followed.
    """
    task = asyncio.create_task(work)
    await asyncio.wait({task, teller, leaving}, return_when=asyncio.FIRST_COMPLETED)
    if teller.done() and not teller.cancelled():
        task.cancel()
        teller.result()
    if task.done():
        return task.result()
    task.cancel()
    return None


def _why(settings: Settings, asked: str | None) -> str:
    """Return why this model answers, in one line."""
    models = settings.models
    name = asked or models.default_name
    if name == REHEARSAL:
        reason = "as you asked" if asked or models.default else "no key in the environment"
        return f"a script, not a model ({reason})"
    if name == LOCAL:
        return "a small model on this machine"
    if asked:
        return "as you asked"
    if models.default:
        return "the setting default_model"
    return "OPENAI_* in the environment" if models.passthrough else "the first in the settings"
