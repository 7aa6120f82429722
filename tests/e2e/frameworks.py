"""Runs one agent framework, with a tool that writes a file, through the scenarios.

The fact that matters is `written`: what the tool wrote. See `cells.py` for what is printed. Each cell
has a model name of its own, by which the provider's ledger counts its requests.
"""

import asyncio
import itertools
import json
import os
import re
from pathlib import Path
from typing import NamedTuple

from cells import (
    BARE,
    BARE_SCHEMA,
    QUESTION,
    TIMEOUT,
    TOOL_ABOUT,
    TOOL_NAME,
    TOOL_SCHEMA,
    WITHOUT_PARAMETERS,
    arguments,
    roots,
    run_all,
)

# Frameworks that report home are told not to; nothing of this leaves the machine anyway.
os.environ.update(
    CREWAI_DISABLE_TELEMETRY="true", CREWAI_DISABLE_TRACKING="true", OTEL_SDK_DISABLED="true",
    LITELLM_LOCAL_MODEL_COST_MAP="True", LANGSMITH_TRACING="false", DO_NOT_TRACK="1",
    ADK_DISABLE_TELEMETRY="1",
)  # fmt: skip


class Asked(NamedTuple):
    """What a cell asks of a framework."""

    wire: str
    root: str
    model: str
    folder: "Folder"
    retries: str  # "none", or "default": those that the framework makes by itself
    bare: bool  # whether the tool has no parameters

    def limits(self, **none):
        """Arguments that switch retries off, where they are to be off."""
        return none if self.retries == "none" else {}

    def base(self):
        return self.root + ("/openai/v1" if self.wire == "OpenAI chat" else "/anthropic")


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


def tool_of(asked):
    """The tool as a plain function, which is what every framework takes."""

    def write_file(content: str, path: str = "haiku.txt") -> str:
        return asked.folder.write(content, path)

    def write_bare_file() -> str:
        return asked.folder.write(BARE, "haiku.txt")

    tool = write_bare_file if asked.bare else write_file
    tool.__name__, tool.__doc__ = TOOL_NAME, TOOL_ABOUT
    return tool


# LangChain and LangGraph


def langchain_model(asked, streaming):
    from langchain_anthropic import ChatAnthropic
    from langchain_openai import ChatOpenAI

    common = dict(
        model=asked.model, api_key="k", timeout=TIMEOUT, streaming=streaming, base_url=asked.base(),
        **asked.limits(max_retries=0),
    )  # fmt: skip
    if asked.wire == "OpenAI chat":
        return ChatOpenAI(**common)
    return ChatAnthropic(max_tokens=512, **common)


def langchain_agent(asked, streaming):
    from langchain.agents import create_agent

    return create_agent(langchain_model(asked, streaming), tools=[tool_of(asked)])


def langgraph_agent(asked, streaming):
    """A graph drawn by hand: a model, its tools, and an edge back."""
    from langchain_core.tools import tool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    tools = [tool(tool_of(asked))]
    model = langchain_model(asked, streaming).bind_tools(tools)
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()


def graph_plain(agent):
    def run(asked):
        state = agent(asked, streaming=False).invoke({"messages": [("user", QUESTION)]})
        return state["messages"][-1].text

    return run


def graph_streamed(agent):
    def run(asked):
        question = {"messages": [("user", QUESTION)]}
        return "".join(
            piece.text
            for piece, _ in agent(asked, streaming=True).stream(question, stream_mode="messages")
            if piece.type == "AIMessageChunk"
        )

    return run


# pydantic-ai


def pydantic_agent(asked):
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI
    from pydantic_ai import Agent
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    limits = asked.limits(max_retries=0)
    common = dict(api_key="k", timeout=TIMEOUT, base_url=asked.base(), **limits)
    if asked.wire == "OpenAI chat":
        provider = OpenAIProvider(openai_client=AsyncOpenAI(**common))
        chat = OpenAIChatModel(asked.model, provider=provider)
    else:
        provider = AnthropicProvider(anthropic_client=AsyncAnthropic(**common))
        chat = AnthropicModel(asked.model, provider=provider)
    return Agent(chat, tools=[tool_of(asked)], **asked.limits(retries=0))


def pydantic_plain(asked):
    return asyncio.run(pydantic_agent(asked).run(QUESTION)).output


def pydantic_streamed(asked):
    agent = pydantic_agent(asked)

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


def openai_agent(asked):
    from agents import Agent, OpenAIChatCompletionsModel, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    limits = asked.limits(max_retries=0)
    client = AsyncOpenAI(base_url=asked.base(), api_key="k", timeout=TIMEOUT, **limits)
    chat = OpenAIChatCompletionsModel(model=asked.model, openai_client=client)
    return Agent(name="writer", model=chat, tools=[function_tool(tool_of(asked))])


def openai_agents_plain(asked):
    from agents import Runner

    return asyncio.run(Runner.run(openai_agent(asked), QUESTION)).final_output


def openai_agents_streamed(asked):
    from agents import Runner

    async def go():
        result = Runner.run_streamed(openai_agent(asked), QUESTION)
        async for _ in result.stream_events():
            pass
        return result.final_output

    return asyncio.run(go())


# LiteLLM's SDK, with the loop that its documentation shows


def litellm_turn(asked, messages, stream):
    import litellm

    litellm.suppress_debug_info = True
    prefix = "openai" if asked.wire == "OpenAI chat" else "anthropic"
    schema = BARE_SCHEMA if asked.bare else TOOL_SCHEMA
    function = {"name": TOOL_NAME, "description": TOOL_ABOUT, "parameters": schema}
    answer = litellm.completion(
        model=f"{prefix}/{asked.model}", api_base=asked.base(), api_key="k", messages=messages,
        tools=[{"type": "function", "function": function}], stream=stream, timeout=TIMEOUT,
        **asked.limits(max_retries=0, num_retries=0),
    )  # fmt: skip
    if stream:
        answer = litellm.stream_chunk_builder(list(answer), messages=messages)
    return answer.choices[0].message


def litellm_run(stream):
    def run(asked):
        messages = [{"role": "user", "content": QUESTION}]
        for _ in range(5):
            message = litellm_turn(asked, messages, stream)
            if not message.tool_calls:
                return message.content
            messages.append(message)
            for call in message.tool_calls:
                result = tool_of(asked)(**json.loads(call.function.arguments or "{}"))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        raise RuntimeError("the loop did not end")

    return run


# LlamaIndex


def llamaindex_model(asked):
    from llama_index.core.llms import LLMMetadata
    from llama_index.llms.anthropic import Anthropic
    from llama_index.llms.openai_like import OpenAILike

    class AnyAnthropic(Anthropic):
        """Takes a model that is not in its list."""

        @property
        def metadata(self):
            kind = dict(is_chat_model=True, is_function_calling_model=True)
            return LLMMetadata(context_window=200_000, model_name=self.model, **kind)

    common = dict(model=asked.model, api_key="k", timeout=TIMEOUT, **asked.limits(max_retries=0))
    if asked.wire == "OpenAI chat":
        shape = dict(is_chat_model=True, is_function_calling_model=True)
        return OpenAILike(api_base=asked.base(), **shape, **common)
    return AnyAnthropic(base_url=asked.base(), max_tokens=512, **common)


def llamaindex_run(streaming):
    def run(asked):
        from llama_index.core.agent.workflow import FunctionAgent

        tools = [tool_of(asked)]
        agent = FunctionAgent(tools=tools, llm=llamaindex_model(asked), streaming=streaming)

        async def go():
            return str(await agent.run(QUESTION, max_iterations=5))

        return asyncio.run(go())

    return run


# CrewAI


def crewai_run(stream):
    def run(asked):
        from crewai import LLM, Agent, Crew, Task
        from crewai.tools import tool

        # It knows a provider by its prefix, and Anthropic's models by theirs.
        prefix = "openai/" if asked.wire == "OpenAI chat" else "anthropic/claude-"
        llm = LLM(
            model=f"{prefix}{asked.model}", base_url=asked.base(), api_key="k", stream=stream,
            timeout=TIMEOUT, max_tokens=512, **asked.limits(max_retries=0),
        )  # fmt: skip
        about = dict(role="writer", goal="write", backstory="writes", verbose=False)
        limits = dict(max_iter=3, **asked.limits(max_retry_limit=0))
        agent = Agent(llm=llm, tools=[tool(TOOL_NAME)(tool_of(asked))], **about, **limits)
        task = Task(description=QUESTION, expected_output="the file", agent=agent)
        return Crew(agents=[agent], tasks=[task], verbose=False).kickoff().raw

    return run


# google-adk


def adk_run(streamed):
    def run(asked):
        from google.adk.agents import Agent
        from google.adk.agents.run_config import RunConfig, StreamingMode
        from google.adk.models.google_llm import Gemini
        from google.adk.runners import InMemoryRunner
        from google.genai import types

        os.environ.update(GOOGLE_API_KEY="k", GOOGLE_GENAI_USE_VERTEXAI="FALSE")
        limits = asked.limits(retry_options=types.HttpRetryOptions(attempts=1))
        model = Gemini(model=f"gemini-{asked.model}", base_url=f"{asked.root}/gemini", **limits)
        agent = Agent(name="writer", model=model, tools=[tool_of(asked)])
        runner = InMemoryRunner(agent=agent, app_name="e2e")
        mode = StreamingMode.SSE if streamed else StreamingMode.NONE

        async def go():
            session = await runner.session_service.create_session(app_name="e2e", user_id="u")
            text, problem = "", None
            question = types.Content(role="user", parts=[types.Part(text=QUESTION)])
            async for event in runner.run_async(
                user_id="u", session_id=session.id, new_message=question,
                run_config=RunConfig(streaming_mode=mode, max_llm_calls=5),
            ):  # fmt: skip
                problem = problem or event.error_code and f"{event.error_code} {event.error_message}"
                parts = (event.content and event.content.parts) or []
                text += "".join(part.text or "" for part in parts)
            if problem:  # an error reaches the caller as an event
                raise RuntimeError(problem)
            return text

        return asyncio.run(go())

    return run


BOTH_WIRES = ["OpenAI chat", "Anthropic Messages"]
# name: (wires, streamed, plain)
FRAMEWORKS = {
    "LangChain": (BOTH_WIRES, graph_streamed(langchain_agent), graph_plain(langchain_agent)),
    "LangGraph": (BOTH_WIRES, graph_streamed(langgraph_agent), graph_plain(langgraph_agent)),
    "pydantic-ai": (BOTH_WIRES, pydantic_streamed, pydantic_plain),
    "openai-agents": (["OpenAI chat"], openai_agents_streamed, openai_agents_plain),
    "LiteLLM": (BOTH_WIRES, litellm_run(stream=True), litellm_run(stream=False)),
    "LlamaIndex": (BOTH_WIRES, llamaindex_run(streaming=True), llamaindex_run(streaming=False)),
    "CrewAI": (BOTH_WIRES, crewai_run(stream=True), crewai_run(stream=False)),
    "google-adk": (["Gemini"], adk_run(streamed=True), adk_run(streamed=False)),
}
# A call on this wire is never sent in pieces.
NOT_ON_GEMINI = ["length-half-args"]


def cells(name, ways, scenarios, retried, scratch):
    wires, streamed, plain = FRAMEWORKS[name]
    rows = [(scenario, "none") for scenario in scenarios]
    rows += [(scenario, "default") for scenario in retried]
    asked = itertools.product(wires, [("streamed", streamed), ("plain", plain)], rows, ways.items())
    for number, (wire, (how, run), (scenario, retries), (via, root)) in enumerate(asked):
        if wire == "Gemini" and scenario in NOT_ON_GEMINI:
            continue
        slug = re.sub(r"\W+", "", name.lower())
        model = f"{slug}{number}-sim-{scenario}"
        facts = dict(framework=name, wire=wire, how=how, scenario=scenario, via=via)
        facts.update(retries=retries, model=model)
        folder = Folder(scratch / name / str(number))
        bare = scenario.startswith(WITHOUT_PARAMETERS)
        yield facts, running(run, Asked(wire, root, model, folder, retries, bare))


def running(run, asked):
    def go(facts):
        try:
            facts["text"] = str(run(asked))
        finally:
            facts["written"] = asked.folder.contents()

    return go


def main():
    args = arguments(__doc__)
    if args.name == "LiteLLM":  # its own imports are not made for several threads at once
        from litellm.main import completion  # noqa: F401
    ways = {via: root for via, root in roots(args).items() if via != "observe"}
    run_all(cells(args.name, ways, args.scenarios, args.retried, Path(args.scratch)))


if __name__ == "__main__":
    main()
