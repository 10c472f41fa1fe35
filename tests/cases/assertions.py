"""The assertion keys of kind `operations`, each compared with what can be seen from outside."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from antiphon.adapters import registry
from antiphon.core.blocks import Status
from antiphon.core.records import TERMINAL_CALL, CallState, RunStatus
from antiphon.core.rules.findings import Severity
from antiphon.core.rules.graph import check
from tests.cases.chat_rules import objections
from tests.cases.facts import PROBE_ANSWER, Asked, Facts, strings_in, text_of

Problem = str | None
NO_LOOKS: Final[Mapping[str, Facts]] = MappingProxyType({})


def compare(
    expect: dict[str, Any], facts: Facts, looks: Mapping[str, Facts] = NO_LOOKS
) -> dict[str, Problem]:
    """Return what is wrong with each key of `expect`; None where it holds.

    What stands under the name of a look is compared with the facts of that moment, and its keys
    are told with the name before them. `or` permits something else instead of all its neighbours,
    `one_of` names what else has to hold beside them in one of several forms.
    """
    found: dict[str, Problem] = {}
    for key, wanted in expect.items():
        if key in looks and isinstance(wanted, dict):
            inner = compare(wanted, looks[key], looks)
            found |= {f"{key}.{name}": problem for name, problem in inner.items()}
        elif key == "one_of":
            found[key] = _any_of(wanted, facts, looks)
        elif key != "or":
            found[key] = Assertions(expect, facts).problem(key)
    if "or" in expect:
        found["or"] = None
        if any(found.values()) or len(found) == 1:
            problem = _any_of(expect["or"], facts, looks)
            if problem is None:
                return dict.fromkeys(found)
            found["or"] = f"neither the rest nor this holds: {problem}"
    return found


def _any_of(alternatives: Any, facts: Facts, looks: Mapping[str, Facts]) -> Problem:
    """Return None if one alternative holds as a whole."""
    listed = alternatives if isinstance(alternatives, list) else [alternatives]
    problems = []
    for alternative in listed:
        found = {key: why for key, why in compare(alternative, facts, looks).items() if why}
        if not found:
            return None
        problems.append(str(found))
    return "none of these: " + " | ".join(problems)


def parts(expect: dict[str, Any], looks: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield `expect` and the alternatives in it: all that is compared with one moment's facts."""
    yield expect
    for key in ("or", "one_of"):
        inner = expect.get(key, [])
        for alternative in inner if isinstance(inner, list) else [inner]:
            yield from parts(alternative, looks)


def parts_of_look(expect: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    """Yield everything that is compared with what is seen under `name`."""
    for part in parts(expect, ()):
        if isinstance(part.get(name), dict):
            yield from parts(part[name], ())


def same(found: Any, wanted: Any) -> Problem:
    """Compare a value; a list where one value stands elsewhere means any of them."""
    if isinstance(wanted, dict) and wanted.keys() <= {"one_of", "or"}:
        wanted = [value for values in wanted.values() for value in values]
    if found == wanted:
        return None
    if isinstance(wanted, list) and not isinstance(found, list | dict) and found in wanted:
        return None
    if isinstance(wanted, list) and isinstance(found, list) and found in wanted:
        return None
    return f"{found!r}, not {wanted!r}"


def joined(problems: Iterable[Problem]) -> Problem:
    """Return all problems as one, or None."""
    return "; ".join(filter(None, problems)) or None


class Assertions:
    """One set of assertions about one moment."""

    def __init__(self, expect: dict[str, Any], facts: Facts) -> None:
        self._expect = expect
        self._facts = facts
        self._asked = facts.asked.get(expect.get("request_of", "next"), Asked())

    def problem(self, key: str) -> Problem:
        """Return what is wrong with what one key says, or None."""
        judge = KEYS.get(key)
        return "no such assertion" if judge is None else judge(self, self._expect[key])

    def _per(self, wanted: Any, find: Callable[[str], Any]) -> Problem:
        if not isinstance(wanted, dict):
            return f"an object was expected, not {wanted!r}"
        problems = []
        for name, value in wanted.items():
            problem = same(find(name), value)
            problems.append(problem and f"{name}: {problem}")
        return joined(problems)

    # Runs.

    def run_status(self, wanted: dict[str, Any]) -> Problem:
        problems = []
        for name, value in wanted.items():
            judged = [same(status, value) for status in self._statuses(name)]
            problems.append(None if None in judged else f"{name}: {judged[0]}")
        return joined(problems)

    def _statuses(self, name: str) -> list[str | None]:
        """Return the words for where a run stands.

        A run whose calls nobody has begun waits for its tools, whoever will run them.
        """
        run = self._facts.run(name)
        if run is None:
            return ["refused" if name in self._facts.refused_runs else None]
        states = {
            call.state
            for rows in self._facts.rows.values()
            for call in rows.calls
            if call.run == run.id and call.state not in TERMINAL_CALL
        }
        if run.status is RunStatus.PENDING and states == {CallState.PENDING}:
            return ["pending", "waiting"]
        return [run.status.value]

    def error_code(self, wanted: dict[str, Any]) -> Problem:
        def code(name: str) -> str | None:
            run = self._facts.run(name)
            return self._facts.refused_runs.get(name) if run is None else run.error_code

        return self._per(wanted, code)

    def canonical_assistant_turns(self, wanted: dict[str, Any]) -> Problem:
        return self._per(wanted, self._facts.canonical)

    def max_active_runs(self, wanted: Any) -> Problem:
        rows = self._facts.rows
        if isinstance(wanted, dict):
            most = {name: rows[name].most_active_runs for name in wanted}
            return joined(f"{n}: {most[n]}" for n in wanted if most[n] > wanted[n])
        found = max(r.most_active_runs for r in rows.values())
        return None if found <= wanted else f"{found}, more than {wanted}"

    def active_runs(self, wanted: Any) -> Problem:
        rows, names = self._facts.rows, self._facts.runs
        if isinstance(wanted, dict):
            return self._per(wanted, lambda name: len(rows[name].active_runs))
        active = [run for r in rows.values() for run in r.active_runs]
        if isinstance(wanted, list) and all(isinstance(w, str) for w in wanted):
            return same(sorted(n for n, ids in names.items() if ids[-1] in active), sorted(wanted))
        return same(len(active), wanted)

    def model_calls(self, wanted: Any) -> Problem:
        return same(len(self._facts.bodies), wanted)

    def automatic_retry(self, wanted: Any) -> Problem:
        return same(self._facts.repeated, wanted)

    # Tools.

    def call_status(self, wanted: dict[str, Any]) -> Problem:
        def state(call_id: str) -> str | None:
            calls = self._facts.calls(call_id)
            return calls[-1].state.value if calls else None

        return self._per(_upper(wanted), state)

    def terminal_results(self, wanted: dict[str, Any]) -> Problem:
        problems = []
        for call_id, value in wanted.items():
            outcomes = self._results(call_id)
            found: Any = outcomes
            if isinstance(value, int):
                found = len(outcomes)
            elif not isinstance(value, list):
                found = outcomes[0] if len(outcomes) == 1 else outcomes
            if isinstance(value, dict) and value.keys() - {"one_of", "or"}:
                value = value.get("outcome", value.get("status"))
            problem = same(found, value)
            if problem and isinstance(value, list) and len(outcomes) == 1:
                problem = same(outcomes[0], value)
            problems.append(problem and f"{call_id}: {problem}")
        return joined(problems)

    def terminal_result_count(self, wanted: Any) -> Problem:
        if not isinstance(wanted, dict):
            calls = {c.call_id for rows in self._facts.rows.values() for c in rows.calls}
            return same(sum(len(self._results(call)) for call in calls), wanted)
        return self._per(wanted, lambda call_id: len(self._results(call_id)))

    def _results(self, call_id: str) -> list[str]:
        return [r for rows in self._facts.rows.values() for r in rows.results(call_id)]

    def tool_executions(self, wanted: dict[str, Any]) -> Problem:
        return self._per(wanted, lambda call: self._facts.executions.get(call, 0))

    def tool_executions_max(self, wanted: Any) -> Problem:
        found = self._facts.executions
        most = wanted if isinstance(wanted, dict) else dict.fromkeys(found, wanted)
        above = {call: found.get(call, 0) for call in most if found.get(call, 0) > most[call]}
        return f"{above}, more than {most}" if above else None

    # What came late, what may be withdrawn.

    def quarantined(self, wanted: Any) -> Problem:
        aside = self._aside()
        return None if wanted in (aside, aside + self._facts.at_the_door) else same(aside, wanted)

    def quarantined_at_least(self, wanted: int) -> Problem:
        found = self._aside() + self._facts.at_the_door
        return None if found >= wanted else f"{found}, fewer than {wanted}"

    def _aside(self) -> int:
        return sum(len(rows.quarantine) for rows in self._facts.rows.values())

    def history_contains_partial(self, wanted: bool) -> Problem:
        facts = self._facts
        known = {facts.said[name].text for name in facts.committed if name in facts.said}
        asked = [a.exchange.body for a in facts.asked.values() if a.exchange is not None]
        found = sorted(
            {
                text_of(message)
                for body in {*facts.bodies, *asked}
                for message in json.loads(body)["messages"]
                if message["role"] == "assistant" and text_of(message) not in known | {PROBE_ANSWER}
            }
        )
        return same(bool(found), wanted) and f"{found} can reach a request"

    def preview_kept(self, wanted: Any) -> Problem:
        kept = self._facts.kept_texts
        match wanted:
            case bool():
                return same(any(kept.values()), wanted)
            case str():
                return None if wanted in (*kept, *kept.values()) else f"{kept}, not {wanted!r}"
            case list():
                missing = [w for w in wanted if not kept.get(w) and w not in kept.values()]
                return f"{missing} not among {kept}" if missing else None
            case dict():
                problems = []
                for name, value in wanted.items():
                    text = self._kept_of(name)
                    problem = same(bool(text) if isinstance(value, bool) else text, value)
                    problems.append(problem and f"{name}: {problem}")
                return joined(problems)
            case _:
                return f"cannot tell what {wanted!r} means"

    def _kept_of(self, name: str) -> str | None:
        if name in self._facts.kept_texts:
            return self._facts.kept_texts[name]
        message = self._facts.message(name)
        return message.text if message and message.status is Status.CANCELED else None

    # Clients.

    def client(self, wanted: str) -> Problem:
        return None if wanted in self._facts.screens else f"there is no client {wanted}"

    def text(self, wanted: str) -> Problem:
        screens = self._facts.screens
        client = self._expect.get("client") or next(iter(screens), "")
        return same(screens.get(client), wanted)

    def each_seq_shown_once(self, wanted: bool) -> Problem:
        problems = self._facts.screen_problems
        return same(not problems, wanted) and f"{problems}"

    # The tree.

    def active_path(self, wanted: list[Any]) -> Problem:
        facts = self._facts
        found = [
            [name for m in rows.seen(rows.row.head) if (name := facts.name_of(m)) is not None]
            for rows in facts.rows.values()
        ]
        problems = [same(path, wanted) for path in found]
        return None if None in problems else problems[0]

    def parent_of(self, wanted: dict[str, Any]) -> Problem:
        return self._per(wanted, self._parent)

    def _parent(self, name: str) -> str | None:
        """Return the nearest ancestor that is not deleted; results count as their call's message."""
        rows, stored = self._facts.rows_of(name), self._facts.names.get(name, name)
        if rows is None:
            return "(not stored)"
        above = [m for m in rows.ancestors(stored)[:-1] if m.id not in rows.row.deletions]
        names = [n for m in above if (n := self._facts.name_of(m)) is not None]
        return names[-1] if names else None

    def siblings(self, wanted: Any) -> Problem:
        if isinstance(wanted, list):
            return same(self._siblings(wanted[0]), sorted(wanted)) if wanted else None
        problems = []
        for name, value in wanted.items():
            found = self._siblings(name)
            if isinstance(value, int):
                problem = same(len(found), value)
            else:
                problem = same(found, sorted({name, *value}))
            problems.append(problem and f"{name}: {problem}")
        return joined(problems)

    def _siblings(self, name: str) -> list[str]:
        message, rows = self._facts.message(name), self._facts.rows_of(name)
        if message is None or rows is None:
            return []
        beside = [
            m
            for m in rows.tree
            if m.parent == message.parent
            and m.role is message.role
            and m.id not in rows.row.deletions
        ]
        return sorted({self._facts.name_of(m) or m.id for m in beside})

    def still_stored(self, wanted: list[str]) -> Problem:
        missing = [name for name in wanted if self._facts.message(name) is None]
        return f"{missing} are gone" if missing else None

    def unreachable(self, wanted: list[str]) -> Problem:
        found = []
        for rows in self._facts.rows.values():
            for message in rows.tree:
                if message.id in rows.row.deletions:
                    continue
                try:
                    reached = message in rows.seen(message.id)
                except LookupError:
                    reached = False
                if not reached:
                    found.append(self._facts.name_of(message) or message.id)
        return same(sorted(found), sorted(wanted))

    def visible(self, wanted: Any) -> Problem:
        if isinstance(wanted, dict):
            return self._per(wanted, self._visible)
        hidden = [name for name in wanted if not self._visible(name)]
        return f"{hidden} cannot be seen" if hidden else None

    def _visible(self, name: str) -> bool:
        message, rows = self._facts.message(name), self._facts.rows_of(name)
        return message is not None and rows is not None and message.id not in rows.row.deletions

    def text_of(self, wanted: dict[str, Any]) -> Problem:
        def text(name: str) -> str | None:
            message = self._facts.message(name)
            return None if message is None else message.text

        return self._per(wanted, text)

    # Requests.

    def request_of(self, wanted: str) -> Problem:
        if self._asked.exchange is not None or "error" in self._expect:
            return None
        if set(self._expect) & REQUEST_KEYS:
            return f"{wanted} sent no request ({self._asked.error})"
        return None

    def includes(self, wanted: list[str]) -> Problem:
        missing = [n for n in wanted if self._count(n) < len(self._alike(n, among=wanted))]
        return f"{missing} not in {self._shown()}" if missing else None

    def excludes(self, wanted: list[str]) -> Problem:
        known = [name for name in self._facts.said if name not in wanted]
        surplus = [n for n in wanted if self._count(n) > len(self._alike(n, among=known))]
        return f"{surplus} in {self._shown()}" if surplus else None

    def order(self, wanted: list[str]) -> Problem:
        messages = iter(self._asked.messages)
        for name in wanted:
            said = self._facts.said.get(name)
            if said is None or not any(said.is_in(message) for message in messages):
                return f"{name} does not follow in {self._shown()}"
        return None

    def last(self, wanted: Any) -> Problem:
        messages = self._asked.messages
        names = wanted if isinstance(wanted, list) else [wanted]
        said = [self._facts.said[name] for name in names if name in self._facts.said]
        if messages and any(one.is_in(messages[-1]) for one in said):
            return None
        return f"{wanted} does not end {self._shown()}"

    def excludes_text(self, wanted: list[str]) -> Problem:
        strings = list(strings_in(self._asked.messages))
        found = [text for text in wanted if any(text in string for string in strings)]
        return f"{found} in {self._shown()}" if found else None

    def includes_text(self, wanted: list[str]) -> Problem:
        strings = list(strings_in(self._asked.messages))
        missing = [text for text in wanted if not any(text in string for string in strings)]
        return f"{missing} not in {self._shown()}" if missing else None

    def _count(self, name: str) -> int:
        said = self._facts.said.get(name)
        return 0 if said is None else sum(said.is_in(m) for m in self._asked.messages)

    def _alike(self, name: str, *, among: Iterable[str]) -> list[str]:
        """Return the names of messages that a request cannot tell from this one."""
        said = self._facts.said
        content = said[name].content if name in said else None
        return [n for n in among if n in said and said[n].content == content] or (
            [name] if name not in said else []
        )

    def _shown(self) -> str:
        return str([(m["role"], text_of(m)) for m in self._asked.messages])

    def valid(self, wanted: bool) -> Problem:
        """The bytes are legal by a judge of its own, and the stored line by the product's rules."""
        if self._asked.exchange is None:
            return same(False, wanted)
        found = objections(self._asked.exchange.body)
        adapter = registry.get("openai-chat")
        parsed = adapter.parse({"messages": self._asked.messages})
        refused = [
            finding.code
            for finding in check(parsed.messages, adapter.profile)
            if finding.severity is Severity.ERROR
        ]
        return same(not found and not refused, wanted) and f"{found or refused}"

    def terminates(self, wanted: bool) -> Problem:
        done = self._asked.exchange is not None or self._asked.error is not None
        return same(done or bool(self._facts.errors), wanted)

    def error(self, wanted: Any) -> Problem:
        codes = [*self._facts.errors, *filter(None, [self._asked.error])]
        allowed = wanted if isinstance(wanted, list) else [wanted]
        if any(code in allowed for code in codes) or (not codes and None in allowed):
            return None
        return f"{codes or None}, not {wanted!r}"


def _upper(wanted: Any) -> Any:
    """Return states in the ledger's spelling."""
    if isinstance(wanted, str):
        return wanted.upper()
    if isinstance(wanted, list):
        return [_upper(value) for value in wanted]
    if isinstance(wanted, dict):
        return {key: _upper(value) for key, value in wanted.items()}
    return wanted


REQUEST_KEYS: Final = {
    "includes",
    "excludes",
    "order",
    "last",
    "excludes_text",
    "includes_text",
    "valid",
}

KEYS: Final[dict[str, Callable[[Assertions, Any], Problem]]] = {
    name: getattr(Assertions, name)
    for name in (
        "run_status",
        "error_code",
        "canonical_assistant_turns",
        "max_active_runs",
        "active_runs",
        "model_calls",
        "automatic_retry",
        "call_status",
        "terminal_results",
        "terminal_result_count",
        "tool_executions",
        "tool_executions_max",
        "quarantined",
        "quarantined_at_least",
        "history_contains_partial",
        "preview_kept",
        "client",
        "text",
        "each_seq_shown_once",
        "active_path",
        "parent_of",
        "siblings",
        "still_stored",
        "unreachable",
        "visible",
        "text_of",
        "request_of",
        "includes",
        "excludes",
        "order",
        "last",
        "excludes_text",
        "includes_text",
        "valid",
        "terminates",
        "error",
    )
}
"""Every assertion there is. A key that is not here makes its case wrong, never right."""
