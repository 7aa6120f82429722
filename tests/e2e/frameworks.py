"""Runs one agent framework, with a tool that writes a file, through the scenarios.

The fact that matters is `written`: what the tool wrote. See `cells.py` for what is printed.
"""

import asyncio
import itertools
from pathlib import Path

from cells import QUESTION, TIMEOUT, TOOL_ABOUT, arguments, roots, run_all


class Folder:
    """Where the tool of one cell writes; every write is kept."""

    def __init__(self, path):
        self.path, self.numbers = path, itertools.count()
        path.mkdir(parents=True, exist_ok=True)

    def write(self, content, path):
        (self.path / f"{next(self.numbers)}").write_text(content)
        return f"wrote {path}"

    def contents(self):
        return [file.read_text() for file in sorted(self.path.iterdir())]


def tool_of(folder):
    """The tool as a plain function, which is what every framework takes."""

    def write_file(content: str, path: str = "haiku.txt") -> str:
        return folder.write(content, path)

    write_file.__doc__ = TOOL_ABOUT
    return write_file


# LangChain


def langchain_agent(wire, root, model, folder, streaming):
    from langchain.agents import create_agent
    from langchain_anthropic import ChatAnthropic
    from langchain_openai import ChatOpenAI

    common = dict(model=model, api_key="k", timeout=TIMEOUT, max_retries=0, streaming=streaming)
    if wire == "OpenAI chat":
        chat = ChatOpenAI(base_url=f"{root}/openai/v1", **common)
    else:
        chat = ChatAnthropic(base_url=f"{root}/anthropic", max_tokens=512, **common)
    return create_agent(chat, tools=[tool_of(folder)])


def langchain_plain(wire, root, model, folder):
    agent = langchain_agent(wire, root, model, folder, streaming=False)
    state = agent.invoke({"messages": [("user", QUESTION)]})
    return state["messages"][-1].text


def langchain_streamed(wire, root, model, folder):
    agent = langchain_agent(wire, root, model, folder, streaming=True)
    asked = {"messages": [("user", QUESTION)]}
    return "".join(
        piece.text
        for piece, _ in agent.stream(asked, stream_mode="messages")
        if piece.type == "AIMessageChunk"
    )


# pydantic-ai


def pydantic_agent(wire, root, model, folder):
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI
    from pydantic_ai import Agent
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    common = dict(api_key="k", timeout=TIMEOUT, max_retries=0)
    if wire == "OpenAI chat":
        client = AsyncOpenAI(base_url=f"{root}/openai/v1", **common)
        chat = OpenAIChatModel(model, provider=OpenAIProvider(openai_client=client))
    else:
        client = AsyncAnthropic(base_url=f"{root}/anthropic", **common)
        chat = AnthropicModel(model, provider=AnthropicProvider(anthropic_client=client))
    return Agent(chat, tools=[tool_of(folder)], retries=0)


def pydantic_plain(wire, root, model, folder):
    agent = pydantic_agent(wire, root, model, folder)
    return asyncio.run(agent.run(QUESTION)).output


def pydantic_streamed(wire, root, model, folder):
    agent = pydantic_agent(wire, root, model, folder)

    async def go():
        async with agent.iter(QUESTION) as run:
            async for node in run:
                if agent.is_model_request_node(node):
                    async with node.stream(run.ctx) as stream:
                        async for _ in stream:
                            pass
            return run.result.output

    return asyncio.run(go())


# OpenAI Agents


def openai_agent(root, model, folder):
    from agents import Agent, OpenAIChatCompletionsModel, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{root}/openai/v1", api_key="k", timeout=TIMEOUT, max_retries=0)
    chat = OpenAIChatCompletionsModel(model=model, openai_client=client)
    return Agent(name="writer", model=chat, tools=[function_tool(tool_of(folder))])


def openai_agents_plain(_wire, root, model, folder):
    from agents import Runner

    result = asyncio.run(Runner.run(openai_agent(root, model, folder), QUESTION))
    return result.final_output


def openai_agents_streamed(_wire, root, model, folder):
    from agents import Runner

    async def go():
        result = Runner.run_streamed(openai_agent(root, model, folder), QUESTION)
        async for _ in result.stream_events():
            pass
        return result.final_output

    return asyncio.run(go())


BOTH_WIRES = ["OpenAI chat", "Anthropic Messages"]
FRAMEWORKS = {
    "LangChain": (BOTH_WIRES, langchain_streamed, langchain_plain),
    "pydantic-ai": (BOTH_WIRES, pydantic_streamed, pydantic_plain),
    "openai-agents": (["OpenAI chat"], openai_agents_streamed, openai_agents_plain),
}


def cells(name, ways, scenarios, scratch):
    wires, streamed, plain = FRAMEWORKS[name]
    asked = itertools.product(
        wires, [("streamed", streamed), ("plain", plain)], scenarios, ways.items()
    )
    for number, (wire, (how, run), scenario, (via, root)) in enumerate(asked):
        facts = dict(framework=name, wire=wire, how=how, scenario=scenario, via=via)
        folder = Folder(scratch / name / str(number))
        yield facts, running(run, wire, root, f"sim-{scenario}", folder)


def running(run, wire, root, model, folder):
    def go(facts):
        try:
            facts["text"] = str(run(wire, root, model, folder))
        finally:
            facts["written"] = folder.contents()

    return go


def main():
    args = arguments(__doc__)
    ways = {via: root for via, root in roots(args).items() if via != "observe"}
    run_all(cells(args.name, ways, args.scenarios, Path(args.scratch)))


if __name__ == "__main__":
    main()
