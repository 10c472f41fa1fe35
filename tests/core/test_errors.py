"""Errors: one hierarchy, each with its stable code, its exit code and the place that it is about."""

from __future__ import annotations

import inspect
import re

import pytest

from antiphon import errors
from antiphon.core.dispatch import Event, State
from antiphon.core.rules.findings import Finding

# Written again by hand: class, parent, code, exit code, whether the same call may succeed later.
HIERARCHY = [
    ("AntiphonError", "Exception", "internal_error", 1, False),
    ("Refused", "AntiphonError", "refused", 3, False),
    ("SequenceRejected", "Refused", "sequence_rejected", 3, False),
    ("InvalidInput", "Refused", "invalid_input", 2, False),
    ("NotFound", "Refused", "not_found", 2, False),
    ("Unauthorized", "Refused", "unauthorized", 2, False),
    ("Erased", "Refused", "content_erased", 2, False),
    ("Forbidden", "Refused", "forbidden", 3, False),
    ("Conflict", "Refused", "conflict", 3, False),
    ("ProviderFailed", "AntiphonError", "provider_error", 4, False),
    ("OutcomeUnknown", "AntiphonError", "outcome_unknown", 5, False),
    ("RunCanceled", "AntiphonError", "canceled", 130, False),
    ("ServerUnavailable", "AntiphonError", "server_unavailable", 1, True),
    ("StoreError", "AntiphonError", "store_error", 1, False),
    ("StoreLocked", "StoreError", "store_locked", 1, True),
    ("StoreTooNew", "StoreError", "store_too_new", 1, False),
    ("NotDurable", "StoreError", "not_durable", 1, True),
    ("InternalError", "AntiphonError", "internal_error", 1, False),
    ("IllegalTransition", "InternalError", "illegal_transition", 1, False),
    ("DigestMismatch", "InternalError", "digest_mismatch", 1, False),
]


def classes() -> dict[str, type[errors.AntiphonError]]:
    return {
        name: kind
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.AntiphonError)
    }


def test_the_hierarchy_is_the_one_that_is_documented() -> None:
    found = [
        (name, kind.__bases__[0].__name__, kind.default_code, kind.exit_code, kind.retryable)
        for name, kind in classes().items()
    ]
    assert sorted(found) == sorted(HIERARCHY)
    tree = (errors.__doc__ or "").split("Each carries")[0]
    listed = re.findall(r"^[│├└─ ]*([A-Z][A-Za-z]+)(?: {2,}|$)", tree, re.MULTILINE)
    assert sorted(listed) == sorted(name for name, *_ in HIERARCHY)


@pytest.mark.parametrize(
    "name",
    [name for name, *_ in HIERARCHY if name not in {"SequenceRejected", "IllegalTransition"}],
)
def test_an_error_says_its_code_its_sentence_and_its_place(name: str) -> None:
    kind = classes()[name]
    plain = kind("Something is wrong.")
    assert str(plain) == f"{kind.default_code}: Something is wrong."
    assert (plain.code, plain.at, plain.retryable) == (kind.default_code, None, kind.retryable)
    own = kind("Something is wrong.", code="of_its_own", at="msg_1", retryable=not kind.retryable)
    assert str(own) == "of_its_own: Something is wrong. (msg_1)"
    assert own.retryable is not kind.retryable
    assert kind.retryable is plain.retryable, "one error changed its class"


def test_a_rejected_sequence_carries_every_finding_and_speaks_with_the_first() -> None:
    first = Finding(code="cycle", at="msg_1", message="It goes in a circle.")
    second = Finding(code="role_order", at="msg_2", message="Out of order.")
    rejected = errors.SequenceRejected([first, second])
    assert (rejected.code, rejected.at, rejected.message) == (
        "cycle",
        "msg_1",
        "It goes in a circle.",
    )
    assert rejected.findings == (first, second)
    assert isinstance(rejected, errors.Refused)


def test_an_illegal_transition_names_the_pair() -> None:
    error = errors.IllegalTransition("dispatch", State.CLOSED, Event.COMMIT)
    assert str(error) == "illegal_transition: dispatch: no row for commit from CLOSED"
    assert (error.state, error.event) == (State.CLOSED, Event.COMMIT)
