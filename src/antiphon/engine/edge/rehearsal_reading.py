"""How the rehearsal model reads what stands beside a user's words, as a model would."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from antiphon.core.knowledge.envelope import unescaped

_ENVELOPE: Final = re.compile(
    r"<ctx>\n(?P<context>.*?)</ctx>(?:\n\n<user_input>\n(?P<words>.*)\n</user_input>)?\Z", re.DOTALL
)
_RAG: Final = re.compile(
    r'^<rag source="(?P<source>[^"\n]*)"(?: notice="(?P<notice>[^"\n]*)")?>\n(?P<text>.*?)\n</rag>$',
    re.DOTALL | re.MULTILINE,
)
SHOWN: Final = 200


class Read(NamedTuple):
    """The user's own words, and what is said of the reference material in one sentence."""

    words: str
    found: str = ""


def read(text: str) -> Read:
    """Return what a message says."""
    envelope = _ENVELOPE.match(text)
    if envelope is None:
        return Read(text)
    found = ""
    for rag in _RAG.finditer(envelope["context"]):
        source = unescaped(rag["source"])
        if rag["notice"] == "no_match":
            found = f"nothing in {source} matches your question. "
        elif rag["notice"] == "retrieval_failed":
            found = f"{source} could not be searched. "
        else:
            quoted = unescaped(rag["text"]).split("\n\n")[-1]
            quoted = quoted if len(quoted) <= SHOWN else f"{quoted[:SHOWN]}…"
            return Read(
                unescaped(envelope["words"] or ""), f"{found}in {source} it says “{quoted}” "
            )
    return Read(unescaped(envelope["words"] or ""), found)
