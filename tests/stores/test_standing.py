"""Contract: what belongs to no conversation, over every store."""

from __future__ import annotations

from dataclasses import replace

from antiphon.core.commands import Then
from antiphon.core.ids import TenantId
from antiphon.core.traffic.rollout import Difference, Kind, Rollout, Stage
from antiphon.core.traffic.standing import (
    Differences,
    ForgetShadow,
    NoteShadow,
    Rollouts,
    SetRollout,
    Spending,
    SpendingSince,
    Spent,
    Tallies,
    day_of,
)
from antiphon.stores.base import Store
from tests.stores.talk import START_MS, Talk

ACME = TenantId("acme")


async def test_a_rollout_takes_the_place_of_the_one_before(store: Store) -> None:
    first = Rollout(tenant=ACME, model="m", stage=Stage.SHADOW, share=10, updated_ms=1, by="k")
    await store.change(SetRollout(rollout=first))
    other = Rollout(tenant=ACME, model="n", stage=Stage.TOOLS, adapter_version=1)
    await store.change(SetRollout(rollout=other))
    second = Rollout(tenant=ACME, model="m", stage=Stage.OFF, updated_ms=2, by="k")
    assert await store.change(SetRollout(rollout=second)) == second
    assert await store.answer(Rollouts()) == [second, other]


async def test_differences_are_counted_by_their_cause_and_keep_the_newest_example(
    store: Store,
) -> None:
    def noted(example: str, now_ms: int) -> NoteShadow:
        one = Difference(kind=Kind.ADDED, cause="stream", example=example)
        return NoteShadow(
            tenant=ACME, model="m", outcome="meaning", differences=(one,), now_ms=now_ms
        )

    await store.change(noted("first", 1))
    await store.change(noted("second", 5))
    await store.change(
        NoteShadow(tenant=ACME, model="m", outcome="equal", differences=(), now_ms=6)
    )
    assert await store.answer(Differences(tenant=ACME, model="m")) == [
        Difference(
            kind=Kind.ADDED, cause="stream", example="second", count=2, first_ms=1, last_ms=5
        )
    ]
    tallies = await store.answer(Tallies(tenant=ACME, model="m"))
    assert [(one.outcome, one.count) for one in tallies] == [("equal", 1), ("meaning", 2)]
    assert await store.answer(Differences(tenant=TenantId("other"), model="m")) == []
    await store.change(ForgetShadow(tenant=ACME, model="m"))
    assert await store.answer(Tallies(tenant=ACME, model="m")) == []


async def test_an_answer_is_charged_once_in_the_transaction_that_commits_it(store: Store) -> None:
    talk = await Talk.begin(store)
    await talk.streaming()
    spent_by = Spent(key="key_1", micros=7)
    commit = replace(talk.commit("op_1", 1, talk.answer("a1"), then=Then.FINISH), spent=spent_by)
    await talk.do(commit)
    await store.do(commit)  # denied: it has landed
    today = day_of(START_MS)
    spent = await store.answer(SpendingSince(key="key_1", day=today))
    assert (spent.answers, spent.micros) == (1, 7)
    assert spent.tokens == (commit.usage.input or 0) + (commit.usage.output or 0)
    assert await store.answer(SpendingSince(key="key_1", day=today + 1)) == Spending()
    assert await store.answer(SpendingSince(key="key_2", day=today)) == Spending()
