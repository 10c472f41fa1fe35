"""The OpenAPI document: complete, and true as a third party reads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from antiphon.server.app import endpoints
from antiphon.server.describing.openapi import PATH, document
from tests.server.process import server_process

BOUND_S = 300


def test_every_route_is_described_in_words_with_its_right() -> None:
    routes = endpoints()
    told = document(routes)
    for route in routes:
        operation = told["paths"][route.path_format][route.method.lower()]
        assert operation["summary"].endswith("."), route.path
        right = "Needs no key." if route.public else f"Needs the right to {route.right}."
        assert right in operation["description"]
    names = [
        operation["operationId"] for path in told["paths"].values() for operation in path.values()
    ]
    assert len(names) == len(set(names)) == len(routes)


def test_schemathesis_finds_no_answer_that_the_document_does_not_allow(tmp_path: Path) -> None:
    settings = {"ANTIPHON_STREAM_S": "0.1", "ANTIPHON_MAX_QUEUED": "1000"}
    with server_process(tmp_path, env=settings) as server:
        judged = subprocess.run(
            [
                str(Path(sys.executable).with_name("schemathesis")),
                "run",
                server.url + PATH,
                "--max-examples=4",
                "--seed=1",
                "--phases=fuzzing",
                # A key that it made would shut the server to everything that follows.
                "--exclude-path=/antiphon/v1/keys",
                "--request-timeout=20",
                # What the document allows may still be refused for what it means.
                "--exclude-checks=positive_data_acceptance",
                "--no-color",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )
    assert judged.returncode == 0, judged.stdout[-6000:] + judged.stderr[-2000:]
    assert "returned only 401/403" not in judged.stdout
