"""What a line that begins with a slash asks for.

Nothing here changes history: every command adds a branch, moves the head, or only looks.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from antiphon.cli.chat.session import Session
from antiphon.cli.view.run import timeline
from antiphon.cli.view.text import clip, count, harmless, one_line, screen_width, short, table
from antiphon.cli.view.tree import conversation_page, gist, session_list
from antiphon.core.blocks import Message, Status
from antiphon.core.inputs import Retrieved
from antiphon.core.tree import siblings
from antiphon.engine.catalogue.models import REHEARSAL
from antiphon.errors import InvalidInput, NotFound, Refused
from antiphon.handles.run import RunHandle

Work: TypeAlias = Callable[[Session, str], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slash:
    """One command: what follows its name, what it does, and who does it."""

    usage: str
    help: str
    work: Work


COMMANDS: Final[dict[str, Slash]] = {}


def slash(name: str, usage: str, words: str) -> Callable[[Work], Work]:
    """Make a function the command `name`."""

    def named(work: Work) -> Work:
        COMMANDS[name] = Slash(usage=usage, help=words, work=work)
        return work

    return named


async def obey(session: Session, line: str) -> None:
    """Carry out a line: a command, or something to say. `//` says what begins with a slash.

    Raises:
        AntiphonError: It was not done; nothing has changed.
    """
    if not line.startswith("/") or line.startswith("//"):
        await session.say(line.removeprefix("/") if line.startswith("//") else line)
        return
    name, _, rest = line[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is not None:
        await command.work(session, rest.strip())
        return
    near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.75)
    if session.model_name == REHEARSAL and not near:
        await session.say(line)  # the rehearsal model has words of its own
        return
    hint = f"Did you mean /{near[0]}?" if near else "/help lists what there is."
    raise InvalidInput(
        f"There is no /{name[:40]}. {hint} To say it all the same, begin with two slashes.",
        code="unknown_command",
    )


def completions(head: str) -> list[str]:
    """Return the commands that begin with `head`."""
    if not head.startswith("/") or " " in head:
        return []
    return [f"/{name}" for name in COMMANDS if name.startswith(head[1:])]


# While an answer is under way.


@slash("stop", "", "Stop the answer that is under way. Ctrl-C does the same.")
async def _stop(session: Session, rest: str) -> None:
    if not await session.stop():
        session.voice.note("Nothing is under way.")


@slash("answer", "[CALL] TEXT", "Bring the result of a tool call that waits for somebody.")
async def _answer(session: Session, rest: str) -> None:
    call, _, text = rest.partition(" ")
    await session.answer(call, text)


# Branches.


@slash("regenerate", "[ID]", "Ask for another answer; the one there is stays beside it.")
async def _regenerate(session: Session, rest: str) -> None:
    chat = session.there()
    about = (await session.message(rest)).id if rest else await session.to_answer_again()
    session.follow(await chat.regenerate(about, ask=session.ask))


@slash("edit", "[ID] TEXT", "Say your last message, or ID, in other words; the old ones stay.")
async def _edit(session: Session, rest: str) -> None:
    chat = session.there()
    edited, text = await session.to_edit(), rest
    first, _, following = rest.partition(" ")
    if following and (first.startswith("…") or first in {m.id for m in await chat.tree()}):
        edited, text = await session.message(first), following
    if not text:
        if session.voice.begin(f"/edit {edited.text}"):
            return
        raise InvalidInput("/edit TEXT says your last message in other words.", code="usage")
    session.follow(await chat.edit(edited.id, text, ask=session.ask))


@slash("branches", "", "Show where the line you look at has alternatives.")
async def _branches(session: Session, rest: str) -> None:
    choices = await _choices(session)
    tree, width = await session.tree(), screen_width()
    lines = []
    for number, message in enumerate(choices, 1):
        here = "●" if message.id in tree.line else " "
        lines.append(
            f"{here} {number:>2}  {tree.place(message)}  "
            + clip(gist(message), width - 28)
            + session.voice.ink(f"  {short(message.id)}", "dim")
        )
    session.voice.result(lines or ["No branches yet: /regenerate or /edit makes one."])
    if lines:
        session.voice.note("/switch NUMBER looks at another one.")


async def _choices(session: Session) -> list[Message]:
    """Return the alternatives at every point of the line, from its root on, in a fixed order."""
    tree = await session.tree()
    line = [m for m in tree.messages.values() if m.id in tree.line]
    return [
        tree.messages[beside]
        for message in line
        if tree.place(message) is not None
        for beside in siblings(message, tree.below[message.parent])
    ]


@slash("switch", "NUMBER or ID", "Look at another branch; the next message goes there.")
async def _switch(session: Session, rest: str) -> None:
    if rest.isdigit():
        choices = await _choices(session)
        if not 1 <= int(rest) <= len(choices):
            raise NotFound("/branches has no such number.", at=rest)
        wanted = choices[int(rest) - 1]
    elif rest:
        wanted = await session.message(rest)
    else:
        raise InvalidInput("/switch NUMBER, as /branches shows them, or an id.", code="usage")
    if wanted.status is not Status.SUCCESS:
        raise Refused(
            f"Its status is {wanted.status}: it is no part of any line.",
            code="uncommitted_block",
            at=wanted.id,
        )
    leaf = (await session.tree()).newest_leaf(wanted.id)
    await session.there().look_at(leaf)
    session.voice.remark(await session.recent())


@slash("tree", "", "Draw the whole conversation: every branch, and what came to nothing.")
async def _tree(session: Session, rest: str) -> None:
    runs, sessions = await session.there().runs(), await session.there().sessions()
    session.voice.result(
        conversation_page(await session.tree(), runs, sessions, session.voice.ink, screen_width())
    )


@slash("keep", "[ID]", "Make the text of a stopped answer a message of its own.")
async def _keep(session: Session, rest: str) -> None:
    chat = session.there()
    canceled = await session.message(rest) if rest else await session.to_keep()
    row = await chat.keep(canceled.id)
    session.voice.note(f"kept as {short(row.head or '')}")


@slash("delete", "ID", "Skip a message on every line from now on; it stays stored.")
async def _delete(session: Session, rest: str) -> None:
    if not rest:
        raise InvalidInput("/delete ID, as /tree shows them.", code="usage")
    message = await session.message(rest)
    before = (await session.there().row()).deletions
    row = await session.there().delete([message.id])
    gone = row.deletions - before
    session.voice.note(
        f"deleted: {', '.join(map(short, sorted(gone))) or 'nothing, it was before'}"
    )


# Looking.


@slash("why", "[ID]", "Tell how the last answer came about: attempts, times, digests, tools.")
async def _why(session: Session, rest: str) -> None:
    told = await (await _run(session, rest)).explain()
    session.voice.result(timeline(told, session.voice.ink, screen_width()))
    session.voice.note("/request prints the exact body that was sent.")


@slash("request", "[ID]", "Print the exact body of the newest request, its digest verified.")
async def _request(session: Session, rest: str) -> None:
    body = await (await _run(session, rest)).request()
    session.voice.result([harmless(body.decode())])


async def _run(session: Session, name: str) -> RunHandle:
    """Return the run that `name` is, or belongs to; the last one without a name."""
    if name.startswith("run_"):
        return await session.app.run(name)
    if name:
        message = await session.message(name)
        if message.run is None:
            raise NotFound("No run made this message.", at=message.id)
        return await session.app.run(message.run)
    run = await session.last_run()
    if run is None:
        raise Refused("Nothing was asked yet.", code="empty_conversation")
    return await session.app.run(run.id)


# What stands beside the talk.


@slash("attach", "PATH", "Look what you ask here up in a text file from now on.")
async def _attach(session: Session, rest: str) -> None:
    if not rest:
        raise InvalidInput("/attach PATH reads a text file.", code="usage")
    file = await (await session.here()).attach(rest)
    read = f"{file.encoding}, {count(file.passages, 'passage')}"
    session.voice.note(f"attached {one_line(file.name)} ({read})")


@slash("files", "", "List the files that are looked up in here.")
async def _files(session: Session, rest: str) -> None:
    rows = [
        (one_line(file.name), f"{count(file.passages, 'passage')}  {short(file.id)}")
        for file in await session.there().files()
    ]
    session.voice.result(table(rows) if rows else ["No files yet: /attach PATH."])


@slash("detach", "NAME or ID", "Look nothing more up in a file.")
async def _detach(session: Session, rest: str) -> None:
    chat, wanted = session.there(), rest.lstrip("…")
    found = [f for f in await chat.files() if f.name == wanted or f.id.endswith(wanted)]
    if not wanted or len(found) != 1:
        raise NotFound("/files lists the names and ids there are.", at=rest or None)
    await chat.detach(found[0].id)
    session.voice.note(f"detached {one_line(found[0].name)}")


@slash("remember", "KEY TEXT", "Tell the model TEXT with every message here; KEY is its name.")
async def _remember(session: Session, rest: str) -> None:
    key, _, words = rest.partition(" ")
    if not words.strip():
        raise InvalidInput("/remember KEY TEXT keeps a text under a name.", code="usage")
    await (await session.here()).remember(key, words.strip())
    session.voice.note(f"remembered: {one_line(key)}")


@slash("forget", "KEY", "Take such a text away.")
async def _forget(session: Session, rest: str) -> None:
    await session.there().forget(rest)
    session.voice.note(f"forgotten: {one_line(rest)}")


@slash("memories", "", "List what the model is told with every message here.")
async def _memories(session: Session, rest: str) -> None:
    kept = await (session.app if session.chat is None else session.chat).remembered()
    rows = [(one_line(one.key), clip(one_line(one.text), screen_width() - 28)) for one in kept]
    session.voice.result(table(rows) if rows else ["Nothing yet: /remember KEY TEXT."])


@slash("beside", "[ID]", "Show what was looked up for your last message, and what came of it.")
async def _beside(session: Session, rest: str) -> None:
    chat = session.there()
    asked = await session.message(rest) if rest else await session.to_edit()
    beside = await chat.beside(asked.id)
    lines = []
    for search in beside.searched:
        best = "" if search.best_score is None else f", best {search.best_score:g}"
        why = f" ({search.reason})" if search.reason else ""
        looked = f"{count(search.candidates, 'candidate')}{best}"
        lines.append(f"{one_line(search.source)}: {search.status}{why}; {looked}")
    lines += [
        f"  {one_line(block.source)}  " + clip(one_line(block.text), screen_width() - 28)
        for block in beside.inputs
        if isinstance(block, Retrieved)
    ]
    session.voice.result(lines or ["Nothing was looked up for it."])


# Models and conversations.


@slash("models", "", "List the models there are.")
async def _models(session: Session, rest: str) -> None:
    rows = [
        (f"{'●' if model.name == session.model_name else ' '} {model.name}", model.about)
        for model in await session.app.models()
    ]
    session.voice.result(table(rows))


@slash("model", "NAME", "Send what follows to another model.")
async def _model(session: Session, rest: str) -> None:
    if rest:
        session.model = await session.app.model(rest)
    session.voice.note(f"model: {session.model_name}")


@slash("title", "[TEXT]", "Name this conversation; without TEXT the name is taken away.")
async def _title(session: Session, rest: str) -> None:
    await session.there().rename(rest or None)
    session.voice.note(f"title: {one_line(rest)}" if rest else "it has no title now")


@slash("sessions", "", "List the sessions of this conversation, and what each is about.")
async def _sessions(session: Session, rest: str) -> None:
    session.voice.result(session_list(await session.there().sessions(), session.voice.ink))


@slash(
    "session",
    "new [GOAL], undo, on or off",
    "Begin a session, take a switch back, or let sessions come and go by themselves.",
)
async def _session(session: Session, rest: str) -> None:
    what, _, goal = rest.partition(" ")
    chat = session.there()
    match what:
        case "new":
            begun = await chat.begin_session(goal.strip() or None)
            session.voice.note(f"a new session: {short(begun.id)}")
        case "undo":
            back = await chat.undo_switch()
            session.voice.note(f"back in {short(back.id)}")
        case "on" | "off":
            await chat.schedule(what == "on")
            session.voice.note(f"sessions come and go by themselves: {what}")
        case _:
            raise InvalidInput("/session new [GOAL], /session undo, on or off.", code="usage")


@slash("new", "", "Begin another conversation; this one stays.")
async def _new(session: Session, rest: str) -> None:
    session.must_be_free()
    session.chat = None
    session.voice.note("A new conversation begins with your next message.")


@slash("list", "", "List the conversations.")
async def _list(session: Session, rest: str) -> None:
    session.voice.result(await session.rows())


@slash("open", "ID", "Go on in another conversation.")
async def _open(session: Session, rest: str) -> None:
    if not rest:
        raise InvalidInput("/open ID, as /list shows them.", code="usage")
    chat = await session.conversation(rest.lstrip("…"))
    session.must_be_free()
    await session.take_up(chat)
    session.voice.remark(await session.recent())


@slash("help", "", "Show this.")
async def _help(session: Session, rest: str) -> None:
    rows = [
        (f"/{name} {command.usage}".rstrip(), command.help) for name, command in COMMANDS.items()
    ]
    session.voice.result(table(rows))


@slash("quit", "", "Leave. Ctrl-D does the same.")
async def _quit(session: Session, rest: str) -> None:
    await session.stopped()
    session.leave()
