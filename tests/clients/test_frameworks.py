"""What `docs/frameworks.md` says of each framework, sentence by sentence, over a real socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.recovery import Resend
from antiphon.engine.ports import Cut
from antiphon.engine.settings import Settings
from tests.clients.frameworks import FRAMEWORKS, QUESTION, chat_openai, smolagents
from tests.server.sdk import Door, door
from tests.support.provider import Status, asks, chunk, says

pytestmark = pytest.mark.filterwarnings("ignore")

CALL = ("c1", "weather", '{"city": "Oslo"}')
EVERY = pytest.mark.parametrize("framework", FRAMEWORKS)


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Door]:
    own = Settings(retry_base_s=0.0, cancel_grace_s=0.0, port=0, resend_after_unknown=Resend.NEVER)
    async with door(tmp_path / "a.db", settings=own) as opened:
        yield opened


class Weather:
    """The tool; it knows where it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, city: str) -> str:
        self.asked.append(city)
        return f"rain in {city}"


def sent(at: Door, number: int = -1) -> list[dict[str, Any]]:
    """Return what the provider was sent but for what instructs it."""
    return [m for m in at.provider.messages(number) if m["role"] not in ("system", "developer")]


@EVERY
async def test_a_turn_with_a_tool_is_answered(at: Door, framework: str) -> None:
    at.provider.scripts = [asks(CALL), says("Rain ", "in Oslo.")]
    weather = Weather()
    assert await FRAMEWORKS[framework](at, weather) == "Rain in Oslo."
    assert weather.asked == ["Oslo"]


@EVERY
async def test_calls_and_results_travel_as_a_pair_under_one_id(at: Door, framework: str) -> None:
    at.provider.scripts = [asks(CALL), says("Rain.")]
    await FRAMEWORKS[framework](at, Weather())
    asked, calling, result = sent(at)
    assert (asked["role"], asked["content"]) == ("user", QUESTION)
    (call,) = calling["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}
    assert (result["role"], result["tool_call_id"]) == ("tool", call["id"])
    assert "rain in Oslo" in result["content"]


@EVERY
@pytest.mark.req("M98")
async def test_a_call_whose_stream_breaks_runs_in_no_framework(at: Door, framework: str) -> None:
    whole = asks(CALL)
    at.provider.scripts = [[*whole[:6], Cut("stream_cut", "It is gone.")]]
    weather = Weather()
    with pytest.raises(Exception):  # noqa: B017 - each has an error of its own
        await FRAMEWORKS[framework](at, weather)
    assert weather.asked == []
    assert len(at.provider.requests) == 1, "and nobody sent it again"


@EVERY
async def test_what_may_have_been_done_is_not_asked_for_again(at: Door, framework: str) -> None:
    at.provider.scripts = [[Status(500), b"{}"]]
    with pytest.raises(Exception) as caught:
        await FRAMEWORKS[framework](at, Weather())
    assert "it was not asked again" in str(caught.value) or "outcome_unknown" in str(caught.value)
    assert len(at.provider.requests) == 1


# smolagents.


@pytest.mark.req("M171")
async def test_smolagents_steps_arrive_as_text_and_so_do_its_results(at: Door) -> None:
    final = ("c2", "final_answer", '{"answer": "Rain in Oslo."}')
    at.provider.scripts = [asks(CALL), asks(final)]
    weather = Weather()
    assert await smolagents(at, weather) == "Rain in Oslo."
    assert weather.asked == ["Oslo"]
    task, step, observed = sent(at)
    assert [m["role"] for m in (task, step, observed)] == ["user", "assistant", "user"]
    assert "tool_calls" not in step
    assert "'c1'" in step["content"], "the call's id stands in the text"
    assert observed["content"].startswith("Observation:")
    assert "rain in Oslo" in observed["content"]


@pytest.mark.req("M171")
async def test_smolagents_runs_no_call_of_a_broken_answer(at: Door) -> None:
    at.provider.scripts = [[*asks(CALL)[:6], Cut("stream_cut", "It is gone.")]]
    weather = Weather()
    with pytest.raises(Exception):  # noqa: B017 - it has an error of its own
        await smolagents(at, weather)
    assert weather.asked == []


# OpenAI Agents.


@pytest.mark.req("M172")
async def test_a_handoff_is_a_call_and_its_result_and_what_a_run_returns_is_not_sent(
    at: Door,
) -> None:
    import agents

    agents.set_tracing_disabled(True)
    model = agents.OpenAIChatCompletionsModel(model="rehearsal", openai_client=at.client)
    second = agents.Agent(name="Second", instructions="You are the second.", model=model)
    first = agents.Agent(
        name="First", instructions="You are the first.", model=model, handoffs=[second]
    )
    at.provider.scripts = [asks(("c1", "transfer_to_second", "{}")), says("Here I am.")]
    run = await agents.Runner.run(first, "Hand over")
    assert run.last_agent.name == "Second"
    assert [item.type for item in run.new_items] == [
        "handoff_call_item",
        "handoff_output_item",
        "message_output_item",
    ]
    asked, calling, result = sent(at)
    assert asked["content"] == "Hand over"
    assert calling["tool_calls"][0]["function"]["name"] == "transfer_to_second"
    assert (result["role"], json.loads(result["content"])) == ("tool", {"assistant": "Second"})
    system = [m["content"] for m in at.provider.messages() if m["role"] == "system"]
    assert system == ["You are the second."], "instructions go with the agent, not with the talk"


@pytest.mark.req("M172")
async def test_the_input_of_the_next_run_is_what_its_list_of_items_says(at: Door) -> None:
    import agents

    agents.set_tracing_disabled(True)
    model = agents.OpenAIChatCompletionsModel(model="rehearsal", openai_client=at.client)
    agent = agents.Agent(name="One", instructions="Be brief.", model=model)
    at.provider.scripts = [says("One."), says("Two.")]
    run = await agents.Runner.run(agent, "First")
    await agents.Runner.run(agent, [*run.to_input_list(), {"role": "user", "content": "Second"}])
    assert [m["role"] for m in sent(at)] == ["user", "assistant", "user"]


# LangGraph.


@pytest.mark.req("M173")
async def test_answers_of_parallel_nodes_stay_two_messages(at: Door) -> None:
    from langgraph.graph import START, MessagesState, StateGraph

    model = chat_openai(at)

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    for name in ("left", "right", "both"):
        graph.add_node(name, ask)
    graph.add_edge(START, "left")
    graph.add_edge(START, "right")
    graph.add_edge(["left", "right"], "both")
    at.provider.scripts = [says("One side."), says("One side."), says("Both.")]
    told = await graph.compile().ainvoke({"messages": [("user", "Compare")]})
    assert told["messages"][-1].text == "Both."
    assert [(m["role"], m["content"]) for m in sent(at)] == [
        ("user", "Compare"),
        ("assistant", "One side."),
        ("assistant", "One side."),
    ]
    first, second = sent(at, 0), sent(at, 1)
    assert first == second == [{"role": "user", "content": "Compare"}], "neither saw the other"


@pytest.mark.req("M173")
async def test_a_checkpoint_that_ends_in_an_open_call_is_refused_before_it_is_sent(
    at: Door,
) -> None:
    from langchain_core.messages import AIMessage, HumanMessage

    calling = AIMessage("", tool_calls=[{"id": "c1", "name": "weather", "args": {}}])
    with pytest.raises(Exception, match="c1 has no result"):
        await chat_openai(at).ainvoke([HumanMessage("Go"), calling, HumanMessage("And?")])
    assert at.provider.requests == []


async def test_text_of_a_stream_that_breaks_is_an_error_and_not_a_short_answer(at: Door) -> None:
    at.provider.scripts = [[chunk({"content": "It is "}), Cut("stream_cut", "It is gone.")]]
    with pytest.raises(Exception):  # noqa: B017 - each has an error of its own
        await FRAMEWORKS["langgraph_streamed"](at, Weather())
    assert len(at.provider.requests) == 1
