"""One turn with a tool in each framework, written as its own documentation does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from openai import AsyncOpenAI

from tests.server.sdk import Door

Tool: TypeAlias = Callable[[str], str]
Turn: TypeAlias = Callable[[Door, Tool], Awaitable[str]]
"""Asks about the weather with a tool of the framework's kind, and returns the answer's text."""

QUESTION: Final = "What is the weather in Oslo?"


def _client(at: Door) -> AsyncOpenAI:
    """The SDK as these frameworks make it: it may try again by itself."""
    return AsyncOpenAI(base_url=f"{at.url}/v1", api_key="any", max_retries=2)


async def _pydantic_ai(at: Door, tool: Tool, *, responses: bool) -> str:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    kind = OpenAIResponsesModel if responses else OpenAIChatModel
    async with _client(at) as client:
        model = kind("rehearsal", provider=OpenAIProvider(openai_client=client))
        agent = Agent(model, system_prompt="Be brief.")

        def weather(city: str) -> str:
            return tool(city)

        agent.tool_plain(weather)

        return str((await agent.run(QUESTION)).output)


async def pydantic_ai_chat(at: Door, tool: Tool) -> str:
    return await _pydantic_ai(at, tool, responses=False)


async def pydantic_ai_responses(at: Door, tool: Tool) -> str:
    return await _pydantic_ai(at, tool, responses=True)


async def pydantic_ai_streamed(at: Door, tool: Tool) -> str:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async with _client(at) as client:
        agent = Agent(OpenAIChatModel("rehearsal", provider=OpenAIProvider(openai_client=client)))

        def weather(city: str) -> str:
            return tool(city)

        agent.tool_plain(weather)

        async with agent.run_stream(QUESTION) as run:
            return "".join([piece async for piece in run.stream_text(delta=True)])


async def _openai_agents(at: Door, tool: Tool, *, responses: bool, streamed: bool) -> str:
    import agents

    agents.set_tracing_disabled(True)
    kind = agents.OpenAIResponsesModel if responses else agents.OpenAIChatCompletionsModel

    def weather(city: str) -> str:
        """Tell the weather."""
        return tool(city)

    async with _client(at) as client:
        model = kind(model="rehearsal", openai_client=client)
        agent = agents.Agent(
            name="Weather",
            instructions="Be brief.",
            model=model,
            tools=[agents.function_tool(weather)],
        )
        if not streamed:
            return str((await agents.Runner.run(agent, QUESTION)).final_output)
        run = agents.Runner.run_streamed(agent, QUESTION)
        async for _ in run.stream_events():
            pass
        return str(run.final_output)


async def openai_agents_chat(at: Door, tool: Tool) -> str:
    return await _openai_agents(at, tool, responses=False, streamed=False)


async def openai_agents_responses(at: Door, tool: Tool) -> str:
    return await _openai_agents(at, tool, responses=True, streamed=False)


async def openai_agents_streamed(at: Door, tool: Tool) -> str:
    return await _openai_agents(at, tool, responses=True, streamed=True)


def chat_openai(at: Door, **more: Any) -> Any:
    """Return LangChain's model, as its users make it."""
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="rehearsal", base_url=f"{at.url}/v1", api_key="any", **more)


async def _langgraph(at: Door, tool: Tool, **more: Any) -> str:
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    def weather(city: str) -> str:
        """Tell the weather."""
        return tool(city)

    model = chat_openai(at, **more).bind_tools([weather])

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", ToolNode([weather], handle_tool_errors=False))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    told = await graph.compile().ainvoke({"messages": [("user", QUESTION)]})
    return str(told["messages"][-1].text)


async def langgraph_chat(at: Door, tool: Tool) -> str:
    return await _langgraph(at, tool)


async def langgraph_streamed(at: Door, tool: Tool) -> str:
    return await _langgraph(at, tool, streaming=True)


async def langgraph_responses(at: Door, tool: Tool) -> str:
    return await _langgraph(at, tool, use_responses_api=True)


async def smolagents(at: Door, tool: Tool) -> str:
    from smolagents import OpenAIServerModel, ToolCallingAgent
    from smolagents import tool as as_tool

    def weather(city: str) -> str:
        """Tell the weather.

        Args:
            city: Where.
        """
        return tool(city)

    model = OpenAIServerModel(
        model_id="rehearsal", api_base=f"{at.url}/v1", api_key="any", client_kwargs={"timeout": 20}
    )
    agent = ToolCallingAgent(tools=[as_tool(weather)], model=model, verbosity_level=0, max_steps=3)
    return str(await asyncio.to_thread(agent.run, QUESTION))


FRAMEWORKS: Final[dict[str, Turn]] = {
    turn.__name__: turn
    for turn in (
        pydantic_ai_chat,
        pydantic_ai_responses,
        pydantic_ai_streamed,
        openai_agents_chat,
        openai_agents_responses,
        openai_agents_streamed,
        langgraph_chat,
        langgraph_streamed,
        langgraph_responses,
    )
}
"""Those whose calls and results travel as what they are. smolagents writes both as text."""
