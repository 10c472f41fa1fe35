from __future__ import annotations
from tests.cases.files import Case
from tests.cases.report import Result, keys_of


async def run_operations(case: Case) -> Result:
    r = Result(id=case.id, kind=case.kind, keys=keys_of(case.kind, case.expect))
    r.skipped = "todo"
    return r
